//! Sessions below `/sessions` (zeph's shape): titles, forks, messages, transcripts; and links that open a session.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::{ListQuery, MODE, MODEL, Timestamp};
use serde_json::{Map, Value, json};
use service::NewSessionOptions;
use wire::parse_past_time::PastTime;
use wire::rest::{self, DeepLink, message_id};
use wire::session_export_writer::DocumentFormat;

use super::request_params::{QueryParams, SessionPath, bad_field, bad_query, some_text, text};
use super::rest_context::{RestContext, refusal};
use super::sessions::{check_persist, delete};
use crate::http::{HttpState, JsonFields, Refusal};

/// Sessions in one answer to `GET /sessions`.
const LIST_MAX: usize = 1000;
const LIST_USUAL: usize = 100;
const TITLE_CHARS_MAX: usize = 60;
/// A transcript shows what an agent and strangers wrote: in a browser it may do nothing at all.
const NO_RIGHTS: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/sessions", get(list).post(create))
        .route("/sessions/{id}", get(one).patch(rename).delete(delete))
        .route("/sessions/{id}/prompt", post(prompt))
        .route("/sessions/{id}/turns", get(turns).post(prompt))
        .route("/sessions/{id}/fork", post(fork))
        .route("/sessions/{id}/messages", get(messages))
        .route("/sessions/{id}/transcript", get(transcript))
        .route("/sessions/{id}/share", post(share))
        .route("/deep-link", post(deep_link))
}

async fn list(context: RestContext, params: QueryParams) -> Result<Json<Value>, Refusal> {
    let limit = params.number("limit")?.unwrap_or(LIST_USUAL).clamp(1, LIST_MAX);
    let since = since(&context, &params)?;
    let query = ListQuery { limit, ..ListQuery::all(context.caller.principal.clone()) };
    let rows = context.service.list(&context.caller, query, None).await.map_err(refusal)?;
    let rows = rows.iter().filter(|listed| since.is_none_or(|since| listed.row.updated_at >= since));
    // The clients that want a bare list want times written out.
    if params.get("format") == Some("array") {
        return Ok(Json(rows.map(|listed| rest::info(&listed.row, None)).collect()));
    }
    Ok(Json(json!({ "sessions": rows.map(rest::listed).collect::<Vec<_>>() })))
}

fn since(context: &RestContext, params: &QueryParams) -> Result<Option<Timestamp>, Refusal> {
    let since = params.get("since").map(PastTime::parse).transpose();
    let since = since.map_err(|hint| bad_query(&format!("since is not a valid time; {hint}")))?;
    Ok(since.map(|since| since.moment(context.state.registry.clock().now())))
}

async fn create(context: RestContext, JsonFields(fields): JsonFields) -> Result<Response, Refusal> {
    // A caller that asks for restrictions that cannot be met must not get a session without them.
    check_persist(&context, &fields)?;
    if ["allowed_tools", "allowedTools", "max_steps"].iter().any(|name| fields.contains_key(*name)) {
        let message = "allowed_tools and max_steps cannot be set here; choose a mode, or set them when the server starts";
        return Err(bad_field("unsupported_field", message));
    }
    let place = context.place(some_text(&fields, &["working_dir", "cwd"])?).await?;
    let chosen = chosen(&context, &fields)?;
    let prompt_text = some_text(&fields, &["prompt"])?.map(str::to_owned);
    let maker = context.clone();
    let made = context.complete(async move {
        let session = maker.create(place).await?;
        let id = session.id().clone();
        for (setting, value) in chosen {
            let changed = maker.service.change(&maker.caller, &id, &setting.into(), &value, |_| ()).await;
            changed.map_err(refusal)?;
        }
        let turn = match prompt_text {
            Some(text) => Some(maker.prompt(&id, &text).await?),
            None => None,
        };
        let mut body = rest::info(&maker.row(&id).await?, Some(0));
        body["session_token"] = json!(maker.state.gate.session_token(&maker.caller.principal, &id));
        if let Some(turn) = turn {
            body["status"] = json!("running");
            body["message_id"] = json!(message_id(&id, turn));
        }
        Ok(body)
    });
    Ok((StatusCode::CREATED, Json(made.await?)).into_response())
}

type ChosenSettings = Vec<(&'static str, Arc<str>)>;

fn chosen(context: &RestContext, fields: &Map<String, Value>) -> Result<ChosenSettings, Refusal> {
    let mut chosen = Vec::new();
    for setting in [MODEL, MODE] {
        if let Some(value) = some_text(fields, &[setting])? {
            chosen.push((setting, context.choice(setting, value)?));
        }
    }
    Ok(chosen)
}

async fn one(SessionPath { context, id }: SessionPath) -> Result<Json<Value>, Refusal> {
    let row = context.row(&id).await?;
    let mut count = rest::MessageCount::default();
    context.each(&id, |event| count.observe(event)).await?;
    Ok(Json(rest::info(&row, Some(count.get()))))
}

async fn rename(
    SessionPath { context, id }: SessionPath,
    JsonFields(fields): JsonFields,
) -> Result<Json<Value>, Refusal> {
    context.row(&id).await?;
    if let Some(title) = text(&fields, "title")? {
        let plain = !title.trim().is_empty() && !title.chars().any(char::is_control);
        if !plain || title.chars().count() > TITLE_CHARS_MAX {
            let message = format!("a title must have 1 to {TITLE_CHARS_MAX} characters, on one line");
            return Err(bad_field("bad_title", &message));
        }
        context.service.rename(&context.caller, &id, title).await.map_err(refusal)?;
    }
    Ok(Json(rest::info(&context.row(&id).await?, None)))
}

async fn prompt(
    SessionPath { context, id }: SessionPath,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    context.row(&id).await?;
    let prompt_text = some_text(&fields, &["prompt", "text", "message"])?;
    let prompt_text =
        prompt_text.ok_or_else(|| bad_field("missing_prompt", "send {\"prompt\": what you want}"))?;
    let turn = context.prompt(&id, prompt_text).await?;
    let body = json!({
        "session_id": id.as_str(), "status": "running", "message_id": message_id(&id, turn),
    });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

async fn turns(SessionPath { context, id }: SessionPath) -> Result<Json<Value>, Refusal> {
    context.row(&id).await?;
    let mut turns = rest::TurnList::default();
    context.each(&id, |event| turns.observe(event)).await?;
    Ok(Json(turns.to_json(&id)))
}

/// A new session that begins with this session's log so far.
async fn fork(SessionPath { context, id }: SessionPath) -> Result<Response, Refusal> {
    let maker = context.clone();
    let made = context.complete(async move {
        let made =
            maker.service.fork(&maker.caller, &id, NewSessionOptions::default()).await.map_err(refusal)?;
        let mut body = rest::info(&maker.row(made.id()).await?, None);
        body["session_token"] = json!(maker.state.gate.session_token(&maker.caller.principal, made.id()));
        Ok(body)
    });
    Ok((StatusCode::CREATED, Json(made.await?)).into_response())
}

async fn messages(SessionPath { context, id }: SessionPath) -> Result<Response, Refusal> {
    let row = context.row(&id).await?;
    let body = context.document(row, DocumentFormat::Messages).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn transcript(
    SessionPath { context, id }: SessionPath,
    params: QueryParams,
) -> Result<Response, Refusal> {
    let row = context.row(&id).await?;
    let (kind, form) = form(params.get("format").unwrap_or("html"))?;
    let body = context.document(row, form).await?;
    Ok(([(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, NO_RIGHTS)], body).into_response())
}

fn form(name: &str) -> Result<(&'static str, DocumentFormat), Refusal> {
    match name {
        "html" => Ok(("text/html; charset=utf-8", DocumentFormat::Html)),
        "md" | "markdown" => Ok(("text/markdown; charset=utf-8", DocumentFormat::Markdown)),
        "json" => Ok(("application/json", DocumentFormat::Json { pretty: false })),
        _ => Err(bad_query("format must be html, md or json")),
    }
}

/// Shares into the response only: a server that sends to other addresses or writes files for its clients would be
/// under their control and not its owner's.
async fn share(
    SessionPath { context, id }: SessionPath,
    JsonFields(fields): JsonFields,
) -> Result<Json<Value>, Refusal> {
    let row = context.row(&id).await?;
    match text(&fields, "sink")?.unwrap_or("stdout") {
        "stdout" => {
            let format = text(&fields, "format")?.unwrap_or("html");
            let (kind, form) = form(format)?;
            let body = context.whole(row, form).await?;
            Ok(Json(json!({ "sink": "stdout", "format": format, "content_type": kind, "body": body })))
        }
        "file" | "http" => {
            let message = "this server does not write or send files for its clients; use the sink stdout";
            Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "sink_not_supported", message))
        }
        _ => Err(bad_field("bad_sink", "sink must be stdout")),
    }
}

/// Parses a link and gives what it asks for. Nothing is carried out: a person decides that.
async fn deep_link(context: RestContext, JsonFields(fields): JsonFields) -> Result<Json<Value>, Refusal> {
    let uri =
        some_text(&fields, &["uri"])?.ok_or_else(|| bad_field("bad_link", "send {\"uri\": the link}"))?;
    let link = DeepLink::parse(uri).map_err(|why| bad_field("bad_link", &why.to_string()))?;
    if let Some(model) = &link.model {
        let unknown = |Refusal(_, code, message)| Refusal(StatusCode::UNPROCESSABLE_ENTITY, code, message);
        context.choice(MODEL, model).map_err(unknown)?;
    }
    // A folder that does not exist gets the same answer as one that is not open.
    let hidden = |_| {
        let message = "clients of this server have no access to the link's folder";
        Refusal::new(StatusCode::FORBIDDEN, "working_dir_not_allowed", message)
    };
    let working_dir = match link.cwd.as_deref() {
        Some(cwd) => Some(context.place(Some(cwd)).await.map_err(hidden)?),
        None => None,
    };
    Ok(Json(json!({
        "working_dir": working_dir.map(|dir| dir.to_string_lossy().into_owned()),
        "prompt": link.prompt,
        "prompt_trust_level": "external_untrusted",
        "model": link.model,
    })))
}
