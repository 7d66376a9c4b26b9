//! Options of the commands that keep and save what is stored.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Args)]
pub struct DoctorOptions {
    /// Look for damage in what is stored, and at nothing else
    #[arg(long)]
    pub store: bool,

    /// Read every event, every stored content and the whole audit; takes longer
    #[arg(long, requires = "store")]
    pub deep: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct BackupOptions {
    /// Where to write the backup: one file, for you only
    pub file: PathBuf,

    /// Replace a file of that name
    #[arg(long)]
    pub force: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RestoreOptions {
    /// A file that was written by `ropewalk backup`
    pub file: PathBuf,

    /// Restore everything into this folder instead, for use with ROPEWALK_HOME
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,

    /// Also where there are sessions already; they are kept beside, in a folder named after the date
    #[arg(long)]
    pub force: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct SalvageOptions {
    /// The damaged file; without it, the one with your sessions. It is only read
    pub file: Option<PathBuf>,

    /// The new file; without it, beside the damaged one
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
