//! The frames of each event, in the two formats of the stream.

use engine::{
    Body, ContextEvent, Event, Family, NoticeLevel, PermissionEvent, SpeechEvent, Stop, ToolEvent, TurnEvent,
};
use serde_json::{Value, json};

use super::event_data::{question, remark, remark_data, tokens, tool_result, tool_use, usage};
use super::event_stream::{FrameSink, RestStream, StreamTurn, is_success};
use super::{message_id, seconds};
use crate::ferret_otter_common::prompt_text;
use crate::money;
use crate::timestamp::rfc3339;
use crate::turn_text::TOLD_AGAIN_BYTES_MAX;

/// An event with its session.
struct EventContext<'a> {
    stream: &'a RestStream,
    event: &'a Event,
}

impl EventContext<'_> {
    fn message(&self) -> Option<String> {
        self.event.turn.map(|turn| message_id(&self.stream.session, turn))
    }

    fn number(&self) -> u64 {
        self.event.turn.map_or(0, |turn| turn.0)
    }

    fn loop_event(&self, kind: &str, data: Value) -> Value {
        let mut context = json!({
            "message_id": self.message(),
            "type": kind,
            "data": data,
            "turn": self.number(),
            "timestamp": seconds(self.event.at),
        });
        self.add_parent(&mut context);
        context
    }

    /// Adds the parent call, if a sub-agent caused the event.
    fn add_parent(&self, context: &mut Value) {
        if let Some(call) = self.event.origin.task() {
            context["parent"] = json!(call.0.as_ref());
        }
    }

    fn record(&self, number: u64, kind: &str, mut metadata: Value) -> Value {
        metadata["message_id"] = json!(self.message());
        metadata["turn"] = json!(self.number());
        self.add_parent(&mut metadata);
        json!({
            "id": format!("evt-{number}"),
            "type": kind,
            "metadata": metadata,
            "ts": rfc3339(self.event.at),
        })
    }
}

pub(super) fn write_loop(stream: &mut RestStream, event: &Event, sink: &mut FrameSink<'_>) {
    let ended = observe(stream, event);
    let context = EventContext { stream, event };
    let mut put =
        |kind: &str, data: &dyn Fn() -> Value| sink.put("loop_event", |_| context.loop_event(kind, data()));
    if let Body::Notice { level: NoticeLevel::Error, text } = &event.body {
        return put("error", &|| json!({ "message": text.as_ref() }));
    }
    if let Some(name) = remark(&event.body) {
        return put("system", &|| with_subtype(name, remark_data(stream, &event.body)));
    }
    match event.body.family() {
        Family::Turn(TurnEvent::Started) => put("stream_start", &|| json!({})),
        Family::Turn(TurnEvent::UserMessage { content }) => sink.put(
            "user_message",
            |_| json!({ "message_id": context.message(), "text": prompt_text(content) }),
        ),
        Family::Speech(SpeechEvent::Text { text, .. }) => {
            put("assistant_chunk", &|| json!({ "text": text.as_ref() }))
        }
        Family::Speech(SpeechEvent::Thought { text, .. }) => {
            put("thinking_chunk", &|| json!({ "text": text.as_ref() }))
        }
        Family::Tool(ToolEvent::Started(start)) => put("tool_use", &|| tool_use(start)),
        Family::Speech(SpeechEvent::Output { call, stream, text }) => put(
            "tool_progress",
            &|| json!({ "id": call.0.as_ref(), "stream": stream.as_str(), "text": text.as_ref() }),
        ),
        Family::Tool(ToolEvent::Ended(end)) => put("tool_result", &|| tool_result(end, &stream.folder)),
        Family::Permission(PermissionEvent::Asked { ask, request }) => {
            sink.put("permission_request", |_| {
                let mut question = question(stream, ask, request);
                context.add_parent(&mut question);
                question
            });
        }
        Family::Usage(spent) => put("system", &|| with_subtype("usage", usage(spent))),
        Family::Context(ContextEvent::Compacted { summary }) => {
            put("compact_boundary", &|| json!({ "summary": summary.as_ref() }))
        }
        Family::Turn(TurnEvent::Ended { stop, error }) => {
            loop_end(&context, ended, stop, error.map(AsRef::as_ref), sink)
        }
        Family::Turn(TurnEvent::Queued { .. } | TurnEvent::CancelRequested { .. })
        | Family::Tool(ToolEvent::Changed(_))
        | Family::Permission(PermissionEvent::Resolved { .. })
        | Family::Context(ContextEvent::Cleared | ContextEvent::Compacting { .. })
        | Family::Setup(_)
        | Family::Other => {}
    }
}

fn loop_end(
    context: &EventContext<'_>,
    ended: Option<StreamTurn>,
    stop: Stop,
    error: Option<&str>,
    sink: &mut FrameSink<'_>,
) {
    let turn = ended.unwrap_or_else(|| StreamTurn::new(engine::TurnId(context.number())));
    if !turn.said.text.is_empty() {
        sink.put("loop_event", |_| context.loop_event("assistant", json!({ "text": turn.said.text })));
    }
    if let Some(reason) = failure(stop, error) {
        sink.put(
            "error",
            |_| json!({ "message_id": context.message(), "error": reason, "exception": exception(stop) }),
        );
    }
    sink.put("loop_event", |_| {
        let data =
            json!({ "stop_reason": stop.as_str(), "steps": turn.steps, "cost_usd": turn.totals.known_usd() });
        let data = money::mark(data, "cost_unknown", turn.totals.unpriced);
        context.loop_event("result", data)
    });
    sink.put("result", |_| result(context, &turn, stop));
}

pub(super) fn write_delta(stream: &mut RestStream, event: &Event, sink: &mut FrameSink<'_>) {
    // A step begins with the first chunk of a model call, and ends when its cost is known. Steps of
    // sub-agents are inside a step, and beside each other.
    let own = event.origin.task().is_none();
    let steps = own && matches!(&event.body, Body::Text { .. } | Body::Thought { .. } | Body::Usage(_));
    let in_step = stream.turn.as_ref().is_some_and(|turn| turn.in_step);
    let ended = observe(stream, event);
    let context = EventContext { stream, event };
    let mut put = |kind: &str, data: &dyn Fn() -> Value| {
        sink.put(kind, |number| context.record(number, kind, data()));
    };
    if steps && !in_step && stream.turn.is_some() {
        put("step_start", &|| json!({}));
    }
    if let Some(name) = remark(&event.body) {
        return put("system", &|| with_subtype(name, remark_data(stream, &event.body)));
    }
    match event.body.family() {
        Family::Turn(TurnEvent::Started) => put("turn_start", &|| json!({})),
        Family::Turn(TurnEvent::UserMessage { content }) => {
            put("user_message", &|| json!({ "text": prompt_text(content) }))
        }
        Family::Speech(SpeechEvent::Text { text, .. }) => {
            put("text_delta", &|| json!({ "text": text.as_ref() }))
        }
        Family::Speech(SpeechEvent::Thought { text, .. }) => {
            put("thinking_delta", &|| json!({ "text": text.as_ref() }))
        }
        Family::Tool(ToolEvent::Started(start)) => put("tool_call", &|| tool_use(start)),
        Family::Speech(SpeechEvent::Output { call, stream, text }) => put(
            "tool_output",
            &|| json!({ "id": call.0.as_ref(), "stream": stream.as_str(), "text": text.as_ref() }),
        ),
        Family::Tool(ToolEvent::Ended(end)) => put("tool_result", &|| tool_result(end, &stream.folder)),
        Family::Permission(PermissionEvent::Asked { ask, request }) => {
            put("permission_request", &|| question(stream, ask, request));
        }
        Family::Usage(spent) if own => put("step_end", &|| usage(spent)),
        Family::Usage(spent) => put("system", &|| with_subtype("usage", usage(spent))),
        Family::Context(ContextEvent::Compacted { summary }) => {
            put("system", &|| with_subtype("compact_boundary", json!({ "summary": summary.as_ref() })));
        }
        Family::Turn(TurnEvent::Ended { stop, error }) => {
            delta_end(&context, ended, stop, error.map(AsRef::as_ref), sink)
        }
        Family::Turn(TurnEvent::Queued { .. } | TurnEvent::CancelRequested { .. })
        | Family::Tool(ToolEvent::Changed(_))
        | Family::Permission(PermissionEvent::Resolved { .. })
        | Family::Context(ContextEvent::Cleared | ContextEvent::Compacting { .. })
        | Family::Setup(_)
        | Family::Other => {}
    }
}

fn delta_end(
    context: &EventContext<'_>,
    ended: Option<StreamTurn>,
    stop: Stop,
    error: Option<&str>,
    sink: &mut FrameSink<'_>,
) {
    let turn = ended.unwrap_or_else(|| StreamTurn::new(engine::TurnId(context.number())));
    let mut put = |kind: &str, data: &dyn Fn() -> Value| {
        sink.put(kind, |number| context.record(number, kind, data()));
    };
    if turn.in_step {
        put("step_end", &|| json!({}));
    }
    put("turn_end", &|| json!({ "stop_reason": stop.as_str() }));
    let last = match stop {
        Stop::Cancelled => "cancelled",
        Stop::Failed | Stop::Interrupted => "error",
        Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal => "agent_result",
    };
    put(last, &|| {
        let mut data = result(context, &turn, stop);
        if let Some(reason) = failure(stop, error) {
            data["error"] = json!(reason);
        }
        data
    });
}

/// Collects what the end of a turn repeats; returns it when the turn ends.
fn observe(stream: &mut RestStream, event: &Event) -> Option<StreamTurn> {
    if let (Body::TurnStarted, Some(id)) = (&event.body, event.turn) {
        stream.turn = Some(StreamTurn::new(id));
    }
    // A queued prompt may end while another turn runs.
    let turn = stream.turn.as_mut().filter(|turn| Some(turn.id) == event.turn)?;
    if event.origin.task().is_some() {
        // A sub-agent's text is not part of the answer; its cost is part of the cost.
        if let Body::Usage(usage) = &event.body {
            turn.count(usage);
        }
        return None;
    }
    if let Body::Text { .. } = &event.body {
        turn.in_step = true;
        turn.said.observe(event, TOLD_AGAIN_BYTES_MAX);
    } else if let Body::Thought { .. } = &event.body {
        turn.in_step = true;
    } else if let Body::Usage(usage) = &event.body {
        turn.in_step = false;
        turn.count(usage);
    } else if let Body::TurnEnded { .. } = &event.body {
        return stream.turn.take();
    }
    None
}

fn result(context: &EventContext<'_>, turn: &StreamTurn, stop: Stop) -> Value {
    let result = json!({
        "message_id": context.message(),
        "output": turn.said.text,
        "output_truncated": turn.said.cut,
        "steps": turn.steps,
        "cost": turn.totals.known_usd(),
        "tokens": tokens(&turn.totals),
        "success": is_success(stop),
        "cancelled": stop == Stop::Cancelled,
        "stop_reason": stop.as_str(),
    });
    money::mark(result, "cost_unknown", turn.totals.unpriced)
}

fn failure(stop: Stop, error: Option<&str>) -> Option<&str> {
    match stop {
        Stop::Failed => Some(error.unwrap_or("the agent failed")),
        Stop::Interrupted => Some(error.unwrap_or("the server was stopped during the turn")),
        Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal | Stop::Cancelled => None,
    }
}

fn exception(stop: Stop) -> &'static str {
    if stop == Stop::Interrupted { "Interrupted" } else { "AgentError" }
}

fn with_subtype(name: &str, mut data: Value) -> Value {
    data["subtype"] = json!(name);
    data
}
