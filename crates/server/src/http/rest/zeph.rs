//! Sessions below `/sessions`: with titles, forks, messages, transcripts; and links that open one.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::{ListQuery, MODE, MODEL, Timestamp};
use serde_json::{Map, Value, json};
use service::NewSession;
use wire::document::Form;
use wire::rest::{self, DeepLink, message_id};
use wire::since::Since;

use super::reach::{Reach, refusal};
use super::sessions::{check_persist, delete};
use super::words::{Named, Words, bad_field, bad_query, some_text, text};
use crate::http::{Doors, Fields, Refusal};

/// Sessions in one answer to `GET /sessions`.
const LIST_MAX: usize = 1000;
const LIST_USUAL: usize = 100;
const TITLE_CHARS_MAX: usize = 60;
/// A transcript shows what an agent and strangers wrote: in a browser it may do nothing at all.
const NO_RIGHTS: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";

pub(super) fn routes() -> Router<Arc<Doors>> {
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

async fn list(reach: Reach, words: Words) -> Result<Json<Value>, Refusal> {
    let limit = words.number("limit")?.unwrap_or(LIST_USUAL).clamp(1, LIST_MAX);
    let since = since(&reach, &words)?;
    let query = ListQuery { limit, ..ListQuery::all(reach.by.principal.clone()) };
    let rows = reach.service.list(&reach.by, query, None).await.map_err(refusal)?;
    let rows = rows.iter().filter(|listed| since.is_none_or(|since| listed.row.updated_at >= since));
    // The clients that want a bare list want times written out.
    if words.get("format") == Some("array") {
        return Ok(Json(rows.map(|listed| rest::info(&listed.row, None)).collect()));
    }
    Ok(Json(json!({ "sessions": rows.map(rest::listed).collect::<Vec<_>>() })))
}

fn since(reach: &Reach, words: &Words) -> Result<Option<Timestamp>, Refusal> {
    let since = words.get("since").map(Since::parse).transpose();
    let since = since.map_err(|hint| bad_query(&format!("since is not a time; {hint}")))?;
    Ok(since.map(|since| since.moment(reach.doors.registry.clock().now())))
}

async fn create(reach: Reach, Fields(fields): Fields) -> Result<Response, Refusal> {
    // Who asks for less than the usual must not get the usual.
    check_persist(&reach, &fields)?;
    if ["allowed_tools", "allowedTools", "max_steps"].iter().any(|name| fields.contains_key(*name)) {
        let message = "allowed_tools and max_steps cannot be set here; choose a mode, or start the server so";
        return Err(bad_field("unsupported_field", message));
    }
    let place = reach.place(some_text(&fields, &["working_dir", "cwd"])?).await?;
    let chosen = chosen(&reach, &fields)?;
    let words = some_text(&fields, &["prompt"])?.map(str::to_owned);
    let maker = reach.clone();
    let made = reach.complete(async move {
        let session = maker.create(place).await?;
        let id = session.id().clone();
        for (setting, value) in chosen {
            let changed = maker.service.change(&maker.by, &id, &setting.into(), &value, |_| ()).await;
            changed.map_err(refusal)?;
        }
        let turn = match words {
            Some(words) => Some(maker.prompt(&id, &words).await?),
            None => None,
        };
        let mut body = rest::info(&maker.row(&id).await?, Some(0));
        body["session_token"] = json!(maker.doors.gate.session_token(&maker.by.principal, &id));
        if let Some(turn) = turn {
            body["status"] = json!("running");
            body["message_id"] = json!(message_id(&id, turn));
        }
        Ok(body)
    });
    Ok((StatusCode::CREATED, Json(made.await?)).into_response())
}

type Chosen = Vec<(&'static str, Arc<str>)>;

fn chosen(reach: &Reach, fields: &Map<String, Value>) -> Result<Chosen, Refusal> {
    let mut chosen = Vec::new();
    for setting in [MODEL, MODE] {
        if let Some(value) = some_text(fields, &[setting])? {
            chosen.push((setting, reach.choice(setting, value)?));
        }
    }
    Ok(chosen)
}

async fn one(Named { reach, id }: Named) -> Result<Json<Value>, Refusal> {
    let row = reach.row(&id).await?;
    let mut count = rest::MessageCount::default();
    reach.each(&id, |event| count.observe(event)).await?;
    Ok(Json(rest::info(&row, Some(count.get()))))
}

async fn rename(Named { reach, id }: Named, Fields(fields): Fields) -> Result<Json<Value>, Refusal> {
    reach.row(&id).await?;
    if let Some(title) = text(&fields, "title")? {
        let plain = !title.trim().is_empty() && !title.chars().any(char::is_control);
        if !plain || title.chars().count() > TITLE_CHARS_MAX {
            let message = format!("a title has 1 to {TITLE_CHARS_MAX} characters, on one line");
            return Err(bad_field("bad_title", &message));
        }
        reach.service.rename(&reach.by, &id, title).await.map_err(refusal)?;
    }
    Ok(Json(rest::info(&reach.row(&id).await?, None)))
}

async fn prompt(Named { reach, id }: Named, Fields(fields): Fields) -> Result<Response, Refusal> {
    reach.row(&id).await?;
    let words = some_text(&fields, &["prompt", "text", "message"])?;
    let words = words.ok_or_else(|| bad_field("missing_prompt", "send {\"prompt\": what you want}"))?;
    let turn = reach.prompt(&id, words).await?;
    let body = json!({
        "session_id": id.as_str(), "status": "running", "message_id": message_id(&id, turn),
    });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

async fn turns(Named { reach, id }: Named) -> Result<Json<Value>, Refusal> {
    reach.row(&id).await?;
    let mut turns = rest::Turns::default();
    reach.each(&id, |event| turns.observe(event)).await?;
    Ok(Json(turns.told(&id)))
}

/// A new session that begins with all that was written here so far.
async fn fork(Named { reach, id }: Named) -> Result<Response, Refusal> {
    let maker = reach.clone();
    let made = reach.complete(async move {
        let made = maker.service.fork(&maker.by, &id, NewSession::default()).await.map_err(refusal)?;
        let mut body = rest::info(&maker.row(made.id()).await?, None);
        body["session_token"] = json!(maker.doors.gate.session_token(&maker.by.principal, made.id()));
        Ok(body)
    });
    Ok((StatusCode::CREATED, Json(made.await?)).into_response())
}

async fn messages(Named { reach, id }: Named) -> Result<Response, Refusal> {
    let row = reach.row(&id).await?;
    let body = reach.document(row, Form::Messages).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn transcript(Named { reach, id }: Named, words: Words) -> Result<Response, Refusal> {
    let row = reach.row(&id).await?;
    let (kind, form) = form(words.get("format").unwrap_or("html"))?;
    let body = reach.document(row, form).await?;
    Ok(([(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, NO_RIGHTS)], body).into_response())
}

fn form(name: &str) -> Result<(&'static str, Form), Refusal> {
    match name {
        "html" => Ok(("text/html; charset=utf-8", Form::Html)),
        "md" | "markdown" => Ok(("text/markdown; charset=utf-8", Form::Markdown)),
        "json" => Ok(("application/json", Form::Json { pretty: false })),
        _ => Err(bad_query("format is html, md or json")),
    }
}

/// Only into the answer: a server that sends somewhere for its clients, or writes where they say, is
/// theirs and not its owner's.
async fn share(Named { reach, id }: Named, Fields(fields): Fields) -> Result<Json<Value>, Refusal> {
    let row = reach.row(&id).await?;
    match text(&fields, "sink")?.unwrap_or("stdout") {
        "stdout" => {
            let format = text(&fields, "format")?.unwrap_or("html");
            let (kind, form) = form(format)?;
            let body = reach.whole(row, form).await?;
            Ok(Json(json!({ "sink": "stdout", "format": format, "content_type": kind, "body": body })))
        }
        "file" | "http" => {
            let message =
                "this server neither writes files nor sends them for its clients; use the sink stdout";
            Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "sink_not_supported", message))
        }
        _ => Err(bad_field("bad_sink", "sink is stdout")),
    }
}

/// Looks at a link and says what it asks for. Nothing is done: a person decides that.
async fn deep_link(reach: Reach, Fields(fields): Fields) -> Result<Json<Value>, Refusal> {
    let uri =
        some_text(&fields, &["uri"])?.ok_or_else(|| bad_field("bad_link", "send {\"uri\": the link}"))?;
    let link = DeepLink::parse(uri).map_err(|why| bad_field("bad_link", &why.to_string()))?;
    if let Some(model) = &link.model {
        let unknown = |Refusal(_, code, message)| Refusal(StatusCode::UNPROCESSABLE_ENTITY, code, message);
        reach.choice(MODEL, model).map_err(unknown)?;
    }
    // What is not there is not told apart from what is not open.
    let hidden = |_| {
        let message = "the link's folder is not one that this server opens to its clients";
        Refusal::new(StatusCode::FORBIDDEN, "working_dir_not_allowed", message)
    };
    let working_dir = match link.cwd.as_deref() {
        Some(cwd) => Some(reach.place(Some(cwd)).await.map_err(hidden)?),
        None => None,
    };
    Ok(Json(json!({
        "working_dir": working_dir.map(|dir| dir.to_string_lossy().into_owned()),
        "prompt": link.prompt,
        "prompt_trust_level": "external_untrusted",
        "model": link.model,
    })))
}
