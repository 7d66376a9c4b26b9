//! What besides rules and settings decides about the sandbox and what may leave it: the owner's consent, the
//! project's own settings, and the editor's terminal.

use guard::Rulebook;

use super::Finding;
use crate::{config, guards, paths, run};

/// Whether the file with the owner's consent can be read. Without it everything in it is asked again.
pub(super) fn trusted_servers() -> Finding {
    let look = || {
        let (servers, warnings) = Rulebook::new(paths::rules()?).trusted();
        Ok(match warnings.into_iter().next() {
            Some(warning) => Err(warning),
            None => Ok(match servers.len() {
                0 => "none".to_owned(),
                count => format!("{count}; ropewalk mcp trust --list shows them"),
            }),
        })
    };
    Finding {
        name: "trusted servers",
        outcome: look().unwrap_or_else(|trouble: crate::trouble::Trouble| Err(trouble.text())),
        fix: "repair the file, or remove it to be asked again",
        optional: false,
    }
}

/// A project's settings that are narrower than the person's own, or that cannot be read.
pub(super) fn project_sandbox() -> Vec<Finding> {
    let name = "project's sandbox";
    let (Ok(folder), Ok(config)) = (run::folder(None), config::user()) else { return Vec::new() };
    let Ok(own) = guards::mode(&crate::cli::GuardOptions::default(), &config) else { return Vec::new() };
    let own = own.value;
    let finding = |(file, mode): (std::path::PathBuf, Result<sandbox::Mode, String>)| match mode {
        Ok(mode) if mode >= own => None,
        Ok(mode) => Some(Finding {
            name,
            outcome: Ok(format!("{mode}, narrower than yours ({own}): {} says so", file.display())),
            fix: "",
            optional: true,
        }),
        Err(reason) => Some(Finding {
            name,
            outcome: Err(format!("{reason}; sessions in this folder only read")),
            fix: "repair the project's settings file",
            optional: false,
        }),
    };
    config::project_modes(&folder).into_iter().filter_map(finding).collect()
}

/// Commands that can leave the sandbox are worth a line, though each of them is asked.
pub(super) fn editor_terminal() -> Option<Finding> {
    let chosen = config::user().is_ok_and(|config| config.editor_terminal == Some(true));
    chosen.then(|| Finding {
        name: "editor's terminal",
        outcome: Err("commands run outside the sandbox in an editor that offers a terminal (terminal = \"editor\" in your \
                      settings), each after the owner at this machine allowed it"
            .to_owned()),
        fix: "take terminal = \"editor\" out of the settings to keep every command inside the sandbox",
        optional: true,
    })
}
