//! Progress of a long read or write: a bar with rate and remaining time on a terminal, a line now
//! and then elsewhere, nothing when silence was asked for.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{
    HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};

/// A bar is redrawn so often at most.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// A line is written so often at most.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressDisplay {
    /// Not at all.
    Off,
    /// A line every five seconds.
    Lines,
    /// A bar that is drawn again and again in place.
    Bar,
}

impl ProgressDisplay {
    /// A bar where standard error is a terminal, lines where not, nothing if `quiet`.
    #[must_use]
    pub fn for_stderr(quiet: bool) -> Self {
        if quiet {
            Self::Off
        } else if std::io::stderr().is_terminal() {
            Self::Bar
        } else {
            Self::Lines
        }
    }
}

/// What all of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressTotal {
    /// So many bytes of the input.
    Bytes(u64),
    /// So many messages.
    Messages(u64),
    /// Nobody knows.
    Unknown,
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressCount {
    /// Messages.
    pub messages: u64,
    /// Bytes of the (compressed) input, or of the output.
    pub bytes: u64,
}

/// Shows the progress of one job on standard error.
///
/// [`Progress::update`] is meant to be called every few hundred messages: it reads the clock, and
/// does more only when something is to be shown.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: ProgressTotal,
    started: Instant,
    shown: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Off,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// Starts the job's clock. `label` says what it is, e.g. the name of the file.
    #[must_use]
    pub fn start(display: ProgressDisplay, label: &str, total: ProgressTotal) -> Self {
        let now = Instant::now();
        let display = match display {
            ProgressDisplay::Off => Display::Off,
            ProgressDisplay::Lines => Display::Lines,
            ProgressDisplay::Bar => Display::Bar(bar(label, total)),
        };
        Self { label: label.to_owned(), total, started: now, shown: now, display }
    }

    /// What has been done so far.
    pub fn update(&mut self, count: ProgressCount) {
        let every = match self.display {
            Display::Off => return,
            Display::Lines => LINE_EVERY,
            Display::Bar(_) => BAR_EVERY,
        };
        let now = Instant::now();
        if now.duration_since(self.shown) >= every {
            self.shown = now;
            self.show(count);
        }
    }

    fn show(&self, count: ProgressCount) {
        let elapsed = self.started.elapsed();
        match &self.display {
            Display::Off => {}
            Display::Lines => {
                let line = progress_line(&self.label, self.total, count, elapsed);
                // Progress that cannot be shown is no reason to stop the work.
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
            Display::Bar(bar) => {
                bar.set_position(position(self.total, count));
                bar.set_message(rates(count, elapsed));
            }
        }
    }

    /// A new round of the same job: counts start from zero.
    pub fn restart(&mut self) {
        self.started = Instant::now();
        if let Display::Bar(bar) = &self.display {
            bar.reset();
        }
    }

    /// The job is over: leaves its last figures behind.
    pub fn finish(self, count: ProgressCount) {
        self.show(count);
        if let Display::Bar(bar) = &self.display {
            bar.abandon();
        }
    }
}

fn bar(label: &str, total: ProgressTotal) -> ProgressBar {
    let length = match total {
        ProgressTotal::Bytes(all) | ProgressTotal::Messages(all) => Some(all),
        ProgressTotal::Unknown => None,
    };
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template(template(total)) {
        let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = match left(state.len().unwrap_or(0), state.pos(), state.elapsed()) {
                Some(left) => write!(out, "{} left", HumanDuration(left)),
                None => write!(out, "time left unknown"),
            };
        };
        bar.set_style(style.progress_chars("=> ").with_key("left", left));
    }
    bar.set_prefix(label.to_owned());
    bar
}

const fn template(total: ProgressTotal) -> &'static str {
    match total {
        ProgressTotal::Bytes(_) => {
            "{prefix} [{bar:24}] {percent:>3}% of {total_bytes}  {msg}, {left}"
        }
        ProgressTotal::Messages(_) => {
            "{prefix} [{bar:24}] {percent:>3}% of {human_len}  {msg}, {left}"
        }
        ProgressTotal::Unknown => "{prefix} {spinner} {msg}, {elapsed}",
    }
}

const fn position(total: ProgressTotal, count: ProgressCount) -> u64 {
    match total {
        ProgressTotal::Bytes(_) => count.bytes,
        ProgressTotal::Messages(_) | ProgressTotal::Unknown => count.messages,
    }
}

/// One line about a job: what, how much of it, how fast, how long still.
#[must_use]
pub fn progress_line(
    label: &str,
    total: ProgressTotal,
    count: ProgressCount,
    elapsed: Duration,
) -> String {
    let mut line = format!("{label}: ");
    let all = match total {
        ProgressTotal::Bytes(all) | ProgressTotal::Messages(all) => all,
        ProgressTotal::Unknown => 0,
    };
    let done = position(total, count);
    if all > 0 {
        let percent = u128::from(done.min(all)) * 100 / u128::from(all);
        let _ = write!(line, "{percent} %, ");
    }
    line.push_str(&rates(count, elapsed));
    if let Some(left) = left(all, done, elapsed) {
        let _ = write!(line, ", {} left", HumanDuration(left));
    }
    line
}

fn rates(count: ProgressCount, elapsed: Duration) -> String {
    let per_second = |amount: u64| {
        let micros = elapsed.as_micros().max(1);
        u64::try_from(u128::from(amount) * 1_000_000 / micros).unwrap_or(u64::MAX)
    };
    // Decimal megabytes: the second figure changes with every update, the unit should not.
    let bytes = per_second(count.bytes);
    format!(
        "{} messages, {} messages/s, {}.{} MB/s",
        HumanCount(count.messages),
        HumanCount(per_second(count.messages)),
        bytes / 1_000_000,
        bytes % 1_000_000 / 100_000,
    )
}

/// Time left at the mean rate so far. `None` before anything is done and after everything is.
fn left(all: u64, done: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || done >= all {
        return None;
    }
    let nanos = elapsed.as_nanos() * u128::from(all - done) / u128::from(done);
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn count(messages: u64, bytes: u64) -> ProgressCount {
        ProgressCount { messages, bytes }
    }

    #[test]
    fn a_line_tells_share_rate_and_time_left() {
        let line = progress_line(
            "day.gz",
            ProgressTotal::Bytes(40_000_000),
            count(2_000_000, 10_000_000),
            2 * SECOND,
        );
        assert_eq!(
            line,
            "day.gz: 25 %, 2,000,000 messages, 1,000,000 messages/s, 5.0 MB/s, 6 seconds left"
        );
    }

    #[test]
    fn without_a_total_there_is_neither_share_nor_time_left() {
        let line = progress_line("feed", ProgressTotal::Unknown, count(10, 400), SECOND);
        assert_eq!(line, "feed: 10 messages, 10 messages/s, 0.0 MB/s");
    }

    #[test]
    fn nothing_done_nothing_elapsed_and_more_than_all_are_no_trouble() {
        let total = ProgressTotal::Messages(100);
        let zero = Duration::ZERO;
        let start = progress_line("x", total, count(0, 0), zero);
        assert_eq!(start, "x: 0 %, 0 messages, 0 messages/s, 0.0 MB/s");
        assert!(progress_line("x", total, count(200, 0), SECOND).starts_with("x: 100 %"));
        assert!(progress_line("x", total, count(u64::MAX, u64::MAX), zero).contains("MB/s"));
    }

    #[test]
    fn quiet_is_off() {
        assert_eq!(ProgressDisplay::for_stderr(true), ProgressDisplay::Off);
    }

    #[test]
    fn the_bar_follows_what_its_total_counts() {
        let totals = [
            (ProgressTotal::Bytes(40), 20),
            (ProgressTotal::Messages(40), 10),
            (ProgressTotal::Unknown, 10),
        ];
        for (total, expected) in totals {
            assert!(ProgressStyle::with_template(template(total)).is_ok(), "{total:?}");
            let progress = Progress::start(ProgressDisplay::Bar, "test", total);
            let Display::Bar(bar) = &progress.display else { panic!("not a bar") };
            let bar = bar.clone();
            progress.finish(count(10, 20));
            assert_eq!(bar.position(), expected, "{total:?}");
            assert!(bar.message().starts_with("10 messages, "), "{}", bar.message());
            assert!(bar.is_finished(), "{total:?}");
        }
    }
}
