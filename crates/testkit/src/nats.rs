//! A real NATS server for one test, as `cargo xtask setup` installs it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::third_party_server::{free_port, program, start};

const START_MAX: Duration = Duration::from_secs(30);

pub struct Server {
    port: u16,
    /// Before the port, in its address.
    place: String,
    /// Who is let in and how.
    arguments: Vec<String>,
    running: Option<Child>,
}

impl Server {
    pub fn start() -> Self {
        Self::with_token(None)
    }

    /// A server that lets in only who knows this.
    pub fn with_token(token: Option<&str>) -> Self {
        match token {
            Some(token) => Self::with(format!("nats://{token}@127.0.0.1"), &["--auth", token]),
            None => Self::with("nats://127.0.0.1".to_owned(), &[]),
        }
    }

    /// A server that is called `localhost`, speaks TLS and lets in only who knows this.
    pub fn secured(certificate: &Path, key: &Path, user: &str, password: &str) -> Self {
        let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
        let arguments =
            ["--tls", "--tlscert", certificate, "--tlskey", key, "--user", user, "--pass", password];
        Self::with(format!("tls://{user}:{password}@localhost"), &arguments)
    }

    fn with(place: String, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut server = Self { port: free_port(), place, arguments, running: None };
        server.restart();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("{}:{}", self.place, self.port)
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
        server.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
