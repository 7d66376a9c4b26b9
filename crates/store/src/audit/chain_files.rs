//! The files of the chain in order: first the compressed old ones, then one per day.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use engine::Timestamp;
use flate2::read::GzDecoder;

use crate::regular_file::open_regular;

pub(super) const ARCHIVE: &str = "archive";
const LIVE_SUFFIX: &str = ".jsonl";
const ARCHIVED_SUFFIX: &str = ".jsonl.gz";

/// One file of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainFile {
    /// `2026-01-31.jsonl`, also when it is compressed: the order of names is the order of rows.
    pub name: String,
    pub path: PathBuf,
    pub archived: bool,
}

impl ChainFile {
    /// The name for people.
    pub fn display_name(&self) -> String {
        if self.archived { format!("{ARCHIVE}/{}.gz", self.name) } else { self.name.clone() }
    }

    /// Everything after the first `from` bytes.
    pub fn read(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut file = open_regular(&self.path)?.ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = Vec::new();
        if self.archived {
            GzDecoder::new(file).read_to_end(&mut bytes)?;
            let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
            bytes.drain(..from);
        } else {
            file.seek(SeekFrom::Start(from))?;
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }
}

/// All files, oldest first. Where a file is both compressed and not, which is how a kill may leave it,
/// the one that is not counts: only it can still grow.
pub(super) fn all(folder: &Path) -> io::Result<Vec<ChainFile>> {
    let mut found = in_folder(folder, LIVE_SUFFIX, false)?;
    for archived in in_folder(&folder.join(ARCHIVE), ARCHIVED_SUFFIX, true)? {
        if !found.iter().any(|live| live.name == archived.name) {
            found.push(archived);
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn in_folder(folder: &Path, suffix: &str, archived: bool) -> io::Result<Vec<ChainFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(suffix) {
            found.push(ChainFile { name: format!("{stem}{LIVE_SUFFIX}"), path: entry.path(), archived });
        }
    }
    Ok(found)
}

/// The name of the day's file.
pub(super) fn name_of(at: Timestamp) -> String {
    let day: String = wire::timestamp::rfc3339(at).chars().take(10).collect();
    format!("{day}{LIVE_SUFFIX}")
}

/// The lines that are whole, and what comes after the last of them.
pub(super) fn lines(bytes: &[u8]) -> (impl Iterator<Item = &[u8]>, &[u8]) {
    let end = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    let (whole, torn) = bytes.split_at(end);
    let lines = whole.strip_suffix(b"\n").map(|whole| whole.split(|byte| *byte == b'\n'));
    (lines.into_iter().flatten(), torn)
}
