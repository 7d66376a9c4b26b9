//! A request that nobody made, built to explain what the rules would decide about it.

use std::path::{Path, PathBuf};

use engine::{AskRequest, Opaque, Risk, ToolClass, ToolKind};
use serde_json::json;

use super::tool_names::KnownTool;
use crate::risk::{Assessment, FileAccess, Workplace, assess_command, assess_path};

/// A request to use a tool on a subject (a command, a path), assessed as a real one would be.
pub fn hypothetical_request(tool: &str, subject: &str, workspace: &Path, home: Option<&Path>) -> AskRequest {
    let known = KnownTool::of(tool);
    let path = known.is_some_and(KnownTool::has_path).then(|| resolved(workspace, home, subject));
    let (kind, class, key) = match known {
        Some(KnownTool::Shell) => (ToolKind::Execute, ToolClass::Execute, "command"),
        Some(KnownTool::Read | KnownTool::List) => (ToolKind::Read, ToolClass::Read, "path"),
        Some(KnownTool::Search) => (ToolKind::Search, ToolClass::Read, "path"),
        Some(KnownTool::Edit | KnownTool::Write) => (ToolKind::Edit, ToolClass::Edit, "path"),
        Some(KnownTool::Fetch) => (ToolKind::Fetch, ToolClass::Network, "url"),
        // A tool that is not built in may do anything.
        None => (ToolKind::Other, ToolClass::Execute, "subject"),
    };
    let assessed = assessed(known, subject, path.as_deref(), workspace, home);
    let about = path.as_ref().map_or_else(|| subject.to_owned(), |path| path.display().to_string());
    AskRequest {
        call: None,
        tool: known.map_or(tool, |known| known.name()).into(),
        title: subject.into(),
        kind,
        class,
        path,
        subject: about.into(),
        input: Opaque(json!({ key: subject }).to_string().into()),
        risk: assessed.risk,
        reason: assessed.reason.into(),
        preview: Vec::new(),
        question: None,
        foreign: None,
        consent: None,
        rule: None,
    }
}

fn assessed(
    tool: Option<KnownTool>,
    subject: &str,
    path: Option<&Path>,
    workspace: &Path,
    home: Option<&Path>,
) -> Assessment {
    let plain = |risk, reason: &str| Assessment { risk, reason: reason.to_owned() };
    let special =
        |want, risk, reason| path.and_then(|path| assess_path(want, path)).unwrap_or(plain(risk, reason));
    match tool {
        Some(KnownTool::Shell) => {
            let roots = [workspace.to_owned()];
            assess_command(subject, &Workplace { cwd: workspace, roots: &roots, home })
        }
        Some(KnownTool::Read | KnownTool::Search | KnownTool::List) => {
            special(FileAccess::Read, Risk::Low, "only reads")
        }
        Some(KnownTool::Edit | KnownTool::Write) => {
            special(FileAccess::Write, Risk::Medium, "changes a file")
        }
        Some(KnownTool::Fetch) => plain(Risk::Medium, "reaches another machine"),
        None => plain(Risk::Medium, "a tool that is not built in can do anything"),
    }
}

/// A path as the tools would resolve it; one that does not exist stays as it is written.
fn resolved(workspace: &Path, home: Option<&Path>, subject: &str) -> PathBuf {
    let path = match (subject.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => workspace.join(subject),
    };
    let known = path.parent().zip(path.file_name());
    let through_folder = || known.and_then(|(folder, name)| Some(folder.canonicalize().ok()?.join(name)));
    path.canonicalize().ok().or_else(through_folder).unwrap_or(path)
}
