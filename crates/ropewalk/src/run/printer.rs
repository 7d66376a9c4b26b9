//! Prints a turn in one of three formats: text as it arrives, one JSON object, or one JSON line per event.
//!
//! Standard output has only the answer. Short notes about it go to standard error.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Instant;

use engine::{APPROVAL, Body, Event, FULL_APPROVAL, MessageId, NoticeLevel, SessionHandle, Stop};
use wire::transcript::{ToolState, Transcript, elapsed_text, stop_text, totals_text};
use wire::transcript_text::short_id;
use wire::turn_result;

use crate::cli::RunFormat;
use crate::cli_error::CliError;
use crate::output::{self, Paint, cut, one_line};

const LINE_CHARS_MAX: usize = 160;

pub struct Printer {
    format: RunFormat,
    handle: SessionHandle,
    transcript: Transcript,
    started: Instant,
    paint: Paint,
    /// Both streams show on the same terminal, so a line on one must not run into the other.
    one_screen: bool,
    /// Text that is not written yet.
    pending: String,
    speaking: Option<MessageId>,
    mid_line: bool,
    warned: bool,
}

impl Printer {
    pub fn new(format: RunFormat, handle: SessionHandle) -> Self {
        Self {
            format,
            handle,
            transcript: Transcript::default(),
            started: Instant::now(),
            paint: output::stderr_paint(),
            one_screen: io::stdout().is_terminal() && io::stderr().is_terminal(),
            pending: String::new(),
            speaking: None,
            mid_line: false,
            warned: false,
        }
    }

    /// Prints the events, and the end of the turn if it is among them.
    pub fn observe(
        &mut self,
        events: &[Arc<Event>],
        ended: Option<&(Stop, Option<Arc<str>>)>,
    ) -> Result<(), CliError> {
        for event in events {
            // In text format, streamed text is written at once and not needed again.
            if self.format != RunFormat::Text || !event.body.is_streamed() {
                self.transcript.observe(event);
            }
            match self.format {
                RunFormat::Json => {}
                RunFormat::StreamJson => {
                    self.pending.push_str(&turn_result::event_line(self.handle.id(), event).to_string());
                    self.pending.push('\n');
                }
                RunFormat::Text => self.show(event)?,
            }
        }
        match ended {
            Some((stop, error)) => self.finish(*stop, error.as_deref()),
            None => self.flush(),
        }
    }

    /// Writes what is pending, except for a trailing carriage return whose line feed may follow: alone, it would be
    /// replaced as harmful.
    fn flush(&mut self) -> Result<(), CliError> {
        let mut text = std::mem::take(&mut self.pending);
        if text.ends_with('\r') {
            self.pending.extend(text.pop());
        }
        if text.is_empty() {
            return Ok(());
        }
        self.mid_line = !text.ends_with('\n');
        match self.format {
            RunFormat::Text => output::put(&text),
            RunFormat::Json | RunFormat::StreamJson => output::put_bytes(text.as_bytes()),
        }
    }

    fn finish(&mut self, stop: Stop, error: Option<&str>) -> Result<(), CliError> {
        if self.format != RunFormat::Text {
            self.flush()?;
            return output::put_json(&turn_result::encode(self.handle.id(), &self.transcript, stop, error));
        }
        self.end_line();
        self.flush()?;
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let word = if stop == Stop::EndTurn {
            format!("done in {}", elapsed_text(elapsed))
        } else {
            stop_text(stop).into()
        };
        let mut parts = vec![word];
        parts.extend(Some(totals_text(&self.transcript.totals)).filter(|text| !text.is_empty()));
        parts.push(format!("session {}", short_id(self.handle.id().as_str())));
        let line = parts.join(" · ");
        let line = if stop == Stop::EndTurn { self.paint.quiet(&line) } else { self.paint.bad(&line) };
        output::say(&line);
        Ok(())
    }

    fn show(&mut self, event: &Event) -> Result<(), CliError> {
        match &event.body {
            Body::TurnStarted => self.warn_of_full_access(),
            // The text of a sub-agent is for the agent only.
            Body::Text { .. } if event.origin.task().is_some() => Ok(()),
            Body::Text { message, text } => {
                if self.speaking.replace(*message).is_some_and(|last| last != *message) {
                    self.end_line();
                    self.pending.push('\n');
                }
                self.pending.push_str(text);
                Ok(())
            }
            Body::ToolStarted(start) => {
                let step = if event.origin.task().is_some() { "  " } else { "" };
                self.tell(&self.paint.quiet(&format!("{step}• {}", line(&start.title))))
            }
            Body::ToolEnded(end) => {
                let Some(row) = self.transcript.tool(&end.call) else { return Ok(()) };
                if row.state == ToolState::Done {
                    return Ok(());
                }
                let text = line(&format!("✗ {}: {}", row.title, row.remark()));
                self.tell(&self.paint.bad(&text))
            }
            Body::Notice { level, text } => {
                let text = line(text);
                self.tell(&match level {
                    NoticeLevel::Info => self.paint.quiet(&text),
                    NoticeLevel::Warning => self.paint.warn(&format!("warning: {text}")),
                    NoticeLevel::Error | NoticeLevel::Damage => self.paint.bad(&format!("error: {text}")),
                })
            }
            Body::CancelRequested { .. } => self.tell(&self.paint.quiet("stopping")),
            _ => Ok(()),
        }
    }

    /// Warns each time: another client may have given the session full approval.
    fn warn_of_full_access(&mut self) -> Result<(), CliError> {
        if self.warned || self.handle.snapshot().settings.get(APPROVAL) != "full" {
            return Ok(());
        }
        self.warned = true;
        self.tell(&self.paint.warn(&format!("warning: {FULL_APPROVAL}")))
    }

    /// Prints a line on standard error, after the pending text.
    fn tell(&mut self, text: &str) -> Result<(), CliError> {
        self.flush()?;
        if self.one_screen && self.mid_line {
            self.end_line();
            self.flush()?;
        }
        output::say(text);
        Ok(())
    }

    fn end_line(&mut self) {
        let open = if self.pending.is_empty() { self.mid_line } else { !self.pending.ends_with('\n') };
        if open {
            self.pending.push('\n');
        }
    }
}

fn line(text: &str) -> String {
    cut(&one_line(text), LINE_CHARS_MAX)
}
