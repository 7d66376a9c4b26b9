//! The official Rust SDK as the client of the real binary.
//!
//! `ROPEWALK_BIN` names the binary. It is started through `tap.py`, so that the frames can be
//! judged by the official schema afterwards.

use std::path::{Path, PathBuf};
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
use agent_client_protocol::{AcpAgent, AcpAgentConfig, Agent, Client, Error};
use futures::future::{Either, select};
use ropewalk_client_rust::{answers, fold, questions};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

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
    fn connect<F>(&self, walk: impl FnOnce(ConnectionTo<Agent>, Editor) -> F)
    where
        F: Future<Output = Result<(), Error>> + Send,
    {
        let tap = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tap.py");
        let config = AcpAgentConfig::new("python3")
            .arg(tap.to_str().unwrap())
            .env("ROPEWALK_HOME", self.root.path().join("home").to_str().unwrap());
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
            .connect_with(AcpAgent::new(config), async |connection: ConnectionTo<Agent>| {
                let hello = InitializeRequest::new(ProtocolVersion::V1);
                let hello = connection.send_request(hello).block_task().await?;
                assert_eq!(hello.protocol_version, ProtocolVersion::V1);
                assert!(hello.agent_capabilities.load_session);
                walk(connection, editor).await
            });
        futures::executor::block_on(in_time("the whole walk", whole)).unwrap();
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

#[test]
fn rust_sdk_allows_one_command_and_rejects_another() {
    let place = Place::new();
    place.connect(async |connection, editor| {
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

#[test]
fn rust_sdk_cancels_a_running_prompt() {
    let place = Place::new();
    place.connect(async |connection, editor| {
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

#[test]
fn rust_sdk_loads_after_a_restart_what_was_streamed() {
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
    place.connect(async |connection, editor| {
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

    place.connect(async |connection, editor| {
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
