//! Decodes requests and notifications of the official protocol.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Content, MODE, MODEL, Opaque, ResourceLink, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ClientAbilities, PROMPT_TEXT_BYTES_MAX, tool_servers, zeph_methods};
use crate::client_request::{
    ClientInfo, ClientRequest as Request, RequestError, SettingReply, WorkspaceParams,
};
use crate::ferret_otter_common as common;
use crate::json_errors::{self, JsonError};
use crate::rpc::RpcId;

/// The `_meta` key under which the draft for durable transports puts a client's position.
const CURSOR_KEY: &str = "acp/cursor";

pub(super) fn request(method: &str, params: Option<&RawValue>) -> Result<Request, RequestError> {
    match method {
        "initialize" => initialize(params),
        "authenticate" => {
            let request: schema::AuthenticateRequest = read(params)?;
            Ok(Request::Authenticate { method: request.method_id.0.to_string() })
        }
        "logout" => Ok(Request::Logout),
        "session/new" => {
            let request: schema::NewSessionRequest = read(params)?;
            Ok(Request::New(workspace_params(
                request.cwd,
                request.additional_directories,
                request.mcp_servers,
            )?))
        }
        "session/load" => {
            let request: schema::LoadSessionRequest = read(params)?;
            let workspace =
                workspace_params(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Request::Load { id: session_id(&request.session_id)?, workspace: Some(workspace) })
        }
        "session/resume" => {
            let request: schema::ResumeSessionRequest = read(params)?;
            let workspace =
                workspace_params(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Request::Resume {
                id: session_id(&request.session_id)?,
                workspace,
                cursor: cursor(request.meta)?,
            })
        }
        "session/fork" => {
            let request: schema::ForkSessionRequest = read(params)?;
            let workspace =
                workspace_params(request.cwd, request.additional_directories, request.mcp_servers)?;
            Ok(Request::Fork { id: session_id(&request.session_id)?, workspace })
        }
        "session/list" => {
            let request: schema::ListSessionsRequest = read_or_default(params)?;
            Ok(Request::List { cwd: request.cwd, cursor: request.cursor })
        }
        "session/close" => {
            let request: schema::CloseSessionRequest = read(params)?;
            Ok(Request::Close { id: session_id(&request.session_id)? })
        }
        "session/delete" => {
            let request: schema::DeleteSessionRequest = read(params)?;
            Ok(Request::Delete { id: session_id(&request.session_id)? })
        }
        "session/prompt" => prompt(params),
        "session/message" => common::message(params),
        "session/set_mode" => set_mode(params),
        "session/set_config_option" | "session/configure" => set_config_option(params),
        "session/set_model" => set_model(params),
        // Older clients send it as a request.
        "session/cancel" => cancel(params),
        "initialized" => {
            Err(RequestError::InvalidRequest("initialized is a notification: send it without id".into()))
        }
        "$/cancel_request" => {
            Err(RequestError::InvalidRequest("$/cancel_request is a notification: send it without id".into()))
        }
        _ => zeph_methods::request(method, params),
    }
}

fn set_mode(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let request: schema::SetSessionModeRequest = read(params)?;
    let id = session_id(&request.session_id)?;
    Ok(Request::Change { id, setting: MODE.into(), value: request.mode_id.0, answer: SettingReply::Nothing })
}

pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Result<Request, RequestError> {
    match method {
        "session/cancel" => cancel(params),
        "$/cancel_request" => {
            #[derive(Deserialize)]
            struct Params<'a> {
                #[serde(rename = "requestId", borrow)]
                request_id: &'a RawValue,
            }
            let text = params.map_or("null", RawValue::get);
            let params: Params<'_> = json_errors::read(text, "the parameters").map_err(bad_params)?;
            let unknown =
                || RequestError::InvalidParams("requestId must be an integer, a string or null".into());
            RpcId::from_json(params.request_id.get())
                .map(|request| Request::CancelRequest { request })
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
            Err(RequestError::InvalidRequest(format!("{method} is a request: send it with an id")))
        }
        _ => Ok(extension(method, params, true)),
    }
}

/// A method that this server does not know may be known to the agent.
pub(super) fn extension(method: &str, params: Option<&RawValue>, notice: bool) -> Request {
    #[derive(Deserialize)]
    struct SessionField {
        #[serde(rename = "sessionId")]
        session_id: String,
    }
    let text = params.map_or("{}", RawValue::get);
    let session = serde_json::from_str::<SessionField>(text).ok();
    let session = session.and_then(|field| SessionId::parse(&field.session_id).ok());
    Request::Extension { id: session, method: method.into(), params: Opaque(text.into()), notice }
}

/// The client's capabilities, from the parameters of an accepted `initialize`.
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

/// The cursor to resume from. A cursor that is not text is refused: ignoring it would skip what the client
/// missed.
fn cursor(meta: Option<schema::Meta>) -> Result<Option<String>, RequestError> {
    match meta.and_then(|mut meta| meta.remove(CURSOR_KEY)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor)),
        Some(_) => Err(RequestError::InvalidParams(format!(
            "_meta[\"{CURSOR_KEY}\"] must be a string: the cursor of an earlier update"
        ))),
    }
}

fn initialize(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let request: schema::InitializeRequest = read(params)?;
    let plain = |name: String| name.chars().filter(|c| !engine::is_hidden(*c)).collect::<String>();
    let name = request.client_info.map_or_else(|| Arc::from("client"), |info| Arc::from(plain(info.name)));
    let version = serde_json::to_value(request.protocol_version).ok().and_then(|version| version.as_u64());
    Ok(Request::Initialize(ClientInfo { name, version }))
}

/// The value is a name or a boolean. `session/configure` is zeph's name of the same method, with the other
/// spelling of the parameters.
fn set_config_option(params: Option<&RawValue>) -> Result<Request, RequestError> {
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
            let came = json_errors::kind(&other);
            return Err(RequestError::InvalidParams(format!(
                "`value` must be a string, true or false, not {came}"
            )));
        }
    };
    Ok(Request::Change { id, setting: params.config_id, value, answer: SettingReply::AllSettings })
}

/// `session/set_model`, from before models were a config option.
fn set_model(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: schema::SessionId,
        #[serde(rename = "modelId", alias = "model_id")]
        model_id: Arc<str>,
    }
    let params: Params = read(params)?;
    let id = session_id(&params.session_id)?;
    Ok(Request::Change { id, setting: MODEL.into(), value: params.model_id, answer: SettingReply::Nothing })
}

fn cancel(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let request: schema::CancelNotification = read(params)?;
    Ok(Request::Cancel { id: session_id(&request.session_id)? })
}

pub(crate) fn prompt(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let request: schema::PromptRequest = read(params)?;
    let content: Vec<_> = request.prompt.into_iter().filter_map(block).collect();
    check_text(&content)?;
    if content.is_empty() {
        return Err(RequestError::InvalidParams(
            "the prompt is empty: send at least one content block".into(),
        ));
    }
    Ok(Request::Prompt { id: session_id(&request.session_id)?, content })
}

/// The content blocks of a prompt, for the dialects that reuse the official form; `field` is the name used
/// in errors.
pub(crate) fn blocks(value: Value, field: &str) -> Result<Vec<Content>, RequestError> {
    let blocks: Vec<schema::ContentBlock> =
        json_errors::read_value(value, field, "the parameters").map_err(bad_params)?;
    let content: Vec<_> = blocks.into_iter().filter_map(block).collect();
    check_text(&content)?;
    Ok(content)
}

pub(crate) fn check_text(content: &[Content]) -> Result<(), RequestError> {
    let text_bytes: usize = content.iter().map(text_bytes).sum();
    if text_bytes > PROMPT_TEXT_BYTES_MAX {
        return Err(RequestError::InvalidRequest(format!(
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
        schema::ContentBlock::ResourceLink(link) => Content::Link(ResourceLink {
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

fn workspace_params(
    cwd: PathBuf,
    roots: Vec<PathBuf>,
    servers: Vec<schema::McpServer>,
) -> Result<WorkspaceParams, RequestError> {
    for path in std::iter::once(&cwd).chain(&roots) {
        if !path.is_absolute() {
            return Err(RequestError::InvalidParams(format!("{} is not an absolute path", path.display())));
        }
    }
    Ok(WorkspaceParams { cwd: Some(cwd), roots, servers: tool_servers::read(servers)? })
}

pub(super) fn session_id(id: &schema::SessionId) -> Result<SessionId, RequestError> {
    SessionId::parse(&id.0).map_err(|error| RequestError::InvalidRequest(error.to_string()))
}

pub(super) fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RequestError> {
    let params = params.ok_or_else(|| RequestError::InvalidParams("params are missing".into()))?;
    json_errors::read(params.get(), "the parameters").map_err(bad_params)
}

fn read_or_default<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<T, RequestError> {
    if params.is_some() { read(params) } else { Ok(T::default()) }
}

pub(super) fn bad_params(error: JsonError) -> RequestError {
    RequestError::InvalidParams(format!("invalid params: {error}"))
}
