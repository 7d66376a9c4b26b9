//! `audit export`: all rows in one file.

use std::process::ExitCode;

use serde_json::Value;
use store::audit::Row;

use super::unreadable;
use crate::cli::{AuditExportOptions, AuditFormat};
use crate::sessions::export::write_file;
use crate::trouble::Trouble;
use crate::{paths, terminal};

const COLUMNS: &str = "timestamp,event_type,actor,resource_type,resource_id,details,prev_hmac,hmac\r\n";

pub fn run(options: &AuditExportOptions) -> Result<ExitCode, Trouble> {
    let folder = paths::audit()?;
    let mut out = Vec::new();
    if options.format == AuditFormat::Csv {
        out.extend_from_slice(COLUMNS.as_bytes());
    }
    let mut count = 0;
    let read = store::audit::rows(&folder, |placed| {
        count += 1;
        match (options.format, &placed.row) {
            (AuditFormat::Csv, Some(row)) => out.extend_from_slice(csv(row).as_bytes()),
            // What is no row has no columns; the lines as they are keep it.
            (AuditFormat::Csv, None) => {}
            (AuditFormat::Jsonl, _) => {
                out.extend_from_slice(&placed.text);
                out.push(b'\n');
            }
        }
        true
    });
    read.map_err(unreadable)?;
    let Some(path) = &options.output else {
        terminal::put_bytes(&out)?;
        return Ok(ExitCode::SUCCESS);
    };
    write_file(path, &out)
        .map_err(|error| Trouble::failed(format!("{} cannot be written", path.display())).because(error))?;
    terminal::say(&format!("wrote {count} rows to {}", path.display()));
    Ok(ExitCode::SUCCESS)
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
