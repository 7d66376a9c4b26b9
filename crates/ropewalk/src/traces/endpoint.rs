//! The address of the trace collector.

use std::net::IpAddr;

use hyper::Uri;

/// The path for traces, below the configured URL.
const TRACES_PATH: &str = "/v1/traces";
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether to use TLS.
    pub secure: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// The value of the `Host` header.
    pub authority: String,
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error("it is not a URL such as http://127.0.0.1:4318")]
    NoAddress,
    #[error("only http and https URLs are supported, such as http://127.0.0.1:4318")]
    OtherScheme,
    #[error("it must not contain a user name or password, which would show up in logs")]
    HasSecret,
    #[error("it must not contain a query string")]
    HasQuery,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        let uri: Uri = text.trim().parse().map_err(|_| BadEndpoint::NoAddress)?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(BadEndpoint::OtherScheme),
            None => return Err(BadEndpoint::NoAddress),
        };
        let authority = uri.authority().ok_or(BadEndpoint::NoAddress)?;
        if authority.as_str().contains('@') {
            return Err(BadEndpoint::HasSecret);
        }
        if uri.query().is_some() {
            return Err(BadEndpoint::HasQuery);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(0) => return Err(BadEndpoint::NoAddress),
            Some(port) => port,
            None if has_port => return Err(BadEndpoint::NoAddress),
            None if secure => HTTPS_PORT,
            None => HTTP_PORT,
        };
        if host.is_empty() {
            return Err(BadEndpoint::NoAddress);
        }
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        Ok(Self {
            secure,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: format!("{base}{TRACES_PATH}"),
        })
    }

    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// Whether to bypass proxies: for this machine, and for plain HTTP, which a proxy could read.
    pub fn is_asked_directly(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        !self.secure || self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_address_that_was_named() {
        for (text, host, port, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/traces"),
            ("http://127.0.0.1:4318/", "127.0.0.1", 4318, "/v1/traces"),
            (" http://collector ", "collector", 80, "/v1/traces"),
            ("HTTP://collector:1/tenant/", "collector", 1, "/tenant/v1/traces"),
            ("http://collector/v1/traces", "collector", 80, "/v1/traces"),
            ("http://[::1]:4318", "::1", 4318, "/v1/traces"),
            ("https://collector", "collector", 443, "/v1/traces"),
            ("HTTPS://collector:4318/tenant", "collector", 4318, "/tenant/v1/traces"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((&*endpoint.host, endpoint.port, &*endpoint.path), (host, port, path), "{text}");
            assert_eq!(Endpoint::parse(&endpoint.url()), Ok(endpoint), "{text}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_served_is_refused_for_its_own_reason() {
        for (text, why) in [
            ("", BadEndpoint::NoAddress),
            ("127.0.0.1:4318", BadEndpoint::NoAddress),
            ("/v1/traces", BadEndpoint::NoAddress),
            ("http://", BadEndpoint::NoAddress),
            ("http://host:0", BadEndpoint::NoAddress),
            ("http://host:99999", BadEndpoint::NoAddress),
            ("http://host:", BadEndpoint::NoAddress),
            ("http://ho st", BadEndpoint::NoAddress),
            ("https://host:0", BadEndpoint::NoAddress),
            ("grpc://host:4317", BadEndpoint::OtherScheme),
            ("http://me:secret@host", BadEndpoint::HasSecret),
            ("https://me:secret@host", BadEndpoint::HasSecret),
            ("http://host/?key=secret", BadEndpoint::HasQuery),
        ] {
            assert_eq!(Endpoint::parse(text), Err(why), "{text}");
        }
    }
}
