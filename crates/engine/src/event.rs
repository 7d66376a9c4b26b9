//! What can stand in a session's log.
//!
//! An event says what happened, never what somebody should do about it. Every dialect gives each
//! kind a shape, or visibly none: matches on [`Body`] have no wildcard. Whoever only follows some of it
//! looks at a kind's [`Family`].

mod family;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::authority::{ConsentKind, Standing};
use crate::client_host::TerminalId;
use crate::content::{
    CommandSpec, Content, Exit, FileChange, Location, Opaque, OutputStream, PlanEntry, ToolContent, ToolKind,
};
use crate::ids::{AskId, CallId, MessageId, Seq, SessionId, SurfaceId, Timestamp, TurnId};
use crate::settings::SettingSpec;

pub use self::family::{
    ContextEvent, Family, PermissionEvent, SetupEvent, SpeechEvent, ToolEvent, TurnEvent,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub seq: Seq,
    pub at: Timestamp,
    pub origin: Origin,
    pub turn: Option<TurnId>,
    pub body: Body,
    /// The original message of an external agent, where the body alone would lose something.
    pub relayed: Option<Opaque>,
}

impl Event {
    /// The event as it is imported into a log of this machine: remembered answers from elsewhere do not hold
    /// here.
    pub(crate) fn imported(mut self) -> Self {
        if let Body::Resolved { by: Resolver::Surface { standing, .. }, .. } = &mut self.body {
            *standing = Standing::Unknown;
        }
        self
    }

    /// Roughly how many bytes of memory this event holds: what the ring is bounded by.
    pub fn weight(&self) -> usize {
        self.body.weight() + self.relayed.as_ref().map_or(0, |relayed| relayed.0.len())
    }
}

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The session itself: recovery, deadlines, policy.
    Engine,
    Agent,
    /// A sub-agent, at work for this call of the agent's.
    Task {
        call: CallId,
    },
    /// A connection, with the name its client gave.
    Surface {
        id: SurfaceId,
        name: Arc<str>,
        /// The client's own name for its request, where the end of what it caused answers that request.
        request: Option<Arc<str>>,
        /// The person at another machine, if this came over the bridge.
        remote: Option<Arc<str>>,
    },
}

impl Origin {
    /// The call that a sub-agent works for, if it was one.
    pub fn task(&self) -> Option<&CallId> {
        match self {
            Self::Task { call } => Some(call),
            Self::Engine | Self::Agent | Self::Surface { .. } => None,
        }
    }

    /// The person who caused it over the bridge, if it came that way.
    pub fn remote(&self) -> Option<&Arc<str>> {
        match self {
            Self::Surface { remote, .. } => remote.as_ref(),
            Self::Engine | Self::Agent | Self::Task { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// A prompt was accepted while another turn runs. Its turn starts later.
    TurnQueued {
        content: Vec<Content>,
    },
    TurnStarted,
    UserMessage {
        content: Vec<Content>,
    },
    Text {
        message: MessageId,
        text: Arc<str>,
    },
    Thought {
        message: MessageId,
        text: Arc<str>,
    },
    Plan {
        entries: Vec<PlanEntry>,
    },
    ToolStarted(Box<ToolStart>),
    /// Output of a command while it runs.
    ToolOutput {
        call: CallId,
        stream: OutputStream,
        text: Arc<str>,
    },
    /// A command runs in a terminal of this surface, which alone can show it.
    ToolTerminal {
        call: CallId,
        terminal: TerminalId,
        surface: SurfaceId,
    },
    /// New details of a running call.
    ToolChanged(Box<ToolChange>),
    ToolEnded(Box<ToolEnd>),
    FileEdited {
        call: Option<CallId>,
        change: FileChange,
    },
    /// The agent points at a place, and an editor may follow.
    FileShown {
        location: Location,
    },
    Asked {
        ask: AskId,
        request: Box<AskRequest>,
    },
    Resolved {
        ask: AskId,
        call: Option<CallId>,
        resolution: Resolution,
        by: Resolver,
        /// The answer to a question, or the reason for a refusal.
        reply: Option<Arc<str>>,
        /// The remembered answer holds only for exactly the arguments that were asked about, not for
        /// everything with their subject.
        exactly: bool,
    },
    CancelRequested {
        /// Why, in the words of the client, if it gave any.
        reason: Option<Arc<str>>,
    },
    PolicyBlocked {
        call: Option<CallId>,
        tool: Arc<str>,
        path: Option<PathBuf>,
        mode: Arc<str>,
        reason: Arc<str>,
    },
    SettingChanged {
        id: Arc<str>,
        value: Arc<str>,
    },
    /// The settings that the external agent offers in this session. They replace the earlier ones.
    Offered {
        settings: Vec<SettingSpec>,
    },
    /// The session is linked to an external agent's session, by that agent's own id for it. A fork copies
    /// this event from its source, so the event names the session it belongs to.
    Joined {
        agent: Arc<str>,
        session: Arc<str>,
        of: SessionId,
        /// Other fields of the agent's answer when it opened its session.
        extra: Option<Opaque>,
    },
    Usage(Usage),
    Commands {
        commands: Vec<CommandSpec>,
    },
    Title {
        title: Arc<str>,
    },
    Notice {
        level: NoticeLevel,
        text: Arc<str>,
    },
    /// Everything before this is forgotten: neither replayed nor shown to the model.
    Cleared,
    /// The conversation is being summarised for the model, or that was given up.
    Compacting {
        given_up: bool,
    },
    /// The model's view of everything before this is replaced by the summary; people still see it all.
    Compacted {
        summary: Arc<str>,
    },
    /// The tools of later calls run here.
    Moved {
        cwd: PathBuf,
        /// The folder that the session worked in before, if it is known.
        from: Option<PathBuf>,
    },
    /// A message of an external agent that we do not understand, kept unchanged for clients that may
    /// understand it.
    Foreign {
        payload: Opaque,
    },
    TurnEnded {
        stop: Stop,
        error: Option<Arc<str>>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolStart {
    pub call: CallId,
    pub tool: Arc<str>,
    pub title: Arc<str>,
    pub kind: ToolKind,
    pub locations: Vec<Location>,
    pub input: Opaque,
    /// The client in whose terminal the command is about to run, if that is known before the request.
    pub client_terminal: Option<SurfaceId>,
}

impl ToolStart {
    /// A call with nothing but an id and a title.
    pub fn new(call: CallId, tool: Arc<str>, title: Arc<str>) -> Self {
        Self {
            call,
            tool,
            title,
            kind: ToolKind::Other,
            locations: Vec::new(),
            input: Opaque("{}".into()),
            client_terminal: None,
        }
    }
}

/// An update of a running call. Fields that are absent stay as they were.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolChange {
    pub call: CallId,
    pub title: Option<Arc<str>>,
    pub kind: Option<ToolKind>,
    pub locations: Option<Vec<Location>>,
    pub input: Option<Opaque>,
    /// The content that the call shows from now on.
    pub content: Option<Vec<ToolContent>>,
}

impl ToolChange {
    /// Nothing is new yet.
    pub fn of(call: CallId) -> Self {
        Self { call, title: None, kind: None, locations: None, input: None, content: None }
    }

    fn weight(&self) -> usize {
        let content = self.content.iter().flatten().map(ToolContent::weight).sum::<usize>();
        let input = self.input.as_ref().map_or(0, |input| input.0.len());
        content + input + self.title.as_ref().map_or(0, |title| title.len()) + 64
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolEnd {
    pub call: CallId,
    pub failed: bool,
    /// Empty leaves what the call showed so far (an edit's diff) as it is.
    pub content: Vec<ToolContent>,
    pub locations: Vec<Location>,
    /// The text for the model, where it is not simply `content`.
    pub raw: Option<Opaque>,
    pub exit: Option<Exit>,
    /// Its text is no Markdown: names of files, what a command wrote.
    pub plain_text: bool,
    pub elapsed_ms: u64,
}

impl ToolEnd {
    /// It went well, at once, and shows no more than it did.
    pub fn of(call: CallId) -> Self {
        Self {
            call,
            failed: false,
            content: Vec::new(),
            locations: Vec::new(),
            raw: None,
            exit: None,
            plain_text: false,
            elapsed_ms: 0,
        }
    }
}

/// A tool's request to do something, as the policy and, if need be, a person decide it.
#[derive(Debug, Clone, PartialEq)]
pub struct AskRequest {
    pub call: Option<CallId>,
    pub tool: Arc<str>,
    pub title: Arc<str>,
    pub kind: ToolKind,
    pub class: ToolClass,
    /// The file that the action is about, if it is about one.
    pub path: Option<PathBuf>,
    /// What exactly "always" would allow: a command's text, a file's path.
    pub subject: Arc<str>,
    pub input: Opaque,
    pub risk: Risk,
    pub reason: Arc<str>,
    /// Shown to the person who decides, for example the diff of an edit.
    pub preview: Vec<ToolContent>,
    /// The question to the person, if this is a question and not a permission request.
    pub question: Option<Question>,
    /// The request in the words of the external agent that makes it.
    pub foreign: Option<Box<ForeignAsk>>,
    /// A digest of what the owner at the machine consents to, for requests that only the owner may allow.
    pub consent: Option<Arc<str>>,
    /// The rule that a remembered answer would write, if it would write one.
    pub rule: Option<Arc<str>>,
}

impl AskRequest {
    /// About how many bytes it takes to keep it.
    pub fn weight(&self) -> usize {
        let asked = self.question.as_ref().map_or(0, Question::weight);
        let preview = self.preview.iter().map(ToolContent::weight).sum::<usize>();
        let foreign = self.foreign.as_ref().map_or(0, |foreign| foreign.weight());
        let rule = self.rule.as_ref().map_or(0, |rule| rule.len());
        self.input.0.len() + preview + asked + foreign + rule + 256
    }

    /// A request with nothing but a tool and a subject. "Always" would allow everything with the same
    /// subject.
    pub fn new(tool: &str, title: impl Into<Arc<str>>, class: ToolClass) -> Self {
        let title = title.into();
        let (kind, risk) = match class {
            ToolClass::Read => (ToolKind::Read, Risk::Low),
            ToolClass::Edit => (ToolKind::Edit, Risk::Medium),
            ToolClass::Execute => (ToolKind::Execute, Risk::Medium),
            ToolClass::Network => (ToolKind::Fetch, Risk::Medium),
        };
        Self {
            call: None,
            tool: tool.into(),
            subject: Arc::clone(&title),
            title,
            kind,
            class,
            path: None,
            input: Opaque("{}".into()),
            risk,
            reason: "".into(),
            preview: Vec::new(),
            question: None,
            foreign: None,
            consent: None,
            rule: None,
        }
    }

    /// Whether this is for the owner at the machine alone to allow.
    pub fn is_consent(&self) -> bool {
        self.consent_kind().is_some()
    }

    pub fn consent_kind(&self) -> Option<ConsentKind> {
        ConsentKind::of(&self.tool, self.consent.as_deref())
    }
}

/// An external agent's own permission request, with the answers it offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignAsk {
    pub options: Vec<AskOption>,
    /// The request's parameters, word for word.
    pub params: Opaque,
}

/// One answer that an external agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskOption {
    pub id: Arc<str>,
    pub name: Arc<str>,
    /// What the option means: allowed or denied, once or always.
    pub means: Resolution,
}

impl ForeignAsk {
    pub fn option(&self, id: &str) -> Option<&AskOption> {
        self.options.iter().find(|option| *option.id == *id)
    }

    /// The option that says this, or the one that comes nearest without saying more.
    pub fn nearest(&self, wanted: Resolution) -> Option<&AskOption> {
        let with = |means: Resolution| self.options.iter().find(move |option| option.means == means);
        match wanted {
            Resolution::AllowedAlways => {
                with(Resolution::AllowedAlways).or_else(|| with(Resolution::AllowedOnce))
            }
            Resolution::AllowedOnce => with(Resolution::AllowedOnce),
            Resolution::DeniedAlways => {
                with(Resolution::DeniedAlways).or_else(|| with(Resolution::DeniedOnce))
            }
            Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => with(Resolution::DeniedOnce),
        }
    }

    pub fn weight(&self) -> usize {
        let named = |option: &AskOption| option.id.len() + option.name.len() + 48;
        self.params.0.len() + self.options.iter().map(named).sum::<usize>()
    }
}

impl AskRequest {
    /// The action itself, or one for each of the files if it would change others than the one it names.
    pub(crate) fn by_file(&self) -> Vec<Cow<'_, Self>> {
        let mut requests = vec![Cow::Borrowed(self)];
        for content in &self.preview {
            let ToolContent::Diff(FileChange { path, .. }) = content else { continue };
            if self.path.as_ref().is_some_and(|own| own != path) {
                let subject = path.to_string_lossy().into();
                requests.push(Cow::Owned(Self {
                    path: Some(path.clone()),
                    subject,
                    preview: Vec::new(),
                    ..self.clone()
                }));
            }
        }
        requests
    }
}

/// A question that the agent asks the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub text: Arc<str>,
    /// The choices. If empty, any text is an answer.
    pub choices: Vec<Arc<str>>,
    /// Something else than the choices may be answered too.
    pub free_text: bool,
}

impl Question {
    /// Whether this answers it.
    pub fn takes(&self, reply: &str) -> bool {
        let free = self.free_text || self.choices.is_empty();
        let chosen = self.choices.iter().any(|choice| choice.as_ref() == reply);
        chosen || (free && !reply.trim().is_empty() && reply.len() <= REPLY_BYTES_MAX)
    }

    pub fn weight(&self) -> usize {
        self.text.len() + self.choices.iter().map(|choice| choice.len() + 16).sum::<usize>()
    }
}

/// The longest answer of a person to a question, or reason for a refusal, in bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 64 << 10;

/// What a use of a tool can change. It decides the permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// Looks at files of the workspace.
    Read,
    /// Changes files of the workspace.
    Edit,
    /// Runs a program.
    Execute,
    /// Reaches another machine.
    Network,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    AllowedOnce,
    AllowedAlways,
    DeniedOnce,
    DeniedAlways,
    /// The turn was cancelled before anybody answered.
    Cancelled,
    /// Nobody answered before the timeout.
    TimedOut,
    /// The server stopped while the question was open.
    EndedByRestart,
}

impl Resolution {
    pub fn allows(self) -> bool {
        match self {
            Self::AllowedOnce | Self::AllowedAlways => true,
            Self::DeniedOnce
            | Self::DeniedAlways
            | Self::Cancelled
            | Self::TimedOut
            | Self::EndedByRestart => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolver {
    Policy {
        reason: Arc<str>,
    },
    Rule {
        reason: Arc<str>,
    },
    Surface {
        id: SurfaceId,
        name: Arc<str>,
        /// The person at another machine, if this came over the bridge.
        remote: Option<Arc<str>>,
        standing: Standing,
    },
    Engine,
}

impl Resolver {
    /// Who answered over the bridge, if it was answered that way.
    pub fn remote(&self) -> Option<&Arc<str>> {
        match self {
            Self::Surface { remote, .. } => remote.as_ref(),
            Self::Policy { .. } | Self::Rule { .. } | Self::Engine => None,
        }
    }

    /// Whether a remembered answer holds in this session alone, because it is not from the owner at the
    /// machine.
    pub fn for_session(&self) -> bool {
        match self {
            Self::Surface { standing, .. } => *standing == Standing::Other,
            Self::Policy { .. } | Self::Rule { .. } | Self::Engine => false,
        }
    }
}

/// Tokens and cost of one model call, and how full the context is after it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    pub context_used: u64,
    pub context_size: u64,
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    /// US dollars, of this call alone.
    pub cost_usd: f64,
    /// The model's price is not known, so `cost_usd` is meaningless.
    pub unpriced: bool,
}

impl Usage {
    /// The cost of the call, if it is known.
    pub fn known_usd(&self) -> Option<f64> {
        (!self.unpriced || self.cost_usd > 0.0).then_some(self.cost_usd)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeLevel {
    Info,
    Warning,
    Error,
    /// Replaces events that cannot be read and may have decided what the agent may do. State that is
    /// computed from the log takes the stricter side from here on.
    Damage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
    /// The agent failed; the event has the reason.
    Failed,
    /// The server stopped in the middle of the turn.
    Interrupted,
}
