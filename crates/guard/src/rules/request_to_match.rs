//! A permission request prepared for matching against rules. Expensive parts are computed on first use, once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::path::Path;

use engine::{AskRequest, ToolClass};
use serde_json::Value;

use super::command_line::CommandLine;
use super::rule::canonical;
use super::tool_names::{KnownTool, RequestedTool};

pub(super) struct RuleQuery<'a> {
    pub(super) request: &'a AskRequest,
    pub(super) tool: RequestedTool,
    pub(super) home: Option<&'a Path>,
    workspace: &'a Path,
    line: OnceCell<CommandLine>,
    input: OnceCell<Option<Value>>,
    path: OnceCell<Option<Cow<'a, str>>>,
}

impl<'a> RuleQuery<'a> {
    /// `workspace` by its real path.
    pub(super) fn new(request: &'a AskRequest, workspace: &'a Path, home: Option<&'a Path>) -> Self {
        Self {
            request,
            tool: RequestedTool::new(&request.tool),
            home,
            workspace,
            line: OnceCell::new(),
            input: OnceCell::new(),
            path: OnceCell::new(),
        }
    }

    /// What it is about is a command line.
    pub(super) fn is_command(&self) -> bool {
        match self.tool.known {
            Some(known) => known == KnownTool::Shell,
            None => self.request.class == ToolClass::Execute && self.request.path.is_none(),
        }
    }

    pub(super) fn line(&self) -> &CommandLine {
        self.line.get_or_init(|| CommandLine::new(&self.request.subject))
    }

    /// The file that it is about; a tool for files that names none works on the whole workspace.
    pub(super) fn path(&self) -> Option<&str> {
        let of = || {
            let path = self.request.path.as_deref();
            let whole = || self.tool.known.is_some_and(KnownTool::has_path).then_some(self.workspace);
            path.or_else(whole).map(Path::to_string_lossy)
        };
        self.path.get_or_init(of).as_deref()
    }

    /// Two different paths cannot look the same.
    pub(super) fn path_is_text(&self) -> bool {
        self.request.path.as_deref().is_none_or(|path| path.to_str().is_some())
    }

    pub(super) fn argument(&self, key: &str) -> Option<Cow<'_, str>> {
        Some(match self.input()?.get(key)? {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            other => Cow::Owned(other.to_string()),
        })
    }

    /// Whether these are its arguments, as [`canonical`] writes them.
    pub(super) fn has_arguments(&self, arguments: &str) -> bool {
        self.input().is_some_and(|input| canonical(input) == arguments)
    }

    /// The host of the address that it is about, in lower case.
    pub(super) fn host(&self) -> Option<String> {
        let url = self.argument("url").unwrap_or(Cow::Borrowed(&self.request.subject));
        let rest = url.split_once("://").map_or(url.as_ref(), |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#', '\\']).next()?;
        let host = authority.rsplit('@').next()?;
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next()?,
            None => host.split(':').next()?,
        };
        (!host.is_empty()).then(|| host.trim_end_matches('.').to_lowercase())
    }

    fn input(&self) -> Option<&Value> {
        self.input.get_or_init(|| serde_json::from_str(&self.request.input.0).ok()).as_ref()
    }
}
