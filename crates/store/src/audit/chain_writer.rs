//! The writing end of the chain: rows are appended under a lock that all processes share.
//!
//! A process does not trust its own memory of the chain: before each batch it reads, checks and counts the rows that
//! others appended since. The rows themselves tell which events of a session have a row, so a process that is killed
//! at any moment neither loses a row nor writes it twice: an event without a row is read from the session's log again.
//!
//! A row that a crash cut off is moved aside and reported in a row of its own; so is a chain that is
//! shorter than its head, or the mark beside its key, says.
//!
//! A folder that was removed or moved is not created again under a running process: a chain without its
//! key, or without its beginning, would block the next start.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use engine::Timestamp;
use serde_json::{Map, Value, json};

use super::archive;
use super::chain_files::{self, ChainFile};
use super::chain_head::{self, CURSORS, ChainHead, Cursors, HEAD};
use super::key::AuditKey;
use super::lock::ChainLock;
use super::row::{self, AuditEntry, AuditRow};
use super::sha256;
use crate::regular_file::open_regular;

/// The folder for the remains of torn rows.
const TORN: &str = "torn";
/// The cursors are saved again after this many rows.
const CURSORS_EVERY: u64 = 512;
/// A row is shorter: what it quotes is cut.
const ROW_BYTES_MAX: u64 = 128 << 10;
/// Flag in the cursor of a deleted session, beside how far its log was read: no more rows are written about
/// it unless its store is restored. Earlier versions stored the flag alone, with all bits set.
const GONE: u64 = 1 << 63;

pub(super) const SESSION: &str = "session";
pub(super) const STARTED: &str = "audit.started";
pub(super) const SEALED_TEAR: &str = "audit.torn";
pub(super) const REWOUND: &str = "audit.rewound";
pub(super) const ACKNOWLEDGED: &str = "audit.acknowledged";
pub(super) const DELETED: &str = "session.deleted";
pub(super) const RETURNED: &str = "session.returned";

/// A place of a session that was deleted.
pub(super) fn is_gone(cursor: u64) -> bool {
    cursor & GONE != 0
}

/// How far a session's log was read, whether it was deleted since or not.
pub(super) fn position(cursor: u64) -> u64 {
    cursor & !GONE
}

/// When an entry becomes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowCondition {
    /// Unless its session is gone.
    Always,
    /// If the chain knows nothing of its session.
    First,
    /// If the chain has not come as far in its session's log.
    At(u64),
    /// Once, and nothing of its session afterwards.
    Last,
    /// If its session was deleted: it exists again, and more rows follow.
    Returned,
}

#[derive(Debug, Clone)]
pub(super) struct RowDraft {
    pub entry: AuditEntry,
    pub when: RowCondition,
}

pub(super) struct ChainWriter {
    folder: PathBuf,
    /// Which folder it is, whatever its path leads to later.
    identity: (u64, u64),
    key: AuditKey,
    lock: ChainLock,
    /// The last row that was read or written; none before the first look.
    at: Option<ChainHead>,
    cursors: Cursors,
    /// Rows since the cursors were written down.
    unsaved: u64,
    head_is_current: bool,
    /// Rows were found to be missing.
    rewound: bool,
    /// The day of the last look at what can be archived.
    tidied: String,
    retention_days: u32,
}

impl ChainWriter {
    pub fn open(folder: &Path, key: AuditKey, retention_days: u32) -> io::Result<Self> {
        key.must_be_there()?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock = ChainLock::open(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            identity: identity(folder)?,
            key,
            lock,
            at: None,
            cursors: Cursors::new(),
            unsaved: 0,
            head_is_current: false,
            rewound: false,
            tidied: String::new(),
            retention_days,
        })
    }

    /// Appends what is due of these, all or none.
    pub fn append(&mut self, now: Timestamp, drafts: &[RowDraft]) -> io::Result<()> {
        self.locked(|chain| {
            let mut entries = chain.read_new_rows(now)?;
            entries.extend(chain.entries_due(drafts));
            chain.write(now, &entries)?;
            chain.tidy(now);
            Ok(())
        })
    }

    /// How far the chain has come in this session's log; none if it knows nothing of the session.
    pub fn cursor(&mut self, now: Timestamp, session: &str) -> io::Result<Option<u64>> {
        self.locked(|chain| {
            let found = chain.read_new_rows(now)?;
            chain.write(now, &found)
        })?;
        Ok(self.cursors.get(session).copied())
    }

    /// This far the session's log was read, whether it had anything for a row or not.
    pub fn note_read(&mut self, session: &str, seq: u64) {
        if let Some(cursor) = self.cursors.get_mut(session) {
            *cursor = (*cursor).max(seq);
        }
    }

    /// Writes the sessions' places down, so that the next start has little to read.
    pub fn save_cursors(&mut self) {
        let saved = self.locked(|chain| {
            let Some(at) = &chain.at else { return Ok(()) };
            chain_head::save(&chain.key, &chain.folder, CURSORS, at, Some(&chain.cursors))
        });
        match saved {
            Ok(()) => self.unsaved = 0,
            // The chain itself has them.
            Err(error) => tracing::debug!(%error, "the audit's cursors could not be written"),
        }
    }

    /// Whether rows were found to be missing since the chain was opened.
    pub fn was_rewound(&self) -> bool {
        self.rewound
    }

    /// Whether the folder is still the one that was opened.
    pub fn is_in_place(&self) -> io::Result<()> {
        self.key.must_be_there()?;
        match identity(&self.folder) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(io::Error::other("its folder was replaced while in use; reopening it")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "its folder was removed or moved away while in use; move it back, or start ropewalk again",
            )),
            Err(error) => Err(error),
        }
    }

    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        self.is_in_place()?;
        self.lock.exclusive()?;
        let done = work(self);
        self.lock.unlock();
        done
    }

    /// The entries that have no row yet, each only once.
    fn entries_due(&self, drafts: &[RowDraft]) -> Vec<AuditEntry> {
        let mut reached = Cursors::new();
        let mut due = Vec::new();
        for RowDraft { entry, when } in drafts {
            let known = reached.get(&entry.resource_id).or_else(|| self.cursors.get(&entry.resource_id));
            let cursor = known.copied().filter(|_| entry.resource_type == SESSION);
            let wanted = match (when, cursor) {
                (RowCondition::Returned, cursor) => cursor.is_some_and(is_gone),
                (_, Some(cursor)) if is_gone(cursor) => false,
                (RowCondition::First, Some(_)) => false,
                (RowCondition::Always | RowCondition::Last, _)
                | (RowCondition::First | RowCondition::At(_), None) => true,
                (RowCondition::At(seq), Some(cursor)) => *seq > cursor,
            };
            if wanted {
                reached.extend(cursor.map(|cursor| (entry.resource_id.clone(), cursor)));
                count_entry(&mut reached, entry);
                due.push(entry.clone());
            }
        }
        due
    }

    /// Reads what was appended since the last look; what is found to be wrong becomes entries.
    fn read_new_rows(&mut self, now: Timestamp) -> io::Result<Vec<AuditEntry>> {
        let segments = chain_files::all(&self.folder)?;
        let (stated, headless) = self.stated_head()?;
        let (mark, forged) = self.mark()?;
        if segments.is_empty() && stated.is_none() && self.at.is_none() {
            return self.begin(now, mark, forged);
        }
        let headless = headless || forged;
        let (from, lost) = self.start(&segments)?;
        let expected = [stated.clone(), lost, mark].into_iter().flatten().max_by_key(|head| head.rows);
        let mut walk = ChainWalk {
            found: Vec::new(),
            fits: expected.as_ref().is_none_or(|head| head.rows <= from.rows),
            at: from,
            expected,
            now,
        };
        let first = walk.at.file.clone();
        for segment in segments.iter().filter(|segment| segment.name >= first) {
            let torn = self.walk(&mut walk, segment)?;
            if !torn.is_empty() && Some(segment) == segments.last() && !segment.archived {
                self.put_aside(&mut walk, segment, &torn)?;
            }
        }
        if !walk.fits || headless {
            walk.report_rewound();
            self.rewound = true;
        }
        self.at = Some(walk.at);
        self.head_is_current = stated == self.at;
        Ok(walk.found)
    }

    /// The head beside the chain, and whether it is missing or forged.
    fn stated_head(&self) -> io::Result<(Option<ChainHead>, bool)> {
        match chain_head::load(&self.key, &self.folder, HEAD) {
            Ok(Some((stated, _))) => Ok((Some(stated), false)),
            Ok(None) => Ok((None, true)),
            Err(chain_head::ChainHeadError::Io(error)) => Err(error),
            Err(error @ chain_head::ChainHeadError::Forged) => {
                tracing::error!(%error, "the audit's head.json is not genuine");
                Ok((None, true))
            }
        }
    }

    /// The mark beside the key, and whether it is forged.
    fn mark(&self) -> io::Result<(Option<ChainHead>, bool)> {
        match chain_head::load_mark(&self.key) {
            Ok(mark) => Ok((mark, false)),
            Err(chain_head::ChainHeadError::Io(error)) => Err(error),
            Err(error @ chain_head::ChainHeadError::Forged) => {
                tracing::error!(%error, "the mark beside the audit's key is not genuine");
                Ok((None, true))
            }
        }
    }

    /// The first look at an empty folder. The head is written before the first row, so that a chain without
    /// a head is never caused by a crash. If the mark counts rows, or the key is older than its mark, there
    /// was a chain before, which was removed.
    fn begin(
        &mut self,
        now: Timestamp,
        mark: Option<ChainHead>,
        forged: bool,
    ) -> io::Result<Vec<AuditEntry>> {
        let at = ChainHead::default();
        chain_head::save(&self.key, &self.folder, HEAD, &at, None)?;
        chain_head::sync_folder(&self.folder)?;
        self.at = Some(at.clone());
        let started = about_the_chain(STARTED, now, json!({ "format": 1, "key": self.key.id() }));
        let removed = match &mark {
            Some(mark) => mark.rows > 0,
            None => forged || !self.key.may_begin(),
        };
        if !removed {
            return Ok(vec![started]);
        }
        let mut walk = ChainWalk { at, expected: mark, fits: false, found: vec![started], now };
        walk.report_rewound();
        self.rewound = true;
        Ok(walk.found)
    }

    /// The last place up to which all rows are counted, and one that should be there and is not. Then
    /// the whole chain is read again.
    fn start(&mut self, segments: &[ChainFile]) -> io::Result<(ChainHead, Option<ChainHead>)> {
        let kept = match self.at.take() {
            Some(at) => Some(at),
            None => self.load_cursors(),
        };
        let Some(kept) = kept else { return Ok((ChainHead::default(), None)) };
        if kept.rows == 0 || is_there(&kept, segments)? {
            return Ok((kept, None));
        }
        self.cursors.clear();
        Ok((ChainHead::default(), Some(kept)))
    }

    fn load_cursors(&mut self) -> Option<ChainHead> {
        match chain_head::load(&self.key, &self.folder, CURSORS) {
            Ok(Some((at, Some(cursors)))) => {
                self.cursors = cursors;
                Some(at)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the audit's cursors cannot be used; the whole chain is read");
                None
            }
        }
    }

    /// Counts the rows of a file; what follows its last whole line is handed back.
    fn walk(&mut self, walk: &mut ChainWalk, segment: &ChainFile) -> io::Result<Vec<u8>> {
        let from = if segment.name == walk.at.file { walk.at.bytes } else { 0 };
        let bytes = segment.read(from)?;
        walk.at.file.clone_from(&segment.name);
        walk.at.bytes = from;
        let (lines, torn) = chain_files::lines(&bytes);
        for line in lines {
            match row::read(&self.key, &walk.at.hmac, line) {
                Ok(row) => {
                    count(&mut self.cursors, &row.event_type, &row.resource_id, row.seq());
                    walk.at.hmac = row.hmac;
                }
                Err(flaw) => {
                    tracing::error!(file = segment.display_name(), %flaw, "the audit chain is broken; see ropewalk audit verify");
                    // The chain continues from the signature that the row itself contains. Verification
                    // still finds the flaw.
                    walk.at.hmac = AuditRow::parse(line).map_or(walk.at.hmac.clone(), |row| row.hmac);
                }
            }
            walk.step(line.len());
        }
        Ok(torn.to_vec())
    }

    /// Moves the remains of a torn row out of the chain, and reports that in the chain.
    fn put_aside(&self, walk: &mut ChainWalk, segment: &ChainFile, torn: &[u8]) -> io::Result<()> {
        let folder = self.folder.join(TORN);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let name = format!("{}.{}", segment.name, walk.at.bytes);
        let mut kept = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(&name))?;
        kept.write_all(torn)?;
        kept.sync_data()?;
        let file = OpenOptions::new().write(true).open(&segment.path)?;
        file.set_len(walk.at.bytes)?;
        file.sync_data()?;
        tracing::warn!(
            bytes = torn.len(),
            file = segment.name,
            "an incomplete row of the audit was moved aside"
        );
        let details = json!({
            "bytes": torn.len(), "file": segment.name, "kept": format!("{TORN}/{name}"), "offset": walk.at.bytes,
            "sha256": sha256(torn),
        });
        walk.found.push(about_the_chain(SEALED_TEAR, walk.now, details));
        Ok(())
    }

    /// Appends rows for the entries. An incomplete write is undone.
    fn write(&mut self, now: Timestamp, entries: &[AuditEntry]) -> io::Result<()> {
        let Some(at) = self.at.clone() else { return Ok(()) };
        if entries.is_empty() {
            return if self.head_is_current { Ok(()) } else { self.save_head() };
        }
        // Never an earlier file, whatever the clock says: the order of names is the order of rows.
        let name = chain_files::name_of(now).max(at.file.clone());
        let offset = if name == at.file { at.bytes } else { 0 };
        let mut next = ChainHead { file: name, bytes: offset, ..at };
        let mut lines = Vec::new();
        for entry in entries {
            next.hmac = row::write(&self.key, &next.hmac, entry, &mut lines);
            next.rows += 1;
        }
        next.bytes += lines.len() as u64;
        let path = self.folder.join(&next.file);
        // Opening anything but a regular file might block.
        drop(open_regular(&path)?);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if let Err(error) = file.write_all(&lines).and_then(|()| file.sync_data()) {
            // The next look finds what remains and moves it aside.
            drop(file.set_len(offset));
            return Err(error);
        }
        if offset == 0 {
            chain_head::sync_folder(&self.folder)?;
        }
        for entry in entries {
            count_entry(&mut self.cursors, entry);
        }
        self.at = Some(next);
        self.unsaved += entries.len() as u64;
        if let Err(error) = self.save_head() {
            // The rows are written: to fail here would have them written again.
            tracing::error!(%error, "the audit's head.json could not be written");
        }
        Ok(())
    }

    fn save_head(&mut self) -> io::Result<()> {
        let Some(at) = &self.at else { return Ok(()) };
        chain_head::save(&self.key, &self.folder, HEAD, at, None)?;
        if let Err(error) = chain_head::save_mark(&self.key, at) {
            // A key that lies where nothing can be written has none.
            tracing::debug!(%error, "the mark beside the audit's key could not be written");
        }
        self.head_is_current = true;
        if self.unsaved >= CURSORS_EVERY {
            chain_head::save(&self.key, &self.folder, CURSORS, at, Some(&self.cursors))?;
            self.unsaved = 0;
        }
        Ok(())
    }

    /// Once a day: files of long ago are compressed.
    fn tidy(&mut self, now: Timestamp) {
        let today = chain_files::name_of(now);
        let Some(at) = self.at.as_ref().filter(|_| self.tidied != today) else { return };
        match archive::archive(&self.folder, &at.file, now, self.retention_days) {
            Ok(_) => self.tidied = today,
            Err(error) => tracing::warn!(%error, "old files of the audit could not be compressed"),
        }
    }
}

/// A pass over the chain.
struct ChainWalk {
    at: ChainHead,
    /// The place that the chain must come through.
    expected: Option<ChainHead>,
    fits: bool,
    found: Vec<AuditEntry>,
    now: Timestamp,
}

impl ChainWalk {
    /// One line further.
    fn step(&mut self, line_bytes: usize) {
        self.at.bytes += line_bytes as u64 + 1;
        self.at.rows += 1;
        if let Some(expected) = self.expected.as_ref().filter(|expected| expected.rows == self.at.rows) {
            self.fits = expected.hmac == self.at.hmac;
        }
    }

    fn report_rewound(&mut self) {
        let expected = self.expected.clone().unwrap_or_default();
        tracing::error!(
            expected = expected.rows,
            found = self.at.rows,
            "the audit chain was cut or rewound; see ropewalk audit verify"
        );
        let details = json!({
            "expected_hmac": expected.hmac, "expected_rows": expected.rows, "found_rows": self.at.rows,
        });
        self.found.push(about_the_chain(REWOUND, self.now, details));
    }
}

/// The row that acknowledges that the chain was cut.
pub(super) fn acknowledgement(now: Timestamp, actor: &str, reason: &str) -> RowDraft {
    let entry = about_the_chain(ACKNOWLEDGED, now, json!({ "reason": reason }));
    RowDraft { entry: AuditEntry { actor: actor.into(), ..entry }.bounded(), when: RowCondition::Always }
}

fn identity(folder: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(folder).map(|found| (found.dev(), found.ino()))
}

/// Whether the chain has a row that ends here.
fn is_there(place: &ChainHead, segments: &[ChainFile]) -> io::Result<bool> {
    let Some(segment) = segments.iter().find(|segment| segment.name == place.file) else { return Ok(false) };
    let before = place.bytes.saturating_sub(if segment.archived { place.bytes } else { ROW_BYTES_MAX });
    let mut bytes = segment.read(before)?;
    let wanted = usize::try_from(place.bytes - before).unwrap_or(usize::MAX);
    if bytes.len() < wanted {
        return Ok(false);
    }
    bytes.truncate(wanted);
    let (lines, torn) = chain_files::lines(&bytes);
    let last = lines.last().and_then(AuditRow::parse);
    Ok(torn.is_empty() && last.is_some_and(|row| row.hmac == place.hmac))
}

fn about_the_chain(event_type: &'static str, at: Timestamp, details: Value) -> AuditEntry {
    let details = if let Value::Object(details) = details { details } else { Map::new() };
    AuditEntry {
        at,
        event_type,
        actor: "ropewalk".into(),
        resource_type: "audit",
        resource_id: "chain".into(),
        details,
    }
}

fn count_entry(cursors: &mut Cursors, entry: &AuditEntry) {
    let seq = entry.details.get("seq").and_then(Value::as_u64);
    if entry.resource_type == SESSION {
        count(cursors, entry.event_type, &entry.resource_id, seq);
    }
}

fn count(cursors: &mut Cursors, event_type: &str, session: &str, seq: Option<u64>) {
    match (event_type, seq) {
        (DELETED, _) => *cursors.entry(session.to_owned()).or_default() |= GONE,
        (RETURNED, Some(seq)) => {
            let cursor = cursors.entry(session.to_owned()).or_default();
            *cursor = seq;
        }
        (_, Some(seq)) => {
            let cursor = cursors.entry(session.to_owned()).or_default();
            *cursor = (*cursor).max(seq);
        }
        (_, None) => {}
    }
}
