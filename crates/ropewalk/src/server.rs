//! The one place where a server is put together, the same for every command and every door.

use std::sync::Arc;

use agent::{Agent, AgentConfig};
use engine::{Limits, Registry, RegistryParts};
use store::SqliteStore;

use crate::clock::SystemClock;
use crate::paths;

/// `warm` for servers, whose first session should not wait for the disk.
pub fn registry(limits: Limits, warm: bool) -> Arc<Registry> {
    let mut config = AgentConfig::offline();
    config.environment = paths::passed_on();
    Registry::new(RegistryParts {
        store: Arc::new(SqliteStore::open(
            paths::sessions(),
            store::Options { warm, ..store::Options::default() },
        )),
        backend: Arc::new(Agent::new(config)),
        clock: Arc::new(SystemClock),
        limits,
    })
}
