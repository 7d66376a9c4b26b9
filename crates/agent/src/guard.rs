//! The one way from a model's wish to a tool's deed.
//!
//! Whatever a model calls passes here: it is shown, its path is checked, permission is asked, it is
//! carried out, and its end is recorded. No tool does any of this itself, so none can forget it.
//!
//! **Invariant:** every call that is shown ends, whatever happens in between.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ::guard::{
    Assessment, Deed, Workplace, assess_deed, assess_outside, with_git_settings, with_steered_programs,
};
use engine::{
    AskRequest, Body, CallId, Content, Exit, Location, MODE, NoSuchTool, NoticeLevel, Opaque, Risk,
    SessionGone, SurfaceId, ToolClass, ToolContent, ToolEnd, ToolKind, ToolStart, TurnContext, Verdict,
};
use sandbox::{Mode, ProtectedEntries, Spot, Want};

use crate::agent::AgentSession;
use crate::host::EditorTerminal;
use crate::model::Image;
use crate::place::Place;
use crate::role::{self, Role};
use crate::summary::{cut, one_line};
use crate::tools::{self, Failure, Intent, Job, Outcome, Tool, Toolbox, Work};
use crate::{pointing, undo};

const TITLE_CHARS_MAX: usize = 120;
/// A longer command is judged off the async threads.
const LINE_BYTES_JUDGED_AT_ONCE: usize = 512;

/// A tool call as the model made it.
pub(crate) struct Wanted {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: String,
}

/// A tool call from its beginning to its end, as the log has it.
pub(crate) struct Ran {
    pub(crate) start: ToolStart,
    pub(crate) end: ToolEnd,
}

pub(crate) struct Guard {
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    pub(crate) place: Place,
    /// Every tool there is.
    pub(crate) tools: Toolbox,
    /// What may be done of it.
    pub(crate) role: Arc<Role>,
}

/// Why a call is not carried out.
enum Stopped {
    Failed(Failure),
    Gone(SessionGone),
}

impl<T: Into<Failure>> From<T> for Stopped {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

impl Guard {
    pub(crate) async fn perform(self, wanted: Wanted) -> Result<Ran, SessionGone> {
        let began = Instant::now();
        let tool = self.tools.find(&wanted.tool).map(Arc::as_ref);
        let intent = match tool {
            None => {
                let tools = self.tools.iter().map(|tool| tool.name.to_string()).collect();
                Err(NoSuchTool { name: wanted.tool.to_string(), tools }.to_string())
            }
            Some(tool) => (tool.intend)(&wanted.arguments),
        };
        let start = self.start(&wanted, tool, intent.as_ref().ok());
        self.context.emit(Body::ToolStarted(Box::new(start.clone()))).await?;
        let outcome = match (tool, intent) {
            (Some(tool), Ok(intent)) => self.carry_out(tool, intent, &start).await,
            (_, Err(reason)) => Err(reason.into()),
            (None, Ok(_)) => Err("there is no such tool".into()),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(Stopped::Failed(failure)) => failure.into(),
            Err(Stopped::Gone(gone)) => return Err(gone),
        };
        if let Some(path) = &outcome.blocked {
            self.report_block(&start, path.clone(), outcome.text.as_deref().unwrap_or_default()).await?;
        }
        let pointed_at = self.pointed_at(start.kind, &outcome).await;
        let end = self.end(&start.call, outcome, began).await?;
        if let Some(location) = pointed_at {
            self.context.emit(Body::FileShown { location }).await?;
        }
        Ok(Ran { start, end })
    }

    /// The place that an editor may reveal. What a sub-agent does is not what the person follows.
    async fn pointed_at(&self, kind: ToolKind, outcome: &Outcome) -> Option<Location> {
        if self.context.works_for().is_some() {
            return None;
        }
        let (turn, pointing) = (self.context.turn(), &self.session.pointing);
        let failed = outcome.exit.as_ref().is_some_and(|(code, _)| code.is_some_and(|code| code != 0));
        let found = match outcome.text.clone().filter(|_| failed) {
            Some(text) => {
                let place = self.place.clone();
                tools::blocking(move || pointing::named_in(&text, &place)).await.ok().flatten()
            }
            None => pointing.after(turn, kind, outcome),
        };
        pointing.admit(turn, found?)
    }

    fn start(&self, wanted: &Wanted, tool: Option<&Tool>, intent: Option<&Intent>) -> ToolStart {
        let locations = |intent: &Intent| -> Vec<Location> {
            let own = intent.path.iter().map(|path| (path.clone(), intent.line));
            let further = intent.work.further_paths().into_iter().map(|path| (path, None));
            let location = |(path, line)| Location { path: self.place.cwd.join(path), line };
            own.chain(further).map(location).collect()
        };
        let title = intent.map_or(wanted.tool.as_str(), |intent| &intent.title);
        // Readers of the log may rely on the input being JSON; a model may not have written any.
        let input = if serde_json::from_str::<serde::de::IgnoredAny>(&wanted.arguments).is_ok() {
            wanted.arguments.clone()
        } else {
            serde_json::Value::from(wanted.arguments.as_str()).to_string()
        };
        ToolStart {
            call: wanted.call.clone(),
            tool: wanted.tool.as_str().into(),
            title: cut(&one_line(title), TITLE_CHARS_MAX).into(),
            kind: tool.map_or(ToolKind::Other, |tool| tool.kind),
            locations: intent.map(locations).unwrap_or_default(),
            input: Opaque(input.into()),
            client_terminal: intent.and_then(|intent| self.client_terminal(intent)),
        }
    }

    /// Where the command will run, if that is a terminal of the client's: whoever shows it needs no other.
    fn client_terminal(&self, intent: &Intent) -> Option<SurfaceId> {
        let editor = self.editor_terminal(intent.work.as_ref(), false)?;
        Some(editor.surface())
    }

    fn editor_terminal(&self, work: &dyn Work, only_looks: bool) -> Option<EditorTerminal> {
        let (line, typing) = work.editor_line()?;
        let reach = &self.session.shared.config.reach;
        EditorTerminal::offered(line, typing, only_looks, &self.place, reach, &self.context)
    }

    async fn carry_out(&self, tool: &Tool, intent: Intent, start: &ToolStart) -> Result<Outcome, Stopped> {
        let want = if tool.class == ToolClass::Edit { Want::Write } else { Want::Read };
        let spot = self.find(intent.path.as_deref(), want).await?;
        let path = spot.as_ref().map(|spot| spot.real().to_owned());
        // What a built-in mode forbids, the session's policy refuses, as it does for every backend.
        let name = self.role.name.as_ref();
        let by_policy = role::is_built_in_mode(name) && name == self.context.settings().get(MODE);
        if !self.role.allows_name(&tool.name) || !by_policy && !self.role.may_use(tool) {
            let reason = self.role.refusal(tool);
            self.forbid(start, path, &reason).await.map_err(Stopped::Gone)?;
            return Err(format!("not allowed: {reason}").into());
        }
        let further = self.find_all(intent.work.further_paths(), want).await?;
        let usual = (intent.risk, intent.reason);
        let subject = intent.subject.as_deref();
        let assessed = self.assess_all(tool.class, usual, subject, path.as_deref(), &further).await?;
        let only_looks = assessed.risk == Risk::Low;
        let editor = self.editor_terminal(intent.work.as_ref(), only_looks);
        let consent = editor.as_ref().and_then(EditorTerminal::consent);
        let Assessment { risk, reason } = if consent.is_some() { assess_outside(assessed) } else { assessed };
        let job = Arc::new(Job {
            call: start.call.clone(),
            spot,
            further,
            place: self.place.clone(),
            session: Arc::clone(&self.session),
            context: self.context.clone(),
            role: Arc::clone(&self.role),
            only_looks,
            editor,
            protected: Mutex::default(),
        });
        let (work, preview) = prepared(intent.work, &job).await?;
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
            Verdict::Replied(reply) => Ok(tools::ask::answered(&reply)),
            Verdict::Denied { reason, .. } if answer_wanted => Ok(tools::ask::unanswered(&reason)),
            Verdict::Allowed => self.run(line, &job, work).await.map_err(Stopped::Gone),
            Verdict::Denied { reason, .. } => Err(format!("not allowed: {reason}").into()),
        }
    }

    /// Does what was allowed, and tells what it left that can make another program run something.
    async fn run(
        &self,
        line: Option<String>,
        job: &Arc<Job>,
        work: Box<dyn Work>,
    ) -> Result<Outcome, SessionGone> {
        let before = self.protected_entries(line.is_some()).await;
        *job.protected() = before;
        let outcome = undo::around(line, job, work.run(Arc::clone(job))).await;
        let before = job.protected().take();
        self.tell_of_new(before).await?;
        Ok(outcome)
    }

    /// How risky a wish is in all that it is about.
    async fn assess_all(
        &self,
        class: ToolClass,
        usual: (Risk, &'static str),
        subject: Option<&str>,
        path: Option<&Path>,
        further: &[Spot],
    ) -> Result<Assessment, Stopped> {
        let mut worst = self.assess(class, usual, subject, path).await?;
        for spot in further {
            let next = self.assess(class, usual, None, Some(spot.real())).await?;
            worst = if next.risk > worst.risk { next } else { worst };
        }
        Ok(worst)
    }

    /// How risky a wish is: as its tool says, or worse if what it is about is worse.
    async fn assess(
        &self,
        class: ToolClass,
        (risk, reason): (Risk, &'static str),
        subject: Option<&str>,
        path: Option<&Path>,
    ) -> Result<Assessment, Stopped> {
        let long = subject.is_some_and(|line| line.len() > LINE_BYTES_JUDGED_AT_ONCE);
        let (place, shared) = (self.place.clone(), Arc::clone(&self.session.shared));
        let (line, path) = (subject.map(str::to_owned), path.map(Path::to_owned));
        let assess = move || {
            let roots = place.policy().map_or(&[][..], |policy| &policy.roots);
            let home = shared.config.reach.homes.first().map(PathBuf::as_path);
            let deed = Deed { class, line: line.as_deref(), path: path.as_deref() };
            let usual = Assessment { risk, reason: reason.into() };
            let workplace = Workplace { cwd: &place.cwd, roots, home };
            let assessed = assess_deed(deed, usual, &workplace);
            let assessed = with_git_settings(assessed, deed, || sandbox::git_program(roots));
            with_steered_programs(assessed, deed, &workplace, |program| {
                sandbox::steered_program(program, &shared.config.environment, &place.cwd, roots)
            })
        };
        // Some microseconds for what people write; what is made to be hard takes longer, and so does looking
        // at the settings of repositories and at where programs lie.
        let long = long || (class == ToolClass::Execute && subject.is_some());
        if long { Ok(tools::blocking(assess).await?) } else { Ok(assess()) }
    }

    /// The session settles open asks on a cancel; the token covers an ask that is still on its way.
    async fn ask(&self, request: AskRequest) -> Result<Verdict, Stopped> {
        tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => Err("the turn was cancelled".into()),
            verdict = self.context.ask(request) => verdict.map_err(Stopped::Gone),
        }
    }

    async fn find(&self, path: Option<&str>, want: Want) -> Result<Option<Spot>, Stopped> {
        let Some(path) = path.map(PathBuf::from) else { return Ok(None) };
        let place = self.place.clone();
        Ok(Some(tools::blocking(move || place.find(&path, want)).await??))
    }

    /// What can make another program run something, before a command that may add to it.
    async fn protected_entries(&self, changes: bool) -> Option<ProtectedEntries> {
        let place = self.place.clone();
        let look = move || place.policy().ok().map(|policy| ProtectedEntries::look(&policy.roots));
        let fenced = self.place.mode() != Mode::Off;
        if changes && fenced && self.place.mode().writes() {
            tools::blocking(look).await.ok().flatten()
        } else {
            None
        }
    }

    /// A command can make what no fence holds: a nested repository, an editor's settings in a folder.
    async fn tell_of_new(&self, before: Option<ProtectedEntries>) -> Result<(), SessionGone> {
        let Some(mut before) = before else { return Ok(()) };
        match tools::blocking(move || before.notice()).await.ok().flatten() {
            Some(text) => {
                self.context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await
            }
            None => Ok(()),
        }
    }

    /// Who the agent is at the moment does not do such things.
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

    async fn find_all(&self, paths: Vec<String>, want: Want) -> Result<Vec<Spot>, Stopped> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let place = self.place.clone();
        let find =
            move || paths.iter().map(|path| place.find(Path::new(path), want)).collect::<Result<_, _>>();
        Ok(tools::blocking(find).await??)
    }

    async fn report_block(&self, start: &ToolStart, path: PathBuf, reason: &str) -> Result<(), SessionGone> {
        let blocked = Body::PolicyBlocked {
            call: Some(start.call.clone()),
            tool: Arc::clone(&start.tool),
            path: (!path.as_os_str().is_empty()).then_some(path),
            mode: self.place.mode().name().into(),
            reason: reason.into(),
        };
        self.context.emit(blocked).await
    }

    async fn end(&self, call: &CallId, outcome: Outcome, began: Instant) -> Result<ToolEnd, SessionGone> {
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
            raw: outcome.told.map(|told| Opaque(serde_json::Value::from(told).to_string().into())),
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

/// Lets the tool look at what it would do, off the async threads.
async fn prepared(work: Box<dyn Work>, job: &Arc<Job>) -> Result<(Box<dyn Work>, Vec<ToolContent>), Stopped> {
    let job = Arc::clone(job);
    let looked = tools::blocking(move || {
        let mut work = work;
        work.prepare(&job).map(|preview| (work, preview))
    });
    Ok(looked.await??)
}
