//! The environment of commands that the agent runs: what they need, without credentials or anything that changes how a
//! program starts.

use std::ffi::OsString;

use guard::is_secret_name;

/// Passed on unchanged. Everything else is removed.
const PASSED_ON: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "COLORTERM",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "EDITOR",
    "LANGUAGE",
];

/// Never passed on, even if configured: they load code into programs, change what commands mean, or give access to
/// agents, buses and displays outside the sandbox.
const WITHHELD: [&str; 36] = [
    "BASHOPTS",
    "BASH_ENV",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CDPATH",
    "DISPLAY",
    "ENV",
    "GPG_AGENT_INFO",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC_WRAPPER",
    "SHELLOPTS",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
    "TMUX",
];
const WITHHELD_PREFIXES: [&str; 7] =
    ["LD_", "DYLD_", "GIT_", "DBUS_", "BASH_FUNC_", "ROPEWALK_", "XDG_SESSION_"];

/// Set for every command: nobody is at a terminal to answer prompts or use a pager. The system's git config stays: it may
/// set the user and the proxies.
const SET: [(&str, &str); 4] =
    [("GIT_TERMINAL_PROMPT", "0"), ("GIT_PAGER", "cat"), ("PAGER", "cat"), ("TERM", "dumb")];

/// Whether a variable is passed on to a browser: not secrets, and nothing that loads code.
pub fn is_for_browser(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| {
        !is_secret_name(name) && !["LD_", "DYLD_", "ROPEWALK_"].iter().any(|prefix| name.starts_with(prefix))
    })
}

/// The environment of commands. `more` are further names that the user wants to pass on.
pub fn for_commands(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
) -> Vec<(OsString, OsString)> {
    let is_set = |name: &str| SET.iter().any(|(set, _)| *set == name);
    let is_passed_on = |name: &str| {
        let wanted =
            PASSED_ON.contains(&name) || name.starts_with("LC_") || more.iter().any(|more| more == name);
        wanted && !is_withheld(name) && !is_set(name)
    };
    variables
        .into_iter()
        .filter(|(name, value)| !value.is_empty() && name.to_str().is_some_and(is_passed_on))
        .chain(SET.iter().map(|(name, value)| (name.into(), value.into())))
        .collect()
}

fn is_withheld(name: &str) -> bool {
    WITHHELD.contains(&name)
        || WITHHELD_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || is_secret_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[&str], more: &[&str]) -> Vec<String> {
        let variables = variables.iter().map(|name| ((*name).into(), "x".into()));
        let more: Vec<_> = more.iter().map(|name| (*name).to_owned()).collect();
        let passed = for_commands(variables, &more).into_iter();
        passed
            .map(|(name, _)| name.into_string().unwrap())
            .filter(|name| !SET.iter().any(|(set, _)| set == name))
            .collect()
    }

    #[test]
    fn commands_see_what_they_need() {
        assert_eq!(names(&["PATH", "HOME", "LC_TIME", "OTHER", "TERM"], &[]), ["PATH", "HOME", "LC_TIME"]);
        assert_eq!(names(&["JAVA_HOME", "OTHER"], &["JAVA_HOME"]), ["JAVA_HOME"]);
        let set = for_commands(
            [("TERM".into(), "xterm".into()), ("PAGER".into(), "less".into())],
            &["PAGER".into()],
        );
        assert_eq!(set, SET.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn what_opens_doors_or_loads_code_is_withheld_even_if_it_is_asked_for() {
        let dangerous = [
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "GIT_SSH_COMMAND",
            "GIT_DIR",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "BASH_ENV",
            "ENV",
            "PERL5OPT",
            "RUBYOPT",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "SSH_AUTH_SOCK",
            "DISPLAY",
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "DB_PASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "ROPEWALK_HOME",
            "LC_SECRET",
        ];
        assert!(names(&dangerous, &dangerous).is_empty(), "{:?}", names(&dangerous, &dangerous));
    }
}
