//! Options that choose the session store, and those of `doctor`, `backup`, `restore` and `sessions salvage`.

use std::path::PathBuf;

use clap::Args;

/// Options that choose the session store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StoreOptions {
    /// Session store: sqlite (a file on this machine), postgres (address in ROPEWALK_STORE_URL), or an address
    /// without a password: postgres://USER@HOST/NAME
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,

    /// File with the address of the PostgreSQL session store
    #[arg(long, value_name = "FILE")]
    pub store_file: Option<PathBuf>,
}

/// The same options, accepted before and after a subcommand.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalStoreOptions {
    /// Session store: sqlite, postgres or postgres://USER@HOST/NAME; see `ropewalk serve --help`
    // The id differs from that of the `serve` option, which is accepted before every command: clap would confuse the two.
    #[arg(id = "sessions_store", long = "store", value_name = "STORE", global = true)]
    store: Option<String>,

    /// File with the address of the PostgreSQL session store
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
    /// Check only the stored data for damage
    #[arg(long)]
    pub store: bool,

    /// Read every event, all stored content and the whole audit log; takes longer
    #[arg(long, requires = "store")]
    pub deep: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct BackupOptions {
    /// File to write the backup to; readable only by you
    pub file: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RestoreOptions {
    /// Backup file from `ropewalk backup`
    pub file: PathBuf,

    /// Restore into this folder instead, for use as ROPEWALK_HOME
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,

    /// Restore even if there are sessions already; they are moved aside into a dated folder
    #[arg(long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct SalvageOptions {
    /// Damaged file (default: your session store). It is only read
    pub file: Option<PathBuf>,

    /// New file (default: next to the damaged one)
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
