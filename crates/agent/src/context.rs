//! What the model remembers: the session's log, folded into messages.
//!
//! There is only one fold. It builds the past from the log at the start of a turn, and the present from what
//! the turn reports. So what the model gets before and after a restart is the same, except that files linked
//! in a prompt are read again (web pages are not). A reply of the model ends with its usage; tool calls that
//! follow belong to that reply.
//!
//! **Invariant:** in [`Conversation::messages`] every tool call is followed by its result. A call that never
//! ended gets a result that says so.

mod message_retention;

use std::sync::Arc;

use engine::{
    Body, Content, Event, LogRead, LogReader, Origin, PageRequest, Seq, ToolContent, ToolEnd, TurnId,
};

use crate::budget::{SessionLimit, TurnCosts};
use crate::commands::keep_revert::ReviewAction;
use crate::commands::{self, PromptMeaning, SlashCommand};
use crate::knowledge::Knowledge;
use crate::linked_pages::LinkedPages;
use crate::model::{Image, Message, NativeReply, ToolCall};
use crate::user_prompt::Prompt;
use crate::workspace::Workspace;

pub(crate) use message_retention::{tokens, weight};

const NO_RESULT: &str = "the tool call was interrupted; whether it took effect is not known";

/// What a session remembers between turns.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) past: Conversation,
    /// The cost of all earlier turns.
    pub(crate) costs: TurnCosts,
    /// The limit that `/max-cost` has set.
    pub(crate) limits: SessionLimit,
    /// Everything up to this position is in `past`.
    cursor: Seq,
    /// The last prompt as the model got it, so that its links are not read a second time.
    pub(crate) last_prompt: Option<(TurnId, Prompt)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("could not read the session's history: {0}")]
    Store(#[from] engine::StoreError),
    #[error("the session ended")]
    Ended,
}

impl Memory {
    /// Reads the log up to the start of this turn. Everything before that is readable once the start is.
    pub(crate) async fn catch_up(
        &mut self,
        history: &LogReader,
        current: TurnId,
        workspace: &Workspace,
        knowledge: &Knowledge,
    ) -> Result<(), MemoryError> {
        let mut history = history.clone();
        history.skip_to(self.cursor);
        loop {
            let events = match history.take(PageRequest::USUAL).await? {
                LogRead::Events(events) => events,
                LogRead::UpToDate => history.next().await?.ok_or(MemoryError::Ended)?,
                LogRead::Ended { .. } => return Err(MemoryError::Ended),
            };
            for event in events {
                if event.turn == Some(current) && matches!(event.body, Body::TurnStarted) {
                    return Ok(());
                }
                self.remember(&event, workspace, knowledge).await;
                self.cursor = event.seq;
            }
        }
    }

    async fn remember(&mut self, event: &Event, workspace: &Workspace, knowledge: &Knowledge) {
        self.costs.observe(event.turn, &event.origin, &event.body);
        self.limits.observe(event, self.costs.total.cost_usd);
        if matches!(event.origin, Origin::Task { .. }) {
            // The model gets what a sub-agent did as the result of its call.
        } else if let (Some(turn), Body::UserMessage { content }) = (event.turn, &event.body) {
            let known = self.last_prompt.take().filter(|(of, _)| *of == turn).map(|(_, prompt)| prompt);
            self.past.open(turn, turn_opening(content, workspace, knowledge, known).await);
        } else {
            self.past.apply(event.turn, &event.body);
        }
    }
}

async fn turn_opening(
    content: &[Content],
    workspace: &Workspace,
    knowledge: &Knowledge,
    known: Option<Prompt>,
) -> TurnOpening {
    if let Some(prompt) = known {
        return TurnOpening::Prompt(prompt);
    }
    match commands::interpret(content, workspace, knowledge).await {
        PromptMeaning::Prompt { prompt, .. } => TurnOpening::Prompt(prompt),
        PromptMeaning::Command(SlashCommand::Undo(_)) => TurnOpening::ForNextPrompt,
        PromptMeaning::Command(SlashCommand::Changes(command)) if command.act == ReviewAction::TakeBack => {
            TurnOpening::ForNextPrompt
        }
        PromptMeaning::Command(_) => TurnOpening::Local,
    }
}

/// What a turn begins with.
pub(crate) enum TurnOpening {
    Prompt(Prompt),
    /// A command that the model never gets.
    Local,
    /// A command whose answer the model gets with the next prompt.
    ForNextPrompt,
}

/// The conversation so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
    /// The first prompt of the session.
    opener: Option<Arc<str>>,
    turn: Option<TurnId>,
    reply: Option<PartialReply>,
    /// Linked pages of the prompt that are being fetched.
    links: LinkedPages,
    /// The model does not get the rest of this turn.
    skipping: bool,
    /// The model gets it with the next prompt.
    deferring: bool,
    deferred: String,
    /// The model's context size, from the last usage.
    window_tokens: u64,
    /// The tokens of the last call as counted by the provider, and by us.
    measured: Option<(u64, u64)>,
}

/// A reply of the model while it is streamed.
#[derive(Debug, Clone, Default)]
struct PartialReply {
    text: String,
    calls: Vec<(ToolCall, Option<CallResult>)>,
    native: Option<NativeReply>,
    /// Its usage was reported, so text after this belongs to the next reply.
    complete: bool,
}

#[derive(Debug, Clone)]
struct CallResult {
    text: Arc<str>,
    images: Vec<Image>,
    failed: bool,
}

impl Conversation {
    pub(crate) fn open(&mut self, turn: TurnId, opening: TurnOpening) {
        self.close_reply();
        self.turn = Some(turn);
        self.deferring = matches!(opening, TurnOpening::ForNextPrompt);
        match opening {
            TurnOpening::Prompt(prompt) => {
                self.skipping = false;
                self.opener.get_or_insert_with(|| prompt.typed.into());
                let text = std::mem::take(&mut self.deferred) + &prompt.text;
                self.messages.push(Message::User { text: text.into(), images: prompt.images });
            }
            TurnOpening::Local | TurnOpening::ForNextPrompt => self.skipping = true,
        }
    }

    /// Applies an event that is not a user message.
    pub(crate) fn apply(&mut self, turn: Option<TurnId>, body: &Body) {
        if let Body::Cleared = body {
            *self = Self { turn: self.turn, skipping: true, ..Self::default() };
        } else if let Body::Compacted { summary } = body {
            self.close_reply();
            self.messages =
                message_retention::compacted(&self.messages, summary, self.window_tokens, self.skipping);
            self.measured = None;
        } else if let Body::Usage(usage) = body
            && turn == self.turn
        {
            self.window_tokens = if usage.context_size > 0 { usage.context_size } else { self.window_tokens };
            if !self.skipping {
                self.reply_in_progress().complete = true;
            }
            self.measured =
                (usage.context_used > 0).then(|| (usage.context_used, self.weight())).or(self.measured);
        } else if let (true, Body::Text { text, .. }) = (self.deferring && turn == self.turn, body) {
            if !text.starts_with(commands::undo::NOTHING) {
                self.deferred.push_str(&format!(
                    "[Meanwhile the user typed /undo, /redo or /revert and was told: {text} Read these files again \
                     before you change them.]\n\n"
                ));
            }
        } else if self.skipping || turn != self.turn {
            // While a turn runs, other turns can only be queued or removed from the queue.
        } else if self.reply.is_none() && self.links.add_to_prompt(body, &mut self.messages) {
            // Before the model's first output, so it is part of the prompt.
        } else if let Body::Text { text, .. } = body {
            self.reply_in_progress().text.push_str(text);
        } else if let Body::ToolStarted(start) = body {
            let call = ToolCall {
                id: Arc::clone(&start.call.0),
                name: Arc::clone(&start.tool),
                arguments: Arc::clone(&start.input.0),
            };
            self.reply.get_or_insert_default().calls.push((call, None));
        } else if let Body::ToolEnded(end) = body {
            self.finish_call(end);
        } else if let Body::TurnEnded { .. } = body {
            self.close_reply();
        }
    }

    /// Stores the native form of the reply in progress, which is not in the log.
    pub(crate) fn remember_native(&mut self, native: NativeReply) {
        self.reply_in_progress().native = Some(native);
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        messages.extend(self.reply.clone().into_iter().flat_map(PartialReply::into_messages));
        messages
    }

    /// The approximate tokens of the next call, given those that it has besides the messages.
    pub(crate) fn used(&self, besides: u64) -> u64 {
        let weight = self.weight();
        match self.measured {
            // Our count is a guess, but it takes into account what was pruned since the measurement.
            Some((used, then)) => (used + weight.saturating_sub(then))
                .saturating_sub(then.saturating_sub(weight))
                .max(weight / 4 * 3),
            None => weight + besides,
        }
    }

    /// The last token count of the provider.
    pub(crate) fn measured(&self) -> Option<u64> {
        self.measured.map(|(used, _)| used)
    }

    /// Removes old tool outputs from memory (the log keeps them). Returns how many tokens that saves.
    pub(crate) fn prune(&mut self) -> u64 {
        let newer = self
            .reply
            .clone()
            .into_iter()
            .flat_map(PartialReply::into_messages)
            .map(|message| weight(&message))
            .sum();
        message_retention::prune(&mut self.messages, newer)
    }

    /// Whether a compaction would make this much smaller.
    pub(crate) fn would_shrink(&self, window_tokens: u64) -> bool {
        self.weight_after(&"".into(), window_tokens) < self.weight() / 4 * 3
    }

    /// The tokens that this would have after a compaction.
    pub(crate) fn weight_after(&self, summary: &Arc<str>, window_tokens: u64) -> u64 {
        let mut after = Self { window_tokens, ..self.clone() };
        after.apply(None, &Body::Compacted { summary: Arc::clone(summary) });
        after.weight()
    }

    fn weight(&self) -> u64 {
        let reply = self.reply.clone().into_iter().flat_map(PartialReply::into_messages);
        self.messages.iter().map(weight).sum::<u64>() + reply.map(|message| weight(&message)).sum::<u64>()
    }

    pub(crate) fn opener(&self) -> Option<&Arc<str>> {
        self.opener.as_ref()
    }

    /// The last text of the model, without its thoughts.
    pub(crate) fn last_said(&self) -> Option<Arc<str>> {
        let now = self.reply.as_ref().map(|reply| reply.text.as_str()).filter(|text| !text.trim().is_empty());
        let said = |message: &Message| match message {
            Message::Assistant { text, .. } => Some(text).filter(|text| !text.trim().is_empty()).cloned(),
            _ => None,
        };
        now.map(Arc::from).or_else(|| self.messages.iter().rev().find_map(said))
    }

    fn reply_in_progress(&mut self) -> &mut PartialReply {
        if self.reply.as_ref().is_some_and(|reply| reply.complete) {
            self.close_reply();
        }
        self.reply.get_or_insert_default()
    }

    fn finish_call(&mut self, end: &ToolEnd) {
        let calls = self.reply.iter_mut().flat_map(|reply| &mut reply.calls);
        for (call, result) in calls {
            if call.id == end.call.0 {
                *result = Some(CallResult {
                    text: result_text(end).into(),
                    images: images(end),
                    failed: end.failed,
                });
            }
        }
    }

    fn close_reply(&mut self) {
        self.messages.extend(self.reply.take().into_iter().flat_map(PartialReply::into_messages));
    }
}

impl PartialReply {
    fn into_messages(self) -> impl Iterator<Item = Message> {
        let empty = self.text.is_empty() && self.calls.is_empty();
        let calls = self.calls.iter().map(|(call, _)| call.clone()).collect();
        let said = Message::Assistant { text: self.text.into(), calls, native: self.native };
        let results = self.calls.into_iter().map(|(call, result)| {
            let result = result.unwrap_or_else(|| CallResult {
                text: NO_RESULT.into(),
                images: Vec::new(),
                failed: true,
            });
            Message::ToolResult {
                call: call.id,
                tool: call.name,
                text: result.text,
                images: result.images,
                failed: result.failed,
            }
        });
        (!empty).then_some(said).into_iter().chain(results)
    }
}

/// The result of a tool call, as the model gets it.
fn result_text(end: &ToolEnd) -> String {
    if let Some(raw) = &end.raw {
        return serde_json::from_str(&raw.0).unwrap_or_else(|_| raw.0.to_string());
    }
    let mut parts: Vec<String> = end.content.iter().map(content_text).collect();
    if let Some(exit) = &end.exit {
        parts.push(match (&exit.signal, exit.code) {
            (Some(signal), _) => format!("[ended by {signal}]"),
            (None, Some(code)) => format!("[exit code {code}]"),
            (None, None) => "[ended]".into(),
        });
    }
    parts.join("\n")
}

fn images(end: &ToolEnd) -> Vec<Image> {
    let image = |content: &ToolContent| match content {
        ToolContent::Block(Content::Image { mime, data, .. }) => {
            Some(Image { mime: Arc::clone(mime), data: Arc::clone(data) })
        }
        ToolContent::Block(_) | ToolContent::Diff(_) => None,
    };
    end.content.iter().filter_map(image).collect()
}

fn content_text(content: &ToolContent) -> String {
    match content {
        ToolContent::Block(Content::Text(text) | Content::Resource { text, .. }) => text.to_string(),
        ToolContent::Block(Content::Link(link)) => link.uri.to_string(),
        ToolContent::Block(Content::Image { mime, .. } | Content::Audio { mime, .. }) => format!("[{mime}]"),
        ToolContent::Block(Content::Binary { uri, .. }) => format!("[{uri}]"),
        ToolContent::Diff(change) => format!("[changed {}]", change.path.display()),
    }
}

#[cfg(test)]
mod tests;
