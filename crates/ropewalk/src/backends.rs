//! What can hold commands in on this machine, as clients are told: found by trying, not by guessing.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;

use crate::{doctor, paths};

const DOCKER_SOCKET: &str = "/var/run/docker.sock";
/// A daemon that runs takes a connection at once.
const DAEMON_WAIT: Duration = Duration::from_millis(200);

/// The names of what works, our own first.
pub async fn found() -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(ability) = doctor::ability().await
        && ability.holds()
        && let Ok(backend) = ability.backend
    {
        found.push(backend.name().to_owned());
    }
    let path = paths::variable("PATH").unwrap_or_default();
    if on_path(&path, "bwrap") {
        found.push("bwrap".to_owned());
    }
    let host = paths::variable("DOCKER_HOST");
    if on_path(&path, "docker") && docker_runs(host.as_deref()).await {
        found.push("docker".to_owned());
    }
    found
}

fn on_path(path: &OsStr, program: &str) -> bool {
    let runs = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).any(|dir| runs(&dir.join(program)))
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
