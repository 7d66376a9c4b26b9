//! Finds the new part of the output of a terminal that keeps only the end of what its command wrote.
//!
//! An editor returns everything that it kept each time. Up to its limit that is the whole output; after that
//! the beginning is missing, and the part that was seen before has to be located inside it.

/// Enough of the beginning to locate it again; shorter output may be reported twice.
const HEAD_BYTES: usize = 256;
/// Positions that match the beginning and are compared. Repetitive output has many.
const PLACES_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewOutput<'a> {
    pub(super) text: &'a str,
    /// Some output before it was dropped without having been seen.
    pub(super) after_gap: bool,
}

/// The output that was not seen before. `truncated`: the beginning of `shown` is missing.
pub(super) fn new_output<'a>(seen: &str, shown: &'a str, truncated: bool) -> NewOutput<'a> {
    let after_gap = truncated && seen.is_empty();
    if let Some(text) = shown.strip_prefix(seen) {
        return NewOutput { text, after_gap };
    }
    if truncated {
        let known = overlap(seen, shown);
        return NewOutput { text: &shown[known.unwrap_or(0)..], after_gap: known.is_none() };
    }
    NewOutput { text: rewritten(seen, shown), after_gap: false }
}

/// How many bytes of the beginning of `shown` are the end of `seen`.
fn overlap(seen: &str, shown: &str) -> Option<usize> {
    let head = &shown[..shown.floor_char_boundary(HEAD_BYTES)];
    let places = seen.match_indices(head).map(|(at, _)| at).take(PLACES_MAX);
    places.filter(|_| !head.is_empty()).find(|at| shown.starts_with(&seen[*at..])).map(|at| seen.len() - at)
}

/// The output from the first changed line on: programs overwrite their last lines.
fn rewritten<'a>(seen: &str, shown: &'a str) -> &'a str {
    let same = seen.bytes().zip(shown.bytes()).take_while(|(before, now)| before == now).count();
    if same == shown.len() {
        return "";
    }
    let same = shown.floor_char_boundary(same);
    let line = shown[..same].rfind('\n').map_or(0, |at| at + 1);
    &shown[line..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seen: &str, shown: &str, truncated: bool, text: &str, after_gap: bool) {
        assert_eq!(new_output(seen, shown, truncated), NewOutput { text, after_gap }, "{shown:.40}");
    }

    #[test]
    fn what_is_added_is_new() {
        check("", "one\n", false, "one\n", false);
        check("one\n", "one\ntwo\n", false, "two\n", false);
        check("one\n", "one\n", false, "", false);
    }

    #[test]
    fn past_the_limit_the_newest_is_new_and_what_nobody_saw_is_missed() {
        let lines =
            |from: usize, upto: usize| (from..upto).map(|n| format!("line {n} ü\n")).collect::<String>();
        check(&lines(0, 500), &lines(100, 600), true, &lines(500, 600), false);
        check(&lines(100, 600), &lines(100, 600), true, "", false);
        check(&lines(0, 500), &lines(700, 1200), true, &lines(700, 1200), true);
        check("", &lines(700, 1200), true, &lines(700, 1200), true);
    }

    #[test]
    fn a_line_that_was_written_over_is_told_as_it_is_now() {
        check("start\n10 %", "start\n20 %", false, "20 %", false);
        check("start\n20 %", "start\n100 %\ndone\n", false, "100 %\ndone\n", false);
        check("start\n20 %", "start\n", false, "", false);
        check("ä\n", "ö\n", false, "ö\n", false);
    }

    #[test]
    fn output_that_repeats_itself_is_compared_only_so_often() {
        let seen = "y\n".repeat(1 << 19);
        let shown = format!("{}end\n", &seen[..seen.len() - 4]);
        assert!(new_output(&seen, &shown, true).text.ends_with("end\n"));
    }
}
