//! Where the hub is found, and what follows from that: links, cookies, and whom passkeys are made for.

use access::{BadName, Origin, cookie_of};
use axum::http::header::{ORIGIN, UPGRADE};
use axum::http::{HeaderMap, HeaderValue};

/// The longest that browsers keep a cookie. How long one is good for is decided here, by when it was last shown.
const COOKIE_SECONDS: u32 = 400 * 24 * 60 * 60;

/// The public address.
#[derive(Debug, Clone)]
pub(super) struct Place {
    origin: Origin,
    written: String,
}

/// Whose key a cookie holds. Each has a name of its own, so that who is signed in and follows a link to
/// somebody else's session is still signed in afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Jar {
    Person,
    Share,
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, BadName> {
        let origin: Origin = url.trim_end_matches('/').parse()?;
        let written = origin.to_string();
        Ok(Self { origin, written })
    }

    /// Without a final slash.
    pub(super) fn url(&self) -> &str {
        &self.written
    }

    /// What passkeys are bound to. Browsers make none for an address of numbers, nor on a page without TLS
    /// but for this machine's own name.
    pub(super) fn relying_party(&self) -> Option<&str> {
        let name = self.origin.name();
        let is_number = name.starts_with('[') || name.split('.').all(|part| part.parse::<u8>().is_ok());
        let trusted = self.origin.is_secure() || name == "localhost" || name.ends_with(".localhost");
        (trusted && !is_number).then_some(name)
    }

    /// Whether one of our own pages says something. Browsers say which page it is with everything but a
    /// plain reading.
    pub(super) fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let own = origins.next().is_some_and(|origin| origin.as_bytes() == self.written.as_bytes());
        own && origins.next().is_none()
    }

    /// Whether a cookie counts: what another page makes a browser send is not said by who has the cookie.
    pub(super) fn trusts_cookies_of(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(ORIGIN) {
            return self.is_own_page(headers);
        }
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        !headers.contains_key(UPGRADE) && site.is_none_or(|site| matches!(site, b"same-origin" | b"none"))
    }

    pub(super) fn key(&self, headers: &HeaderMap, jar: Jar) -> Option<String> {
        cookie_of(headers, &self.cookie_name(jar))
    }

    /// What keeps a key in the browser, or forgets it.
    pub(super) fn cookie(&self, jar: Jar, key: Option<&str>) -> Option<HeaderValue> {
        let age = if key.is_some() { COOKIE_SECONDS } else { 0 };
        let secure = if self.origin.is_secure() { "; Secure" } else { "" };
        let (name, key) = (self.cookie_name(jar), key.unwrap_or_default());
        let text = format!("{name}={key}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
        HeaderValue::from_str(&text).ok()
    }

    /// Over TLS with the prefix that keeps other hosts of the same domain from setting it; else with the port,
    /// because browsers keep one set of cookies for all ports of a host.
    fn cookie_name(&self, jar: Jar) -> String {
        let suffix = match jar {
            Jar::Person => "",
            Jar::Share => "-share",
        };
        if self.origin.is_secure() {
            return format!("__Host-ropewalk-hub{suffix}");
        }
        format!("ropewalk-hub-{}{suffix}", self.origin.port())
    }
}

#[cfg(test)]
mod tests {
    use testkit::router::headers;

    use super::*;

    fn place(url: &str) -> Place {
        Place::parse(url).unwrap()
    }

    #[test]
    fn passkeys_are_made_for_a_name_that_browsers_trust() {
        assert_eq!(place("https://hub.example.org:8443/").relying_party(), Some("hub.example.org"));
        assert_eq!(place("http://localhost:8090").relying_party(), Some("localhost"));
        for none in
            ["http://hub.example.org", "https://10.0.0.1", "http://127.0.0.1:8090", "https://[::1]:8090"]
        {
            assert_eq!(place(none).relying_party(), None, "{none}");
        }
        for bad in ["hub.example.org", "https://hub.example.org/app", "ftp://hub.example.org", ""] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn over_tls_the_cookie_has_the_prefix_that_other_hosts_cannot_set() {
        let cookie = place("https://hub.example.org").cookie(Jar::Person, Some("k")).unwrap();
        assert_eq!(
            cookie,
            "__Host-ropewalk-hub=k; HttpOnly; SameSite=Strict; Path=/; Max-Age=34560000; Secure"
        );
        let cookie = place("http://127.0.0.1:8090").cookie(Jar::Share, None).unwrap();
        assert_eq!(cookie, "ropewalk-hub-8090-share=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    }

    #[test]
    fn a_cookie_counts_only_if_no_other_page_can_have_sent_it() {
        let hub = place("https://hub.example.org");
        let own = ("origin", "https://hub.example.org");
        for good in [&[own][..], &[own, ("upgrade", "websocket")], &[], &[("sec-fetch-site", "same-origin")]]
        {
            assert!(hub.trusts_cookies_of(&headers(good)), "{good:?}");
        }
        for bad in [
            &[("origin", "https://evil.example.org")][..],
            &[("origin", "http://hub.example.org")],
            &[("origin", "https://hub.example.org:8443")],
            &[("origin", "null")],
            &[own, own],
            &[("upgrade", "websocket")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
        ] {
            assert!(!hub.trusts_cookies_of(&headers(bad)), "{bad:?}");
        }
    }
}
