//! What the model remembers: the session's log, folded into messages.
//!
//! There is one fold. It builds the past from the log at the start of a turn and the present from
//! what the turn reports, so what the model sees before and after a restart cannot differ, except that files which a
//! prompt links to are read again; pages of the web are not. A reply
//! of the model ends with its usage; tool calls that follow belong to that reply.
//!
//! **Invariant:** in [`Conversation::messages`] every tool call is followed by its result; one that
//! never ended gets a result that says so.

mod kept;

use std::sync::Arc;

use engine::{Body, Content, Event, LogReader, Origin, Page, Seq, Taken, ToolContent, ToolEnd, TurnId};

use crate::budget::{Costs, Limits};
use crate::commands::review::Act;
use crate::commands::{self, Heard, Slash};
use crate::knowledge::Knowledge;
use crate::links::Links;
use crate::model::{Image, Message, Native, ToolCall};
use crate::place::Place;
use crate::prompt::Prompt;

pub(crate) use kept::{tokens, weight};

const NO_RESULT: &str = "the tool call was interrupted; whether it took effect is not known";

/// What a session keeps between turns.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) past: Conversation,
    /// What all turns before this one cost.
    pub(crate) costs: Costs,
    /// What `/max-cost` said last.
    pub(crate) limits: Limits,
    /// Everything up to here is in `past`.
    cursor: Seq,
    /// The last prompt as it was given to the model, so that its links are not read a second time.
    pub(crate) last_prompt: Option<(TurnId, Prompt)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("the session's history cannot be read: {0}")]
    Store(#[from] engine::StoreError),
    #[error("the session ended")]
    Ended,
}

impl Memory {
    /// Reads on to where this turn starts. Everything before it is visible once its start is.
    pub(crate) async fn catch_up(
        &mut self,
        history: &LogReader,
        current: TurnId,
        place: &Place,
        knowledge: &Knowledge,
    ) -> Result<(), MemoryError> {
        let mut history = history.clone();
        history.skip_to(self.cursor);
        loop {
            let events = match history.take(Page::USUAL).await? {
                Taken::Events(events) => events,
                Taken::UpToDate => history.next().await?.ok_or(MemoryError::Ended)?,
                Taken::Ended { .. } => return Err(MemoryError::Ended),
            };
            for event in events {
                if event.turn == Some(current) && matches!(event.body, Body::TurnStarted) {
                    return Ok(());
                }
                self.remember(&event, place, knowledge).await;
                self.cursor = event.seq;
            }
        }
    }

    async fn remember(&mut self, event: &Event, place: &Place, knowledge: &Knowledge) {
        self.costs.observe(event.turn, &event.origin, &event.body);
        self.limits.observe(event, self.costs.total.cost_usd);
        if matches!(event.origin, Origin::Task { .. }) {
            // What a sub-agent did is told to the model as the outcome of its call.
        } else if let (Some(turn), Body::UserMessage { content }) = (event.turn, &event.body) {
            let known = self.last_prompt.take().filter(|(of, _)| *of == turn).map(|(_, prompt)| prompt);
            self.past.open(turn, opening(content, place, knowledge, known).await);
        } else {
            self.past.apply(event.turn, &event.body);
        }
    }
}

async fn opening(
    content: &[Content],
    place: &Place,
    knowledge: &Knowledge,
    known: Option<Prompt>,
) -> Opening {
    if let Some(prompt) = known {
        return Opening::Prompt(prompt);
    }
    match commands::heard(content, place, knowledge).await {
        Heard::Prompt { prompt, .. } => Opening::Prompt(prompt),
        Heard::Command(Slash::Undo(_)) => Opening::Overheard,
        Heard::Command(Slash::Changes(order)) if order.act == Act::TakeBack => Opening::Overheard,
        Heard::Command(_) => Opening::Local,
    }
}

/// How a turn begins.
pub(crate) enum Opening {
    Prompt(Prompt),
    /// A command that the model never hears of.
    Local,
    /// A command whose answer the model hears with the next prompt.
    Overheard,
}

/// The conversation so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
    /// What the first prompt of all was.
    opener: Option<Arc<str>>,
    turn: Option<TurnId>,
    reply: Option<Reply>,
    /// Pages of the prompt that are being read.
    links: Links,
    /// The rest of this turn is not for the model.
    skipping: bool,
    /// It is, but with the next prompt.
    overhearing: bool,
    overheard: String,
    /// How many tokens the model can take, as the last usage said.
    window: u64,
    /// How many tokens the last call had by its provider's count, and by ours.
    measured: Option<(u64, u64)>,
}

/// A reply of the model while its parts come in.
#[derive(Debug, Clone, Default)]
struct Reply {
    text: String,
    calls: Vec<(ToolCall, Option<CallResult>)>,
    native: Option<Native>,
    /// Its usage was reported: text after this belongs to the next reply.
    complete: bool,
}

#[derive(Debug, Clone)]
struct CallResult {
    text: Arc<str>,
    images: Vec<Image>,
    failed: bool,
}

impl Conversation {
    pub(crate) fn open(&mut self, turn: TurnId, opening: Opening) {
        self.close_reply();
        self.turn = Some(turn);
        self.overhearing = matches!(opening, Opening::Overheard);
        match opening {
            Opening::Prompt(prompt) => {
                self.skipping = false;
                self.opener.get_or_insert_with(|| prompt.typed.into());
                let text = std::mem::take(&mut self.overheard) + &prompt.text;
                self.messages.push(Message::User { text: text.into(), images: prompt.images });
            }
            Opening::Local | Opening::Overheard => self.skipping = true,
        }
    }

    /// Takes in an event that is not a user's message.
    pub(crate) fn apply(&mut self, turn: Option<TurnId>, body: &Body) {
        if let Body::Cleared = body {
            *self = Self { turn: self.turn, skipping: true, ..Self::default() };
        } else if let Body::Compacted { summary } = body {
            self.close_reply();
            self.messages = kept::compacted(&self.messages, summary, self.window, self.skipping);
            self.measured = None;
        } else if let Body::Usage(usage) = body
            && turn == self.turn
        {
            self.window = if usage.context_size > 0 { usage.context_size } else { self.window };
            if !self.skipping {
                self.reply_in_progress().complete = true;
            }
            self.measured =
                (usage.context_used > 0).then(|| (usage.context_used, self.weight())).or(self.measured);
        } else if let (true, Body::Text { text, .. }) = (self.overhearing && turn == self.turn, body) {
            if !text.starts_with(commands::undo::NOTHING) {
                self.overheard.push_str(&format!(
                    "[Meanwhile the user typed /undo, /redo or /revert and was told: {text} Read these files again \
                     before you change them.]\n\n"
                ));
            }
        } else if self.skipping || turn != self.turn {
            // Other turns can only be queued or dropped from the queue while one runs.
        } else if self.reply.is_none() && self.links.take_in(body, &mut self.messages) {
            // Before the model's first word, and so a part of the prompt.
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
            self.end_call(end);
        } else if let Body::TurnEnded { .. } = body {
            self.close_reply();
        }
    }

    /// The reply in progress in its provider's own words. The log does not have them.
    pub(crate) fn remember_native(&mut self, native: Native) {
        self.reply_in_progress().native = Some(native);
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        messages.extend(self.reply.clone().into_iter().flat_map(Reply::into_messages));
        messages
    }

    /// About how many tokens the next call has, given how many it has besides the messages.
    pub(crate) fn used(&self, besides: u64) -> u64 {
        let weight = self.weight();
        match self.measured {
            // Ours is a guess, but it knows of outputs that were left out of what was measured.
            Some((used, then)) => (used + weight.saturating_sub(then))
                .saturating_sub(then.saturating_sub(weight))
                .max(weight / 4 * 3),
            None => weight + besides,
        }
    }

    /// How many tokens the provider counted last.
    pub(crate) fn measured(&self) -> Option<u64> {
        self.measured.map(|(used, _)| used)
    }

    /// Leaves old outputs of tools out, here and now: the log keeps them. Says how many tokens that saves.
    pub(crate) fn prune(&mut self) -> u64 {
        let newer = self
            .reply
            .clone()
            .into_iter()
            .flat_map(Reply::into_messages)
            .map(|message| weight(&message))
            .sum();
        kept::prune(&mut self.messages, newer)
    }

    /// Whether a compaction would make this much smaller.
    pub(crate) fn would_shrink(&self, window: u64) -> bool {
        self.weight_after(&"".into(), window) < self.weight() / 4 * 3
    }

    /// How heavy this would be after a compaction.
    pub(crate) fn weight_after(&self, summary: &Arc<str>, window: u64) -> u64 {
        let mut after = Self { window, ..self.clone() };
        after.apply(None, &Body::Compacted { summary: Arc::clone(summary) });
        after.weight()
    }

    fn weight(&self) -> u64 {
        let reply = self.reply.clone().into_iter().flat_map(Reply::into_messages);
        self.messages.iter().map(weight).sum::<u64>() + reply.map(|message| weight(&message)).sum::<u64>()
    }

    pub(crate) fn opener(&self) -> Option<&Arc<str>> {
        self.opener.as_ref()
    }

    /// The last thing that was said aloud.
    pub(crate) fn last_said(&self) -> Option<Arc<str>> {
        let now = self.reply.as_ref().map(|reply| reply.text.as_str()).filter(|text| !text.trim().is_empty());
        let said = |message: &Message| match message {
            Message::Assistant { text, .. } => Some(text).filter(|text| !text.trim().is_empty()).cloned(),
            _ => None,
        };
        now.map(Arc::from).or_else(|| self.messages.iter().rev().find_map(said))
    }

    fn reply_in_progress(&mut self) -> &mut Reply {
        if self.reply.as_ref().is_some_and(|reply| reply.complete) {
            self.close_reply();
        }
        self.reply.get_or_insert_default()
    }

    fn end_call(&mut self, end: &ToolEnd) {
        let calls = self.reply.iter_mut().flat_map(|reply| &mut reply.calls);
        for (call, result) in calls {
            if call.id == end.call.0 {
                *result =
                    Some(CallResult { text: told(end).into(), images: images(end), failed: end.failed });
            }
        }
    }

    fn close_reply(&mut self) {
        self.messages.extend(self.reply.take().into_iter().flat_map(Reply::into_messages));
    }
}

impl Reply {
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

/// What the model is told about a tool call that ended.
fn told(end: &ToolEnd) -> String {
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
