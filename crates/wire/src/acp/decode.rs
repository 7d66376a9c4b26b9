//! Requests and notifications of the official protocol, as calls.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Content, Link, MODE, MODEL, Opaque, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ClientAbilities, PROMPT_TEXT_BYTES_MAX, ext, servers};
use crate::call::{Call, ChangeAnswer, Fault, Hello, Place};
use crate::json::{self, JsonError};
use crate::rpc::RpcId;
use crate::siblings;

/// Where the durable-transport draft puts a client's position.
const CURSOR_KEY: &str = "acp/cursor";

pub(super) fn request(method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
    match method {
        "initialize" => initialize(params),
        "authenticate" => {
            let request: schema::AuthenticateRequest = read(params)?;
            Ok(Call::Authenticate { method: request.method_id.0.to_string() })
        }
        "logout" => Ok(Call::Logout),
        "session/new" => {
            let request: schema::NewSessionRequest = read(params)?;
            Ok(Call::New(place(request.cwd, request.additional_directories, request.mcp_servers)?))
        }
        "session/load" => {
            let request: schema::LoadSessionRequest = read(params)?;
            let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Call::Load { id: session_id(&request.session_id)?, place: Some(place) })
        }
        "session/resume" => {
            let request: schema::ResumeSessionRequest = read(params)?;
            let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Call::Resume { id: session_id(&request.session_id)?, place, cursor: cursor(request.meta)? })
        }
        "session/fork" => {
            let request: schema::ForkSessionRequest = read(params)?;
            let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Call::Fork { id: session_id(&request.session_id)?, place })
        }
        "session/list" => {
            let request: schema::ListSessionsRequest = read_or_default(params)?;
            Ok(Call::List { cwd: request.cwd, cursor: request.cursor })
        }
        "session/close" => {
            let request: schema::CloseSessionRequest = read(params)?;
            Ok(Call::Close { id: session_id(&request.session_id)? })
        }
        "session/delete" => {
            let request: schema::DeleteSessionRequest = read(params)?;
            Ok(Call::Delete { id: session_id(&request.session_id)? })
        }
        "session/prompt" => prompt(params),
        "session/message" => siblings::message(params),
        "session/set_mode" => {
            let request: schema::SetSessionModeRequest = read(params)?;
            let id = session_id(&request.session_id)?;
            Ok(Call::Change {
                id,
                setting: MODE.into(),
                value: request.mode_id.0,
                answer: ChangeAnswer::Nothing,
            })
        }
        "session/set_config_option" | "session/configure" => set_config_option(params),
        "session/set_model" => set_model(params),
        // Older clients send it as a request.
        "session/cancel" => cancel(params),
        "initialized" => {
            Err(Fault::InvalidRequest("initialized is a notification: send it without id".into()))
        }
        "$/cancel_request" => {
            Err(Fault::InvalidRequest("$/cancel_request is a notification: send it without id".into()))
        }
        _ => ext::request(method, params),
    }
}

pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
    match method {
        "session/cancel" => cancel(params),
        "$/cancel_request" => {
            #[derive(Deserialize)]
            struct Params<'a> {
                #[serde(rename = "requestId", borrow)]
                request_id: &'a RawValue,
            }
            let text = params.map_or("null", RawValue::get);
            let params: Params<'_> = json::read(text, "the parameters").map_err(bad_params)?;
            let unknown = || Fault::InvalidParams("requestId must be an integer, a string or null".into());
            RpcId::from_json(params.request_id.get())
                .map(|request| Call::CancelRequest { request })
                .ok_or_else(unknown)
        }
        "initialize"
        | "authenticate"
        | "logout"
        | "session/new"
        | "session/load"
        | "session/resume"
        | "session/fork"
        | "session/list"
        | "session/close"
        | "session/delete"
        | "session/prompt"
        | "session/message"
        | "session/set_mode"
        | "session/set_model"
        | "session/configure"
        | "session/set_config_option" => {
            Err(Fault::InvalidRequest(format!("{method} is a request: send it with an id")))
        }
        _ => Ok(extension(method, params, true)),
    }
}

/// What this server has no word for may be known to the agent.
pub(super) fn extension(method: &str, params: Option<&RawValue>, notice: bool) -> Call {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "sessionId")]
        session_id: String,
    }
    let text = params.map_or("{}", RawValue::get);
    let session = serde_json::from_str::<Named>(text).ok();
    let session = session.and_then(|named| SessionId::parse(&named.session_id).ok());
    Call::Extension { id: session, method: method.into(), params: Opaque(text.into()), notice }
}

/// What the client can do, from the parameters of an `initialize` that was accepted.
pub(crate) fn abilities(params: Option<&RawValue>) -> ClientAbilities {
    let Ok(request) = read::<schema::InitializeRequest>(params) else { return ClientAbilities::default() };
    let client = request.client_capabilities;
    let wants =
        |key: &str| client.meta.as_ref().and_then(|meta| meta.get(key)).is_some_and(|value| value == true);
    ClientAbilities {
        notices: client.session.as_ref().is_some_and(|session| session.notices.is_some()),
        compaction: client.session.as_ref().is_some_and(|session| session.compaction.is_some()),
        terminal_output: wants("terminal_output"),
        cursors: wants(CURSOR_KEY),
        forms: client.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some()),
        host: engine::HostAbilities {
            read: client.fs.read_text_file,
            write: client.fs.write_text_file,
            terminal: client.terminal,
            typing: client.terminal && wants("terminal_write_stdin"),
        },
        zeph: false,
    }
}

/// The place to go on from. One that is no text is refused: to leave it out would skip what the client missed.
fn cursor(meta: Option<schema::Meta>) -> Result<Option<String>, Fault> {
    match meta.and_then(|mut meta| meta.remove(CURSOR_KEY)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor)),
        Some(_) => Err(Fault::InvalidParams(format!(
            "_meta[\"{CURSOR_KEY}\"] must be a string: the cursor of an earlier update"
        ))),
    }
}

fn initialize(params: Option<&RawValue>) -> Result<Call, Fault> {
    let request: schema::InitializeRequest = read(params)?;
    let plain = |name: String| name.chars().filter(|c| !engine::is_hidden(*c)).collect::<String>();
    let name = request.client_info.map_or_else(|| Arc::from("client"), |info| Arc::from(plain(info.name)));
    let version = serde_json::to_value(request.protocol_version).ok().and_then(|version| version.as_u64());
    Ok(Call::Initialize(Hello { name, version }))
}

/// The value is a name or a switch; `session/configure` is zeph's name for the same, and has the other spelling.
fn set_config_option(params: Option<&RawValue>) -> Result<Call, Fault> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: schema::SessionId,
        #[serde(rename = "configId", alias = "config_id")]
        config_id: Arc<str>,
        value: Value,
    }
    let params: Params = read(params)?;
    let id = session_id(&params.session_id)?;
    let value: Arc<str> = match params.value {
        Value::String(text) => text.into(),
        Value::Bool(on) => on.to_string().into(),
        other @ (Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            let came = json::kind(&other);
            return Err(Fault::InvalidParams(format!("`value` must be a string, true or false, not {came}")));
        }
    };
    Ok(Call::Change { id, setting: params.config_id, value, answer: ChangeAnswer::AllSettings })
}

/// From before models were a config option.
fn set_model(params: Option<&RawValue>) -> Result<Call, Fault> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: schema::SessionId,
        #[serde(rename = "modelId", alias = "model_id")]
        model_id: Arc<str>,
    }
    let params: Params = read(params)?;
    let id = session_id(&params.session_id)?;
    Ok(Call::Change { id, setting: MODEL.into(), value: params.model_id, answer: ChangeAnswer::Nothing })
}

fn cancel(params: Option<&RawValue>) -> Result<Call, Fault> {
    let request: schema::CancelNotification = read(params)?;
    Ok(Call::Cancel { id: session_id(&request.session_id)? })
}

pub(crate) fn prompt(params: Option<&RawValue>) -> Result<Call, Fault> {
    let request: schema::PromptRequest = read(params)?;
    let content: Vec<_> = request.prompt.into_iter().filter_map(block).collect();
    check_text(&content)?;
    if content.is_empty() {
        return Err(Fault::InvalidParams("the prompt is empty: send at least one content block".into()));
    }
    Ok(Call::Prompt { id: session_id(&request.session_id)?, content })
}

/// The blocks of a prompt, which is the field of this name, for the dialects that took their form over.
pub(crate) fn blocks(value: Value, field: &str) -> Result<Vec<Content>, Fault> {
    let blocks: Vec<schema::ContentBlock> =
        json::read_value(value, field, "the parameters").map_err(bad_params)?;
    let content: Vec<_> = blocks.into_iter().filter_map(block).collect();
    check_text(&content)?;
    Ok(content)
}

pub(crate) fn check_text(content: &[Content]) -> Result<(), Fault> {
    let text_bytes: usize = content.iter().map(text_bytes).sum();
    if text_bytes > PROMPT_TEXT_BYTES_MAX {
        return Err(Fault::InvalidRequest(format!(
            "prompt too large: {text_bytes} bytes of text, the limit is {PROMPT_TEXT_BYTES_MAX}; put it in a file and name the file"
        )));
    }
    Ok(())
}

fn text_bytes(content: &Content) -> usize {
    match content {
        Content::Text(text) | Content::Resource { text, .. } => text.len(),
        Content::Image { .. } | Content::Audio { .. } | Content::Link(_) | Content::Binary { .. } => 0,
    }
}

pub(crate) fn block(block: schema::ContentBlock) -> Option<Content> {
    Some(match block {
        schema::ContentBlock::Text(text) => Content::Text(text.text.into()),
        schema::ContentBlock::Image(image) => Content::Image {
            mime: image.mime_type.into(),
            data: image.data.into(),
            uri: image.uri.map(Into::into),
        },
        schema::ContentBlock::Audio(audio) => {
            Content::Audio { mime: audio.mime_type.into(), data: audio.data.into() }
        }
        schema::ContentBlock::ResourceLink(link) => Content::Link(Link {
            uri: link.uri.into(),
            name: link.name.into(),
            mime: link.mime_type.map(Into::into),
            title: link.title.map(Into::into),
            description: link.description.map(Into::into),
            size_bytes: link.size.and_then(|size| u64::try_from(size).ok()),
        }),
        schema::ContentBlock::Resource(embedded) => match embedded.resource {
            schema::EmbeddedResourceResource::TextResourceContents(text) => Content::Resource {
                uri: text.uri.into(),
                mime: text.mime_type.map(Into::into),
                text: text.text.into(),
            },
            schema::EmbeddedResourceResource::BlobResourceContents(blob) => Content::Binary {
                uri: blob.uri.into(),
                mime: blob.mime_type.map(Into::into),
                data: blob.blob.into(),
            },
            _ => return None,
        },
        _ => return None,
    })
}

fn place(cwd: PathBuf, roots: Vec<PathBuf>, servers: Vec<schema::McpServer>) -> Result<Place, Fault> {
    for path in std::iter::once(&cwd).chain(&roots) {
        if !path.is_absolute() {
            return Err(Fault::InvalidParams(format!("{} is not an absolute path", path.display())));
        }
    }
    Ok(Place { cwd: Some(cwd), roots, servers: servers::read(servers)? })
}

pub(super) fn session_id(id: &schema::SessionId) -> Result<SessionId, Fault> {
    SessionId::parse(&id.0).map_err(|error| Fault::InvalidRequest(error.to_string()))
}

pub(super) fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, Fault> {
    let params = params.ok_or_else(|| Fault::InvalidParams("params are missing".into()))?;
    json::read(params.get(), "the parameters").map_err(bad_params)
}

fn read_or_default<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<T, Fault> {
    if params.is_some() { read(params) } else { Ok(T::default()) }
}

pub(super) fn bad_params(error: JsonError) -> Fault {
    Fault::InvalidParams(format!("invalid params: {error}"))
}
