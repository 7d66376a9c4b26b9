//! A tool call's row, from its start to its end.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use engine::{CallId, Event, FileChange, Resolution, Resolver, ToolChange, ToolContent, ToolEnd, ToolStart};

use super::super::diff_view::diff_of;
use super::super::row_text::{head, kind_word, location_text, tail_start};
use super::{Entry, RowLimits, Rows};
use crate::native::{RowContent, ToolCallState, ToolCallView};
use crate::transcript::block_text;

/// Limit for the locations of a row.
const LOCATIONS_MAX: usize = 32;
/// Limit for the files of a row.
const DIFFS_MAX: usize = 100;

impl Rows {
    pub(super) fn tool_started(&mut self, event: &Event, start: &ToolStart) {
        let limits = self.limits(event.seq.0);
        let tool = ToolCallView {
            call: start.call.0.to_string(),
            tool: start.tool.to_string(),
            title: head(&start.title, limits.input_bytes).0.to_owned(),
            kind: kind_word(start.kind).to_owned(),
            state: ToolCallState::Running,
            reason: None,
            decided: None,
            input: head(&start.input.0, limits.input_bytes).0.to_owned(),
            output: String::new(),
            more: 0,
            diffs: Vec::new(),
            places: start.locations.iter().take(LOCATIONS_MAX).map(location_text).collect(),
            exit: None,
            signal: None,
            elapsed_ms: None,
        };
        self.push(event, RowContent::Tool(Box::new(tool)));
        self.calls.insert(start.call.clone(), event.seq.0);
        self.turn.iter_mut().for_each(|tally| tally.tools = tally.tools.saturating_add(1));
    }

    pub(super) fn tool_output(&mut self, event: &Event, call: &CallId, piece: &str) {
        let Some(row) = self.calls.get(call).copied() else { return };
        let limits = self.limits(row);
        if let Some(entry) = self.entry(row) {
            entry.put_out(event.seq.0, piece, limits.output_bytes);
        }
    }

    pub(super) fn tool_ended(&mut self, event: &Event, end: &ToolEnd) {
        for content in &end.content {
            if let ToolContent::Diff(change) = content {
                self.count_change(change);
            }
        }
        let Some(row) = self.calls.get(&end.call).copied() else { return };
        // The content that a call showed before it was allowed is complete when the call is.
        let shown = self.entry(row).map(|entry| entry.files()).filter(|_| !end.failed).unwrap_or_default();
        self.turn.iter_mut().for_each(|tally| tally.files.extend(shown.iter().cloned()));
        self.changed(event, row, |entry, limits| entry.end(end, limits));
    }

    pub(super) fn tool_changed(&mut self, event: &Event, change: &ToolChange) {
        let Some(row) = self.calls.get(&change.call).copied() else { return };
        self.changed(event, row, |entry, limits| entry.change(change, limits));
    }

    pub(super) fn edited(&mut self, event: &Event, call: Option<&CallId>, change: &FileChange) {
        self.count_change(change);
        match call.and_then(|call| self.calls.get(call)).copied() {
            Some(row) => self.changed(event, row, |entry, limits| entry.put_change(change, limits)),
            None => self.note(event, format!("{} was changed", change.path.display())),
        }
    }

    fn count_change(&mut self, change: &FileChange) {
        self.turn.iter_mut().for_each(|tally| tally.files.extend([change.path.clone()]));
    }

    pub(super) fn blocked(&mut self, event: &Event, call: Option<&CallId>, tool: &str, reason: &str) {
        let row = call.and_then(|call| self.calls.get(call)).copied();
        let Some(row) = row else { return self.note(event, format!("{tool} was refused: {reason}")) };
        self.changed(event, row, |entry, _| {
            if let RowContent::Tool(tool) = &mut entry.row.what {
                tool.state = ToolCallState::Refused;
                tool.reason = Some(reason.to_owned());
            }
        });
    }

    /// A decision of the policy is not shown: its own reason says more.
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
            let RowContent::Tool(tool) = &mut entry.row.what else { return };
            if !who.is_empty() {
                tool.decided = Some(format!("{word}{who}"));
            }
            if let (ToolCallState::Running, Some(reason)) = (tool.state, reason) {
                tool.state = ToolCallState::Refused;
                tool.reason = Some(reason);
            }
        });
    }
}

impl Entry {
    /// Appends output; the end of the output is shown. When it is too long, more than necessary is dropped
    /// at once: after text is dropped at the beginning, the whole row must be sent again.
    fn put_out(&mut self, seq: u64, piece: &str, bytes_max: usize) {
        let RowContent::Tool(tool) = &mut self.row.what else { return };
        self.row.rev = seq;
        tool.output.push_str(piece);
        if tool.output.len() > bytes_max {
            let start = tail_start(&tool.output, bytes_max / 4 * 3);
            tool.output.drain(..start);
            tool.more += start as u64;
            self.rewritten_rev = seq;
        }
    }

    fn end(&mut self, end: &ToolEnd, limits: RowLimits) {
        let shown = self.show(&end.content, limits);
        let RowContent::Tool(tool) = &mut self.row.what else { return };
        // A command that ran has its own result, whatever was refused to it on the way.
        if tool.state == ToolCallState::Running || end.exit.is_some() {
            tool.state = if end.failed { ToolCallState::Failed } else { ToolCallState::Done };
        }
        tool.exit = end.exit.as_ref().and_then(|exit| exit.code);
        tool.signal = end.exit.as_ref().and_then(|exit| exit.signal.as_ref()).map(ToString::to_string);
        tool.elapsed_ms = Some(end.elapsed_ms);
        if !end.locations.is_empty() {
            tool.places = end.locations.iter().take(LOCATIONS_MAX).map(location_text).collect();
        }
        if let Some(shown) = shown {
            tool.say(&shown, limits);
        }
    }

    fn change(&mut self, change: &ToolChange, limits: RowLimits) {
        let shown = change.content.as_ref().map(|content| self.show(content, limits).unwrap_or_default());
        let RowContent::Tool(tool) = &mut self.row.what else { return };
        if let Some(title) = &change.title {
            tool.title = head(title, limits.input_bytes).0.to_owned();
        }
        if let Some(kind) = change.kind {
            tool.kind = kind_word(kind).to_owned();
        }
        if let Some(places) = &change.locations {
            tool.places = places.iter().take(LOCATIONS_MAX).map(location_text).collect();
        }
        if let Some(input) = &change.input {
            tool.input = head(&input.0, limits.input_bytes).0.to_owned();
        }
        if let Some(shown) = shown {
            tool.say(&shown, limits);
        }
    }

    /// Applies the file changes and returns the text, if there is any.
    fn show(&mut self, content: &[ToolContent], limits: RowLimits) -> Option<String> {
        let mut shown = Vec::new();
        for piece in content {
            match piece {
                ToolContent::Block(block) => shown.push(block_text(block)),
                ToolContent::Diff(change) => self.put_change(change, limits),
            }
        }
        (!shown.is_empty()).then(|| shown.join("\n"))
    }

    /// The files whose changes the call shows.
    fn files(&self) -> Vec<PathBuf> {
        let RowContent::Tool(tool) = &self.row.what else { return Vec::new() };
        tool.diffs.iter().map(|diff| diff.path.as_str().into()).collect()
    }

    /// A change is reported while the tool runs and again at its end; it is shown once.
    fn put_change(&mut self, change: &FileChange, limits: RowLimits) {
        let RowContent::Tool(tool) = &mut self.row.what else { return };
        let mut hasher = DefaultHasher::new();
        (&change.path, &change.before, &change.after).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) || tool.diffs.len() >= DIFFS_MAX {
            return;
        }
        let shown: usize = tool.diffs.iter().flat_map(|diff| &diff.hunks).map(|hunk| hunk.lines.len()).sum();
        tool.diffs.push(diff_of(change, limits.diff_lines.saturating_sub(shown)));
    }
}

impl ToolCallView {
    /// Shows the end of the text.
    fn say(&mut self, text: &str, limits: RowLimits) {
        let start = tail_start(text, limits.output_bytes);
        self.more = start as u64;
        self.output = text.get(start..).unwrap_or_default().to_owned();
    }
}
