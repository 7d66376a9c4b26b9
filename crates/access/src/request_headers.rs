//! What the gate reads from a request. Whatever could be read in two ways is refused.

use std::borrow::Cow;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::hosts_and_origins::HostName;
use crate::refusal::Refusal;

/// What clients without headers, that is browsers with a WebSocket, put before their token.
const WS_BEARER: &str = "bearer.";
/// Names of parameters that people try to put tokens into.
const TOKEN_PARAMETERS: [&str; 4] = ["token", "access_token", "auth_token", "session_token"];

fn bad(code: &'static str, message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, code, message)
}

/// The name that the caller believes to talk to. HTTP/2 has it in the address; where it stands in
/// both places it must be the same.
pub fn host(request: &Request) -> Result<HostName, Refusal> {
    let broken = || bad("bad_host", "send the header `Host` once, with the name and port of this server");
    let header = single(request.headers(), &HOST).map_err(|_| broken())?;
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let text = match (header, authority) {
        (Some(header), Some(authority)) if header != authority => return Err(broken()),
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) => return Err(broken()),
    };
    let forbidden = "this server does not answer to this host name";
    text.parse().map_err(|_| Refusal::new(StatusCode::FORBIDDEN, "host_not_allowed", forbidden))
}

pub fn origin(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    single(headers, &ORIGIN).map_err(|_| {
        Refusal::new(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "send at most one `Origin` header, in plain text",
        )
    })
}

struct Unclear;

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Unclear> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Unclear);
    }
    first.map(HeaderValue::to_str).transpose().map_err(|_| Unclear)
}

/// Addresses end up in logs, histories and other servers' logs: a token must not be in one.
pub fn no_token_in_url(uri: &Uri) -> Result<(), Refusal> {
    let names = uri.query().unwrap_or_default().split(['&', ';']).map(|pair| pair.split('=').next());
    let is_token =
        |name: &str| TOKEN_PARAMETERS.iter().any(|known| decoded(name).eq_ignore_ascii_case(known));
    if names.flatten().any(is_token) {
        let message = "a token must not be part of the URL; send the header `Authorization: Bearer TOKEN`";
        return Err(bad("token_in_url", message));
    }
    Ok(())
}

/// `%74oken` is `token`.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The token of the request, which has none afterwards: what a route does not have, it cannot log.
pub fn take_token(headers: &mut HeaderMap) -> Result<Option<String>, Refusal> {
    let unclear = || bad("bad_authorization", "send the header `Authorization: Bearer TOKEN` once");
    let token = match single(headers, &AUTHORIZATION).map_err(|_| unclear())? {
        Some(text) => {
            let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
            Some(if scheme.eq_ignore_ascii_case("bearer") { token.trim().to_owned() } else { String::new() })
        }
        None => None,
    };
    headers.remove(AUTHORIZATION);
    let offered = take_offered(headers)?;
    Ok(token.or(offered))
}

pub fn wants_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Somebody followed a link to one of our pages, in a window of its own. Browsers say so themselves.
pub fn is_navigation(request: &Request) -> bool {
    let says = |name: &str, word: &[u8]| request.headers().get(name).is_some_and(|value| value == word);
    request.method() == Method::GET
        && says("sec-fetch-mode", b"navigate")
        && says("sec-fetch-dest", b"document")
}

/// A browser cannot set headers on a WebSocket: there the token may be one of the sub-protocols that
/// it offers.
fn take_offered(headers: &mut HeaderMap) -> Result<Option<String>, Refusal> {
    if !wants_websocket(headers) || !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Ok(None);
    }
    let unclear = || bad("bad_protocols", "offer the sub-protocols `acp.v1` and `bearer.TOKEN`, each once");
    let mut offered = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| unclear())?;
        offered.extend(text.split(',').map(|name| name.trim().to_owned()));
    }
    let (tokens, others): (Vec<_>, Vec<_>) =
        offered.into_iter().partition(|name| name.starts_with(WS_BEARER));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if !others.is_empty() {
        let others = HeaderValue::from_str(&others.join(", ")).map_err(|_| unclear())?;
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
    match tokens.as_slice() {
        [] => Ok(None),
        [token] => Ok(Some(token[WS_BEARER.len()..].to_owned())),
        [..] => Err(unclear()),
    }
}

/// The session that a path is about: `/session/ID`, `/sessions/ID` and what is below.
pub fn session_segment(path: &str) -> Option<&str> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let first = segments.next()?;
    segments.next().filter(|id| matches!(first, "session" | "sessions") && !id.is_empty())
}

/// Forms of foreign pages can be sent without asking, JSON cannot.
pub fn must_be_json(request: &Request) -> Result<(), Refusal> {
    if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        return Ok(());
    }
    let refused = || {
        let message = "send JSON, with the header `Content-Type: application/json`";
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    };
    match single(request.headers(), &CONTENT_TYPE).map_err(|_| refused())? {
        None if request.body().is_end_stream() => Ok(()),
        None => Err(refused()),
        Some(text) => {
            let kind = text.split(';').next().unwrap_or_default().trim();
            if kind.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(refused()) }
        }
    }
}

pub fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn token(pairs: &[(&'static str, &str)]) -> Result<Option<String>, &'static str> {
        take_token(&mut headers(pairs)).map_err(|refusal| refusal.1)
    }

    #[test]
    fn a_token_is_read_where_it_may_stand() {
        let t = || Ok(Some("t".to_owned()));
        assert_eq!(token(&[("authorization", "Bearer t")]), t());
        assert_eq!(token(&[("authorization", "bearer  t ")]), t());
        assert_eq!(token(&[]), Ok(None));
        let ws = ("upgrade", "websocket");
        assert_eq!(token(&[ws, ("sec-websocket-protocol", "acp.v1, bearer.t")]), t());
        assert_eq!(
            token(&[ws, ("sec-websocket-protocol", "bearer.t"), ("sec-websocket-protocol", "acp.v1")]),
            t()
        );
        assert_eq!(token(&[ws, ("sec-websocket-protocol", "bearer.x"), ("authorization", "Bearer t")]), t());
        assert_eq!(token(&[("sec-websocket-protocol", "acp.v1, bearer.t")]), Ok(None));
    }

    #[test]
    fn what_is_no_token_is_a_wrong_one_and_two_are_refused() {
        for wrong in ["Bearer", "Bearer ", "Basic dDp0", "t", "Bearert"] {
            assert_eq!(token(&[("authorization", wrong)]), Ok(Some(String::new())), "{wrong}");
        }
        assert_eq!(
            token(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]),
            Err("bad_authorization")
        );
        let two = ("sec-websocket-protocol", "bearer.a, bearer.b");
        assert_eq!(token(&[("upgrade", "websocket"), two]), Err("bad_protocols"));
    }

    #[test]
    fn a_route_never_sees_the_token() {
        let mut all = headers(&[
            ("authorization", "Bearer t"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-protocol", "bearer.t, acp.v1, other"),
        ]);
        take_token(&mut all).unwrap();
        assert!(!all.contains_key("authorization"));
        assert_eq!(all["sec-websocket-protocol"], "acp.v1, other");
    }

    #[test]
    fn a_token_in_an_address_is_found_however_it_is_written() {
        for bad in ["?token=x", "?a=1&access_token=x", "?%74oken=x", "?TOKEN=x", "?a;token=x", "?token"] {
            assert!(no_token_in_url(&format!("/acp{bad}").parse().unwrap()).is_err(), "{bad}");
        }
        for good in ["", "?", "?tokens=1", "?since=token", "?%zz=1", "?a=%74oken"] {
            assert!(no_token_in_url(&format!("/acp{good}").parse().unwrap()).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_session_of_a_path_is_its_second_part() {
        assert_eq!(session_segment("/session/a"), Some("a"));
        assert_eq!(session_segment("/sessions/a/messages"), Some("a"));
        for none in ["/session", "/session/", "/acp/a", "/", "", "session/a", "//session/a", "/xsession/a"] {
            assert_eq!(session_segment(none), None, "{none}");
        }
    }
}
