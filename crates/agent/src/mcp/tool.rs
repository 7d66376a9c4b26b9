//! A server's tools as tools of ours: named, described and called under our rules.
//!
//! Names, descriptions and schemas were written by the server, and are given to the model. They are bounded
//! and have no control characters; whether to trust what they say is up to the model.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use engine::{Body, BoxFuture, OutputStream, Risk, ToolClass, ToolKind};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ProgressNotificationParam,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleClient};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::server::Server;
use super::{one_line_excerpt, tool_names, tool_result};
use crate::tools::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork};

/// More are left out: models get worse with every offered tool.
const TOOLS_MAX: usize = 128;
const DESCRIPTION_CHARS_MAX: usize = 2048;
const SCHEMA_BYTES_MAX: usize = 32 << 10;
const NOTE_CHARS_MAX: usize = 300;
/// Progress notifications that are shown for one call.
const NOTES_MAX: usize = 200;

/// The usable tools of a server's list, and the number of unusable ones.
pub(super) fn tools(
    server: &Arc<Server>,
    listed: Vec<rmcp::model::Tool>,
) -> (Vec<Arc<ToolDefinition>>, usize) {
    let all = listed.len();
    let mut taken = HashSet::new();
    let mut tools = Vec::new();
    for tool in listed.into_iter().take(TOOLS_MAX) {
        let schema = serde_json::Value::Object(tool.input_schema.as_ref().clone());
        if tool.name.is_empty() || tool.name.len() > 256 || !is_usable(&schema) {
            continue;
        }
        let name = tool_names::tool(&server.tool_prefix, &tool.name, &taken);
        taken.insert(tool_names::key(&name));
        let description = described(server, &tool);
        // Claimed by the server, so it never makes a call harmless: permission is asked all the same.
        let only_reads = tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true));
        let class = if only_reads { ToolClass::Network } else { ToolClass::Execute };
        let title = tool.title.or(tool.annotations.and_then(|hints| hints.title));
        let title = one_line_excerpt(title.as_deref().unwrap_or(&tool.name), 80);
        let tool_ref = ServerTool {
            server: Arc::downgrade(server),
            shown: server.name.as_ref().into(),
            title,
            tool: tool.name.into(),
        };
        let parse_call = move |text: &str| tool_ref.parse_call(text);
        tools.push(Arc::new(ToolDefinition::new(
            &name,
            &description,
            ToolKind::Other,
            class,
            schema,
            parse_call,
        )));
    }
    let left_out = all - tools.len();
    (tools, left_out)
}

fn is_usable(schema: &serde_json::Value) -> bool {
    schema.get("type").and_then(serde_json::Value::as_str) == Some("object")
        && schema.to_string().len() <= SCHEMA_BYTES_MAX
}

fn described(server: &Server, tool: &rmcp::model::Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or("No description.");
    let text: String =
        text.chars().filter(|c| !c.is_control() || *c == '\n').take(DESCRIPTION_CHARS_MAX).collect();
    format!("(MCP server {}) {}", one_line_excerpt(&server.name, 64), text.trim())
}

/// A tool of a server that may be removed by the time it is called.
#[derive(Clone)]
struct ServerTool {
    server: Weak<Server>,
    shown: String,
    title: String,
    tool: String,
}

impl ServerTool {
    fn parse_call(&self, text: &str) -> Result<Intent, String> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let arguments: JsonObject = serde_json::from_str(text)
            .map_err(|error| format!("the arguments must be a JSON object: {error}"))?;
        Ok(Intent {
            title: format!("{}: {}", self.shown, self.title),
            path: None,
            line: None,
            subject: None,
            risk: Risk::Medium,
            reason: "uses a tool of an MCP server, which runs outside the sandbox",
            work: Box::new(ServerToolCall { tool_ref: self.clone(), arguments }),
        })
    }
}

struct ServerToolCall {
    tool_ref: ServerTool,
    arguments: JsonObject,
}

impl ToolWork for ServerToolCall {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let Some(server) = self.tool_ref.server.upgrade() else {
                return ToolOutcome::failed("the server of this tool was removed".into());
            };
            match self.perform(&server, &job).await {
                Ok(outcome) => outcome,
                Err(reason) => ToolOutcome::failed(reason),
            }
        })
    }
}

impl ServerToolCall {
    async fn perform(self, server: &Arc<Server>, job: &ToolJob) -> Result<ToolOutcome, String> {
        let peer = tokio::select! {
            biased;
            () = job.context.cancel.cancelled() => return Err("the turn was cancelled".into()),
            peer = server.peer_or_start() => peer?,
        };
        // Before the call, so that no notification is missed.
        let notes = server.notifications.progress.subscribe();
        let handle =
            send(&peer, self.tool_ref.tool, self.arguments).await.map_err(|error| error_text(&error))?;
        let answer = await_result(handle, notes, server, job).await?;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(tool_result::outcome(result)),
            Ok(_) => Err("the server's answer is not a valid tool result".into()),
            Err(ServiceError::McpError(error)) => Err(one_line_excerpt(&error.message, 2000)),
            Err(error) => Err(match server.last_failure().await {
                Some(reason) => {
                    format!("the server ended during the call: {reason}; the next call starts it again")
                }
                None => error_text(&error),
            }),
        }
    }
}

async fn send(
    peer: &Peer<RoleClient>,
    tool: String,
    arguments: JsonObject,
) -> Result<RequestHandle<RoleClient>, ServiceError> {
    let mut params = CallToolRequestParams::new(tool);
    params.arguments = Some(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await
}

enum Wake {
    Cancelled,
    TimedOut,
    Answered(Box<Result<ServerResult, ServiceError>>),
    Note(ProgressNotificationParam),
}

/// Waits for the answer, and shows the progress notifications before it.
async fn await_result(
    mut handle: RequestHandle<RoleClient>,
    mut notes: broadcast::Receiver<ProgressNotificationParam>,
    server: &Server,
    job: &ToolJob,
) -> Result<Result<ServerResult, ServiceError>, String> {
    let deadline = Instant::now() + server.call_timeout;
    let token = handle.progress_token.clone();
    let mut shown = 0;
    loop {
        let wake = tokio::select! {
            biased;
            () = job.context.cancel.cancelled() => Wake::Cancelled,
            () = tokio::time::sleep_until(deadline) => Wake::TimedOut,
            // Before the notifications: a server must not delay its answer by sending ever more of them.
            answer = &mut handle.rx => {
                Wake::Answered(Box::new(answer.unwrap_or(Err(ServiceError::TransportClosed))))
            }
            note = note(&mut notes, &token) => Wake::Note(note),
        };
        match wake {
            Wake::Answered(answer) => {
                while let Ok(note) = notes.try_recv() {
                    shown += 1;
                    if note.progress_token == token && shown <= NOTES_MAX {
                        show(&note, job).await?;
                    }
                }
                return Ok(*answer);
            }
            Wake::Note(note) => {
                shown += 1;
                if shown <= NOTES_MAX {
                    show(&note, job).await?;
                }
            }
            Wake::Cancelled => {
                give_up(handle, "the turn was cancelled").await;
                return Err("the turn was cancelled".into());
            }
            Wake::TimedOut => {
                give_up(handle, "it took too long").await;
                return Err(format!("the server did not answer within {} s", server.call_timeout.as_secs()));
            }
        }
    }
}

/// Cancels the call at the server, without waiting for it.
async fn give_up(handle: RequestHandle<RoleClient>, reason: &str) {
    let told = handle.cancel(Some(reason.to_owned()));
    drop(tokio::time::timeout(std::time::Duration::from_secs(1), told).await);
}

async fn note(
    notes: &mut broadcast::Receiver<ProgressNotificationParam>,
    token: &rmcp::model::ProgressToken,
) -> ProgressNotificationParam {
    loop {
        match notes.recv().await {
            Ok(note) if note.progress_token == *token => return note,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn show(note: &ProgressNotificationParam, job: &ToolJob) -> Result<(), String> {
    let of = note.total.map(|total| format!(" of {total}")).unwrap_or_default();
    let said = note.message.as_deref().map(|text| format!(" {}", one_line_excerpt(text, NOTE_CHARS_MAX)));
    let text = format!("[{}{of}]{}\n", note.progress, said.unwrap_or_default());
    let body = Body::ToolOutput { call: job.call.clone(), stream: OutputStream::Stdout, text: text.into() };
    job.context.emit(body).await.map_err(|gone| gone.to_string())
}

fn error_text(error: &ServiceError) -> String {
    super::connection::error_chain(error)
}
