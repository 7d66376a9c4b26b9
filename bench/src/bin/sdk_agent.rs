//! The usual choice: the same small agent on the official Rust SDK and its stdio transport.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse,
    LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, SessionId, SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio, on_receive_notification, on_receive_request};
use ropewalk_bench::prompt::Wish;
use tokio::sync::Notify;

type Sleeping = Arc<Mutex<HashMap<SessionId, Arc<Notify>>>>;

#[tokio::main]
async fn main() -> Result<()> {
    let sessions = Arc::new(AtomicU64::new(0));
    let sleeping = Sleeping::default();
    let waking = Arc::clone(&sleeping);
    Agent
        .v1()
        .on_receive_request(
            async |request: InitializeRequest, responder: Responder<InitializeResponse>, _connection| {
                let capabilities = AgentCapabilities::new().load_session(true);
                responder.respond(
                    InitializeResponse::new(request.protocol_version).agent_capabilities(capabilities),
                )
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_request: NewSessionRequest,
                        responder: Responder<NewSessionResponse>,
                        _connection| {
                let number = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                responder.respond(NewSessionResponse::new(format!("sdk-{number}")))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async |_request: LoadSessionRequest, responder: Responder<LoadSessionResponse>, _connection| {
                responder.respond(LoadSessionResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, connection: ConnectionTo<Client>| {
                let wish = Wish::parse(prompt_text(&request));
                if let Wish::Sleep { millis } = wish {
                    return sleep(millis, request, responder, &connection, &sleeping);
                }
                // The dispatch loop waits for a handler, so the turn runs beside it.
                let client = connection.clone();
                connection.spawn(async move { turn(&wish, &request, responder, &client) })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _connection| {
                let wake = waking.lock().unwrap_or_else(PoisonError::into_inner).remove(&cancel.session_id);
                if let Some(wake) = wake {
                    wake.notify_one();
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

fn turn(
    wish: &Wish,
    request: &PromptRequest,
    responder: Responder<PromptResponse>,
    client: &ConnectionTo<Client>,
) -> Result<()> {
    let (chunks, text) = match wish {
        Wish::Stream { chunks, text } => (*chunks, text.as_str()),
        Wish::Sleep { .. } | Wish::Tick { .. } | Wish::Say => (1, prompt_text(request)),
    };
    for _ in 0..chunks {
        let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        client.send_notification(SessionNotification::new(request.session_id.clone(), chunk))?;
    }
    responder.respond(PromptResponse::new(StopReason::EndTurn))
}

fn sleep(
    millis: u64,
    request: PromptRequest,
    responder: Responder<PromptResponse>,
    connection: &ConnectionTo<Client>,
    sleeping: &Sleeping,
) -> Result<()> {
    let wake = Arc::new(Notify::new());
    sleeping.lock().unwrap_or_else(PoisonError::into_inner).insert(request.session_id, Arc::clone(&wake));
    connection.spawn(async move {
        let reason = tokio::select! {
            () = wake.notified() => StopReason::Cancelled,
            () = tokio::time::sleep(Duration::from_millis(millis)) => StopReason::EndTurn,
        };
        responder.respond(PromptResponse::new(reason))
    })
}

fn prompt_text(request: &PromptRequest) -> &str {
    match request.prompt.first() {
        Some(ContentBlock::Text(text)) => &text.text,
        _ => "",
    }
}
