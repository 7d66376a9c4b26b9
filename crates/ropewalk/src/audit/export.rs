//! `audit export`: all rows in one file.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use store::audit::Row;

use super::unreadable;
use crate::cli::{AuditExportOptions, AuditFormat};
use crate::sessions::export::{Target, unwritable};
use crate::trouble::Trouble;
use crate::{paths, terminal};

const COLUMNS: &str = "timestamp,event_type,actor,resource_type,resource_id,details,prev_hmac,hmac\r\n";

/// Rows are written together up to this size.
const PIECE_BYTES: usize = 64 << 10;

pub fn run(options: &AuditExportOptions) -> Result<ExitCode, Trouble> {
    let folder = paths::audit()?;
    let mut out = Out::open(options.output.as_deref())?;
    if options.format == AuditFormat::Csv {
        out.pending.extend_from_slice(COLUMNS.as_bytes());
    }
    let (mut count, mut written) = (0, Ok(()));
    let read = store::audit::rows(&folder, |placed| {
        count += 1;
        match (options.format, &placed.row) {
            (AuditFormat::Csv, Some(row)) => out.pending.extend_from_slice(csv(row).as_bytes()),
            // What is no row has no columns; the lines as they are keep it.
            (AuditFormat::Csv, None) => {}
            (AuditFormat::Jsonl, _) => {
                out.pending.extend_from_slice(&placed.text);
                out.pending.push(b'\n');
            }
        }
        if out.pending.len() >= PIECE_BYTES {
            written = out.write();
        }
        written.is_ok()
    });
    read.map_err(unreadable)?;
    written.and_then(|()| out.finish())?;
    if let Some(path) = &options.output {
        terminal::say(&format!("wrote {count} rows to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the rows go while they are read: they are never all in memory.
struct Out<'a> {
    target: Option<(&'a Path, Target)>,
    pending: Vec<u8>,
}

impl<'a> Out<'a> {
    fn open(path: Option<&'a Path>) -> Result<Self, Trouble> {
        let open = |path| Target::open(path).map(|target| (path, target)).map_err(|e| unwritable(path, e));
        Ok(Self { target: path.map(open).transpose()?, pending: Vec::new() })
    }

    fn write(&mut self) -> Result<(), Trouble> {
        let piece = std::mem::take(&mut self.pending);
        match &mut self.target {
            Some((path, target)) => target.write(&piece).map_err(|error| unwritable(path, error)),
            None => terminal::put_bytes(&piece),
        }
    }

    fn finish(mut self) -> Result<(), Trouble> {
        self.write()?;
        match self.target {
            Some((path, target)) => target.finish(path).map_err(|error| unwritable(path, error)),
            None => Ok(()),
        }
    }
}

fn csv(row: &Row) -> String {
    let details = Value::Object(row.details.clone()).to_string();
    let cells = [
        &row.timestamp,
        &row.event_type,
        &row.actor,
        &row.resource_type,
        &row.resource_id,
        &details,
        &row.prev_hmac,
        &row.hmac,
    ];
    format!("{}\r\n", cells.map(|cell| quoted(cell)).join(","))
}

/// A cell that no table program takes for a formula: clients choose their names themselves.
fn quoted(cell: &str) -> String {
    let guard = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", cell.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_cell_and_no_formula() {
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
