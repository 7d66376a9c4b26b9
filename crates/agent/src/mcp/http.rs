//! The MCP library's HTTP client with size limits: the library itself reads a JSON response whole, however
//! long it is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::http_header::{EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::connection::MCP_FRAME_BYTES_MAX;
use super::one_line_excerpt;

/// How much of an error response is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 5;
/// Headers that the protocol itself sets.
const RESERVED: [&str; 4] = ["accept", "content-type", "last-event-id", "mcp-session-id"];

type TransportError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// The transport for an address. Headers of an entry may be secrets, so they are sent only to that address.
pub(super) fn transport(
    url: &Arc<str>,
    headers: &[(String, String)],
) -> Result<StreamableHttpClientTransport<LimitedHttpClient>, String> {
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("could not parse the URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("the URL must begin with http:// or https://".into());
    }
    let mut named = Headers::new();
    for (name, value) in headers {
        let wrong = || format!("the header {} cannot be sent", one_line_excerpt(name, 64));
        let name: HeaderName = name.parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        if RESERVED.contains(&name.as_str()) {
            return Err(wrong());
        }
        named.insert(name, value);
    }
    crate::model::use_ring();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::custom(stay))
        .build()
        .map_err(|error| format!("could not connect: {error}"))?;
    let config = StreamableHttpClientTransportConfig::with_uri(Arc::clone(url)).custom_headers(named);
    Ok(StreamableHttpClientTransport::with_client(LimitedHttpClient(client), config))
}

fn stay(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    // Other redirects would lose the request body.
    let whole = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if same && whole && attempt.previous().len() <= REDIRECTS_MAX { attempt.follow() } else { attempt.stop() }
}

#[derive(Clone)]
pub(super) struct LimitedHttpClient(reqwest::Client);

impl StreamableHttpClient for LimitedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let mut headers: HeaderMap = custom_headers.into_iter().collect();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_MIME_TYPE));
        let in_session = session_id.is_some();
        let mut request = self.0.post(uri.as_ref()).headers(headers).body(serde_json::to_vec(&message)?);
        if let Some(session) = session_id {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = request.send().await.map_err(|error| TransportError::Client(error.without_url()))?;
        let wants_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if in_session => Err(TransportError::SessionExpired),
            status if !status.is_success() => read_error(response).await,
            _ => read_response(response, wants_answer).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), TransportError> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, TransportError> {
        let max = MCP_FRAME_BYTES_MAX;
        let (session, last) = (session_id, last_event_id);
        let client = &self.0;
        client.get_stream_with_max_sse_event_size(uri, session, last, auth_header, custom_headers, max).await
    }
}

async fn read_response(
    response: Response,
    wants_answer: bool,
) -> Result<StreamableHttpPostResponse, TransportError> {
    let text = |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kind = text(response.headers().get(CONTENT_TYPE));
    let session = text(response.headers().get(HEADER_SESSION_ID));
    match kind.as_deref() {
        Some(kind) if kind.starts_with(EVENT_STREAM_MIME_TYPE) => {
            Ok(StreamableHttpPostResponse::Sse(events(response), session))
        }
        Some(kind) if kind.starts_with(JSON_MIME_TYPE) => {
            let body = read_body(response, MCP_FRAME_BYTES_MAX).await?;
            match serde_json::from_slice(&body) {
                Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
                Err(_) if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
                Err(error) => Err(unexpected(format!("could not read its answer: {error}"))),
            }
        }
        _ if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
        _ => Err(TransportError::UnexpectedContentType(kind.map(|kind| one_line_excerpt(&kind, 100)))),
    }
}

/// An error response may contain a JSON-RPC error.
async fn read_error(response: Response) -> Result<StreamableHttpPostResponse, TransportError> {
    let status = response.status();
    let body = read_body(response, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    match serde_json::from_slice(&body) {
        Ok(error @ ServerJsonRpcMessage::Error(_)) if !matches!(status.as_u16(), 401 | 403) => {
            Ok(StreamableHttpPostResponse::Json(error, None))
        }
        _ => Err(unexpected(format!(
            "HTTP {status} {}",
            one_line_excerpt(&String::from_utf8_lossy(&body), 200)
        ))),
    }
}

async fn read_body(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, TransportError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| TransportError::Client(error.without_url()))?
    {
        if body.len() + chunk.len() > bytes_max {
            return Err(unexpected(format!("its answer is larger than {} MiB", bytes_max >> 20)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Events up to the end of the response, or to the first that is too large.
fn events(response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
    let (mut event_bytes, mut line_is_empty) = (0usize, true);
    let bounded = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| io::Error::other(error.without_url()))?;
        for byte in &chunk {
            match byte {
                b'\n' if line_is_empty => event_bytes = 0,
                b'\n' => line_is_empty = true,
                b'\r' => {}
                _ => line_is_empty = false,
            }
            event_bytes += 1;
        }
        if event_bytes > MCP_FRAME_BYTES_MAX {
            return Err(io::Error::other(format!(
                "an event is larger than {} MiB",
                MCP_FRAME_BYTES_MAX >> 20
            )));
        }
        Ok(chunk)
    });
    SseStream::from_bytes_stream(bounded).boxed()
}

fn unexpected(text: String) -> TransportError {
    TransportError::UnexpectedServerResponse(Cow::Owned(text))
}
