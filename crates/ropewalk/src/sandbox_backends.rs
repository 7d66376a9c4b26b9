//! The sandbox backends that work on this machine, as clients are told. They are probed, not guessed.

use sandbox::{FenceBackend, SandboxSupport};
use tokio::sync::OnceCell;

use crate::doctor;

/// The probed backend: the result does not change while the process runs, and the probe takes a while.
static OWN: OnceCell<Option<FenceBackend>> = OnceCell::const_new();

/// The names of the sandbox backends in use. Others that may be installed, such as bubblewrap or docker, are not used and
/// not named.
pub async fn names() -> Vec<String> {
    OWN.get_or_init(own).await.map(FenceBackend::name).into_iter().map(str::to_owned).collect()
}

async fn own() -> Option<FenceBackend> {
    let ability = doctor::ability().await.ok().filter(SandboxSupport::holds)?;
    ability.backend.ok()
}
