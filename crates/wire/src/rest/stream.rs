//! A session's log as server-sent events, numbered from 1, without gaps but for those that a power cut
//! leaves.
//!
//! The number of a frame is a function of the log alone: who watches, how events were batched and
//! whether the server was restarted make no difference. So a number that a client kept leads to the
//! same place for ever. To find it, the log is told again from a place whose number is known, and what
//! the client has is counted without being made.
//!
//! A power cut can take events whose frames were told. Their positions are left out of the log, and
//! their numbers out of the stream: as many as they can have had.
//!
//! **Invariant:** between two turns nothing is remembered but the number, so a known place there is
//! enough to go on from.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, Event, POSITIONS_RESERVED, Seq, SessionId, Stop, Totals, TurnId, Usage};
use serde_json::{Value, json};

use super::forms;
use crate::sse::write_event;
use crate::turn_text::TurnText;

/// More frames than this no event becomes.
pub const FRAMES_PER_EVENT_MAX: u64 = 4;

/// In which words the log is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `loop_event`, `user_message`, `result`.
    Loop,
    /// `text_delta`, `tool_call`, `agent_result`.
    Delta,
}

pub struct Stream {
    pub(super) session: SessionId,
    /// Where the session works.
    pub(super) folder: Arc<PathBuf>,
    form: Form,
    told: u64,
    /// The last event that was told, or counted.
    after: Seq,
    pub(super) turn: Option<Turn>,
    /// Whether the latest turn that ended was a success; nothing while one runs.
    ended: Option<bool>,
}

/// What is remembered of the running turn.
pub(super) struct Turn {
    pub id: TurnId,
    pub said: TurnText,
    /// Model calls.
    pub steps: u64,
    pub totals: Totals,
    /// The model said something and its call is not counted yet.
    pub in_step: bool,
}

impl Turn {
    pub fn new(id: TurnId) -> Self {
        Self { id, said: TurnText::default(), steps: 0, totals: Totals::default(), in_step: false }
    }

    pub fn count(&mut self, usage: &Usage) {
        self.steps += 1;
        self.totals.add(usage);
    }
}

/// Where frames go: counted all, made only from where the client is.
pub(super) struct Sink<'a> {
    told: &'a mut u64,
    since: u64,
    out: &'a mut Vec<u8>,
}

impl Sink<'_> {
    /// `data` is given the frame's number.
    pub fn put(&mut self, name: &str, data: impl FnOnce(u64) -> Value) {
        *self.told += 1;
        if *self.told > self.since {
            let data = data(*self.told).to_string();
            write_event(self.out, Some(self.told), Some(name), data.as_bytes());
        }
    }
}

impl Stream {
    /// A stream that has told `told` frames and stands between two turns.
    pub fn new(session: &SessionId, form: Form, told: u64) -> Self {
        let (session, folder) = (session.clone(), Arc::default());
        Self { session, folder, form, told, after: Seq::START, turn: None, ended: None }
    }

    /// The same for a session that works in this folder.
    pub fn in_folder(self, folder: Arc<PathBuf>) -> Self {
        Self { folder, ..self }
    }

    /// The same after this event.
    pub fn after(self, seq: Seq) -> Self {
        Self { after: seq, ..self }
    }

    /// Frames told so far, or counted.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Whether a stream that is begun here, with this number, goes on in the same way.
    pub fn is_between_turns(&self) -> bool {
        self.turn.is_none()
    }

    /// Whether the latest thing that happened is a turn's end, and it was a success.
    pub fn ended(&self) -> Option<bool> {
        self.ended
    }

    /// Writes the frames of the next event, those with a number above `since`.
    pub fn tell(&mut self, event: &Event, since: u64, out: &mut Vec<u8>) {
        let mut told = self.told.saturating_add(frames_lost(self.after, event.seq));
        self.after = event.seq;
        if let Body::Moved { cwd, .. } = &event.body {
            self.folder = Arc::new(cwd.clone());
        }
        let mut sink = Sink { told: &mut told, since, out };
        match self.form {
            Form::Loop => forms::tell_loop(self, event, &mut sink),
            Form::Delta => forms::tell_delta(self, event, &mut sink),
        }
        self.told = told;
        if let Body::TurnEnded { stop, .. } = &event.body {
            // What the client knows already does not end its stream.
            self.ended = (self.told > since).then(|| is_success(*stop));
        } else if let Body::TurnStarted = &event.body {
            self.ended = None;
        }
    }

    /// The last frame of a stream. It has no number, because it stands in no log.
    pub fn end(&self, success: Option<bool>, out: &mut Vec<u8>) {
        let data = json!({ "session_id": self.session.as_str(), "success": success });
        write_event(out, None, Some("end"), data.to_string().as_bytes());
    }

    /// Says that something is wrong with the session itself.
    pub fn trouble(&self, text: &str, out: &mut Vec<u8>) {
        let data = json!({ "message_id": null, "error": text, "exception": "SessionTrouble" });
        write_event(out, None, Some("error"), data.to_string().as_bytes());
    }
}

/// Numbers that are left out between two neighbours in a log, because frames may have had them. A log that
/// an earlier version left a gap in was numbered across it.
fn frames_lost(before: Seq, next: Seq) -> u64 {
    let missing = next.0.saturating_sub(before.0).saturating_sub(1);
    if missing > POSITIONS_RESERVED { missing.saturating_mul(FRAMES_PER_EVENT_MAX) } else { 0 }
}

pub(super) fn is_success(stop: Stop) -> bool {
    match stop {
        Stop::EndTurn => true,
        Stop::MaxTokens
        | Stop::MaxTurnRequests
        | Stop::Refusal
        | Stop::Cancelled
        | Stop::Failed
        | Stop::Interrupted => false,
    }
}
