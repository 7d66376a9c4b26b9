//! Under which names this server may be addressed, and which pages may talk to it.
//!
//! Loopback is not trust: any web page can make its visitor's browser send requests to it. A page
//! that had its own name resolve to our address (DNS rebinding) shows in `Host`, any other page shows
//! in `Origin`, which browsers set themselves. Programs other than browsers send no `Origin`.
//!
//! Names are compared whole and parsed once; nothing is compared by how it begins or ends.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A name and, where one was given, a port: the value of `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    name: String,
    port: Option<u16>,
}

/// Scheme, name and port of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    secure: bool,
    name: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("a host is a name such as box.example.org or box.example.org:8443")]
    Host,
    #[error("an origin is a scheme and a host such as https://app.example.org, without a path")]
    Origin,
}

impl FromStr for HostName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (name, port) = match text.rsplit_once(':') {
            // The colons of an address in brackets are not the port's.
            Some((name, port)) if !text.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let port = port.map(port_of).transpose()?;
        if !is_name(name) {
            return Err(BadName::Host);
        }
        Ok(Self { name: name.to_ascii_lowercase(), port })
    }
}

impl HostName {
    pub fn has_port(&self) -> bool {
        self.port.is_some()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Digits only: `u16::from_str` would take a sign.
fn port_of(text: &str) -> Result<u16, BadName> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| BadName::Host) } else { Err(BadName::Host) }
}

/// An address in brackets, or labels of letters, digits and hyphens. A final dot is none of these: the
/// same host under another name is another host.
fn is_name(name: &str) -> bool {
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

impl FromStr for Origin {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (scheme, rest) = text.split_once("://").ok_or(BadName::Origin)?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(BadName::Origin),
        };
        let host: HostName = rest.parse().map_err(|_| BadName::Origin)?;
        Ok(Self { secure, port: host.port.unwrap_or(default_port(secure)), name: host.name })
    }
}

impl Origin {
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host, without its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        if self.port == default_port(self.secure) {
            return write!(f, "{scheme}://{}", self.name);
        }
        write!(f, "{scheme}://{}:{}", self.name, self.port)
    }
}

/// Who may address us, and from which pages.
#[derive(Debug, Clone)]
pub struct ServerNames {
    /// The address we listen on.
    pub bound: SocketAddr,
    /// Whether we speak TLS ourselves.
    pub secure: bool,
    /// Further names of ours; without a port, at any port, because a proxy has its own.
    pub hosts: Vec<HostName>,
    /// Pages of others that may talk to us.
    pub cors: Vec<Origin>,
}

/// Where a request that has an `Origin` comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOrigin {
    /// One of ours.
    Own,
    /// One that was named; it is told so in the answer.
    Named,
    Foreign,
}

impl ServerNames {
    pub(super) fn are_ours(&self, host: &HostName) -> bool {
        let port = host.port.unwrap_or(default_port(self.secure));
        let loopback = ["127.0.0.1", "localhost", "[::1]"].contains(&host.name.as_str());
        // The address that stands for all addresses is nobody's name.
        let bound = !self.bound.ip().is_unspecified() && host.name == self.bound_name();
        if (loopback || bound) && port == self.bound.port() {
            return true;
        }
        let is = |known: &HostName| known.name == host.name && known.port.is_none_or(|known| known == port);
        self.hosts.iter().any(is)
    }

    fn bound_name(&self) -> String {
        match self.bound.ip() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }
    }

    /// `origin` as the browser sent it, `host` as it was found to be ours.
    pub(super) fn page(&self, origin: &str, host: &HostName) -> PageOrigin {
        // Browsers write an origin in exactly one way; whatever reads the same but is written otherwise
        // was not written by one.
        let Some(parsed) = origin.parse::<Origin>().ok().filter(|parsed| parsed.to_string() == origin) else {
            return PageOrigin::Foreign;
        };
        if self.cors.contains(&parsed) {
            return PageOrigin::Named;
        }
        // A proxy may speak TLS for us, under the names it was given.
        let proxied = self.hosts.iter().any(|known| known.name == host.name);
        let scheme = parsed.secure == self.secure || (proxied && parsed.secure);
        let port = host.port.unwrap_or(default_port(parsed.secure));
        if scheme && parsed.name == host.name && parsed.port == port {
            PageOrigin::Own
        } else {
            PageOrigin::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ServerNames {
        ServerNames {
            bound: "127.0.0.1:5173".parse().unwrap(),
            secure: false,
            hosts: vec!["box.example.org".parse().unwrap(), "lan:81".parse().unwrap()],
            cors: vec!["https://app.example.org".parse().unwrap()],
        }
    }

    fn ours(host: &str) -> bool {
        host.parse().is_ok_and(|host| names().are_ours(&host))
    }

    #[test]
    fn only_our_own_names_with_our_own_port_are_ours() {
        for good in [
            "127.0.0.1:5173",
            "localhost:5173",
            "LocalHost:5173",
            "[::1]:5173",
            "box.example.org",
            "box.example.org:443",
            "lan:81",
        ] {
            assert!(ours(good), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "127.0.0.1",
            "localhost:80",
            "localhost:51730",
            "localhost:+5173",
            "localhost.:5173",
            "localhost.evil.com:5173",
            "evil.com",
            "evil.com:5173",
            "127.0.0.1.nip.io:5173",
            "127.1:5173",
            "2130706433:5173",
            "0.0.0.0:5173",
            "127.0.0.1.:5173",
            "[::ffff:127.0.0.1]:5173",
            "[::1].evil.com:5173",
            "user@localhost:5173",
            "localhost:5173@evil.com",
            "localhost:5173:5173",
            "localhost:5173/",
            "localhost:5173 evil.com",
            "box.example.org.",
            "evil-box.example.org",
            "lan",
            "lan:82",
        ] {
            assert!(!ours(bad), "{bad}");
        }
    }

    #[test]
    fn a_page_is_ours_or_named_or_foreign() {
        let page = |origin: &str, host: &str| names().page(origin, &host.parse().unwrap());
        assert_eq!(page("http://127.0.0.1:5173", "127.0.0.1:5173"), PageOrigin::Own);
        assert_eq!(page("https://box.example.org", "box.example.org"), PageOrigin::Own);
        assert_eq!(page("https://app.example.org", "127.0.0.1:5173"), PageOrigin::Named);
        for foreign in [
            "null",
            "",
            "*",
            "http://evil.example",
            "https://127.0.0.1:5173",
            "http://127.0.0.1",
            "http://127.0.0.1:5174",
            "http://localhost:5173",
            "http://localhost.evil.com:5173",
            "http://127.0.0.1:5173.evil.com",
            "http://127.0.0.1:5173@evil.com",
            "http://127.0.0.1:5173/",
            "HTTP://127.0.0.1:5173",
            "http://127.0.0.1:05173",
            "http://app.example.org",
            "https://app.example.org.",
            "https://app.example.org:443",
            "https://evil-app.example.org",
            "https://app.example.org.evil.com",
            "https://app.example.org, http://127.0.0.1:5173",
            "file://",
            "chrome-extension://abcdef",
        ] {
            assert_eq!(page(foreign, "127.0.0.1:5173"), PageOrigin::Foreign, "{foreign}");
        }
    }
}
