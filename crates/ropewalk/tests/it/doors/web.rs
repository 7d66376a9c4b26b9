//! The real binary with its HTTP door open, and a client that sends exactly the bytes a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_output::CommandOutput;

/// No wait is longer. Generous, because test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The master token of servers that a test starts.
pub const TOKEN: &str = "master-token-of-this-test-0123456789";

pub struct Server {
    pub child: Child,
    pub input: Option<ChildStdin>,
    pub lines: Receiver<String>,
    pub port: u16,
    /// The first line: where it listens.
    pub url: String,
    pub home: Arc<TempDir>,
    log: Arc<Mutex<String>>,
    logged: Receiver<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended unless the test failed, or did not care.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The program, with nothing of the tester's own settings.
#[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
pub fn ropewalk(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(arguments).current_dir(home).env("ROPEWALK_HOME", home.join("state"));
    for name in ["ROPEWALK_SERVER_TOKEN", "FERRET_SERVER_TOKEN", "OTTER_SERVER_TOKEN", "ZEPH_ACP_AUTH_TOKEN"]
    {
        command.env_remove(name);
    }
    command
}

/// Runs a command that ends by itself.
pub fn run(home: &TempDir, arguments: &[&str]) -> CommandOutput {
    let mut command = ropewalk(home.path(), arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    CommandOutput::of(command.spawn().unwrap())
}

pub fn home() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

impl Server {
    /// `serve --http :0` with the test's token and these arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let home = home();
        let base = ["-v", "serve", "--http", ":0", "--auth-token", TOKEN];
        let all: Vec<&str> = base.iter().chain(arguments).copied().collect();
        Self::run(home.clone(), ropewalk(home.path(), &all))
    }

    /// Starts it and waits until it is ready.
    pub fn run(home: Arc<TempDir>, mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (output, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send_line, lines) = sync_channel(1 << 16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                send_line.send(line).ok();
            }
        });
        let log = Arc::new(Mutex::new(String::new()));
        let (send_url, url) = sync_channel(1);
        let (send_logged, logged) = sync_channel(1);
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("listening on ") {
                    send_url.send(url.to_owned()).ok();
                }
                kept.lock().unwrap().push_str(&format!("{line}\n"));
            }
            drop(send_url);
            send_logged.send(()).ok();
        });
        let input = child.stdin.take();
        let url = url.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{}", log.lock().unwrap()));
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        let server = Self { child, input, lines, port, url, home, log, logged };
        if server.url.starts_with("http:") {
            server.until_ready();
        }
        server
    }

    fn until_ready(&self) {
        let began = Instant::now();
        while Ask::get("/health").bare().send(self).status != 200 {
            assert!(began.elapsed() < DEADLINE, "it does not get ready");
        }
    }

    pub fn address(&self) -> SocketAddr {
        let text = self.url.split("://").nth(1).unwrap();
        text.parse().unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Waits until it has said this on standard error.
    pub fn until_log(&self, text: &str) {
        let began = Instant::now();
        while !self.log.lock().unwrap().contains(text) {
            assert!(began.elapsed() < DEADLINE, "it does not say {text:?}");
            std::thread::yield_now();
        }
    }

    /// Asks it to end, and answers its exit code and everything it said on standard error.
    pub fn stop(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let code = self.exit_code();
        self.logged.recv_timeout(DEADLINE).unwrap();
        let log = self.log.lock().unwrap().clone();
        (code, log)
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        crate::work_folder::exit_code(&mut self.child, DEADLINE)
    }

    /// The server still does what it is for.
    #[track_caller]
    pub fn must_serve(&self) {
        assert_eq!(Ask::get("/health").bare().send(self).status, 200);
        assert_eq!(Ask::get("/no/such/route").send(self).status, 404);
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// A connection with a handshake in which the server's certificate is checked.
pub fn secured(
    stream: TcpStream,
    certificate: tokio_rustls::rustls::pki_types::CertificateDer<'static>,
) -> impl Read + Write + use<> {
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// A request over HTTP/1.1. It carries the right token and host until a test says otherwise.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub fn new(method: &str, path: &str) -> Self {
        let headers = vec![("authorization".to_owned(), format!("Bearer {TOKEN}").into_bytes())];
        Self { method: method.to_owned(), path: path.to_owned(), headers, body: None }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// With JSON.
    pub fn post(path: &str, body: &str) -> Self {
        Self::new("POST", path).header("content-type", "application/json").body(body.as_bytes())
    }

    /// Without a token.
    pub fn bare(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "authorization");
        self
    }

    pub fn token(self, token: &str) -> Self {
        self.bare().header("authorization", &format!("Bearer {token}"))
    }

    /// In place of the header of this name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.and_header(name, value.as_bytes())
    }

    /// Beside those of this name.
    pub fn and_header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    pub fn websocket(self) -> Self {
        self.header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    pub fn bytes(&self, port: u16) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        let has = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        if !has("host") {
            bytes.extend(format!("host: 127.0.0.1:{port}\r\n").bytes());
        }
        if !has("connection") {
            bytes.extend(b"connection: close\r\n");
        }
        if let Some(body) = self.body.as_ref().filter(|_| !has("content-length") && !has("transfer-encoding"))
        {
            bytes.extend(format!("content-length: {}\r\n", body.len()).bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend(name.bytes().chain(*b": ").chain(value.iter().copied()).chain(*b"\r\n"));
        }
        bytes.extend(b"\r\n");
        bytes.extend(self.body.iter().flatten());
        bytes
    }

    #[track_caller]
    pub fn send(&self, server: &Server) -> Answer {
        self.send_to(server.address())
    }

    #[track_caller]
    pub fn send_to(&self, address: SocketAddr) -> Answer {
        let mut stream = connect(address);
        // A server that has refused may close before everything is written.
        drop(stream.write_all(&self.bytes(address.port())));
        Answer::read(&mut stream)
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads one answer, with a body of a known length or up to the end.
    #[track_caller]
    pub fn read(stream: &mut impl Read) -> Self {
        let mut all = Vec::new();
        let mut one = [0; 4096];
        loop {
            if let Some(answer) = Self::whole(&all) {
                return answer;
            }
            match stream.read(&mut one) {
                Ok(count) if count > 0 => all.extend(&one[..count]),
                ended => {
                    let text = String::from_utf8_lossy(&all);
                    let (head, body) =
                        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{ended:?}: {text}"));
                    return Self::of(head, body.as_bytes());
                }
            }
        }
    }

    fn whole(all: &[u8]) -> Option<Self> {
        let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&all[..end]).unwrap();
        let answer = Self::of(head, &all[end + 4..]);
        if answer.status == 101 || answer.status == 204 {
            return Some(answer);
        }
        let length: usize = answer.header("content-length")?.parse().unwrap();
        (answer.body.len() >= length).then_some(answer)
    }

    fn of(head: &str, body: &[u8]) -> Self {
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The word for programs in a refusal.
    #[track_caller]
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

/// A WebSocket on `/acp`, with one JSON-RPC message in each frame.
pub struct Socket {
    stream: TcpStream,
    read: Vec<u8>,
    last_id: u64,
}

impl Socket {
    /// Opened with this token as a browser would, and greeted.
    #[track_caller]
    pub fn open(server: &Server, token: &str) -> Self {
        let mut socket = Self::to(server.address(), token);
        socket.call("initialize", &json!({ "protocolVersion": 1 }));
        socket
    }

    /// Opened, and nothing said yet.
    #[track_caller]
    pub fn to(address: SocketAddr, token: &str) -> Self {
        Self::asked(address, token, |ask| ask)
    }

    /// The same with something more in the request.
    #[track_caller]
    pub fn asked(address: SocketAddr, token: &str, more: impl FnOnce(Ask) -> Ask) -> Self {
        let offered = format!("acp.v1, bearer.{token}");
        let ask = more(Ask::get("/acp").bare().websocket().header("sec-websocket-protocol", &offered));
        let mut stream = connect(address);
        stream.write_all(&ask.bytes(address.port())).unwrap();
        let answer = Answer::read(&mut stream);
        assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, Some("acp.v1")));
        Self { stream, read: answer.body, last_id: 0 }
    }

    /// Another end for the same socket, to write to while this one is read.
    pub fn writing_end(&self) -> Self {
        Self { stream: self.stream.try_clone().unwrap(), read: Vec::new(), last_id: 0 }
    }

    pub fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        // A mask of zeros leaves the text as it is.
        let head = [0x81, 0x80 | 126, length[0], length[1], 0, 0, 0, 0];
        self.stream.write_all(&[&head, text.as_bytes()].concat()).unwrap();
    }

    /// The whole reply: a result or an error.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let frame = self.frame().expect("the socket is open");
            if frame["id"] == id && frame.get("method").is_none() {
                return frame;
            }
        }
    }

    /// The next message; nothing when the socket was closed.
    pub fn frame(&mut self) -> Option<Value> {
        loop {
            if let Some((text, rest)) = Self::whole(&self.read) {
                let value = (!text.is_empty()).then(|| serde_json::from_slice(text).unwrap());
                self.read = rest.to_owned();
                if value.is_some() {
                    return value;
                }
                continue;
            }
            let mut some = [0; 4096];
            let count = self.stream.read(&mut some).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.read.extend(&some[..count]);
        }
    }

    /// The payload of the first frame, and what follows it.
    fn whole(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (begins, length) = match *bytes.get(1)? {
            126 => (4, u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()).into()),
            127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()).try_into().unwrap()),
            short => (2, usize::from(short)),
        };
        let payload = bytes.get(begins..begins + length)?;
        // A ping has nothing to say to a test.
        let said = if bytes[0] == 0x81 { payload } else { &[] };
        Some((said, &bytes[begins + length..]))
    }
}
