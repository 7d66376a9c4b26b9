//! The SDK until 0.10: a connection of which the client is a part.

use std::path::Path;
use std::rc::Rc;
#[cfg(feature = "plain")]
use std::sync::Arc;

use agent_client_protocol::{
    Agent as _, Client, ClientSideConnection, Error, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionRequest, RequestPermissionResponse, SessionNotification, WriteTextFileRequest,
};
use serde_json::Value;
#[cfg(feature = "plain")]
use serde_json::value::RawValue;
use tokio::task::{LocalSet, spawn_local};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use crate::{Editor, json, tap, typed};

#[cfg(feature = "plain")]
type Written = ();
#[cfg(feature = "boxed")]
type Written = agent_client_protocol::WriteTextFileResponse;

#[cfg_attr(feature = "boxed", async_trait::async_trait(?Send))]
impl Client for Editor {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> Result<RequestPermissionResponse, Error> {
        Ok(self.decide(request))
    }

    async fn write_text_file(&self, request: WriteTextFileRequest) -> Result<Written, Error> {
        self.write(request);
        Ok(Written::default())
    }

    async fn read_text_file(&self, request: ReadTextFileRequest) -> Result<ReadTextFileResponse, Error> {
        Ok(self.read(request))
    }

    async fn session_notification(&self, notification: SessionNotification) -> Result<(), Error> {
        self.update(notification);
        Ok(())
    }

    #[cfg(feature = "plain")]
    async fn create_terminal(
        &self,
        _: agent_client_protocol::CreateTerminalRequest,
    ) -> Result<agent_client_protocol::CreateTerminalResponse, Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn terminal_output(
        &self,
        _: agent_client_protocol::TerminalOutputRequest,
    ) -> Result<agent_client_protocol::TerminalOutputResponse, Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn release_terminal(&self, _: agent_client_protocol::ReleaseTerminalRequest) -> Result<(), Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn wait_for_terminal_exit(
        &self,
        _: agent_client_protocol::WaitForTerminalExitRequest,
    ) -> Result<agent_client_protocol::WaitForTerminalExitResponse, Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn kill_terminal_command(
        &self,
        _: agent_client_protocol::KillTerminalCommandRequest,
    ) -> Result<(), Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn ext_method(&self, _: Arc<str>, _: Arc<RawValue>) -> Result<Arc<RawValue>, Error> {
        Err(Error::method_not_found())
    }

    #[cfg(feature = "plain")]
    async fn ext_notification(&self, _: Arc<str>, _: Arc<RawValue>) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Clone)]
pub struct Agent(Rc<ClientSideConnection>);

impl Agent {
    pub async fn initialize(&self, request: Value) -> Value {
        json(self.0.initialize(typed(request)).await.unwrap())
    }

    pub async fn new_session(&self, request: Value) -> Value {
        json(self.0.new_session(typed(request)).await.unwrap())
    }

    pub async fn load_session(&self, request: Value) {
        self.0.load_session(typed(request)).await.unwrap();
    }

    pub async fn prompt(&self, request: Value) -> Value {
        json(self.0.prompt(typed(request)).await.unwrap())
    }

    pub async fn cancel(&self, notification: Value) {
        self.0.cancel(typed(notification)).await.unwrap();
    }
}

/// Starts a server and runs the walk; closing its input ends it.
pub fn run(home: &Path, editor: Editor, walk: impl AsyncFnOnce(Agent, Editor)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let [program, tap] = tap();
        let mut server = tokio::process::Command::new(program)
            .arg(tap)
            .env("ROPEWALK_HOME", home)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let (connection, talking) =
            ClientSideConnection::new(editor.clone(), input.compat_write(), output.compat(), |task| {
                spawn_local(task);
            });
        let talking = spawn_local(talking);
        walk(Agent(Rc::new(connection)), editor).await;
        talking.abort();
        assert!(talking.await.is_err(), "the connection ended before the walk");
        let ended = tokio::time::timeout(crate::DEADLINE, server.wait()).await;
        assert!(ended.unwrap().unwrap().success(), "the server exits with 0 when its input ends");
    });
}
