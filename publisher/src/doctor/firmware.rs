//! What the card's firmware is set to: shown and set by a tool, in force only after a reset.

use super::finding::{Act, Check, Finding, Status, Step};
use super::host::Host;

/// A tool, and the one that resets what it has set. The vendor and the distributions ship them
/// under different names, and neither resets for the other.
const TOOLS: [(&str, &str); 2] = [("mlxconfig", "mlxfwreset"), ("mstconfig", "mstfwreset")];

/// The tool of this host with what it has printed.
pub(super) struct Firmware {
    tool: &'static str,
    reset: &'static str,
    address: String,
    printed: String,
}

impl Firmware {
    /// Asks for everything at once. Only with `-e` it shows what is in force, and old ones do not
    /// take that.
    pub(super) fn ask(host: &Host<'_>, address: &str) -> Result<Self, String> {
        let mut refusal = None;
        for question in ["-e q", "q"] {
            for (tool, reset) in TOOLS {
                match host.tools().ask(&format!("{tool} -d {address} {question}")) {
                    Ok(printed) => {
                        return Ok(Self { tool, reset, address: address.to_owned(), printed });
                    }
                    Err(reason) => refusal = refusal.or(Some(reason)),
                }
            }
        }
        Err(refusal.unwrap_or_default())
    }

    /// A setting, as numbers.
    pub(super) fn read(&self, name: &str) -> Result<Reading, String> {
        let columns = self.columns();
        let mut lines = self.printed.lines().map(|line| line.trim_start_matches('*'));
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        let values: Vec<&str> =
            line.into_iter().flat_map(str::split_whitespace).skip(1).take(columns.len()).collect();
        if values.len() < columns.len() {
            return Err(format!("{} does not show {name}", self.tool));
        }
        let at = |column: &str| {
            let index = columns.iter().position(|one| *one == column)?;
            Some(bare(values[index]))
        };
        Reading::of(at("Current"), at("Next"))
            .map_err(|text| format!("{} shows {text:?} for {name}", self.tool))
    }

    /// The columns in their order; a tool that heads none has one, of what comes next.
    fn columns(&self) -> Vec<&'static str> {
        let mut lines = self.printed.lines().map(str::trim_start);
        let heading = lines.find_map(|line| line.strip_prefix("Configurations:"));
        let known = ["Default", "Current", "Next"];
        let words = heading.unwrap_or_default().split_whitespace();
        let found: Vec<&str> =
            words.filter_map(|word| known.into_iter().find(|one| *one == word)).collect();
        if found.contains(&"Next") { found } else { vec!["Next"] }
    }

    /// Sets it, and says what takes it into force.
    pub(super) fn setting(&self, what: &str, name: &str, value: u64) -> Vec<Step> {
        let Self { tool, reset, address, .. } = self;
        let what_it_takes = format!("{reset} -d {address} reset (the link goes down for seconds)");
        vec![
            Step::run(what, &format!("{tool} -y -d {address} set {name}={value}")),
            Step::by_hand("settings of the firmware are in force after a reset", what_it_takes),
        ]
    }
}

/// Words are written like `True(1)`.
fn bare(value: &str) -> &str {
    let inside = value.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(value)
}

/// A number as drivers and tools print them: decimal, or with 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A setting as it is in force, and as the card will start with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    now: Option<u64>,
    next: Option<u64>,
}

impl Reading {
    /// Of a file: what it says is in force.
    pub(super) const fn in_force(value: u64) -> Self {
        Self { now: Some(value), next: None }
    }

    /// Of texts; the error is the one that is no number.
    fn of(now: Option<&str>, next: Option<&str>) -> Result<Self, String> {
        let read = |text: Option<&str>| {
            let wrong = |text: &str| number(text).ok_or_else(|| super::finding::excerpt(text));
            text.map(wrong).transpose()
        };
        Ok(Self { now: read(now)?, next: read(next)? })
    }

    /// What is known of it, the state in force first.
    pub(super) fn known(self) -> u64 {
        self.now.or(self.next).unwrap_or_default()
    }

    fn shown(self, show: impl Fn(u64) -> String) -> String {
        match (self.now, self.next) {
            (Some(now), Some(next)) if next != now => {
                format!("{}, after a restart {}", show(now), show(next))
            }
            (None, next) => format!("{} after a restart", next.map(show).unwrap_or_default()),
            (Some(now), _) => show(now),
        }
    }

    /// Judges what is in force. What is not in force yet takes no setting, only the reset.
    pub(super) fn judge(self, check: Check, judged: Judged<'_>) -> Finding {
        let Judged { good, show, otherwise, fix } = judged;
        let seen = self.shown(show);
        let resets = |fix: Vec<Step>| fix.into_iter().filter(|step| step.act == Act::ByHand);
        match (self.now.map(good), self.next.map(good), otherwise) {
            (Some(true), Some(false), _) => check.warn(seen, fix),
            (Some(true), _, _) => check.ok(seen),
            (Some(false), Some(true), _) => check.warn(seen, resets(fix).collect()),
            (None, Some(true), _) => check.unknown(format!(
                "it is set for the next start ({seen}), and the tool does not show what is in force"
            )),
            (_, _, Status::Fail) => check.fail(seen, fix),
            _ => check.warn(seen, fix),
        }
    }
}

/// By what a reading is judged.
pub(super) struct Judged<'a> {
    pub(super) good: &'a dyn Fn(u64) -> bool,
    pub(super) show: &'a dyn Fn(u64) -> String,
    /// What it is when it is neither good nor about to be.
    pub(super) otherwise: Status,
    pub(super) fix: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Firmware {
        let (tool, reset) = TOOLS[0];
        let address = "0000:3b:00.0".to_owned();
        Firmware { tool, reset, address, printed: text.to_owned() }
    }

    #[test]
    fn the_firmwares_tool_writes_words_and_numbers() {
        let firmware = printed(
            "Configurations:              Next Boot\n\
             \x20        RPG_MIN_RATE_P1             1\n\
             *        CLAMP_TGT_RATE_P1           False(0)\n\
             \x20        RPG_GD_P1                   Array[0..3]\n\
             \x20        CNP_DSCP_P1\n",
        );
        let next = |value| Ok(Reading { now: None, next: Some(value) });
        assert_eq!(firmware.read("RPG_MIN_RATE_P1"), next(1));
        assert_eq!(firmware.read("CLAMP_TGT_RATE_P1"), next(0));
        for missing in ["RPG_MIN_RATE_P2", "CNP_DSCP_P1", "RPG_GD_P1"] {
            assert!(firmware.read(missing).unwrap_err().contains(missing));
        }
    }

    #[test]
    fn what_is_in_force_is_in_a_column_of_its_own() {
        let firmware = printed(
            "Configurations:              Default         Current         Next Boot\n\
             *        RPG_MIN_RATE_P1             1       1       1700\n\
             \x20        CLAMP_TGT_RATE_P1           False(0)       True(1)       True(1)\n",
        );
        let both = |now, next| Ok(Reading { now: Some(now), next: Some(next) });
        assert_eq!(firmware.read("RPG_MIN_RATE_P1"), both(1, 1700));
        assert_eq!(firmware.read("CLAMP_TGT_RATE_P1"), both(1, 1));
    }
}
