//! What somebody who came over the bridge may not do where the machine's owner alone answers.
//!
//! Roles say who may drive, and `engine::may` what only the owner at the machine does. This is the rail of
//! `--answers local-only`: whoever may not answer what is asked may not change what is asked either.

/// Said to who wants to answer where only the machine's owner does.
pub(crate) const LOCAL_ANSWERS: &str =
    "what the agent asks is answered at its own machine alone (--answers local-only there)";

/// Prompts that are commands which change what the agent asks.
pub(crate) fn prompt(text: &str, answers_here: bool) -> Result<(), &'static str> {
    let Some(line) = text.trim().strip_prefix('/') else { return Ok(()) };
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if answers_here && word == "approval" && !rest.trim().is_empty() {
        return Err(LOCAL_ANSWERS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_owner_alone_answers_nobody_else_changes_what_is_asked() {
        for fine in ["/permissions", "/permissions list", " /status", "/approval", "say /approval full"] {
            assert_eq!(prompt(fine, true), Ok(()), "{fine}");
        }
        for asked in ["/approval full", "  /approval\tauto", "/approval x y"] {
            assert_eq!(prompt(asked, false), Ok(()), "{asked}");
            assert_eq!(prompt(asked, true), Err(LOCAL_ANSWERS), "{asked}");
        }
    }
}
