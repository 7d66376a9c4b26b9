//! The proof of a signed-in browser: a second secret, without which its cookie opens nothing.
//!
//! Browsers send a cookie to every port of its host, so any other program of this machine that serves a
//! page gets ours, and can send it on under any `Origin`. The proof is kept in storage that browsers bind
//! to the whole origin, port included. Our page shows it with each request: in a header, or where a page
//! can set none, as a sub-protocol of its WebSocket. Never in an address, which is logged.

use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::request_headers::wants_websocket;
use crate::tokens::Digest;

/// Where a page shows its proofs, separated by commas.
pub const PROOF_HEADER: HeaderName = HeaderName::from_static("x-ropewalk-proof");
/// The prefix of a proof among the sub-protocols of a WebSocket.
const OFFERED: &str = "proof.";
/// A browser has one for its sign-in, and at a hub another for a shared session.
const PROOFS_MAX: usize = 4;
/// One has 43 characters; what is longer was not made here.
const PROOF_BYTES_MAX: usize = 128;

/// The proofs that a request shows.
#[derive(Debug, Clone, Default)]
pub struct Proofs(Vec<Digest>);

impl Proofs {
    pub fn read(headers: &HeaderMap) -> Self {
        let mut shown: Vec<&str> = words(headers, &PROOF_HEADER).collect();
        if wants_websocket(headers) {
            let offered = words(headers, &SEC_WEBSOCKET_PROTOCOL);
            shown.extend(offered.filter_map(|word| word.strip_prefix(OFFERED)));
        }
        let proofs = shown.into_iter().filter(|proof| !proof.is_empty() && proof.len() <= PROOF_BYTES_MAX);
        Self(proofs.take(PROOFS_MAX).map(Digest::of).collect())
    }

    /// The same, and the request has none afterwards: what a route does not have, it cannot log.
    pub fn take(headers: &mut HeaderMap) -> Self {
        let proofs = Self::read(headers);
        headers.remove(PROOF_HEADER);
        let is_proof = |word: &&str| word.starts_with(OFFERED);
        if words(headers, &SEC_WEBSOCKET_PROTOCOL).any(|word| is_proof(&word)) {
            let others = words(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|word| !is_proof(word));
            let others = HeaderValue::from_str(&others.collect::<Vec<_>>().join(", "));
            headers.remove(SEC_WEBSOCKET_PROTOCOL);
            if let Some(others) = others.ok().filter(|others| !others.is_empty()) {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
            }
        }
        proofs
    }

    /// Whether the proof with this digest is among them. All are compared, in constant time. A browser that
    /// signed in before there were proofs has none, and nothing proves it.
    pub fn show(&self, wanted: Option<&Digest>) -> bool {
        let Some(wanted) = wanted else { return false };
        self.0.iter().fold(false, |found, shown| shown.is(wanted) | found)
    }
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use testkit::router_requests::headers;

    use super::*;

    #[test]
    fn a_proof_is_read_where_it_may_stand_and_nowhere_else() {
        let wanted = Digest::of("right");
        let shown =
            |pairs: &[(&'static str, &'static str)]| Proofs::read(&headers(pairs)).show(Some(&wanted));
        let socket = ("upgrade", "websocket");
        for good in [
            &[("x-ropewalk-proof", "right")][..],
            &[("x-ropewalk-proof", "other, right")],
            &[("x-ropewalk-proof", "other"), ("x-ropewalk-proof", "right")],
            &[socket, ("sec-websocket-protocol", "ropewalk.v1, proof.right")],
            &[socket, ("sec-websocket-protocol", "proof.right"), ("sec-websocket-protocol", "ropewalk.v1")],
        ] {
            assert!(shown(good), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("x-ropewalk-proof", "")],
            &[("x-ropewalk-proof", "Right")],
            &[("x-ropewalk-proof", "right x")],
            &[("x-ropewalk-proof", "a, b, c, d, right")],
            &[("authorization", "Bearer right")],
            &[("cookie", "x-ropewalk-proof=right")],
            &[socket, ("sec-websocket-protocol", "right")],
            &[("sec-websocket-protocol", "proof.right")],
        ] {
            assert!(!shown(bad), "{bad:?}");
        }
        assert!(!Proofs::read(&headers(&[("x-ropewalk-proof", "right")])).show(None));
    }

    #[test]
    fn a_route_never_sees_a_proof() {
        let mut all = headers(&[
            ("x-ropewalk-proof", "right"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "proof.right, ropewalk.v1"),
            ("sec-websocket-protocol", "other"),
        ]);
        Proofs::take(&mut all);
        assert!(!all.contains_key("x-ropewalk-proof"));
        assert_eq!(all["sec-websocket-protocol"], "ropewalk.v1, other");
        let mut only = headers(&[("upgrade", "websocket"), ("sec-websocket-protocol", "proof.right")]);
        Proofs::take(&mut only);
        assert!(!only.contains_key("sec-websocket-protocol"));
    }
}
