//! A session's log as server-sent events, numbered from 1, without gaps except after a power cut.
//!
//! The number of a frame is a function of the log alone: it does not depend on who watches, how events were
//! batched, or whether the server was restarted. So a number that a client stored always means the same
//! position. To find it, the log is replayed from a position whose number is known, and the frames that the
//! client has are counted without being encoded.
//!
//! A power cut can take events whose frames were sent. Their positions are left out of the log, and the
//! highest possible count of their numbers is left out of the stream.
//!
//! **Invariant:** between two turns the number is the only state, so a known position there is enough to
//! continue from.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, Event, POSITIONS_RESERVED, Seq, SessionId, Stop, Totals, TurnId, Usage};
use serde_json::{Value, json};

use super::stream_frames;
use crate::sse::write_event;
use crate::turn_text::TurnText;

/// The maximum number of frames per event.
pub const FRAMES_PER_EVENT_MAX: u64 = 4;

/// The two formats of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamFormat {
    /// `loop_event`, `user_message`, `result`.
    Loop,
    /// `text_delta`, `tool_call`, `agent_result`.
    Delta,
}

pub struct RestStream {
    pub(super) session: SessionId,
    /// The session's working directory.
    pub(super) folder: Arc<PathBuf>,
    form: StreamFormat,
    frames: u64,
    /// The last event that was sent or counted.
    after: Seq,
    pub(super) turn: Option<StreamTurn>,
    /// Whether the latest turn was a success; `None` while one runs.
    ended: Option<bool>,
}

/// State of the running turn.
pub(super) struct StreamTurn {
    pub id: TurnId,
    pub said: TurnText,
    /// Model calls.
    pub steps: u64,
    pub totals: Totals,
    /// The model wrote something and its call is not counted yet.
    pub in_step: bool,
}

impl StreamTurn {
    pub fn new(id: TurnId) -> Self {
        Self { id, said: TurnText::default(), steps: 0, totals: Totals::default(), in_step: false }
    }

    pub fn count(&mut self, usage: &Usage) {
        self.steps += 1;
        self.totals.add(usage);
    }
}

/// The destination of frames: all are counted, and only those after the client's position are encoded.
pub(super) struct FrameSink<'a> {
    frames: &'a mut u64,
    since: u64,
    out: &'a mut Vec<u8>,
}

impl FrameSink<'_> {
    /// `data` gets the frame's number.
    pub fn put(&mut self, name: &str, data: impl FnOnce(u64) -> Value) {
        *self.frames += 1;
        if *self.frames > self.since {
            let data = data(*self.frames).to_string();
            write_event(self.out, Some(self.frames), Some(name), data.as_bytes());
        }
    }
}

impl RestStream {
    /// A stream that has sent `frames` frames and is between two turns.
    pub fn new(session: &SessionId, form: StreamFormat, frames: u64) -> Self {
        let (session, folder) = (session.clone(), Arc::default());
        Self { session, folder, form, frames, after: Seq::START, turn: None, ended: None }
    }

    /// The same for a session that works in this folder.
    pub fn in_folder(self, folder: Arc<PathBuf>) -> Self {
        Self { folder, ..self }
    }

    /// The same after this event.
    pub fn after(self, seq: Seq) -> Self {
        Self { after: seq, ..self }
    }

    /// Frames sent or counted so far.
    pub fn frame_count(&self) -> u64 {
        self.frames
    }

    /// Whether a stream that starts here, with this number, continues identically.
    pub fn is_between_turns(&self) -> bool {
        self.turn.is_none()
    }

    /// Whether the latest event ended a turn, and whether that turn was a success.
    pub fn last_turn_succeeded(&self) -> Option<bool> {
        self.ended
    }

    /// Writes the frames of the next event, those with a number above `since`.
    pub fn write(&mut self, event: &Event, since: u64, out: &mut Vec<u8>) {
        let mut frames = self.frames.saturating_add(frames_lost(self.after, event.seq));
        self.after = event.seq;
        if let Body::Moved { cwd, .. } = &event.body {
            self.folder = Arc::new(cwd.clone());
        }
        let mut sink = FrameSink { frames: &mut frames, since, out };
        match self.form {
            StreamFormat::Loop => stream_frames::write_loop(self, event, &mut sink),
            StreamFormat::Delta => stream_frames::write_delta(self, event, &mut sink),
        }
        self.frames = frames;
        if let Body::TurnEnded { stop, .. } = &event.body {
            // A turn's end that the client already has does not end its stream.
            self.ended = (self.frames > since).then(|| is_success(*stop));
        } else if let Body::TurnStarted = &event.body {
            self.ended = None;
        }
    }

    /// Writes the last frame of a stream. It has no number, because it is not in the log.
    pub fn write_end(&self, success: Option<bool>, out: &mut Vec<u8>) {
        let data = json!({ "session_id": self.session.as_str(), "success": success });
        write_event(out, None, Some("end"), data.to_string().as_bytes());
    }

    /// Writes an error about the session itself.
    pub fn write_error(&self, text: &str, out: &mut Vec<u8>) {
        let data = json!({ "message_id": null, "error": text, "exception": "SessionTrouble" });
        write_event(out, None, Some("error"), data.to_string().as_bytes());
    }
}

/// The numbers left out between two adjacent events, because frames may have had them. The gaps of an
/// earlier version's logs were numbered across.
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
