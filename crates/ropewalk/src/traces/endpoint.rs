//! Where the collector of traces is.

use hyper::Uri;

/// Where a collector takes traces, below the address that people name.
const TRACES_PATH: &str = "/v1/traces";
const HTTP_PORT: u16 = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// As it stands in the `Host` header.
    pub authority: String,
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error("it is not an address like http://127.0.0.1:4318")]
    NoAddress,
    #[error("https is not spoken here; run a collector on this machine that forwards over TLS")]
    Encrypted,
    #[error("only http is spoken here, as in http://127.0.0.1:4318")]
    OtherScheme,
    #[error("a name or password in it would be sent in the clear; leave it out")]
    HasSecret,
    #[error("it may not have a part after a question mark")]
    HasQuery,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        let uri: Uri = text.trim().parse().map_err(|_| BadEndpoint::NoAddress)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(BadEndpoint::Encrypted),
            Some(_) => return Err(BadEndpoint::OtherScheme),
            None => return Err(BadEndpoint::NoAddress),
        }
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
            None => HTTP_PORT,
        };
        if host.is_empty() {
            return Err(BadEndpoint::NoAddress);
        }
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        Ok(Self {
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: format!("{base}{TRACES_PATH}"),
        })
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
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((&*endpoint.host, endpoint.port, &*endpoint.path), (host, port, path), "{text}");
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
            ("https://host", BadEndpoint::Encrypted),
            ("grpc://host:4317", BadEndpoint::OtherScheme),
            ("http://me:secret@host", BadEndpoint::HasSecret),
            ("http://host/?key=secret", BadEndpoint::HasQuery),
        ] {
            assert_eq!(Endpoint::parse(text), Err(why), "{text}");
        }
    }
}
