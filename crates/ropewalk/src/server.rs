//! The one place where a server is put together, the same for every command and every door.

use std::sync::Arc;

use agent::{Agent, AgentConfig};
use engine::{Limits, Registry, RegistryParts};
use store::SqliteStore;

use crate::clock::SystemClock;
use crate::paths;

pub fn registry(limits: Limits) -> Arc<Registry> {
    let mut config = AgentConfig::offline();
    config.environment = paths::passed_on();
    Registry::new(RegistryParts {
        store: Arc::new(SqliteStore::open(paths::sessions(), store::Options::default())),
        backend: Arc::new(Agent::new(config)),
        clock: Arc::new(SystemClock),
        limits,
    })
}
