//! The delivery of one push: an HTTPS request to a push service, and what its answer means.
//!
//! The name of the service is looked up once, by us, and the connection goes to exactly the address that was looked
//! up and allowed; there is no second lookup whose answer could be another. Proxies of the
//! environment are not used: they would do the lookup out of our sight. Redirects are not followed, and
//! no body is read: the status says everything, and a hostile service cannot flood us with bytes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};

use super::note::PushNote;
use super::target::{PushAddressPolicy, PushTarget};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the lookup to the head of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Push services stay connected for those that come again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The outcome of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PostOutcome {
    Taken,
    /// There is no such subscription any more.
    Gone,
    /// It may be accepted later; the service may say when.
    Later {
        after: Option<Duration>,
        why: String,
    },
    /// It is not accepted, and would not be later either.
    Refused {
        why: String,
    },
}

pub(super) struct Poster {
    allowed: PushAddressPolicy,
    /// Made when it is first needed: it reads the machine's certificates.
    client: OnceLock<Result<Client, String>>,
}

impl Poster {
    pub(super) fn new(allowed: PushAddressPolicy) -> Self {
        Self { allowed, client: OnceLock::new() }
    }

    pub(super) async fn post(
        &self,
        target: &PushTarget,
        note: &PushNote,
        authorization: &str,
    ) -> PostOutcome {
        let Ok(body) = target.recipient.seal(&note.payload()) else {
            return PostOutcome::Refused { why: "it cannot be encrypted for this device".into() };
        };
        let Some(headers) = headers(note, authorization) else {
            return PostOutcome::Refused { why: "its headers cannot be sent".into() };
        };
        let made = self.client.get_or_init(|| client(self.allowed).map_err(|error| error.to_string()));
        let client = match made {
            Ok(client) => client,
            Err(error) => {
                return PostOutcome::Refused {
                    why: format!("could not create the HTTPS client for notifications: {error}"),
                };
            }
        };
        match client.post(target.url.clone()).headers(headers).body(body).send().await {
            Ok(response) => judged(response.status(), response.headers()),
            Err(error) => unsent(error),
        }
    }
}

fn client(allowed: PushAddressPolicy) -> reqwest::Result<Client> {
    choose_arithmetic();
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .dns_resolver(Arc::new(CheckedResolver(allowed)))
        .https_only(!allowed.loopback)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(1)
        .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
        .build()
}

fn headers(note: &PushNote, authorization: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut authorization = HeaderValue::from_str(authorization).ok()?;
    authorization.set_sensitive(true);
    headers.insert(AUTHORIZATION, authorization);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert("ttl", HeaderValue::from(note.ttl_seconds()));
    headers.insert("urgency", HeaderValue::from_static(note.urgency()));
    if let Some(topic) = note.topic() {
        headers.insert("topic", HeaderValue::from_str(&topic).ok()?);
    }
    Some(headers)
}

fn judged(status: StatusCode, headers: &HeaderMap) -> PostOutcome {
    let why = format!("the push service answered {}", status.as_u16());
    match status {
        status if status.is_success() => PostOutcome::Taken,
        StatusCode::NOT_FOUND | StatusCode::GONE => PostOutcome::Gone,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            PostOutcome::Later { after: asked_for(headers), why }
        }
        status if status.is_server_error() => PostOutcome::Later { after: asked_for(headers), why },
        _ => PostOutcome::Refused { why },
    }
}

/// In seconds; as a date it is left to our own patience.
fn asked_for(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn unsent(error: reqwest::Error) -> PostOutcome {
    // The address holds what makes a push to this device possible, so it stays out of every text.
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    loop {
        if let Some(NotPublic(_)) = cause.downcast_ref() {
            // Which one it is, is nobody's business who only has a name to ask about.
            return PostOutcome::Refused { why: "its push service is not at a public address".into() };
        }
        match cause.source() {
            Some(source) => cause = source,
            None => break,
        }
    }
    PostOutcome::Later { after: None, why: format!("its push service cannot be reached: {cause}") }
}

/// `reqwest` is built without arithmetic for TLS; this names it, unless somebody in the process has.
pub fn choose_arithmetic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ring = tokio_rustls::rustls::crypto::ring::default_provider();
        if ring.install_default().is_err() {
            tracing::debug!("a TLS crypto provider was already installed");
        }
    });
}

/// Resolves names, and refuses them unless every address may be connected to: no name has a public and a private
/// address by accident.
struct CheckedResolver(PushAddressPolicy);

/// Carried through the client's own errors.
#[derive(Debug, thiserror::Error)]
#[error("not a public address")]
struct NotPublic(IpAddr);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            if let Some(refused) = found.iter().find(|address| !allowed.lets(address.ip())) {
                return Err(NotPublic(refused.ip()).into());
            }
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, retry_after: Option<&'static str>) -> PostOutcome {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
        }
        judged(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn an_answer_says_whether_to_be_glad_to_forget_to_wait_or_to_give_up() {
        for status in [200, 201, 202, 204] {
            assert_eq!(outcome(status, None), PostOutcome::Taken, "{status}");
        }
        for status in [404, 410] {
            assert_eq!(outcome(status, None), PostOutcome::Gone, "{status}");
        }
        for status in [408, 429, 500, 502, 503] {
            assert!(matches!(outcome(status, None), PostOutcome::Later { after: None, .. }), "{status}");
        }
        for status in [301, 302, 307, 308, 400, 401, 403, 413] {
            assert!(matches!(outcome(status, None), PostOutcome::Refused { .. }), "{status}");
        }
    }

    #[test]
    fn a_service_may_say_when_to_come_again() {
        let after = |text| match outcome(429, Some(text)) {
            PostOutcome::Later { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("30"), Some(Duration::from_secs(30)));
        assert_eq!(after(" 5 "), Some(Duration::from_secs(5)));
        assert_eq!(after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(after("-1"), None);
        assert_eq!(after("99999999999999999999999"), None);
    }
}
