//! What a round does, drawn from a seed.

use std::time::Duration;

use crate::peer::Answer;

/// SplitMix64: small, seedable, and good enough to pick moments.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Half of the draws in the first eighth: most of what can go wrong happens early.
    fn moment_within(&mut self, longest: Duration) -> Duration {
        let longest_us = longest.as_micros() as u64;
        let range_us = if self.below(2) == 0 { longest_us / 8 } else { longest_us };
        Duration::from_micros(self.below(range_us.max(1)))
    }
}

/// When the kill comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before `initialize` is answered.
    Starting,
    /// While the session is replayed.
    Loading,
    /// When the session is loaded and has had one prompt answered.
    BeforePrompt,
    /// In the work, or just after it.
    Working,
    /// When everything has been answered.
    Idle,
}

pub struct Plan {
    pub moment: Moment,
    pub delay: Duration,
    pub prompts: Vec<String>,
    pub answer: Answer,
}

impl Plan {
    pub fn draw(random: &mut Random, round: u64) -> Self {
        let (moment, longest) = match random.below(20) {
            0 => (Moment::Starting, Duration::from_millis(10)),
            1 | 2 => (Moment::Loading, Duration::from_millis(10)),
            3 | 4 => (Moment::BeforePrompt, Duration::from_millis(5)),
            5 | 6 => (Moment::Idle, Duration::from_millis(5)),
            _ => (Moment::Working, Duration::from_millis(60)),
        };
        let delay = random.moment_within(longest);
        let mut prompts = vec![prompt(random, round, 0)];
        if random.below(4) == 0 {
            prompts.push(prompt(random, round, 1));
        }
        let answer = match random.below(5) {
            0 => Answer::Reject,
            1 if moment == Moment::Working => Answer::Nothing,
            _ => Answer::Allow,
        };
        Self { moment, delay, prompts, answer }
    }
}

/// A plan for prompts that are to be answered whatever happens.
pub fn allow() -> Plan {
    Plan { moment: Moment::Idle, delay: Duration::ZERO, prompts: Vec::new(), answer: Answer::Allow }
}

/// The words the product's offline model takes. The round's number makes most of them unique, so
/// that a turn cannot be mistaken for another one.
fn prompt(random: &mut Random, round: u64, index: u64) -> String {
    match random.below(6) {
        0 | 1 => format!("stream {}", 400 + (2 * round + index) % 100),
        2 => format!("run echo hi {round} {index}"),
        3 => "plan".to_owned(),
        4 => format!("write f{index}: x{round}"),
        _ => "sleep 50".to_owned(),
    }
}
