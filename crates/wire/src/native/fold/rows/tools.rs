//! A tool call's row, from its beginning to its end.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use engine::{CallId, Event, FileChange, Resolution, Resolver, ToolChange, ToolContent, ToolEnd, ToolStart};

use super::super::diffs::diff_of;
use super::super::text::{head, kind_word, place, tail_start};
use super::{Caps, Entry, Rows};
use crate::native::{Tool, ToolState, What};
use crate::transcript::block_text;

/// Places of a row.
const PLACES_MAX: usize = 32;
/// Files of a row.
const DIFFS_MAX: usize = 100;

impl Rows {
    pub(super) fn tool_started(&mut self, event: &Event, start: &ToolStart) {
        let caps = self.caps(event.seq.0);
        let tool = Tool {
            call: start.call.0.to_string(),
            tool: start.tool.to_string(),
            title: head(&start.title, caps.input_bytes).0.to_owned(),
            kind: kind_word(start.kind).to_owned(),
            state: ToolState::Running,
            reason: None,
            decided: None,
            input: head(&start.input.0, caps.input_bytes).0.to_owned(),
            output: String::new(),
            more: 0,
            diffs: Vec::new(),
            places: start.locations.iter().take(PLACES_MAX).map(place).collect(),
            exit: None,
            signal: None,
            elapsed_ms: None,
        };
        self.push(event, What::Tool(Box::new(tool)));
        self.calls.insert(start.call.clone(), event.seq.0);
        self.turn.iter_mut().for_each(|tally| tally.tools = tally.tools.saturating_add(1));
    }

    pub(super) fn tool_output(&mut self, event: &Event, call: &CallId, piece: &str) {
        let Some(row) = self.calls.get(call).copied() else { return };
        let caps = self.caps(row);
        if let Some(entry) = self.entry(row) {
            entry.put_out(event.seq.0, piece, caps.output_bytes);
        }
    }

    pub(super) fn tool_ended(&mut self, event: &Event, end: &ToolEnd) {
        for content in &end.content {
            if let ToolContent::Diff(change) = content {
                self.counted(change);
            }
        }
        let Some(row) = self.calls.get(&end.call).copied() else { return };
        // What a call showed before it was allowed is done when the call is.
        let shown = self.entry(row).map(|entry| entry.files()).filter(|_| !end.failed).unwrap_or_default();
        self.turn.iter_mut().for_each(|tally| tally.files.extend(shown.iter().cloned()));
        self.changed(event, row, |entry, caps| entry.end(end, caps));
    }

    pub(super) fn tool_changed(&mut self, event: &Event, change: &ToolChange) {
        let Some(row) = self.calls.get(&change.call).copied() else { return };
        self.changed(event, row, |entry, caps| entry.change(change, caps));
    }

    pub(super) fn edited(&mut self, event: &Event, call: Option<&CallId>, change: &FileChange) {
        self.counted(change);
        match call.and_then(|call| self.calls.get(call)).copied() {
            Some(row) => self.changed(event, row, |entry, caps| entry.put_change(change, caps)),
            None => self.note(event, format!("{} was changed", change.path.display())),
        }
    }

    fn counted(&mut self, change: &FileChange) {
        self.turn.iter_mut().for_each(|tally| tally.files.extend([change.path.clone()]));
    }

    pub(super) fn blocked(&mut self, event: &Event, call: Option<&CallId>, tool: &str, reason: &str) {
        let row = call.and_then(|call| self.calls.get(call)).copied();
        let Some(row) = row else { return self.note(event, format!("{tool} was refused: {reason}")) };
        self.changed(event, row, |entry, _| {
            if let What::Tool(tool) = &mut entry.row.what {
                tool.state = ToolState::Refused;
                tool.reason = Some(reason.to_owned());
            }
        });
    }

    /// What the policy decides leaves no trace: its own reason says more than that it refused.
    pub(super) fn decided(
        &mut self,
        event: &Event,
        call: Option<&CallId>,
        resolution: Resolution,
        by: &Resolver,
        said: Option<&str>,
    ) {
        let who = match by {
            Resolver::Surface { name, .. } => format!(" by {name}"),
            Resolver::Rule { .. } => " by an earlier answer".to_owned(),
            Resolver::Policy { .. } => return,
            Resolver::Engine => String::new(),
        };
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let (word, reason) = match resolution {
            Resolution::AllowedOnce => ("allowed", None),
            Resolution::AllowedAlways if by.for_session() => ("allowed for this session", None),
            Resolution::AllowedAlways => ("always allowed", None),
            Resolution::DeniedOnce => ("refused", Some(format!("refused{who}{said}"))),
            Resolution::DeniedAlways if by.for_session() => {
                ("refused for this session", Some(format!("refused for this session{who}{said}")))
            }
            Resolution::DeniedAlways => ("never allowed", Some(format!("never allowed{who}{said}"))),
            Resolution::Cancelled => ("cancelled", None),
            Resolution::TimedOut => ("refused", Some("nobody answered in time".to_owned())),
            Resolution::EndedByRestart => ("ended", None),
        };
        let Some(row) = call.and_then(|call| self.calls.get(call)).copied() else { return };
        self.changed(event, row, |entry, _| {
            let What::Tool(tool) = &mut entry.row.what else { return };
            if !who.is_empty() {
                tool.decided = Some(format!("{word}{who}"));
            }
            if let (ToolState::Running, Some(reason)) = (tool.state, reason) {
                tool.state = ToolState::Refused;
                tool.reason = Some(reason);
            }
        });
    }
}

impl Entry {
    /// The end of the output is shown. When it is too long, more than is needed goes at once: text that
    /// goes at the beginning means that all of the row is sent again.
    fn put_out(&mut self, seq: u64, piece: &str, bytes_max: usize) {
        let What::Tool(tool) = &mut self.row.what else { return };
        self.row.rev = seq;
        tool.output.push_str(piece);
        if tool.output.len() > bytes_max {
            let start = tail_start(&tool.output, bytes_max / 4 * 3);
            tool.output.drain(..start);
            tool.more += start as u64;
            self.whole_rev = seq;
        }
    }

    fn end(&mut self, end: &ToolEnd, caps: Caps) {
        let shown = self.show(&end.content, caps);
        let What::Tool(tool) = &mut self.row.what else { return };
        // A command that ran has an end of its own, whatever was refused to it on the way.
        if tool.state == ToolState::Running || end.exit.is_some() {
            tool.state = if end.failed { ToolState::Failed } else { ToolState::Done };
        }
        tool.exit = end.exit.as_ref().and_then(|exit| exit.code);
        tool.signal = end.exit.as_ref().and_then(|exit| exit.signal.as_ref()).map(ToString::to_string);
        tool.elapsed_ms = Some(end.elapsed_ms);
        if !end.locations.is_empty() {
            tool.places = end.locations.iter().take(PLACES_MAX).map(place).collect();
        }
        if let Some(shown) = shown {
            tool.say(&shown, caps);
        }
    }

    fn change(&mut self, change: &ToolChange, caps: Caps) {
        let shown = change.content.as_ref().map(|content| self.show(content, caps).unwrap_or_default());
        let What::Tool(tool) = &mut self.row.what else { return };
        if let Some(title) = &change.title {
            tool.title = head(title, caps.input_bytes).0.to_owned();
        }
        if let Some(kind) = change.kind {
            tool.kind = kind_word(kind).to_owned();
        }
        if let Some(places) = &change.locations {
            tool.places = places.iter().take(PLACES_MAX).map(place).collect();
        }
        if let Some(input) = &change.input {
            tool.input = head(&input.0, caps.input_bytes).0.to_owned();
        }
        if let Some(shown) = shown {
            tool.say(&shown, caps);
        }
    }

    /// Takes over the changes, and gives what is said, if anything is.
    fn show(&mut self, content: &[ToolContent], caps: Caps) -> Option<String> {
        let mut shown = Vec::new();
        for piece in content {
            match piece {
                ToolContent::Block(block) => shown.push(block_text(block)),
                ToolContent::Diff(change) => self.put_change(change, caps),
            }
        }
        (!shown.is_empty()).then(|| shown.join("\n"))
    }

    /// The files that the call shows changes of.
    fn files(&self) -> Vec<PathBuf> {
        let What::Tool(tool) = &self.row.what else { return Vec::new() };
        tool.diffs.iter().map(|diff| diff.path.as_str().into()).collect()
    }

    /// A change is told while the tool runs and again at its end; it is shown once.
    fn put_change(&mut self, change: &FileChange, caps: Caps) {
        let What::Tool(tool) = &mut self.row.what else { return };
        let mut hasher = DefaultHasher::new();
        (&change.path, &change.before, &change.after).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) || tool.diffs.len() >= DIFFS_MAX {
            return;
        }
        let shown: usize = tool.diffs.iter().flat_map(|diff| &diff.hunks).map(|hunk| hunk.lines.len()).sum();
        tool.diffs.push(diff_of(change, caps.diff_lines.saturating_sub(shown)));
    }
}

impl Tool {
    /// The end of it is shown.
    fn say(&mut self, text: &str, caps: Caps) {
        let start = tail_start(text, caps.output_bytes);
        self.more = start as u64;
        self.output = text.get(start..).unwrap_or_default().to_owned();
    }
}
