//! The store that forgets keeps the same promises as the others, while it lasts.

use std::sync::Arc;

use engine::{MemoryStore, Store};

testkit::store_suite!((Arc::new(MemoryStore::default()) as Arc<dyn Store>, ()));
