//! A real NATS server for one test, as `cargo xtask setup` installs it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::child::{free_port, program, start};

const START_MAX: Duration = Duration::from_secs(30);

pub struct Server {
    port: u16,
    token: Option<String>,
    running: Option<Child>,
}

impl Server {
    pub fn start() -> Self {
        Self::with_token(None)
    }

    /// A server that lets in only who knows this.
    pub fn with_token(token: Option<&str>) -> Self {
        let mut server = Self { port: free_port(), token: token.map(str::to_owned), running: None };
        server.restart();
        server
    }

    pub fn url(&self) -> String {
        let token = self.token.as_ref().map_or(String::new(), |token| format!("{token}@"));
        format!("nats://{token}127.0.0.1:{}", self.port)
    }

    pub fn stop(&mut self) {
        if let Some(mut server) = self.running.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    pub fn restart(&mut self) {
        self.stop();
        let mut server = program("setpriv");
        server.args(["--pdeathsig", "KILL"]).arg(binary()).args(["-a", "127.0.0.1"]);
        server.args(["-p", &self.port.to_string()]);
        if let Some(token) = &self.token {
            server.args(["--auth", token]);
        }
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(start(server));
        let until = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "nats-server does not start; run: cargo xtask setup");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn binary() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.setup/bus/bin/nats-server");
    if installed.exists() { installed } else { "nats-server".into() }
}
