//! Model servers on this machine: Ollama, LM Studio, llama-server.
//!
//! A closed port refuses at once; any other has a moment to answer. The result is cached in a small file, so that a start
//! need not wait for a probe.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agent::Wire;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::MissingProvider;
use crate::paths;

/// From connecting to the last byte of the response.
const TIMEOUT: Duration = Duration::from_millis(200);
const ANSWER_BYTES_MAX: usize = 1 << 20;
const MODELS_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 200;
const OLLAMA_PORT: &str = "11434";

/// A server that answered, and its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    pub name: &'static str,
    pub base_url: String,
    pub models: Vec<String>,
}

impl LocalServer {
    pub const NAMES: [&'static str; 3] = ["ollama", "lmstudio", "llamacpp"];

    pub fn wire(&self) -> Wire {
        if self.name == "ollama" { Wire::Ollama } else { Wire::Chat }
    }

    /// Without the scheme and path.
    pub fn address(&self) -> &str {
        let rest = self.base_url.strip_prefix("http://").unwrap_or(&self.base_url);
        rest.split('/').next().unwrap_or(rest)
    }

    pub fn missing(name: &str) -> MissingProvider {
        let address = address_of(name);
        let why = format!("no server at {address}");
        let fix = match name {
            "ollama" => "start `ollama serve`, or set OLLAMA_HOST",
            "lmstudio" => "start the server in LM Studio",
            _ => "start `llama-server --jinja -m MODEL.gguf`",
        };
        MissingProvider { name: name.to_owned(), why, fix: fix.to_owned() }
    }
}

/// Whether a model id names a local server.
pub fn names(wish: &str) -> bool {
    LocalServer::NAMES.iter().any(|name| wish.split(':').next() == Some(name))
}

/// Whether an address is on this machine.
pub fn is_here(base_url: &str) -> bool {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    host == "localhost"
        || host == "[::1]"
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// The result of the last probe, if there was one.
pub fn remembered() -> Option<Vec<LocalServer>> {
    let text = std::fs::read_to_string(file().ok()?).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let servers = value["servers"].as_array()?;
    Some(servers.iter().filter_map(read).collect())
}

/// Probes all servers in parallel, and caches the result.
pub async fn refresh() -> Vec<LocalServer> {
    let [ollama, lmstudio, llamacpp] = LocalServer::NAMES.map(ask);
    let (ollama, lmstudio, llamacpp) = tokio::join!(ollama, lmstudio, llamacpp);
    let found: Vec<LocalServer> = [ollama, lmstudio, llamacpp].into_iter().flatten().collect();
    if let Err(error) = remember(&found) {
        tracing::debug!(%error, "could not cache the local model servers");
    }
    found
}

fn remember(found: &[LocalServer]) -> io::Result<()> {
    let file = file()?;
    let servers: Vec<_> = found
        .iter()
        .map(|local| json!({ "name": local.name, "base_url": local.base_url, "models": local.models }))
        .collect();
    let text = json!({ "version": 1, "servers": servers }).to_string();
    if std::fs::read_to_string(&file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Replaced atomically: another process may be reading it.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, text)?;
    std::fs::rename(new, file)
}

fn file() -> io::Result<PathBuf> {
    let state = paths::state().map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(state.join("local-models.json"))
}

fn read(value: &Value) -> Option<LocalServer> {
    let name = LocalServer::NAMES.into_iter().find(|name| value["name"] == *name)?;
    let base_url = value["base_url"].as_str().filter(|url| url.starts_with("http://"))?.to_owned();
    let models = value["models"].as_array()?.iter().filter_map(Value::as_str);
    Some(LocalServer { name, base_url, models: models.map(str::to_owned).collect() })
}

/// The default address of a server of this kind.
fn address_of(name: &str) -> String {
    match name {
        "ollama" => ollama_address(),
        "lmstudio" => "127.0.0.1:1234".into(),
        _ => "127.0.0.1:8080".into(),
    }
}

/// `OLLAMA_HOST` may be a host, a host with a port, or a URL. 0.0.0.0 includes this machine.
fn ollama_address() -> String {
    let host = paths::variable("OLLAMA_HOST").and_then(|host| host.into_string().ok());
    let host = host.unwrap_or_default();
    let host = host.split_once("://").map_or(host.as_str(), |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port),
        _ => (host, OLLAMA_PORT),
    };
    let host = if host.is_empty() || host == "0.0.0.0" { "127.0.0.1" } else { host };
    format!("{host}:{port}")
}

async fn ask(name: &'static str) -> Option<LocalServer> {
    let address = address_of(name);
    let (path, base) = if name == "ollama" { ("/api/tags", "") } else { ("/v1/models", "/v1") };
    let answer = tokio::time::timeout(TIMEOUT, get(&address, path)).await.ok()??;
    let value: Value = serde_json::from_slice(&answer).ok()?;
    let (list, key) = if name == "ollama" { (&value["models"], "name") } else { (&value["data"], "id") };
    let good = |model: &&str| model.len() <= NAME_BYTES_MAX && !model.chars().any(char::is_control);
    let models = list.as_array()?.iter().filter_map(|model| model[key].as_str()).filter(good);
    let models =
        models.filter(|model| !model.contains("embed")).take(MODELS_MAX).map(str::to_owned).collect();
    Some(LocalServer { name, base_url: format!("http://{address}{base}"), models })
}

async fn get(address: &str, path: &str) -> Option<Bytes> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = Request::get(path).header(HOST, address).body(Empty::<Bytes>::new()).ok()?;
    let talk = async {
        let response = sender.send_request(request).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
        Some(body.to_bytes())
    };
    tokio::pin!(connection);
    tokio::pin!(talk);
    tokio::select! {
        answer = &mut talk => answer,
        _ = &mut connection => talk.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_here_and_nothing_else_is() {
        for here in
            ["http://127.0.0.1:1234/v1", "http://localhost:8080", "http://[::1]:9/v1", "http://127.9.9.9"]
        {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in [
            "https://api.openai.com/v1",
            "http://10.0.0.1:1234",
            "http://127.0.0.1.evil.com/",
            "http://[::2]:1",
        ] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn only_what_was_written_by_us_is_remembered() {
        let good = json!({ "name": "ollama", "base_url": "http://127.0.0.1:11434", "models": ["a", 1] });
        assert_eq!(read(&good).unwrap().models, ["a"]);
        assert_eq!(read(&good).unwrap().address(), "127.0.0.1:11434");
        assert_eq!(read(&json!({ "name": "other", "base_url": "http://x", "models": [] })), None);
        assert_eq!(read(&json!({ "name": "ollama", "base_url": "file:///x", "models": [] })), None);
    }
}
