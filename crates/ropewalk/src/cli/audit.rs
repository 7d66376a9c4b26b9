//! `ropewalk audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::sessions::Since;

#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Show the latest rows
    Show(AuditShowOptions),
    /// Check that nothing was changed, removed or cut off
    Verify(AuditVerifyOptions),
    /// Find rows
    Query(AuditQueryOptions),
    /// Say that it is known why rows are missing, so that verify is content with the rest
    #[command(alias = "ack")]
    Acknowledge(AuditAcknowledgeOptions),
    /// Write down how far the record goes, to be kept where nobody here can change it
    Seal(AuditSealOptions),
    /// Write all rows to a file
    Export(AuditExportOptions),
    /// Compress the files of days long ago; they can still be read and verified
    Archive(AuditArchiveOptions),
}

#[derive(Debug, Clone, Args)]
pub struct AuditShowOptions {
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 whole, 1 a row was changed or cannot be read, 2 rows are missing at the end, 3 the key is missing or others may read it."
)]
pub struct AuditVerifyOptions {
    /// A seal that was kept elsewhere: the record must still go at least that far
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "What was cut stays in the record, and so does this; verify shows both as notes and ends with 0.\nA row that was changed cannot be acknowledged."
)]
pub struct AuditAcknowledgeOptions {
    /// Why the rows are missing, as in \"restored from the backup of Monday\"
    #[arg(value_name = "REASON")]
    pub reason: String,
}

#[derive(Debug, Clone, Args)]
pub struct AuditQueryOptions {
    /// Only rows about this session; the beginning of its id is enough
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,

    /// Only rows of this type; `session.` or `acp.` takes all that begin so
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Only what happened since then: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = Since::parse)]
    pub since: Option<Since>,

    /// Only what this actor or client did
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AuditSealOptions {
    /// Where to write; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct AuditExportOptions {
    /// jsonl: the rows as they are; csv: a table
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = AuditFormat::Jsonl)]
    pub format: AuditFormat,

    /// Where to write; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    Jsonl,
    Csv,
}

#[derive(Debug, Clone, Args)]
pub struct AuditArchiveOptions {
    /// Days that stay uncompressed
    #[arg(long, value_name = "DAYS", default_value_t = store::audit::RETENTION_DAYS)]
    pub retention: u32,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
