//! As much of NATS as wake-ups need: one subject that a process tells and hears.
//!
//! Lines of text with a payload after two of them. Everything that a server sends has a limit, and a server that
//! breaks it, or is silent when asked whether it is there, is left.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::sql::DbError;

/// A server tells of all servers of its cluster in its first line.
const LINE_BYTES_MAX: u64 = 64 * 1024;
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
const CONNECT_MAX: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(6);

#[derive(Clone)]
pub(super) struct Address {
    host: String,
    user: Option<(String, Option<String>)>,
}

impl Address {
    /// `nats://HOST[:PORT]`, with `TOKEN@` or `USER:PASSWORD@` before the host.
    pub(super) fn parse(url: &str) -> Result<Self, DbError> {
        let wrong = || DbError::Failed {
            reason: "the bus must look like nats://HOST:4222, nats://TOKEN@HOST:4222 or \
                     nats://USER:PASSWORD@HOST:4222; TLS is not spoken to it"
                .into(),
        };
        let rest = url.strip_prefix("nats://").ok_or_else(wrong)?.trim_end_matches('/');
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        if host.is_empty() || host.contains(['/', '?', '#']) {
            return Err(wrong());
        }
        let port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if port { host.to_owned() } else { format!("{host}:4222") };
        let user = user.map(|user| match user.split_once(':') {
            Some((name, password)) => (name.to_owned(), Some(password.to_owned())),
            None => (user.to_owned(), None),
        });
        Ok(Self { host, user })
    }

    fn greeting(&self) -> String {
        let mut hello = serde_json::json!({
            "verbose": false, "pedantic": false, "echo": false, "lang": "rust", "protocol": 1,
            "name": "ropewalk", "version": env!("CARGO_PKG_VERSION"),
        });
        match &self.user {
            Some((name, Some(password))) => {
                hello["user"] = name.as_str().into();
                hello["pass"] = password.as_str().into();
            }
            Some((token, None)) => hello["auth_token"] = token.as_str().into(),
            None => {}
        }
        format!("CONNECT {hello}\r\n")
    }
}

/// What a server said.
enum Said {
    Message(Vec<u8>),
    Ping,
    Pong,
    Nothing,
}

pub(super) struct Line {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
    subject: String,
}

impl Line {
    pub(super) async fn open(address: &Address, subject: &str) -> Result<Self, String> {
        match tokio::time::timeout(CONNECT_MAX, Self::greet(address, subject)).await {
            Ok(opened) => opened,
            Err(_) => Err("it does not answer".into()),
        }
    }

    async fn greet(address: &Address, subject: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(&address.host).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (from, to) = stream.into_split();
        let mut line = Self { from: BufReader::new(from), to, subject: subject.to_owned() };
        let first = line.line().await?;
        let info = first.strip_prefix("INFO ").ok_or("it is no NATS server")?;
        let info: serde_json::Value = serde_json::from_str(info).map_err(|error| error.to_string())?;
        if info["tls_required"] == true {
            return Err("it wants TLS, which is not spoken to a bus".into());
        }
        line.send(&format!("{}SUB {subject} 1\r\nPING\r\n", address.greeting())).await?;
        // A server that does not let us in says so instead.
        while !matches!(line.next().await?, Said::Pong) {}
        Ok(line)
    }

    /// Carries messages until something goes wrong, and says what.
    pub(super) async fn serve(
        &mut self,
        messages: &mut mpsc::Receiver<String>,
        mut hear: impl FnMut(&[u8]),
    ) -> String {
        let Self { from, to, subject } = self;
        // Reading in the middle of a message must not be given up, so it has a future of its own.
        let (said, mut hears) = mpsc::channel(16);
        let reading = async {
            loop {
                match next(from).await {
                    Ok(one) => drop(said.send(one).await),
                    Err(reason) => return reason,
                }
            }
        };
        let writing = async {
            let mut heard_at = Instant::now();
            let mut ask = tokio::time::interval(ASK_EVERY);
            loop {
                let frame = tokio::select! {
                    Some(one) = hears.recv() => {
                        heard_at = Instant::now();
                        match one {
                            Said::Message(payload) => {
                                hear(&payload);
                                continue;
                            }
                            Said::Ping => "PONG\r\n".to_owned(),
                            Said::Pong | Said::Nothing => continue,
                        }
                    }
                    Some(message) = messages.recv() => {
                        format!("PUB {subject} {}\r\n{message}\r\n", message.len())
                    }
                    _ = ask.tick() => "PING\r\n".to_owned(),
                };
                let written = tokio::time::timeout(SILENCE_MAX, to.write_all(frame.as_bytes())).await;
                if heard_at.elapsed() > SILENCE_MAX || !matches!(written, Ok(Ok(()))) {
                    return "it does not answer any more".to_owned();
                }
            }
        };
        tokio::select! {
            reason = reading => reason,
            reason = writing => reason,
        }
    }

    async fn send(&mut self, text: &str) -> Result<(), String> {
        self.to.write_all(text.as_bytes()).await.map_err(|error| error.to_string())
    }

    async fn next(&mut self) -> Result<Said, String> {
        next(&mut self.from).await
    }

    async fn line(&mut self) -> Result<String, String> {
        line(&mut self.from).await
    }
}

async fn line(from: &mut BufReader<OwnedReadHalf>) -> Result<String, String> {
    let mut line = Vec::new();
    let read = from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
    read.map_err(|error| error.to_string())?;
    match line.pop() {
        Some(b'\n') => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
        Some(_) => Err("a line without an end".into()),
        None => Err("it hung up".into()),
    }
}

/// One line, and the payload that may come with it.
async fn next(from: &mut BufReader<OwnedReadHalf>) -> Result<Said, String> {
    let line = line(from).await?;
    let mut words = line.split_ascii_whitespace();
    Ok(match words.next().map(str::to_ascii_uppercase).as_deref() {
        Some("MSG") => {
            let bytes = words.next_back().and_then(|count| count.parse::<usize>().ok());
            let bytes =
                bytes.filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX).ok_or("a message without a size")?;
            let mut payload = vec![0; bytes + 2];
            from.read_exact(&mut payload).await.map_err(|error| error.to_string())?;
            payload.truncate(bytes);
            Said::Message(payload)
        }
        Some("PING") => Said::Ping,
        Some("PONG") => Said::Pong,
        Some("-ERR") => return Err(format!("it refused: {}", line.trim_start_matches("-ERR").trim())),
        _ => Said::Nothing,
    })
}
