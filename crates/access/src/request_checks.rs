//! Checks before the caller is known: whether a request is meant for us, which page sends it, which body is accepted, and
//! the headers of every answer. The gate of a server and the router of a hub begin with them.
//!
//! In the field's words: the `Host` header (DNS rebinding), `Origin` and `Sec-Fetch-Site` (CSRF, cross-site requests).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use crate::hosts_and_origins::{PageOrigin, ServerNames};
use crate::listen::Peer;
use crate::refusal::Refusal;
use crate::request_headers;
use crate::{request_body, web_app};

/// Whether the request is meant for us, and which page it comes from: none, if it says nothing of a page.
/// A wrong name has a code with `host` in it, a wrong page one with `origin`.
pub fn page(names: &ServerNames, request: &Request) -> Result<Option<PageOrigin>, Refusal> {
    let host = request_headers::host(request)?;
    if !names.are_ours(&host) {
        let message =
            "this server does not answer to this host name; to allow it, start the server with --allow-host";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "host_not_allowed", message));
    }
    let origin = request_headers::origin(request.headers())?;
    let page = origin.map(|origin| names.page(origin, &host));
    // Browsers say this also where they send no origin, as for pictures and scripts.
    let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    let elsewhere = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    // A browser that follows a link to one of our pages gets the page, which contains nothing private.
    let followed =
        page.is_none() && web_app::is_public(request.uri().path()) && request_headers::is_navigation(request);
    if page == Some(PageOrigin::Foreign) || (elsewhere && page != Some(PageOrigin::Named) && !followed) {
        let message =
            "this page's origin is not allowed; to allow it, start the server with --cors and that origin";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message));
    }
    Ok(page)
}

/// Addresses end up in logs, histories and other servers' logs: a token must not be in one.
pub fn no_token_in_url(request: &Request) -> Result<(), Refusal> {
    request_headers::no_token_in_url(request.uri())
}

/// Whose request it is, for counting. A proxy adds the address it speaks for at the end; what stands before was
/// sent by that address itself.
pub fn address(behind_proxy: bool, request: &Request) -> IpAddr {
    let ours = request.extensions().get::<Peer>().map(|peer| peer.address);
    // A program that serves our routes by itself says it in axum's way.
    let others = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let peer = ours.or_else(others);
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.ip().to_canonical());
    if !behind_proxy {
        return peer;
    }
    let forwarded = request.headers().get_all("x-forwarded-for").iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    last.unwrap_or(peer)
}

/// Whether a request comes from this machine itself: over loopback, with nothing in between that passes it on
/// for somebody else (a proxy must say that it does). What is not known counts as another machine.
pub fn at_machine(request: &Request) -> bool {
    let ours = request.extensions().get::<Peer>().map(|peer| peer.address);
    let others = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let loopback = ours.or_else(others).is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    let passed_on = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    loopback && !passed_on.iter().any(|name| request.headers().contains_key(*name))
}

/// From here on the body is JSON, has at most so many bytes, and never a long silence between them.
pub fn fit(request: &mut Request, bytes_max: usize) -> Result<(), Refusal> {
    request_headers::must_be_json(request)?;
    if request_headers::declared_bytes(request.headers()).is_some_and(|declared| declared > bytes_max as u64)
    {
        return Err(request_body::too_large(bytes_max));
    }
    let inner = std::mem::take(request.body_mut());
    *request.body_mut() = request_body::limited(inner, bytes_max);
    Ok(())
}

/// What every answer wears.
pub fn dressed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
