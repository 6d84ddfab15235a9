//! Whether a subscriber still gives signs of life.
//!
//! A write into a stopped process's memory completes as well as any other, so completions say
//! nothing about it. What does is its heartbeat: a value that it changes while it lives.

use tapecast_wire::Nanos;

/// Watches one subscriber's heartbeat.
#[derive(Clone, Debug)]
pub struct Liveness {
    limit: Option<Nanos>,
    beat: u64,
    /// When the heartbeat was first seen or last seen to change; `None` before it was looked at.
    changed_at: Option<Nanos>,
}

impl Liveness {
    /// Watches from the first beat on. Silence longer than `limit` is too long; `None` for never.
    #[must_use]
    pub const fn new(limit: Option<Nanos>) -> Self {
        Self { limit, beat: 0, changed_at: None }
    }

    /// The heartbeat as it reads now. Any change counts: its value is the subscriber's own affair.
    pub fn on_beat(&mut self, beat: u64, now: Nanos) {
        if beat != self.beat || self.changed_at.is_none() {
            self.beat = beat;
            self.changed_at = Some(now);
        }
    }

    /// How long it has been silent.
    #[must_use]
    pub fn silent_for(&self, now: Nanos) -> Nanos {
        self.changed_at.map_or(Nanos(0), |changed_at| now.since(changed_at))
    }

    /// Whether it has been silent for too long.
    #[must_use]
    pub fn is_silent(&self, now: Nanos) -> bool {
        self.limit.is_some_and(|limit| self.silent_for(now).0 > limit.0)
    }
}
