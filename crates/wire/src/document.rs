//! A session as a file or a reply, written piece by piece while its log is read page by page.
//!
//! Memory depends on the longest turn and not on the session: a row is written and dropped as soon as
//! nothing can change it any more. What stands at the top of a readable form (turns, tokens, whether
//! something was cleared) is known only at the end of the log, so the log is read twice: once for
//! the [`Facts`], once for the [`Document`].
//!
//! **Invariant:** the pieces put together are what the whole log would give at once.

use std::sync::Arc;

use engine::{Body, Event, MODEL, Seq, SessionRow, Stop, Timestamp};
use serde_json::Value;

use crate::plain::blocks;
use crate::rest::Messages;
use crate::transcript::{Row, Transcript};
use crate::{archive, chimera, markdown, page, plain, portable};

/// What is held or sent at once of a session: a reply that is one frame, or one step of a turn.
pub const WHOLE_BYTES_MAX: usize = 64 << 20;

/// A step that is larger than what may be held: it cannot be shown in this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one step of the session is larger than {} MiB", WHOLE_BYTES_MAX >> 20)]
pub struct TooLong;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Every event, as `sessions import` reads it.
    Json {
        pretty: bool,
    },
    /// The same for chimera's tools.
    Chimera,
    Markdown,
    Html,
    Plain {
        full: bool,
    },
    /// A list of what was said and done, for programs.
    Messages,
}

impl Form {
    /// Whether the log has to be read once before the first word can be written.
    pub fn needs_facts(self) -> bool {
        !matches!(self, Self::Json { .. })
    }
}

/// What is known of a log after it was read, without its rows.
#[derive(Debug, Default)]
pub struct Facts {
    transcript: Transcript,
    /// What stands up to here is not shown.
    cleared_at: Seq,
    /// The last event that was read; what came later is not in the facts.
    upto: Seq,
    pub(crate) prompt: Option<String>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) end: Option<(Stop, Option<Arc<str>>)>,
    pub(crate) tool_calls: u64,
}

impl Facts {
    pub fn observe(&mut self, event: &Event) {
        self.transcript.observe(event);
        self.transcript.forget_rows();
        self.upto = event.seq;
        if let Body::Cleared = &event.body {
            self.cleared_at = event.seq;
            self.tool_calls = 0;
        } else if let Body::ToolStarted(_) = &event.body {
            self.tool_calls += 1;
        } else if let Body::UserMessage { content } = &event.body {
            self.prompt.get_or_insert_with(|| blocks(content));
        } else if let Body::SettingChanged { id, value } = &event.body
            && **id == *MODEL
        {
            self.model = Some(Arc::clone(value));
        } else if let Body::TurnEnded { stop, error } = &event.body {
            self.end = Some((*stop, error.clone()));
        }
    }

    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }
}

/// A session on its way into a file or a reply.
pub struct Document {
    form: Form,
    row: SessionRow,
    facts: Option<Facts>,
    at: Timestamp,
    transcript: Transcript,
    messages: Messages,
    files: chimera::Writer,
    /// Elements of a list that were written.
    count: u64,
    tail: String,
}

impl Document {
    pub fn new(form: Form, row: SessionRow, facts: Option<Facts>, at: Timestamp) -> Self {
        let files = chimera::Writer::new(&row);
        Self {
            form,
            row,
            facts,
            at,
            transcript: Transcript::default(),
            messages: Messages::default(),
            files,
            count: 0,
            tail: String::new(),
        }
    }

    /// Writes what stands before the first event.
    pub fn begin(&mut self, out: &mut String) {
        let unread = Facts::default();
        let facts = self.facts.as_ref().unwrap_or(&unread);
        match self.form {
            Form::Json { .. } => self.open(out, &archive::envelope(&self.row, Vec::new(), self.at)),
            Form::Chimera => {
                let summary = chimera::summary(&self.row, facts);
                self.open(out, &chimera::envelope(summary, Vec::new(), self.at));
            }
            Form::Markdown => markdown::put_head(out, &self.row, &facts.transcript),
            Form::Html => {
                page::put_head(out, &self.row, &facts.transcript);
                page::TAIL.clone_into(&mut self.tail);
            }
            Form::Plain { .. } => plain::put_head(out, &self.row, &facts.transcript),
            Form::Messages => {
                out.push('[');
                self.tail.push(']');
            }
        }
    }

    /// Writes what can be written after these events. Says whether there is more to come.
    pub fn put(&mut self, events: &[Arc<Event>], out: &mut String) -> Result<bool, TooLong> {
        let (cleared_at, upto) =
            self.facts.as_ref().map_or((Seq::START, Seq(u64::MAX)), |facts| (facts.cleared_at, facts.upto));
        for event in events.iter().filter(|event| event.seq <= upto) {
            match self.form {
                Form::Json { pretty } => self.put_element(&portable::encode(event), pretty, out),
                Form::Chimera => {
                    let (_, file) = self.files.file(event);
                    self.put_element(&file, true, out);
                }
                Form::Messages if event.seq <= cleared_at => {}
                Form::Messages => self.messages.observe(event),
                Form::Markdown | Form::Html | Form::Plain { .. } => {
                    self.transcript.observe(event);
                    if event.seq <= cleared_at {
                        self.transcript.forget_rows();
                    }
                }
            }
        }
        let rows = self.transcript.take_settled();
        self.put_rows(&rows, out);
        let messages = self.messages.take();
        messages.iter().for_each(|message| self.put_element(message, false, out));
        let held = self.transcript.held_bytes() + self.messages.held_bytes();
        if held > WHOLE_BYTES_MAX {
            return Err(TooLong);
        }
        Ok(events.last().is_some_and(|last| last.seq < upto))
    }

    /// Writes what is left.
    pub fn end(&mut self, out: &mut String) {
        let rows = self.transcript.take_rest();
        self.put_rows(&rows, out);
        let messages = self.messages.take_rest();
        messages.iter().for_each(|message| self.put_element(message, false, out));
        let indented = matches!(self.form, Form::Json { pretty: true } | Form::Chimera);
        if indented && self.count > 0 {
            out.push_str("\n  ");
        }
        out.push_str(&self.tail);
    }

    fn put_rows(&self, rows: &[Row], out: &mut String) {
        for row in rows {
            match self.form {
                Form::Markdown => {
                    out.push('\n');
                    markdown::put_row(out, row);
                }
                Form::Html => page::put_row(out, row),
                Form::Plain { full } => {
                    out.push('\n');
                    plain::put_row(out, row, full);
                }
                Form::Json { .. } | Form::Chimera | Form::Messages => {}
            }
        }
    }

    /// Begins an object whose list of events is still empty, and keeps what follows the list.
    fn open(&mut self, out: &mut String, envelope: &Value) {
        let (text, list) = match self.form {
            Form::Json { pretty: false } => (envelope.to_string(), "\"events\":[]"),
            Form::Json { pretty: true }
            | Form::Chimera
            | Form::Markdown
            | Form::Html
            | Form::Plain { .. }
            | Form::Messages => (format!("{envelope:#}\n"), "\"events\": []"),
        };
        // Quotes inside of texts are escaped, so these characters stand for the list alone.
        let Some((before, after)) = text.split_once(list) else { return };
        out.push_str(before);
        out.push_str(&list[..list.len() - 1]);
        self.tail = format!("]{after}");
    }

    fn put_element(&mut self, value: &Value, pretty: bool, out: &mut String) {
        if self.count > 0 {
            out.push(',');
        }
        self.count += 1;
        if pretty {
            // Line breaks inside of texts are escaped, so these are all of the layout.
            out.push_str("\n    ");
            out.push_str(&format!("{value:#}").replace('\n', "\n    "));
        } else {
            out.push_str(&value.to_string());
        }
    }
}
