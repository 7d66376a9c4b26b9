//! A request as the mock provider received it.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Null where it was no JSON.
    pub body: Value,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The model that is asked, wherever this language says it.
    pub(super) fn model(&self) -> String {
        let in_path = self.path.split("/models/").nth(1).and_then(|rest| rest.split(':').next());
        let in_body = self.body["model"].as_str();
        in_body.or(in_path).unwrap_or("mock").to_owned()
    }
}

/// The same with its body as raw bytes.
pub(crate) struct RawRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Reads one request, or nothing if there is none.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let RawRequest { method, path, headers, body } = read_raw(stream).await?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(ReceivedRequest { method, path, headers, body })
}

pub(crate) async fn read_raw(stream: &mut (impl AsyncRead + Unpin)) -> Option<RawRequest> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > HEAD_BYTES_MAX || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut body = bytes.split_off(head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse::<usize>().ok()).unwrap_or(0).min(BODY_BYTES_MAX);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(RawRequest { method, path, headers, body })
}
