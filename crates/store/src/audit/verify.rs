//! Whether the chain is what was written: every row, every link, and its length.
//!
//! Three kinds of finding: a row that is not genuine, with its file and line; a chain that ends before
//! its head, or a seal that was kept elsewhere, says it did; and what the chain itself tells of, such as
//! rows that a crash cut off.

use std::io;
use std::path::Path;

use super::chain::{ACKNOWLEDGED, REWOUND, SEALED_TEAR};
use super::head::{self, HEAD, Head, HeadError};
use super::key::Key;
use super::lock::ChainLock;
use super::row::{self, Flaw, GENESIS, Row};
use super::segment;

const SEAL: &str = "seal";

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    pub files: usize,
    pub rows: u64,
    /// The last row's place.
    pub head: Head,
    pub broken: Option<Broken>,
    pub cut: Vec<Cut>,
    /// What was cut once, and somebody said that it is known.
    pub acknowledged: Vec<Cut>,
    pub torn: Vec<Torn>,
}

/// The first row that is not genuine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub file: String,
    /// From 1; 0 for the file as a whole.
    pub line: u64,
    pub what: String,
}

/// Rows that are missing at the end, or were when the chain went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What says so: a file, or a row of the chain.
    pub witness: String,
    pub expected_rows: u64,
    pub found_rows: u64,
}

/// A row that a crash cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    pub bytes: u64,
    /// It is put aside, and the chain went on.
    pub sealed: bool,
}

/// How far a verification has come.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub hmac: String,
    pub rows: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { hmac: GENESIS.to_owned(), rows: 0 }
    }
}

impl Report {
    pub fn is_whole(&self) -> bool {
        self.broken.is_none() && self.cut.is_empty()
    }
}

/// Verifies the whole chain, against its head and, if there is one, an anchor: the text of a seal.
/// Writers wait meanwhile.
pub fn verify(folder: &Path, key: &Key, anchor: Option<&[u8]>) -> Result<Report, VerifyError> {
    // Somebody who may only read the folder verifies without holding writers up.
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
    let mut report = Report::default();
    let mut expected = Vec::new();
    if let Some(anchor) = anchor {
        let (seal, _) = head::parse(key, SEAL, anchor).map_err(VerifyError::Anchor)?;
        expected.push(("the anchor".to_owned(), seal));
    }
    let mut stated = None;
    match head::load(key, folder, HEAD) {
        Ok(Some((head, _))) => {
            stated = Some(head.clone());
            expected.push((HEAD.to_owned(), head));
        }
        Ok(None) => {}
        Err(HeadError::Io(error)) => return Err(VerifyError::Unreadable(HEAD.to_owned(), error)),
        Err(error @ HeadError::Forged) => {
            report.broken = Some(Broken { file: HEAD.to_owned(), line: 0, what: error.to_string() });
        }
    }
    match head::load_mark(key) {
        Ok(mark) => expected.extend(mark.map(|mark| ("the mark beside the key".to_owned(), mark))),
        Err(HeadError::Io(error)) => {
            return Err(VerifyError::Unreadable("the mark beside the key".to_owned(), error));
        }
        Err(error @ HeadError::Forged) => {
            let file = "the mark beside the key".to_owned();
            report.broken.get_or_insert(Broken { file, line: 0, what: error.to_string() });
        }
    }
    let has_head = stated.is_some() || report.broken.is_some();
    walk(folder, key, stated.as_ref(), &mut expected, &mut report)?;
    if !has_head {
        report.cut.push(Cut { witness: format!("no {HEAD}"), expected_rows: 0, found_rows: report.rows });
    }
    // Rows after a broken one are not counted, so nothing can be said of the chain's length.
    if report.broken.is_none() {
        for (witness, head) in expected {
            report.cut.push(Cut { witness, expected_rows: head.rows, found_rows: report.rows });
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
    #[error("the anchor cannot be used")]
    Anchor(#[source] HeadError),
}

/// The text of a seal: the chain's head, to be kept where nobody who could rewrite the chain can.
pub fn seal(key: &Key, head: &Head) -> String {
    head::text(key, SEAL, head, None)
}

/// Goes through all files. Of the `expected` places, those that the chain came through are taken out.
fn walk(
    folder: &Path,
    key: &Key,
    stated: Option<&Head>,
    expected: &mut Vec<(String, Head)>,
    report: &mut Report,
) -> Result<(), VerifyError> {
    expected.retain(|(_, head)| *head != Head::default());
    let unreadable = |error| VerifyError::Unreadable(folder.display().to_string(), error);
    let segments = segment::all(folder).map_err(unreadable)?;
    let mut progress = Progress::default();
    for (index, segment) in segments.iter().enumerate() {
        let file = segment.shown();
        let bytes = match segment.read(0) {
            Ok(bytes) => bytes,
            Err(error) if segment.archived => {
                report.broken.get_or_insert(Broken {
                    file,
                    line: 0,
                    what: format!("it cannot be unpacked: {error}"),
                });
                return Ok(());
            }
            Err(error) => return Err(VerifyError::Unreadable(file, error)),
        };
        report.files += 1;
        let seen = |row: &Row, progress: &Progress| {
            note(row, &file, progress, report);
            expected.retain(|(_, head)| head.rows != progress.rows || head.hmac != progress.hmac);
        };
        let end = match check(key, &mut progress, &bytes, seen) {
            Ok(end) => end,
            Err((line, flaw)) => {
                report.rows = progress.rows;
                report.broken.get_or_insert(Broken { file, line, what: flaw.to_string() });
                return Ok(());
            }
        };
        report.rows = progress.rows;
        report.head = Head {
            rows: progress.rows,
            hmac: progress.hmac.clone(),
            file: segment.name.clone(),
            bytes: end.bytes,
        };
        let torn = bytes.len() as u64 - end.bytes;
        if torn > 0 {
            // What a crash leaves comes after everything that the head counts, in the last file.
            let counted = stated.is_some_and(|head| head.file == segment.name && head.bytes > end.bytes);
            if index + 1 < segments.len() || segment.archived || counted {
                report.broken.get_or_insert(Broken {
                    file,
                    line: end.lines + 1,
                    what: Flaw::NotARow.to_string(),
                });
                return Ok(());
            }
            report.torn.push(Torn { file, bytes: torn, sealed: false });
        }
    }
    Ok(())
}

/// Where a file's whole lines end.
pub(super) struct End {
    pub lines: u64,
    pub bytes: u64,
}

/// Verifies the rows of one file; the first line that is not genuine, from 1, and what is wrong with it.
pub(super) fn check(
    key: &Key,
    progress: &mut Progress,
    bytes: &[u8],
    mut seen: impl FnMut(&Row, &Progress),
) -> Result<End, (u64, Flaw)> {
    let (lines, torn) = segment::lines(bytes);
    let mut count = 0;
    for line in lines {
        count += 1;
        let row = row::read(key, &progress.hmac, line).map_err(|flaw| (count, flaw))?;
        progress.hmac.clone_from(&row.hmac);
        progress.rows += 1;
        seen(&row, progress);
    }
    Ok(End { lines: count, bytes: (bytes.len() - torn.len()) as u64 })
}

/// What the chain tells of itself.
fn note(row: &Row, file: &str, progress: &Progress, report: &mut Report) {
    let number = |name: &str| row.details.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
    if row.event_type == REWOUND {
        report.cut.push(Cut {
            witness: format!("row {} in {file}, written {}", progress.rows, row.timestamp),
            expected_rows: number("expected_rows"),
            found_rows: number("found_rows"),
        });
    } else if row.event_type == ACKNOWLEDGED {
        // Up to here only rows have told of a cut: what head, mark and anchor say comes at the end.
        report.acknowledged.append(&mut report.cut);
    } else if row.event_type == SEALED_TEAR {
        let of = row.details.get("file").and_then(serde_json::Value::as_str).unwrap_or(file);
        report.torn.push(Torn { file: of.to_owned(), bytes: number("bytes"), sealed: true });
    }
}
