//! The address of the receiver, and which addresses in its answers are trusted.
//!
//! The token goes to the host and port that a person named, and to no other: not to where an answer redirects,
//! not to a socket elsewhere, and not unencrypted unless that was asked for.

use reqwest::Url;

/// The address of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverAddress {
    /// Without a slash at its end.
    base: Url,
    insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("it is not an address like https://hub.example.com")]
    NoAddress,
    #[error("it is plain http, so anyone on the network path can read the token and the session")]
    Plain,
    #[error("it must not contain a user name or password, which would show up in logs")]
    HasSecret,
    #[error("it must not contain a query string or a fragment")]
    HasQuery,
}

impl ReceiverAddress {
    /// `insecure` lets plain http through.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, BadAddress> {
        let mut base = Url::parse(text.trim()).map_err(|_| BadAddress::NoAddress)?;
        match base.scheme() {
            "https" => {}
            "http" if insecure => {}
            "http" => return Err(BadAddress::Plain),
            _ => return Err(BadAddress::NoAddress),
        }
        if base.host_str().is_none_or(str::is_empty) {
            return Err(BadAddress::NoAddress);
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(BadAddress::HasSecret);
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(BadAddress::HasQuery);
        }
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Ok(Self { base, insecure })
    }

    pub(super) fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// What is sent there can be read on the way.
    pub fn is_plain(&self) -> bool {
        self.base.scheme() == "http"
    }

    /// Below the address, one segment after the other.
    pub(super) fn below(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// The address of a socket, as the client asks for it: by http. Nothing, if the token may not go there.
    pub(super) fn socket(&self, named: &str) -> Option<Url> {
        let (scheme, rest) = named.split_once("://")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "wss" => "https",
            "ws" if self.insecure => "http",
            _ => return None,
        };
        let url = Url::parse(&format!("{scheme}://{rest}")).ok()?;
        let same_host = url.host() == self.base.host();
        let same_port = url.port_or_known_default() == self.base.port_or_known_default();
        let clean = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        // What a person trusts over TLS is not spoken to without.
        let as_safe = scheme == "https" || self.is_plain();
        (same_host && same_port && clean && as_safe).then_some(url)
    }
}

impl std::fmt::Display for ReceiverAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_https_unless_a_person_insists() {
        let shown =
            |text: &str, insecure| ReceiverAddress::parse(text, insecure).map(|address| address.to_string());
        assert_eq!(shown(" https://Hub.example.com/ ", false).as_deref(), Ok("https://hub.example.com"));
        assert_eq!(
            shown("https://hub.example.com/a/b/", false).as_deref(),
            Ok("https://hub.example.com/a/b")
        );
        assert_eq!(shown("http://127.0.0.1:9", false), Err(BadAddress::Plain), "loopback is no exception");
        assert_eq!(shown("http://127.0.0.1:9", true).as_deref(), Ok("http://127.0.0.1:9"));
        for (text, why) in [
            ("", BadAddress::NoAddress),
            ("hub.example.com", BadAddress::NoAddress),
            ("wss://hub.example.com", BadAddress::NoAddress),
            ("https://me:secret@hub.example.com", BadAddress::HasSecret),
            ("https://hub.example.com/?token=x", BadAddress::HasQuery),
            ("https://hub.example.com/#x", BadAddress::HasQuery),
        ] {
            assert_eq!(ReceiverAddress::parse(text, true), Err(why), "{text}");
        }
    }

    #[test]
    fn what_is_below_an_address_stays_below_it() {
        let address = ReceiverAddress::parse("https://hub.example.com/a", false).unwrap();
        assert_eq!(
            address.below(&["ws", "a/../b?c"]).as_str(),
            "https://hub.example.com/a/ws/a%2F..%2Fb%3Fc"
        );
    }

    #[test]
    fn a_socket_elsewhere_is_not_given_the_token() {
        let safe = ReceiverAddress::parse("https://hub.example.com", true).unwrap();
        let plain = ReceiverAddress::parse("http://hub.example.com:81", true).unwrap();
        for fine in ["wss://hub.example.com/ws/s", "WSS://HUB.example.com:443/ws/s"] {
            assert!(safe.socket(fine).is_some(), "{fine}");
        }
        assert!(plain.socket("ws://hub.example.com:81/ws/s").is_some());
        for elsewhere in [
            "wss://evil.example.com/ws/s",
            "wss://hub.example.com.evil.example.com/ws/s",
            "wss://hub.example.com@evil.example.com/ws/s",
            "wss://hub.example.com:444/ws/s",
            "ws://hub.example.com/ws/s",
            "https://hub.example.com/ws/s",
            "//hub.example.com/ws/s",
            "/ws/s",
            "",
        ] {
            assert_eq!(safe.socket(elsewhere), None, "{elsewhere}");
        }
        let strict = ReceiverAddress::parse("https://hub.example.com", false).unwrap();
        assert_eq!(strict.socket("ws://hub.example.com/ws/s"), None);
    }
}
