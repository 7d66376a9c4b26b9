//! What whoever does something is about to do: the same judgement for every tool and every agent.

use std::path::Path;

use engine::{Risk, ToolClass};

use super::paths::{Want, assess_path};
use super::{Assessment, Workplace, assess_command};

/// Something that is to be done, before it is.
#[derive(Debug, Clone, Copy)]
pub struct Deed<'a> {
    pub class: ToolClass,
    /// The line of shell, if it is one that runs.
    pub line: Option<&'a str>,
    /// The file that it is about, without links.
    pub path: Option<&'a Path>,
}

/// How risky a deed is: as such deeds usually are, or worse if what it is about is worse.
pub fn assess_deed(deed: Deed<'_>, usual: Assessment, place: &Workplace<'_>) -> Assessment {
    let judged = match (deed.class, deed.line, deed.path) {
        (ToolClass::Execute, Some(line), _) => {
            let judged = assess_command(line, place);
            return if judged.risk < usual.risk { usual } else { judged };
        }
        (ToolClass::Read, _, Some(path)) => assess_path(Want::Read, path),
        (ToolClass::Edit, _, Some(path)) => {
            assess_path(Want::Write, path).into_iter().chain(outside(path, place)).max_by_key(|a| a.risk)
        }
        (_, _, _) => None,
    };
    judged.filter(|judged| judged.risk > usual.risk).unwrap_or(usual)
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
            let deed = Deed { class, line, path: path.map(Path::new) };
            assert_eq!(assess_deed(deed, usual, &place).risk, expected, "{deed:?}");
        }
    }
}
