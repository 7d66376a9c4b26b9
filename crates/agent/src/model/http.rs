//! HTTP to providers: the client, one request, and its errors.
//!
//! Redirects are not followed, because they would send the key elsewhere. Addresses, headers and keys are
//! kept out of all texts, because texts end up in logs.

use std::error::Error;
use std::sync::Once;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use super::ModelError;
use super::provider::{ProviderConfig, Timeouts};
use super::provider_error::ErrorReply;
use super::retry;
use crate::certificate_refusal;

const ERROR_BYTES_MAX: usize = 64 * 1024;
/// How long to wait for the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers in which providers give the request id.
const REQUEST_IDS: [&str; 4] = ["request-id", "x-request-id", "x-generation-id", "cf-ray"];

/// Why there is no reply to decode.
pub(super) enum NoReply {
    /// The provider answered with an error.
    Refused(ErrorReply),
    Failed(ModelError),
}

pub(super) fn client(base_url: &str, timeouts: Timeouts) -> Result<Client, String> {
    use_ring();
    let mut builder = Client::builder()
        .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .connect_timeout(timeouts.connect);
    if is_local(base_url) {
        // A model on this machine is never reached through a proxy.
        builder = builder.no_proxy();
    }
    builder.build().map_err(cause)
}

/// `reqwest` is built without a TLS crypto provider; this installs one, once per process.
pub(crate) fn use_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("a TLS crypto provider was already installed");
        }
    });
}

fn is_local(base_url: &str) -> bool {
    let host = Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Sends the request, and waits for the response headers.
pub(super) async fn ask(
    client: &Client,
    config: &ProviderConfig,
    url: &str,
    body: Vec<u8>,
) -> Result<Response, NoReply> {
    let url = Url::parse(url).map_err(|error| {
        failed(ModelError::permanent(format!(
            "{} has no usable base URL: {error}; it looks like https://models.example.com/v1",
            config.name
        )))
    })?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = format!("{}{port}", url.host_str().unwrap_or_default());
    let headers = headers(config).map_err(failed)?;
    let sent = client.post(url).headers(headers).body(body).send();
    let response = match tokio::time::timeout(config.timeouts.answer, sent).await {
        Err(_) => {
            let seconds = config.timeouts.answer.as_secs_f64();
            return Err(failed(ModelError::transient(format!(
                "{} has not answered for {seconds} s",
                config.name
            ))));
        }
        Ok(Err(error)) => {
            // Nothing listens on this machine, and a retry would not start it.
            let nobody = error.is_connect() && is_local(&config.base_url);
            let text = format!("{} cannot be reached at {host}: {}", config.name, cause(error));
            return Err(failed(if nobody {
                ModelError::permanent(format!("{text}; start it, or check its base URL"))
            } else {
                ModelError::transient(text)
            }));
        }
        Ok(Ok(response)) => response,
    };
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(NoReply::Refused(read_error_reply(response).await))
    }
}

/// The next bytes of a reply, `None` at its end. Cancel-safe.
pub(super) async fn piece(response: &mut Response) -> Result<Option<impl AsRef<[u8]> + use<>>, ModelError> {
    let piece = response.chunk().await;
    piece.map_err(|error| ModelError::transient(format!("the answer was cut off: {}", cause(error))))
}

pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_IDS.iter().find_map(|name| Some(headers.get(*name)?.to_str().ok()?.to_owned()))
}

fn failed(error: ModelError) -> NoReply {
    NoReply::Failed(error)
}

fn headers(config: &ProviderConfig) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("text/event-stream, application/x-ndjson, application/json"),
    );
    for (name, value) in config.wire.headers() {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    if let Some(key) = &config.key {
        let (name, before) = config.wire.key_header();
        headers.insert(name, secret(&format!("{before}{}", key.reveal()), config, "the key")?);
    }
    for (name, value) in &config.headers {
        let known = HeaderName::try_from(name.as_str()).map_err(|_| {
            ModelError::permanent(format!("{name:?} is not a valid header name ({})", config.name))
        })?;
        headers.insert(known, secret(value.reveal(), config, name)?);
    }
    Ok(headers)
}

fn secret(value: &str, config: &ProviderConfig, what: &str) -> Result<HeaderValue, ModelError> {
    let mut value = HeaderValue::try_from(value.trim()).map_err(|_| {
        ModelError::permanent(format!("{what} of {} holds characters that cannot be sent", config.name))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read_error_reply(mut response: Response) -> ErrorReply {
    let status = response.status().as_u16();
    let (request_id, retry_after) =
        (request_id(response.headers()), retry::requested_wait(response.headers()));
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(piece)) = response.chunk().await {
            let room = ERROR_BYTES_MAX - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == ERROR_BYTES_MAX {
                break;
            }
        }
    };
    if tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await.is_err() {
        tracing::debug!(status, "could not read the rest of an error response");
    }
    ErrorReply { status, body: String::from_utf8_lossy(&body).into_owned(), request_id, retry_after }
}

/// The innermost cause; the outer errors only repeat that the request failed, and its address.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut inner: &(dyn Error + 'static) = &error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    certificate_refusal::refusal_reason(inner).map_or_else(|| inner.to_string(), str::to_owned)
}
