//! A command's output as the client shows it: in a terminal, or as text.
//!
//! A client that announces `_meta.terminal_output` gets a terminal for each command, with no process behind
//! it. The client shows a terminal only where a call's content embeds it, and only if the `tool_call` update
//! itself announced it in `_meta.terminal_info`; content that names an unknown terminal makes it drop the
//! whole update. Later content replaces earlier content, so each later content embeds the terminal again.
//!
//! Any other client sees the last lines of the output as text while the command runs, and the whole output
//! at its end.
//!
//! Zed shows commands this way, live and with their exit status.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Body, CallId, Event, OutputStream, TerminalId, ToolEnd, ToolKind, ToolStart};

use super::code_fence::{CONSOLE, fenced};
use super::tool_calls::{self, TerminalUse};
use super::updates::Updates;
use crate::dialect::EncodeContext;
use crate::ferret_otter_common::result_text;

/// How much of a running command's output is shown at a time.
const TAIL_BYTES_MAX: usize = 4 << 10;

/// State of the commands of the running turn.
pub(super) struct CommandOutputs {
    /// The working directory of commands; set if the client shows their output in terminals.
    cwd: Option<Arc<PathBuf>>,
    /// Commands with an announced terminal, and whether anything was written to it.
    announced: BTreeMap<CallId, bool>,
    /// Commands that run in one of the client's own terminals.
    client_terminals: BTreeMap<CallId, TerminalId>,
    /// Calls that started without a terminal to write to.
    no_terminal: BTreeSet<CallId>,
    /// Calls whose agent announced a terminal that this client cannot show.
    unsupported: BTreeSet<CallId>,
    /// Output of running commands that is shown as text.
    tails: BTreeMap<CallId, OutputTail>,
}

/// The end of a running command's output.
#[derive(Default)]
pub(super) struct OutputTail {
    text: String,
    /// There is output that was not shown yet.
    changed: bool,
    /// The call whose sub-agent runs the command.
    parent: Option<CallId>,
    /// The text comes from an external agent and is Markdown.
    markdown: bool,
}

impl OutputTail {
    /// The content that an external agent shows of a call; later output is appended to it.
    pub(super) fn of_agent(parent: Option<CallId>) -> Self {
        Self { parent, markdown: true, ..Self::default() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if let Some(over) = self.text.len().checked_sub(TAIL_BYTES_MAX) {
            self.text.drain(..self.text.ceil_char_boundary(over));
        }
    }

    fn content(&self) -> schema::ToolCallContent {
        tool_calls::text(if self.markdown { self.text.clone() } else { fenced(CONSOLE, &self.text) })
    }
}

impl CommandOutputs {
    pub(super) fn new(cwd: Option<Arc<PathBuf>>) -> Self {
        Self {
            cwd,
            announced: BTreeMap::new(),
            client_terminals: BTreeMap::new(),
            no_terminal: BTreeSet::new(),
            unsupported: BTreeSet::new(),
            tails: BTreeMap::new(),
        }
    }

    pub(super) fn set_cwd(&mut self, cwd: &std::path::Path) {
        if let Some(known) = &mut self.cwd {
            *known = Arc::new(cwd.to_owned());
        }
    }

    /// An external agent starts a call and may announce a terminal. Returns whether the client cannot show
    /// that terminal.
    pub(super) fn begin_foreign(&mut self, call: &CallId, announced: bool) -> bool {
        let without = announced && self.cwd.is_none();
        if without {
            self.unsupported.insert(call.clone());
        }
        without
    }

    pub(super) fn lacks_terminal(&self, call: &CallId) -> bool {
        self.unsupported.contains(call)
    }

    /// An external agent started the call with an update of its own, with or without a terminal.
    pub(super) fn began_foreign(&mut self, call: &CallId, announced: bool) {
        match (announced, self.cwd.is_some()) {
            (true, true) => drop(self.announced.insert(call.clone(), true)),
            (true, false) => {}
            (false, _) => drop(self.no_terminal.insert(call.clone())),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.cwd.take());
    }

    pub(super) fn add_tail(&mut self, call: &CallId, tail: OutputTail) {
        self.tails.insert(call.clone(), tail);
    }

    /// An external agent ended the call with an update of its own.
    pub(super) fn forget(&mut self, call: &CallId) {
        self.tails.remove(call);
        self.no_terminal.remove(call);
        self.unsupported.remove(call);
        self.client_terminals.remove(call);
    }

    pub(super) fn terminal_use(&self, call: &CallId) -> TerminalUse {
        match self.announced.get(call) {
            Some(true) => TerminalUse::Written,
            Some(false) => TerminalUse::Silent,
            // A client that reconnected after the start of a call received its announcement back then.
            None if self.cwd.is_some() && !self.no_terminal.contains(call) => TerminalUse::Silent,
            None => TerminalUse::None,
        }
    }
}

impl Updates {
    /// A command that will run in one of this client's own terminals is shown there: a terminal of ours,
    /// announced for it, would never get any output or an end.
    pub(super) fn tool_started(
        &mut self,
        start: &ToolStart,
        event: &Event,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) {
        let in_clients = start.client_terminal == Some(context.own) && !context.replay;
        let cwd = self.command_outputs.cwd.clone().filter(|_| !in_clients);
        let call = tool_calls::started(start, event.at, cwd.as_deref().map(PathBuf::as_path));
        self.update(schema::SessionUpdate::ToolCall(call), out);
        if start.kind != ToolKind::Execute || in_clients {
            self.command_outputs.no_terminal.insert(start.call.clone());
        } else if cwd.is_some() && tool_calls::runs_command(start) {
            self.command_outputs.announced.insert(start.call.clone(), false);
        }
    }

    /// The terminal that a call shows again once it is allowed: the permission request replaced it.
    pub(super) fn embedded(&self, call: &CallId) -> Option<schema::ToolCallContent> {
        let announced = self.command_outputs.announced.contains_key(call)
            && !self.command_outputs.client_terminals.contains_key(call);
        announced.then(|| tool_calls::console(call))
    }

    pub(super) fn tool_ended(&mut self, end: &ToolEnd, event: &Event, out: &mut Vec<u8>) {
        let terminal_use = self.command_outputs.terminal_use(&end.call);
        let client = self.command_outputs.client_terminals.remove(&end.call);
        let tail = self.command_outputs.tails.remove(&end.call);
        self.command_outputs.forget(&end.call);
        let text = result_text(end, Path::new(""));
        let untold =
            terminal_use == TerminalUse::Silent && self.command_outputs.announced.contains_key(&end.call);
        if client.is_none() && untold && end.exit.is_some() && !text.is_empty() {
            // The output was not sent while the command ran.
            self.update(
                schema::SessionUpdate::ToolCallUpdate(tool_calls::written(&end.call, &text, true)),
                out,
            );
        }
        let mut update = match client {
            Some(terminal) => tool_calls::call_end_in_terminal(end, &terminal),
            None => tool_calls::call_end(end, terminal_use, event.relayed.is_none()),
        };
        // If the end carries no content, the output that was held back is the last known content.
        if let Some(tail) = tail.filter(|tail| tail.changed)
            && update.fields.content.is_none()
        {
            update.fields = update.fields.content(vec![tail.content()]);
        }
        self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
    }

    /// Only the client that owns the terminal knows it; other clients see its output as text.
    pub(super) fn terminal(&mut self, call: &CallId, terminal: &TerminalId, own: bool, out: &mut Vec<u8>) {
        if own {
            self.command_outputs.client_terminals.insert(call.clone(), terminal.clone());
            let update = tool_calls::in_terminal(call, terminal);
            self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
        }
    }

    /// Whether a running call is shown in this terminal of the client's own.
    pub(crate) fn shows_terminal(&self, terminal: &TerminalId) -> bool {
        self.command_outputs.client_terminals.values().any(|shown| shown == terminal)
    }

    pub(super) fn output(&mut self, event: &Event, out: &mut Vec<u8>) {
        let Body::ToolOutput { call, stream, text } = &event.body else { return };
        if self.command_outputs.client_terminals.contains_key(call) {
            return;
        }
        if self.command_outputs.terminal_use(call) != TerminalUse::None {
            let first = self.command_outputs.announced.insert(call.clone(), true) != Some(true);
            let update = tool_calls::written(call, text, first);
            return self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
        }
        // Both streams are shown in order of arrival, as a terminal would show them.
        let (OutputStream::Stdout | OutputStream::Stderr) = stream;
        let markdown = self.command_outputs.no_terminal.contains(call);
        let tail = self
            .command_outputs
            .tails
            .entry(call.clone())
            .or_insert(OutputTail { markdown, ..OutputTail::default() });
        tail.push(text);
        tail.changed = true;
        tail.parent = event.origin.task().cloned();
    }

    /// Shows the held-back output of one call before an external agent's own update ends the call.
    pub(super) fn flush_call(&mut self, call: &CallId, out: &mut Vec<u8>) {
        let Some(tail) = self.command_outputs.tails.get_mut(call).filter(|tail| tail.changed) else { return };
        tail.changed = false;
        let fields = schema::ToolCallUpdateFields::new().content(vec![tail.content()]);
        let update = schema::ToolCallUpdate::new(Arc::clone(&call.0), fields);
        self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
    }

    /// The held-back output of running commands, with the sub-agent call that each one belongs to.
    pub(super) fn take_held_back(&mut self) -> Vec<(CallId, schema::ToolCallContent, Option<CallId>)> {
        let take = |(call, tail): (&CallId, &mut OutputTail)| {
            std::mem::take(&mut tail.changed).then(|| (call.clone(), tail.content(), tail.parent.clone()))
        };
        self.command_outputs.tails.iter_mut().filter_map(take).collect()
    }
}
