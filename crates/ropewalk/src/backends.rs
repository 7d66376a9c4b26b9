//! What can hold commands in on this machine, as clients are told: found by trying, not by guessing.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use sandbox::{Ability, Backend};
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

use crate::external::on_path;
use crate::{doctor, paths};

const DOCKER_SOCKET: &str = "/var/run/docker.sock";
/// A daemon that runs takes a connection at once.
const DAEMON_WAIT: Duration = Duration::from_millis(200);

/// Whether our own fence holds: that does not change while the process runs, and trying it takes a while.
static OWN: OnceCell<Option<Backend>> = OnceCell::const_new();

/// The names of what works, our own first.
pub async fn names() -> Vec<String> {
    let own = OWN.get_or_init(own).await.map(Backend::name);
    let path = paths::variable("PATH").unwrap_or_default();
    let bwrap = on_path(&path, "bwrap").is_some().then_some("bwrap");
    let host = paths::variable("DOCKER_HOST");
    let docker = on_path(&path, "docker").is_some() && docker_runs(host.as_deref()).await;
    [own, bwrap, docker.then_some("docker")].into_iter().flatten().map(str::to_owned).collect()
}

async fn own() -> Option<Backend> {
    let ability = doctor::ability().await.ok().filter(Ability::holds)?;
    ability.backend.ok()
}

/// The program alone does nothing: its daemon must answer. One on another machine fences nothing here.
async fn docker_runs(host: Option<&OsStr>) -> bool {
    let socket = match host.map(OsStr::to_str) {
        None => Some(PathBuf::from(DOCKER_SOCKET)),
        Some(host) => host.and_then(|host| host.strip_prefix("unix://")).map(PathBuf::from),
    };
    let Some(socket) = socket else { return false };
    matches!(tokio::time::timeout(DAEMON_WAIT, UnixStream::connect(socket)).await, Ok(Ok(_)))
}
