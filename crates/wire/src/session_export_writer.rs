//! A session as a file or a response, written piece by piece while its log is read page by page.
//!
//! Memory depends on the longest turn and not on the session: a row is written and dropped as soon as
//! nothing can change it any more. The head of a readable form (turns, tokens, whether something was
//! cleared) is known only at the end of the log, so the log is read twice: once for the [`DocumentFacts`],
//! once for the [`Document`].
//!
//! **Invariant:** the pieces together are identical to a document that is made from the whole log at once.

use std::sync::Arc;

use engine::{Body, Event, MODEL, Seq, SessionRow, Stop, Timestamp};
use serde_json::Value;

use crate::rest::Messages;
use crate::transcript::{Row, Transcript};
use crate::transcript_text::blocks;
use crate::{
    chimera_archive, event_json, session_archive, transcript_html, transcript_markdown, transcript_text,
};

/// How much of a session is held or sent at once: a response that is one frame, or one step of a turn.
pub const WHOLE_BYTES_MAX: usize = 64 << 20;

/// One step is larger than this limit, so the session cannot be shown in this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one step of the session is larger than {} MiB", WHOLE_BYTES_MAX >> 20)]
pub struct DocumentTooLong;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFormat {
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
    /// A list of messages and tool calls, for programs.
    Messages,
}

impl DocumentFormat {
    /// Whether the log must be read once before anything can be written.
    pub fn needs_facts(self) -> bool {
        !matches!(self, Self::Json { .. })
    }
}

/// Facts about a whole log, without its rows.
#[derive(Debug, Default)]
pub struct DocumentFacts {
    transcript: Transcript,
    /// Everything up to here was cleared and is not shown.
    cleared_at: Seq,
    /// The last event that was read; later events are not included.
    upto: Seq,
    pub(crate) prompt: Option<String>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) end: Option<(Stop, Option<Arc<str>>)>,
    pub(crate) tool_calls: u64,
}

impl DocumentFacts {
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

/// A session that is being written to a file or a response.
pub struct Document {
    form: DocumentFormat,
    row: SessionRow,
    facts: Option<DocumentFacts>,
    at: Timestamp,
    transcript: Transcript,
    messages: Messages,
    files: chimera_archive::Writer,
    /// List elements written so far.
    count: u64,
    tail: String,
}

impl Document {
    pub fn new(form: DocumentFormat, row: SessionRow, facts: Option<DocumentFacts>, at: Timestamp) -> Self {
        let files = chimera_archive::Writer::new(&row);
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

    /// Writes everything before the first event.
    pub fn begin(&mut self, out: &mut String) {
        let unread = DocumentFacts::default();
        let facts = self.facts.as_ref().unwrap_or(&unread);
        match self.form {
            DocumentFormat::Json { .. } => {
                self.open(out, &session_archive::envelope(&self.row, Vec::new(), self.at))
            }
            DocumentFormat::Chimera => {
                let summary = chimera_archive::summary(&self.row, facts);
                self.open(out, &chimera_archive::envelope(summary, Vec::new(), self.at));
            }
            DocumentFormat::Markdown => transcript_markdown::put_head(out, &self.row, &facts.transcript),
            DocumentFormat::Html => {
                transcript_html::put_head(out, &self.row, &facts.transcript);
                transcript_html::TAIL.clone_into(&mut self.tail);
            }
            DocumentFormat::Plain { .. } => transcript_text::put_head(out, &self.row, &facts.transcript),
            DocumentFormat::Messages => {
                out.push('[');
                self.tail.push(']');
            }
        }
    }

    /// Writes what can be written after these events. Returns whether there is more to come.
    pub fn put(&mut self, events: &[Arc<Event>], out: &mut String) -> Result<bool, DocumentTooLong> {
        let (cleared_at, upto) =
            self.facts.as_ref().map_or((Seq::START, Seq(u64::MAX)), |facts| (facts.cleared_at, facts.upto));
        for event in events.iter().filter(|event| event.seq <= upto) {
            match self.form {
                DocumentFormat::Json { pretty } => self.put_element(&event_json::encode(event), pretty, out),
                DocumentFormat::Chimera => {
                    let (_, file) = self.files.file(event);
                    self.put_element(&file, true, out);
                }
                DocumentFormat::Messages if event.seq <= cleared_at => {}
                DocumentFormat::Messages => self.messages.observe(event),
                DocumentFormat::Markdown | DocumentFormat::Html | DocumentFormat::Plain { .. } => {
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
            return Err(DocumentTooLong);
        }
        Ok(events.last().is_some_and(|last| last.seq < upto))
    }

    /// Writes the rest.
    pub fn end(&mut self, out: &mut String) {
        let rows = self.transcript.take_rest();
        self.put_rows(&rows, out);
        let messages = self.messages.take_rest();
        messages.iter().for_each(|message| self.put_element(message, false, out));
        let indented = matches!(self.form, DocumentFormat::Json { pretty: true } | DocumentFormat::Chimera);
        if indented && self.count > 0 {
            out.push_str("\n  ");
        }
        out.push_str(&self.tail);
    }

    fn put_rows(&self, rows: &[Row], out: &mut String) {
        for row in rows {
            match self.form {
                DocumentFormat::Markdown => {
                    out.push('\n');
                    transcript_markdown::put_row(out, row);
                }
                DocumentFormat::Html => transcript_html::put_row(out, row),
                DocumentFormat::Plain { full } => {
                    out.push('\n');
                    transcript_text::put_row(out, row, full);
                }
                DocumentFormat::Json { .. } | DocumentFormat::Chimera | DocumentFormat::Messages => {}
            }
        }
    }

    /// Begins an object whose list of events is still empty, and keeps everything after the list.
    fn open(&mut self, out: &mut String, envelope: &Value) {
        let (text, list) = match self.form {
            DocumentFormat::Json { pretty: false } => (envelope.to_string(), "\"events\":[]"),
            DocumentFormat::Json { pretty: true }
            | DocumentFormat::Chimera
            | DocumentFormat::Markdown
            | DocumentFormat::Html
            | DocumentFormat::Plain { .. }
            | DocumentFormat::Messages => (format!("{envelope:#}\n"), "\"events\": []"),
        };
        // Quotes inside texts are escaped, so these characters can only be the list.
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
            // Line breaks inside texts are escaped, so all of these belong to the layout.
            out.push_str("\n    ");
            out.push_str(&format!("{value:#}").replace('\n', "\n    "));
        } else {
            out.push_str(&value.to_string());
        }
    }
}
