//! A number that one thread writes and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes, as often as it likes, and anybody reads. It has cache lines of
/// its own, so that neither disturbs what lies beside it. It orders nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Writes it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds one, for the one thread that writes it: a load and a store, no locked instruction.
    #[inline]
    pub fn raise(&self) {
        self.set(self.get().wrapping_add(1));
    }

    /// Reads it.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Gauge;

    #[test]
    fn what_one_thread_writes_another_reads_and_it_goes_round() {
        let gauge = Gauge::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1000).for_each(|_| gauge.raise()));
        });
        assert_eq!(gauge.get(), 1000);
        gauge.set(u64::MAX);
        gauge.raise();
        assert_eq!(gauge.get(), 0);
    }
}
