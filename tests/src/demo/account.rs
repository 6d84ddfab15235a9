//! Joining what both ends say.

use std::collections::BTreeMap;

use serde::Deserialize;
use tapecast_subscriber::Summary;
use tapecast_telemetry::{LatencyFigures, LatencySummary, SkewError, SkewFigures, SkewRecord};

/// The part of the publisher's report that the demo reads.
#[derive(Clone, Debug, Deserialize)]
pub struct PublisherReport {
    /// Each instrument that was published.
    pub instruments: Vec<PublishedInstrument>,
}

/// One instrument of the publisher's report.
#[derive(Clone, Debug, Deserialize)]
pub struct PublishedInstrument {
    /// Symbol.
    pub symbol: String,
    /// Snapshots published.
    pub published: u64,
}

/// Both ends' figures, joined.
#[derive(Debug)]
pub struct Account {
    /// Snapshots that the publisher published.
    pub published: u64,
    /// Each subscriber, in the order in which they were started.
    pub subscribers: Vec<Summary>,
    /// Latency over all deliveries of all subscribers.
    pub latency: LatencyFigures,
    /// Time between the first and the last subscriber that received a snapshot.
    pub skew: SkewFigures,
    /// Where the ends contradict each other. Empty in health.
    pub imbalances: Vec<Imbalance>,
}

/// A subscriber and instrument for which published ≠ delivered + conflated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// The subscriber.
    pub subscriber: String,
    /// The instrument.
    pub symbol: String,
    /// What the publisher published.
    pub published: u64,
    /// What the subscriber delivered.
    pub delivered: u64,
    /// What the subscriber knows to be conflated.
    pub conflated: u64,
}

/// Joins the publisher's report with every subscriber's summary. All of them must have been
/// attached
/// before the first snapshot.
///
/// # Errors
/// [`SkewError`] when the skew samples are not of one run.
pub fn join(report: &PublisherReport, subscribers: Vec<Summary>) -> Result<Account, SkewError> {
    let imbalances = subscribers.iter().flat_map(|summary| imbalances(report, summary)).collect();
    let mut latency = LatencySummary::new();
    for summary in &subscribers {
        latency.merge(&summary.latency);
    }
    let samples: Vec<SkewRecord> =
        subscribers.iter().filter_map(|summary| summary.skew.last().cloned()).collect();
    Ok(Account {
        published: report.instruments.iter().map(|instrument| instrument.published).sum(),
        latency: latency.figures(),
        skew: SkewFigures::merge(&samples)?,
        subscribers,
        imbalances,
    })
}

fn imbalances(report: &PublisherReport, summary: &Summary) -> Vec<Imbalance> {
    let mut seen: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for account in &summary.instruments {
        let entry = seen.entry(&account.symbol).or_default();
        entry.0 += account.delivered;
        entry.1 += account.conflated;
    }
    let mut found = Vec::new();
    for instrument in &report.instruments {
        let (delivered, conflated) = seen.remove(&*instrument.symbol).unwrap_or_default();
        if instrument.published != delivered + conflated {
            found.push(Imbalance {
                subscriber: summary.name.clone(),
                symbol: instrument.symbol.clone(),
                published: instrument.published,
                delivered,
                conflated,
            });
        }
    }
    // What a subscriber received of an instrument that was never published.
    found.extend(seen.into_iter().map(|(symbol, (delivered, conflated))| Imbalance {
        subscriber: summary.name.clone(),
        symbol: symbol.to_owned(),
        published: 0,
        delivered,
        conflated,
    }));
    found
}

#[cfg(test)]
mod tests {
    use tapecast_subscriber::InstrumentAccount;

    use super::*;

    fn report(published: u64) -> PublisherReport {
        let symbol = "AAPL".to_owned();
        PublisherReport { instruments: vec![PublishedInstrument { symbol, published }] }
    }

    fn summary(symbol: &str, delivered: u64, conflated: u64) -> Summary {
        let statistics = serde_json::to_value(tapecast_subscriber::Statistics::default())
            .expect("statistics are plain data");
        let mut summary: Summary = serde_json::from_value(serde_json::json!({
            "name": "one", "session_id": 0, "epoch": 1, "state": "live", "source_ended": true,
            "elapsed_ns": 0, "balanced": true, "statistics": statistics,
            "latency": LatencySummary::new(), "skew": [], "instruments": [],
        }))
        .expect("a summary");
        summary.instruments.push(InstrumentAccount {
            symbol: symbol.to_owned(),
            venue: "XNAS".to_owned(),
            published: delivered + conflated,
            delivered,
            conflated,
            lost: 0,
            last_sequence: 0,
        });
        summary
    }

    #[test]
    fn delivered_and_conflated_together_balance() {
        let account = join(&report(10), vec![summary("AAPL", 7, 3)]).expect("one run");
        assert_eq!(account.imbalances, []);
    }

    #[test]
    fn a_missing_snapshot_is_found_although_the_subscriber_believes_it_balances() {
        let account = join(&report(10), vec![summary("AAPL", 7, 2)]).expect("one run");
        assert_eq!(account.imbalances.len(), 1);
        assert_eq!(account.imbalances[0].published, 10);
    }

    #[test]
    fn an_instrument_that_was_never_published_is_found() {
        let account = join(&report(0), vec![summary("MSFT", 1, 0)]).expect("one run");
        assert_eq!(account.imbalances[0].symbol, "MSFT");
    }
}
