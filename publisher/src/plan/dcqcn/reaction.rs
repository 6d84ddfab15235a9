//! What a queue pair does after congestion notifications (the reaction point of ConnectX cards).
//!
//! The first notification sets the estimate of congestion (alpha) and starts two timers: one that
//! updates alpha, and one that cuts the rate by half of alpha if a notification has come since. A
//! third timer, begun afresh by each cut, raises the rate half the way to its target. Times are
//! counted in nanoseconds, so that the order of events is the same everywhere.

use serde::Serialize;

use super::after_train::{AfterTrain, Recovery};

/// Parameters, named by what they do; in brackets the names that the driver gives them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReactionPoint {
    /// Rate of the port, in Mb/s.
    pub line_mbps: f64,
    /// Lowest rate (`rpg_min_rate`), in Mb/s.
    pub min_mbps: f64,
    /// What the target is raised by (`rpg_ai_rate`), in Mb/s.
    pub additive_mbps: f64,
    /// What it is raised by later on (`rpg_hai_rate`), in Mb/s.
    pub hyper_mbps: f64,
    /// Weight of the newest notification in alpha (1 - `dce_tcp_g` / 1024).
    pub gain: f64,
    /// Alpha after the first notification (`initial_alpha_value` / 1024).
    pub initial_alpha: f64,
    /// Time between updates of alpha (`dce_tcp_rtt`), in nanoseconds.
    pub alpha_interval_ns: u64,
    /// Least time between cuts (`rate_reduce_monitor_period`), in nanoseconds.
    pub cut_interval_ns: u64,
    /// Time between raises (`rpg_time_reset`), in nanoseconds.
    pub raise_interval_ns: u64,
    /// Raises before the target is raised too (`rpg_threshold`).
    pub fast_recovery: u32,
    /// Whether each cut lowers the target to the rate (`clamp_tgt_rate`).
    pub clamps_target: bool,
    /// Time between notifications while packets are marked (`min_time_between_cnps`), in
    /// nanoseconds.
    pub cnp_interval_ns: u64,
}

/// Longest time after a train for which rates are worked out, in nanoseconds.
const HORIZON_NS: u64 = 500_000_000;

/// In the order in which they are handled at one instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Notification,
    Alpha,
    Cut,
    Raise,
}

/// The state machine, one event at a time.
struct Pacer<'a> {
    rules: &'a ReactionPoint,
    rate: f64,
    target: f64,
    alpha: f64,
    stage: u32,
    seen_by_alpha: bool,
    seen_by_cut: bool,
    notifications: u32,
    sent: u32,
    alpha_at: Option<u64>,
    cut_at: Option<u64>,
    raise_at: Option<u64>,
}

impl Pacer<'_> {
    fn new(rules: &ReactionPoint, notifications: u32) -> Pacer<'_> {
        Pacer {
            rules,
            rate: rules.line_mbps,
            target: rules.line_mbps,
            alpha: 0.0,
            stage: 0,
            seen_by_alpha: false,
            seen_by_cut: false,
            notifications,
            sent: 0,
            alpha_at: None,
            cut_at: None,
            raise_at: None,
        }
    }

    /// What happens next; of things at one instant the notification comes first, and alpha before
    /// the cut: a notification that comes just as a timer ends still counts.
    fn next(&self) -> Option<(u64, Event)> {
        let arrives = u64::from(self.sent) * self.rules.cnp_interval_ns;
        let notification = (self.sent < self.notifications).then_some(arrives);
        [
            (notification, Event::Notification),
            (self.alpha_at, Event::Alpha),
            (self.cut_at, Event::Cut),
            (self.raise_at, Event::Raise),
        ]
        .into_iter()
        .filter_map(|(at, event)| Some((at?, event)))
        .min()
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Notification => self.on_notification(now),
            Event::Alpha => self.on_alpha(now),
            Event::Cut => self.on_cut(now),
            Event::Raise => self.on_raise(now),
        }
    }

    fn on_notification(&mut self, now: u64) {
        let is_first = self.sent == 0;
        self.sent += 1;
        self.seen_by_cut = true;
        self.seen_by_alpha = !is_first;
        if is_first {
            self.alpha = self.rules.initial_alpha;
            self.alpha_at = Some(now + self.rules.alpha_interval_ns);
            self.cut_at = Some(now + self.rules.cut_interval_ns);
        }
    }

    fn on_alpha(&mut self, now: u64) {
        let seen = if self.seen_by_alpha { self.rules.gain } else { 0.0 };
        self.alpha = (1.0 - self.rules.gain) * self.alpha + seen;
        self.seen_by_alpha = false;
        self.alpha_at = Some(now + self.rules.alpha_interval_ns);
    }

    fn on_cut(&mut self, now: u64) {
        self.cut_at = Some(now + self.rules.cut_interval_ns);
        if !self.seen_by_cut {
            return;
        }
        if self.rules.clamps_target || self.stage != 0 {
            self.target = self.rate;
        }
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(self.rules.min_mbps);
        self.stage = 0;
        self.seen_by_cut = false;
        self.raise_at = Some(now + self.rules.raise_interval_ns);
    }

    fn on_raise(&mut self, now: u64) {
        let raise = match self.stage.cmp(&self.rules.fast_recovery) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => self.rules.additive_mbps,
            std::cmp::Ordering::Greater => self.rules.hyper_mbps,
        };
        self.target = (self.target + raise).min(self.rules.line_mbps);
        self.rate = f64::midpoint(self.rate, self.target);
        self.stage += 1;
        self.raise_at = Some(now + self.rules.raise_interval_ns);
    }
}

impl ReactionPoint {
    /// The defaults of ConnectX cards, at a port of so many Gb/s.
    #[must_use]
    pub fn connectx(line_gbps: f64) -> Self {
        Self {
            line_mbps: line_gbps * 1e3,
            min_mbps: 1.0,
            additive_mbps: 5.0,
            hyper_mbps: 50.0,
            gain: 5.0 / 1024.0,
            initial_alpha: 1023.0 / 1024.0,
            alpha_interval_ns: 1_000,
            cut_interval_ns: 4_000,
            raise_interval_ns: 300_000,
            fast_recovery: 1,
            clamps_target: false,
            cnp_interval_ns: 4_000,
        }
    }

    /// Plays a train of notifications of this length, in microseconds, at a queue pair that was at
    /// line rate, and what follows. The shortest train is one notification.
    #[must_use]
    pub fn after_train(&self, train_us: f64) -> AfterTrain {
        let interval_us = self.cnp_interval_ns as f64 / 1e3;
        let notifications = (train_us / interval_us).ceil().max(1.0) as u32;
        let end_ns = u64::from(notifications) * self.cnp_interval_ns;
        let mut pacer = Pacer::new(self, notifications);
        let mut lowest_mbps = self.line_mbps;
        let mut rates = vec![(0.0, self.line_mbps)];
        while let Some((now, event)) = pacer.next() {
            let is_back = now > end_ns && event == Event::Raise && pacer.rate >= self.line_mbps;
            if is_back || now > end_ns + HORIZON_NS {
                break;
            }
            pacer.handle(now, event);
            lowest_mbps = lowest_mbps.min(pacer.rate);
            if now <= end_ns {
                rates[0].1 = pacer.rate;
            } else if rates.last().is_some_and(|(_, rate)| *rate != pacer.rate) {
                rates.push(((now - end_ns) as f64 / 1e3, pacer.rate));
            }
        }
        AfterTrain {
            train_us,
            notifications,
            lowest_mbps,
            lowest_share: lowest_mbps / self.line_mbps,
            recovery: Recovery::of(&rates, self.line_mbps),
            line_mbps: self.line_mbps,
            rates,
        }
    }
}
