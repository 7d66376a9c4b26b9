//! The folder with a session's earlier file contents, one file per content, named by its hash, and with the
//! undo journal. Only the person can read it: contents are stored as they are, secrets included.
//!
//! It is bounded: contents that no turn needs are removed first, then the oldest turns; over all sessions,
//! those that were used longest ago.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::journal::UndoJournal;

/// A larger file is not stored.
pub(super) const FILE_BYTES_MAX: u64 = 25 << 20;
const SESSION_BYTES_MAX: u64 = 256 << 20;
const ALL_BYTES_MAX: u64 = 2 << 30;
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const JOURNAL: &str = "journal.json";
const CONTENTS: &str = "contents";

pub(super) struct UndoStore {
    folder: PathBuf,
    /// The size of all contents, needed or not.
    bytes: u64,
    bytes_max: u64,
}

impl UndoStore {
    /// Opens the folder of a session below the folder of all sessions. Both are created when something is
    /// stored.
    pub(super) fn open(all: &Path, session: &str) -> Self {
        let folder = all.join(session);
        let bytes = size(&folder.join(CONTENTS));
        Self { folder, bytes, bytes_max: SESSION_BYTES_MAX }
    }

    #[cfg(test)]
    pub(super) fn limited(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    pub(super) fn journal(&self) -> UndoJournal {
        let path = self.folder.join(JOURNAL);
        let Ok(bytes) = read(&path, JOURNAL_BYTES_MAX) else { return UndoJournal::default() };
        UndoJournal::read(&bytes).unwrap_or_else(|| {
            tracing::warn!(path = %path.display(), "could not read the undo data of earlier turns, so they cannot be undone");
            UndoJournal::default()
        })
    }

    pub(super) fn write_journal(&self, journal: &UndoJournal) -> io::Result<()> {
        self.make()?;
        put(&self.folder, JOURNAL, &journal.bytes())
    }

    /// Stores a content. With `sweep`, makes room for it if necessary by dropping the oldest turns.
    pub(super) fn keep(
        &mut self,
        hash: &str,
        bytes: &[u8],
        journal: &mut UndoJournal,
        sweep: bool,
    ) -> io::Result<()> {
        let folder = self.folder.join(CONTENTS);
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("it is too large to be stored for undo"));
        }
        if folder.join(hash).is_file() {
            return Ok(());
        }
        self.make()?;
        let wanted = self.bytes + bytes.len() as u64;
        if sweep && wanted > self.bytes_max {
            self.make_room(bytes.len() as u64, journal)?;
        } else if wanted > 2 * self.bytes_max {
            return Err(io::Error::other("there is not enough space for it"));
        }
        put(&folder, hash, bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.folder.join(CONTENTS).join(hash).is_file()
    }

    pub(super) fn content(&self, hash: &str) -> io::Result<Vec<u8>> {
        let bytes = read(&self.folder.join(CONTENTS).join(hash), FILE_BYTES_MAX)?;
        if self::hash(&bytes) != hash {
            return Err(io::Error::other("its stored content is damaged"));
        }
        Ok(bytes)
    }

    fn make_room(&mut self, wanted: u64, journal: &mut UndoJournal) -> io::Result<()> {
        loop {
            self.drop_unneeded(journal);
            if self.bytes + wanted <= self.bytes_max {
                return self.write_journal(journal);
            }
            if !journal.forget_oldest() {
                return Err(io::Error::other("this turn changes more than can be stored for undo"));
            }
        }
    }

    fn drop_unneeded(&mut self, journal: &UndoJournal) {
        let folder = self.folder.join(CONTENTS);
        let needed = journal.hashes();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !needed.iter().any(|(hash, _)| name.to_str() == Some(*hash)) {
                fs::remove_file(entry.path()).ok();
            }
        }
        self.bytes = size(&folder);
    }

    fn make(&self) -> io::Result<()> {
        let contents = self.folder.join(CONTENTS);
        if contents.is_dir() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&contents)?;
        if let (Some(all), Some(own)) = (self.folder.parent(), self.folder.file_name()) {
            forget_old_sessions(all, Path::new(own), ALL_BYTES_MAX);
        }
        Ok(())
    }
}

/// Removes everything that is stored for a session.
pub(super) fn remove(all: &Path, session: &str) -> io::Result<()> {
    match fs::remove_dir_all(all.join(session)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Removes sessions, those that changed files longest ago first.
fn forget_old_sessions(all: &Path, own: &Path, bytes_max: u64) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    let mut others: Vec<_> = entries
        .filter(|entry| Path::new(&entry.file_name()) != own)
        .map(|entry| {
            let changed = fs::metadata(entry.path().join(JOURNAL)).and_then(|data| data.modified()).ok();
            (changed, size(&entry.path().join(CONTENTS)), entry.path())
        })
        .collect();
    others.sort();
    let mut total: u64 = others.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in others {
        if total <= bytes_max {
            return;
        }
        fs::remove_dir_all(&path).ok();
        total -= bytes;
    }
}

pub(super) fn hash(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").ok();
    }
    hex
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    guard::open_regular(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(io::Error::other("it is too large")) } else { Ok(bytes) }
}

/// Writes a whole file or none.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = folder.join(format!("{name}.{}.tmp", uuid::Uuid::new_v4().simple()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        fs::rename(&draft, folder.join(name))
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::journal::State;
    use super::*;

    fn store_content(
        store: &mut UndoStore,
        journal: &mut UndoJournal,
        turn: u64,
        text: &[u8],
    ) -> io::Result<String> {
        let hash = hash(text);
        store.keep(&hash, text, journal, true)?;
        let before = State::File { hash: hash.clone(), bytes: text.len() as u64, permissions: None };
        journal.note(turn, Path::new("/f"), before, State::Absent);
        Ok(hash)
    }

    #[test]
    fn contents_are_kept_for_nobody_else_and_come_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let all = dir.path().join("undo");
        let mut journal = UndoJournal::default();
        let mut store = UndoStore::open(&all, "s");
        let hash = store_content(&mut store, &mut journal, 1, b"\0secret\xff").unwrap();
        store.write_journal(&journal).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&all), 0o700);
        assert_eq!(mode(&all.join("s/contents").join(&hash)), 0o600);
        assert_eq!(mode(&all.join("s/journal.json")), 0o600);
        let again = UndoStore::open(&all, "s");
        assert_eq!((again.content(&hash).unwrap(), again.journal()), (b"\0secret\xff".to_vec(), journal));
        fs::write(all.join("s/contents").join(&hash), "other").unwrap();
        assert!(again.content(&hash).is_err());
        remove(&all, "s").unwrap();
        remove(&all, "s").unwrap();
        assert!(!all.join("s").exists());
    }

    #[test]
    fn room_is_made_at_the_cost_of_the_oldest_turns() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = UndoJournal::default();
        let mut store = UndoStore::open(dir.path(), "s").limited(100);
        let first = store_content(&mut store, &mut journal, 1, &[1; 40]).unwrap();
        let second = store_content(&mut store, &mut journal, 2, &[2; 40]).unwrap();
        // Nobody needs this one, so it goes before anything else does.
        store.keep(&hash(&[9; 20]), &[9; 20], &mut journal, true).unwrap();
        let third = store_content(&mut store, &mut journal, 3, &[3; 20]).unwrap();
        assert_eq!([&first, &second, &third].map(|hash| store.has(hash)), [true; 3]);
        store_content(&mut store, &mut journal, 4, &[4; 40]).unwrap();
        assert_eq!([&first, &second, &third].map(|hash| store.has(hash)), [false, true, true]);
        assert_eq!(journal.turns.iter().map(|turn| turn.turn).collect::<Vec<_>>(), [2, 3, 4]);
        let error = store_content(&mut store, &mut journal, 5, &[5; 101]).unwrap_err();
        assert_eq!(error.to_string(), "this turn changes more than can be stored for undo");
        assert!(store.keep("x", &vec![0; FILE_BYTES_MAX as usize + 1], &mut journal, true).is_err());
    }

    #[test]
    fn sessions_of_long_ago_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        for (session, age) in [("new", 1), ("old", 3), ("older", 5), ("own", 9)] {
            let folder = dir.path().join(session).join(CONTENTS);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("x"), [0; 10]).unwrap();
            let journal = fs::File::create(dir.path().join(session).join(JOURNAL)).unwrap();
            let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age * 1000);
            journal.set_modified(when).unwrap();
        }
        forget_old_sessions(dir.path(), Path::new("own"), 15);
        let left = |name| dir.path().join(name).exists();
        assert_eq!(["new", "old", "older", "own"].map(left), [true, false, false, true]);
    }
}
