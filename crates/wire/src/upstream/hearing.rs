//! What an agent says in one session, heard one update after the other.

use std::sync::Arc;

use engine::{AskRequest, Body, CallId, MessageId, Said, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answers::{self, Ended};
use super::asks::{self, BadAsk};
use super::calls::{Calls, ToolUpdate, call_id};
use super::content::{in_words, plain_text};
use super::facts::{self, Meter, extension, foreign, silent};
use super::raw::{Fields, digest, verbatim};
use super::settings::Offers;

/// Messages that are in the middle at the same time: the agent's and those of its sub-agents.
const SPEAKERS_MAX: usize = 64;

/// One session of an agent, as far as it takes to understand what is said in it.
#[derive(Default)]
pub struct Hearing {
    speakers: Vec<Speaker>,
    calls: Calls,
    offers: Offers,
    meter: Meter,
    now: Timestamp,
}

/// Something for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    pub said: Said,
    /// The call whose sub-agent said it.
    pub within: Option<CallId>,
}

/// Somebody in the middle of a message.
struct Speaker {
    within: Option<CallId>,
    thinks: bool,
    /// The hash of the agent's own name for the message.
    named: Option<u64>,
    message: MessageId,
}

impl Hearing {
    pub fn new(offers: Offers) -> Self {
        Self { offers, ..Self::default() }
    }

    /// What the session has cost before, if it is one that is brought back.
    pub fn start_from(&mut self, cost_usd: f64) {
        self.meter.start_from(cost_usd);
    }

    /// What time it is, for how long calls take.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// What the parameters of a `session/update` amount to. Nothing for what is known already.
    pub fn hear(
        &mut self,
        params: &RawValue,
        messages: &mut dyn FnMut() -> MessageId,
        in_turn: bool,
    ) -> Vec<Heard> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            update: &'a RawValue,
        }
        let Ok(Params { update }) = serde_json::from_str(params.get()) else { return Vec::new() };
        let Some(fields) = Fields::of(update) else { return vec![alone(foreign(update))] };
        let within = self.parent(&fields).or_else(|| self.works_for(&fields));
        let heard = Update { fields: &fields, words: update, within: within.clone(), messages, in_turn };
        let said = self.understand(heard).unwrap_or_else(|| {
            self.interrupt(within.as_ref());
            vec![foreign(update)]
        });
        let mut heard: Vec<_> = said.into_iter().map(|said| Heard { said, within: within.clone() }).collect();
        if !Fields::of(params).is_some_and(|params| params.has_only(&["sessionId", "update"])) {
            in_whole(params, &mut heard);
        }
        heard
    }

    /// The answer to a `session/set_config_option`: all options as they are then.
    pub fn hear_options(&mut self, result: &RawValue) -> Vec<Heard> {
        let fields = Fields::of(result);
        let said = fields.and_then(|fields| self.options(&fields, None)).unwrap_or_default();
        said.into_iter().map(alone).collect()
    }

    /// What an agent asks, filled up with what it said of the same call before.
    pub fn permission(&self, params: &RawValue) -> Result<AskRequest, BadAsk> {
        asks::ask(params, |call| self.calls.get(call))
    }

    /// The answer to a prompt: how the turn ended, and what it took.
    pub fn ended(&self, result: &RawValue) -> Ended {
        answers::end(result, &self.meter)
    }

    /// The turn is over, and with it whatever was in the middle.
    pub fn turn_over(&mut self) {
        self.speakers.clear();
        self.calls.end_all();
    }

    /// The agent's session was opened again, and offers this.
    pub fn offered(&mut self, offers: Offers) {
        self.offers = offers;
    }

    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The agent was told of a choice, so it is no news when it says so.
    pub fn chosen(&mut self, id: &str, value: &Arc<str>) {
        self.offers.choose(id, value);
    }

    /// The call that shows a terminal.
    pub fn showing(&self, terminal: &str) -> Option<&CallId> {
        self.calls.showing(terminal)
    }

    fn understand(&mut self, update: Update<'_, '_>) -> Option<Vec<Said>> {
        let Update { fields, words, .. } = update;
        let one = |said: Option<Said>| said.map(|said| vec![said]);
        match fields.text("sessionUpdate")?.as_str() {
            "agent_message_chunk" => self.chunk(update, false),
            "agent_thought_chunk" => self.chunk(update, true),
            // In a turn the prompt is ours, outside of one it is the agent's history.
            "user_message_chunk" => Some(Vec::new()),
            "tool_call" => self.tool(update, true),
            "tool_call_update" => self.tool(update, false),
            "plan" => {
                self.interrupt(update.within.as_ref());
                one(facts::plan(fields, words))
            }
            "available_commands_update" => one(facts::commands(fields, words)),
            "current_mode_update" => self.mode(fields, words),
            "config_option_update" => self.options(fields, Some(words)),
            "session_info_update" => one(facts::title(fields, words)).or_else(|| Some(vec![foreign(words)])),
            "usage_update" => one(self.meter.usage(fields, words)),
            "notice" => {
                self.interrupt(update.within.as_ref());
                one(facts::notice(fields))
            }
            _ => None,
        }
    }

    fn chunk(&mut self, update: Update<'_, '_>, thinks: bool) -> Option<Vec<Said>> {
        let Update { fields, words, within, messages, .. } = update;
        let content = fields.get("content")?;
        let plain = plain_text(content).filter(|_| {
            let meta = fields.object("_meta");
            fields.has_only(&["sessionUpdate", "content", "messageId", "_meta"])
                && fields.get("_meta").is_none_or(|_| meta.is_some_and(|meta| only_parent(&meta)))
        });
        let (text, relayed) = match plain {
            Some(text) => (text, None),
            None => (in_words(content)?, Some(verbatim(words))),
        };
        if text.is_empty() {
            // What comes beside an empty text is what was meant.
            let usage = self.meter.tokens(fields).map(Body::Usage);
            let usage = usage.map(|body| Said { body, relayed: relayed.clone() });
            return Some(usage.or_else(|| relayed.map(|_| foreign(words))).into_iter().collect());
        }
        let named = fields.text("messageId").map(|id| digest(id.as_bytes()));
        let message = self.message(within, thinks, named, messages);
        let text = text.into();
        let body = if thinks { Body::Thought { message, text } } else { Body::Text { message, text } };
        Some(vec![Said { body, relayed }])
    }

    /// The message that a piece belongs to.
    fn message(
        &mut self,
        within: Option<CallId>,
        thinks: bool,
        named: Option<u64>,
        messages: &mut dyn FnMut() -> MessageId,
    ) -> MessageId {
        let speaker = self.speakers.iter().find(|speaker| speaker.within == within);
        if let Some(speaker) = speaker.filter(|speaker| speaker.thinks == thinks && speaker.named == named) {
            return speaker.message;
        }
        self.interrupt(within.as_ref());
        let message = messages();
        if self.speakers.len() >= SPEAKERS_MAX {
            self.speakers.remove(0);
        }
        self.speakers.push(Speaker { within, thinks, named, message });
        message
    }

    /// What is said next begins a new message.
    fn interrupt(&mut self, within: Option<&CallId>) {
        self.speakers.retain(|speaker| speaker.within.as_ref() != within);
    }

    fn tool(&mut self, update: Update<'_, '_>, begins: bool) -> Option<Vec<Said>> {
        let Update { fields, words, within, in_turn, .. } = update;
        self.interrupt(within.as_ref());
        let tool = ToolUpdate { fields, words, begins, within, now: self.now };
        self.calls.hear(&tool, in_turn)
    }

    fn mode(&mut self, fields: &Fields<'_>, words: &RawValue) -> Option<Vec<Said>> {
        let value: Arc<str> = fields.text("currentModeId")?.into();
        let id = Arc::clone(self.offers.mode_id()?);
        if !self.offers.choose(&id, &value) {
            return Some(Vec::new());
        }
        let body = Body::SettingChanged { id, value };
        Some(vec![Said { body, relayed: Some(verbatim(words)) }])
    }

    fn options(&mut self, fields: &Fields<'_>, words: Option<&RawValue>) -> Option<Vec<Said>> {
        let new = self.offers.replace(fields)?;
        let old = std::mem::replace(&mut self.offers, new);
        let mut bodies = Vec::new();
        if !self.offers.offers_same(&old) {
            bodies.push(Body::Offered { settings: self.offers.specs() });
        }
        let differing = self.offers.values().filter(|(id, value)| old.value(id) != Some(value));
        bodies.extend(
            differing
                .map(|(id, value)| Body::SettingChanged { id: Arc::clone(id), value: Arc::clone(value) }),
        );
        // The first says it in the agent's words, if those are fit for our clients.
        let words = words.filter(|_| self.offers.in_own_words());
        let relayed =
            |at: usize| words.and_then(|words| if at == 0 { Some(verbatim(words)) } else { silent() });
        Some(bodies.into_iter().enumerate().map(|(at, body)| Said { body, relayed: relayed(at) }).collect())
    }

    /// The call whose sub-agent this comes from, as far as it is known.
    fn parent(&self, fields: &Fields<'_>) -> Option<CallId> {
        let meta = fields.object("_meta")?;
        let (parent, _) = call_id(meta.object("claudeCode")?.text("parentToolUseId")?);
        self.calls.get(&parent).is_some().then_some(parent)
    }

    /// A call that a sub-agent made stays its own, also where that is not said again.
    fn works_for(&self, fields: &Fields<'_>) -> Option<CallId> {
        let (call, _) = call_id(fields.text("toolCallId")?);
        self.calls.get(&call)?.within.clone()
    }
}

/// An update and where it came.
struct Update<'a, 'm> {
    fields: &'a Fields<'a>,
    words: &'a RawValue,
    within: Option<CallId>,
    messages: &'m mut dyn FnMut() -> MessageId,
    in_turn: bool,
}

fn only_parent(meta: &Fields<'_>) -> bool {
    meta.has_only(&["claudeCode"])
        && meta.object("claudeCode").is_some_and(|marks| marks.has_only(&["parentToolUseId"]))
}

/// Something was said beside the update: the whole notification goes where the update's words would.
fn in_whole(params: &RawValue, heard: &mut [Heard]) {
    let speaks = |heard: &&mut Heard| heard.said.relayed.as_ref().is_none_or(|words| !words.0.is_empty());
    if let Some(first) = heard.iter_mut().find(speaks)
        && let Body::Foreign { payload } = extension("session/update", Some(params))
    {
        first.said.relayed = Some(payload);
    }
}

fn alone(said: Said) -> Heard {
    Heard { said, within: None }
}
