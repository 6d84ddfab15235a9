//! The effective configuration as text.

use std::fmt;

use super::Effective;
use super::entitlement::ENTITLEMENT;
use super::keys::{KEYS, Key};
use super::layers::flat_config;

impl fmt::Display for Effective {
    /// A complete TOML file with the origin of each value behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = flat_config(&self.config);
        let lines: Vec<(&Key, Option<String>)> = KEYS
            .iter()
            .map(|key| (key, values.iter().find(|(path, _)| path == key.path)))
            .map(|(key, found)| (key, found.map(|(_, value)| value.to_string())))
            .collect();
        let mut section = "";
        for (key, value) in lines {
            if key.path == ENTITLEMENT {
                self.write_entitlements(f)?;
                continue;
            }
            let (this, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
            if this != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                writeln!(f, "{gap}[{this}]")?;
                section = this;
            }
            match value {
                Some(value) => {
                    // What is not used is a comment: the user who reads this back may have another
                    // default, and nobody chose this one.
                    let (mark, note) = match self.idle_without(key) {
                        Some(kind) => ("# ", format!("only with fabric.kind = {:?}", kind.word())),
                        None => ("", self.origin(key.path).to_owned()),
                    };
                    let setting = format!("{mark}{name} = {value}");
                    writeln!(f, "{setting:<44} # {note}")?;
                }
                None => writeln!(f, "# {name} is not set")?,
            }
        }
        Ok(())
    }
}

impl Effective {
    /// The entitlements, as tables at the end of the file.
    fn write_entitlements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.config.entitlement.is_empty() {
            return writeln!(f, "\n# {ENTITLEMENT} is not set");
        }
        for entitlement in &self.config.entitlement {
            let heading = format!("[[{ENTITLEMENT}]]");
            writeln!(f, "\n{heading:<44} # {}", self.origin(ENTITLEMENT))?;
            // Text, numbers and lists of text always write.
            f.write_str(&toml::to_string(entitlement).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}
