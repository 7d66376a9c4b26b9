//! What a session's card shows, collected from the session's events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;

use engine::{
    AskId, Body, CallId, Event, MessageId, Resolution, Resolver, SessionHandle, SessionId, Stop, TurnId,
};
use wire::native::AskView;
use wire::native::fold::ask_view;

/// How much of the last message is kept.
const LINE_BYTES_MAX: usize = 240;
/// Settled asks that are remembered, so that a late answer can be told how the ask was settled.
const SETTLED_MAX: usize = 64;

#[derive(Default)]
pub(super) struct CardFacts {
    session: Option<SessionId>,
    folder: PathBuf,
    running: Option<TurnId>,
    /// How the last turn ended.
    pub stop: Option<Stop>,
    asks: BTreeMap<AskId, AskView>,
    calls: HashMap<CallId, u64>,
    settled: VecDeque<(AskId, String)>,
    last_message: Option<(MessageId, String)>,
}

impl CardFacts {
    pub fn new(session: &SessionHandle) -> Self {
        Self { session: Some(session.id().clone()), folder: session.origin().cwd.clone(), ..Self::default() }
    }

    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    pub fn asks(&self) -> impl Iterator<Item = &AskView> {
        self.asks.values()
    }

    pub fn settled(&self, ask: AskId) -> Option<String> {
        self.settled.iter().rev().find(|(settled, _)| *settled == ask).map(|(_, how)| how.clone())
    }

    /// The last message, in one line.
    pub fn line(&self) -> Option<String> {
        let (_, said) = self.last_message.as_ref()?;
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then_some(line)
    }

    /// Gives whether the card has changed.
    pub fn observe(&mut self, event: &Event) -> bool {
        match &event.body {
            Body::TurnStarted => self.running = event.turn,
            // A prompt that waited can end beside the running turn.
            Body::TurnEnded { .. } if self.running.is_some() && self.running != event.turn => return false,
            Body::TurnEnded { stop, .. } => {
                self.calls.clear();
                self.running = None;
                self.stop = Some(*stop);
            }
            Body::ToolStarted(start) => {
                self.calls.insert(start.call.clone(), event.seq.0);
                return false;
            }
            Body::Text { message, text } if event.origin.task().is_none() => {
                self.append_message(*message, text);
                return false;
            }
            Body::Asked { ask, request } => {
                let Some(session) = &self.session else { return false };
                let row = match &request.question {
                    Some(_) => Some(event.seq.0),
                    None => request.call.as_ref().and_then(|call| self.calls.get(call)).copied(),
                };
                self.asks.insert(*ask, ask_view(session, (*ask, event.at), &self.folder, row, request));
            }
            Body::Resolved { ask, resolution, by, .. } => {
                self.settle(*ask, *resolution, by);
                return self.asks.remove(ask).is_some();
            }
            Body::Moved { cwd, .. } => self.folder.clone_from(cwd),
            Body::Title { .. } | Body::Usage(_) | Body::Cleared => {}
            Body::TurnQueued { .. }
            | Body::UserMessage { .. }
            | Body::Text { .. }
            | Body::Thought { .. }
            | Body::Plan { .. }
            | Body::ToolOutput { .. }
            | Body::ToolTerminal { .. }
            | Body::ToolEnded(_)
            | Body::FileEdited { .. }
            | Body::FileShown { .. }
            | Body::CancelRequested { .. }
            | Body::PolicyBlocked { .. }
            | Body::SettingChanged { .. }
            | Body::Commands { .. }
            | Body::Notice { .. }
            | Body::Compacting { .. }
            | Body::Compacted { .. }
            | Body::ToolChanged(_)
            | Body::Offered { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => return false,
        }
        true
    }

    fn append_message(&mut self, message: MessageId, piece: &str) {
        match &mut self.last_message {
            Some((last, text)) if *last == message => {
                let room = piece.floor_char_boundary(LINE_BYTES_MAX.saturating_sub(text.len()));
                text.push_str(piece.get(..room).unwrap_or_default());
            }
            said => {
                let room = piece.floor_char_boundary(LINE_BYTES_MAX);
                *said = Some((message, piece.get(..room).unwrap_or_default().to_owned()));
            }
        }
    }

    fn settle(&mut self, ask: AskId, resolution: Resolution, by: &Resolver) {
        if !self.asks.contains_key(&ask) {
            return;
        }
        let who = match by {
            Resolver::Surface { name, .. } => format!(" by {name}"),
            Resolver::Rule { .. } | Resolver::Policy { .. } | Resolver::Engine => String::new(),
        };
        let word = match resolution {
            Resolution::AllowedOnce => "allowed",
            Resolution::AllowedAlways if by.for_session() => "allowed for this session",
            Resolution::AllowedAlways => "always allowed",
            Resolution::DeniedOnce => "denied",
            Resolution::DeniedAlways if by.for_session() => "denied for this session",
            Resolution::DeniedAlways => "never allowed",
            Resolution::Cancelled => "cancelled",
            Resolution::TimedOut => "cancelled because nobody answered in time",
            Resolution::EndedByRestart => "cancelled by a restart",
        };
        if self.settled.len() == SETTLED_MAX {
            self.settled.pop_front();
        }
        self.settled.push_back((ask, format!("{word}{who}")));
    }
}
