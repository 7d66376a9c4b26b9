//! The one place where a server is put together, the same for every command and every door.

use std::sync::Arc;

use agent::{Agent, AgentConfig};
use engine::{Limits, Registry, RegistryParts};
use store::SqliteStore;

use crate::clock::SystemClock;
use crate::guards::Guards;
use crate::trouble::Trouble;
use crate::{paths, secrets};

/// `warm` for servers, whose first session should not wait for the disk.
pub fn registry(limits: Limits, warm: bool, guards: &Guards) -> Result<Arc<Registry>, Trouble> {
    let mut config = AgentConfig::offline();
    config.environment = paths::passed_on(&guards.config.environment);
    config.reach = guards.reach.clone();
    let options = store::Options { warm, ..store::Options::default() };
    let store = Arc::new(SqliteStore::open(paths::sessions()?, options));
    let parts = RegistryParts::new(store, Arc::new(Agent::new(config)), Arc::new(SystemClock));
    Ok(Registry::new(RegistryParts {
        limits,
        approval: guards.approval.clone(),
        redactor: Some(secrets::redactor()?),
        ..parts
    }))
}
