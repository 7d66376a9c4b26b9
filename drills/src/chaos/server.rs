//! The server under test, on one port for all of its lives.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::http_client::HttpClient;
use xtask::command;

pub const TOKEN: &str = "the-token-of-the-chaos-run";
const START_MAX: Duration = Duration::from_secs(20);

pub struct Server {
    binary: PathBuf,
    home: PathBuf,
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    pub fn start(home: &Path) -> anyhow::Result<Self> {
        let binary = command::server()?;
        std::fs::create_dir_all(home.join("workspace"))?;
        // A port that was free a moment ago: the server has to come back to the same one.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = spawn(&binary, home, address)?;
        let mut server = Self { binary, home: home.to_owned(), address, child };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub fn workspace(&self) -> PathBuf {
        self.home.join("workspace")
    }

    /// `kill -9`, and a new start on the same state and port.
    pub fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = spawn(&self.binary, &self.home, self.address)?;
        self.wait_until_ready()
    }

    /// The session's log, as the program itself exports it.
    pub fn export(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        let mut export = command::program(&self.binary);
        export.args(["sessions", "export", session, "--format", "json"]);
        let text = command::output(export.env("ROPEWALK_HOME", self.home.join("state")))?;
        let mut export: Value = serde_json::from_str(&text)?;
        match export["events"].take() {
            Value::Array(events) => Ok(events),
            other => bail!("an export without a list of events: {other}"),
        }
    }

    /// How to reach it at this address, which may be a proxy's.
    pub fn web(&self, address: SocketAddr) -> HttpClient {
        let headers = vec![("authorization".to_owned(), format!("Bearer {TOKEN}"))];
        HttpClient { address, host: self.address, headers }
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}; see {}", self.home.join("stderr.log").display());
            }
            if TcpStream::connect(self.address).is_ok()
                && self.web(self.address).get("/ready").is_ok_and(|answer| answer.status == 200)
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not begin to serve in time")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; there is nothing more to do about it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(binary: &Path, home: &Path, address: SocketAddr) -> anyhow::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("stderr.log"))?;
    let mut command = command::program(binary);
    command.args(["serve", "--http", &address.to_string(), "--max-sessions", "64"]);
    command.env("ROPEWALK_HOME", home.join("state")).env("ROPEWALK_SERVER_TOKEN", TOKEN);
    command.current_dir(home.join("workspace")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("starting the server")
}
