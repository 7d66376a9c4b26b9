//! `ropewalk mcp serve`: read-only tools for a folder, for other programs, over the Model Context Protocol on standard input
//! and output.
//!
//! The caller takes the place of the model in a session of our own: each call is a turn whose model is [`CallerModel`], which
//! calls exactly that tool. So the same guard checks paths, rules, sandbox and secrets as everywhere, and there is no second
//! code path to a file. The session is in memory only.
//!
//! Requests are answered one at a time.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{
    Image, Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream, Price,
    ToolSpec,
};
use engine::{
    Body, BoxFuture, Content, Input, MODE, NewSessionRequest, Principal, Registry, Sender, Seq,
    SessionHandle, SessionLimits, SurfaceId,
};
use serde_json::{Value, json};

use crate::cli::McpServeOptions;
use crate::cli_error::CliError;
use crate::guard_settings::Guards;
use crate::models::Models;
use crate::registry;
use crate::run;

/// The read-only tools.
const TOOLS: [&str; 4] = ["read", "list", "glob", "search"];
/// Protocol revisions that are supported; the newest last.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The longest request.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// After this many calls, the session is cleared.
const CALLS_KEPT_MAX: u32 = 50;

const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const UNREADABLE: i64 = -32700;

pub fn run(options: &McpServeOptions) -> Result<ExitCode, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed("could not start the MCP server").because(error))?;
    let mut server = runtime.block_on(Server::open(options))?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            break;
        }
        if line.len() as u64 == LINE_BYTES_MAX {
            return Err(CliError::failed("a request is too long")
                .because(format!("the limit is {} MiB", LINE_BYTES_MAX >> 20)));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let Some(answer) = runtime.block_on(server.answer(&line)) else { continue };
        // The client no longer reads.
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    runtime.block_on(server.registry.shutdown());
    Ok(ExitCode::SUCCESS)
}

struct Server {
    registry: Arc<Registry>,
    session: SessionHandle,
    caller: CallerModel,
    me: Sender,
    tools: Arc<[ToolSpec]>,
    calls: u32,
}

/// A JSON-RPC error: code and message.
struct RpcError(i64, String);

impl Server {
    async fn open(options: &McpServeOptions) -> Result<Self, CliError> {
        let cwd = run::folder(options.cwd.as_deref())?;
        let caller = CallerModel::default();
        let mut guards = Guards::of(&options.guard)?;
        let allowed = |name: &&str| {
            guards.allowed_tools.as_ref().is_none_or(|names| names.iter().any(|known| **known == **name))
        };
        guards.allowed_tools = Some(TOOLS.into_iter().filter(allowed).map(Arc::from).collect());
        guards.approval = Some("read-only".into());
        guards.ephemeral = true;
        // Other MCP servers are not passed through.
        guards.config.mcp.servers.clear();
        guards.models = Models { sources: vec![Arc::new(caller.clone())], ..Models::offline() };
        let limits = SessionLimits { attended: false, ..SessionLimits::default() };
        let registry = registry::registry(limits, false, &guards)?;
        let wish = NewSessionRequest::new(Principal::local(), cwd, "mcp");
        let session = registry.create(wish).await.map_err(CliError::from_open)?;
        let me = Sender::owner(SurfaceId::random(), "mcp");
        let mut server = Self { registry, session, caller, me, tools: Arc::default(), calls: 0 };
        let change = Input::Change { by: server.me.clone(), id: MODE.into(), value: "ask".into() };
        let changed = server.session.send(change).await;
        changed.map_err(|error| CliError::failed("could not set up the session").because(error))?;
        // A turn without a call lists the tools.
        let looked = server.turn("which tools are there").await;
        looked.map_err(|RpcError(_, why)| CliError::failed("could not list the tools").because(why))?;
        let tools = Arc::clone(&server.caller.lock().tools);
        server.tools = tools;
        Ok(server)
    }

    /// `None` if the message needs no response.
    async fn answer(&mut self, line: &[u8]) -> Option<Value> {
        let failed = |id: Value, RpcError(code, message): RpcError| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
        let Ok(request) = serde_json::from_slice::<Value>(line) else {
            return Some(failed(Value::Null, RpcError(UNREADABLE, "invalid JSON".into())));
        };
        let id = request.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let Some(method) = request.get("method").and_then(Value::as_str) else {
            // A response, although we sent no request, or not a message at all.
            let answer = request.get("result").or_else(|| request.get("error"));
            let fault = RpcError(INVALID_REQUEST, "invalid request".into());
            return answer.is_none().then(|| failed(id.unwrap_or(Value::Null), fault));
        };
        let id = id?;
        let done = match method {
            "initialize" => Ok(initialize_result(&request["params"], &self.session)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": self.tools.iter().map(tool_json).collect::<Vec<_>>() })),
            "tools/call" => self.call(&request["params"]).await,
            _ => Err(RpcError(UNKNOWN_METHOD, format!("unknown method {method:?}"))),
        };
        Some(match done {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(fault) => failed(id, fault),
        })
    }

    async fn call(&mut self, params: &Value) -> Result<Value, RpcError> {
        let name = params["name"].as_str().unwrap_or_default();
        if !self.tools.iter().any(|tool| *tool.name == *name) {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_ref()).collect();
            let text = format!("unknown tool {name:?}; available tools: {}", names.join(", "));
            return Err(RpcError(INVALID_PARAMS, text));
        }
        let arguments = params.get("arguments").filter(|arguments| !arguments.is_null());
        let arguments = arguments.map_or_else(|| "{}".to_owned(), Value::to_string);
        if self.calls == CALLS_KEPT_MAX {
            self.turn("/clear").await?;
            self.calls = 0;
        }
        self.calls += 1;
        self.caller.lock().wanted = Some((name.to_owned(), arguments));
        let ended = self.turn("a tool is called").await;
        let mut caller = self.caller.lock();
        caller.wanted = None;
        let result = caller.result.take();
        ended?;
        let CallResult { text, images, failed } =
            result.ok_or_else(|| RpcError(INTERNAL, "the tool returned no result".into()))?;
        let image = |image: &Image| json!({ "type": "image", "mimeType": image.mime.as_ref(), "data": image.data.as_ref() });
        let content: Vec<Value> = std::iter::once(json!({ "type": "text", "text": text.as_ref() }))
            .chain(images.iter().map(image))
            .collect();
        Ok(json!({ "content": content, "isError": failed }))
    }

    /// Runs a turn to its end.
    async fn turn(&self, text: &str) -> Result<(), RpcError> {
        let broken = |why: String| RpcError(INTERNAL, why);
        let mut reader = self.session.read(Seq::START);
        reader.skip_to(reader.head());
        let prompt = Input::Prompt { by: self.me.clone(), content: vec![Content::text(text)] };
        let accepted = self.session.send(prompt).await.map_err(|error| broken(error.to_string()))?;
        loop {
            let events = reader.next().await.map_err(|error| broken(error.to_string()))?;
            let Some(events) = events else { return Err(broken("the session ended".into())) };
            for event in events {
                if event.turn == accepted.turn
                    && let Body::TurnEnded { error, .. } = &event.body
                {
                    return error.as_ref().map_or(Ok(()), |error| Err(broken(error.to_string())));
                }
            }
        }
    }
}

fn initialize_result(params: &Value, session: &SessionHandle) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or_default();
    let revision =
        REVISIONS.iter().find(|known| **known == wanted).or(REVISIONS.last()).copied().unwrap_or_default();
    let folder = session.snapshot().cwd.display().to_string();
    json!({
        "protocolVersion": revision,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "ropewalk", "version": env!("CARGO_PKG_VERSION") },
        "instructions": format!("Read-only tools for {folder}. Paths are relative to it."),
    })
}

fn tool_json(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name.as_ref(),
        "description": tool.description.as_ref(),
        "inputSchema": tool.schema.as_ref(),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

/// Takes the place of the model: it calls the requested tool and keeps its result.
#[derive(Clone, Default)]
struct CallerModel {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// A tool and its arguments.
    wanted: Option<(String, String)>,
    result: Option<CallResult>,
    /// The tools of the session.
    tools: Arc<[ToolSpec]>,
}

struct CallResult {
    text: Arc<str>,
    images: Vec<Image>,
    failed: bool,
}

impl CallerModel {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for CallerModel {
    fn offers(&self) -> Vec<ModelInfo> {
        vec![ModelInfo {
            // No title is requested from an offline model.
            id: "offline:caller".into(),
            name: "Caller".into(),
            description: "the MCP client".into(),
            // Practically unlimited, so that nothing is summarized.
            context_tokens: u64::from(u32::MAX),
            output_tokens_max: None,
            images: true,
            price: Some(Price::FREE),
        }]
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        let mut shared = self.lock();
        shared.tools = request.tools;
        let mut said = vec![ModelEvent::Done { stop: ModelStop::Finished }];
        match request.messages.into_iter().next_back() {
            Some(Message::ToolResult { text, images, failed, .. }) => {
                shared.result = Some(CallResult { text, images, failed });
            }
            Some(Message::User { .. } | Message::Assistant { .. } | Message::Summary(_)) | None => {
                if let Some((name, arguments)) = shared.wanted.take() {
                    said.push(ModelEvent::ToolCall { id: "1".into(), name, arguments });
                }
            }
        }
        Box::new(ScriptedStream(said))
    }
}

/// The events in reverse order.
struct ScriptedStream(Vec<ModelEvent>);

impl ModelStream for ScriptedStream {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        let next = self.0.pop().unwrap_or(ModelEvent::Done { stop: ModelStop::Finished });
        Box::pin(std::future::ready(Ok(next)))
    }
}
