//! What is on the screen, and what a key or a frame does to it: a value without clock, terminal or
//! connection.
//!
//! `apply` takes one input and answers with effects; `prepare` sets what changed for the size of the
//! screen; drawing only reads. What is shown of the session is what the server told, so that two clients
//! of one session cannot differ; nothing is assumed to be done before it is said to be.

mod frames;
mod keys;
mod leaving;
mod sending;

use std::collections::HashMap;

use crossterm::event::{KeyEvent, MouseEvent};
use wire::native::{Card, Envelope, Frame, Hello, Request, SessionState};

use crate::composer::Composer;
use crate::layout::Areas;
use crate::look::Look;
use crate::offers::Offers;
use crate::opening::{Failure, Opening, Wish};
use crate::picker::Picker;
use crate::shelf::Shelf;
use crate::transcript::Transcript;
use crate::words;

/// How long something is said below.
const REMARK_MS: u64 = 6_000;
/// Who writes on without a pause of this length has not seen that the text is in the composer now.
const UNAWARE_MS: u64 = 600;

/// How this client is used.
#[derive(Debug, Clone)]
pub struct Manner {
    pub look: Look,
    /// The server is another process and goes on without us.
    pub shared: bool,
    /// The person's home folder, for shorter paths.
    pub home: Option<String>,
    /// Where a browser finds the server.
    pub address: Option<String>,
    /// Makes the keys of our prompts differ from those of others.
    pub seed: u64,
    /// What has to be seen for as long as the client runs.
    pub warnings: Vec<String>,
    /// Ctrl-C leaves at once if no turn runs, also past what is written: it ends more than this client.
    pub interrupt_ends: bool,
}

#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    /// Whether the terminal has the focus.
    Focus(bool),
    Frame(Box<Frame>),
    Connected,
    /// What the program around this client says of its state, in place of what it said before.
    Status(Vec<String>),
    /// The connection is gone; the next try is after this time.
    Cut {
        why: String,
        retry_ms: u64,
    },
    /// Time went by.
    Tick,
}

#[derive(Debug, PartialEq)]
pub enum Effect {
    Send(Envelope),
    /// Somebody who does not look at the terminal should.
    Notify(String),
    /// To the clipboard of whoever sits at the terminal.
    Copy(String),
    /// The screen is not what it should be.
    Repaint,
    Leave,
    Fail(Failure),
}

#[derive(Debug)]
pub struct App {
    pub manner: Manner,
    pub wish: Wish,
    /// In milliseconds since the client began.
    pub now: u64,
    pub connection: Connection,
    pub hello: Option<Hello>,
    /// What the program around this client said last of its state.
    pub status: Vec<String>,
    /// What is wrong with the machine.
    pub faults: Vec<String>,
    /// What the server's clock is ahead of ours.
    skew: i64,
    pub cards: Vec<Card>,
    pub stage: Stage,
    pub session: Option<String>,
    /// Everything up to here was told.
    upto: Option<u64>,
    pub state: Option<SessionState>,
    pub transcript: Transcript,
    pub composer: Composer,
    pub offers: Offers,
    pub shelf: Shelf,
    pub focus: Focus,
    /// Somebody went away from the shelf to write.
    shelf_left: bool,
    /// Until then nothing is sent: the text was moved here while somebody wrote it.
    unaware_until: u64,
    pub picker: Option<Picker>,
    pub help: bool,
    pub plan_open: bool,
    pub remark: Option<Remark>,
    looked_at: bool,
    escape_at: Option<u64>,
    leave_asked: bool,
    waits: HashMap<u64, Waits>,
    next_id: u64,
    next_key: u64,
    /// Prompts that no server has confirmed, by key.
    pub unsent: Vec<Unsent>,
    pub loading: bool,
    pub areas: Areas,
}

#[derive(Debug)]
pub enum Stage {
    Opening(Opening),
    Open,
    /// The session cannot be shown on.
    Over(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    Connecting,
    Up,
    Down { why: String, retry_at: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Composer,
    Shelf,
    Transcript,
}

#[derive(Debug)]
pub struct Remark {
    pub text: String,
    pub bad: bool,
    until: u64,
}

#[derive(Debug, Clone)]
pub struct Unsent {
    key: String,
    pub text: String,
}

/// What an answer is waited for.
#[derive(Debug)]
enum Waits {
    Opening,
    /// A new session, to be shown instead of this one.
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
    /// Only a refusal is worth a word.
    Other,
}

impl App {
    pub fn new(wish: Wish, manner: Manner) -> Self {
        let opening = Opening::new(&wish);
        Self {
            manner,
            wish,
            now: 0,
            connection: Connection::Connecting,
            hello: None,
            status: Vec::new(),
            faults: Vec::new(),
            skew: 0,
            cards: Vec::new(),
            stage: Stage::Opening(opening),
            session: None,
            upto: None,
            state: None,
            transcript: Transcript::default(),
            composer: Composer::default(),
            offers: Offers::default(),
            shelf: Shelf::default(),
            focus: Focus::Composer,
            shelf_left: false,
            unaware_until: 0,
            picker: None,
            help: false,
            plan_open: false,
            remark: None,
            looked_at: true,
            escape_at: None,
            leave_asked: false,
            waits: HashMap::new(),
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
            Input::Focus(focused) => self.look_at(focused),
            Input::Frame(frame) => self.frame(*frame),
            Input::Connected => {
                self.connection = Connection::Up;
                Vec::new()
            }
            Input::Status(lines) => {
                self.status = lines;
                Vec::new()
            }
            Input::Cut { why, retry_ms } => {
                self.cut(why, retry_ms);
                Vec::new()
            }
            Input::Tick => Vec::new(),
        };
        if self.remark.as_ref().is_some_and(|remark| remark.until <= now) {
            self.remark = None;
        }
        self.settle_focus();
        effects.extend(self.load_earlier());
        effects
    }

    /// Sets everything for a screen of this size.
    pub fn prepare(&mut self, width: u16, height: u16) {
        self.areas = Areas::of(self, width, height);
        let area = self.areas.transcript;
        self.transcript.prepare(usize::from(area.width), usize::from(area.height), self.manner.look);
    }

    /// Whether the screen changes by time alone.
    pub fn ticks(&self) -> bool {
        self.is_busy() || self.remark.is_some() || !matches!(self.connection, Connection::Up)
    }

    pub fn is_busy(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.busy)
    }

    /// The server's clock, in milliseconds since 1970.
    pub fn server_now(&self) -> i64 {
        i64::try_from(self.now).unwrap_or(0) + self.skew
    }

    /// What the session does, in a word or two.
    pub fn state_word(&self) -> String {
        match (&self.stage, &self.state) {
            (Stage::Over(_), _) => "Gone".into(),
            (Stage::Opening(_), _) | (Stage::Open, None) => "Opening".into(),
            (Stage::Open, Some(state)) if !state.asks.is_empty() => "Waits for you".into(),
            (Stage::Open, Some(state)) if state.compacting => "Summing up".into(),
            (Stage::Open, Some(state)) if state.busy => {
                let since = state.turn_at.map_or(0, |at| self.server_now().saturating_sub(at));
                format!("Working {}", words::seconds(u64::try_from(since).unwrap_or(0)))
            }
            (Stage::Open, Some(_)) => "Ready".into(),
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.remark = Some(Remark { text: text.into(), bad: false, until: self.now + REMARK_MS });
    }

    fn complain(&mut self, text: impl Into<String>) {
        self.remark = Some(Remark { text: text.into(), bad: true, until: self.now + REMARK_MS });
    }

    fn look_at(&mut self, focused: bool) -> Vec<Effect> {
        self.looked_at = focused;
        let at = self.session.clone();
        vec![self.ask(Request::Looking { at, visible: focused }, Waits::Other)]
    }

    /// The shelf takes the focus where nothing is being written, and gives it back.
    fn settle_focus(&mut self) {
        if self.shelf.asks.is_empty() {
            self.shelf_left = false;
            if self.focus == Focus::Shelf {
                self.focus = Focus::Composer;
            }
        } else if self.focus == Focus::Composer
            && !self.shelf_left
            && self.composer.is_empty()
            && self.picker.is_none()
        {
            self.focus = Focus::Shelf;
            self.shelf.turn_deaf(self.now);
        }
    }
}
