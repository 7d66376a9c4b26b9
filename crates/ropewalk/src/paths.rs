//! Where things are, and the only place that reads the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::trouble::Trouble;

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
fn state() -> Result<PathBuf, Trouble> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(chosen) = variable("ROPEWALK_HOME") {
        return std::path::absolute(&chosen)
            .map_err(|error| Trouble::failed("ROPEWALK_HOME cannot be used").because(error));
    }
    let kept = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    kept.map(|kept| kept.join("ropewalk")).ok_or_else(|| {
        Trouble::failed("there is no folder to keep sessions in")
            .because("HOME is not set")
            .fix("set HOME, or ROPEWALK_HOME to a folder of your choice")
    })
}

/// The file with all sessions.
pub fn sessions() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("sessions.db"))
}

/// The folder of the audit's files.
pub fn audit() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("audit"))
}

/// Whether somebody chose where the audit's key is.
pub fn names_audit_key() -> bool {
    named_audit_key().is_some()
}

fn named_audit_key() -> Option<OsString> {
    variable("ROPEWALK_AUDIT_KEY_PATH").or_else(|| variable("BERNSTEIN_AUDIT_KEY_PATH"))
}

/// The file with the audit's key: not in that folder, so that whoever may write there cannot sign.
pub fn audit_key() -> Result<PathBuf, Trouble> {
    match named_audit_key() {
        Some(path) => std::path::absolute(&path)
            .map_err(|error| Trouble::failed("the audit key's path cannot be used").because(error)),
        None => Ok(state()?.join("audit.key")),
    }
}

pub fn passed_on() -> Vec<(OsString, OsString)> {
    PASSED_ON.iter().filter_map(|name| variable(name).map(|value| (OsString::from(name), value))).collect()
}
