//! The official Rust SDK as the client of the real binary: over standard input and output, over HTTP with
//! server-sent events, and over WebSocket.
//!
//! `ROPEWALK_BIN` names the binary. For standard input it is started through `tap.py`, so that the frames
//! can be judged by the official schema afterwards.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, ListSessionsRequest, LoadSessionRequest,
    NewSessionRequest, PermissionOptionKind, PromptRequest, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId,
    SessionNotification, StopReason, TextContent,
};
use agent_client_protocol::{AcpAgent, AcpAgentConfig, Agent, Client, ConnectTo, Error};
use agent_client_protocol_http::HttpClient;
use futures::future::{Either, select};
use ropewalk_client_rust::{answers, fold, questions};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "the-token-of-the-rig-0123456789";

#[derive(Debug, Clone, Copy)]
enum Way {
    Stdio,
    Http,
    WebSocket,
}

/// A server that listens; it ends with this.
struct Listening {
    child: Child,
    host: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Listening {
    fn start(home: &Path, workspace: &Path) -> Self {
        let mut child = Command::new(std::env::var_os("ROPEWALK_BIN").unwrap())
            .args(["serve", "--http", ":0", "--allow-dir"])
            .arg(workspace)
            .env("ROPEWALK_HOME", home)
            .env("ROPEWALK_SERVER_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let host = loop {
            line.clear();
            assert_ne!(
                log.read_line(&mut line).unwrap(),
                0,
                "the server ended before it listened"
            );
            if let Some(host) = line.strip_prefix("listening on http://") {
                break host.trim().to_owned();
            }
        };
        // Whoever stops reading would stop the server one day.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        let server = Self { child, host };
        server.until_ready();
        server
    }

    /// It listens before it has looked at its sessions; until then it says that it is not ready.
    fn until_ready(&self) {
        let began = std::time::Instant::now();
        let runtime = runtime();
        while runtime.block_on(async {
            let asked = reqwest::get(format!("http://{}/ready", self.host)).await;
            !asked.is_ok_and(|answer| answer.status().is_success())
        }) {
            assert!(began.elapsed() < DEADLINE, "the server does not get ready");
        }
    }

    fn client(&self, way: Way) -> HttpClient {
        let scheme = if matches!(way, Way::WebSocket) {
            "ws"
        } else {
            "http"
        };
        let bearer = format!("Bearer {TOKEN}").parse().unwrap();
        let headers = [(reqwest::header::AUTHORIZATION, bearer)].into_iter().collect();
        HttpClient::builder(format!("{scheme}://{}", self.host))
            .configure_http(|http| http.default_headers(headers).no_proxy())
            .build()
            .unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// What the client has been told, and how it answers questions.
struct Seen {
    updates: Vec<(SessionId, Value)>,
    asked: Vec<RequestPermissionRequest>,
    answer: PermissionOptionKind,
}

#[derive(Clone)]
struct Editor(Arc<Mutex<Seen>>);

impl Editor {
    fn new() -> Self {
        let answer = PermissionOptionKind::RejectOnce;
        Self(Arc::new(Mutex::new(Seen {
            updates: Vec::new(),
            asked: Vec::new(),
            answer,
        })))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }

    fn answer_with(&self, answer: PermissionOptionKind) {
        self.seen().answer = answer;
    }

    fn decide(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        let mut seen = self.seen();
        let chosen = request
            .options
            .iter()
            .find(|option| option.kind == seen.answer)
            .unwrap();
        let outcome = SelectedPermissionOutcome::new(chosen.option_id.clone());
        seen.asked.push(request);
        RequestPermissionResponse::new(RequestPermissionOutcome::Selected(outcome))
    }

    fn updates_of(&self, session: &SessionId) -> Vec<Value> {
        let seen = self.seen();
        let of_session = seen.updates.iter().filter(|(of, _)| of == session);
        of_session.map(|(_, update)| update.clone()).collect()
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !condition(self) {
                async_io::Timer::after(Duration::from_millis(5)).await;
            }
        };
        in_time(what, waiting).await;
    }
}

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("workspace")).unwrap();
        Self { root }
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// Starts a server, greets it, and runs the walk; the server ends with the connection.
    fn connect<F>(&self, way: Way, walk: impl FnOnce(ConnectionTo<Agent>, Editor) -> F)
    where
        F: Future<Output = Result<(), Error>> + Send,
    {
        let home = self.root.path().join("home");
        let Way::Stdio = way else {
            let server = Listening::start(&home, &self.workspace());
            return Self::talk(server.client(way), walk);
        };
        let tap = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tap.py");
        let config = AcpAgentConfig::new("python3")
            .arg(tap.to_str().unwrap())
            .env("ROPEWALK_HOME", home.to_str().unwrap());
        Self::talk(AcpAgent::new(config), walk);
    }

    fn talk<F>(transport: impl ConnectTo<Client>, walk: impl FnOnce(ConnectionTo<Agent>, Editor) -> F)
    where
        F: Future<Output = Result<(), Error>> + Send,
    {
        let editor = Editor::new();
        let (told, asked) = (editor.clone(), editor.clone());
        let whole = Client
            .v1()
            .on_receive_notification(
                async move |notification: SessionNotification, _cx| {
                    let update = serde_json::to_value(&notification.update).unwrap();
                    told.seen().updates.push((notification.session_id, update));
                    Ok(())
                },
                agent_client_protocol::on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _cx| {
                    responder.respond(asked.decide(request))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .connect_with(transport, async |connection: ConnectionTo<Agent>| {
                let hello = InitializeRequest::new(ProtocolVersion::V1);
                let hello = connection.send_request(hello).block_task().await?;
                assert_eq!(hello.protocol_version, ProtocolVersion::V1);
                assert!(hello.agent_capabilities.load_session);
                walk(connection, editor).await
            });
        runtime().block_on(in_time("the whole walk", whole)).unwrap();
    }
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let work = std::pin::pin!(work);
    match select(work, async_io::Timer::after(DEADLINE)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("did not happen in time: {what}"),
    }
}

async fn new_session(connection: &ConnectionTo<Agent>, place: &Place) -> Result<SessionId, Error> {
    let request = NewSessionRequest::new(place.workspace());
    Ok(connection.send_request(request).block_task().await?.session_id)
}

async fn say(connection: &ConnectionTo<Agent>, session: &SessionId, text: &str) -> Result<StopReason, Error> {
    let content = vec![ContentBlock::Text(TextContent::new(text))];
    let request = PromptRequest::new(session.clone(), content);
    Ok(connection.send_request(request).block_task().await?.stop_reason)
}

fn allows_one_command_and_rejects_another(way: Way) {
    let place = Place::new();
    place.connect(way, async |connection, editor| {
        let session = new_session(&connection, &place).await?;
        editor.answer_with(PermissionOptionKind::AllowOnce);
        assert_eq!(
            say(&connection, &session, "run touch allowed.txt").await?,
            StopReason::EndTurn
        );
        editor.answer_with(PermissionOptionKind::RejectOnce);
        assert_eq!(
            say(&connection, &session, "run touch rejected.txt").await?,
            StopReason::EndTurn
        );

        assert!(place.workspace().join("allowed.txt").exists());
        assert!(!place.workspace().join("rejected.txt").exists());
        assert_eq!(editor.seen().asked.len(), 2);
        let history = fold(&editor.updates_of(&session));
        let tools: Vec<_> = history.iter().filter(|item| item.get("tool").is_some()).collect();
        let statuses: Vec<_> = tools.iter().map(|tool| tool["status"].clone()).collect();
        assert_eq!(statuses, ["completed", "failed"]);
        Ok(())
    });
}

fn cancels_a_running_prompt(way: Way) {
    let place = Place::new();
    place.connect(way, async |connection, editor| {
        let session = new_session(&connection, &place).await?;
        let running = say(&connection, &session, "stream 100000");
        let cancelling = async {
            editor
                .until("the stream began", |editor| {
                    !editor.updates_of(&session).is_empty()
                })
                .await;
            connection.send_notification(CancelNotification::new(session.clone()))
        };
        let (stop, sent) = futures::future::join(running, cancelling).await;
        sent?;
        assert_eq!(stop?, StopReason::Cancelled);
        assert_eq!(say(&connection, &session, "stream 3").await?, StopReason::EndTurn);
        Ok(())
    });
}

fn loads_after_a_restart_what_was_streamed(way: Way) {
    const PROMPTS: [&str; 6] = [
        "stream 20",
        "write note.txt: two\nlines",
        "run echo loud",
        "run echo no",
        "think",
        "plan",
    ];
    let place = Place::new();
    let kept = Mutex::new(None);
    place.connect(way, async |connection, editor| {
        let session = new_session(&connection, &place).await?;
        for text in PROMPTS {
            editor.answer_with(match text {
                "run echo no" => PermissionOptionKind::RejectOnce,
                _ => PermissionOptionKind::AllowOnce,
            });
            assert_eq!(say(&connection, &session, text).await?, StopReason::EndTurn);
        }
        let streamed = editor.updates_of(&session);
        *kept.lock().unwrap() = Some((session, streamed));
        Ok(())
    });
    let (session, streamed) = kept.into_inner().unwrap().unwrap();

    place.connect(way, async |connection, editor| {
        let listed = connection
            .send_request(ListSessionsRequest::new())
            .block_task()
            .await?;
        assert!(listed.sessions.iter().any(|each| each.session_id == session));
        let load = LoadSessionRequest::new(session.clone(), place.workspace());
        connection.send_request(load).block_task().await?;
        let replayed = editor.updates_of(&session);
        assert_eq!(questions(&replayed), PROMPTS);
        assert_eq!(answers(&replayed), answers(&streamed));
        assert_eq!(say(&connection, &session, "stream 2").await?, StopReason::EndTurn);
        Ok(())
    });
}

macro_rules! ways {
    ($($module:ident: $way:expr;)*) => {$(
        mod $module {
            use super::Way;

            #[test]
            fn rust_sdk_allows_one_command_and_rejects_another() {
                super::allows_one_command_and_rejects_another($way);
            }

            #[test]
            fn rust_sdk_cancels_a_running_prompt() {
                super::cancels_a_running_prompt($way);
            }

            #[test]
            fn rust_sdk_loads_after_a_restart_what_was_streamed() {
                super::loads_after_a_restart_what_was_streamed($way);
            }
        }
    )*};
}

ways! {
    stdio: Way::Stdio;
    http: Way::Http;
    websocket: Way::WebSocket;
}
