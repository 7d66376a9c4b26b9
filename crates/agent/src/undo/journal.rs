//! The undo journal: the list of what each turn of a session did to files, with the position of undo and redo
//! in it. It also has what each file is compared with in a review: its content before the session first
//! changed it, or what a person has kept since.
//!
//! **Invariant:** the first `done` turns are applied, those after them are undone. A new change drops the
//! latter.
//! **Invariant:** no turn is without files, and no file of a turn is unchanged.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;
/// Turns that can be undone.
const TURNS_MAX: usize = 100;
/// Files of one turn, and of a review; a command may change very many.
const FILES_MAX: usize = 5000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UndoJournal {
    version: u32,
    pub(super) done: usize,
    pub(super) turns: Vec<TurnChanges>,
    /// Missing in files of versions without the review; then it is computed from the turns.
    #[serde(default)]
    bases: Option<Vec<ReviewBase>>,
}

/// What a file is compared with in a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReviewBase {
    /// Absolute and without links.
    pub(super) path: String,
    pub(super) state: State,
    /// The turn that first changed it.
    pub(super) turn: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TurnChanges {
    pub(super) turn: u64,
    pub(super) files: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Absolute and without links.
    pub(super) path: String,
    pub(super) before: State,
    pub(super) after: State,
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Absent,
    /// `permissions` is left out where nobody chose any.
    File {
        hash: String,
        bytes: u64,
        permissions: Option<u32>,
    },
    /// Too large to be stored; it can only be compared.
    Large {
        bytes: u64,
        written: String,
    },
}

impl State {
    /// Whether the bytes are the same.
    pub(super) fn same_bytes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { hash, .. }, Self::File { hash: other, .. }) => hash == other,
            (one, other) => one == other,
        }
    }

    pub(super) fn permissions(&self) -> Option<u32> {
        match self {
            Self::File { permissions, .. } => *permissions,
            Self::Absent | Self::Large { .. } => None,
        }
    }

    fn hash(&self) -> Option<(&str, u64)> {
        match self {
            Self::File { hash, bytes, .. } => Some((hash, *bytes)),
            Self::Absent | Self::Large { .. } => None,
        }
    }
}

impl Default for UndoJournal {
    fn default() -> Self {
        Self { version: VERSION, done: 0, turns: Vec::new(), bases: None }
    }
}

impl UndoJournal {
    /// `None` if it was written by a later version, or is damaged: then nothing can be undone.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut journal: Self = serde_json::from_slice(bytes).ok()?;
        let sound = journal.version == VERSION && journal.done <= journal.turns.len();
        if journal.bases.is_none() {
            journal.find_bases(|_| true);
        }
        sound.then_some(journal)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Records that a turn has changed a file, or is about to.
    pub(super) fn note(&mut self, turn: u64, path: &Path, before: State, after: State) {
        let Some(path) = path.to_str() else { return };
        self.compare_with(turn, path, &before);
        // A change that the turn itself reverts is not reviewed.
        self.bases
            .get_or_insert_default()
            .retain(|base| base.path != path || base.turn != turn || !base.state.same_bytes(&after));
        self.turns.truncate(self.done);
        if self.turns.last().is_none_or(|last| last.turn != turn) {
            self.turns.push(TurnChanges { turn, files: Vec::new() });
        }
        if let Some(last) = self.turns.last_mut() {
            let room = last.files.len() < FILES_MAX;
            match last.files.iter_mut().find(|entry| entry.path == path) {
                Some(entry) => entry.after = after,
                None if room => {
                    last.files.push(Entry { path: path.to_owned(), before, after });
                }
                None => {}
            }
            last.files.retain(|entry| entry.before != entry.after);
        }
        self.turns.retain(|turn| !turn.files.is_empty());
        if self.turns.len() > TURNS_MAX {
            self.turns.remove(0);
        }
        self.done = self.turns.len();
    }

    /// Drops the oldest applied turn, unless it is the last one. Changes of files that only this turn
    /// recorded are no longer reviewed: the file is compared with its state before the next turn that changed
    /// it.
    pub(super) fn forget_oldest(&mut self) -> bool {
        if self.turns.len() < 2 {
            return false;
        }
        let gone = self.turns.remove(0).turn;
        self.done = self.done.saturating_sub(1);
        let mut lost = HashSet::new();
        self.bases.get_or_insert_default().retain(|base| {
            let stays = base.turn > gone;
            if !stays {
                lost.insert(base.path.clone());
            }
            stays
        });
        self.find_bases(|path| lost.contains(path));
        true
    }

    /// What files are compared with in a review.
    pub(super) fn bases(&self) -> &[ReviewBase] {
        self.bases.as_deref().unwrap_or_default()
    }

    pub(super) fn base_of(&self, path: &Path) -> Option<&ReviewBase> {
        self.bases().iter().find(|base| Path::new(&base.path) == path)
    }

    /// Records that a person has kept a file's current content, or a part of it.
    pub(super) fn keep(&mut self, path: &Path, part: Option<State>) {
        let bases = self.bases.get_or_insert_default();
        match part {
            None => bases.retain(|base| Path::new(&base.path) != path),
            Some(state) => {
                for base in bases.iter_mut().filter(|base| Path::new(&base.path) == path) {
                    base.state = state.clone();
                }
            }
        }
    }

    /// The first change of a file since its last review determines what it is compared with.
    fn compare_with(&mut self, turn: u64, path: &str, before: &State) {
        let bases = self.bases.get_or_insert_default();
        if bases.len() < FILES_MAX && !bases.iter().any(|base| base.path == path) {
            bases.push(ReviewBase { path: path.to_owned(), state: before.clone(), turn });
        }
    }

    /// Computes the bases of these files from the turns.
    fn find_bases(&mut self, of: impl Fn(&str) -> bool) {
        let turns = self.turns.get(..self.done).unwrap_or_default().to_vec();
        for TurnChanges { turn, files } in turns {
            for Entry { path, before, .. } in files.iter().filter(|entry| of(&entry.path)) {
                self.compare_with(turn, path, before);
            }
        }
    }

    /// All contents that are needed to undo, redo or compare.
    pub(super) fn hashes(&self) -> HashSet<(&str, u64)> {
        let states =
            self.turns.iter().flat_map(|turn| &turn.files).flat_map(|entry| [&entry.before, &entry.after]);
        states.chain(self.bases().iter().map(|base| &base.state)).filter_map(State::hash).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(hash: &str) -> State {
        State::File { hash: hash.into(), bytes: 1, permissions: Some(0o644) }
    }

    fn shown(journal: &UndoJournal) -> String {
        let hash = |state: &State| state.hash().map_or("-", |(hash, _)| hash).to_owned();
        let entry = |entry: &Entry| format!("{}:{}>{}", entry.path, hash(&entry.before), hash(&entry.after));
        let turn = |turn: &TurnChanges| {
            format!("{}[{}]", turn.turn, turn.files.iter().map(entry).collect::<Vec<_>>().join(" "))
        };
        format!("{}/{}", journal.done, journal.turns.iter().map(turn).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_turn_has_each_file_once_with_its_first_and_its_last_state() {
        let mut journal = UndoJournal::default();
        journal.note(1, Path::new("/a"), State::Absent, file("1"));
        journal.note(1, Path::new("/a"), file("1"), file("2"));
        journal.note(1, Path::new("/b"), file("x"), State::Absent);
        assert_eq!(shown(&journal), "1/1[/a:->2 /b:x>-]");
        // What is as it was before is no change.
        journal.note(1, Path::new("/a"), file("2"), State::Absent);
        assert_eq!(shown(&journal), "1/1[/b:x>-]");
        journal.note(1, Path::new("/b"), State::Absent, file("x"));
        assert_eq!(shown(&journal), "0/");
    }

    #[test]
    fn a_new_change_drops_what_was_taken_back() {
        let mut journal = UndoJournal::default();
        journal.note(1, Path::new("/a"), file("1"), file("2"));
        journal.note(2, Path::new("/a"), file("2"), file("3"));
        journal.done = 1;
        journal.note(4, Path::new("/a"), file("2"), file("4"));
        assert_eq!(shown(&journal), "2/1[/a:1>2] 4[/a:2>4]");
    }

    fn compared(journal: &UndoJournal) -> String {
        let base =
            |base: &ReviewBase| format!("{}:{}", base.path, base.state.hash().map_or("-", |(hash, _)| hash));
        journal.bases().iter().map(base).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_file_is_compared_with_what_it_was_first_or_with_what_was_kept() {
        let mut journal = UndoJournal::default();
        journal.note(1, Path::new("/a"), file("1"), file("2"));
        journal.note(1, Path::new("/b"), State::Absent, file("b"));
        journal.note(2, Path::new("/a"), file("2"), file("3"));
        assert_eq!(compared(&journal), "/a:1 /b:-");
        journal.keep(Path::new("/a"), Some(file("k")));
        journal.keep(Path::new("/b"), None);
        assert_eq!(compared(&journal), "/a:k");
        // Whatever was kept, the next change is seen.
        journal.note(3, Path::new("/b"), file("b"), file("c"));
        assert_eq!(compared(&journal), "/a:k /b:b");
        // What a turn makes and undoes itself is no change.
        journal.note(4, Path::new("/c"), State::Absent, file("x"));
        journal.note(4, Path::new("/c"), file("x"), State::Absent);
        assert_eq!(compared(&journal), "/a:k /b:b");
        // It is one if it was kept in between.
        journal.note(4, Path::new("/c"), State::Absent, file("x"));
        journal.keep(Path::new("/c"), None);
        journal.note(4, Path::new("/c"), file("x"), State::Absent);
        assert_eq!(compared(&journal), "/a:k /b:b /c:x");
        assert_eq!(UndoJournal::read(&journal.bytes()), Some(journal));
    }

    #[test]
    fn a_journal_from_before_there_were_reviews_says_what_was_changed() {
        let mut journal = UndoJournal::default();
        journal.note(1, Path::new("/a"), file("1"), file("2"));
        journal.note(2, Path::new("/a"), file("2"), file("3"));
        journal.note(3, Path::new("/b"), file("b"), file("c"));
        journal.done = 2;
        let mut old: serde_json::Value = serde_json::from_slice(&journal.bytes()).unwrap();
        old.as_object_mut().unwrap().remove("bases");
        let read = UndoJournal::read(old.to_string().as_bytes()).unwrap();
        assert_eq!(compared(&read), "/a:1");
        // That everything was kept is not the same.
        journal.keep(Path::new("/a"), None);
        journal.keep(Path::new("/b"), None);
        assert_eq!(compared(&UndoJournal::read(&journal.bytes()).unwrap()), "");
    }

    #[test]
    fn contents_to_compare_with_are_kept_as_long_as_their_turns_are() {
        let mut journal = UndoJournal::default();
        journal.note(1, Path::new("/a"), file("1"), file("2"));
        journal.note(1, Path::new("/b"), file("b"), file("c"));
        journal.note(2, Path::new("/a"), file("2"), file("3"));
        journal.keep(Path::new("/b"), Some(file("k")));
        assert!(journal.hashes().contains(&("k", 1)));
        assert!(journal.forget_oldest());
        assert_eq!(compared(&journal), "/a:2");
    }

    #[test]
    fn the_oldest_turns_are_forgotten() {
        let mut journal = UndoJournal::default();
        for turn in 0..TURNS_MAX as u64 + 5 {
            journal.note(turn, Path::new("/a"), file("1"), file(&turn.to_string()));
        }
        assert_eq!((journal.turns.len(), journal.turns[0].turn, journal.done), (TURNS_MAX, 5, TURNS_MAX));
        assert!(journal.forget_oldest());
        assert_eq!((journal.turns[0].turn, journal.done), (6, TURNS_MAX - 1));
        assert_eq!(UndoJournal::read(&journal.bytes()), Some(journal));
        for bad in [
            &b"{}"[..],
            b"",
            br#"{"version":2,"done":0,"turns":[]}"#,
            br#"{"version":1,"done":1,"turns":[]}"#,
        ] {
            assert_eq!(UndoJournal::read(bad), None);
        }
    }
}
