//! Translates the updates of one agent session into events, one update after the other.

use std::sync::Arc;

use engine::{AskRequest, Body, CallId, MessageId, NewEvent, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::{in_words, plain_text};
use super::permission_requests::{self, BadPermissionRequest};
use super::raw_json::{Fields, digest, verbatim};
use super::responses::{self, PromptResult};
use super::session_facts::{self, UsageMeter, extension, foreign, silent};
use super::settings::SettingOffers;
use super::tool_calls::{OpenCalls, ToolUpdate, call_id};

/// Limit for unfinished messages at the same time: the agent's and those of its sub-agents.
const SPEAKERS_MAX: usize = 64;

/// The state of one agent session that the translation depends on.
#[derive(Default)]
pub struct UpdateTranslator {
    speakers: Vec<Speaker>,
    calls: OpenCalls,
    offers: SettingOffers,
    meter: UsageMeter,
    now: Timestamp,
}

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct TranslatedEvent {
    pub said: NewEvent,
    /// The parent call, if a sub-agent caused the event.
    pub parent: Option<CallId>,
}

/// The author of an unfinished message.
struct Speaker {
    parent: Option<CallId>,
    thinks: bool,
    /// The hash of the agent's own id of the message.
    named: Option<u64>,
    message: MessageId,
}

impl UpdateTranslator {
    pub fn new(offers: SettingOffers) -> Self {
        Self { offers, ..Self::default() }
    }

    /// The earlier cost of a session that is brought back.
    pub fn start_from(&mut self, cost_usd: f64) {
        self.meter.start_from(cost_usd);
    }

    /// Sets the current time, which is used for the duration of calls.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Translates the parameters of a `session/update`. Empty for an update that says nothing new.
    pub fn translate(
        &mut self,
        params: &RawValue,
        messages: &mut dyn FnMut() -> MessageId,
        in_turn: bool,
    ) -> Vec<TranslatedEvent> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            update: &'a RawValue,
        }
        let Ok(Params { update }) = serde_json::from_str(params.get()) else { return Vec::new() };
        let Some(fields) = Fields::of(update) else { return vec![without_parent(foreign(update))] };
        let parent = self.parent(&fields).or_else(|| self.known_parent(&fields));
        let events = Update { fields: &fields, words: update, parent: parent.clone(), messages, in_turn };
        let said = self.translate_update(events).unwrap_or_else(|| {
            self.interrupt(parent.as_ref());
            vec![foreign(update)]
        });
        let mut events: Vec<_> =
            said.into_iter().map(|said| TranslatedEvent { said, parent: parent.clone() }).collect();
        if !Fields::of(params).is_some_and(|params| params.has_only(&["sessionId", "update"])) {
            relay_whole_notification(params, &mut events);
        }
        events
    }

    /// Translates the response to `session/set_config_option`, which has the complete list of options.
    pub fn translate_options(&mut self, result: &RawValue) -> Vec<TranslatedEvent> {
        let fields = Fields::of(result);
        let said = fields.and_then(|fields| self.options(&fields, None)).unwrap_or_default();
        said.into_iter().map(without_parent).collect()
    }

    /// Decodes a permission request, completed with what the agent sent about the same call before.
    pub fn permission(&self, params: &RawValue) -> Result<AskRequest, BadPermissionRequest> {
        permission_requests::ask(params, |call| self.calls.get(call))
    }

    /// Decodes the response to a prompt: how the turn ended, and its usage.
    pub fn prompt_result(&self, result: &RawValue) -> PromptResult {
        responses::prompt_result(result, &self.meter)
    }

    /// Ends the turn, and with it all unfinished messages and calls.
    pub fn end_turn(&mut self) {
        self.speakers.clear();
        self.calls.end_all();
    }

    /// The agent's session was opened again and offers these settings.
    pub fn set_offers(&mut self, offers: SettingOffers) {
        self.offers = offers;
    }

    pub fn offers(&self) -> &SettingOffers {
        &self.offers
    }

    /// The agent was told about a choice, so its confirmation is not a change.
    pub fn note_choice(&mut self, id: &str, value: &Arc<str>) {
        self.offers.choose(id, value);
    }

    /// The call that shows a terminal.
    pub fn call_showing(&self, terminal: &str) -> Option<&CallId> {
        self.calls.call_showing(terminal)
    }

    fn translate_update(&mut self, update: Update<'_, '_>) -> Option<Vec<NewEvent>> {
        let Update { fields, words, .. } = update;
        let one = |said: Option<NewEvent>| said.map(|said| vec![said]);
        match fields.text("sessionUpdate")?.as_str() {
            "agent_message_chunk" => self.chunk(update, false),
            "agent_thought_chunk" => self.chunk(update, true),
            // In a turn the prompt is ours; outside a turn it is the agent's history.
            "user_message_chunk" => Some(Vec::new()),
            "tool_call" => self.tool(update, true),
            "tool_call_update" => self.tool(update, false),
            "plan" => {
                self.interrupt(update.parent.as_ref());
                one(session_facts::plan(fields, words))
            }
            "available_commands_update" => one(session_facts::commands(fields, words)),
            "current_mode_update" => self.mode(fields, words),
            "config_option_update" => self.options(fields, Some(words)),
            "session_info_update" => {
                one(session_facts::title(fields, words)).or_else(|| Some(vec![foreign(words)]))
            }
            "usage_update" => one(self.meter.usage(fields, words)),
            "notice" => {
                self.interrupt(update.parent.as_ref());
                one(session_facts::notice(fields))
            }
            _ => None,
        }
    }

    fn chunk(&mut self, update: Update<'_, '_>, thinks: bool) -> Option<Vec<NewEvent>> {
        let Update { fields, words, parent, messages, .. } = update;
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
            // If the text is empty, the other members are the message.
            let usage = self.meter.tokens(fields).map(Body::Usage);
            let usage = usage.map(|body| NewEvent { body, relayed: relayed.clone() });
            return Some(usage.or_else(|| relayed.map(|_| foreign(words))).into_iter().collect());
        }
        let named = fields.text("messageId").map(|id| digest(id.as_bytes()));
        let message = self.message(parent, thinks, named, messages);
        let text = text.into();
        let body = if thinks { Body::Thought { message, text } } else { Body::Text { message, text } };
        Some(vec![NewEvent { body, relayed }])
    }

    /// The message that a chunk belongs to.
    fn message(
        &mut self,
        parent: Option<CallId>,
        thinks: bool,
        named: Option<u64>,
        messages: &mut dyn FnMut() -> MessageId,
    ) -> MessageId {
        let speaker = self.speakers.iter().find(|speaker| speaker.parent == parent);
        if let Some(speaker) = speaker.filter(|speaker| speaker.thinks == thinks && speaker.named == named) {
            return speaker.message;
        }
        self.interrupt(parent.as_ref());
        let message = messages();
        if self.speakers.len() >= SPEAKERS_MAX {
            self.speakers.remove(0);
        }
        self.speakers.push(Speaker { parent, thinks, named, message });
        message
    }

    /// The next chunk begins a new message.
    fn interrupt(&mut self, parent: Option<&CallId>) {
        self.speakers.retain(|speaker| speaker.parent.as_ref() != parent);
    }

    fn tool(&mut self, update: Update<'_, '_>, begins: bool) -> Option<Vec<NewEvent>> {
        let Update { fields, words, parent, in_turn, .. } = update;
        self.interrupt(parent.as_ref());
        let tool = ToolUpdate { fields, words, begins, parent, now: self.now };
        self.calls.translate(&tool, in_turn)
    }

    fn mode(&mut self, fields: &Fields<'_>, words: &RawValue) -> Option<Vec<NewEvent>> {
        let value: Arc<str> = fields.text("currentModeId")?.into();
        let id = Arc::clone(self.offers.mode_id()?);
        if !self.offers.choose(&id, &value) {
            return Some(Vec::new());
        }
        let body = Body::SettingChanged { id, value };
        Some(vec![NewEvent { body, relayed: Some(verbatim(words)) }])
    }

    fn options(&mut self, fields: &Fields<'_>, words: Option<&RawValue>) -> Option<Vec<NewEvent>> {
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
        // The first event carries the agent's update, if our clients may see it.
        let words = words.filter(|_| self.offers.in_own_words());
        let relayed =
            |at: usize| words.and_then(|words| if at == 0 { Some(verbatim(words)) } else { silent() });
        Some(
            bodies
                .into_iter()
                .enumerate()
                .map(|(at, body)| NewEvent { body, relayed: relayed(at) })
                .collect(),
        )
    }

    /// The parent call of an update, as far as it is known.
    fn parent(&self, fields: &Fields<'_>) -> Option<CallId> {
        let meta = fields.object("_meta")?;
        let (parent, _) = call_id(meta.object("claudeCode")?.text("parentToolUseId")?);
        self.calls.get(&parent).is_some().then_some(parent)
    }

    /// A sub-agent's call keeps its parent, even if later updates do not name it.
    fn known_parent(&self, fields: &Fields<'_>) -> Option<CallId> {
        let (call, _) = call_id(fields.text("toolCallId")?);
        self.calls.get(&call)?.parent.clone()
    }
}

/// An update and its context.
struct Update<'a, 'm> {
    fields: &'a Fields<'a>,
    words: &'a RawValue,
    parent: Option<CallId>,
    messages: &'m mut dyn FnMut() -> MessageId,
    in_turn: bool,
}

fn only_parent(meta: &Fields<'_>) -> bool {
    meta.has_only(&["claudeCode"])
        && meta.object("claudeCode").is_some_and(|marks| marks.has_only(&["parentToolUseId"]))
}

/// The notification has members besides the update, so the whole notification is relayed instead of the
/// update.
fn relay_whole_notification(params: &RawValue, events: &mut [TranslatedEvent]) {
    let speaks =
        |events: &&mut TranslatedEvent| events.said.relayed.as_ref().is_none_or(|words| !words.0.is_empty());
    if let Some(first) = events.iter_mut().find(speaks)
        && let Body::Foreign { payload } = extension("session/update", Some(params))
    {
        first.said.relayed = Some(payload);
    }
}

fn without_parent(said: NewEvent) -> TranslatedEvent {
    TranslatedEvent { said, parent: None }
}
