//! The hub's public URL, and what depends on it: links, cookies, and the relying party of passkeys.

use access::{BadName, Origin, cookie_of};
use axum::http::header::{ORIGIN, UPGRADE};
use axum::http::{HeaderMap, HeaderValue};

/// The longest that browsers keep a cookie. How long its key is valid is decided here, by when it was last used.
const COOKIE_SECONDS: u32 = 400 * 24 * 60 * 60;

/// The hub's public URL.
#[derive(Debug, Clone)]
pub(super) struct PublicUrl {
    origin: Origin,
    text: String,
}

/// What a cookie's key is for. Each kind has a cookie name of its own, so that a person who opens a link to somebody
/// else's session stays signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CookieKind {
    Person,
    Share,
}

impl PublicUrl {
    pub(super) fn parse(url: &str) -> Result<Self, BadName> {
        let origin: Origin = url.trim_end_matches('/').parse()?;
        let text = origin.to_string();
        Ok(Self { origin, text })
    }

    /// Without a final slash.
    pub(super) fn url(&self) -> &str {
        &self.text
    }

    /// The host name that passkeys are bound to. Browsers make no passkeys for IP addresses, nor without TLS except for
    /// `localhost`.
    pub(super) fn relying_party(&self) -> Option<&str> {
        let name = self.origin.name();
        let is_number = name.starts_with('[') || name.split('.').all(|part| part.parse::<u8>().is_ok());
        let trusted = self.origin.is_secure() || name == "localhost" || name.ends_with(".localhost");
        (trusted && !is_number).then_some(name)
    }

    /// Whether a request comes from one of our own pages. Browsers send the origin with every request but a plain GET.
    pub(super) fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let own = origins.next().is_some_and(|origin| origin.as_bytes() == self.text.as_bytes());
        own && origins.next().is_none()
    }

    /// Whether the cookies of a request count: they do not, if another site's page may have caused the request.
    pub(super) fn trusts_cookies_of(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(ORIGIN) {
            return self.is_own_page(headers);
        }
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        !headers.contains_key(UPGRADE) && site.is_none_or(|site| matches!(site, b"same-origin" | b"none"))
    }

    pub(super) fn key(&self, headers: &HeaderMap, cookie_kind: CookieKind) -> Option<String> {
        cookie_of(headers, &self.cookie_name(cookie_kind))
    }

    /// The `Set-Cookie` value that stores a key in the browser, or deletes it.
    pub(super) fn cookie(&self, cookie_kind: CookieKind, key: Option<&str>) -> Option<HeaderValue> {
        let age = if key.is_some() { COOKIE_SECONDS } else { 0 };
        let secure = if self.origin.is_secure() { "; Secure" } else { "" };
        let (name, key) = (self.cookie_name(cookie_kind), key.unwrap_or_default());
        let text = format!("{name}={key}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
        HeaderValue::from_str(&text).ok()
    }

    /// With TLS, the name has the prefix that keeps other hosts of the domain from setting the cookie; without, it has the
    /// port, because browsers share cookies between all ports of a host.
    fn cookie_name(&self, cookie_kind: CookieKind) -> String {
        let suffix = match cookie_kind {
            CookieKind::Person => "",
            CookieKind::Share => "-share",
        };
        if self.origin.is_secure() {
            return format!("__Host-ropewalk-hub{suffix}");
        }
        format!("ropewalk-hub-{}{suffix}", self.origin.port())
    }
}

#[cfg(test)]
mod tests {
    use testkit::router_requests::headers;

    use super::*;

    fn public_url(url: &str) -> PublicUrl {
        PublicUrl::parse(url).unwrap()
    }

    #[test]
    fn passkeys_are_made_for_a_name_that_browsers_trust() {
        assert_eq!(public_url("https://hub.example.org:8443/").relying_party(), Some("hub.example.org"));
        assert_eq!(public_url("http://localhost:8090").relying_party(), Some("localhost"));
        for none in
            ["http://hub.example.org", "https://10.0.0.1", "http://127.0.0.1:8090", "https://[::1]:8090"]
        {
            assert_eq!(public_url(none).relying_party(), None, "{none}");
        }
        for bad in ["hub.example.org", "https://hub.example.org/app", "ftp://hub.example.org", ""] {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn over_tls_the_cookie_has_the_prefix_that_other_hosts_cannot_set() {
        let cookie = public_url("https://hub.example.org").cookie(CookieKind::Person, Some("k")).unwrap();
        assert_eq!(
            cookie,
            "__Host-ropewalk-hub=k; HttpOnly; SameSite=Strict; Path=/; Max-Age=34560000; Secure"
        );
        let cookie = public_url("http://127.0.0.1:8090").cookie(CookieKind::Share, None).unwrap();
        assert_eq!(cookie, "ropewalk-hub-8090-share=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    }

    #[test]
    fn a_cookie_counts_only_if_no_other_page_can_have_sent_it() {
        let hub = public_url("https://hub.example.org");
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
