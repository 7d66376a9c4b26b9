//! Options of the commands that keep and save what is stored.

use std::path::PathBuf;

use clap::Args;

/// Which store keeps the sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StoreOptions {
    /// Where sessions are kept: sqlite (a file of this machine), or postgres, with the address in the variable
    /// ROPEWALK_STORE_URL, or written out if it has no password: postgres://USER@HOST/NAME
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,

    /// A file with the address of a PostgreSQL that keeps the sessions
    #[arg(long, value_name = "FILE")]
    pub store_file: Option<PathBuf>,
}

/// The same before and after a subcommand.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalStoreOptions {
    /// Where sessions are kept: sqlite, postgres or postgres://USER@HOST/NAME; see `ropewalk serve --help`
    // Under another name than the option of `serve` that may stand before every command: clap would take one for the other.
    #[arg(id = "sessions_store", long = "store", value_name = "STORE", global = true)]
    store: Option<String>,

    /// A file with the address of a PostgreSQL that keeps the sessions
    #[arg(id = "sessions_store_file", long = "store-file", value_name = "FILE", global = true)]
    store_file: Option<PathBuf>,
}

impl From<GlobalStoreOptions> for StoreOptions {
    fn from(options: GlobalStoreOptions) -> Self {
        Self { store: options.store, store_file: options.store_file }
    }
}

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
