//! Assesses an action that a tool or an agent is about to take: the same assessment for all of them.

use std::path::{Path, PathBuf};

use engine::{Risk, ToolClass};

use super::sensitive_paths::{FileAccess, assess_path};
use super::{Assessment, Workplace, assess_command, programs_of};

/// An action before it is taken.
#[derive(Debug, Clone, Copy)]
pub struct ProposedAction<'a> {
    pub class: ToolClass,
    /// The line of shell, if the action runs one.
    pub line: Option<&'a str>,
    /// The file that it is about, by its real path.
    pub path: Option<&'a Path>,
}

/// How risky an action is: `usual` is the risk of such actions, and a risky command or file raises it.
pub fn assess_action(action: ProposedAction<'_>, usual: Assessment, place: &Workplace<'_>) -> Assessment {
    let judged = match (action.class, action.line, action.path) {
        (ToolClass::Execute, Some(line), _) => {
            let judged = assess_command(line, place);
            return if judged.risk < usual.risk { usual } else { judged };
        }
        (ToolClass::Read, _, Some(path)) => assess_path(FileAccess::Read, path),
        (ToolClass::Edit, _, Some(path)) => assess_path(FileAccess::Write, path)
            .into_iter()
            .chain(outside(path, place))
            .max_by_key(|a| a.risk),
        (_, _, _) => None,
    };
    judged.filter(|judged| judged.risk > usual.risk).unwrap_or(usual)
}

/// Git runs programs that a repository's settings name, also where it only shows something. A command that
/// looks is run without asking, so it must not: what has a known name is switched off by variables, and where
/// a repository names a program in another way the command counts as one that runs it. `program` looks for
/// such a setting, which touches the disk, and says in which file it is and what it is called.
pub fn with_git_settings(
    assessed: Assessment,
    action: ProposedAction<'_>,
    program: impl FnOnce() -> Option<(PathBuf, String)>,
) -> Assessment {
    let git = action.class == ToolClass::Execute && action.line.is_some_and(|line| line.contains("git"));
    match (git && assessed.risk == Risk::Low).then(program).flatten() {
        Some((config, key)) => {
            let reason = format!("may make git run a program: {key} in {}", config.display());
            Assessment { risk: Risk::Medium, reason }
        }
        None => assessed,
    }
}

/// A version manager's shim runs what files of the workspace choose, whatever its arguments are, and a program
/// inside the workspace is whatever was written there. So a line that only reads by the names of its programs
/// counts as one that runs something if one of them is such a program. `steered` looks it up, which touches the
/// disk, and says where it lies.
pub fn with_steered_programs(
    assessed: Assessment,
    action: ProposedAction<'_>,
    place: &Workplace<'_>,
    steered: impl FnMut(&str) -> Option<PathBuf>,
) -> Assessment {
    let line = action.line.filter(|_| action.class == ToolClass::Execute && assessed.risk == Risk::Low);
    let Some(line) = line else { return assessed };
    match programs_of(line, place).iter().map(String::as_str).find_map(steered) {
        Some(program) => {
            let reason = format!("runs a program that files of the workspace choose: {}", program.display());
            Assessment { risk: Risk::Medium, reason }
        }
        None => assessed,
    }
}

/// Without a fence a path may lead anywhere, and "edits in the workspace" does not cover that.
fn outside(path: &Path, place: &Workplace<'_>) -> Option<Assessment> {
    let inside = place.roots.iter().any(|root| path.starts_with(root));
    let reason = || format!("changes a file outside the workspace: {}", path.display());
    (!inside).then(|| Assessment { risk: Risk::High, reason: reason() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_is_as_risky_as_the_worst_of_what_it_is_and_what_it_is_about() {
        use ToolClass::{Edit, Execute, Read};
        let roots = ["/w".into()];
        let place = Workplace { cwd: Path::new("/w"), roots: &roots, home: None };
        for (class, line, path, usual, expected) in [
            (Read, None, Some("/w/a.rs"), Risk::Low, Risk::Low),
            (Read, None, Some("/w/.env"), Risk::Low, Risk::High),
            (Edit, None, Some("/w/a.rs"), Risk::Medium, Risk::Medium),
            (Edit, None, Some("/elsewhere/a.rs"), Risk::Medium, Risk::High),
            (Execute, Some("ls"), None, Risk::Low, Risk::Low),
            (Execute, Some("ls"), None, Risk::Medium, Risk::Medium),
            (Execute, Some("rm -rf /"), None, Risk::Low, Risk::Critical),
            (Execute, None, None, Risk::Medium, Risk::Medium),
        ] {
            let usual = Assessment { risk: usual, reason: "usual".into() };
            let action = ProposedAction { class, line, path: path.map(Path::new) };
            assert_eq!(assess_action(action, usual, &place).risk, expected, "{action:?}");
        }
    }

    #[test]
    fn a_repository_that_names_a_program_makes_git_that_looks_run_it() {
        use ToolClass::{Execute, Read};
        let named = || Some(("/w/.git/config".into(), "diff.external".to_owned()));
        for (class, line, risk, expected) in [
            (Execute, "git diff", Risk::Low, Risk::Medium),
            (Execute, "git push --force", Risk::High, Risk::High),
            (Execute, "ls", Risk::Low, Risk::Low),
            (Read, "git diff", Risk::Low, Risk::Low),
        ] {
            let action = ProposedAction { class, line: Some(line), path: None };
            let assessed = || Assessment { risk, reason: "only reads".into() };
            assert_eq!(with_git_settings(assessed(), action, named).risk, expected, "{action:?}");
            assert_eq!(with_git_settings(assessed(), action, || None), assessed(), "{action:?}");
        }
    }

    #[test]
    fn a_line_that_runs_a_program_which_the_workspace_steers_is_asked() {
        let roots = ["/w".into()];
        let place = Workplace { cwd: Path::new("/w"), roots: &roots, home: None };
        let shims = ["node", "npm", "python3", "ruby", "java", "jq", "rg", "gh", "kubectl", "cmake", "uv"];
        for (line, expected) in [
            ("node --version", Risk::Medium),
            ("node -v", Risk::Medium),
            ("npm -v", Risk::Medium),
            ("python3 --version", Risk::Medium),
            ("ruby --version", Risk::Medium),
            ("java --version", Risk::Medium),
            ("kubectl --version", Risk::Medium),
            ("gh --version", Risk::Medium),
            ("cmake --version", Risk::Medium),
            ("uv --version", Risk::Medium),
            ("jq .name package.json", Risk::Medium),
            ("rg needle src", Risk::Medium),
            ("cat a | jq .", Risk::Medium),
            ("ls && node --version", Risk::Medium),
            ("timeout 5 node --version", Risk::Medium),
            ("nice node --version", Risk::Medium),
            ("bash -c 'node --version'", Risk::Medium),
            ("bash -c \"timeout 5 node --version\"", Risk::Medium),
            ("env node --version", Risk::Medium),
            ("cd src && python3 --version", Risk::Medium),
            ("grep node package.json", Risk::Low),
            ("ls node", Risk::Low),
            ("echo node --version", Risk::Low),
            ("git log -- node", Risk::Low),
            ("git --version", Risk::Low),
            ("bash --version", Risk::Low),
            ("which node", Risk::Low),
            ("command -v node", Risk::Low),
            ("rm -rf node", Risk::Critical),
        ] {
            let action = ProposedAction { class: ToolClass::Execute, line: Some(line), path: None };
            let assessed = assess_command(line, &place);
            let (usual, risk) = (assessed.risk, |found: Assessment| found.risk);
            let steered = |name: &str| shims.contains(&name).then(|| Path::new("/shims").join(name));
            assert_eq!(
                risk(with_steered_programs(assessed.clone(), action, &place, steered)),
                expected,
                "{line}"
            );
            assert_eq!(risk(with_steered_programs(assessed, action, &place, |_| None)), usual, "{line}");
        }
    }
}
