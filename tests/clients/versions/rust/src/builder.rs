//! The SDK since 3.0: handlers are given to a builder, and everything happens while it is connected.

use std::path::Path;

#[cfg(feature = "v1")]
use agent_client_protocol::v1::{ConnectionTo, schema as types};
use agent_client_protocol::{AcpAgent, AcpAgentConfig, Client};
#[cfg(feature = "builder")]
use agent_client_protocol::{ConnectionTo, schema::v1 as types};
use serde_json::Value;
use types::{
    CancelNotification, InitializeRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ReadTextFileRequest, RequestPermissionRequest, SessionNotification, WriteTextFileRequest,
    WriteTextFileResponse,
};

use crate::{Editor, json, tap, typed};

#[derive(Clone)]
pub struct Agent(ConnectionTo<agent_client_protocol::Agent>);

impl Agent {
    pub async fn initialize(&self, request: Value) -> Value {
        json(self.0.send_request(typed::<InitializeRequest>(request)).block_task().await.unwrap())
    }

    pub async fn new_session(&self, request: Value) -> Value {
        json(self.0.send_request(typed::<NewSessionRequest>(request)).block_task().await.unwrap())
    }

    pub async fn load_session(&self, request: Value) {
        self.0.send_request(typed::<LoadSessionRequest>(request)).block_task().await.unwrap();
    }

    pub async fn prompt(&self, request: Value) -> Value {
        json(self.0.send_request(typed::<PromptRequest>(request)).block_task().await.unwrap())
    }

    pub async fn cancel(&self, notification: Value) {
        self.0.send_notification(typed::<CancelNotification>(notification)).unwrap();
    }
}

/// Starts a server and runs the walk; the server ends with the connection.
pub fn run(home: &Path, editor: Editor, walk: impl AsyncFnOnce(Agent, Editor)) {
    let [program, tap] = tap();
    let server = AcpAgentConfig::new(program).arg(&tap).env("ROPEWALK_HOME", home.to_str().unwrap());
    let (told, asked, read, written) = (editor.clone(), editor.clone(), editor.clone(), editor.clone());
    #[cfg(feature = "builder")]
    let client = Client.builder();
    #[cfg(feature = "v1")]
    let client = Client.v1();
    let talking = client
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                told.update(notification);
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
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _cx| responder.respond(read.read(request)),
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WriteTextFileRequest, responder, _cx| {
                written.write(request);
                responder.respond(WriteTextFileResponse::default())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(AcpAgent::new(server), async |connection| {
            walk(Agent(connection), editor).await;
            Ok(())
        });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(talking).unwrap();
}
