//! For each attachment and instrument: published = delivered + conflated, and both ends count so.

use tapecast_core::account::InstrumentTotals;
use tapecast_core::session::SentTotals;
use tapecast_wire::Sequence;

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Counts, Event, Seen};
use crate::simulator::history::{Attachment, History};

/// What was delivered of one instrument.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Sequence before the first that counts.
    base: u64,
    last: u64,
    delivered: u64,
    conflated: u64,
    /// Of those delivered, the ones that had been delivered before.
    again: u64,
}

#[derive(Debug, Default)]
pub(super) struct Balance {
    tallies: Cells<Tally>,
}

impl Checker for Balance {
    fn name(&self) -> &'static str {
        "balance"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } if !history.attachments[attachment].lied => {
                self.on_delivered(attachment, seen, history)
            }
            Event::Counted { attachment, counts } => self.on_counted(attachment, counts, history),
            _ => Ok(()),
        }
    }
}

impl Balance {
    fn on_delivered(
        &mut self,
        attachment: usize,
        seen: &Seen<'_>,
        history: &History,
    ) -> Result<(), String> {
        let (instrument, sequence) = (seen.instrument(), seen.sequence());
        let tally = self.tallies.at(attachment, instrument);
        let is_first = tally.delivered == 0;
        if is_first {
            // What was there at the attach, or was asked for later, stands for itself.
            let terms = &history.attachments[attachment];
            let was_there = history.newest_at_attach(terms, instrument) > 0;
            let alone = was_there || !terms.named(instrument);
            tally.base = if alone { sequence.saturating_sub(1) } else { 0 };
            tally.last = tally.base;
        }
        let is_again = !is_first && sequence == tally.last;
        let skipped = sequence.saturating_sub(tally.last + 1);
        tally.last = sequence;
        tally.delivered += 1;
        tally.again += u64::from(is_again);
        tally.conflated += seen.conflated;
        let expected = (is_first || is_again, skipped);
        ensure((seen.initial, seen.conflated) == expected, || {
            format!(
                "attachment {attachment}: snapshot {sequence} of {instrument} says initial and \
                 conflated are {:?}, they are {expected:?}",
                (seen.initial, seen.conflated)
            )
        })
    }

    fn on_counted(
        &mut self,
        attachment: usize,
        counts: &Counts,
        history: &History,
    ) -> Result<(), String> {
        let terms = &history.attachments[attachment];
        let mine = (0..history.tracks.len()).filter(|instrument| terms.wants(*instrument));
        for instrument in mine {
            let tally = *self.tallies.at(attachment, instrument);
            let published = tally.last - tally.base + tally.again;
            ensure(published == tally.delivered + tally.conflated, || {
                format!("attachment {attachment}, instrument {instrument}: {tally:?}")
            })?;
            let received = InstrumentTotals {
                last_sequence: Sequence(tally.last),
                published,
                delivered: tally.delivered,
                conflated: tally.conflated,
                lost: 0,
            };
            let sent = SentTotals { published, sent: tally.delivered, conflated: tally.conflated };
            let found = (counts.received.get(instrument), counts.sent.get(instrument));
            ensure(found == (Some(&received), Some(&sent)), || {
                format!("attachment {attachment}, instrument {instrument}: {tally:?}, {found:?}")
            })?;
        }
        self.check_totals(attachment, counts, history)
    }

    fn check_totals(
        &self,
        attachment: usize,
        counts: &Counts,
        history: &History,
    ) -> Result<(), String> {
        let totals = counts.totals;
        let balanced = totals.published == totals.delivered + totals.conflated;
        let chain = chain(attachment, &history.attachments);
        if chain.iter().any(|each| history.attachments[*each].lied) {
            return Ok(());
        }
        ensure(balanced && totals.lost == 0, || format!("attachment {attachment}: {totals:?}"))?;
        let sum = |of: fn(&Tally) -> u64| -> u64 {
            chain.iter().filter_map(|each| self.tallies.rows.get(*each)).flatten().map(of).sum()
        };
        let expected = (sum(|tally| tally.delivered), sum(|tally| tally.conflated));
        let found = (totals.delivered, totals.conflated);
        ensure(found == expected, || {
            format!("attachment {attachment} counts {found:?}, it was handed {expected:?}")
        })?;
        let is_told = self.tallies.rows.get(attachment).is_some_and(|row| !row.is_empty());
        let shown = (counts.shown.delivered, counts.shown.conflated);
        ensure(!is_told || shown == found, || {
            format!(
                "the publisher shows {shown:?} of attachment {attachment}, which says {found:?}"
            )
        })
    }
}

/// An attachment and those before it whose account it goes on with.
fn chain(attachment: usize, all: &[Attachment]) -> Vec<usize> {
    let mut chain = vec![attachment];
    for earlier in (0..attachment).rev() {
        if !all[chain[chain.len() - 1]].resumed {
            break;
        }
        if all[earlier].subscriber == all[attachment].subscriber {
            chain.push(earlier);
        }
    }
    chain
}
