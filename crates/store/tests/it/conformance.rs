//! The SQLite store keeps the promises that every store makes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use engine::Store;
use store::{Options, SqliteStore};

fn fresh() -> (Arc<dyn Store>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("state/sessions.db"), Options::default());
    (Arc::new(store), directory)
}

testkit::store_suite!(fresh());
