//! The line that `systemctl status` shows.

use std::time::{Duration, Instant};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(1);

/// What the publisher does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doing {
    /// Attached subscribers.
    pub(crate) subscribers: usize,
    /// Subscribers that the source waits for; none once it was let go.
    pub(crate) awaited: Option<usize>,
    /// Snapshots published so far.
    pub(crate) published: u64,
    /// Whether the feed is connected and silent.
    pub(crate) is_silent: bool,
    /// Whether the source has ended.
    pub(crate) has_ended: bool,
}

/// Says once a second what has changed.
#[derive(Debug, Default)]
pub(super) struct Status {
    /// When it looked last, and the snapshots then.
    looked: Option<(Instant, u64)>,
    said: String,
}

impl Status {
    /// The line, when it is time and it has changed. The first look only begins.
    pub(super) fn on_look(&mut self, doing: &Doing, now: Instant) -> Option<String> {
        let Some((when, before)) = self.looked else {
            self.looked = Some((now, doing.published));
            return None;
        };
        let passed = now.saturating_duration_since(when);
        if passed < EVERY {
            return None;
        }
        self.looked = Some((now, doing.published));
        let published = doing.published.saturating_sub(before);
        let line = line(doing, (published as f64 / passed.as_secs_f64()).round() as u64);
        if line == self.said {
            return None;
        }
        self.said.clone_from(&line);
        Some(line)
    }
}

fn line(doing: &Doing, rate: u64) -> String {
    let subscribers = match doing.subscribers {
        1 => "1 subscriber".to_owned(),
        count => format!("{count} subscribers"),
    };
    let feed = match doing {
        Doing { has_ended: true, .. } => "the source has ended".to_owned(),
        Doing { awaited: Some(awaited), .. } => format!("the source waits for {awaited}"),
        Doing { is_silent: true, .. } => "the feed is silent".to_owned(),
        Doing { .. } => format!("{} snapshots/s", grouped(rate)),
    };
    format!("{subscribers}, {feed}")
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_who_is_there_and_how_much_is_published() {
        let doing = Doing { subscribers: 3, published: 12_345, ..Doing::default() };
        let mut status = Status::default();
        let begin = Instant::now();
        assert_eq!(status.on_look(&Doing::default(), begin), None);
        assert_eq!(status.on_look(&doing, begin + EVERY / 2), None, "it is too early");
        let line = status.on_look(&doing, begin + EVERY).expect("a line");
        assert_eq!(line, "3 subscribers, 12,345 snapshots/s");
        let idle = status.on_look(&doing, begin + 2 * EVERY).expect("a line");
        assert_eq!(idle, "3 subscribers, 0 snapshots/s");
        assert_eq!(status.on_look(&doing, begin + 3 * EVERY), None, "nothing has changed");
        let twice = Doing { published: 12_345 + 2_000, ..doing };
        let line = status.on_look(&twice, begin + 5 * EVERY).expect("a line");
        assert_eq!(line, "3 subscribers, 1,000 snapshots/s", "over two seconds");
    }

    #[test]
    fn what_matters_more_than_the_rate_stands_in_its_place() {
        let waits = Doing { awaited: Some(2), ..Doing::default() };
        assert_eq!(line(&waits, 0), "0 subscribers, the source waits for 2");
        let silent = Doing { subscribers: 1, is_silent: true, ..Doing::default() };
        assert_eq!(line(&silent, 0), "1 subscriber, the feed is silent");
        let ended = Doing { has_ended: true, ..silent };
        assert_eq!(line(&ended, 5), "1 subscriber, the source has ended");
    }

    #[test]
    fn large_numbers_are_grouped() {
        let numbers = [0, 12, 123, 1_234, 12_345, 123_456, 1_234_567];
        let texts = ["0", "12", "123", "1,234", "12,345", "123,456", "1,234,567"];
        assert_eq!(numbers.map(grouped), texts);
    }
}
