//! The official Rust SDK, in one version, as the client of the real binary.
//!
//! The same walk as `typescript.test.mjs`: new, stream, permission (allow, reject, cancelled), edit, command with live
//! output, cancel, load after a restart. What the SDK's types read and write is looked at as JSON, so that only `sdk`
//! differs from version to version.

#[allow(dead_code, reason = "the rig of one version uses all of it")]
#[path = "../../../rust/src/history.rs"]
mod history;

#[cfg(any(feature = "plain", feature = "boxed"))]
#[path = "connection.rs"]
mod sdk;
#[cfg(any(feature = "builder", feature = "v1"))]
#[path = "builder.rs"]
mod sdk;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{fold, questions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;

const DEADLINE: Duration = Duration::from_secs(60);

/// What the client has been told, and how it answers questions.
#[derive(Default)]
struct Seen {
    updates: Vec<Value>,
    answer: String,
    wrote: Option<PathBuf>,
}

#[derive(Clone, Default)]
pub struct Editor {
    seen: Arc<Mutex<Seen>>,
    news: Arc<Notify>,
}

impl Editor {
    pub fn update(&self, notification: impl Serialize) {
        self.seen.lock().unwrap().updates.push(json(notification));
        self.news.notify_one();
    }

    pub fn decide<T: DeserializeOwned>(&self, request: impl Serialize) -> T {
        let (request, answer) = (json(request), self.seen.lock().unwrap().answer.clone());
        let chosen = request["options"].as_array().unwrap().iter().find(|option| option["kind"] == *answer);
        typed(match chosen {
            Some(chosen) => json!({"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}),
            None => json!({"outcome": {"outcome": "cancelled"}}),
        })
    }

    pub fn read<T: DeserializeOwned>(&self, request: impl Serialize) -> T {
        typed(json!({"content": std::fs::read_to_string(path(&json(request))).unwrap()}))
    }

    pub fn write(&self, request: impl Serialize) {
        let request = json(request);
        std::fs::write(path(&request), request["content"].as_str().unwrap()).unwrap();
        self.seen.lock().unwrap().wrote = Some(path(&request));
    }

    fn of(&self, session: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        let of_session = seen.updates.iter().filter(|each| each["sessionId"] == session);
        of_session.map(|each| each["update"].clone()).collect()
    }

    fn tools(&self, session: &str) -> Vec<Value> {
        fold(&self.of(session)).into_iter().filter(|item| item.get("tool").is_some()).collect()
    }

    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let waiting = async {
            while !condition() {
                self.news.notified().await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, waiting).await.is_ok(), "did not happen in time: {what}");
    }
}

fn path(request: &Value) -> PathBuf {
    PathBuf::from(request["path"].as_str().unwrap())
}

pub fn json(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

pub fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The tap, as a command and its argument; the rig says where it is.
pub fn tap() -> [String; 2] {
    ["python3".to_owned(), std::env::args().nth(2).unwrap()]
}

struct Walk {
    agent: sdk::Agent,
    editor: Editor,
    session: String,
    prompts: Vec<String>,
}

impl Walk {
    async fn greet(agent: &sdk::Agent) {
        let files = json!({"readTextFile": true, "writeTextFile": true});
        let hello =
            agent.initialize(json!({"protocolVersion": 1, "clientCapabilities": {"fs": files}})).await;
        assert_eq!(hello["protocolVersion"], 1);
        assert_eq!(hello["agentCapabilities"]["loadSession"], true);
    }

    async fn new_session(agent: &sdk::Agent, workspace: &Path) -> String {
        let created = agent.new_session(json!({"cwd": workspace, "mcpServers": []})).await;
        created["sessionId"].as_str().unwrap().to_owned()
    }

    async fn prompt(agent: &sdk::Agent, session: &str, text: &str) -> String {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        agent.prompt(prompt).await["stopReason"].as_str().unwrap().to_owned()
    }

    async fn say(&mut self, text: &str, answer: &str) -> String {
        self.editor.seen.lock().unwrap().answer = answer.to_owned();
        self.prompts.push(text.to_owned());
        Self::prompt(&self.agent, &self.session, text).await
    }

    /// The states of the tool calls, once the SDK has handed on all of a turn.
    async fn ended(&self, count: usize) -> Vec<String> {
        let states = || -> Vec<String> {
            let tools = self.editor.tools(&self.session);
            tools.iter().map(|tool| tool["status"].as_str().unwrap_or("pending").to_owned()).collect()
        };
        let over = || states().iter().filter(|state| *state == "completed" || *state == "failed").count();
        self.editor.until("the tool calls ended", || over() == count).await;
        states()
    }

    async fn permissions(&mut self, workspace: &Path) {
        assert_eq!(self.say("stream 3", "allow_once").await, "end_turn");
        self.editor.until("the stream", || said(&self.editor.of(&self.session)).contains("chunk 3")).await;
        assert_eq!(self.say("run touch allowed.txt", "allow_once").await, "end_turn");
        assert_eq!(self.say("run touch rejected.txt", "reject_once").await, "end_turn");
        assert_eq!(self.say("run touch closed.txt", "cancelled").await, "cancelled");
        assert_eq!(self.ended(3).await, ["completed", "failed", "failed"]);
        let there = ["allowed.txt", "rejected.txt", "closed.txt"].map(|name| workspace.join(name).exists());
        assert_eq!(there, [true, false, false]);
    }

    async fn edit(&mut self, workspace: &Path) {
        let note = workspace.join("note.txt");
        std::fs::write(&note, "one\n").unwrap();
        assert_eq!(self.say("edit note.txt: one => two", "allow_once").await, "end_turn");
        assert_eq!(self.ended(4).await[3], "completed");
        assert_eq!(std::fs::read_to_string(&note).unwrap(), "two\n");
        assert_eq!(self.editor.seen.lock().unwrap().wrote.as_deref(), Some(note.as_path()));
        let tools = self.editor.tools(&self.session);
        let content = tools[3]["content"].as_array().unwrap();
        let diff = content.iter().find(|item| item["type"] == "diff").unwrap();
        assert_eq!((diff["oldText"].as_str(), diff["newText"].as_str()), (Some("one\n"), Some("two\n")));
    }

    async fn live_output(&mut self, workspace: &Path) {
        let command = "run echo first; while [ ! -e gate ]; do sleep 0.02; done; echo last";
        let (editor, session) = (self.editor.clone(), self.session.clone());
        let watching = async {
            let first = || {
                editor
                    .tools(&session)
                    .get(4)
                    .is_some_and(|tool| text(tool).lines().any(|line| line == "first"))
            };
            editor.until("the first line is seen", first).await;
            assert_eq!(editor.tools(&session)[4]["status"], "in_progress");
            std::fs::write(workspace.join("gate"), "").unwrap();
        };
        let (stop, ()) = tokio::join!(self.say(command, "allow_once"), watching);
        assert_eq!(stop, "end_turn");
        assert_eq!(self.ended(5).await[4], "completed");
        assert!(text(&self.editor.tools(&self.session)[4]).contains("first\nlast"));
    }

    async fn cancel(&self, workspace: &Path) {
        let other = Self::new_session(&self.agent, workspace).await;
        let cancelling = async {
            self.editor.until("the stream began", || !said(&self.editor.of(&other)).is_empty()).await;
            self.agent.cancel(json!({"sessionId": other})).await;
        };
        let (stop, ()) = tokio::join!(Self::prompt(&self.agent, &other, "stream 100000"), cancelling);
        assert_eq!(stop, "cancelled");
        assert_eq!(Self::prompt(&self.agent, &other, "stream 2").await, "end_turn");
    }
}

fn text(tool: &Value) -> String {
    let content = tool["content"].as_array().cloned().unwrap_or_default();
    content.iter().filter_map(|item| item["content"]["text"].as_str()).collect()
}

/// All that the agent said. Old versions drop the messages' ids, so that messages are not told apart.
fn said(updates: &[Value]) -> String {
    let spoken = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    spoken.filter_map(|update| update["content"]["text"].as_str()).collect()
}

fn tools(updates: &[Value]) -> Vec<Value> {
    fold(updates).into_iter().filter(|item| item.get("tool").is_some()).collect()
}

fn main() {
    let root = tempfile::tempdir().unwrap();
    let (home, workspace) = (root.path().join("home"), root.path().join("workspace"));
    std::fs::create_dir(&workspace).unwrap();
    let kept = Arc::new(Mutex::new(None));

    let (place, keep) = (workspace.clone(), kept.clone());
    sdk::run(&home, Editor::default(), async move |agent, editor| {
        Walk::greet(&agent).await;
        let session = Walk::new_session(&agent, &place).await;
        let mut walk = Walk { agent, editor, session, prompts: Vec::new() };
        walk.permissions(&place).await;
        walk.edit(&place).await;
        walk.live_output(&place).await;
        walk.cancel(&place).await;
        let streamed = walk.editor.of(&walk.session);
        *keep.lock().unwrap() = Some((walk.session, walk.prompts, streamed));
    });

    let (session, prompts, streamed) = kept.lock().unwrap().take().unwrap();
    sdk::run(&home, Editor::default(), async move |agent, editor| {
        Walk::greet(&agent).await;
        agent.load_session(json!({"sessionId": session, "cwd": workspace, "mcpServers": []})).await;
        let whole = said(&streamed).len();
        editor.until("the replay is handled", || said(&editor.of(&session)).len() >= whole).await;
        let replayed = editor.of(&session);
        assert_eq!(questions(&replayed), prompts);
        assert_eq!(said(&replayed), said(&streamed));
        assert_eq!(tools(&replayed), tools(&streamed));
        assert_eq!(Walk::prompt(&agent, &session, "stream 2").await, "end_turn");
    });
    println!("agent-client-protocol {}: passed", std::env::args().nth(1).unwrap());
}
