//! What has to be true at the end of a life.

use std::collections::{BTreeMap, BTreeSet};

use tapecast_subscriber::Summary;

use super::Score;
use super::report::LifeReport;

/// How much of the day a subscriber was there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attendance {
    /// From before the first snapshot to after the last.
    Whole,
    /// It came in the middle, and stayed.
    FromSomewhere,
    /// It left in the middle.
    UntilSomewhere,
}

/// What is wrong with the publisher's life.
pub(super) fn life(report: &LifeReport, score: &Score, killed: &[String]) -> Vec<String> {
    let mut complaints = pool_and_sessions(report, killed);
    let mut complain = |holds: bool, text: String| {
        if !holds {
            complaints.push(format!("the publisher: {text}"));
        }
    };
    let (outcome, totals) = (&report.source.outcome, &report.totals);
    complain(outcome == "ended", format!("its source has {outcome}"));
    complain(totals.discarded == 0, format!("{} snapshots were discarded", totals.discarded));
    let snapshots = score.snapshots();
    complain(
        totals.published == snapshots,
        format!("published {} of the day's {snapshots} snapshots", totals.published),
    );
    for instrument in &report.instruments {
        let expected = score.instruments.get(&instrument.symbol).copied().unwrap_or(0);
        complain(
            instrument.published == expected,
            format!("published {instrument:?}, the day has {expected}"),
        );
    }
    complaints
}

/// What is wrong with its pool and its sessions. Over RDMA those of processes that were killed may
/// be evicted: their queue pairs fail before anybody hears of their end.
pub(super) fn pool_and_sessions(report: &LifeReport, killed: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    let pool = &report.pool;
    if pool.pages == 0 || pool.free_pages != pool.pages {
        complaints.push(format!("the publisher: its pool is not whole: {pool:?}"));
    }
    let mut names = BTreeSet::new();
    for session in &report.sessions {
        if session.delivered > 0 && !names.insert(&session.name) {
            complaints.push(format!("{} had to attach again", session.name));
        }
        let is_evicted = session.reason.contains("evicted") && !killed.contains(&session.name);
        if is_evicted || session.lost > 0 || session.faults > 0 {
            complaints.push(format!("the publisher: {session:?}"));
        }
    }
    complaints
}

/// Sessions that came to nothing before the subscriber had anything: its attempt to attach took
/// longer than it waits for one, and it tried again. That happens in an emulated machine, it is
/// counted and told. It is no session that was lost: `tail` ends with an error then, because it is
/// told not to attach again.
pub(super) fn retries(report: &LifeReport) -> u64 {
    let names: BTreeSet<_> = report.sessions.iter().map(|session| &session.name).collect();
    (report.sessions.len() - names.len()) as u64
}

/// What is wrong with a subscriber's account, beside what was published.
pub(super) fn account(
    summary: &Summary,
    published: &BTreeMap<String, u64>,
    attendance: Attendance,
) -> Vec<String> {
    let mut complaints = balance(summary);
    if summary.statistics.reconnects > 0 {
        complaints.push(format!("attached again {} times", summary.statistics.reconnects));
    }
    let mut left = published.clone();
    for account in &summary.instruments {
        let Some(published) = left.remove(&account.symbol) else {
            complaints.push(format!("{account:?} of what was never published"));
            continue;
        };
        let is_complete = match attendance {
            Attendance::Whole => {
                account.published == published && account.last_sequence == published
            }
            Attendance::FromSomewhere => {
                account.published <= published && account.last_sequence == published
            }
            Attendance::UntilSomewhere => {
                account.published <= published && account.last_sequence <= published
            }
        };
        if !is_complete {
            complaints.push(format!("{published} were published, and it has {account:?}"));
        }
    }
    if attendance != Attendance::UntilSomewhere && !left.is_empty() {
        complaints.push(format!("nothing was received of {left:?}"));
    }
    complaints
}

/// What is wrong with a subscriber's account in itself.
pub(super) fn balance(summary: &Summary) -> Vec<String> {
    let figures = &summary.statistics;
    let mut complaints = Vec::new();
    if !summary.balanced || figures.lost > 0 {
        complaints.push(format!("balanced: {}, lost: {}", summary.balanced, figures.lost));
    }
    let mut sums = [0; 3];
    for account in &summary.instruments {
        if account.lost > 0 || account.published != account.delivered + account.conflated {
            complaints.push(format!("does not balance: {account:?}"));
        }
        sums[0] += account.published;
        sums[1] += account.delivered;
        sums[2] += account.conflated;
    }
    if sums != [figures.published, figures.delivered, figures.conflated] {
        complaints.push(format!("its instruments add up to {sums:?}, not to {figures:?}"));
    }
    complaints
}

/// Whether a witness wrote as many lines as it says that it delivered.
pub(super) fn testimony(summary: &Summary, lines: &BTreeMap<String, u64>) -> Vec<String> {
    let accounts = &summary.instruments;
    let told: BTreeMap<String, u64> =
        accounts.iter().map(|account| (account.symbol.clone(), account.delivered)).collect();
    if told == *lines {
        return Vec::new();
    }
    vec![format!("it wrote {lines:?} and says that it delivered {told:?}")]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tapecast_subscriber::Statistics;
    use tapecast_telemetry::LatencySummary;

    use super::*;

    fn summary(published: u64, delivered: u64, conflated: u64) -> Summary {
        let figures = Statistics { published, delivered, conflated, ..Statistics::default() };
        serde_json::from_value(json!({
            "name": "one", "session_id": 0, "epoch": 1, "state": "live", "source_ended": true,
            "elapsed_ns": 0, "balanced": true, "statistics": figures,
            "latency": LatencySummary::new(), "skew": [],
            "instruments": [{
                "symbol": "AAPL", "venue": "XNAS", "published": published, "lost": 0,
                "delivered": delivered, "conflated": conflated, "last_sequence": 10,
            }],
        }))
        .expect("a summary")
    }

    fn complaints(summary: &Summary, published: u64, attendance: Attendance) -> usize {
        account(summary, &BTreeMap::from([("AAPL".to_owned(), published)]), attendance).len()
    }

    #[test]
    fn who_was_there_all_day_has_an_account_of_everything() {
        assert_eq!(complaints(&summary(10, 7, 3), 10, Attendance::Whole), 0);
        assert_eq!(complaints(&summary(10, 7, 3), 11, Attendance::Whole), 1);
        assert_eq!(complaints(&summary(9, 6, 3), 10, Attendance::Whole), 1);
        assert_eq!(complaints(&summary(10, 7, 2), 10, Attendance::Whole), 1);
    }

    #[test]
    fn who_comes_late_is_complete_and_who_leaves_need_not_be() {
        assert_eq!(complaints(&summary(4, 4, 0), 10, Attendance::FromSomewhere), 0);
        assert_eq!(complaints(&summary(4, 4, 0), 11, Attendance::FromSomewhere), 1);
        assert_eq!(complaints(&summary(10, 10, 0), 11, Attendance::UntilSomewhere), 0);
        assert_eq!(complaints(&summary(10, 10, 0), 9, Attendance::UntilSomewhere), 1);
    }

    #[test]
    fn an_instrument_of_which_nothing_came_is_missed_unless_one_left() {
        let published = BTreeMap::from([("AAPL".to_owned(), 10), ("MSFT".to_owned(), 1)]);
        let count = |attendance| account(&summary(10, 10, 0), &published, attendance).len();
        assert_eq!(count(Attendance::Whole), 1);
        assert_eq!(count(Attendance::FromSomewhere), 1);
        assert_eq!(count(Attendance::UntilSomewhere), 0);
        assert_eq!(account(&summary(10, 10, 0), &BTreeMap::new(), Attendance::Whole).len(), 1);
    }

    fn report(sessions: &Value, free_pages: u64) -> LifeReport {
        serde_json::from_value(json!({
            "source": {"outcome": "ended"}, "totals": {"published": 0, "discarded": 0},
            "instruments": [], "sessions": sessions,
            "pool": {"pages": 1024, "free_pages": free_pages},
        }))
        .expect("a report")
    }

    #[test]
    fn a_page_that_is_missing_and_who_was_evicted_or_came_twice_are_found() {
        let delivering = |name: &str, reason: &str, delivered: u64| {
            let (lost, faults) = (0, 0);
            json!({
                "name": name, "reason": reason, "delivered": delivered, "lost": lost,
                "faults": faults,
            })
        };
        let session = |name: &str, reason: &str| delivering(name, reason, 1);
        let count = |sessions: &Value, free_pages, killed: &[String]| {
            life(&report(sessions, free_pages), &Score::default(), killed).len()
        };
        let fine = json!([session("one", "it left"), session("other", "it left")]);
        assert_eq!(count(&fine, 1024, &[]), 0);
        assert_eq!(count(&fine, 1023, &[]), 1);
        let twice = json!([session("one", "it left"), session("one", "it left")]);
        assert_eq!(count(&twice, 1024, &[]), 1);
        let retried = json!([delivering("one", "too late", 0), session("one", "it left")]);
        assert_eq!(count(&retried, 1024, &[]), 0);
        assert_eq!(retries(&report(&retried, 1024)), 1);
        let evicted = json!([session("one", "evicted: why")]);
        assert_eq!(count(&evicted, 1024, &[]), 1);
        assert_eq!(count(&evicted, 1024, &["one".to_owned()]), 0);
    }

    #[test]
    fn a_witness_wrote_what_it_says() {
        let lines = |count| BTreeMap::from([("AAPL".to_owned(), count)]);
        assert_eq!(testimony(&summary(10, 7, 3), &lines(7)).len(), 0);
        assert_eq!(testimony(&summary(10, 7, 3), &lines(6)).len(), 1);
    }
}
