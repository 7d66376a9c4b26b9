//! The stores for sessions, one module per engine. All pass the same conformance suite. Also here: the audit and the hub's database.

pub mod audit;
mod lock_holder;
mod regular_file;
pub mod sql;
pub mod sqlite;

pub use lock_holder::flock_holders;
pub use regular_file::{is_there, open_regular, read_regular};
pub use sqlite::{
    BackupFile, BackupReport, ExamineDepth, ExamineReport, Options, SalvagedSession, SqliteStore, back_up,
    examine, is_in_use, last_positions, restore_backup, salvage, verify_backup,
};

/// The kinds of a session's set-up, as a list in SQL.
fn quoted_setup_kinds() -> String {
    wire::record::SETUP_KINDS.map(|kind| format!("'{kind}'")).join(", ")
}
