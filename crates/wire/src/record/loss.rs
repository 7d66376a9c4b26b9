//! What a session lacks that lost an event, besides that the event is not shown.

/// What a lost event may have said. A kind that cannot be read may have been any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// It may leave the agent with more than it was allowed: settings, answers and what they were about.
    pub decides: bool,
    /// What it cost is not counted.
    pub cost: bool,
    /// It took what was before it out of the conversation.
    pub cleared: bool,
}

impl Loss {
    pub const ANY: Self = Self { decides: true, cost: true, cleared: true };
    const NONE: Self = Self { decides: false, cost: false, cleared: false };

    /// What the loss of an event of this kind means.
    pub fn of(kind: &str) -> Self {
        match kind {
            "turn_queued" | "turn_started" | "user_message" | "text" | "thought" | "plan"
            | "tool_started" | "tool_output" | "tool_terminal" | "tool_changed" | "tool_ended"
            | "file_edited" | "file_shown" | "cancel_requested" | "policy_blocked" | "commands" | "title"
            | "compacting" | "compacted" | "foreign" | "turn_ended" => Self::NONE,
            "usage" => Self { cost: true, ..Self::NONE },
            "cleared" => Self { cleared: true, ..Self::NONE },
            "setting_changed" | "asked" | "resolved" | "offered" | "joined" | "notice" | "moved" => {
                Self { decides: true, ..Self::NONE }
            }
            _ => Self::ANY,
        }
    }

    /// What the loss of both means.
    pub fn and(self, other: Self) -> Self {
        Self {
            decides: self.decides || other.decides,
            cost: self.cost || other.cost,
            cleared: self.cleared || other.cleared,
        }
    }

    /// What people are told of it, with a space before it. What the agent may do is told where it becomes stricter.
    pub fn told(self) -> &'static str {
        match (self.cost, self.cleared) {
            (false, false) => "",
            (true, false) => " The session may have cost more than is shown and than its budget counts.",
            (false, true) => {
                " It was a /clear: the conversation before it is given to the model again. Run /clear again if you do not want that."
            }
            (true, true) => {
                " The session may have cost more than is shown and than its budget counts. If a /clear was among it, the \
                 conversation before it is given to the model again: run /clear again if you do not want that."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_by_its_kind_and_a_kind_that_cannot_be_read_may_have_been_any() {
        for (kind, decides, told) in [
            ("text", false, None),
            ("setting_changed", true, None),
            ("usage", false, Some("cost more")),
            ("cleared", false, Some("It was a /clear")),
            ("usagf", true, Some("If a /clear was among it")),
        ] {
            let loss = Loss::of(kind);
            assert_eq!((loss.decides, loss.told().is_empty()), (decides, told.is_none()), "{kind}");
            assert!(loss.told().contains(told.unwrap_or_default()), "{kind}: {}", loss.told());
        }
        assert_eq!(Loss::of("usage").and(Loss::of("cleared")), Loss { decides: false, ..Loss::ANY });
    }
}
