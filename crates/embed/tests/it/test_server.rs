//! A server with a test's agent, and clients over byte streams that end in this process.

use std::path::PathBuf;
use std::sync::Arc;

use embed::{Backend, Server, ServerParts};
use tempfile::TempDir;
use testkit::server::{Client, DEADLINE, OlderClient};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

/// Small, so that more than one write is needed for most of what is said.
const PIPE_BYTES: usize = 64;

pub struct TestServer {
    pub server: Arc<Server>,
    pub folder: TempDir,
    connections: JoinSet<()>,
}

impl TestServer {
    pub fn home(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// A client that has said nothing so far.
    pub fn connect(&mut self) -> Client {
        Client::over(self.stream(), self.home())
    }

    /// The same in an older dialect.
    pub fn connect_older(&mut self) -> OlderClient {
        OlderClient::over(self.stream(), self.home())
    }

    /// A client that has introduced itself.
    pub async fn client(&mut self) -> Client {
        let mut client = self.connect();
        client.initialize().await;
        client
    }

    /// The other end is served.
    pub fn stream(&mut self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let server = Arc::clone(&self.server);
        self.connections.spawn(async move {
            let (input, output) = tokio::io::split(far);
            server.serve_connection(input, output).await;
        });
        near
    }

    /// Waits until all connections have ended by themselves.
    pub async fn all_hung_up(&mut self) {
        while let Some(ended) = tokio::time::timeout(DEADLINE, self.connections.join_next()).await.unwrap() {
            ended.unwrap();
        }
    }

    /// Ends the server; fails if a connection does not end with it.
    pub async fn stop(mut self) {
        self.server.stopping().cancel();
        self.all_hung_up().await;
        let server = Arc::into_inner(self.server).expect("nobody else has the server");
        tokio::time::timeout(DEADLINE, server.shutdown()).await.unwrap();
    }
}

/// A server of these parts, which are made for a folder of the test's own.
pub async fn check(parts: impl FnOnce(PathBuf) -> ServerParts, test: impl AsyncFnOnce(&mut TestServer)) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap();
    let server = Arc::new(Server::start(parts(home)));
    let mut test_server = TestServer { server, folder, connections: JoinSet::new() };
    test(&mut test_server).await;
    test_server.stop().await;
}

/// The usual server for this agent.
pub async fn check_agent(agent: impl Backend, test: impl AsyncFnOnce(&mut TestServer)) {
    check(|home| ServerParts::new(agent, home), test).await;
}
