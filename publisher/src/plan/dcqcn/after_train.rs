//! What follows a train of notifications: the rate's recovery, and how late snapshots are.

use std::collections::VecDeque;

use serde::Serialize;

/// Most snapshots that are followed after a train.
const SNAPSHOTS_MAX: u32 = 200_000;
/// A snapshot is late when it comes by so much later than at line rate, in microseconds.
const LATE_US: f64 = 1.0;

/// A queue pair's rate after a train of notifications.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AfterTrain {
    /// Length of the train, in microseconds.
    pub train_us: f64,
    /// Notifications in it.
    pub notifications: u32,
    /// The lowest rate, in Mb/s.
    pub lowest_mbps: f64,
    /// The same as a share of the line rate.
    pub lowest_share: f64,
    /// How long it takes to come back.
    pub recovery: Recovery,
    #[serde(skip)]
    pub(super) line_mbps: f64,
    /// Rates from the end of the train on: since when, in microseconds, and Mb/s.
    #[serde(skip)]
    pub(super) rates: Vec<(f64, f64)>,
}

/// Time from the end of a train to a share of the line rate, in microseconds; `None` when it takes
/// longer than half a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// To one half.
    pub half_us: Option<f64>,
    /// To 90 %.
    pub ninety_us: Option<f64>,
    /// To 99 %.
    pub ninety_nine_us: Option<f64>,
}

/// How late the snapshots after a train are, compared with the line rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lateness {
    /// The first one, published when the train ends, in microseconds.
    pub first_us: f64,
    /// The one that is latest, in microseconds.
    pub worst_us: f64,
    /// Snapshots that are more than 1 µs late.
    pub late: u32,
    /// Most snapshots that wait at once.
    pub waiting_max: u32,
    /// Time from the end of the train to the last late one, in microseconds; `None` when it takes
    /// longer than was worked out.
    pub over_after_us: Option<f64>,
}

impl Recovery {
    /// From rates since the end of a train.
    pub(super) fn of(rates: &[(f64, f64)], line_mbps: f64) -> Self {
        let lowest = rates.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        let from_lowest = || rates.iter().skip_while(move |(_, rate)| *rate > lowest);
        let to = |share: f64| {
            from_lowest().find(|(_, rate)| *rate >= share * line_mbps).map(|(at, _)| *at)
        };
        Self { half_us: to(0.5), ninety_us: to(0.9), ninety_nine_us: to(0.99) }
    }
}

impl AfterTrain {
    /// Time that so many bytes take at the lowest rate, were it to last, in microseconds.
    #[must_use]
    pub fn at_lowest_us(&self, wire_bytes: u32) -> f64 {
        f64::from(wire_bytes) * 8.0 / self.lowest_mbps
    }

    /// When `bits` are gone that begin at `start_us`.
    fn finish(&self, start_us: f64, bits: f64) -> f64 {
        let first = self.rates.partition_point(|(since, _)| *since <= start_us).max(1) - 1;
        let (mut now_us, mut left) = (start_us, bits);
        for index in first..self.rates.len() {
            let rate = self.rates[index].1;
            let until_us = self.rates.get(index + 1).map_or(f64::INFINITY, |(since, _)| *since);
            // A megabit per second is a bit per microsecond.
            let done_us = now_us + left / rate;
            if done_us <= until_us {
                return done_us;
            }
            left -= (until_us - now_us) * rate;
            now_us = until_us;
        }
        now_us
    }

    /// Follows the snapshots after the train, of so many bytes on the wire and at this rate, until
    /// they are on time again.
    #[must_use]
    pub fn lateness(&self, wire_bytes: u32, snapshots_per_s: f64) -> Lateness {
        let bits = f64::from(wire_bytes) * 8.0;
        let at_line_us = bits / self.line_mbps;
        let back_us = self.recovery.ninety_nine_us;
        let mut waiting = VecDeque::new();
        let mut free_us = 0.0_f64;
        let mut lateness =
            Lateness { first_us: 0.0, worst_us: 0.0, late: 0, waiting_max: 0, over_after_us: None };
        let mut last_late_us = 0.0_f64;
        for index in 0..SNAPSHOTS_MAX {
            let published_us = f64::from(index) * 1e6 / snapshots_per_s;
            free_us = self.finish(published_us.max(free_us), bits);
            while waiting.front().is_some_and(|gone_us| *gone_us <= published_us) {
                waiting.pop_front();
            }
            waiting.push_back(free_us);
            lateness.waiting_max = lateness.waiting_max.max(waiting.len() as u32);
            let late_us = (free_us - published_us - at_line_us).max(0.0);
            if index == 0 {
                lateness.first_us = late_us;
            }
            lateness.worst_us = lateness.worst_us.max(late_us);
            if late_us > LATE_US {
                lateness.late += 1;
                last_late_us = free_us;
            } else if back_us.is_some_and(|back_us| published_us >= back_us) {
                lateness.over_after_us = Some(last_late_us);
                break;
            }
        }
        lateness
    }
}
