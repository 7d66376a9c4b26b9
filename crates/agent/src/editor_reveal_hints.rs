//! Locations that the agent suggests to an editor to reveal: what it just changed, the search hit that it
//! reads, the line where a command failed, a line that its answer names.
//!
//! These are hints. Too many would take the editor away from the person who uses it, so there are only a few
//! per turn, and none twice in a row.

use std::path::{Component, Path};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{FileChange, Location, ToolKind, TurnId};
use sandbox::{EntryKind, PathAccess};

use crate::tools::ToolOutcome;
use crate::workspace::Workspace;

const HINTS_PER_TURN_MAX: usize = 8;
const HITS_MAX: usize = 256;
/// How much of a command's output is searched, from its end.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// File names that are looked up on the disk.
const LOOKED_UP_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 512;
/// Folders with code of others: errors there are not revealed.
const OF_OTHERS: [&str; 6] = ["node_modules", "target", ".git", ".venv", "vendor", "site-packages"];
/// Words that mark error lines.
const WRONG: [&str; 5] = ["error", "panicked", "fail", "assert", "exception"];

/// The hints of the current turn.
#[derive(Default)]
pub(crate) struct RevealHints(Mutex<State>);

#[derive(Default)]
struct State {
    turn: Option<TurnId>,
    hint_count: usize,
    last: Option<Location>,
    /// Locations that searches have found.
    hits: Vec<Location>,
}

impl RevealHints {
    fn of(&self, turn: TurnId) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.turn != Some(turn) {
            *state = State { turn: Some(turn), last: state.last.take(), ..State::default() };
        }
        state
    }

    /// Returns the location, unless the turn has had enough hints or just had this one.
    pub(crate) fn admit(&self, turn: TurnId, place: Location) -> Option<Location> {
        let mut state = self.of(turn);
        if state.hint_count >= HINTS_PER_TURN_MAX || state.last.as_ref() == Some(&place) {
            return None;
        }
        state.hint_count += 1;
        state.last = Some(place.clone());
        Some(place)
    }

    /// The location to reveal after a successful call. Does not access the disk.
    pub(crate) fn after(&self, turn: TurnId, kind: ToolKind, outcome: &ToolOutcome) -> Option<Location> {
        if outcome.failed {
            return None;
        }
        if !outcome.changes.is_empty() {
            let own = outcome.locations.first().filter(|place| place.line.is_some()).cloned();
            return own.or_else(|| outcome.changes.iter().find_map(first_changed));
        }
        let mut state = self.of(turn);
        if kind == ToolKind::Search {
            let room = HITS_MAX.saturating_sub(state.hits.len());
            let hits = outcome.locations.iter().filter(|hit| hit.line.is_some());
            state.hits.extend(hits.take(room).cloned());
            return None;
        }
        let read = outcome.locations.first().filter(|_| kind == ToolKind::Read)?;
        let from = Some(read.line.unwrap_or(1));
        let is_read = |hit: &&Location| hit.path == read.path && hit.line >= from;
        state.hits.iter().filter(is_read).min_by_key(|hit| hit.line).cloned()
    }
}

/// The first location that a text names and that is a file of the workspace; error lines come first. Accesses
/// the disk.
pub(crate) fn named_in(text: &str, workspace: &Workspace) -> Option<Location> {
    let start = text.len().saturating_sub(TEXT_BYTES_MAX);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at))?;
    let text = &text[start..];
    let mut after_wrong = false;
    let (mut wrong, mut others) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let lower = line.to_ascii_lowercase();
        let is_wrong = WRONG.iter().any(|word| lower.contains(word));
        let list = if is_wrong || after_wrong { &mut wrong } else { &mut others };
        list.extend(locations_in(line).take(LOOKED_UP_MAX.saturating_sub(list.len())));
        after_wrong = is_wrong;
    }
    let mut named = wrong.into_iter().chain(others).take(LOOKED_UP_MAX);
    named.find_map(|(name, line)| {
        let spot = workspace.find(Path::new(name), PathAccess::Read).ok()?;
        let of_others = |part: Component<'_>| OF_OTHERS.iter().any(|name| part.as_os_str() == *name);
        let ours = spot.kind() == Some(EntryKind::File) && !Path::new(name).components().any(of_others);
        ours.then(|| Location { path: spot.real().to_owned(), line: Some(line) })
    })
}

/// `path:12`, `path:12:5`, `"path", line 12`.
fn locations_in(line: &str) -> impl Iterator<Item = (&str, u32)> {
    let parts = |c: char| c.is_whitespace() || "()[]{}<>\"'`,;|".contains(c);
    let words: Vec<&str> = line.split(parts).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.strip_prefix("file://").unwrap_or(word);
        let named = word.match_indices(':').find_map(|(colon, _)| {
            let rest = &word[colon + 1..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            Some((&word[..colon], rest[..digits].parse().ok()?))
        });
        let in_words = || match words.get(at + 1..at + 3) {
            Some(["line", number]) => Some((word, number.parse().ok()?)),
            _ => None,
        };
        found.extend(named.or_else(in_words).filter(|(name, line)| is_name(name) && *line > 0));
    }
    found.into_iter()
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && text.contains(['.', '/']) && text.contains(|c: char| c.is_alphabetic())
}

fn first_changed(change: &FileChange) -> Option<Location> {
    let after = change.after.as_deref()?;
    let before = change.before.as_deref().unwrap_or_default();
    let same = after.lines().zip(before.lines()).take_while(|(new, old)| new == old).count();
    let line = u32::try_from((same + 1).min(after.lines().count().max(1))).ok();
    Some(Location { path: change.path.clone(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: &str, line: u32) -> Location {
        Location { path: path.into(), line: Some(line) }
    }

    #[test]
    fn a_turn_points_at_a_few_places_and_at_none_twice_in_a_row() {
        let pointing = RevealHints::default();
        let turn = TurnId(1);
        assert!(pointing.admit(turn, location("/a", 1)).is_some());
        assert!(pointing.admit(turn, location("/a", 1)).is_none());
        assert!(pointing.admit(turn, location("/a", 2)).is_some());
        let more = (3..100).filter(|line| pointing.admit(turn, location("/a", *line)).is_some());
        assert_eq!(more.count(), HINTS_PER_TURN_MAX - 2);
        assert!(pointing.admit(TurnId(2), location("/b", 1)).is_some(), "the next turn may again");
    }

    #[test]
    fn the_first_line_that_differs_is_pointed_at() {
        let check = |before: Option<&str>, after: Option<&str>| {
            let change = FileChange {
                path: "/a".into(),
                before: before.map(Into::into),
                after: after.map(Into::into),
            };
            first_changed(&change).and_then(|place| place.line)
        };
        assert_eq!(check(None, Some("a\nb\n")), Some(1));
        assert_eq!(check(Some("a\nb\n"), Some("a\nc\n")), Some(2));
        assert_eq!(check(Some("a\nb\n"), Some("a\nb\nc\n")), Some(3));
        assert_eq!(check(Some("a\nb\n"), Some("a\n")), Some(1));
        assert_eq!(check(Some("a"), Some("")), Some(1));
        assert_eq!(check(Some("a"), None), None);
    }

    #[test]
    fn places_are_read_as_tools_write_them() {
        let check = |line: &str, expected: &[(&str, u32)]| {
            assert_eq!(locations_in(line).collect::<Vec<_>>(), expected, "{line}");
        };
        check("thread 'x' panicked at src/lib.rs:10:5:", &[("src/lib.rs", 10)]);
        check("  --> src/main.rs:3:9", &[("src/main.rs", 3)]);
        check("tests/test_x.py:12: AssertionError", &[("tests/test_x.py", 12)]);
        check("  File \"/w/a.py\", line 7, in f", &[("/w/a.py", 7)]);
        check("    at f (file:///w/a.js:3:1)", &[("/w/a.js", 3)]);
        check("x_test.go:12: no", &[("x_test.go", 12)]);
        check("at 12:30:01 in 1.5:2, http://x/y, a:b, :3, x.rs:0, x.rs:99999999999", &[]);
    }
}
