//! `audit export`: all rows in one file.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use store::audit::AuditRow;

use super::unreadable;
use crate::cli::{AuditExportOptions, AuditFormat};
use crate::cli_error::CliError;
use crate::sessions::export::{OutputFile, unwritable};
use crate::{output, paths};

const COLUMNS: &str = "timestamp,event_type,actor,resource_type,resource_id,details,prev_hmac,hmac\r\n";

/// The size of write batches.
const PIECE_BYTES: usize = 64 << 10;

pub fn run(options: &AuditExportOptions) -> Result<ExitCode, CliError> {
    let folder = paths::audit()?;
    let mut out = RowOutput::open(options.output.as_deref())?;
    if options.format == AuditFormat::Csv {
        out.pending.extend_from_slice(COLUMNS.as_bytes());
    }
    let (mut count, mut written) = (0, Ok(()));
    let read = store::audit::rows(&folder, |placed| {
        count += 1;
        match (options.format, &placed.row) {
            (AuditFormat::Csv, Some(row)) => out.pending.extend_from_slice(csv(row).as_bytes()),
            // A line that is not a row has no columns; jsonl keeps it.
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
        output::say(&format!("wrote {count} rows to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The output, written while rows are read: they are never all in memory.
struct RowOutput<'a> {
    target: Option<(&'a Path, OutputFile)>,
    pending: Vec<u8>,
}

impl<'a> RowOutput<'a> {
    fn open(path: Option<&'a Path>) -> Result<Self, CliError> {
        let open =
            |path| OutputFile::open(path).map(|target| (path, target)).map_err(|e| unwritable(path, e));
        Ok(Self { target: path.map(open).transpose()?, pending: Vec::new() })
    }

    fn write(&mut self) -> Result<(), CliError> {
        let piece = std::mem::take(&mut self.pending);
        match &mut self.target {
            Some((path, target)) => target.write(&piece).map_err(|error| unwritable(path, error)),
            None => output::put_bytes(&piece),
        }
    }

    fn finish(mut self) -> Result<(), CliError> {
        self.write()?;
        match self.target {
            Some((path, target)) => target.finish(path).map_err(|error| unwritable(path, error)),
            None => Ok(()),
        }
    }
}

fn csv(row: &AuditRow) -> String {
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

/// Quotes a cell so that no spreadsheet takes it for a formula: clients choose their own names.
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
