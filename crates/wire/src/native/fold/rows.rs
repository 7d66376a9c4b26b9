//! Folds events into rows.

mod tools;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;

use engine::{
    APPROVAL, AskId, Body, CallId, Event, MessageId, NoticeLevel, PlanEntry, Resolution, Resolver, Stop,
    Timestamp, TurnId, Usage,
};

use super::row_text::{head, name_of, prompt, stop_word};
use super::session_state::plan_of;
use crate::native::{
    DIFF_LINES_MAX, FULL_ROW_BYTES_MAX, INPUT_BYTES_MAX, NoticeSeverity, OUTPUT_BYTES_MAX, Row, RowContent,
    TEXT_BYTES_MAX, TurnSummary,
};

/// Limit for a name inside a sentence.
const NAME_BYTES_MAX: usize = 120;

/// Limits for a row's content.
#[derive(Debug, Clone, Copy)]
pub struct RowLimits {
    pub text_bytes: usize,
    pub input_bytes: usize,
    pub output_bytes: usize,
    pub diff_lines: usize,
}

impl RowLimits {
    pub const USUAL: RowLimits = RowLimits {
        text_bytes: TEXT_BYTES_MAX,
        input_bytes: INPUT_BYTES_MAX,
        output_bytes: OUTPUT_BYTES_MAX,
        diff_lines: DIFF_LINES_MAX,
    };
    pub const FULL: RowLimits = RowLimits {
        text_bytes: FULL_ROW_BYTES_MAX,
        input_bytes: FULL_ROW_BYTES_MAX,
        output_bytes: FULL_ROW_BYTES_MAX,
        diff_lines: 200_000,
    };
}

/// The last rows of a log.
#[derive(Debug, Default)]
pub struct Rows {
    /// Ordered by id.
    entries: VecDeque<Entry>,
    /// The row that is made with all of its text.
    full_row: Option<u64>,
    /// Calls of the running turn, and their rows.
    calls: HashMap<CallId, u64>,
    /// Unanswered questions.
    questions: HashMap<AskId, u64>,
    /// The unfinished message of each author (the agent, its sub-agents).
    speaking: HashMap<Option<CallId>, OpenMessage>,
    /// Queued prompts.
    queued: BTreeMap<TurnId, PromptText>,
    turn: Option<TurnTally>,
    /// Everything up to here is folded.
    upto: u64,
    /// Changes up to here may be missing: their rows were dropped, or never made.
    floor: u64,
    /// There are rows before the first one.
    earlier: bool,
    cleared: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub row: Row,
    /// The position of the last change other than text appended at the end.
    pub rewritten_rev: u64,
    /// Bytes of a message beyond the limit; the row is updated with this number now and then, and at the
    /// message's end.
    unshown: u64,
    /// Digests of the file changes that the row has already.
    seen: HashSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct OpenMessage {
    row: u64,
    message: MessageId,
    thought: bool,
}

/// A queued prompt, as it is shown if its turn never starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText {
    pub from: String,
    pub text: String,
}

/// Totals of the running turn.
#[derive(Debug)]
struct TurnTally {
    turn: Option<TurnId>,
    at: Timestamp,
    plan: Option<u64>,
    tools: u32,
    files: HashSet<PathBuf>,
    cost_usd: Option<f64>,
}

impl TurnTally {
    fn new(turn: Option<TurnId>, at: Timestamp) -> Self {
        Self { turn, at, plan: None, tools: 0, files: HashSet::new(), cost_usd: None }
    }

    fn used(&mut self, usage: &Usage) {
        if let Some(cost) = usage.known_usd() {
            self.cost_usd = Some(self.cost_usd.unwrap_or_default() + cost).filter(|sum| sum.is_finite());
        }
    }
}

impl Rows {
    /// Rows from after a position at which no turn runs. `queued` are the prompts that were queued there,
    /// and `earlier` says that there are rows before it.
    pub fn after(position: u64, queued: BTreeMap<TurnId, PromptText>, earlier: bool) -> Self {
        Self { queued, upto: position, floor: position, earlier, ..Self::default() }
    }

    /// The same, with one row that has all of its text.
    #[must_use]
    pub fn with_full_row(self, row: u64) -> Self {
        Self { full_row: Some(row), ..self }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.entries.iter().map(|entry| &entry.row)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn upto(&self) -> u64 {
        self.upto
    }

    pub fn earlier(&self) -> bool {
        self.earlier
    }

    /// Whether these rows have everything that changed after a position.
    pub(super) fn covers(&self, position: u64) -> bool {
        (self.floor..=self.upto).contains(&position) && position >= self.cleared
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Drops the oldest rows until there are at most `rows_max`.
    pub fn trim(&mut self, rows_max: usize) {
        while self.entries.len() > rows_max {
            let Some(gone) = self.entries.pop_front() else { return };
            self.floor = self.floor.max(gone.row.rev);
            self.earlier = true;
        }
    }

    /// Drops the rows from this one on: a page does not need them.
    pub fn drop_from(&mut self, row: u64) {
        while self.entries.back().is_some_and(|last| last.row.id >= row) {
            self.entries.pop_back();
        }
    }

    /// Drops all rows but this one.
    pub fn keep_only(&mut self, row: u64) {
        self.entries.retain(|entry| entry.row.id == row);
    }

    pub fn observe(&mut self, event: &Event) {
        self.upto = event.seq.0;
        match &event.body {
            Body::TurnQueued { content } => {
                let waits = PromptText { from: name_of(&event.origin), text: prompt(content).0 };
                self.queued.extend(event.turn.map(|turn| (turn, waits)));
            }
            Body::TurnStarted => {
                self.queued.retain(|turn, _| Some(*turn) != event.turn);
                self.settle_turn(event.seq.0);
                self.turn = Some(TurnTally::new(event.turn, event.at));
            }
            Body::UserMessage { content } => {
                let (text, attached) = prompt(content);
                let (text, more) = head(&text, self.limits(event.seq.0).text_bytes);
                let from = name_of(&event.origin);
                self.push(event, RowContent::Prompt { from, text: text.to_owned(), more, attached });
            }
            Body::Text { message, text } => self.add_text(event, *message, text, false),
            Body::Thought { message, text } => self.add_text(event, *message, text, true),
            Body::Plan { entries } => self.planned(event, entries),
            Body::ToolStarted(start) => self.tool_started(event, start),
            Body::ToolOutput { call, text, .. } => self.tool_output(event, call, text),
            Body::ToolChanged(change) => self.tool_changed(event, change),
            Body::ToolEnded(end) => self.tool_ended(event, end),
            Body::FileEdited { call, change } => self.edited(event, call.as_ref(), change),
            Body::Asked { ask, request } => {
                if let Some(question) = &request.question {
                    let text = head(&question.text, TEXT_BYTES_MAX).0.to_owned();
                    self.push(event, RowContent::Question { text, reply: None, by: None });
                    self.questions.insert(*ask, event.seq.0);
                }
            }
            Body::Resolved { ask, call, resolution, by, reply, exactly: _ } => {
                self.resolved(event, *ask, call.as_ref(), (*resolution, by), reply.as_deref());
            }
            Body::PolicyBlocked { call, tool, reason, .. } => {
                self.blocked(event, call.as_ref(), tool, reason);
            }
            Body::SettingChanged { id, value } => self.set(event, id, value),
            Body::Moved { cwd, .. } => self.note(event, format!("the folder is {}", cwd.display())),
            Body::Compacted { .. } => {
                self.note(event, "earlier messages were summarized for the model".to_owned());
            }
            Body::CancelRequested { .. } => {
                self.note(event, format!("{} asked to stop", name_of(&event.origin)))
            }
            Body::Usage(usage) => self.turn.iter_mut().for_each(|tally| tally.used(usage)),
            Body::Notice { level, text } => {
                let text = head(text, TEXT_BYTES_MAX).0.to_owned();
                self.push(event, RowContent::Notice { level: level_of(*level), text });
            }
            Body::Cleared => self.clear(event.seq.0),
            Body::TurnEnded { stop, error } => self.end_turn(event, *stop, error.as_deref()),
            Body::FileShown { .. }
            | Body::ToolTerminal { .. }
            | Body::Commands { .. }
            | Body::Title { .. }
            | Body::Compacting { .. }
            | Body::Offered { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => {}
        }
    }

    fn limits(&self, row: u64) -> RowLimits {
        if self.full_row == Some(row) { RowLimits::FULL } else { RowLimits::USUAL }
    }

    fn push(&mut self, event: &Event, what: RowContent) {
        let task = event.origin.task();
        let under = task.and_then(|call| self.calls.get(call)).copied();
        // The author of this row has finished the message before it.
        self.settle(event.seq.0, task.cloned());
        let row = Row {
            id: event.seq.0,
            rev: event.seq.0,
            at: event.at.0,
            turn: event.turn.map(|turn| turn.0),
            under,
            what,
        };
        self.entries.push_back(Entry { rewritten_rev: row.rev, row, unshown: 0, seen: HashSet::new() });
    }

    /// An approval setting that somebody changed from another machine must not go unnoticed here.
    fn set(&mut self, event: &Event, id: &str, value: &str) {
        match event.origin.remote() {
            Some(user) if id == APPROVAL => {
                let user = head(user, NAME_BYTES_MAX).0;
                let text = format!("over the bridge, {user} set the approval to {value}");
                self.push(event, RowContent::Notice { level: NoticeSeverity::Warning, text });
            }
            Some(_) | None => self.note(event, format!("{id} is set to {value}")),
        }
    }

    fn note(&mut self, event: &Event, text: String) {
        self.push(event, RowContent::Note { text });
    }

    fn entry(&mut self, row: u64) -> Option<&mut Entry> {
        // New rows are at the end, and so are nearly all rows that change.
        let at = self.entries.binary_search_by_key(&row, |entry| entry.row.id).ok()?;
        self.entries.get_mut(at)
    }

    /// Applies a change to a row.
    fn changed(&mut self, event: &Event, row: u64, change: impl FnOnce(&mut Entry, RowLimits)) {
        let limits = self.limits(row);
        if let Some(entry) = self.entry(row) {
            change(entry, limits);
            entry.row.rev = event.seq.0;
            entry.rewritten_rev = event.seq.0;
        } else {
            // The row was dropped before it was complete: clients that have it get all rows again.
            self.floor = self.floor.max(event.seq.0);
        }
    }

    fn add_text(&mut self, event: &Event, message: MessageId, piece: &str, thought: bool) {
        let speaker = event.origin.task().cloned();
        let same = self.speaking.get(&speaker).copied();
        let same = same.filter(|speech| speech.message == message && speech.thought == thought);
        if let Some(speech) = same {
            let max = self.limits(speech.row).text_bytes;
            if let Some(entry) = self.entry(speech.row) {
                entry.grow(event.seq.0, piece, max);
            }
            return;
        }
        let (text, more) = (String::new(), 0);
        self.push(
            event,
            if thought {
                RowContent::Thought { text, more }
            } else {
                RowContent::AgentMessage { text, more }
            },
        );
        let max = self.limits(event.seq.0).text_bytes;
        self.entries.back_mut().into_iter().for_each(|entry| entry.grow(event.seq.0, piece, max));
        self.speaking.insert(speaker, OpenMessage { row: event.seq.0, message, thought });
    }

    /// A message is complete: its number of unshown bytes is updated here at the latest.
    fn settle(&mut self, seq: u64, speaker: Option<CallId>) {
        let Some(speech) = self.speaking.remove(&speaker) else { return };
        if let Some(entry) = self.entry(speech.row) {
            entry.show_unshown(seq);
        }
    }

    fn planned(&mut self, event: &Event, entries: &[PlanEntry]) {
        let plan = plan_of(entries);
        if let Some(row) = self.turn.as_ref().and_then(|tally| tally.plan) {
            return self.changed(event, row, |entry, _| entry.row.what = RowContent::Plan(plan));
        }
        self.push(event, RowContent::Plan(plan));
        self.turn.iter_mut().for_each(|tally| tally.plan = Some(event.seq.0));
    }

    fn resolved(
        &mut self,
        event: &Event,
        ask: AskId,
        call: Option<&CallId>,
        (resolution, by): (Resolution, &Resolver),
        reply: Option<&str>,
    ) {
        if let Some(row) = self.questions.remove(&ask) {
            let who = if let Resolver::Surface { name, .. } = by { name } else { "nobody" };
            let (who, said) = (who.to_owned(), reply.map(|reply| head(reply, TEXT_BYTES_MAX).0.to_owned()));
            return self.changed(event, row, |entry, _| {
                if let RowContent::Question { reply, by, .. } = &mut entry.row.what {
                    (*reply, *by) = (said, Some(who));
                }
            });
        }
        self.decided(event, call, resolution, by, reply);
    }

    /// The rows of earlier turns do not change any more.
    fn settle_turn(&mut self, seq: u64) {
        let speakers: Vec<_> = self.speaking.keys().cloned().collect();
        speakers.into_iter().for_each(|speaker| self.settle(seq, speaker));
        self.calls.clear();
        self.questions.clear();
    }

    fn clear(&mut self, at: u64) {
        self.entries.clear();
        self.calls.clear();
        self.questions.clear();
        self.speaking.clear();
        self.turn.iter_mut().for_each(|tally| tally.plan = None);
        self.cleared = at;
        self.earlier = false;
    }

    fn end_turn(&mut self, event: &Event, stop: Stop, error: Option<&str>) {
        let waited = event.turn.and_then(|turn| self.queued.remove(&turn));
        if let Some(PromptText { from, text }) = waited {
            let text = head(&text, TEXT_BYTES_MAX).0;
            let why = if stop == Stop::Cancelled { "was cancelled" } else { "was not started" };
            return self.note(event, format!("a queued prompt from {from} {why}: {text}"));
        }
        let tally = self.turn.take_if(|tally| tally.turn == event.turn);
        let tally = tally.unwrap_or_else(|| TurnTally::new(event.turn, event.at));
        self.settle_turn(event.seq.0);
        let elapsed_ms = u64::try_from(event.at.0.saturating_sub(tally.at.0)).unwrap_or_default();
        self.push(
            event,
            RowContent::TurnEnd(TurnSummary {
                stop: stop_word(stop).to_owned(),
                error: error.map(str::to_owned),
                elapsed_ms,
                tools: tally.tools,
                files: u32::try_from(tally.files.len()).unwrap_or(u32::MAX),
                cost_usd: tally.cost_usd.filter(|cost| *cost > 0.0),
            }),
        );
    }
}

impl Entry {
    /// Appends text. Text beyond the limit is counted, and the row is updated whenever the count has
    /// doubled: a row of this size must not be sent again for every chunk.
    fn grow(&mut self, seq: u64, piece: &str, bytes_max: usize) {
        let (RowContent::AgentMessage { text, more } | RowContent::Thought { text, more }) =
            &mut self.row.what
        else {
            return;
        };
        let room = if self.unshown > 0 { 0 } else { bytes_max.saturating_sub(text.len()) };
        let (kept, rest) = head(piece, room);
        if !kept.is_empty() {
            text.push_str(kept);
            self.row.rev = seq;
        }
        self.unshown += rest;
        if self.unshown >= more.saturating_mul(2) {
            self.show_unshown(seq);
        }
    }

    fn show_unshown(&mut self, seq: u64) {
        let (RowContent::AgentMessage { more, .. } | RowContent::Thought { more, .. }) = &mut self.row.what
        else {
            return;
        };
        if *more != self.unshown {
            *more = self.unshown;
            (self.row.rev, self.rewritten_rev) = (seq, seq);
        }
    }
}

fn level_of(level: NoticeLevel) -> NoticeSeverity {
    match level {
        NoticeLevel::Info => NoticeSeverity::Info,
        NoticeLevel::Warning => NoticeSeverity::Warning,
        NoticeLevel::Error | NoticeLevel::Damage => NoticeSeverity::Error,
    }
}
