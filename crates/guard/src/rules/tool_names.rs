//! Which tool a rule or a request means, by any of the names that people know it by.

use super::glob::{Glob, GlobKind};

/// A tool that every agent has under one name or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownTool {
    Shell,
    Read,
    Edit,
    Write,
    Search,
    List,
    Fetch,
}

const NAMES: [(KnownTool, &[&str]); 7] = [
    (
        KnownTool::Shell,
        &[
            "shell",
            "bash",
            "execute",
            "run_command",
            "execute_command",
            "run_shell_command",
            "terminal",
            "exec",
            "sh",
        ],
    ),
    (KnownTool::Read, &["read", "read_file", "view", "cat"]),
    (
        KnownTool::Edit,
        &["edit", "str_replace", "edit_file", "multiedit", "multi_edit", "apply_patch", "replace_in_file"],
    ),
    (KnownTool::Write, &["write", "write_file", "create_file", "write_to_file"]),
    (KnownTool::Search, &["search", "grep", "search_files", "ripgrep"]),
    (KnownTool::List, &["list", "ls", "list_files", "list_directory", "glob", "find_path"]),
    (KnownTool::Fetch, &["fetch", "webfetch", "web_fetch"]),
];

/// Built-in tools without other names.
const OTHERS: [&str; 2] = ["mcp_server", "update_plan"];

impl KnownTool {
    pub(super) fn of(name: &str) -> Option<Self> {
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        NAMES.iter().find(|(_, names)| names.iter().any(|known| same(known))).map(|(tool, _)| *tool)
    }

    pub(super) fn name(self) -> &'static str {
        self.names().first().copied().unwrap_or_default()
    }

    /// All its names, ours first.
    pub(super) fn names(self) -> &'static [&'static str] {
        NAMES.iter().find(|(tool, _)| *tool == self).map_or(&[], |(_, names)| *names)
    }

    /// Its requests are about a file or a folder.
    pub(super) fn has_path(self) -> bool {
        match self {
            Self::Read | Self::Edit | Self::Write | Self::Search | Self::List => true,
            Self::Shell | Self::Fetch => false,
        }
    }
}

/// The tools that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolSelector {
    Known(KnownTool),
    /// In lower case.
    Named(String),
    /// `mcp__server`, in lower case: all tools of it.
    Server(String),
    Matching(Glob),
}

impl ToolSelector {
    /// `None` if this cannot be the name of a tool.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let allowed = |c: char| c.is_alphanumeric() || "_-.:/*?[]!".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            return None;
        }
        let lower = name.to_lowercase();
        if let Some(tool) = KnownTool::of(name) {
            return Some(Self::Known(tool));
        }
        if name.contains(['*', '?', '[']) {
            return Some(Self::Matching(Glob::new(&lower, GlobKind::Text)));
        }
        match lower.strip_prefix("mcp__") {
            Some(server) if !server.is_empty() && !server.contains("__") => Some(Self::Server(lower)),
            _ => Some(Self::Named(lower)),
        }
    }

    /// `narrows` is true for rules that deny or ask: those also apply to other tools that change or read a file.
    pub(super) fn include(&self, name: &RequestedTool, narrows: bool) -> bool {
        match self {
            // A command that may not be run may not be typed into a running shell either.
            Self::Known(KnownTool::Shell) if narrows && name.lower == "job_input" => true,
            Self::Known(tool) => name.known.is_some_and(|wished| covers(*tool, wished, narrows)),
            Self::Named(own) => *own == name.lower,
            Self::Server(server) => {
                let rest = name.lower.strip_prefix(server.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
            }
            Self::Matching(glob) => {
                let by_alias = |tool: KnownTool| tool.names().iter().any(|known| glob.matches(known));
                glob.matches(&name.lower) || (narrows && name.known.is_some_and(by_alias))
            }
        }
    }

    /// The name belongs to no built-in tool and no server: perhaps a typo.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Named(name) if !name.starts_with("mcp__") && !OTHERS.contains(&name.as_str()))
    }
}

fn covers(rule: KnownTool, wished: KnownTool, narrows: bool) -> bool {
    match (rule, wished) {
        (rule, wished) if rule == wished => true,
        // As in other agents: a rule for edits is a rule for everything that changes files.
        (KnownTool::Edit, KnownTool::Write) => true,
        (KnownTool::Write, KnownTool::Edit) | (KnownTool::Read, KnownTool::Search | KnownTool::List) => {
            narrows
        }
        _ => false,
    }
}

/// The tool that a request names.
pub(super) struct RequestedTool {
    pub(super) known: Option<KnownTool>,
    pub(super) lower: String,
}

impl RequestedTool {
    pub(super) fn new(name: &str) -> Self {
        Self { known: KnownTool::of(name), lower: name.to_lowercase() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, wished: &str, allow: bool, narrow: bool) {
        let tools = ToolSelector::parse(rule).unwrap();
        let name = RequestedTool::new(wished);
        assert_eq!(
            (tools.include(&name, false), tools.include(&name, true)),
            (allow, narrow),
            "{rule} {wished}"
        );
    }

    /// G20.
    #[test]
    fn tools_are_known_by_every_usual_name() {
        for (rule, wished) in [
            ("Bash", "shell"),
            ("execute", "shell"),
            ("run_command", "bash"),
            ("Read", "read_file"),
            ("str_replace", "edit"),
            ("WRITE_FILE", "write"),
            ("Grep", "search"),
            ("ls", "list_files"),
            ("WebFetch", "fetch"),
            ("Edit", "write"),
            ("Custom_Tool", "custom_tool"),
            ("mcp__github", "mcp__github__create_issue"),
            ("mcp__github", "mcp__GitHub"),
            ("mcp__github__create_issue", "mcp__github__create_issue"),
            ("mcp__*", "mcp__x__y"),
            ("*", "shell"),
            ("re*", "read_file"),
            ("bash*", "bash"),
        ] {
            check(rule, wished, true, true);
        }
        for (rule, wished) in [
            ("Bash", "read"),
            ("mcp__github", "mcp__github2__x"),
            ("mcp__github__create", "mcp__github__create_issue"),
            ("mcp__g*", "shell"),
        ] {
            check(rule, wished, false, false);
        }
    }

    #[test]
    fn a_rule_that_narrows_reaches_further() {
        check("write", "edit", false, true);
        check("read", "search", false, true);
        check("search", "read", false, false);
    }

    #[test]
    fn what_cannot_be_a_name_is_none() {
        for bad in ["", "a b", "a(b", "tool\n", "a;b"] {
            assert_eq!(ToolSelector::parse(bad), None, "{bad:?}");
        }
    }
}
