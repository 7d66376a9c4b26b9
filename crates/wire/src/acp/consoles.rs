//! What commands write, as the client shows it: in a terminal, or as text.
//!
//! A client that says `_meta.terminal_output` is given a terminal for each command, without a process behind
//! it. It shows one only where a call's content embeds it, and only if the `tool_call` itself announced it in
//! `_meta.terminal_info`; content that names an unknown terminal loses the whole update. Whatever content
//! comes later takes the place of what was there, so each later content embeds the terminal again.
//!
//! Any other client sees the last lines of the output as text while the command runs, and the whole at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Body, CallId, Event, OutputStream, TerminalId, ToolEnd, ToolKind, ToolStart};

use super::fence::{CONSOLE, fenced};
use super::tools::{self, Console};
use super::updates::Updates;
use crate::dialect::View;
use crate::siblings::result_text;

/// Output of a running command that is shown at a time.
const TAIL_BYTES_MAX: usize = 4 << 10;

/// What is known of the commands of the running turn.
pub(super) struct Consoles {
    /// Where commands run, if the client shows their output in terminals.
    cwd: Option<Arc<PathBuf>>,
    /// The commands that show one, and whether something was written to it.
    announced: BTreeMap<CallId, bool>,
    /// Commands that run in terminals of the client's own.
    clients: BTreeMap<CallId, TerminalId>,
    /// Calls that were begun without a terminal to write to.
    plain: BTreeSet<CallId>,
    /// Calls whose agent announced a terminal that this client cannot show.
    without: BTreeSet<CallId>,
    /// Output of running commands that is told as text.
    tails: BTreeMap<CallId, Tail>,
}

/// The end of a running command's output.
#[derive(Default)]
pub(super) struct Tail {
    text: String,
    /// Since it was last shown.
    changed: bool,
    /// The call whose sub-agent runs the command.
    parent: Option<CallId>,
    /// An external agent's own text, which is Markdown.
    markdown: bool,
}

impl Tail {
    /// What an external agent shows of a call, to which later output is added.
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
        tools::text(if self.markdown { self.text.clone() } else { fenced(CONSOLE, &self.text) })
    }
}

impl Consoles {
    pub(super) fn new(cwd: Option<Arc<PathBuf>>) -> Self {
        Self {
            cwd,
            announced: BTreeMap::new(),
            clients: BTreeMap::new(),
            plain: BTreeSet::new(),
            without: BTreeSet::new(),
            tails: BTreeMap::new(),
        }
    }

    pub(super) fn moved(&mut self, cwd: &std::path::Path) {
        if let Some(known) = &mut self.cwd {
            *known = Arc::new(cwd.to_owned());
        }
    }

    /// An external agent begins a call, and announces a terminal or does not. Says whether the client cannot
    /// show that one.
    pub(super) fn begin_without(&mut self, call: &CallId, announced: bool) -> bool {
        let without = announced && self.cwd.is_none();
        if without {
            self.without.insert(call.clone());
        }
        without
    }

    pub(super) fn is_without(&self, call: &CallId) -> bool {
        self.without.contains(call)
    }

    /// An external agent began the call in its own words, and with a terminal or without.
    pub(super) fn began_elsewhere(&mut self, call: &CallId, announced: bool) {
        match (announced, self.cwd.is_some()) {
            (true, true) => drop(self.announced.insert(call.clone(), true)),
            (true, false) => {}
            (false, _) => drop(self.plain.insert(call.clone())),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.cwd.take());
    }

    pub(super) fn shows(&mut self, call: &CallId, tail: Tail) {
        self.tails.insert(call.clone(), tail);
    }

    /// The call is over, in an external agent's own words.
    pub(super) fn ended(&mut self, call: &CallId) {
        self.tails.remove(call);
        self.plain.remove(call);
        self.without.remove(call);
        self.clients.remove(call);
    }

    pub(super) fn of(&self, call: &CallId) -> Console {
        match self.announced.get(call) {
            Some(true) => Console::Written,
            Some(false) => Console::Silent,
            // Whoever came back after the beginning of a call had it announced then.
            None if self.cwd.is_some() && !self.plain.contains(call) => Console::Silent,
            None => Console::None,
        }
    }
}

impl Updates {
    /// A command that will run in a terminal of this client's own is shown there: another one that is announced for it
    /// would never get any output or an end.
    pub(super) fn tool_started(&mut self, start: &ToolStart, event: &Event, view: View, out: &mut Vec<u8>) {
        let in_clients = start.client_terminal == Some(view.own) && !view.replay;
        let cwd = self.consoles.cwd.clone().filter(|_| !in_clients);
        let call = tools::started(start, event.at, cwd.as_deref().map(PathBuf::as_path));
        self.update(schema::SessionUpdate::ToolCall(call), out);
        if start.kind != ToolKind::Execute || in_clients {
            self.consoles.plain.insert(start.call.clone());
        } else if cwd.is_some() && tools::runs_command(start) {
            self.consoles.announced.insert(start.call.clone(), false);
        }
    }

    /// What a call shows again once it is allowed: the question took the place of its terminal.
    pub(super) fn embedded(&self, call: &CallId) -> Option<schema::ToolCallContent> {
        let announced =
            self.consoles.announced.contains_key(call) && !self.consoles.clients.contains_key(call);
        announced.then(|| tools::console(call))
    }

    pub(super) fn tool_ended(&mut self, end: &ToolEnd, event: &Event, out: &mut Vec<u8>) {
        let in_console = self.consoles.of(&end.call);
        let client = self.consoles.clients.remove(&end.call);
        let tail = self.consoles.tails.remove(&end.call);
        self.consoles.ended(&end.call);
        let text = result_text(end, Path::new(""));
        let untold = in_console == Console::Silent && self.consoles.announced.contains_key(&end.call);
        if client.is_none() && untold && end.exit.is_some() && !text.is_empty() {
            // What it wrote was not told while it ran.
            self.update(schema::SessionUpdate::ToolCallUpdate(tools::written(&end.call, &text, true)), out);
        }
        let mut update = match client {
            Some(terminal) => tools::ended_in(end, &terminal),
            None => tools::ended(end, in_console, event.relayed.is_none()),
        };
        // Where the end says nothing of it, what was held back is the last that is known.
        if let Some(tail) = tail.filter(|tail| tail.changed)
            && update.fields.content.is_none()
        {
            update.fields = update.fields.content(vec![tail.content()]);
        }
        self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
    }

    /// Nobody but its own client knows the terminal; others see what is written there as text.
    pub(super) fn terminal(&mut self, call: &CallId, terminal: &TerminalId, own: bool, out: &mut Vec<u8>) {
        if own {
            self.consoles.clients.insert(call.clone(), terminal.clone());
            let update = tools::in_terminal(call, terminal);
            self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
        }
    }

    /// Whether a call that has not ended is shown in this terminal of the client's.
    pub(crate) fn shows_terminal(&self, terminal: &TerminalId) -> bool {
        self.consoles.clients.values().any(|shown| shown == terminal)
    }

    pub(super) fn output(&mut self, event: &Event, out: &mut Vec<u8>) {
        let Body::ToolOutput { call, stream, text } = &event.body else { return };
        if self.consoles.clients.contains_key(call) {
            return;
        }
        if self.consoles.of(call) != Console::None {
            let first = self.consoles.announced.insert(call.clone(), true) != Some(true);
            let update = tools::written(call, text, first);
            return self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
        }
        // Both streams are shown in the order they arrived, as a terminal would.
        let (OutputStream::Stdout | OutputStream::Stderr) = stream;
        let markdown = self.consoles.plain.contains(call);
        let tail = self.consoles.tails.entry(call.clone()).or_insert(Tail { markdown, ..Tail::default() });
        tail.push(text);
        tail.changed = true;
        tail.parent = event.origin.task().cloned();
    }

    /// Shows what was held back of one call, before its end is told in an external agent's own words.
    pub(super) fn flush_call(&mut self, call: &CallId, out: &mut Vec<u8>) {
        let Some(tail) = self.consoles.tails.get_mut(call).filter(|tail| tail.changed) else { return };
        tail.changed = false;
        let fields = schema::ToolCallUpdateFields::new().content(vec![tail.content()]);
        let update = schema::ToolCallUpdate::new(Arc::clone(&call.0), fields);
        self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
    }

    /// The output of running commands that was held back, with the call that each belongs to.
    pub(super) fn held_back(&mut self) -> Vec<(CallId, schema::ToolCallContent, Option<CallId>)> {
        let take = |(call, tail): (&CallId, &mut Tail)| {
            std::mem::take(&mut tail.changed).then(|| (call.clone(), tail.content(), tail.parent.clone()))
        };
        self.consoles.tails.iter_mut().filter_map(take).collect()
    }
}
