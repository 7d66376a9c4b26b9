//! Paths of files and folders. The only module that reads the environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::cli_error::CliError;
use crate::{command_environment, config};

/// A variable that is set and not empty.
pub fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    variable_even_empty(name).filter(|value| !value.is_empty())
}

/// A variable that is set, even if empty, for those where an empty value is an error to report.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment, here")]
pub fn variable_even_empty(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name)
}

/// The folder of everything that outlives the process.
pub fn state() -> Result<PathBuf, CliError> {
    if let Some(chosen) = variable("ROPEWALK_HOME") {
        return std::path::absolute(&chosen)
            .map_err(|error| CliError::failed("invalid ROPEWALK_HOME").because(error));
    }
    let kept = absolute("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state")));
    kept.map(|kept| kept.join("ropewalk")).ok_or_else(|| {
        CliError::failed("no folder to store sessions in")
            .because("HOME is not set")
            .fix("set HOME, or set ROPEWALK_HOME to a folder of your choice")
    })
}

/// The file with all sessions.
pub fn sessions() -> Result<PathBuf, CliError> {
    Ok(state()?.join("sessions.db"))
}

/// The folder for the copies of files that undo restores. Chimera's variable moves it; chimera's own files there are not
/// touched.
pub fn undo() -> Result<PathBuf, CliError> {
    match absolute("CHIMERA_SNAPSHOT_ROOT") {
        Some(root) => Ok(root.join("ropewalk")),
        None => Ok(state()?.join("undo")),
    }
}

/// The folder of cached greetings of external agents.
pub fn agents() -> Result<PathBuf, CliError> {
    Ok(state()?.join("agents"))
}

/// The file with the paired devices.
pub fn devices() -> Result<PathBuf, CliError> {
    Ok(state()?.join("devices.json"))
}

/// The file with the end-to-end keys, and the devices that have them.
pub fn sealed() -> Result<PathBuf, CliError> {
    Ok(state()?.join("sealed.json"))
}

/// The file with the Web Push key.
pub fn push_key() -> Result<PathBuf, CliError> {
    Ok(state()?.join("push.key"))
}

/// The folder of the audit's files.
pub fn audit() -> Result<PathBuf, CliError> {
    Ok(state()?.join("audit"))
}

/// Whether a variable sets the path of the audit key.
pub fn names_audit_key() -> bool {
    named_audit_key().is_some()
}

fn named_audit_key() -> Option<OsString> {
    variable("ROPEWALK_AUDIT_KEY_PATH").or_else(|| variable("BERNSTEIN_AUDIT_KEY_PATH"))
}

/// The file with the audit key. It is not in the audit folder, so that write access there is not enough to sign.
pub fn audit_key() -> Result<PathBuf, CliError> {
    match named_audit_key() {
        Some(path) => std::path::absolute(&path)
            .map_err(|error| CliError::failed("invalid path of the audit key").because(error)),
        None => Ok(state()?.join("audit.key")),
    }
}

/// The folder of the person's settings and rules.
pub fn config_folder() -> Result<PathBuf, CliError> {
    if variable("ROPEWALK_HOME").is_some() {
        return state();
    }
    let kept = absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
    kept.map(|kept| kept.join("ropewalk")).ok_or_else(|| {
        CliError::failed("no folder for settings")
            .because("HOME is not set")
            .fix("set HOME, or set ROPEWALK_HOME to a folder of your choice")
    })
}

/// Where the person's instructions and skills for the agent are.
pub fn knowledge(no_rules: bool) -> agent::KnowledgeConfig {
    let skills = home().map(|home| home.join(".agents/skills")).into_iter().collect();
    agent::KnowledgeConfig { person: config_folder().ok(), skills, no_rules }
}

/// The person's settings.
pub fn config() -> Result<PathBuf, CliError> {
    match config::named_file() {
        Some(named) => std::path::absolute(named)
            .map_err(|error| CliError::failed("invalid path after --config").because(error)),
        None => Ok(config_folder()?.join("config.toml")),
    }
}

/// The person's home folder.
pub fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// The path in a variable, if it is absolute.
fn absolute(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path as people write it in a settings file.
pub fn below_home(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}

/// Whether a variable sets the path of the person's rules.
pub fn names_rules() -> bool {
    named_rules().is_some()
}

fn named_rules() -> Option<PathBuf> {
    variable("ROPEWALK_PERMISSIONS").map(std::path::absolute).and_then(Result::ok)
}

/// The rule files: the person's own, and those of other agents, which are only read.
pub fn rules() -> Result<guard::RulePaths, CliError> {
    let named = |name| variable(name).map(std::path::absolute).and_then(Result::ok);
    let user = match named_rules() {
        Some(file) => file,
        None => config_folder()?.join("permissions.toml"),
    };
    let home = home();
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    // Unreadable settings are reported elsewhere, by every command that works with sessions.
    let in_settings = || config::user().ok()?.acp.permission_file;
    let zeph = named("ZEPH_ACP_PERMISSION_FILE")
        .or_else(in_settings)
        .or_else(|| Some(folder.as_ref()?.join("zeph/acp-permissions.toml")));
    let chimera_file =
        named("CHIMERA_PERMISSIONS_FILE").or_else(|| chimera().map(|folder| folder.join("permissions.json")));
    Ok(guard::RulePaths { user, zeph, chimera: chimera_file, home })
}

/// The folder of chimera's programs.
pub fn chimera() -> Option<PathBuf> {
    let named = variable("CHIMERA_HOME").map(std::path::absolute).and_then(Result::ok);
    named.or_else(|| Some(home()?.join(".chimera")))
}

/// Every variable whose name and value are UTF-8. Files in a workspace, such as `.env`, are never read.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The environment of a browser that we open.
pub fn for_browser() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| command_environment::is_for_browser(name)).collect()
}

/// The environment of an external agent: harmless variables, those passed on, and those set.
pub fn for_agent(pass: &[String], set: &[(String, String)]) -> Vec<(OsString, OsString)> {
    external::environment(std::env::vars_os(), pass, set)
}

/// The environment of the commands that the agent runs, including these names.
pub fn passed_on(more: &[String]) -> Vec<(OsString, OsString)> {
    command_environment::for_commands(std::env::vars_os(), more)
}
