//! The tools, as data: their names, what they may do, and how a call is parsed.
//!
//! A tool turns the model's arguments into an [`Intent`]; the guard does everything that is the same for all
//! of them. A new tool is one file below and one line in [`Toolbox::built_in`].

pub(crate) mod ask;
pub(crate) mod command_output;
mod edit;
mod fetch;
mod glob;
mod jobs;
mod line_matching;
pub(crate) mod list;
mod patch;
mod plan;
mod read;
mod search;
mod shell;
mod skill;
mod task;
mod write;

pub(crate) use task::AT_ONCE_MAX as SUB_AGENTS_AT_ONCE_MAX;

use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use engine::{
    BoxFuture, CallId, FileChange, Location, Question, Risk, ToolClass, ToolContent, ToolKind, TurnContext,
};
use sandbox::{FileError, Files, PermittedPath, ProtectedEntries, UnusableReason};
use serde::de::DeserializeOwned;

pub(crate) use self::write::draft_name;

use crate::agent::AgentSession;
use crate::editor_files::{EditorCommand, EditorTerminal};
use crate::model::{Image, ToolSpec};
use crate::role::{self, Role};
use crate::workspace::Workspace;

/// A larger file is not read whole: search in it, or use a command.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// A set of tools, built-in ones and those of tool servers, with unique names.
#[derive(Clone, Default)]
pub(crate) struct Toolbox {
    tools: Arc<[Arc<ToolDefinition>]>,
}

impl Toolbox {
    pub(crate) fn built_in() -> Self {
        static BUILT_IN: OnceLock<Toolbox> = OnceLock::new();
        let tools = || {
            [
                read::tool(),
                list::tool(),
                glob::tool(),
                search::tool(),
                edit::tool(),
                write::tool(),
                patch::tool(),
                shell::tool(),
                jobs::tool(),
                jobs::input_tool(),
                plan::tool(),
                fetch::tool(),
                ask::tool(),
            ]
        };
        BUILT_IN.get_or_init(|| Self { tools: tools().map(Arc::new).into() }).clone()
    }

    /// Adds the tool that reads skills, if there are any.
    pub(crate) fn with_skills(&self) -> Self {
        static SKILL: OnceLock<Arc<ToolDefinition>> = OnceLock::new();
        let skill = Arc::clone(SKILL.get_or_init(|| Arc::new(skill::tool())));
        Self { tools: self.tools.iter().cloned().chain(std::iter::once(skill)).collect() }
    }

    /// Adds the tool that starts sub-agents.
    pub(crate) fn with_tasks(&self, roles: &[Role]) -> Self {
        let roles: Arc<[Role]> = roles.iter().filter(|role| role.sub_agent).cloned().collect();
        let task = Arc::new(task::tool(&roles));
        Self { tools: self.tools.iter().cloned().chain(std::iter::once(task)).collect() }
    }

    /// Adds further tools.
    pub(crate) fn with(self, more: Vec<Arc<ToolDefinition>>) -> Self {
        if more.is_empty() { self } else { Self { tools: self.tools.iter().cloned().chain(more).collect() } }
    }

    /// Restricts the tools to these names, if there is a list.
    pub(crate) fn only(self, names: Option<&[Arc<str>]>) -> Self {
        let Some(names) = names else { return self };
        Self { tools: self.tools.iter().filter(|tool| names.contains(&tool.name)).cloned().collect() }
    }

    /// Restricts the tools to those that a role may use.
    pub(crate) fn of_role(&self, role: &Role) -> Self {
        Self { tools: self.tools.iter().filter(|tool| role.may_use(tool)).cloned().collect() }
    }

    /// Restricts the tools to those of a sub-agent: the plan that people see belongs to the main agent.
    pub(crate) fn of_sub_agent(&self) -> Self {
        let own = |tool: &&Arc<ToolDefinition>| tool.name.as_ref() != plan::NAME;
        Self { tools: self.tools.iter().filter(own).cloned().collect() }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<ToolDefinition>> {
        self.tools.iter().find(|tool| tool.name.as_ref() == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools.iter()
    }

    pub(crate) fn names(&self) -> String {
        self.tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>().join(", ")
    }

    /// The tools as the model sees them.
    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |tool: &Arc<ToolDefinition>| ToolSpec {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
            schema: Arc::clone(&tool.schema),
        };
        self.tools.iter().map(spec).collect()
    }
}

/// Names of tools in other agents, which people may know.
const NAMES_ELSEWHERE: &str = "Read, Edit, Write, Bash, Grep, Glob, LS, WebFetch, Task, Skill";

/// Our tool names for given names, which may be those of other agents and in any case. The error lists both.
pub fn tools_named(names: &[String]) -> Result<Vec<Arc<str>>, String> {
    let known = Toolbox::built_in().with_skills().with_tasks(&role::built_in());
    let mut ours = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let meant = role::our_tool_names(name);
        let named = |tool: &Arc<str>| known.find(tool).is_some() || tool.starts_with("mcp__");
        if !meant.iter().all(named) {
            let ours = known.names();
            return Err(format!(
                "unknown tool {name:?}; use {NAMES_ELSEWHERE}, or Ropewalk's own names: {ours}"
            ));
        }
        ours.extend(meant);
    }
    Ok(ours)
}

/// Parses the model's arguments. Has no side effects.
pub(crate) type ParseCall = dyn Fn(&str) -> Result<Intent, String> + Send + Sync;

pub(crate) struct ToolDefinition {
    pub(crate) name: Arc<str>,
    pub(crate) description: Arc<str>,
    pub(crate) kind: ToolKind,
    pub(crate) class: ToolClass,
    pub(crate) schema: Arc<serde_json::Value>,
    pub(crate) parse_call: Box<ParseCall>,
}

impl ToolDefinition {
    pub(crate) fn new(
        name: &str,
        description: &str,
        kind: ToolKind,
        class: ToolClass,
        schema: serde_json::Value,
        parse_call: impl Fn(&str) -> Result<Intent, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            kind,
            class,
            schema: Arc::new(schema),
            parse_call: Box::new(parse_call),
        }
    }

    /// A tool that only reads files, or the agent's own state.
    pub(crate) fn reads(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        parse_call: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Read, ToolClass::Read, schema, parse_call)
    }

    /// A tool that only searches for files, or for text in them.
    pub(crate) fn searches(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        parse_call: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Search, ToolClass::Read, schema, parse_call)
    }

    /// A tool that changes files.
    pub(crate) fn edits(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        parse_call: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Edit, ToolClass::Edit, schema, parse_call)
    }
}

/// What a call is about to do.
pub(crate) struct Intent {
    pub(crate) title: String,
    /// The path as the model wrote it; the guard resolves and checks it.
    pub(crate) path: Option<String>,
    pub(crate) line: Option<u32>,
    /// What an "always" answer would allow, if that is not the path.
    pub(crate) subject: Option<String>,
    pub(crate) risk: Risk,
    pub(crate) reason: &'static str,
    pub(crate) work: Box<dyn ToolWork>,
}

/// The tool-specific part of a call.
pub(crate) trait ToolWork: Send + 'static {
    /// Further paths, as the model wrote them. Each is resolved and assessed like the intent's own path.
    fn further_paths(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads what is needed before permission is asked, and returns a preview of the change. May block.
    fn prepare(&mut self, _job: &ToolJob) -> Result<Vec<ToolContent>, ToolFailure> {
        Ok(Vec::new())
    }

    /// The question for the person, if the call is a question and not a permission request.
    fn question(&self) -> Option<Question> {
        None
    }

    /// The command line, if it may run in an editor's terminal, and whether it needs input there.
    fn editor_line(&self) -> Option<(&str, bool)> {
        None
    }

    /// Runs the call. Called once, after permission was given.
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome>;
}

/// The context of a running call.
pub(crate) struct ToolJob {
    pub(crate) call: CallId,
    /// The resolved path of the intent.
    pub(crate) spot: Option<PermittedPath>,
    /// The resolved further paths, in order.
    pub(crate) further: Vec<PermittedPath>,
    pub(crate) workspace: Workspace,
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    /// The role that made the call.
    pub(crate) role: Arc<Role>,
    /// The call was assessed as read-only.
    pub(crate) only_looks: bool,
    /// The editor's terminal that its command will run in, which the permission request includes.
    pub(crate) editor: Option<EditorCommand>,
    /// The files that could make another program run something before the call. A command that continues in the
    /// background takes this, to report new ones.
    pub(crate) protected: Mutex<Option<ProtectedEntries>>,
}

impl ToolJob {
    fn spot(&self) -> Result<&PermittedPath, ToolFailure> {
        self.spot.as_ref().ok_or_else(|| "a path is missing".into())
    }

    pub(crate) fn files(&self) -> Result<&Files, ToolFailure> {
        Ok(self.workspace.files()?)
    }

    pub(crate) fn protected(&self) -> MutexGuard<'_, Option<ProtectedEntries>> {
        self.protected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum ToolFailure {
    Failed(String),
    /// The sandbox has refused it. The path is empty if it is not about one.
    Blocked {
        path: PathBuf,
        reason: String,
    },
}

impl From<String> for ToolFailure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for ToolFailure {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

impl From<FileError> for ToolFailure {
    fn from(error: FileError) -> Self {
        let reason = error.to_string();
        match error {
            FileError::Refused { path, .. } => Self::Blocked { path, reason },
            FileError::Unusable { .. } => Self::Failed(reason),
        }
    }
}

/// The result of a call.
#[derive(Default)]
pub(crate) struct ToolOutcome {
    pub(crate) failed: bool,
    /// The path that the sandbox has refused.
    pub(crate) blocked: Option<PathBuf>,
    /// Shown to people, and given to the model if there is no `model_text`.
    pub(crate) text: Option<String>,
    /// Images for both, after the text.
    pub(crate) images: Vec<Image>,
    pub(crate) model_text: Option<String>,
    /// The text is not Markdown.
    pub(crate) plain_text: bool,
    pub(crate) exit: Option<(Option<i32>, Option<String>)>,
    pub(crate) locations: Vec<Location>,
    pub(crate) changes: Vec<FileChange>,
    /// The editor's terminal that it ran in, released when its end is logged.
    pub(crate) terminal: Option<EditorTerminal>,
}

impl ToolOutcome {
    pub(crate) fn failed(reason: String) -> Self {
        Self { failed: true, text: Some(reason), ..Self::default() }
    }

    fn text(text: String) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    /// File names or command output, shown verbatim.
    fn plain(text: String) -> Self {
        Self { plain_text: true, ..Self::text(text) }
    }
}

impl From<ToolFailure> for ToolOutcome {
    fn from(failure: ToolFailure) -> Self {
        match failure {
            ToolFailure::Failed(reason) => Self::failed(reason),
            ToolFailure::Blocked { path, reason } => Self { blocked: Some(path), ..Self::failed(reason) },
        }
    }
}

/// Runs file work on a blocking thread. It is short and runs to its end even if the turn is cancelled, so a
/// file is never left half written.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|_| "the tool crashed; this is a bug".to_owned())
}

/// File work as a tool's run.
fn file_work(
    work: impl FnOnce() -> Result<ToolOutcome, ToolFailure> + Send + 'static,
) -> BoxFuture<'static, ToolOutcome> {
    Box::pin(async move {
        let outcome = blocking(work).await.map_err(ToolFailure::from).and_then(|outcome| outcome);
        outcome.unwrap_or_else(ToolOutcome::from)
    })
}

fn arguments<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Some models send an empty text if every argument is optional.
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| format!("invalid arguments: {error}"))
}

/// Reads a whole file, if it exists and is not too large.
pub(crate) fn read_whole(files: &Files, spot: &PermittedPath) -> Result<Option<Vec<u8>>, ToolFailure> {
    let file = match files.open_file(spot) {
        Ok(file) => file,
        Err(FileError::Unusable { reason: UnusableReason::Missing, .. }) => return Ok(None),
        Err(FileError::Unusable { reason: UnusableReason::Folder, .. }) => {
            return Err("it is a folder; list it".into());
        }
        Err(FileError::Unusable { reason: reason @ UnusableReason::Special, .. }) => {
            return Err(reason.to_string().into());
        }
        Err(FileError::Unusable { reason, .. }) => return Err(format!("it cannot be read: {reason}").into()),
        Err(refused @ FileError::Refused { .. }) => return Err(refused.into()),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB; search in it instead", FILE_BYTES_MAX >> 20).into());
    }
    Ok(Some(bytes))
}

fn as_text(bytes: Vec<u8>) -> Result<String, ToolFailure> {
    if bytes.contains(&0) {
        return Err("it is not a text file".into());
    }
    String::from_utf8(bytes).map_err(|_| "it is not a text file in UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_the_error_lists_are_taken() {
        let names: Vec<String> = NAMES_ELSEWHERE.split(", ").map(str::to_owned).collect();
        let known = Toolbox::built_in().with_skills().with_tasks(&role::built_in());
        let ours: Vec<String> = known.names().split(", ").map(str::to_owned).collect();
        assert!(tools_named(&names).is_ok() && tools_named(&ours).is_ok());
        let wrong = tools_named(&["Fly".into()]).unwrap_err();
        assert!(wrong.contains("use Read, Edit, Write, Bash") && wrong.contains("shell"), "{wrong}");
    }

    #[test]
    fn each_tool_is_described_and_its_risk_class_is_fixed() {
        let line = |tool: &Arc<ToolDefinition>| {
            format!("{}: {:?} {:?} {}\n", tool.name, tool.class, tool.kind, tool.schema["required"])
        };
        let lines: String = Toolbox::built_in().iter().map(line).collect();
        expect_test::expect![[r#"
            read: Read Read ["path"]
            list: Read Read null
            glob: Read Search ["pattern"]
            search: Read Search ["text"]
            edit: Edit Edit ["path"]
            write: Edit Edit ["path","text"]
            apply_patch: Edit Edit ["patch"]
            shell: Execute Execute ["command"]
            jobs: Read Read ["action"]
            job_input: Execute Execute ["job","text"]
            update_plan: Read Think ["entries"]
            fetch: Network Fetch ["url"]
            ask_user: Read Other ["question"]
        "#]]
        .assert_eq(&lines);
    }
}
