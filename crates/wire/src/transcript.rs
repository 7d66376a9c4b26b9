//! A session as people read it: the log's events folded into messages, tool calls and notes.
//!
//! Every readable form (terminal, Markdown, web page) is made from these rows, so none of them can omit what
//! another shows. The transcript of a cleared session begins after the clear.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    Body, CallId, Content, ContextEvent, Event, Exit, Family, FileChange, MessageId, NoticeLevel, Origin,
    PermissionEvent, PlanEntry, Resolution, Resolver, SetupEvent, SpeechEvent, Stop, Timestamp, ToolChange,
    ToolContent, ToolEnd, ToolEvent, ToolStart, Totals, TurnEvent, TurnId,
};

use crate::money;

/// Limits for the rows of one turn that are held because they may still change, and for their text.
const HELD_ROWS_MAX: usize = 1024;
const HELD_BYTES_MAX: usize = 4 << 20;
/// The memory of a row besides its text.
const ROW_BYTES: usize = 128;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    pub rows: Vec<Row>,
    /// The times of the first and the last event.
    pub first_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
    pub turns: u64,
    pub totals: Totals,
    /// Something before the first row was cleared.
    pub cleared: bool,
    /// The external agent of the session, if it has one.
    pub agent: Option<Arc<str>>,
    /// Number of rows that were taken out, all of them before `rows`.
    taken: usize,
    /// The rows before this one belong to finished turns.
    over: usize,
    /// The row of each call, counted with the rows that were taken out.
    calls: HashMap<CallId, usize>,
    /// The calls of sub-agents, and their parent calls.
    parents: HashMap<CallId, CallId>,
    /// Prompts that were accepted and not yet started.
    queued: HashMap<TurnId, Row>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    Prompt {
        from: Arc<str>,
        at: Timestamp,
        content: Vec<Content>,
    },
    AgentMessage {
        message: MessageId,
        text: String,
    },
    Thought {
        message: MessageId,
        text: String,
    },
    Plan {
        entries: Vec<PlanEntry>,
    },
    Tool(Box<ToolRow>),
    Notice {
        level: NoticeLevel,
        text: Arc<str>,
    },
    /// A change of the session itself: a setting, the folder.
    Note {
        text: String,
    },
    TurnEnded {
        stop: Stop,
        error: Option<Arc<str>>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolRow {
    pub call: CallId,
    pub tool: Arc<str>,
    pub title: Arc<str>,
    pub input: Arc<str>,
    /// The parent call, if a sub-agent made this one.
    pub parent: Option<CallId>,
    /// What the sub-agent of this call said and did.
    pub task: Option<Box<Transcript>>,
    pub state: ToolState,
    /// Who allowed it, if that was a person or an earlier answer of one.
    pub decided: Option<String>,
    pub output: String,
    pub changes: Vec<FileChange>,
    pub exit: Option<Exit>,
    pub elapsed_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolState {
    Running,
    Done,
    Failed,
    Refused { reason: Arc<str> },
}

impl Transcript {
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut transcript = Self::default();
        for event in events {
            transcript.observe(event);
        }
        transcript
    }

    pub fn observe(&mut self, event: &Event) {
        self.first_at.get_or_insert(event.at);
        self.last_at = Some(event.at);
        match event.origin.task() {
            Some(call) => self.observe_task(call, event),
            None => self.observe_own(event),
        }
    }

    /// A sub-agent's events are in the row of its parent call. A sub-agent of a sub-agent is in the same
    /// row: deeper nesting would be unreadable.
    fn observe_task(&mut self, call: &CallId, event: &Event) {
        if let Body::Usage(usage) = &event.body {
            self.totals.add_from(&event.origin, usage);
        }
        let call = self.parents.get(call).unwrap_or(call).clone();
        let starts = if let Body::ToolStarted(start) = &event.body { Some(start.call.clone()) } else { None };
        let Some(at) = self.calls.get(&call) else { return };
        if let Some(Row::Tool(row)) = self.rows.get_mut(at - self.taken) {
            let task = row.task.get_or_insert_default();
            task.observe_own(event);
            if let Some(inner) = starts {
                task.tool(&inner).into_iter().for_each(|row| row.parent = Some(call.clone()));
                self.parents.insert(inner, call);
            }
        }
    }

    fn observe_own(&mut self, event: &Event) {
        match event.body.family() {
            Family::Turn(turn) => self.turn(event, turn),
            Family::Speech(SpeechEvent::Text { message, text }) => self.add_text(message, text),
            Family::Speech(SpeechEvent::Thought { message, text }) => self.add_thought(message, text),
            Family::Speech(SpeechEvent::Output { call, text, .. }) => {
                if let Some(row) = self.tool(call) {
                    row.output.push_str(text);
                }
            }
            Family::Tool(ToolEvent::Started(start)) => self.tool_started(start),
            Family::Tool(ToolEvent::Changed(change)) => self.tool_changed(change),
            Family::Tool(ToolEvent::Ended(end)) => self.tool_ended(end),
            Family::Permission(PermissionEvent::Asked { request, .. }) => {
                if let Some(question) = &request.question {
                    self.note(format!("the agent asks: {}", question.text));
                }
            }
            Family::Permission(PermissionEvent::Resolved { call, resolution, by, reply, .. }) => {
                if reply.is_none() || !resolution.allows() {
                    self.resolved(call, resolution, by);
                }
                if let Some(reply) = reply {
                    let who = if let Resolver::Surface { name, .. } = by { name } else { "somebody" };
                    let does = if resolution.allows() { "answers" } else { "refuses" };
                    self.note(format!("{who} {does}: {reply}"));
                }
            }
            Family::Usage(usage) => self.totals.add_from(&event.origin, usage),
            Family::Setup(SetupEvent::Setting { id, value }) => {
                self.note(format!("{id} is set to {value}"));
            }
            Family::Setup(SetupEvent::Moved { cwd, .. }) => {
                self.note(format!("the folder is {}", cwd.display()));
            }
            Family::Setup(SetupEvent::Joined { agent, .. }) => self.agent = Some(Arc::clone(agent)),
            Family::Context(ContextEvent::Cleared) => {
                self.forget_rows();
                self.cleared = true;
            }
            Family::Context(ContextEvent::Compacted { .. }) => {
                self.note("earlier messages were summarized for the model".into());
            }
            Family::Setup(
                SetupEvent::Commands { .. } | SetupEvent::Title { .. } | SetupEvent::Offered { .. },
            )
            | Family::Context(ContextEvent::Compacting { .. }) => {}
            Family::Other => self.other(&event.body),
        }
    }

    fn turn(&mut self, event: &Event, turn: TurnEvent<'_>) {
        match turn {
            TurnEvent::Queued { content } => {
                self.queued.extend(event.turn.map(|turn| (turn, prompt_row(event, content))));
            }
            TurnEvent::Started => self.turns += 1,
            TurnEvent::UserMessage { content } => {
                self.queued.retain(|turn, _| Some(*turn) != event.turn);
                self.rows.push(prompt_row(event, content));
            }
            TurnEvent::CancelRequested { .. } => {
                self.note(format!("{} asked to stop", name_of(&event.origin)))
            }
            TurnEvent::Ended { stop, error } => self.end_turn(event.turn, stop, error),
        }
    }

    fn other(&mut self, body: &Body) {
        if let Body::Plan { entries } = body {
            self.rows.push(Row::Plan { entries: entries.clone() });
        } else if let Body::FileEdited { call, change } = body {
            self.edited(call.as_ref(), change);
        } else if let Body::PolicyBlocked { call, tool, reason, .. } = body {
            self.blocked(call.as_ref(), tool, reason);
        } else if let Body::Notice { level, text } = body {
            self.rows.push(Row::Notice { level: *level, text: Arc::clone(text) });
        }
    }

    /// Drops the rows and keeps the rest, for callers that only need the session's totals.
    pub fn forget_rows(&mut self) {
        self.taken += self.rows.len();
        self.rows.clear();
        self.calls.clear();
        self.parents.clear();
    }

    /// Takes out the oldest rows that later events cannot change: those of finished turns, and in a turn
    /// that is longer than [`HELD_ROWS_MAX`] those whose call has ended. So a session of any length can be
    /// written with few rows in memory.
    pub fn take_settled(&mut self) -> Vec<Row> {
        // The last row may still grow, and it shows whether an error was already mentioned.
        let most = self.rows.len().saturating_sub(1);
        let mut count = self.over.saturating_sub(self.taken).min(most);
        if self.rows.len() > HELD_ROWS_MAX || self.held_bytes() > HELD_BYTES_MAX {
            let running = |row: &Row| matches!(row, Row::Tool(tool) if tool.state == ToolState::Running);
            let ended = self.rows[count..most].iter().take_while(|row| !running(row)).count();
            count += ended;
        }
        self.take(count)
    }

    /// Takes out all remaining rows.
    pub fn take_rest(&mut self) -> Vec<Row> {
        self.take(self.rows.len())
    }

    /// The length of the text in the rows.
    pub fn held_bytes(&self) -> usize {
        self.rows.iter().map(Row::weight).sum()
    }

    fn take(&mut self, count: usize) -> Vec<Row> {
        let rows: Vec<_> = self.rows.drain(..count).collect();
        self.taken += count;
        for row in &rows {
            let Row::Tool(tool) = row else { continue };
            self.calls.remove(&tool.call);
            for inner in tool.task.iter().flat_map(|task| task.calls.keys()) {
                self.parents.remove(inner);
            }
        }
        rows
    }

    /// Everything the agent said, message by message.
    pub fn said_text(&self) -> String {
        let said = |row: &Row| {
            if let Row::AgentMessage { text, .. } = row { Some(text.trim_end().to_owned()) } else { None }
        };
        self.rows.iter().filter_map(said).collect::<Vec<_>>().join("\n\n")
    }

    /// All tool calls; those of sub-agents follow their parent call.
    pub fn tools(&self) -> impl Iterator<Item = &ToolRow> {
        self.own_tools()
            .flat_map(|tool| std::iter::once(tool).chain(tool.task.iter().flat_map(|task| task.own_tools())))
    }

    fn own_tools(&self) -> impl Iterator<Item = &ToolRow> {
        self.rows.iter().filter_map(|row| if let Row::Tool(tool) = row { Some(&**tool) } else { None })
    }

    pub fn tool(&mut self, call: &CallId) -> Option<&mut ToolRow> {
        let parent = self.parents.get(call);
        let at = *self.calls.get(parent.unwrap_or(call))?;
        let Some(Row::Tool(row)) = self.rows.get_mut(at - self.taken) else { return None };
        if parent.is_none() {
            return Some(row);
        }
        let task = row.task.as_mut()?;
        let at = *task.calls.get(call)? - task.taken;
        if let Some(Row::Tool(row)) = task.rows.get_mut(at) { Some(row) } else { None }
    }

    fn add_text(&mut self, message: MessageId, piece: &str) {
        match self.rows.last_mut() {
            Some(Row::AgentMessage { message: last, text }) if *last == message => text.push_str(piece),
            _ => self.rows.push(Row::AgentMessage { message, text: piece.to_owned() }),
        }
    }

    fn add_thought(&mut self, message: MessageId, piece: &str) {
        match self.rows.last_mut() {
            Some(Row::Thought { message: last, text }) if *last == message => text.push_str(piece),
            _ => self.rows.push(Row::Thought { message, text: piece.to_owned() }),
        }
    }

    fn note(&mut self, text: String) {
        self.rows.push(Row::Note { text });
    }

    fn tool_started(&mut self, start: &ToolStart) {
        self.calls.insert(start.call.clone(), self.taken + self.rows.len());
        self.rows.push(Row::Tool(Box::new(ToolRow {
            call: start.call.clone(),
            tool: Arc::clone(&start.tool),
            title: Arc::clone(&start.title),
            input: Arc::clone(&start.input.0),
            parent: None,
            task: None,
            state: ToolState::Running,
            decided: None,
            output: String::new(),
            changes: Vec::new(),
            exit: None,
            elapsed_ms: 0,
        })));
    }

    fn tool_ended(&mut self, end: &ToolEnd) {
        let Some(row) = self.tool(&end.call) else { return };
        // A command that ran has its own result, whatever was refused to it on the way.
        if row.state == ToolState::Running || end.exit.is_some() {
            row.state = if end.failed { ToolState::Failed } else { ToolState::Done };
        }
        row.exit.clone_from(&end.exit);
        row.elapsed_ms = end.elapsed_ms;
        let shown = show(row, &end.content);
        if !shown.is_empty() {
            row.output = shown.join("\n");
        }
    }

    fn tool_changed(&mut self, change: &ToolChange) {
        let Some(row) = self.tool(&change.call) else { return };
        if let Some(title) = &change.title {
            row.title = Arc::clone(title);
        }
        if let Some(input) = &change.input {
            row.input = Arc::clone(&input.0);
        }
        if let Some(content) = &change.content {
            row.output = show(row, content).join("\n");
        }
    }

    fn edited(&mut self, call: Option<&CallId>, change: &FileChange) {
        match call.and_then(|call| self.tool(call)) {
            Some(row) => remember_change(row, change),
            None => self.note(format!("{} was changed", change.path.display())),
        }
    }

    fn resolved(&mut self, call: Option<&CallId>, resolution: Resolution, by: &Resolver) {
        let who = match by {
            Resolver::Surface { name, .. } => format!(" by {name}"),
            Resolver::Rule { .. } => " by an earlier answer".to_owned(),
            Resolver::Policy { .. } | Resolver::Engine => String::new(),
        };
        let (word, reason) = match resolution {
            Resolution::AllowedOnce => ("allowed", None),
            Resolution::AllowedAlways if by.for_session() => ("allowed for this session", None),
            Resolution::AllowedAlways => ("always allowed", None),
            Resolution::DeniedOnce => ("refused", Some(format!("refused{who}"))),
            Resolution::DeniedAlways if by.for_session() => {
                ("refused for this session", Some(format!("refused for this session{who}")))
            }
            Resolution::DeniedAlways => ("never allowed", Some(format!("never allowed{who}"))),
            Resolution::Cancelled => ("cancelled", None),
            Resolution::TimedOut => ("refused", Some("nobody answered in time".to_owned())),
            Resolution::EndedByRestart => ("ended", None),
        };
        let Some(row) = call.and_then(|call| self.tool(call)) else { return };
        if !who.is_empty() {
            row.decided = Some(format!("{word}{who}"));
        }
        // The policy's own reason says more than that it refused.
        if let (ToolState::Running, Some(reason)) = (&row.state, reason) {
            row.state = ToolState::Refused { reason: reason.into() };
        }
    }

    fn blocked(&mut self, call: Option<&CallId>, tool: &str, reason: &Arc<str>) {
        match call.and_then(|call| self.tool(call)) {
            Some(row) => row.state = ToolState::Refused { reason: Arc::clone(reason) },
            None => self.note(format!("{tool} was refused: {reason}")),
        }
    }

    fn end_turn(&mut self, turn: Option<TurnId>, stop: Stop, error: Option<&Arc<str>>) {
        self.rows.extend(turn.and_then(|turn| self.queued.remove(&turn)));
        let told = |row: &Row| matches!(row, Row::Notice { text, .. } if Some(text) == error);
        let error = if self.rows.last().is_some_and(told) { None } else { error.cloned() };
        if stop != Stop::EndTurn {
            self.rows.push(Row::TurnEnded { stop, error });
        }
        self.over = self.taken + self.rows.len();
    }
}

fn prompt_row(event: &Event, content: &[Content]) -> Row {
    Row::Prompt { from: name_of(&event.origin), at: event.at, content: content.to_vec() }
}

fn name_of(origin: &Origin) -> Arc<str> {
    match origin {
        Origin::Surface { name, .. } => Arc::clone(name),
        Origin::Engine => "ropewalk".into(),
        Origin::Agent | Origin::Task { .. } => "the agent".into(),
    }
}

/// Applies the file changes of a call and returns its texts.
fn show(row: &mut ToolRow, content: &[ToolContent]) -> Vec<String> {
    let mut shown = Vec::new();
    for piece in content {
        match piece {
            ToolContent::Block(block) => shown.push(block_text(block)),
            ToolContent::Diff(change) => remember_change(row, change),
        }
    }
    shown
}

fn remember_change(row: &mut ToolRow, change: &FileChange) {
    if !row.changes.contains(change) {
        row.changes.push(change.clone());
    }
}

/// A block as text; content that is not text is named.
pub(crate) fn block_text(block: &Content) -> String {
    match block {
        Content::Text(text) => text.to_string(),
        Content::Image { mime, data, .. } => format!("[image, {mime}, {}]", size_text(base64_bytes(data))),
        Content::Audio { mime, data } => format!("[audio, {mime}, {}]", size_text(base64_bytes(data))),
        Content::Link(link) => format!("[{}]({})", link.name, link.uri),
        Content::Resource { uri, text, .. } => format!("[{uri}, {}]", size_text(text.len())),
        Content::Binary { uri, data, .. } => format!("[{uri}, {}]", size_text(base64_bytes(data))),
    }
}

fn base64_bytes(data: &str) -> usize {
    data.len() / 4 * 3
}

fn size_text(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KB", bytes.div_ceil(1024)) }
}

impl Row {
    fn weight(&self) -> usize {
        let text = match self {
            Self::Prompt { content, .. } => content.iter().map(Content::weight).sum(),
            Self::AgentMessage { text, .. } | Self::Thought { text, .. } | Self::Note { text } => text.len(),
            Self::Plan { entries } => entries.iter().map(|entry| entry.content.len()).sum(),
            Self::Tool(tool) => {
                let changes: usize = tool.changes.iter().map(FileChange::weight).sum();
                let task = tool.task.as_ref().map_or(0, |task| task.held_bytes());
                tool.input.len() + tool.output.len() + changes + task
            }
            Self::Notice { text, .. } => text.len(),
            Self::TurnEnded { error, .. } => error.as_ref().map_or(0, |error| error.len()),
        };
        text + ROW_BYTES
    }
}

impl ToolRow {
    /// How the call ended, in a few words; empty if there is nothing to say.
    pub fn remark(&self) -> String {
        let exit = self.exit.as_ref().and_then(|exit| match (&exit.signal, exit.code) {
            (Some(signal), _) => Some(format!("ended by {signal}")),
            (None, code) => code.filter(|code| *code != 0).map(|code| format!("exit {code}")),
        });
        let mut parts = Vec::new();
        match &self.state {
            ToolState::Running => parts.push("not finished".to_owned()),
            ToolState::Done => {}
            ToolState::Failed if exit.is_some() => {}
            ToolState::Failed => parts.push("failed".to_owned()),
            ToolState::Refused { reason } => parts.push(format!("refused: {reason}")),
        }
        parts.extend(exit);
        parts.extend(self.decided.clone().filter(|_| !matches!(self.state, ToolState::Refused { .. })));
        if self.elapsed_ms >= 1000 {
            parts.push(elapsed_text(self.elapsed_ms));
        }
        parts.join(", ")
    }

    /// Whether the output only repeats the reason of a refusal.
    pub(crate) fn output_is_told(&self) -> bool {
        matches!(&self.state, ToolState::Refused { reason } if self.output.trim().contains(reason.trim()))
    }
}

pub fn elapsed_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms / 100 % 10),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// How a turn ended, for people.
pub fn stop_text(stop: Stop) -> &'static str {
    match stop {
        Stop::EndTurn => "done",
        Stop::MaxTokens => "stopped: the answer reached the model's length limit",
        Stop::MaxTurnRequests => "stopped: the turn reached its step or cost limit",
        Stop::Refusal => "the model refused",
        Stop::Cancelled => "cancelled",
        Stop::Failed => "failed",
        Stop::Interrupted => "interrupted: the server stopped",
    }
}

/// `1,234 tokens, $0.0123`, or nothing if nothing was counted.
pub fn totals_text(totals: &Totals) -> String {
    let counts = [totals.input, totals.output, totals.cache_read, totals.cache_write];
    let tokens = counts.into_iter().fold(0, u64::saturating_add);
    let mut parts = Vec::new();
    if tokens > 0 {
        parts.push(format!("{} tokens", grouped(tokens)));
    }
    parts.extend(money::text(totals));
    parts.join(", ")
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
