//! The consequences of an unreadable event, besides the missing row.

/// What a lost event may have contained. An event of unknown kind may have been any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventLoss {
    /// The agent may be left with more permissions than it had: the event was a setting, an answer, or its
    /// permission request.
    pub decides: bool,
    /// Its cost is missing from the totals.
    pub cost: bool,
    /// It cleared the conversation before it.
    pub cleared: bool,
}

impl EventLoss {
    pub const ANY: Self = Self { decides: true, cost: true, cleared: true };
    const NONE: Self = Self { decides: false, cost: false, cleared: false };

    /// The consequences of losing an event of this kind.
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

    /// The consequences of losing both.
    pub fn and(self, other: Self) -> Self {
        Self {
            decides: self.decides || other.decides,
            cost: self.cost || other.cost,
            cleared: self.cleared || other.cleared,
        }
    }

    /// What people are told about it, with a leading space. Stricter permissions are reported where they are
    /// applied.
    pub fn sentence(self) -> &'static str {
        match (self.cost, self.cleared) {
            (false, false) => "",
            (true, false) => " The session may have cost more than is shown here and counted in its budget.",
            (false, true) => {
                " It was a /clear: the conversation before it is given to the model again. Run /clear again if you do not want that."
            }
            (true, true) => {
                " The session may have cost more than is shown here and counted in its budget. If a /clear is among the lost events, the \
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
            ("usagf", true, Some("If a /clear is among the lost events")),
        ] {
            let loss = EventLoss::of(kind);
            assert_eq!((loss.decides, loss.sentence().is_empty()), (decides, told.is_none()), "{kind}");
            assert!(loss.sentence().contains(told.unwrap_or_default()), "{kind}: {}", loss.sentence());
        }
        assert_eq!(
            EventLoss::of("usage").and(EventLoss::of("cleared")),
            EventLoss { decides: false, ..EventLoss::ANY }
        );
    }
}
