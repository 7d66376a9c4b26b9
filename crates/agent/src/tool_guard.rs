//! The only way from a tool call of the model to running it.
//!
//! Every call passes here: it is logged, its path is checked, permission is asked, it is run, and its end is
//! logged. No tool does any of this itself, so none can forget it.
//!
//! **Invariant:** every call that was logged gets its end logged, whatever happens in between.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ::guard::{
    Assessment, ProposedAction, Workplace, assess_action, assess_unsandboxed, with_git_settings,
    with_steered_programs,
};
use engine::{
    AskRequest, Body, CallId, Content, Exit, Location, MODE, NoSuchTool, NoticeLevel, Opaque,
    PermissionOutcome, Risk, SessionGone, SurfaceId, ToolClass, ToolContent, ToolEnd, ToolKind, ToolStart,
    TurnContext,
};
use sandbox::{Mode, PathAccess, PermittedPath, ProtectedEntries};

use crate::agent::AgentSession;
use crate::editor_files::EditorCommand;
use crate::model::Image;
use crate::role::{self, Role};
use crate::summary_without_model::{cut, one_line};
use crate::tools::{self, Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, Toolbox};
use crate::workspace::Workspace;
use crate::{editor_reveal_hints, undo};

const TITLE_CHARS_MAX: usize = 120;
/// A longer command is assessed on a blocking thread.
const LINE_BYTES_ASSESSED_INLINE: usize = 512;

/// A tool call as the model made it.
pub(crate) struct ToolCallRequest {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: String,
}

/// A finished tool call: its start and end events.
pub(crate) struct FinishedCall {
    pub(crate) start: ToolStart,
    pub(crate) end: ToolEnd,
}

pub(crate) struct ToolGuard {
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    pub(crate) workspace: Workspace,
    /// All available tools.
    pub(crate) tools: Toolbox,
    /// The role, which restricts the tools.
    pub(crate) role: Arc<Role>,
}

/// Why a call is not run.
enum CallError {
    Failed(ToolFailure),
    Gone(SessionGone),
}

impl<T: Into<ToolFailure>> From<T> for CallError {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

impl ToolGuard {
    pub(crate) async fn perform(self, request: ToolCallRequest) -> Result<FinishedCall, SessionGone> {
        let began = Instant::now();
        let tool = self.tools.find(&request.tool).map(Arc::as_ref);
        let intent = match tool {
            None => {
                let tools = self.tools.iter().map(|tool| tool.name.to_string()).collect();
                Err(NoSuchTool { name: request.tool.to_string(), tools }.to_string())
            }
            Some(tool) => (tool.parse_call)(&request.arguments),
        };
        let start = self.start(&request, tool, intent.as_ref().ok());
        self.context.emit(Body::ToolStarted(Box::new(start.clone()))).await?;
        let outcome = match (tool, intent) {
            (Some(tool), Ok(intent)) => self.carry_out(tool, intent, &start).await,
            (_, Err(reason)) => Err(reason.into()),
            (None, Ok(_)) => Err("there is no such tool".into()),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(CallError::Failed(failure)) => failure.into(),
            Err(CallError::Gone(gone)) => return Err(gone),
        };
        if let Some(path) = &outcome.blocked {
            self.report_block(&start, path.clone(), outcome.text.as_deref().unwrap_or_default()).await?;
        }
        let reveal_hint = self.reveal_hint(start.kind, &outcome).await;
        let end = self.end(&start.call, outcome, began).await?;
        if let Some(location) = reveal_hint {
            self.context.emit(Body::FileShown { location }).await?;
        }
        Ok(FinishedCall { start, end })
    }

    /// The location to suggest to the editor. None for sub-agents, whose work the person does not follow.
    async fn reveal_hint(&self, kind: ToolKind, outcome: &ToolOutcome) -> Option<Location> {
        if self.context.works_for().is_some() {
            return None;
        }
        let (turn, reveal_hints) = (self.context.turn(), &self.session.reveal_hints);
        let failed = outcome.exit.as_ref().is_some_and(|(code, _)| code.is_some_and(|code| code != 0));
        let found = match outcome.text.clone().filter(|_| failed) {
            Some(text) => {
                let workspace = self.workspace.clone();
                tools::blocking(move || editor_reveal_hints::named_in(&text, &workspace)).await.ok().flatten()
            }
            None => reveal_hints.after(turn, kind, outcome),
        };
        reveal_hints.admit(turn, found?)
    }

    fn start(
        &self,
        request: &ToolCallRequest,
        tool: Option<&ToolDefinition>,
        intent: Option<&Intent>,
    ) -> ToolStart {
        let locations = |intent: &Intent| -> Vec<Location> {
            let own = intent.path.iter().map(|path| (path.clone(), intent.line));
            let further = intent.work.further_paths().into_iter().map(|path| (path, None));
            let location = |(path, line)| Location { path: self.workspace.cwd.join(path), line };
            own.chain(further).map(location).collect()
        };
        let title = intent.map_or(request.tool.as_str(), |intent| &intent.title);
        // Readers of the log rely on the input being JSON, but a model may have written something else.
        let input = if serde_json::from_str::<serde::de::IgnoredAny>(&request.arguments).is_ok() {
            request.arguments.clone()
        } else {
            serde_json::Value::from(request.arguments.as_str()).to_string()
        };
        ToolStart {
            call: request.call.clone(),
            tool: request.tool.as_str().into(),
            title: cut(&one_line(title), TITLE_CHARS_MAX).into(),
            kind: tool.map_or(ToolKind::Other, |tool| tool.kind),
            locations: intent.map(locations).unwrap_or_default(),
            input: Opaque(input.into()),
            client_terminal: intent.and_then(|intent| self.client_terminal(intent)),
        }
    }

    /// The client in whose terminal the command will run, if any: it needs no second terminal to show it.
    fn client_terminal(&self, intent: &Intent) -> Option<SurfaceId> {
        let editor = self.editor_terminal(intent.work.as_ref(), false)?;
        Some(editor.surface())
    }

    fn editor_terminal(&self, work: &dyn ToolWork, only_looks: bool) -> Option<EditorCommand> {
        let (line, typing) = work.editor_line()?;
        let reach = &self.session.shared.config.reach;
        EditorCommand::offered(line, typing, only_looks, &self.workspace, reach, &self.context)
    }

    async fn carry_out(
        &self,
        tool: &ToolDefinition,
        intent: Intent,
        start: &ToolStart,
    ) -> Result<ToolOutcome, CallError> {
        let want = if tool.class == ToolClass::Edit { PathAccess::Write } else { PathAccess::Read };
        let spot = self.resolve(intent.path.as_deref(), want).await?;
        let path = spot.as_ref().map(|spot| spot.real().to_owned());
        // What a built-in mode forbids is refused by the session's policy, as for every backend.
        let name = self.role.name.as_ref();
        let by_policy = role::is_built_in_mode(name) && name == self.context.settings().get(MODE);
        if !self.role.allows_name(&tool.name) || !by_policy && !self.role.may_use(tool) {
            let reason = self.role.refusal(tool);
            self.forbid(start, path, &reason).await.map_err(CallError::Gone)?;
            return Err(format!("not allowed: {reason}").into());
        }
        let further = self.resolve_all(intent.work.further_paths(), want).await?;
        let usual = (intent.risk, intent.reason);
        let subject = intent.subject.as_deref();
        let assessed = self.assess_all(tool.class, usual, subject, path.as_deref(), &further).await?;
        let only_looks = assessed.risk == Risk::Low;
        let editor = self.editor_terminal(intent.work.as_ref(), only_looks);
        let consent = editor.as_ref().and_then(EditorCommand::consent);
        let Assessment { risk, reason } =
            if consent.is_some() { assess_unsandboxed(assessed) } else { assessed };
        let job = Arc::new(ToolJob {
            call: start.call.clone(),
            spot,
            further,
            workspace: self.workspace.clone(),
            session: Arc::clone(&self.session),
            context: self.context.clone(),
            role: Arc::clone(&self.role),
            only_looks,
            editor,
            protected: Mutex::default(),
        });
        let (work, preview) = prepare(intent.work, &job).await?;
        let line = intent.subject.clone().filter(|_| tool.class == ToolClass::Execute && !only_looks);
        let subject =
            intent.subject.map(Arc::from).or_else(|| path.as_ref().map(|path| path.to_string_lossy().into()));
        let question = work.question();
        let answer_wanted = question.is_some();
        let request = AskRequest {
            call: Some(start.call.clone()),
            tool: Arc::clone(&tool.name),
            title: Arc::clone(&start.title),
            kind: tool.kind,
            class: tool.class,
            path,
            subject: subject.unwrap_or_else(|| Arc::clone(&tool.name)),
            input: start.input.clone(),
            risk,
            reason: reason.into(),
            preview,
            question,
            foreign: None,
            consent,
            rule: None,
        };
        match self.ask(request).await? {
            PermissionOutcome::Replied(reply) => Ok(tools::ask::answered(&reply)),
            PermissionOutcome::Denied { reason, .. } if answer_wanted => Ok(tools::ask::unanswered(&reason)),
            PermissionOutcome::Allowed => self.run(line, &job, work).await.map_err(CallError::Gone),
            PermissionOutcome::Denied { reason, .. } => Err(format!("not allowed: {reason}").into()),
        }
    }

    /// Runs an allowed call, and reports files it created that can make another program run something.
    async fn run(
        &self,
        line: Option<String>,
        job: &Arc<ToolJob>,
        work: Box<dyn ToolWork>,
    ) -> Result<ToolOutcome, SessionGone> {
        let before = self.protected_entries(line.is_some()).await;
        *job.protected() = before;
        let outcome = undo::record_command(line, job, work.run(Arc::clone(job))).await;
        let before = job.protected().take();
        self.report_new_entries(before).await?;
        Ok(outcome)
    }

    /// The highest risk over everything that a call is about.
    async fn assess_all(
        &self,
        class: ToolClass,
        usual: (Risk, &'static str),
        subject: Option<&str>,
        path: Option<&Path>,
        further: &[PermittedPath],
    ) -> Result<Assessment, CallError> {
        let mut worst = self.assess(class, usual, subject, path).await?;
        for spot in further {
            let next = self.assess(class, usual, None, Some(spot.real())).await?;
            worst = if next.risk > worst.risk { next } else { worst };
        }
        Ok(worst)
    }

    /// The risk of a call: what its tool says, or more if its path or command line is riskier.
    async fn assess(
        &self,
        class: ToolClass,
        (risk, reason): (Risk, &'static str),
        subject: Option<&str>,
        path: Option<&Path>,
    ) -> Result<Assessment, CallError> {
        let long = subject.is_some_and(|line| line.len() > LINE_BYTES_ASSESSED_INLINE);
        let (workspace, shared) = (self.workspace.clone(), Arc::clone(&self.session.shared));
        let (line, path) = (subject.map(str::to_owned), path.map(Path::to_owned));
        let assess = move || {
            let roots = workspace.policy().map_or(&[][..], |policy| &policy.roots);
            let home = shared.config.reach.homes.first().map(PathBuf::as_path);
            let action = ProposedAction { class, line: line.as_deref(), path: path.as_deref() };
            let usual = Assessment { risk, reason: reason.into() };
            let workplace = Workplace { cwd: &workspace.cwd, roots, home };
            let assessed = assess_action(action, usual, &workplace);
            let assessed = with_git_settings(assessed, action, || sandbox::git_program_setting(roots));
            with_steered_programs(assessed, action, &workplace, |program| {
                sandbox::steered_program(program, &shared.config.environment, &workspace.cwd, roots)
            })
        };
        // This takes microseconds for usual commands. Hostile ones take longer, and so does reading the
        // settings of repositories and resolving programs.
        let long = long || (class == ToolClass::Execute && subject.is_some());
        if long { Ok(tools::blocking(assess).await?) } else { Ok(assess()) }
    }

    /// A cancel settles open permission requests; the token covers one that is not open yet.
    async fn ask(&self, request: AskRequest) -> Result<PermissionOutcome, CallError> {
        tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => Err("the turn was cancelled".into()),
            verdict = self.context.ask(request) => verdict.map_err(CallError::Gone),
        }
    }

    async fn resolve(
        &self,
        path: Option<&str>,
        want: PathAccess,
    ) -> Result<Option<PermittedPath>, CallError> {
        let Some(path) = path.map(PathBuf::from) else { return Ok(None) };
        let workspace = self.workspace.clone();
        Ok(Some(tools::blocking(move || workspace.find(&path, want)).await??))
    }

    /// Files that can make another program run something, recorded before a command that may create more.
    async fn protected_entries(&self, changes: bool) -> Option<ProtectedEntries> {
        let workspace = self.workspace.clone();
        let look = move || workspace.policy().ok().map(|policy| ProtectedEntries::scan(&policy.roots));
        let fenced = self.workspace.mode() != Mode::Off;
        if changes && fenced && self.workspace.mode().writes() {
            tools::blocking(look).await.ok().flatten()
        } else {
            None
        }
    }

    /// Reports files that a command created and that the sandbox cannot prevent: a nested repository, an
    /// editor's settings in a folder.
    async fn report_new_entries(&self, before: Option<ProtectedEntries>) -> Result<(), SessionGone> {
        let Some(mut before) = before else { return Ok(()) };
        match tools::blocking(move || before.describe_new()).await.ok().flatten() {
            Some(text) => {
                self.context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await
            }
            None => Ok(()),
        }
    }

    /// Refuses a call that the role does not permit.
    async fn forbid(
        &self,
        start: &ToolStart,
        path: Option<PathBuf>,
        reason: &str,
    ) -> Result<(), SessionGone> {
        let blocked = Body::PolicyBlocked {
            call: Some(start.call.clone()),
            tool: Arc::clone(&start.tool),
            path,
            mode: Arc::clone(&self.role.name),
            reason: reason.into(),
        };
        self.context.emit(blocked).await
    }

    async fn resolve_all(
        &self,
        paths: Vec<String>,
        want: PathAccess,
    ) -> Result<Vec<PermittedPath>, CallError> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let workspace = self.workspace.clone();
        let find =
            move || paths.iter().map(|path| workspace.find(Path::new(path), want)).collect::<Result<_, _>>();
        Ok(tools::blocking(find).await??)
    }

    async fn report_block(&self, start: &ToolStart, path: PathBuf, reason: &str) -> Result<(), SessionGone> {
        let blocked = Body::PolicyBlocked {
            call: Some(start.call.clone()),
            tool: Arc::clone(&start.tool),
            path: (!path.as_os_str().is_empty()).then_some(path),
            mode: self.workspace.mode().name().into(),
            reason: reason.into(),
        };
        self.context.emit(blocked).await
    }

    async fn end(&self, call: &CallId, outcome: ToolOutcome, began: Instant) -> Result<ToolEnd, SessionGone> {
        for change in outcome.changes {
            self.context.emit(Body::FileEdited { call: Some(call.clone()), change }).await?;
        }
        let text = outcome.text.map(Content::text);
        let image = |Image { mime, data }| Content::Image { mime, data, uri: None };
        let blocks = text.into_iter().chain(outcome.images.into_iter().map(image));
        let exit = outcome.exit.map(|(code, signal)| Exit { code, signal: signal.map(Into::into) });
        let end = ToolEnd {
            call: call.clone(),
            failed: outcome.failed,
            content: blocks.map(ToolContent::Block).collect(),
            locations: outcome.locations,
            raw: outcome.model_text.map(|told| Opaque(serde_json::Value::from(told).to_string().into())),
            exit,
            plain_text: outcome.plain_text,
            elapsed_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.context.emit(Body::ToolEnded(Box::new(end.clone()))).await?;
        if let Some(terminal) = outcome.terminal {
            terminal.give_back(&self.context).await?;
        }
        Ok(end)
    }
}

/// Lets the tool prepare what it would do, on a blocking thread.
async fn prepare(
    work: Box<dyn ToolWork>,
    job: &Arc<ToolJob>,
) -> Result<(Box<dyn ToolWork>, Vec<ToolContent>), CallError> {
    let job = Arc::clone(job);
    let looked = tools::blocking(move || {
        let mut work = work;
        work.prepare(&job).map(|preview| (work, preview))
    });
    Ok(looked.await??)
}
