//! `ropewalk audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::sessions::PastTime;

#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Show the latest rows
    Show(AuditShowOptions),
    /// Verify that no row was changed or removed
    Verify(AuditVerifyOptions),
    /// Search rows
    Query(AuditQueryOptions),
    /// Record why rows are missing, so that verify accepts the rest
    #[command(alias = "ack")]
    Acknowledge(AuditAcknowledgeOptions),
    /// Write a seal of the current end of the log, to keep on another machine
    Seal(AuditSealOptions),
    /// Export all rows to a file
    Export(AuditExportOptions),
    /// Compress old files; they can still be read and verified
    Archive(AuditArchiveOptions),
}

#[derive(Debug, Clone, Args)]
pub struct AuditShowOptions {
    /// Maximum number to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 intact, 1 a row was changed or cannot be read, 2 rows are missing at the end, 3 the key is missing or readable by others."
)]
pub struct AuditVerifyOptions {
    /// Seal from `ropewalk audit seal`: the log must still reach at least that far
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The gap and this reason stay in the log; verify shows both as notes and exits with 0.\nA changed row cannot be acknowledged."
)]
pub struct AuditAcknowledgeOptions {
    /// Why rows are missing, e.g. \"restored from Monday's backup\"
    #[arg(value_name = "REASON")]
    pub reason: String,
}

#[derive(Debug, Clone, Args)]
pub struct AuditQueryOptions {
    /// Only rows about this session; a prefix of its id is enough
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,

    /// Only rows of this type; `session.` or `acp.` matches all types with that prefix
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Only rows since: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = PastTime::parse)]
    pub since: Option<PastTime>,

    /// Only rows by this actor or client
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AuditSealOptions {
    /// File to write to (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct AuditExportOptions {
    /// jsonl: the rows as stored; csv: a table
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = AuditFormat::Jsonl)]
    pub format: AuditFormat,

    /// File to write to (default: standard output)
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
    /// Number of days to leave uncompressed
    #[arg(long, value_name = "DAYS", default_value_t = store::audit::RETENTION_DAYS)]
    pub retention: u32,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
