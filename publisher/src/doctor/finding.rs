//! What a check found: one line of the report, with the steps that mend it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As wanted.
    Ok,
    /// Costs microseconds, or may.
    Warn,
    /// Breaks the service, or stalls it for milliseconds.
    Fail,
    /// Cannot be known; the finding says why.
    Unknown,
}

impl Status {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Unknown => "unknown",
        }
    }
}

/// Part of the report, in its order: what comes first has to work for what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Cores: isolation, frequency, sleep.
    Cpu,
    /// What the kernel does on its own.
    Kernel,
    /// Pages, limits, swap.
    Memory,
    /// Time.
    Clock,
    /// The adapter's slot.
    Pcie,
    /// The network interface.
    Link,
    /// The RDMA device's port.
    Rdma,
    /// Priorities and pauses.
    Qos,
    /// Congestion control.
    Dcqcn,
    /// What has gone wrong since the machine started.
    Counters,
}

impl Section {
    /// Heading of this part.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Kernel => "Kernel",
            Self::Memory => "Memory",
            Self::Clock => "Clock",
            Self::Pcie => "PCIe",
            Self::Link => "Link",
            Self::Rdma => "RDMA",
            Self::Qos => "Priorities and pauses",
            Self::Dcqcn => "Congestion control (DCQCN)",
            Self::Counters => "Counters since start",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name that stays the same from release to release, such as `link.mtu`.
    pub id: String,
    /// Where it stands.
    pub section: Section,
    /// What was looked at.
    pub title: String,
    /// How it stands.
    pub status: Status,
    /// The value seen; none when it cannot be known.
    pub seen: Option<String>,
    /// The value wanted.
    pub wanted: String,
    /// What it is good for.
    pub why: String,
    /// Why it cannot be known; only with [`Status::Unknown`].
    pub reason: Option<String>,
    /// What mends it, in order.
    pub fix: Vec<Step>,
}

/// One command of a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does, for a reader.
    pub what: String,
    /// The command; of a step that is left to a person, what to do.
    pub command: String,
    /// How it is done.
    #[serde(skip)]
    pub act: Act,
}

/// How a step is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Act {
    /// These files get these values: path from the root, value.
    Write(Vec<(String, String)>),
    /// A program with its arguments.
    Run(Vec<String>),
    /// This file of the system's configuration gets this text; it may have to be made.
    Keep(String, String),
    /// Left to a person: it takes a restart, an edit, or a decision.
    #[default]
    ByHand,
}

impl Act {
    /// The files of the kernel that get values.
    pub(super) fn writes(&self) -> &[(String, String)] {
        match self {
            Self::Write(files) => files,
            _ => &[],
        }
    }
}

impl Step {
    /// Writes one file.
    pub(crate) fn write(what: impl Into<String>, path: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        let command = format!("echo {} > {path}", quoted(&value));
        let act = Act::Write(vec![(path.to_owned(), value)]);
        Self { what: what.into(), command, act }
    }

    /// Writes files, shown as the command that does the same.
    pub(crate) fn writes(
        what: impl Into<String>,
        command: impl Into<String>,
        files: Vec<(String, String)>,
    ) -> Self {
        Self { what: what.into(), command: command.into(), act: Act::Write(files) }
    }

    /// Runs a program.
    pub(crate) fn run(what: impl Into<String>, command: &str) -> Self {
        let words = command.split(' ').map(str::to_owned).collect();
        Self { what: what.into(), command: command.to_owned(), act: Act::Run(words) }
    }

    /// Left to a person.
    pub(crate) fn by_hand(what: impl Into<String>, text: impl Into<String>) -> Self {
        Self { what: what.into(), command: text.into(), act: Act::ByHand }
    }
}

/// As a word of a shell; our values are plain but for blanks.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:,/".contains(&byte);
    if !value.is_empty() && value.bytes().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', "'\\''"))
    }
}

/// What is seen of a setting that this kernel is without: nothing can be wrong with it.
pub(crate) const NOT_IN_KERNEL: &str = "not in this kernel";

/// A check before it is known how things stand.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    finding: Finding,
}

impl Check {
    /// A check with what it wants and what that is good for.
    pub(crate) fn new(
        section: Section,
        id: impl Into<String>,
        title: impl Into<String>,
        wanted: impl fmt::Display,
        why: impl Into<String>,
    ) -> Self {
        Self {
            finding: Finding {
                id: id.into(),
                section,
                title: title.into(),
                status: Status::Unknown,
                seen: None,
                wanted: wanted.to_string(),
                why: why.into(),
                reason: None,
                fix: Vec::new(),
            },
        }
    }

    fn end(self, status: Status, seen: impl fmt::Display, fix: Vec<Step>) -> Finding {
        Finding { status, seen: Some(clean(&seen.to_string())), fix, ..self.finding }
    }

    /// It is as wanted.
    pub(crate) fn ok(self, seen: impl fmt::Display) -> Finding {
        self.end(Status::Ok, seen, Vec::new())
    }

    /// It costs something.
    pub(crate) fn warn(self, seen: impl fmt::Display, fix: Vec<Step>) -> Finding {
        self.end(Status::Warn, seen, fix)
    }

    /// It breaks something.
    pub(crate) fn fail(self, seen: impl fmt::Display, fix: Vec<Step>) -> Finding {
        self.end(Status::Fail, seen, fix)
    }

    /// A warning unless it is as wanted.
    pub(crate) fn warn_unless(
        self,
        good: bool,
        seen: impl fmt::Display,
        fix: impl FnOnce() -> Vec<Step>,
    ) -> Finding {
        if good { self.ok(seen) } else { self.warn(seen, fix()) }
    }

    /// A failure unless it is as wanted.
    pub(crate) fn fail_unless(
        self,
        good: bool,
        seen: impl fmt::Display,
        fix: impl FnOnce() -> Vec<Step>,
    ) -> Finding {
        if good { self.ok(seen) } else { self.fail(seen, fix()) }
    }

    /// It cannot be known.
    pub(crate) fn unknown(self, reason: impl fmt::Display) -> Finding {
        Finding { reason: Some(clean(&reason.to_string())), ..self.finding }
    }

    /// It cannot be known, because a file holds something else than expected.
    pub(crate) fn unreadable(self, path: &str, text: &str) -> Finding {
        self.unknown(format!("{path} reads {:?}, which is not understood", excerpt(text)))
    }
}

/// Longest piece of a file that is shown.
const EXCERPT_CHARS: usize = 40;

/// The beginning of a text.
pub(crate) fn excerpt(text: &str) -> String {
    let text = text.trim();
    let mut short: String = text.chars().take(EXCERPT_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Without anything that a terminal would act on.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}
