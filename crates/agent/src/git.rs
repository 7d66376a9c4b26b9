//! Git runs programs that a repository's settings name, also where it only shows something. A command that
//! looks is run without asking, so it must not: what has a known name is switched off by variables
//! ([`sandbox::git_looks_only`]), and where a repository names a program in another way the command counts as
//! one that runs it.

use engine::{Risk, ToolClass};
use guard::Assessment;

use crate::place::Place;

/// What is thought of a command, with what the settings of the repositories make of it.
pub(crate) fn with_settings(
    assessed: Assessment,
    class: ToolClass,
    line: Option<&str>,
    place: &Place,
) -> Assessment {
    let git = class == ToolClass::Execute && line.is_some_and(|line| line.contains("git"));
    let Some(policy) = place.policy().ok().filter(|_| git && assessed.risk == Risk::Low) else {
        return assessed;
    };
    match sandbox::git_program(&policy.roots) {
        Some((config, key)) => {
            let reason = format!("makes git run a program: {key} in {}", config.display());
            Assessment { risk: Risk::Medium, reason }
        }
        None => assessed,
    }
}
