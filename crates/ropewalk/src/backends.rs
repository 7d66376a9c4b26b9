//! What can hold commands in on this machine, as clients are told: found by trying, not by guessing.

use sandbox::{Ability, Backend};
use tokio::sync::OnceCell;

use crate::doctor;

/// Whether our own fence holds: that does not change while the process runs, and trying it takes a while.
static OWN: OnceCell<Option<Backend>> = OnceCell::const_new();

/// The names of what commands are held in here. Other programs that could do that, bubblewrap or docker, are not used,
/// whether they are installed or not, so they are not named.
pub async fn names() -> Vec<String> {
    OWN.get_or_init(own).await.map(Backend::name).into_iter().map(str::to_owned).collect()
}

async fn own() -> Option<Backend> {
    let ability = doctor::ability().await.ok().filter(Ability::holds)?;
    ability.backend.ok()
}
