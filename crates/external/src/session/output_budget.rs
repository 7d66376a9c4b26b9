//! Limits on how much of an agent's output is logged, so that an agent that never stops does not fill the disk.
//!
//! Everything counts, and each item counts at least as many bytes as it takes to store: text, growing output,
//! and updates without content. Output that comes after a turn counts towards that turn until the next
//! prompt.

use engine::{Body, NewEvent};

/// How much output of an agent is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Text or thoughts of one message.
    pub message_bytes_max: usize,
    /// Everything that one turn adds to the log.
    pub turn_bytes_max: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { message_bytes_max: 8 << 20, turn_bytes_max: 256 << 20 }
    }
}

/// The output of one turn, counted against the limits.
#[derive(Debug, Clone)]
pub(super) struct OutputBudget {
    limits: OutputLimits,
    message_bytes: usize,
    turn_bytes: usize,
}

/// The limit that was exceeded, as a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overrun(String);

impl Overrun {
    pub(super) fn of(&self, name: &str) -> String {
        format!("{name} {}", self.0)
    }
}

impl OutputBudget {
    pub(super) fn new(limits: OutputLimits) -> Self {
        Self { limits, message_bytes: 0, turn_bytes: 0 }
    }

    /// Counts an event that is about to be logged. On an error it must not be logged.
    pub(super) fn take(&mut self, said: &NewEvent) -> Result<(), Overrun> {
        let relayed = said.relayed.as_ref().map_or(0, |relayed| relayed.0.len());
        match &said.body {
            Body::Text { text, .. } | Body::Thought { text, .. } => {
                self.message_bytes = self.message_bytes.saturating_add(text.len());
            }
            // Text after a tool call is another message.
            Body::ToolStarted(_) => self.message_bytes = 0,
            _ => {}
        }
        self.take_bytes(said.body.weight().saturating_add(relayed))
    }

    pub(super) fn take_bytes(&mut self, bytes: usize) -> Result<(), Overrun> {
        self.turn_bytes = self.turn_bytes.saturating_add(bytes);
        let OutputLimits { message_bytes_max, turn_bytes_max } = self.limits;
        let over = |what: &str, limit: usize, key: &str| {
            Err(Overrun(format!(
                "sent more than {limit} bytes in one {what} and was stopped there; what it sent so far is kept ({key} in [limits] of the settings)"
            )))
        };
        if self.message_bytes > message_bytes_max {
            return over("message", message_bytes_max, "answer_bytes_max");
        }
        if self.turn_bytes > turn_bytes_max {
            return over("turn", turn_bytes_max, "turn_bytes_max");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::{CallId, MessageId, OutputStream, ToolKind, ToolStart};

    use super::*;

    fn budget() -> OutputBudget {
        OutputBudget::new(OutputLimits { message_bytes_max: 1000, turn_bytes_max: 100_000 })
    }

    fn text(bytes: usize) -> NewEvent {
        Body::Text { message: MessageId(1), text: "x".repeat(bytes).into() }.into()
    }

    /// How many of these are taken before it is too much, and which limit that was.
    fn taken(budget: &mut OutputBudget, said: &NewEvent) -> (usize, String) {
        let mut count = 0;
        loop {
            match budget.take(said) {
                Ok(()) => count += 1,
                Err(overrun) => return (count, overrun.of("it")),
            }
        }
    }

    #[test]
    fn a_message_ends_at_its_limit_and_a_call_begins_another() {
        let mut budget = budget();
        assert_eq!(budget.take(&text(900)), Ok(()));
        let start = ToolStart {
            kind: ToolKind::Execute,
            ..ToolStart::new(CallId("c".into()), "shell".into(), "ls".into())
        };
        assert_eq!(budget.take(&Body::ToolStarted(Box::new(start)).into()), Ok(()));
        let (count, why) = taken(&mut budget, &text(100));
        assert_eq!(count, 10);
        assert!(why.contains("1000 bytes in one message") && why.contains("answer_bytes_max"), "{why}");
    }

    #[test]
    fn output_that_grows_and_updates_that_say_nothing_end_with_the_turn() {
        let output = Body::ToolOutput {
            call: CallId("c".into()),
            stream: OutputStream::Stdout,
            text: "x".repeat(880).into(),
        };
        let (count, why) = taken(&mut budget(), &output.into());
        assert_eq!(count, 100);
        assert!(why.contains("100000 bytes in one turn") && why.contains("turn_bytes_max"), "{why}");
        let (count, _) = taken(&mut budget(), &Body::Plan { entries: Vec::new() }.into());
        assert!(count < 1000, "{count}");
    }
}
