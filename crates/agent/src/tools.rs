//! The tools, as data: what they are called, what they may do, and how a wish is read.
//!
//! A tool turns the model's arguments into an [`Intent`]; the guard does everything that is the same
//! for all of them. A new tool is one file below and one line in [`Toolbox::built_in`].

pub(crate) mod ask;
mod edit;
mod fetch;
mod glob;
mod jobs;
mod lines;
pub(crate) mod list;
pub(crate) mod output;
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
use sandbox::{FileError, Files, ProtectedEntries, Spot, Unfit};
use serde::de::DeserializeOwned;

pub(crate) use self::write::draft_name;

use crate::agent::AgentSession;
use crate::host::{EditorTerminal, Terminal};
use crate::model::{Image, ToolSpec};
use crate::place::Place;
use crate::role::{self, Role};

/// A file larger than this is not read whole: search in it, or use a command.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// Tools, built in or brought by others, of which each has a name of its own.
#[derive(Clone, Default)]
pub(crate) struct Toolbox {
    tools: Arc<[Arc<Tool>]>,
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

    /// The tool that reads skills, where there are any, besides these.
    pub(crate) fn with_skills(&self) -> Self {
        static SKILL: OnceLock<Arc<Tool>> = OnceLock::new();
        let skill = Arc::clone(SKILL.get_or_init(|| Arc::new(skill::tool())));
        Self { tools: self.tools.iter().cloned().chain(std::iter::once(skill)).collect() }
    }

    /// The tool that gives work to sub-agents, besides these.
    pub(crate) fn with_tasks(&self, roles: &[Role]) -> Self {
        let roles: Arc<[Role]> = roles.iter().filter(|role| role.sub_agent).cloned().collect();
        let task = Arc::new(task::tool(&roles));
        Self { tools: self.tools.iter().cloned().chain(std::iter::once(task)).collect() }
    }

    /// The same and more.
    pub(crate) fn with(self, more: Vec<Arc<Tool>>) -> Self {
        if more.is_empty() { self } else { Self { tools: self.tools.iter().cloned().chain(more).collect() } }
    }

    /// Those with these names, if there is a list.
    pub(crate) fn only(self, names: Option<&[Arc<str>]>) -> Self {
        let Some(names) = names else { return self };
        Self { tools: self.tools.iter().filter(|tool| names.contains(&tool.name)).cloned().collect() }
    }

    /// Those that a role may use.
    pub(crate) fn of_role(&self, role: &Role) -> Self {
        Self { tools: self.tools.iter().filter(|tool| role.may_use(tool)).cloned().collect() }
    }

    /// Those that a sub-agent may use: the plan that people see is the agent's.
    pub(crate) fn of_sub_agent(&self) -> Self {
        let own = |tool: &&Arc<Tool>| tool.name.as_ref() != plan::NAME;
        Self { tools: self.tools.iter().filter(own).cloned().collect() }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.iter().find(|tool| tool.name.as_ref() == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter()
    }

    pub(crate) fn names(&self) -> String {
        self.tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>().join(", ")
    }

    /// The tools as the model sees them.
    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |tool: &Arc<Tool>| ToolSpec {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
            schema: Arc::clone(&tool.schema),
        };
        self.tools.iter().map(spec).collect()
    }
}

/// What the tools are called elsewhere, as people know them from other programs.
const NAMES_ELSEWHERE: &str = "Read, Edit, Write, Bash, Grep, Glob, LS, WebFetch, Task, Skill";

/// Our names of tools, whatever program's name was given and in whatever case. The error lists both.
pub fn tools_named(names: &[String]) -> Result<Vec<Arc<str>>, String> {
    let known = Toolbox::built_in().with_skills().with_tasks(&role::built_in());
    let mut ours = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let meant = role::our_tools(name);
        let named = |tool: &Arc<str>| known.find(tool).is_some() || tool.starts_with("mcp__");
        if !meant.iter().all(named) {
            let ours = known.names();
            return Err(format!(
                "there is no tool {name:?}; the tools are {NAMES_ELSEWHERE}, or in our names {ours}"
            ));
        }
        ours.extend(meant);
    }
    Ok(ours)
}

/// Reads the model's arguments. Touches nothing.
pub(crate) type Intend = dyn Fn(&str) -> Result<Intent, String> + Send + Sync;

pub(crate) struct Tool {
    pub(crate) name: Arc<str>,
    pub(crate) description: Arc<str>,
    pub(crate) kind: ToolKind,
    pub(crate) class: ToolClass,
    pub(crate) schema: Arc<serde_json::Value>,
    pub(crate) intend: Box<Intend>,
}

impl Tool {
    pub(crate) fn new(
        name: &str,
        description: &str,
        kind: ToolKind,
        class: ToolClass,
        schema: serde_json::Value,
        intend: impl Fn(&str) -> Result<Intent, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            kind,
            class,
            schema: Arc::new(schema),
            intend: Box::new(intend),
        }
    }

    /// One that only looks at files, or at what the agent itself keeps.
    pub(crate) fn reads(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        intend: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Read, ToolClass::Read, schema, intend)
    }

    /// One that only looks for files, or for text in them.
    pub(crate) fn searches(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        intend: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Search, ToolClass::Read, schema, intend)
    }

    /// One that changes files.
    pub(crate) fn edits(
        name: &str,
        description: &str,
        schema: serde_json::Value,
        intend: fn(&str) -> Result<Intent, String>,
    ) -> Self {
        Self::new(name, description, ToolKind::Edit, ToolClass::Edit, schema, intend)
    }
}

/// What a call is about to do.
pub(crate) struct Intent {
    pub(crate) title: String,
    /// As the model wrote it; the guard resolves and checks it.
    pub(crate) path: Option<String>,
    pub(crate) line: Option<u32>,
    /// What "always" would allow, if that is not the path.
    pub(crate) subject: Option<String>,
    pub(crate) risk: Risk,
    pub(crate) reason: &'static str,
    pub(crate) work: Box<dyn Work>,
}

/// The part of a call that only its tool knows.
pub(crate) trait Work: Send + 'static {
    /// Paths besides the intent's own, as the model wrote them. Each is found and judged like that one.
    fn further_paths(&self) -> Vec<String> {
        Vec::new()
    }

    /// Looks at the world before permission is asked, and shows what would change. May block.
    fn prepare(&mut self, _job: &Job) -> Result<Vec<ToolContent>, Failure> {
        Ok(Vec::new())
    }

    /// What the person is asked, where it is not whether this may be done.
    fn question(&self) -> Option<Question> {
        None
    }

    /// The command line, where it may run in an editor's terminal, and whether something has to be typed there.
    fn editor_line(&self) -> Option<(&str, bool)> {
        None
    }

    /// Does it. Called once, after permission was given.
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome>;
}

/// What a call works with.
pub(crate) struct Job {
    pub(crate) call: CallId,
    /// Where the path of the intent leads, judged for what the tool wants.
    pub(crate) spot: Option<Spot>,
    /// Where the further paths of its work lead, in their order.
    pub(crate) further: Vec<Spot>,
    pub(crate) place: Place,
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    /// Who made the call.
    pub(crate) role: Arc<Role>,
    /// It was judged to look and to change nothing.
    pub(crate) only_looks: bool,
    /// The editor's terminal that its command runs in: permission is asked for this.
    pub(crate) editor: Option<EditorTerminal>,
    /// What could make another program run something before this began. Whoever goes on with the work
    /// afterwards takes it, and looks for what is new.
    pub(crate) protected: Mutex<Option<ProtectedEntries>>,
}

impl Job {
    fn spot(&self) -> Result<&Spot, Failure> {
        self.spot.as_ref().ok_or_else(|| "a path is missing".into())
    }

    pub(crate) fn files(&self) -> Result<&Files, Failure> {
        Ok(self.place.files()?)
    }

    pub(crate) fn protected(&self) -> MutexGuard<'_, Option<ProtectedEntries>> {
        self.protected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nothing came of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    Failed(String),
    /// The sandbox does not let it happen. The path is empty where it is not about one.
    Blocked {
        path: PathBuf,
        reason: String,
    },
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let reason = error.to_string();
        match error {
            FileError::Refused { path, .. } => Self::Blocked { path, reason },
            FileError::Unusable { .. } => Self::Failed(reason),
        }
    }
}

/// What came of a call.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) failed: bool,
    /// What the sandbox did not let it reach.
    pub(crate) blocked: Option<PathBuf>,
    /// Shown to people, and told to the model if `told` is not.
    pub(crate) text: Option<String>,
    /// Shown to both, after the text: images.
    pub(crate) images: Vec<Image>,
    pub(crate) told: Option<String>,
    /// The text is no Markdown.
    pub(crate) plain_text: bool,
    pub(crate) exit: Option<(Option<i32>, Option<String>)>,
    pub(crate) locations: Vec<Location>,
    pub(crate) changes: Vec<FileChange>,
    /// The editor's terminal that it ran in, given back when its end is told.
    pub(crate) terminal: Option<Terminal>,
}

impl Outcome {
    pub(crate) fn failed(reason: String) -> Self {
        Self { failed: true, text: Some(reason), ..Self::default() }
    }

    fn text(text: String) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    /// Names, or what a command wrote: shown as it is.
    fn plain(text: String) -> Self {
        Self { plain_text: true, ..Self::text(text) }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Failed(reason) => Self::failed(reason),
            Failure::Blocked { path, reason } => Self { blocked: Some(path), ..Self::failed(reason) },
        }
    }
}

/// Runs file work off the async threads. It is short and runs to its end even if the turn is
/// cancelled: a file is never left half written.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|_| "the tool broke; this is a bug".to_owned())
}

/// File work as a tool's run.
fn file_work(
    work: impl FnOnce() -> Result<Outcome, Failure> + Send + 'static,
) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        let outcome = blocking(work).await.map_err(Failure::from).and_then(|outcome| outcome);
        outcome.unwrap_or_else(Outcome::from)
    })
}

fn arguments<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Some models send nothing at all where every argument is optional.
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text)
        .map_err(|error| format!("the arguments are not as the tool needs them: {error}"))
}

/// A whole file, if there is one and it is not too large.
pub(crate) fn read_whole(files: &Files, spot: &Spot) -> Result<Option<Vec<u8>>, Failure> {
    let file = match files.open_file(spot) {
        Ok(file) => file,
        Err(FileError::Unusable { reason: Unfit::Missing, .. }) => return Ok(None),
        Err(FileError::Unusable { reason: Unfit::Folder, .. }) => {
            return Err("it is a folder; list it".into());
        }
        Err(FileError::Unusable { reason: reason @ Unfit::Special, .. }) => {
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

fn as_text(bytes: Vec<u8>) -> Result<String, Failure> {
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
        assert!(
            wrong.contains("the tools are Read, Edit, Write, Bash") && wrong.contains("shell"),
            "{wrong}"
        );
    }

    #[test]
    fn each_tool_is_described_and_its_risk_class_is_fixed() {
        let line = |tool: &Arc<Tool>| {
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
