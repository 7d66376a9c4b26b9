//! Reading the chain without verifying it: for `show`, `query` and `export`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use engine::Timestamp;

use super::archive as packing;
use super::chain_files;
use super::chain_writer::SESSION;
use super::lock::ChainLock;
use super::row::AuditRow;

/// A line of the chain, with its file and line number.
#[derive(Debug, Clone)]
pub struct ChainLine {
    pub file: String,
    /// From 1.
    pub line: u64,
    pub text: Vec<u8>,
    /// None if the line is no row.
    pub row: Option<AuditRow>,
}

/// Hands every whole line to `each`, oldest first, until it has enough.
pub fn rows(folder: &Path, mut each: impl FnMut(ChainLine) -> bool) -> io::Result<()> {
    for segment in chain_files::all(folder)? {
        let bytes = segment.read(0)?;
        let (lines, _) = chain_files::lines(&bytes);
        for (number, line) in (1..).zip(lines) {
            let row = AuditRow::parse(line);
            if !each(ChainLine { file: segment.display_name(), line: number, text: line.to_vec(), row }) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The last position of each session that the chain has a row about.
pub fn last_positions(folder: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut positions = BTreeMap::new();
    rows(folder, |placed| {
        if let Some(row) = placed.row.filter(|row| row.resource_type == SESSION)
            && let Some(seq) = row.seq()
        {
            let last: &mut u64 = positions.entry(row.resource_id).or_default();
            *last = seq.max(*last);
        }
        true
    })?;
    Ok(positions)
}

/// Compresses the files of days that are longer ago than this; says which.
pub fn archive(folder: &Path, now: Timestamp, retention_days: u32) -> io::Result<Vec<String>> {
    let mut lock = ChainLock::open(folder)?;
    lock.exclusive()?;
    let newest = chain_files::all(folder)?.last().map(|segment| segment.name.clone()).unwrap_or_default();
    packing::archive(folder, &newest, now, retention_days)
}
