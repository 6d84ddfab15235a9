//! A count that several tasks raise.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that several tasks raise and anybody reads. See the conventions in the crate's
/// documentation; not for the hot path.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        // Relaxed: a count orders nothing else, and each addition is atomic by itself.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn counts_of_all_threads_add_up() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.increment()));
            }
        });
        counter.add(5);
        assert_eq!(counter.get(), 4005);
    }
}
