//! `ropewalk mcp serve`: the tools that look at a folder, for other programs, over the Model Context Protocol on
//! standard input and output.
//!
//! Whoever calls a tool here takes the place of the model in a session of our own: each call is a turn whose
//! model is [`Caller`], which asks for exactly that tool. So paths, rules, sandbox and secrets are the guard's
//! business as everywhere, and there is no second way to a file. The session is in memory only.
//!
//! One request is answered before the next is read.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{
    Image, Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream, Price,
    ToolSpec,
};
use engine::{
    Body, BoxFuture, Content, Input, Limits, MODE, Principal, Registry, Sender, Seq, SessionHandle,
    SurfaceId, Wish,
};
use serde_json::{Value, json};

use crate::cli::McpServeOptions;
use crate::guards::Guards;
use crate::models::Models;
use crate::run;
use crate::server;
use crate::trouble::Trouble;

/// What only looks.
const TOOLS: [&str; 4] = ["read", "list", "glob", "search"];
/// Revisions of the protocol in which these few methods are the same; the newest last.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// A longer line is no request.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// After so many calls the session forgets them.
const CALLS_KEPT_MAX: u32 = 50;

const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const UNREADABLE: i64 = -32700;

pub fn run(options: &McpServeOptions) -> Result<ExitCode, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::failed("the server cannot start").because(error))?;
    let mut server = runtime.block_on(Server::open(options))?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            break;
        }
        if line.len() as u64 == LINE_BYTES_MAX {
            return Err(Trouble::failed("a line is longer than a request can be")
                .because(format!("it has more than {} MiB", LINE_BYTES_MAX >> 20)));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let Some(answer) = runtime.block_on(server.answer(&line)) else { continue };
        // Nobody who does not read wants to be told.
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
    caller: Caller,
    me: Sender,
    tools: Arc<[ToolSpec]>,
    calls: u32,
}

/// Why a request has no result.
struct Fault(i64, String);

impl Server {
    async fn open(options: &McpServeOptions) -> Result<Self, Trouble> {
        let cwd = run::folder(options.cwd.as_deref())?;
        let caller = Caller::default();
        let mut guards = Guards::of(&options.guard)?;
        let allowed = |name: &&str| {
            guards.allowed_tools.as_ref().is_none_or(|names| names.iter().any(|known| **known == **name))
        };
        guards.allowed_tools = Some(TOOLS.into_iter().filter(allowed).map(Arc::from).collect());
        guards.approval = Some("read-only".into());
        guards.ephemeral = true;
        // Servers of others are theirs to connect to.
        guards.config.mcp.servers.clear();
        guards.models = Models { sources: vec![Arc::new(caller.clone())], ..Models::offline() };
        let limits = Limits { attended: false, ..Limits::default() };
        let registry = server::registry(limits, false, &guards)?;
        let wish = Wish::new(Principal::local(), cwd, "mcp");
        let session = registry.create(wish).await.map_err(Trouble::open)?;
        let me = Sender::owner(SurfaceId::random(), "mcp");
        let mut server = Self { registry, session, caller, me, tools: Arc::default(), calls: 0 };
        let change = Input::Change { by: server.me.clone(), id: MODE.into(), value: "ask".into() };
        let changed = server.session.send(change).await;
        changed.map_err(|error| Trouble::failed("the session cannot be used").because(error))?;
        // A turn without a call shows what there is.
        let looked = server.turn("which tools are there").await;
        looked.map_err(|Fault(_, why)| Trouble::failed("the tools cannot be used").because(why))?;
        let tools = Arc::clone(&server.caller.lock().tools);
        server.tools = tools;
        Ok(server)
    }

    /// Nothing, if nobody waits for an answer.
    async fn answer(&mut self, line: &[u8]) -> Option<Value> {
        let failed = |id: Value, Fault(code, message): Fault| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
        let Ok(request) = serde_json::from_slice::<Value>(line) else {
            return Some(failed(Value::Null, Fault(UNREADABLE, "this is not JSON".into())));
        };
        let id = request.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let Some(method) = request.get("method").and_then(Value::as_str) else {
            // An answer, to which we have asked nothing, or no message at all.
            let answer = request.get("result").or_else(|| request.get("error"));
            let fault = Fault(INVALID_REQUEST, "this is not a request".into());
            return answer.is_none().then(|| failed(id.unwrap_or(Value::Null), fault));
        };
        let id = id?;
        let done = match method {
            "initialize" => Ok(initialized(&request["params"], &self.session)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": self.tools.iter().map(listed).collect::<Vec<_>>() })),
            "tools/call" => self.call(&request["params"]).await,
            _ => Err(Fault(UNKNOWN_METHOD, format!("there is no method {method:?}"))),
        };
        Some(match done {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(fault) => failed(id, fault),
        })
    }

    async fn call(&mut self, params: &Value) -> Result<Value, Fault> {
        let name = params["name"].as_str().unwrap_or_default();
        if !self.tools.iter().any(|tool| *tool.name == *name) {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_ref()).collect();
            let text = format!("there is no tool {name:?}; the tools are {}", names.join(", "));
            return Err(Fault(INVALID_PARAMS, text));
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
        let Outcome { text, images, failed } =
            result.ok_or_else(|| Fault(INTERNAL, "the tool gave no result".into()))?;
        let image = |image: &Image| json!({ "type": "image", "mimeType": image.mime.as_ref(), "data": image.data.as_ref() });
        let content: Vec<Value> = std::iter::once(json!({ "type": "text", "text": text.as_ref() }))
            .chain(images.iter().map(image))
            .collect();
        Ok(json!({ "content": content, "isError": failed }))
    }

    /// Runs a turn to its end.
    async fn turn(&self, text: &str) -> Result<(), Fault> {
        let broken = |why: String| Fault(INTERNAL, why);
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

fn initialized(params: &Value, session: &SessionHandle) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or_default();
    let revision =
        REVISIONS.iter().find(|known| **known == wanted).or(REVISIONS.last()).copied().unwrap_or_default();
    let folder = session.snapshot().cwd.display().to_string();
    json!({
        "protocolVersion": revision,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "ropewalk", "version": env!("CARGO_PKG_VERSION") },
        "instructions": format!("Tools that look at {folder} and change nothing. Paths are relative to it."),
    })
}

fn listed(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name.as_ref(),
        "description": tool.description.as_ref(),
        "inputSchema": tool.schema.as_ref(),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

/// Stands where a model would: it calls the tool that was asked for, and notes what came of it.
#[derive(Clone, Default)]
struct Caller {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// A tool and its arguments.
    wanted: Option<(String, String)>,
    result: Option<Outcome>,
    /// What the session offers.
    tools: Arc<[ToolSpec]>,
}

struct Outcome {
    text: Arc<str>,
    images: Vec<Image>,
    failed: bool,
}

impl Caller {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for Caller {
    fn offers(&self) -> Vec<ModelInfo> {
        vec![ModelInfo {
            // Nobody asks a model of this name for a title.
            id: "offline:caller".into(),
            name: "Caller".into(),
            description: "whoever is at the other end".into(),
            // What a caller does with an answer is its own business: nothing is summed up for it.
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
                shared.result = Some(Outcome { text, images, failed });
            }
            Some(Message::User { .. } | Message::Assistant { .. } | Message::Summary(_)) | None => {
                if let Some((name, arguments)) = shared.wanted.take() {
                    said.push(ModelEvent::ToolCall { id: "1".into(), name, arguments });
                }
            }
        }
        Box::new(Said(said))
    }
}

/// In the order in which it is not said.
struct Said(Vec<ModelEvent>);

impl ModelStream for Said {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        let next = self.0.pop().unwrap_or(ModelEvent::Done { stop: ModelStop::Finished });
        Box::pin(std::future::ready(Ok(next)))
    }
}
