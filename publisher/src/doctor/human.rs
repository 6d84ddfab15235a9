//! The report for a person: by section, aligned, with what to do below each line that needs it.

use std::fmt;

use super::finding::{Act, Finding, Section, Status, clean};
use super::{Report, Summary};

/// Widest title that others are aligned to.
const TITLE_CHARS: usize = 40;
/// Widest value that others are aligned to.
const SEEN_CHARS: usize = 24;
const STATUS_CHARS: usize = 9;
/// What stands below a line begins where its title does.
const MARGIN: usize = STATUS_CHARS + 2;
/// Reasons are broken here; commands are not, so that they can be copied.
const LINE_CHARS: usize = 110;
/// A line that would be longer shows below what is wanted.
const WIDEST: usize = 120;

/// A report for a person to read.
#[derive(Clone, Copy, Debug)]
pub struct Human<'a> {
    /// What was found.
    pub report: &'a Report,
    /// Whether to colour.
    pub colour: bool,
}

impl fmt::Display for Human<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", clean(&self.heading()))?;
        let titles = self.report.findings.iter().map(|finding| finding.title.chars().count());
        let width = titles.max().unwrap_or(0).min(TITLE_CHARS);
        let head = format!("{:STATUS_CHARS$}{:<width$}", "", "");
        writeln!(f, "\n  {head}  {:<SEEN_CHARS$}  wanted", "seen")?;
        let mut section: Option<Section> = None;
        for finding in &self.report.findings {
            if section != Some(finding.section) {
                writeln!(f, "\n{}", self.tint("\x1b[1m", finding.section.heading()))?;
                section = Some(finding.section);
            }
            self.line(f, finding, width)?;
        }
        writeln!(f, "\n{}", self.closing())
    }
}

impl Human<'_> {
    fn tint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("{code}{text}\x1b[0m") } else { text.to_owned() }
    }

    fn heading(&self) -> String {
        let report = self.report;
        let device = match &report.device {
            Some(device) => {
                let firmware = device.firmware.as_deref();
                let firmware = firmware.map_or_else(String::new, |f| format!(", firmware {f}"));
                format!("{} ({}{firmware})", device.name, device.driver.describe())
            }
            None => "no RDMA device".to_owned(),
        };
        let interface = report.interface.as_deref();
        let interface = interface.map_or_else(String::new, |name| format!(" on {name}"));
        let hot = match report.hot_cpus.as_str() {
            "" => "hot CPUs not known".to_owned(),
            cpus => format!("hot CPUs {cpus}"),
        };
        format!("{device}{interface}, {hot}, profile {}", report.profile)
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, found: &Finding, width: usize) -> fmt::Result {
        let code = match found.status {
            Status::Ok => "\x1b[32m",
            Status::Warn => "\x1b[33m",
            Status::Fail => "\x1b[1;31m",
            Status::Unknown => "\x1b[36m",
        };
        let status = self.tint(code, &format!("{:<STATUS_CHARS$}", found.status.word()));
        write!(f, "  {status}{:<width$}  ", clean(&found.title))?;
        let seen = found.seen.as_deref().unwrap_or("?");
        let (before, wanted) = (MARGIN + width + 2, clean(&found.wanted));
        if before + seen.chars().count().max(SEEN_CHARS) + 2 + wanted.chars().count() > WIDEST {
            writeln!(f, "{seen}")?;
            self.below(f, "wanted", &wanted)?;
        } else {
            writeln!(f, "{seen:<SEEN_CHARS$}  {wanted}")?;
        }
        match (found.status, &found.reason) {
            (Status::Ok, _) => return Ok(()),
            (Status::Unknown, Some(reason)) => self.below(f, "not known", reason)?,
            _ => self.below(f, "why", &found.why)?,
        }
        found.fix.iter().try_for_each(|step| match step.act {
            Act::ByHand => self.below(f, "fix", &step.command),
            _ => self.beside(f, "fix", &clean(&step.command)),
        })
    }

    /// A text, in as many lines as it takes.
    fn below(&self, f: &mut fmt::Formatter<'_>, what: &str, text: &str) -> fmt::Result {
        let margin = MARGIN + what.len() + 2;
        let mut lines = broken(&clean(text), LINE_CHARS - margin).into_iter();
        self.beside(f, what, &lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| writeln!(f, "{:margin$}{line}", ""))
    }

    fn beside(&self, f: &mut fmt::Formatter<'_>, what: &str, line: &str) -> fmt::Result {
        writeln!(f, "{:MARGIN$}{} {line}", "", self.tint("\x1b[2m", &format!("{what}:")))
    }

    fn closing(&self) -> String {
        let Summary { ok, warn, fail, unknown } = self.report.summary;
        let counts = format!(
            "{ok} ok, {} and {}, {unknown} unknown.",
            plural(warn, "warning"),
            plural(fail, "failure",)
        );
        let failing: Vec<&str> = self
            .report
            .findings
            .iter()
            .filter(|finding| finding.status == Status::Fail)
            .map(|finding| finding.title.as_str())
            .collect();
        let first = match failing[..] {
            [] => String::new(),
            _ => format!(" Fails: {}.", failing.join("; ")),
        };
        let counts = broken(&clean(&(counts + &first)), LINE_CHARS).join("\n");
        let counts = counts.replacen("Fails:", &self.tint("\x1b[1;31m", "Fails:"), 1);
        let next = match self.report.steps().is_empty() {
            true => "",
            false => "\nThe same command with --fix prints what mends it, as a script.",
        };
        format!("{counts}{next}")
    }
}

/// A text in lines of so many characters; a longer word has a line of its own.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::broken;

    #[test]
    fn a_text_is_broken_between_words_alone() {
        assert_eq!(broken("one two three", 8), ["one two", "three"]);
        assert_eq!(broken("unbreakable word", 4), ["unbreakable", "word"]);
        assert_eq!(broken("", 8), [""]);
    }
}
