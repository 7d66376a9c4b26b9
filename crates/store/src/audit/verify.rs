//! Verification of the chain: every row, every link, and the length.
//!
//! There are three kinds of finding: a row that is not genuine, with its file and line; a chain that is shorter than
//! its head, or than a seal that is kept elsewhere, says; and what the chain reports about itself, such as
//! rows that a crash cut off.

use std::io;
use std::path::Path;

use super::chain_files;
use super::chain_head::{self, ChainHead, ChainHeadError, HEAD};
use super::chain_writer::{ACKNOWLEDGED, REWOUND, SEALED_TEAR};
use super::key::AuditKey;
use super::lock::ChainLock;
use super::row::{self, AuditRow, GENESIS, RowFlaw};

const SEAL: &str = "seal";

/// The findings of a verification.
#[derive(Debug, Default)]
pub struct VerifyReport {
    pub files: usize,
    pub rows: u64,
    /// The last row's place.
    pub head: ChainHead,
    pub broken: Option<BrokenRow>,
    pub cut: Vec<MissingRows>,
    /// Cuts that were acknowledged.
    pub acknowledged: Vec<MissingRows>,
    pub torn: Vec<TornRow>,
}

/// The first row that is not genuine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRow {
    pub file: String,
    /// From 1; 0 for the file as a whole.
    pub line: u64,
    pub what: String,
}

/// Rows that are missing at the end, or were missing when the chain was continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRows {
    /// The source of the expected number: a file, or a row of the chain.
    pub witness: String,
    pub expected_rows: u64,
    pub found_rows: u64,
}

/// A row that a crash cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornRow {
    pub file: String,
    pub bytes: u64,
    /// It was moved aside, and the chain continued.
    pub sealed: bool,
}

/// How far a verification has come.
#[derive(Debug, Clone)]
pub(super) struct VerifyProgress {
    pub hmac: String,
    pub rows: u64,
}

impl Default for VerifyProgress {
    fn default() -> Self {
        Self { hmac: GENESIS.to_owned(), rows: 0 }
    }
}

impl VerifyReport {
    pub fn is_whole(&self) -> bool {
        self.broken.is_none() && self.cut.is_empty()
    }
}

/// Verifies the whole chain, against its head and, if there is one, an anchor: the text of a seal.
/// Writers wait meanwhile.
pub fn verify(folder: &Path, key: &AuditKey, anchor: Option<&[u8]>) -> Result<VerifyReport, VerifyError> {
    // A process that may only read the folder verifies without blocking writers.
    let mut lock = ChainLock::open(folder).ok();
    if let Some(lock) = &mut lock {
        match lock.shared() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(VerifyError::Locked(error));
            }
            // A file system without locks has nobody to wait for.
            Ok(()) | Err(_) => {}
        }
    }
    let mut report = VerifyReport::default();
    let mut expected = Vec::new();
    if let Some(anchor) = anchor {
        let (seal, _) = chain_head::parse(key, SEAL, anchor).map_err(VerifyError::Anchor)?;
        expected.push(("the seal".to_owned(), seal));
    }
    let mut stated = None;
    match chain_head::load(key, folder, HEAD) {
        Ok(Some((head, _))) => {
            stated = Some(head.clone());
            expected.push((HEAD.to_owned(), head));
        }
        Ok(None) => {}
        Err(ChainHeadError::Io(error)) => return Err(VerifyError::Unreadable(HEAD.to_owned(), error)),
        Err(error @ ChainHeadError::Forged) => {
            report.broken = Some(BrokenRow { file: HEAD.to_owned(), line: 0, what: error.to_string() });
        }
    }
    match chain_head::load_mark(key) {
        Ok(mark) => expected.extend(mark.map(|mark| ("the mark beside the key".to_owned(), mark))),
        Err(ChainHeadError::Io(error)) => {
            return Err(VerifyError::Unreadable("the mark beside the key".to_owned(), error));
        }
        Err(error @ ChainHeadError::Forged) => {
            let file = "the mark beside the key".to_owned();
            report.broken.get_or_insert(BrokenRow { file, line: 0, what: error.to_string() });
        }
    }
    let has_head = stated.is_some() || report.broken.is_some();
    walk(folder, key, stated.as_ref(), &mut expected, &mut report)?;
    if !has_head {
        report.cut.push(MissingRows {
            witness: format!("no {HEAD}"),
            expected_rows: 0,
            found_rows: report.rows,
        });
    }
    // Rows after a broken one are not counted, so nothing can be said of the chain's length.
    if report.broken.is_none() {
        for (witness, head) in expected {
            report.cut.push(MissingRows { witness, expected_rows: head.rows, found_rows: report.rows });
        }
    }
    drop(lock);
    Ok(report)
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0} cannot be read")]
    Unreadable(String, #[source] io::Error),
    #[error("it is in use")]
    Locked(#[source] io::Error),
    #[error("could not use the seal")]
    Anchor(#[source] ChainHeadError),
}

/// The text of a seal: the chain's head, to be kept where nobody who could rewrite the chain can change it.
pub fn seal(key: &AuditKey, head: &ChainHead) -> String {
    chain_head::text(key, SEAL, head, None)
}

/// Goes through all files. Removes from `expected` the heads that the chain passes.
fn walk(
    folder: &Path,
    key: &AuditKey,
    stated: Option<&ChainHead>,
    expected: &mut Vec<(String, ChainHead)>,
    report: &mut VerifyReport,
) -> Result<(), VerifyError> {
    expected.retain(|(_, head)| *head != ChainHead::default());
    let unreadable = |error| VerifyError::Unreadable(folder.display().to_string(), error);
    let segments = chain_files::all(folder).map_err(unreadable)?;
    let mut progress = VerifyProgress::default();
    for (index, segment) in segments.iter().enumerate() {
        let file = segment.display_name();
        let bytes = match segment.read(0) {
            Ok(bytes) => bytes,
            Err(error) if segment.archived => {
                report.broken.get_or_insert(BrokenRow {
                    file,
                    line: 0,
                    what: format!("it cannot be unpacked: {error}"),
                });
                return Ok(());
            }
            Err(error) => return Err(VerifyError::Unreadable(file, error)),
        };
        report.files += 1;
        let seen = |row: &AuditRow, progress: &VerifyProgress| {
            note(row, &file, progress, report);
            expected.retain(|(_, head)| head.rows != progress.rows || head.hmac != progress.hmac);
        };
        let end = match check(key, &mut progress, &bytes, seen) {
            Ok(end) => end,
            Err((line, flaw)) => {
                report.rows = progress.rows;
                report.broken.get_or_insert(BrokenRow { file, line, what: flaw.to_string() });
                return Ok(());
            }
        };
        report.rows = progress.rows;
        report.head = ChainHead {
            rows: progress.rows,
            hmac: progress.hmac.clone(),
            file: segment.name.clone(),
            bytes: end.bytes,
        };
        let torn = bytes.len() as u64 - end.bytes;
        if torn > 0 {
            // A row that a crash cut off comes after everything that the head counts, in the last file.
            let counted = stated.is_some_and(|head| head.file == segment.name && head.bytes > end.bytes);
            if index + 1 < segments.len() || segment.archived || counted {
                report.broken.get_or_insert(BrokenRow {
                    file,
                    line: end.lines + 1,
                    what: RowFlaw::NotARow.to_string(),
                });
                return Ok(());
            }
            report.torn.push(TornRow { file, bytes: torn, sealed: false });
        }
    }
    Ok(())
}

/// Where the complete lines of a file end.
pub(super) struct LinesEnd {
    pub lines: u64,
    pub bytes: u64,
}

/// Verifies the rows of one file; the first line that is not genuine, from 1, and what is wrong with it.
pub(super) fn check(
    key: &AuditKey,
    progress: &mut VerifyProgress,
    bytes: &[u8],
    mut seen: impl FnMut(&AuditRow, &VerifyProgress),
) -> Result<LinesEnd, (u64, RowFlaw)> {
    let (lines, torn) = chain_files::lines(bytes);
    let mut count = 0;
    for line in lines {
        count += 1;
        let row = row::read(key, &progress.hmac, line).map_err(|flaw| (count, flaw))?;
        progress.hmac.clone_from(&row.hmac);
        progress.rows += 1;
        seen(&row, progress);
    }
    Ok(LinesEnd { lines: count, bytes: (bytes.len() - torn.len()) as u64 })
}

/// Notes what the chain reports about itself.
fn note(row: &AuditRow, file: &str, progress: &VerifyProgress, report: &mut VerifyReport) {
    let number = |name: &str| row.details.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
    if row.event_type == REWOUND {
        report.cut.push(MissingRows {
            witness: format!("row {} in {file}, written {}", progress.rows, row.timestamp),
            expected_rows: number("expected_rows"),
            found_rows: number("found_rows"),
        });
    } else if row.event_type == ACKNOWLEDGED {
        // So far only rows have reported cuts: head, mark and anchor are compared at the end.
        report.acknowledged.append(&mut report.cut);
    } else if row.event_type == SEALED_TEAR {
        let of = row.details.get("file").and_then(serde_json::Value::as_str).unwrap_or(file);
        report.torn.push(TornRow { file: of.to_owned(), bytes: number("bytes"), sealed: true });
    }
}
