//! Encodes the log's events as `session/update` notifications.
//!
//! Adjacent chunks of one message are merged into one update, and the output of a running command is shown
//! as its last lines, so a slow client gets fewer updates instead of late ones. Events that need the
//! connection itself (a permission request, the end of a turn) stop the encoder and are returned as a
//! [`ConnectionEvent`], in order with the updates.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{
    AskId, AskRequest, Body, CallId, Content, Event, MODE, MODEL, MessageId, NoticeLevel, Opaque, Seq,
    SessionHandle, SessionId, SettingSpec, Settings, Snapshot, Totals, Usage,
};
use serde_json::Map;

use super::sub_agent_calls::{SubAgentCalls, mark};
use super::terminal_output::CommandOutputs;
use super::{ClientAbilities, questions, relayed_updates, settings, tool_calls, write_notification};
use crate::cursor::Cursor;
use crate::dialect::{ConnectionEvent, EncodeContext};
use crate::event_encoder::{EncodeStep, Encoder};
use crate::external_agent::{EXTENSION, PROMPT_ANSWER};
use crate::merged_chunk::merge_chunks;
use crate::rpc::RpcId;
use crate::timestamp::rfc3339;

/// How many notices wait for the next turn; later ones are only in the log.
const NOTICES_MAX: usize = 16;

pub struct Updates {
    client: ClientAbilities,
    scope: tool_calls::AlwaysScope,
    session: schema::SessionId,
    /// The session id as a JSON string, quotes included.
    session_json: String,
    pub(super) specs: Arc<[SettingSpec]>,
    pub(super) settings: Settings,
    /// The cost since the first event that this connection has seen, and how full the agent's context is.
    pub(super) usage_total: Totals,
    pub(super) turn_usage: Totals,
    turn_runs: bool,
    /// Notices from outside a turn, for a client that gets them with the next turn.
    notices: Vec<(Seq, Arc<str>)>,
    /// What an external agent answered to the running prompt besides the stop reason.
    answer: Option<Opaque>,
    pub(super) command_outputs: CommandOutputs,
    /// Calls of the turn that an external agent asked permission for: the agent itself reports that they go
    /// on.
    asked_by_agent: BTreeSet<CallId>,
    calls: SubAgentCalls,
}

/// A permission request or question that can be sent, now or after a replay.
pub enum AskFrame {
    Permission(schema::RequestPermissionRequest),
    Form(schema::CreateElicitationRequest),
    /// The parameters of an external agent's own request, with our session id.
    Foreign(serde_json::Value),
}

impl Encoder for Updates {
    fn step<'a>(
        &mut self,
        rest: &'a [Arc<Event>],
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> EncodeStep<'a> {
        let [event, ..] = rest else { return (0, None) };
        let offset = out.len();
        let (mut taken, mut piece) = (1, None);
        if let Some(merged) = merge_chunks(rest) {
            taken = merged.taken;
            self.chunk(merged.voice.chunk(), &merged.text, &message_id(merged.message), merged.parent, out);
        } else {
            self.calls.observe(event);
            piece = self.event(event, context, out);
            if let Some(parent) = self.calls.parent(event) {
                mark(parent, offset, out);
            }
            self.calls.forget(event);
        }
        if self.client.cursors {
            let seq = rest.get(taken - 1).map_or(event.seq, |last| last.seq);
            add_cursor(seq, offset, out);
        }
        (taken, piece)
    }

    fn finish(&mut self, context: EncodeContext, out: &mut Vec<u8>) {
        if !context.replay {
            self.flush(out);
        }
    }
}

impl Updates {
    pub fn new(client: ClientAbilities, session: &SessionHandle) -> Self {
        Self::of(client, session.id(), session.specs(), &session.snapshot())
    }

    /// For tests and tools that have the session's parts without a running session.
    pub fn of(
        client: ClientAbilities,
        session: &SessionId,
        specs: Arc<[SettingSpec]>,
        snapshot: &Snapshot,
    ) -> Self {
        Self {
            client,
            scope: tool_calls::AlwaysScope::default(),
            session: schema::SessionId::new(session.as_str()),
            // The characters of a session id need no JSON escapes.
            session_json: format!("\"{session}\""),
            specs,
            settings: (*snapshot.settings).clone(),
            usage_total: snapshot.totals,
            turn_usage: Totals::default(),
            turn_runs: snapshot.busy,
            notices: Vec::new(),
            answer: None,
            command_outputs: CommandOutputs::new(client.terminal_output.then(|| Arc::clone(&snapshot.cwd))),
            calls: SubAgentCalls::default(),
            asked_by_agent: BTreeSet::new(),
        }
    }

    /// Sends the held-back output of running commands.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        for (call, content, parent) in self.take_held_back() {
            let fields = schema::ToolCallUpdateFields::new().content(vec![content]);
            let offset = out.len();
            self.update(
                schema::SessionUpdate::ToolCallUpdate(schema::ToolCallUpdate::new(call.0, fields)),
                out,
            );
            if let Some(parent) = parent {
                mark(&parent, offset, out);
            }
        }
    }

    /// The session's slash commands; sent once the client knows the session.
    pub fn commands(&self, commands: &[engine::CommandSpec], out: &mut Vec<u8>) {
        let command = |spec: &engine::CommandSpec| {
            let input = spec.hint.as_ref().map(|hint| {
                schema::AvailableCommandInput::Unstructured(schema::UnstructuredCommandInput::new(
                    hint.to_string(),
                ))
            });
            schema::AvailableCommand::new(spec.name.to_string(), spec.description.to_string()).input(input)
        };
        let update = schema::AvailableCommandsUpdate::new(commands.iter().map(command).collect());
        self.update(schema::SessionUpdate::AvailableCommandsUpdate(update), out);
    }

    /// The session's total usage.
    pub fn totals(&self, totals: &Totals, out: &mut Vec<u8>) {
        self.update(schema::SessionUpdate::UsageUpdate(usage_update(totals)), out);
    }

    /// The same after a model call, with the turn's tokens under zeph's names. The official protocol
    /// reserves unknown names in its own objects, so they are sent on zeph's transport alone.
    fn turn_totals(&self, out: &mut Vec<u8>) {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            session_id: &'a str,
            update: Update,
        }
        #[derive(serde::Serialize)]
        struct Update {
            #[serde(flatten)]
            official: schema::SessionUpdate,
            #[serde(flatten)]
            tokens: Map<String, serde_json::Value>,
        }
        let (update, tokens) = (usage_update(&self.usage_total), tokens(&self.turn_usage));
        if !self.client.zeph {
            return self.update(schema::SessionUpdate::UsageUpdate(update.meta(tokens)), out);
        }
        let update = Update { official: schema::SessionUpdate::UsageUpdate(update), tokens };
        write_notification(out, "session/update", Params { session_id: &self.session.0, update });
    }

    pub(crate) fn count_from(&mut self, cost_usd: f64) {
        self.usage_total.cost_usd = cost_usd;
    }

    pub(crate) fn keep_for_session(&mut self) {
        self.scope = tool_calls::AlwaysScope::Session;
    }

    pub fn ask(&self, ask: AskId, request: &AskRequest) -> AskFrame {
        let session = self.session.clone();
        let parent = request.call.as_ref().and_then(|call| self.calls.parent_of(call));
        match &request.question {
            None if request.foreign.is_some() => AskFrame::Foreign(self.foreign_ask(request)),
            None => AskFrame::Permission(tool_calls::permission(session, (ask, request), parent, self.scope)),
            Some(question) if self.client.forms => {
                AskFrame::Form(questions::form(session, request, question))
            }
            Some(question) => {
                AskFrame::Permission(questions::permission(session, (ask, request), question, parent))
            }
        }
    }

    fn foreign_ask(&self, request: &AskRequest) -> serde_json::Value {
        let params = request.foreign.as_ref().map_or("{}", |foreign| &foreign.params.0);
        let mut params: Map<String, serde_json::Value> = serde_json::from_str(params).unwrap_or_default();
        params.insert("sessionId".to_owned(), self.session.0.as_ref().into());
        if let Some(call) = params.get_mut("toolCall").and_then(serde_json::Value::as_object_mut) {
            relayed_updates::put_objects(call);
        }
        if let Some(why) = tool_calls::unreadable_rules(request)
            && let Some(call) = params.get_mut("toolCall").and_then(serde_json::Value::as_object_mut)
        {
            let said = serde_json::json!({ "type": "content", "content": { "type": "text", "text": why } });
            match call.get_mut("content").and_then(serde_json::Value::as_array_mut) {
                Some(content) => content.insert(0, said),
                None => drop(call.insert("content".to_owned(), serde_json::json!([said]))),
            }
        }
        params.into()
    }

    /// Adds the parent call to the updates from `offset` on, if they are about a sub-agent's call.
    fn mark(&self, call: &CallId, offset: usize, out: &mut Vec<u8>) {
        if let Some(parent) = self.calls.parent_of(call) {
            mark(parent, offset, out);
        }
    }

    /// A call that waited for permission continues.
    pub fn in_progress(&self, call: &CallId, out: &mut Vec<u8>) {
        if self.asked_by_agent.contains(call) {
            return;
        }
        let mut fields = schema::ToolCallUpdateFields::new().status(schema::ToolCallStatus::InProgress);
        if let Some(terminal) = self.embedded(call) {
            fields = fields.content(vec![terminal]);
        }
        let offset = out.len();
        self.update(
            schema::SessionUpdate::ToolCallUpdate(schema::ToolCallUpdate::new(call.0.clone(), fields)),
            out,
        );
        self.mark(call, offset, out);
    }

    fn event<'a>(
        &mut self,
        event: &'a Event,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> Option<ConnectionEvent<'a>> {
        if let Some(relayed) = &event.relayed
            && self.relayed(event, relayed, context, out)
        {
            return None;
        }
        match &event.body {
            Body::UserMessage { content } => self.user_message(event, content, context, out),
            Body::Plan { entries } => {
                self.update(schema::SessionUpdate::Plan(tool_calls::plan(entries)), out)
            }
            Body::ToolStarted(start) => self.tool_started(start, event, context, out),
            Body::ToolOutput { .. } => self.output(event, out),
            Body::ToolTerminal { call, terminal, surface } => {
                self.terminal(call, terminal, *surface == context.own && !context.replay, out);
            }
            Body::ToolChanged(change) => {
                self.shows(event, change);
                let update = tool_calls::changed(change, self.command_outputs.terminal_use(&change.call));
                self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
            }
            Body::Offered { settings } => self.offers(settings, context, out),
            Body::ToolEnded(end) => self.tool_ended(end, event, out),
            Body::FileEdited { call: Some(call), change } => {
                let update = tool_calls::edited(call, change);
                self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
            }
            Body::Asked { ask, request } => return Some(self.asks(*ask, request)),
            Body::Resolved { ask, call, resolution, by, .. } => {
                return Some(ConnectionEvent::resolved(*ask, call.as_ref(), *resolution, by));
            }
            Body::SettingChanged { id, value } => self.setting(id, value, context, out),
            Body::Usage(usage) => self.usage(event, usage, context, out),
            Body::Commands { commands } => self.commands(commands, out),
            Body::Title { title } => self.title(title, event, out),
            Body::Notice { level, text } => self.notice(*level, text, event, context, out),
            Body::PolicyBlocked { call: Some(call), tool, path, mode, reason } => {
                let update = tool_calls::refused(call, (tool, mode, reason), path.as_deref());
                self.update(schema::SessionUpdate::ToolCallUpdate(update), out);
            }
            Body::Compacting { given_up } => self.compacting(event, *given_up, context, out),
            Body::Compacted { summary } => self.compacted(event, summary, out),
            Body::Foreign { payload } if payload.0.starts_with(PROMPT_ANSWER) => {
                self.answer = Some(payload.clone())
            }
            Body::Foreign { payload } => self.foreign(&payload.0, out),
            Body::TurnStarted => self.turn_begins(out),
            Body::TurnEnded { stop, error } => {
                self.turn_runs = false;
                let (turn, usage, words) = (event.turn?, self.turn_over(), self.answer.take());
                return Some(ConnectionEvent::TurnEnded {
                    turn,
                    stop: *stop,
                    error: error.clone(),
                    usage,
                    words,
                });
            }
            // Text and thoughts are merged by the caller; the rest has no representation in this protocol.
            Body::Text { .. }
            | Body::Thought { .. }
            | Body::TurnQueued { .. }
            | Body::FileEdited { call: None, .. }
            | Body::FileShown { .. }
            | Body::CancelRequested { .. }
            | Body::PolicyBlocked { call: None, .. }
            | Body::Cleared
            | Body::Joined { .. } => {}
            Body::Moved { cwd, .. } => self.command_outputs.set_cwd(cwd),
        }
        None
    }

    fn turn_begins(&mut self, out: &mut Vec<u8>) {
        self.turn_runs = true;
        for (seq, text) in std::mem::take(&mut self.notices) {
            self.chunk("agent_thought_chunk", &text, &format!("n{seq}"), None, out);
        }
        self.turn_usage = Totals::default();
        self.answer = None;
        self.asked_by_agent.clear();
    }

    fn asks<'a>(&mut self, ask: AskId, request: &'a AskRequest) -> ConnectionEvent<'a> {
        if request.foreign.is_some() {
            self.asked_by_agent.extend(request.call.clone());
        }
        ConnectionEvent::Asked { ask, request }
    }

    /// The hot path, written by hand: a test compares it with the schema's own encoder.
    fn chunk(&self, kind: &str, text: &str, message: &str, parent: Option<&CallId>, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"#);
        out.extend_from_slice(self.session_json.as_bytes());
        out.extend_from_slice(br#","update":{"sessionUpdate":""#);
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(br#"","content":{"type":"text","text":"#);
        // Writing text into a vector cannot fail.
        drop(serde_json::to_writer(&mut *out, text));
        out.extend_from_slice(br#"},"messageId":""#);
        out.extend_from_slice(message.as_bytes());
        out.push(b'"');
        if let Some(parent) = parent {
            out.extend_from_slice(br#","_meta":{"claudeCode":{"parentToolUseId":"#);
            drop(serde_json::to_writer(&mut *out, parent.0.as_ref()));
            out.extend_from_slice(b"}}");
        }
        out.extend_from_slice(b"}}}\n");
    }

    fn user_message(&self, event: &Event, content: &[Content], context: EncodeContext, out: &mut Vec<u8>) {
        let own = matches!(&event.origin, engine::Origin::Surface { id, .. } if *id == context.own);
        if own && !context.replay {
            return;
        }
        let message = event.turn.map_or_else(String::new, |turn| format!("u{}", turn.0));
        for block in content {
            let chunk = schema::ContentChunk::new(tool_calls::block(block))
                .message_id(schema::MessageId::new(message.as_str()));
            self.update(schema::SessionUpdate::UserMessageChunk(chunk), out);
        }
    }

    fn title(&self, title: &str, event: &Event, out: &mut Vec<u8>) {
        let update = schema::SessionInfoUpdate::new().title(title.to_owned()).updated_at(rfc3339(event.at));
        self.update(schema::SessionUpdate::SessionInfoUpdate(update), out);
    }

    fn turn_over(&mut self) -> Totals {
        self.command_outputs.clear();
        self.calls.clear();
        std::mem::take(&mut self.turn_usage)
    }

    /// The response to `session/load` has the current settings, so a replay does not repeat the changes.
    fn setting(&mut self, id: &Arc<str>, value: &Arc<str>, context: EncodeContext, out: &mut Vec<u8>) {
        if context.replay {
            return;
        }
        self.settings.set(Arc::clone(id), Arc::clone(value));
        if id.as_ref() == MODE {
            let update = schema::CurrentModeUpdate::new(schema::SessionModeId::new(Arc::clone(value)));
            self.update(schema::SessionUpdate::CurrentModeUpdate(update), out);
        }
        self.write_options(out);
        if id.as_ref() == MODEL {
            let meta = Map::from_iter([("currentModel".to_string(), value.as_ref().into())]);
            self.update(
                schema::SessionUpdate::SessionInfoUpdate(schema::SessionInfoUpdate::new().meta(meta)),
                out,
            );
        }
    }

    fn usage(&mut self, event: &Event, usage: &Usage, context: EncodeContext, out: &mut Vec<u8>) {
        self.turn_usage.add_from(&event.origin, usage);
        if context.replay {
            return;
        }
        self.usage_total.add_from(&event.origin, usage);
        self.turn_totals(out);
    }

    /// A client without notices sees the text as a thought, so that nothing is visible only in our log.
    fn notice(
        &mut self,
        level: NoticeLevel,
        text: &str,
        event: &Event,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) {
        let in_turn = event.turn.is_some() || self.turn_runs;
        if !self.client.notices && !in_turn && !context.replay {
            // Outside a turn, editors show no thoughts, or treat them as an error of the agent.
            if self.notices.len() < NOTICES_MAX {
                self.notices.push((event.seq, text.into()));
            }
            return;
        }
        if !self.client.notices {
            return self.chunk("agent_thought_chunk", text, &format!("n{}", event.seq), None, out);
        }
        // The protocol says that notices are not part of the history.
        if !context.replay {
            let severity = match level {
                NoticeLevel::Info => schema::NoticeSeverity::Info,
                NoticeLevel::Warning => schema::NoticeSeverity::Warning,
                NoticeLevel::Error | NoticeLevel::Damage => schema::NoticeSeverity::Error,
            };
            self.update(schema::SessionUpdate::Notice(schema::Notice::new(severity, text)), out);
        }
    }

    /// Not part of the history: a compaction that a crash cut off would seem to run for ever.
    fn compacting(&self, event: &Event, given_up: bool, context: EncodeContext, out: &mut Vec<u8>) {
        if context.replay {
            return;
        }
        if !self.client.compaction {
            let text = crate::ferret_otter_common::summing_up(given_up);
            return self.chunk("agent_thought_chunk", text, &format!("n{}", event.seq), None, out);
        }
        let status = match given_up {
            false => schema::CompactionStatus::InProgress,
            true => schema::CompactionStatus::Cancelled,
        };
        let update = schema::CompactionUpdate::new(compaction_id(event), status);
        self.update(schema::SessionUpdate::CompactionUpdate(update), out);
    }

    fn compacted(&self, event: &Event, summary: &str, out: &mut Vec<u8>) {
        if !self.client.compaction {
            let text = format!("The conversation so far was summarized for the model:\n{summary}");
            return self.chunk("agent_thought_chunk", &text, &format!("n{}", event.seq), None, out);
        }
        let update = schema::CompactionUpdate::new(compaction_id(event), schema::CompactionStatus::Completed)
            .summary(vec![schema::ContentBlock::from(summary.to_owned())]);
        self.update(schema::SessionUpdate::CompactionUpdate(update), out);
    }

    /// Another agent's update is relayed unchanged, but on one line: between JSON tokens a line end means no
    /// more than a space, and in a frame it would begin another frame.
    pub(super) fn foreign(&self, payload: &str, out: &mut Vec<u8>) {
        if payload.starts_with(EXTENSION) {
            return self.extension(payload, out);
        }
        let payload = payload.replace(['\n', '\r'], " ");
        if let Ok(update) = serde_json::from_str::<&serde_json::value::RawValue>(&payload) {
            #[derive(serde::Serialize)]
            #[serde(rename_all = "camelCase")]
            struct Params<'a> {
                session_id: &'a str,
                update: &'a serde_json::value::RawValue,
            }
            write_notification(out, "session/update", Params { session_id: &self.session.0, update });
        }
    }

    pub(super) fn write_options(&self, out: &mut Vec<u8>) {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct OptionsUpdate {
            session_update: &'static str,
            config_options: Vec<Box<serde_json::value::RawValue>>,
        }
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            session_id: &'a str,
            update: OptionsUpdate,
        }
        let config_options = settings::options(&self.specs, &self.settings, self.client.zeph);
        let update = OptionsUpdate { session_update: "config_option_update", config_options };
        write_notification(out, "session/update", Params { session_id: &self.session.0, update });
    }

    /// An external agent's custom notification, with our session id.
    fn extension(&self, payload: &str, out: &mut Vec<u8>) {
        #[derive(serde::Deserialize)]
        struct Notification {
            method: String,
            params: serde_json::Value,
        }
        let Ok(Notification { method, mut params }) = serde_json::from_str(payload) else { return };
        if let Some(session) = params.get_mut("sessionId") {
            *session = self.session.0.as_ref().into();
        }
        write_notification(out, &method, params);
    }

    pub(super) fn update(&self, update: schema::SessionUpdate, out: &mut Vec<u8>) {
        write_notification(
            out,
            "session/update",
            schema::SessionNotification::new(self.session.clone(), update),
        );
    }
}

impl AskFrame {
    pub fn write(&self, id: &RpcId, out: &mut Vec<u8>) {
        match self {
            Self::Permission(request) => super::write_request(id, "session/request_permission", request, out),
            Self::Form(request) => super::write_request(id, "elicitation/create", request, out),
            Self::Foreign(params) => super::write_request(id, "session/request_permission", params, out),
        }
    }
}

fn usage_update(totals: &Totals) -> schema::UsageUpdate {
    let cost = totals.known_usd().map(|usd| schema::Cost::new(usd, "USD"));
    schema::UsageUpdate::new(totals.context_used, totals.context_size).cost(cost)
}

/// Token counts under zeph's names. Cache tokens are included only if the provider has a cache.
fn tokens(used: &Totals) -> Map<String, serde_json::Value> {
    let cached = [("cache_read_tokens", used.cache_read), ("cache_write_tokens", used.cache_write)];
    [("input_tokens", used.input), ("output_tokens", used.output)]
        .into_iter()
        .chain(cached.into_iter().filter(|(_, count)| *count > 0))
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect()
}

/// Adds the position to every notification from `offset` on, where the draft for durable transports expects
/// it. A client has seen an event only when it has the last of the event's frames; with fewer, its position
/// is that many frames after the previous event.
fn add_cursor(seq: Seq, offset: usize, out: &mut Vec<u8>) {
    let frames = out.split_off(offset);
    let mut frames = frames.split_inclusive(|byte| *byte == b'\n').zip(1_u32..).peekable();
    while let Some((frame, nth)) = frames.next() {
        // An external agent's custom notifications have parameters of any form.
        let ours = frame.starts_with(br#"{"jsonrpc":"2.0","method":"session/update""#);
        match frame.strip_suffix(b"}}\n").filter(|_| ours) {
            Some(begun) => {
                let cursor = match frames.peek() {
                    Some(_) => Cursor::within(seq, nth),
                    None => Cursor::after(seq),
                };
                out.extend_from_slice(begun);
                out.extend_from_slice(format!(",\"_meta\":{{\"acp/cursor\":\"{cursor}\"}}}}}}\n").as_bytes());
            }
            None => out.extend_from_slice(frame),
        }
    }
}

/// The id of a compaction, the same for its start and its end: the turn's. A client that saw only the end
/// computes the same id. A second compaction in the same turn replaces the first.
fn compaction_id(event: &Event) -> schema::CompactionId {
    let turn = event.turn.map_or(event.seq.0, |turn| turn.0);
    schema::CompactionId::new(format!("c{turn}"))
}

fn message_id(message: MessageId) -> String {
    format!("m{}", message.0)
}
