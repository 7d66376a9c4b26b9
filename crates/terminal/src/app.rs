//! The state of the full-screen client, and what a key or a frame does to it: a value without clock, terminal or
//! connection.
//!
//! `apply` takes one input and returns effects; `prepare` lays out what changed for the size of the screen; drawing
//! only reads. The client shows only what the server sent, so that two clients of one session cannot differ; nothing
//! is assumed to be done before the server confirms it.

mod keys;
mod quit;
mod requests;
mod server_frames;

use std::collections::HashMap;

use crossterm::event::{KeyEvent, MouseEvent};
use wire::native::{Request, RequestEnvelope, ServerFrame, ServerHello, SessionCard, SessionState};

use crate::ask_panel::AskPanel;
use crate::completion::Completions;
use crate::composer::Composer;
use crate::formatting;
use crate::layout::Areas;
use crate::session_opener::{OpenFailure, SessionOpener, StartOptions};
use crate::session_picker::Picker;
use crate::theme::Theme;
use crate::transcript::Transcript;

/// How long a status message is shown.
const STATUS_MESSAGE_MS: u64 = 6_000;
/// A person who keeps typing without a pause of this length has not noticed that the text moved to the composer.
const SEND_BLOCK_MS: u64 = 600;

/// How the full-screen client is used.
#[derive(Debug, Clone)]
pub struct FullScreenOptions {
    pub theme: Theme,
    /// The server is another process, which continues without this client.
    pub shared: bool,
    /// The person's home folder, for shorter paths.
    pub home: Option<String>,
    /// The address of the server for a browser.
    pub address: Option<String>,
    /// Makes the keys of our prompts differ from those of other clients.
    pub seed: u64,
    /// Warnings that are shown for as long as the client runs.
    pub warnings: Vec<String>,
    /// Ctrl-C leaves at once if no turn runs, even with text in the composer: it ends more than this client.
    pub interrupt_ends: bool,
}

#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    /// Whether the terminal has the focus.
    Focus(bool),
    Frame(Box<ServerFrame>),
    Connected,
    /// The status lines of the program that runs this client; they replace those before.
    Status(Vec<String>),
    /// The connection was lost; the next attempt is after this time.
    Disconnected {
        why: String,
        retry_ms: u64,
    },
    /// Time passed.
    Tick,
}

#[derive(Debug, PartialEq)]
pub enum Effect {
    Send(RequestEnvelope),
    /// A desktop notification, for a person who does not look at the terminal.
    Notify(String),
    /// Text for the clipboard.
    Copy(String),
    /// Draw the whole screen again.
    Repaint,
    Leave,
    Fail(OpenFailure),
}

#[derive(Debug)]
pub struct App {
    pub options: FullScreenOptions,
    pub start_options: StartOptions,
    /// In milliseconds since the client began.
    pub now: u64,
    pub connection: ConnectionState,
    pub hello: Option<ServerHello>,
    /// The last status lines of the program that runs this client.
    pub status: Vec<String>,
    /// Faults of the machine, as the server reports them.
    pub faults: Vec<String>,
    /// How far the server's clock is ahead of ours.
    skew: i64,
    pub cards: Vec<SessionCard>,
    pub phase: SessionPhase,
    pub session: Option<String>,
    /// The position up to which views were received.
    upto: Option<u64>,
    pub state: Option<SessionState>,
    pub transcript: Transcript,
    pub composer: Composer,
    pub completions: Completions,
    pub ask_panel: AskPanel,
    pub focus: Focus,
    /// The person left the ask panel to write.
    ask_panel_left: bool,
    /// Until then Enter sends nothing: the text was moved to the composer while the person typed it.
    send_blocked_until: u64,
    pub picker: Option<Picker>,
    pub help: bool,
    pub plan_open: bool,
    pub status_message: Option<StatusMessage>,
    terminal_focused: bool,
    escape_at: Option<u64>,
    leave_armed: bool,
    pending: HashMap<u64, PendingRequest>,
    next_id: u64,
    next_key: u64,
    /// Prompts that the server has not confirmed, by key.
    pub unsent: Vec<UnsentPrompt>,
    pub loading: bool,
    pub areas: Areas,
}

#[derive(Debug)]
pub enum SessionPhase {
    Opening(SessionOpener),
    Open,
    /// The session can no longer be shown, for this reason.
    Over(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    Connecting,
    Up,
    Down { why: String, retry_at: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Composer,
    AskPanel,
    Transcript,
}

#[derive(Debug)]
pub struct StatusMessage {
    pub text: String,
    pub bad: bool,
    until: u64,
}

#[derive(Debug, Clone)]
pub struct UnsentPrompt {
    key: String,
    pub text: String,
}

/// What to do with the reply to a request.
#[derive(Debug)]
enum PendingRequest {
    Opening,
    /// A new session was opened, to be shown instead of this one.
    New,
    Watch,
    Prompt(String),
    Answer(u64),
    Files {
        from: usize,
        text: String,
    },
    Earlier,
    Whole(u64),
    /// Only an error is shown.
    Other,
}

impl App {
    pub fn new(start_options: StartOptions, options: FullScreenOptions) -> Self {
        let opener = SessionOpener::new(&start_options);
        Self {
            options,
            start_options,
            now: 0,
            connection: ConnectionState::Connecting,
            hello: None,
            status: Vec::new(),
            faults: Vec::new(),
            skew: 0,
            cards: Vec::new(),
            phase: SessionPhase::Opening(opener),
            session: None,
            upto: None,
            state: None,
            transcript: Transcript::default(),
            composer: Composer::default(),
            completions: Completions::default(),
            ask_panel: AskPanel::default(),
            focus: Focus::Composer,
            ask_panel_left: false,
            send_blocked_until: 0,
            picker: None,
            help: false,
            plan_open: false,
            status_message: None,
            terminal_focused: true,
            escape_at: None,
            leave_armed: false,
            pending: HashMap::new(),
            next_id: 1,
            next_key: 1,
            unsent: Vec::new(),
            loading: false,
            areas: Areas::default(),
        }
    }

    pub fn apply(&mut self, now: u64, input: Input) -> Vec<Effect> {
        self.now = now;
        let mut effects = match input {
            Input::Key(key) => self.key(key),
            Input::Paste(text) => self.paste(&text),
            Input::Mouse(event) => self.mouse(event),
            Input::Focus(focused) => self.set_terminal_focus(focused),
            Input::Frame(frame) => self.frame(*frame),
            Input::Connected => {
                self.connection = ConnectionState::Up;
                Vec::new()
            }
            Input::Status(lines) => {
                self.status = lines;
                Vec::new()
            }
            Input::Disconnected { why, retry_ms } => {
                self.disconnected(why, retry_ms);
                Vec::new()
            }
            Input::Tick => Vec::new(),
        };
        if self.status_message.as_ref().is_some_and(|status_message| status_message.until <= now) {
            self.status_message = None;
        }
        self.settle_focus();
        effects.extend(self.load_earlier());
        effects
    }

    /// Lays everything out for a screen of this size.
    pub fn prepare(&mut self, width: u16, height: u16) {
        self.areas = Areas::of(self, width, height);
        let area = self.areas.transcript;
        self.transcript.prepare(usize::from(area.width), usize::from(area.height), self.options.theme);
    }

    /// Whether the screen changes with time alone.
    pub fn ticks(&self) -> bool {
        self.is_busy() || self.status_message.is_some() || !matches!(self.connection, ConnectionState::Up)
    }

    pub fn is_busy(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.busy)
    }

    /// The server's clock, in milliseconds since 1970.
    pub fn server_now(&self) -> i64 {
        i64::try_from(self.now).unwrap_or(0) + self.skew
    }

    /// The state of the session, in a word or two.
    pub fn state_word(&self) -> String {
        match (&self.phase, &self.state) {
            (SessionPhase::Over(_), _) => "Closed".into(),
            (SessionPhase::Opening(_), _) | (SessionPhase::Open, None) => "Opening".into(),
            (SessionPhase::Open, Some(state)) if !state.asks.is_empty() => "Needs you".into(),
            (SessionPhase::Open, Some(state)) if state.compacting => "Compacting".into(),
            (SessionPhase::Open, Some(state)) if state.busy => {
                let since = state.turn_at.map_or(0, |at| self.server_now().saturating_sub(at));
                format!("Working {}", formatting::seconds(u64::try_from(since).unwrap_or(0)))
            }
            (SessionPhase::Open, Some(_)) => "Ready".into(),
        }
    }

    fn show_message(&mut self, text: impl Into<String>) {
        self.status_message =
            Some(StatusMessage { text: text.into(), bad: false, until: self.now + STATUS_MESSAGE_MS });
    }

    fn show_error(&mut self, text: impl Into<String>) {
        self.status_message =
            Some(StatusMessage { text: text.into(), bad: true, until: self.now + STATUS_MESSAGE_MS });
    }

    fn set_terminal_focus(&mut self, focused: bool) -> Vec<Effect> {
        self.terminal_focused = focused;
        let at = self.session.clone();
        vec![self.ask(Request::Presence { at, visible: focused }, PendingRequest::Other)]
    }

    /// The ask panel takes the focus while nothing is being written, and returns it when there are no asks.
    fn settle_focus(&mut self) {
        if self.ask_panel.asks.is_empty() {
            self.ask_panel_left = false;
            if self.focus == Focus::AskPanel {
                self.focus = Focus::Composer;
            }
        } else if self.focus == Focus::Composer
            && !self.ask_panel_left
            && self.composer.is_empty()
            && self.picker.is_none()
        {
            self.focus = Focus::AskPanel;
            self.ask_panel.ignore_keys(self.now);
        }
    }
}
