//! Where sessions are kept: one engine per module, all held to the same conformance suite.

pub mod audit;
mod lock_holder;
mod regular;
pub mod sql;
pub mod sqlite;

pub use lock_holder::flock_holders;
pub use regular::{is_there, open_regular, read_regular};
pub use sqlite::{
    BackupFile, BackupReport, Depth, Examined, Options, Salvaged, SqliteStore, back_up, examine, is_in_use,
    last_positions, restore_backup, salvage, verify_backup,
};

/// The kinds of a session's set-up, as a list in SQL.
fn quoted_setup_kinds() -> String {
    wire::record::SETUP_KINDS.map(|kind| format!("'{kind}'")).join(", ")
}
