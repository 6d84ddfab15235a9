//! Puts the four layers on top of one another and remembers where each value came from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{Map, Source, Value, ValueKind};

use super::entitlement::{ENTITLEMENT, FIELDS, numbered};
use super::file::read_file;
use super::keys::{KEYS, Key, is_section, nearest};
use super::{Config, ConfigError};

/// What is layered over the defaults.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// The environment. Only `TAPECAST_<section>_<key>` matters.
    pub environment: Vec<(String, String)>,
    /// Flags that stand for a key, as (flag, key, value).
    pub flags: Vec<(String, String, String)>,
}

/// The configuration that results, and where each value came from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The values.
    pub config: Config,
    origins: BTreeMap<String, String>,
}

/// Reads and merges all layers.
///
/// # Errors
/// [`ConfigError`] names the place and the key of the first thing that is wrong.
pub fn load(layers: &Layers) -> Result<Effective, ConfigError> {
    let mut all = vec![defaults()];
    if let Some(path) = &layers.file {
        all.push(file_layer(path)?);
    }
    all.push(environment_layer(&layers.environment)?);
    all.push(flag_layer(&layers.flags)?);

    let mut origins = BTreeMap::new();
    let mut builder = config::Config::builder();
    for layer in all {
        for entry in &layer.0 {
            origins.insert(entry.key.clone(), entry.origin.clone());
        }
        builder = builder.add_source(layer);
    }
    let merged = builder.build().map_err(|error| unexpected(&error))?;
    let config: Config = serde_path_to_error::deserialize(merged)
        .map_err(|error| value_error(&error.path().to_string(), error.inner(), &origins))?;
    let effective = Effective { config, origins };
    effective.check()?;
    Ok(effective)
}

impl Effective {
    /// Where the value of a key came from: `default`, a file, a variable or a flag.
    #[must_use]
    pub fn origin(&self, key: &str) -> &str {
        self.origins.get(key).map_or("default", String::as_str)
    }

    /// A [`ConfigError::Contradiction`] about `key`, with its origin.
    #[must_use]
    pub fn contradiction(&self, key: &str, problem: String) -> ConfigError {
        ConfigError::Contradiction {
            origin: self.origin(key).to_owned(),
            key: key.to_owned(),
            problem,
        }
    }
}

/// One value of one layer.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    origin: String,
    value: ValueKind,
}

/// One layer, as a source for the `config` crate, which merges the layers and converts the types.
#[derive(Clone, Debug)]
struct Layer(Vec<Entry>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        let pairs = self
            .0
            .iter()
            .map(|entry| (entry.key.clone(), Value::new(Some(&entry.origin), entry.value.clone())));
        Ok(pairs.collect())
    }
}

fn defaults() -> Layer {
    let entries = flat_config(&Config::default()).into_iter().map(|(key, value)| Entry {
        key,
        origin: "default".to_owned(),
        value: kind_of(&value),
    });
    Layer(entries.collect())
}

fn file_layer(path: &Path) -> Result<Layer, ConfigError> {
    let shown = path.display().to_string();
    let text = read_file(path, &shown)?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = error.message().replace('\n', ", ");
        ConfigError::Syntax { path: shown.clone(), line, message }
    })?;
    let mut leaves = Vec::new();
    flatten("", &toml::Value::Table(table), &mut leaves);
    let is_empty_section =
        |key: &str, value: &toml::Value| key.is_empty() || value.is_table() && is_section(key);
    leaves.retain(|(key, value)| !is_empty_section(key, value));
    let entries = leaves.into_iter().map(|(key, value)| {
        checked_key(&shown, &key)?;
        Ok(Entry { key, origin: shown.clone(), value: kind_of(&value) })
    });
    entries.collect::<Result<_, _>>().map(Layer)
}

/// What begins the origin of a value from the environment.
pub(super) const VARIABLE: &str = "environment variable ";
/// What begins the origin of a value from a flag.
pub(super) const FLAG: &str = "flag ";
/// What subscribers call the socket. Exported once, it is meant for both ends.
pub(super) const SHARED_SOCKET_VARIABLE: &str = "TAPECAST_SOCKET";

fn environment_layer(environment: &[(String, String)]) -> Result<Layer, ConfigError> {
    let shared = environment
        .iter()
        .find(|(name, value)| name == SHARED_SOCKET_VARIABLE && !value.is_empty());
    // First, so that the publisher's own variable wins.
    let mut entries: Vec<Entry> = shared
        .map(|(name, value)| Entry {
            key: "publisher.socket".to_owned(),
            origin: variable_origin(name),
            value: ValueKind::String(value.clone()),
        })
        .into_iter()
        .collect();
    for (variable, value) in environment {
        // An empty variable counts as unset, the usual way to undo an inherited one.
        if !names_a_section(variable) || value.is_empty() {
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.variable() == *variable) else {
            let known: Vec<String> = KEYS.iter().map(Key::variable).collect();
            let near = nearest(variable, known.iter().map(String::as_str));
            return Err(ConfigError::UnknownKey {
                origin: "environment".to_owned(),
                key: variable.clone(),
                hint: hint(near),
            });
        };
        entries.push(Entry {
            key: key.path.to_owned(),
            origin: variable_origin(variable),
            value: ValueKind::String(value.clone()),
        });
    }
    Ok(Layer(entries))
}

/// Origin of a value from the environment.
pub(super) fn variable_origin(variable: &str) -> String {
    format!("{VARIABLE}{variable}")
}

/// Whether a variable is meant for this configuration. Others, such as a subscriber's
/// `TAPECAST_SUBSCRIBER_…`, are none of its business.
fn names_a_section(variable: &str) -> bool {
    let Some(rest) = variable.strip_prefix("TAPECAST_") else { return false };
    KEYS.iter().any(|key| {
        let section = key.path.split('.').next().unwrap_or_default();
        let rest = rest.to_lowercase();
        let is_whole = !key.path.contains('.');
        let after = rest.strip_prefix(section);
        after.is_some_and(|rest| rest.starts_with('_') || is_whole && rest.is_empty())
    })
}

fn flag_layer(flags: &[(String, String, String)]) -> Result<Layer, ConfigError> {
    let entries = flags.iter().map(|(flag, key, value)| {
        let origin = format!("{FLAG}{flag}");
        checked_key(&origin, key)?;
        Ok(Entry { key: key.clone(), origin, value: ValueKind::String(value.clone()) })
    });
    entries.collect::<Result<_, _>>().map(Layer)
}

fn checked_key(origin: &str, key: &str) -> Result<(), ConfigError> {
    if Key::find(key).is_some() {
        return Ok(());
    }
    let hint = match is_section(key) {
        true => "it is a section: set the keys in it".to_owned(),
        false => hint(nearest(key, KEYS.iter().map(|key| key.path))),
    };
    Err(ConfigError::UnknownKey { origin: origin.to_owned(), key: key.to_owned(), hint })
}

fn hint(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`tapecast-publisher check-config` lists every key".to_owned(),
    }
}

/// Every value with its key.
pub(super) fn flat_config(config: &Config) -> Vec<(String, toml::Value)> {
    let mut leaves = Vec::new();
    // Every configuration type writes as a table of scalars and lists, so this cannot fail.
    if let Ok(value) = toml::Value::try_from(config) {
        flatten("", &value, &mut leaves);
    }
    leaves
}

fn flatten(path: &str, value: &toml::Value, leaves: &mut Vec<(String, toml::Value)>) {
    match value {
        toml::Value::Table(table) if !table.is_empty() => {
            for (name, inner) in table {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{name}"), inner, leaves);
            }
        }
        leaf => leaves.push((path.to_owned(), leaf.clone())),
    }
}

fn kind_of(value: &toml::Value) -> ValueKind {
    match value {
        toml::Value::String(text) => ValueKind::String(text.clone()),
        toml::Value::Integer(value) => ValueKind::I64(*value),
        toml::Value::Float(value) => ValueKind::Float(*value),
        toml::Value::Boolean(value) => ValueKind::Boolean(*value),
        toml::Value::Datetime(value) => ValueKind::String(value.to_string()),
        toml::Value::Array(items) => {
            ValueKind::Array(items.iter().map(|item| Value::new(None, kind_of(item))).collect())
        }
        toml::Value::Table(table) => ValueKind::Table(
            table
                .iter()
                .map(|(key, value)| (key.clone(), Value::new(None, kind_of(value))))
                .collect(),
        ),
    }
}

fn value_error(
    path: &str,
    error: &config::ConfigError,
    origins: &BTreeMap<String, String>,
) -> ConfigError {
    // Inside a list the path ends in an index; the key is what stands before it.
    let key = path.split('[').next().unwrap_or(path);
    let origin = origins.get(key).map_or("configuration", String::as_str).to_owned();
    let problem = innermost(error);
    if let Some((name, allowed)) = in_entitlement(path) {
        return ConfigError::Value { origin, key: name, problem, allowed: allowed.to_owned() };
    }
    let allowed = Key::find(key).map_or("see the documentation", |key| key.allowed);
    ConfigError::Value { origin, key: key.to_owned(), problem, allowed: allowed.to_owned() }
}

/// Name and allowed values of what a path such as `entitlement[0].symbols[2]` leads to.
fn in_entitlement(path: &str) -> Option<(String, &'static str)> {
    let rest = path.strip_prefix(ENTITLEMENT)?.strip_prefix('[')?;
    let (index, field) = rest.split_once(']')?;
    let field = field.trim_start_matches('.').split(['[', '.']).next()?;
    let known = FIELDS.iter().find(|(name, _)| *name == field);
    let (field, allowed) =
        known.map_or(("", "client, sessions_max, symbols, policies"), |known| (known.0, known.1));
    Some((numbered(index.parse().ok()?, field), allowed))
}

fn innermost(error: &config::ConfigError) -> String {
    match error {
        config::ConfigError::At { error, .. } => innermost(error),
        config::ConfigError::Type { unexpected, expected, .. } => {
            format!("found {unexpected} where {expected} belongs")
        }
        config::ConfigError::Message(message) => message.clone(),
        other => other.to_string(),
    }
}

fn unexpected(error: &config::ConfigError) -> ConfigError {
    ConfigError::Value {
        origin: "configuration".to_owned(),
        key: "merging".to_owned(),
        problem: innermost(error),
        allowed: "see the documentation".to_owned(),
    }
}

#[cfg(test)]
mod tests;
