//! Where things are, and the only place that reads the environment.

use std::ffi::OsString;
use std::path::PathBuf;

/// Variables that commands run by the agent may see. Everything else stays here, above all keys.
const PASSED_ON: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "EDITOR",
];

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment, here")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of everything that outlives the process.
pub fn state() -> PathBuf {
    let home = || PathBuf::from(variable("HOME").unwrap_or_else(|| ".".into()));
    let xdg = || variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    variable("ROPEWALK_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| xdg().unwrap_or_else(|| home().join(".local/state")).join("ropewalk"))
}

/// The file with all sessions.
pub fn sessions() -> PathBuf {
    state().join("sessions.db")
}

pub fn passed_on() -> Vec<(OsString, OsString)> {
    PASSED_ON.iter().filter_map(|name| variable(name).map(|value| (OsString::from(name), value))).collect()
}
