//! The cookie of a device: how it is read, and how it is sent.
//!
//! Its name has the server's port in it, because browsers keep one set of cookies for all ports of a
//! host: two servers on a machine would sign each other's visitors out.

use axum::extract::Request;
use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue, Method};

use crate::devices::ABSENCE_MAX_MS;
use crate::hosts_and_origins::PageOrigin;
use crate::request_headers;

/// The routes of our own clients; the cookie goes nowhere else.
pub const ROOM: &str = "/ui";

pub fn name(port: u16) -> String {
    format!("ropewalk-{port}")
}

/// The key of the cookie with this name. The request has no cookies afterwards: what a route does not
/// have, it cannot log. With two of that name it is not clear which of them is ours, so none is: another
/// server of this host could have set the second.
pub fn take(headers: &mut HeaderMap, name: &str) -> Option<String> {
    let found = read(headers, name);
    headers.remove(COOKIE);
    found
}

/// The same for who must leave the request as it is.
pub fn read(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut found = Vec::new();
    for header in headers.get_all(COOKIE) {
        let pairs = header.to_str().unwrap_or_default().split(';');
        let ours = pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(key, _)| *key == name);
        found.extend(ours.map(|(_, value)| value.to_owned()));
    }
    if found.len() == 1 { found.pop() } else { None }
}

/// Whether a cookie counts here. Browsers add it to whatever asks, so it must be seen that one of our
/// own pages does: they say so with everything but a plain reading.
pub fn counts(request: &Request, page: Option<PageOrigin>) -> bool {
    let path = request.uri().path();
    if !path.strip_prefix(ROOM).is_some_and(|rest| rest.starts_with('/')) {
        return false;
    }
    match page {
        Some(PageOrigin::Own) => true,
        Some(PageOrigin::Named | PageOrigin::Foreign) => false,
        None => request.method() == Method::GET && !request_headers::wants_websocket(request.headers()),
    }
}

/// What keeps a key in the browser, or forgets it.
pub fn set(name: &str, key: Option<&str>, secure: bool) -> Option<HeaderValue> {
    let age = if key.is_some() { ABSENCE_MAX_MS / 1000 } else { 0 };
    let secure = if secure { "; Secure" } else { "" };
    let key = key.unwrap_or_default();
    let text = format!("{name}={key}; HttpOnly; SameSite=Strict; Path={ROOM}; Max-Age={age}{secure}");
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cookie_of_our_name_is_read_and_two_are_none() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.extend(values.iter().map(|value| (COOKIE, HeaderValue::from_static(value))));
            let key = take(&mut headers, "ropewalk-80");
            assert!(headers.get(COOKIE).is_none(), "a route never sees it");
            key
        };
        assert_eq!(read(&["ropewalk-80=k"]).as_deref(), Some("k"));
        assert_eq!(read(&["a=b; ropewalk-80=k; ropewalk-81=x"]).as_deref(), Some("k"));
        assert_eq!(read(&["a=b", "ropewalk-80=k"]).as_deref(), Some("k"));
        for none in
            [&["ropewalk-80=k; ropewalk-80=l"][..], &["ropewalk-80=k", "ropewalk-80=k"], &["ropewalk=k"], &[]]
        {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
