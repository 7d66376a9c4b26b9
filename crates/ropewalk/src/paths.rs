//! Where things are, and the only place that reads the environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::trouble::Trouble;
use crate::{config, environment};

/// A variable that is set and not empty.
pub fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    variable_even_empty(name).filter(|value| !value.is_empty())
}

/// A variable that is set, for those where an empty one is a mistake to be told of.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment, here")]
pub fn variable_even_empty(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name)
}

/// The folder of everything that outlives the process.
pub fn state() -> Result<PathBuf, Trouble> {
    if let Some(chosen) = variable("ROPEWALK_HOME") {
        return std::path::absolute(&chosen)
            .map_err(|error| Trouble::failed("ROPEWALK_HOME cannot be used").because(error));
    }
    let kept = absolute("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state")));
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

/// The folder of files as they were before a turn changed them. Chimera's variable moves it; what chimera itself keeps
/// there is left alone.
pub fn undo() -> Result<PathBuf, Trouble> {
    match absolute("CHIMERA_SNAPSHOT_ROOT") {
        Some(root) => Ok(root.join("ropewalk")),
        None => Ok(state()?.join("undo")),
    }
}

/// The folder of what agents of other programs said of themselves.
pub fn agents() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("agents"))
}

/// The file with the devices that may come in.
pub fn devices() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("devices.json"))
}

/// The file with the keys for what is sealed, and the devices that have them.
pub fn sealed() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("sealed.json"))
}

/// The file with the key for pushes.
pub fn push_key() -> Result<PathBuf, Trouble> {
    Ok(state()?.join("push.key"))
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

/// The folder of what the person wrote: settings and rules.
pub fn config_folder() -> Result<PathBuf, Trouble> {
    if variable("ROPEWALK_HOME").is_some() {
        return state();
    }
    let kept = absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
    kept.map(|kept| kept.join("ropewalk")).ok_or_else(|| {
        Trouble::failed("there is no folder for settings")
            .because("HOME is not set")
            .fix("set HOME, or ROPEWALK_HOME to a folder of your choice")
    })
}

/// Where the person keeps what they wrote for the agent.
pub fn knowledge(no_rules: bool) -> agent::KnowledgeConfig {
    let skills = home().map(|home| home.join(".agents/skills")).into_iter().collect();
    agent::KnowledgeConfig { person: config_folder().ok(), skills, no_rules }
}

/// The person's settings.
pub fn config() -> Result<PathBuf, Trouble> {
    match config::named_file() {
        Some(named) => std::path::absolute(named)
            .map_err(|error| Trouble::failed("the file after --config cannot be used").because(error)),
        None => Ok(config_folder()?.join("config.toml")),
    }
}

/// The person's home folder.
pub fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// The folder or file that a variable names, if it does so from the root on.
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

/// Whether somebody chose where the person's own rules are.
pub fn names_rules() -> bool {
    named_rules().is_some()
}

fn named_rules() -> Option<PathBuf> {
    variable("ROPEWALK_PERMISSIONS").map(std::path::absolute).and_then(Result::ok)
}

/// The files of rules: the person's own, and those of other agents, which are only read.
pub fn rules() -> Result<guard::RulePaths, Trouble> {
    let named = |name| variable(name).map(std::path::absolute).and_then(Result::ok);
    let user = match named_rules() {
        Some(file) => file,
        None => config_folder()?.join("permissions.toml"),
    };
    let home = home();
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    // Settings that cannot be read end every command that works with sessions; this one need not say it too.
    let in_settings = || config::user().ok()?.acp.permission_file;
    let zeph = named("ZEPH_ACP_PERMISSION_FILE")
        .or_else(in_settings)
        .or_else(|| Some(folder.as_ref()?.join("zeph/acp-permissions.toml")));
    let chimera_file =
        named("CHIMERA_PERMISSIONS_FILE").or_else(|| chimera().map(|folder| folder.join("permissions.json")));
    Ok(guard::RulePaths { user, zeph, chimera: chimera_file, home })
}

/// Where chimera's programs keep what is theirs.
pub fn chimera() -> Option<PathBuf> {
    let named = variable("CHIMERA_HOME").map(std::path::absolute).and_then(Result::ok);
    named.or_else(|| Some(home()?.join(".chimera")))
}

/// Every variable whose name and value are text. Nothing in a workspace adds to them: files such as
/// `.env` are never read.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The environment of a browser that we open: what it needs to find the screen and the person's things.
pub fn for_browser() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| environment::is_for_browser(name)).collect()
}

/// The environment of an agent that is another program: what is plain, what is to be passed on, what is set.
pub fn for_agent(pass: &[String], set: &[(String, String)]) -> Vec<(OsString, OsString)> {
    external::environment(std::env::vars_os(), pass, set)
}

/// The environment of the commands that the agent runs, with these names besides the usual ones.
pub fn passed_on(more: &[String]) -> Vec<(OsString, OsString)> {
    environment::for_commands(std::env::vars_os(), more)
}
