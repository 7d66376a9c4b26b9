//! What a round does, drawn from a seed.

use std::time::Duration;

use crate::peer::PermissionReply;
use crate::random::Random;

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
    pub answer: PermissionReply,
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
            0 => PermissionReply::Reject,
            1 if moment == Moment::Working => PermissionReply::Nothing,
            _ => PermissionReply::Allow,
        };
        Self { moment, delay, prompts, answer }
    }
}

/// A plan for prompts that are to be answered whatever happens.
pub fn allow() -> Plan {
    Plan { moment: Moment::Idle, delay: Duration::ZERO, prompts: Vec::new(), answer: PermissionReply::Allow }
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
