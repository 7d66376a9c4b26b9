//! Uploads a document to an address that the owner named, and says where it is then.
//!
//! **Invariant:** the token goes to that address and to no other, and never unencrypted beyond this
//! machine: redirects are not followed.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, Url};
use serde_json::Value;

use crate::devices::push::choose_arithmetic;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the first byte to the answer: a document may be large and the network slow.
const PATIENCE: Duration = Duration::from_secs(120);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Where a document goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadTarget {
    url: Url,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error("it is not an address like https://example.com/sessions")]
    NoAddress,
    #[error("it is plain http, so anyone on the network path can read the token and the session")]
    Plain,
    #[error("it must not contain a user name or password, which would show up in logs")]
    HasSecret,
}

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("could not connect to it: {0}")]
    Unreachable(String),
    #[error("it did not answer in time")]
    Slow,
    #[error("it answered {status}{}", .message.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Refused { status: u16, message: Option<String> },
}

/// What is sent.
#[derive(Debug)]
pub struct DocumentUpload {
    /// To exactly this address (PUT), or to a service that makes an address for it there (POST).
    pub put: bool,
    pub token: Option<String>,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl UploadTarget {
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        let url = Url::parse(text.trim()).map_err(|_| BadTarget::NoAddress)?;
        match url.scheme() {
            "https" => {}
            "http" if is_local(&url) => {}
            "http" => return Err(BadTarget::Plain),
            _ => return Err(BadTarget::NoAddress),
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(BadTarget::NoAddress);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadTarget::HasSecret);
        }
        Ok(Self { url })
    }

    /// Sends it and says where it is.
    pub async fn send(&self, upload: DocumentUpload) -> Result<String, UploadError> {
        choose_arithmetic();
        let unreachable = |error: reqwest::Error| UploadError::Unreachable(error.without_url().to_string());
        let mut client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")));
        if is_local(&self.url) {
            client = client.no_proxy();
        }
        let method = if upload.put { Method::PUT } else { Method::POST };
        let client = client.build().map_err(unreachable)?;
        let mut request = client.request(method, self.url.clone()).header(CONTENT_TYPE, upload.content_type);
        if let Some(token) = &upload.token {
            request = request.bearer_auth(token);
        }
        let sent = async {
            let response = request.body(upload.body).send().await.map_err(unreachable)?;
            let (status, location) = (response.status(), location(&response));
            let answer = read(response).await;
            Ok((status, location, answer))
        };
        let answered = tokio::time::timeout(PATIENCE, sent).await.map_err(|_| UploadError::Slow)?;
        let (status, location, answer) = answered?;
        let answer: Option<Value> = serde_json::from_slice(&answer).ok();
        if !status.is_success() {
            let message = answer.as_ref().and_then(|answer| answer["message"].as_str());
            return Err(UploadError::Refused {
                status: status.as_u16(),
                message: message.map(str::to_owned),
            });
        }
        let named = answer.as_ref().and_then(|answer| answer["url"].as_str()).map(str::to_owned);
        Ok(self.whereabouts(location.or(named).filter(|_| !upload.put).as_deref()))
    }

    /// What the other side called the place, or the address itself. A query may hold a signature, so it is
    /// left out of what is shown of our own address.
    fn whereabouts(&self, named: Option<&str>) -> String {
        let named = named.and_then(|named| self.url.join(named).ok());
        match named.filter(|url| matches!(url.scheme(), "https" | "http")) {
            Some(url) => url.to_string(),
            None => {
                let mut url = self.url.clone();
                url.set_query(None);
                url.set_fragment(None);
                url.to_string()
            }
        }
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn location(response: &Response) -> Option<String> {
    response.headers().get(LOCATION)?.to_str().ok().map(str::to_owned)
}

/// As much of the answer as is read. What breaks off says no more than its status.
async fn read(mut response: Response) -> Vec<u8> {
    let mut answer = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        let room = ANSWER_BYTES_MAX - answer.len();
        answer.extend_from_slice(&piece[..piece.len().min(room)]);
        if answer.len() == ANSWER_BYTES_MAX {
            break;
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_nowhere_in_the_clear() {
        for good in
            ["https://example.com/s?sig=1", "http://127.0.0.1:9/x", "http://[::1]:9/", "http://localhost/x"]
        {
            assert!(UploadTarget::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("http://example.com/s", BadTarget::Plain),
            ("http://127.0.0.1.example.com/", BadTarget::Plain),
            ("http://10.0.0.1/", BadTarget::Plain),
            ("https://me:secret@example.com/", BadTarget::HasSecret),
            ("ftp://example.com/", BadTarget::NoAddress),
            ("file:///etc/passwd", BadTarget::NoAddress),
            ("example.com", BadTarget::NoAddress),
            ("", BadTarget::NoAddress),
        ] {
            assert_eq!(UploadTarget::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn where_it_is_is_said_as_an_address() {
        let target = UploadTarget::parse("https://example.com/up?sig=secret").unwrap();
        assert_eq!(target.whereabouts(None), "https://example.com/up");
        assert_eq!(target.whereabouts(Some("/s/1")), "https://example.com/s/1");
        assert_eq!(target.whereabouts(Some("https://other.example/1")), "https://other.example/1");
        assert_eq!(target.whereabouts(Some("javascript:alert(1)")), "https://example.com/up");
    }
}
