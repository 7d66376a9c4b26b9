//! What somebody who came over the bridge may not do here, whichever language they speak.
//!
//! Roles say who may drive. These rails hold for everybody who is not at this machine: its rules are its
//! owner's, and where its owner alone answers what the agent asks, nobody else changes what is asked.

/// Said to who wants to answer where only the machine's owner does.
pub(crate) const LOCAL_ANSWERS: &str =
    "what the agent asks is answered at its own machine alone (--answers local-only there)";
/// Said to who wants to change the rules of the machine.
const LOCAL_RULES: &str =
    "the rules of a machine are changed at the machine itself: ropewalk permissions, or /permissions there";

/// Said to whose answer would become one of these rules.
pub(crate) const LOCAL_RULES_ONCE: &str = "the rules of a machine are changed at the machine itself: ropewalk permissions, or /permissions there; answer once";

/// Prompts that are commands which change what the agent may do.
pub(crate) fn prompt(text: &str, answers_here: bool) -> Result<(), &'static str> {
    let Some(line) = text.trim().strip_prefix('/') else { return Ok(()) };
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word, rest.trim()) {
        (_, "") | ("permissions", "list") => Ok(()),
        ("permissions", _) => Err(LOCAL_RULES),
        ("approval", _) if answers_here => Err(LOCAL_ANSWERS),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_change_the_rules_are_the_machines_own() {
        for fine in ["/permissions", "/permissions list", " /status", "/approval", "say /permissions add x"] {
            assert_eq!(prompt(fine, true), Ok(()), "{fine}");
        }
        for rules in ["/permissions add allow shell(*)", "  /permissions\tremove x", "/permissions add"] {
            assert_eq!(prompt(rules, false), Err(LOCAL_RULES), "{rules}");
        }
        assert!(LOCAL_RULES_ONCE.starts_with(LOCAL_RULES));
        assert_eq!(prompt("/approval full", false), Ok(()));
        assert_eq!(prompt("/approval full", true), Err(LOCAL_ANSWERS));
    }
}
