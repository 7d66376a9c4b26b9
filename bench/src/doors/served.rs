//! The product, serving HTTP.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;

use super::wire::{Reading, request};

const TOKEN: &str = "the-token-of-the-measurement";
const START_MAX: Duration = Duration::from_secs(20);

pub struct Served {
    child: Child,
    pub address: SocketAddr,
    home: PathBuf,
}

/// Whoever sends prompts. It reads nothing of its session, so it costs the server no writing.
pub struct Driver {
    address: SocketAddr,
    connection: String,
    pub session: String,
}

impl Served {
    #[expect(clippy::disallowed_methods, reason = "the server under test is a program, not a sandboxed tool")]
    pub async fn start(binary: &Path, home: &Path) -> anyhow::Result<Self> {
        if home.exists() {
            std::fs::remove_dir_all(home)?;
        }
        std::fs::create_dir_all(home.join("workspace"))?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = std::fs::File::create(home.join("stderr.log"))?;
        let child = Command::new(binary)
            .args(["serve", "--http", &address.to_string()])
            .env("ROPEWALK_HOME", home.join("state"))
            .env("ROPEWALK_SERVER_TOKEN", TOKEN)
            .current_dir(home.join("workspace"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting the product")?;
        let served = Self { child, address, home: home.to_owned() };
        let deadline = Instant::now() + START_MAX;
        // It listens before it has looked through what it keeps.
        while request(address, "GET", "/ready", &[], "").await.is_err() {
            ensure!(Instant::now() < deadline, "the product does not serve; see {}", served.home.display());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(served)
    }

    pub fn authorization() -> String {
        format!("Bearer {TOKEN}")
    }

    pub fn workspace(&self) -> PathBuf {
        self.home.join("workspace")
    }

    pub fn peak_kb(&self) -> anyhow::Result<u64> {
        peak_kb(self.child.id())
    }

    pub async fn driver(&self) -> anyhow::Result<Driver> {
        let connection = self.connect().await?;
        let mut answers = self.stream(&connection, None).await?;
        let place = json!({"cwd": self.workspace(), "mcpServers": []});
        post(self.address, &connection, 2, "session/new", &place).await?;
        let text = answers.wait_for(b"\"sessionId\":\"").await?;
        let session = text.split("\"sessionId\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let session = session.context("no session id")?.to_owned();
        Ok(Driver { address: self.address, connection, session })
    }

    /// Somebody who has loaded the session and waits for more.
    pub async fn reader(&self, session: &str) -> anyhow::Result<Reading> {
        let connection = self.connect().await?;
        let mut stream = self.stream(&connection, Some(session)).await?;
        let place = json!({"sessionId": session, "cwd": self.workspace(), "mcpServers": []});
        post(self.address, &connection, 2, "session/load", &place).await?;
        stream.wait_for(b"\"id\":2,\"result\"").await?;
        Ok(stream)
    }

    async fn connect(&self) -> anyhow::Result<String> {
        let hello = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": 1, "clientCapabilities": {}},
        });
        let authorization = Self::authorization();
        let headers = [("authorization", authorization.as_str())];
        request(self.address, "POST", "/acp", &headers, &hello.to_string()).await?.header("acp-connection-id")
    }

    async fn stream(&self, connection: &str, session: Option<&str>) -> anyhow::Result<Reading> {
        let authorization = Self::authorization();
        let mut headers = vec![
            ("authorization", authorization.as_str()),
            ("accept", "text/event-stream"),
            ("acp-connection-id", connection),
        ];
        headers.extend(session.map(|session| ("acp-session-id", session)));
        request(self.address, "GET", "/acp", &headers, "").await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself; either way there is nothing left to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Driver {
    pub async fn prompt(&self, text: &str) -> anyhow::Result<()> {
        let prompt = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        post(self.address, &self.connection, 3, "session/prompt", &prompt).await
    }
}

async fn post(
    address: SocketAddr,
    connection: &str,
    id: u64,
    method: &str,
    params: &serde_json::Value,
) -> anyhow::Result<()> {
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
    let authorization = Served::authorization();
    let headers = [("authorization", authorization.as_str()), ("acp-connection-id", connection)];
    request(address, "POST", "/acp", &headers, &body).await.map(drop)
}

/// The most memory that a process has had.
pub fn peak_kb(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    match status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .and_then(|line| line.split_whitespace().nth(1))
    {
        Some(kilobytes) => Ok(kilobytes.parse()?),
        None => bail!("/proc does not say how much memory process {pid} has had"),
    }
}
