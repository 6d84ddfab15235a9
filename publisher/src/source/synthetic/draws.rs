//! Random draws in integers alone, so that a seed gives the same bytes on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// 16 bits after the point.
const TWO_THIRDS: u64 = 43_691;

/// Draws from one seed. Only the generator's raw words are used: its algorithm is fixed, that of
/// library distributions is not.
#[derive(Debug)]
pub(super) struct Draws {
    words: ChaCha8Rng,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self { words: ChaCha8Rng::from_seed(key) }
    }

    /// `0 .. bound`, as good as uniform.
    #[inline]
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.words.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// `0 .. bound` for a bound that may exceed 32 bits.
    #[inline]
    pub(super) fn below_wide(&mut self, bound: u64) -> u64 {
        ((u128::from(self.words.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True this often in a thousand.
    #[inline]
    pub(super) fn chance(&mut self, in_a_thousand: u32) -> bool {
        self.below(1000) < in_a_thousand
    }

    /// Near enough to exponential with this mean: the logarithm's digits after the point are taken
    /// as linear between powers of two.
    #[inline]
    pub(super) fn exponential(&mut self, mean: u64) -> u64 {
        let word = self.words.next_u64() | 1;
        let zeros = word.leading_zeros();
        let fraction = (word << zeros << 1) >> 48;
        // -log2 of a uniform draw, 16 bits after the point; its mean is 1.5, hence two thirds.
        let halvings = (u64::from(zeros + 1) << 16) - fraction;
        ((u128::from(mean) * u128::from(halvings * TWO_THIRDS)) >> 32) as u64
    }
}

/// Picks ranks so that rank k comes up in proportion to 1 / (k + 1).
#[derive(Debug)]
pub(super) struct Popularity {
    cumulative: Vec<u64>,
}

impl Popularity {
    pub(super) fn new(ranks: usize) -> Self {
        let mut total = 0;
        let weights = (1..=ranks as u64).map(|place| {
            total += (1_u64 << 40) / place;
            total
        });
        Self { cumulative: weights.collect() }
    }

    #[inline]
    pub(super) fn pick(&self, draws: &mut Draws) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(1);
        let at = draws.below_wide(total);
        self.cumulative.partition_point(|end| *end <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_draws_have_their_mean_and_their_spread() {
        let mut draws = Draws::new(7);
        let values: Vec<u64> = (0..100_000).map(|_| draws.exponential(1_000)).collect();
        let mean = values.iter().sum::<u64>() / values.len() as u64;
        assert!((970..1_030).contains(&mean), "{mean}");
        let short = values.iter().filter(|value| **value < 693).count();
        assert!((40_000..55_000).contains(&short), "half are below the median: {short}");
        assert!(values.iter().any(|value| *value > 5_000));
    }

    #[test]
    fn the_first_rank_is_twice_as_popular_as_the_second_and_none_is_out_of_range() {
        let mut draws = Draws::new(7);
        let popularity = Popularity::new(100);
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[popularity.pick(&mut draws)] += 1;
        }
        let ratio = counts[0] * 100 / counts[1];
        assert!((185..215).contains(&ratio), "{ratio}");
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn a_bound_is_never_reached() {
        let mut draws = Draws::new(1);
        assert!((0..10_000).all(|_| draws.below(3) < 3 && draws.below_wide(1) == 0));
    }
}
