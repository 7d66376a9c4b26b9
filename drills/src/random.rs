//! A seeded random generator for drills: the same seed gives the same plan.

use std::time::Duration;

/// SplitMix64: small, seedable, and good enough to pick moments.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Half of the draws in the first eighth: most of what can go wrong happens early.
    pub fn moment_within(&mut self, longest: Duration) -> Duration {
        let longest_us = longest.as_micros() as u64;
        let range_us = if self.below(2) == 0 { longest_us / 8 } else { longest_us };
        Duration::from_micros(self.below(range_us.max(1)))
    }
}
