//! Checks of what else affects the sandbox: trusted servers, the project's own settings, and the editor's terminal.

use guard::Rulebook;

use super::Finding;
use crate::{config, guard_settings, paths, run};

/// Whether the file of trusted servers can be read. Without it, the owner is asked again.
pub(super) fn trusted_servers() -> Finding {
    let look = || {
        let (servers, warnings) = Rulebook::new(paths::rules()?).trusted();
        Ok(match warnings.into_iter().next() {
            Some(warning) => Err(warning),
            None => Ok(match servers.len() {
                0 => "none".to_owned(),
                count => format!("{count}; list them with ropewalk mcp trust --list"),
            }),
        })
    };
    Finding {
        name: "trusted servers",
        outcome: look().unwrap_or_else(|error: crate::cli_error::CliError| Err(error.text())),
        fix: "repair the file, or delete it to be asked again",
        optional: false,
    }
}

/// Settings of a project that are stricter than the person's own, or that cannot be read.
pub(super) fn project_sandbox() -> Vec<Finding> {
    let name = "project's sandbox";
    let (Ok(folder), Ok(config)) = (run::folder(None), config::user()) else { return Vec::new() };
    let Ok(own) = guard_settings::mode(&crate::cli::GuardOptions::default(), &config) else {
        return Vec::new();
    };
    let own = own.value;
    let finding = |(file, mode): (std::path::PathBuf, Result<sandbox::Mode, String>)| match mode {
        Ok(mode) if mode >= own => None,
        Ok(mode) => Some(Finding {
            name,
            outcome: Ok(format!("{mode}, stricter than yours ({own}), set in {}", file.display())),
            fix: "",
            optional: true,
        }),
        Err(reason) => Some(Finding {
            name,
            outcome: Err(format!("{reason}; sessions in this folder are read-only")),
            fix: "repair the project's settings file",
            optional: false,
        }),
    };
    config::project_modes(&folder).into_iter().filter_map(finding).collect()
}

/// A note if commands can run outside the sandbox, even though each needs permission.
pub(super) fn editor_terminal() -> Option<Finding> {
    let chosen = config::user().is_ok_and(|config| config.editor_terminal == Some(true));
    chosen.then(|| Finding {
        name: "editor's terminal",
        outcome: Err("in editors that offer a terminal, commands run outside the sandbox after the owner at this machine \
                      allows each (terminal = \"editor\" in your settings)"
            .to_owned()),
        fix: "remove terminal = \"editor\" from the settings to keep every command inside the sandbox",
        optional: true,
    })
}
