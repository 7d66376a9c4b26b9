//! Browsers at the gate: what a cookie opens, and what others can do with it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::doors;
use crate::http::{HttpState, router};

const OWN: &str = "http://127.0.0.1";

/// A server, and what a browser or somebody else sends to it.
struct TestServer {
    state: Arc<HttpState>,
    router: Router,
}

struct HttpReply {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl HttpReply {
    /// The word for programs.
    fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// What the cookie was set to.
    fn cookie(&self) -> Option<&str> {
        let text = self.headers.get(SET_COOKIE)?.to_str().unwrap();
        text.split(';').next()
    }
}

impl TestServer {
    fn new() -> Self {
        let state = doors();
        state.gate.open();
        Self { router: router(Arc::clone(&state)), state }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> HttpReply {
        let from_here = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 50_000)));
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        request = request.extension(from_here);
        if !body.is_null() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let service = TowerToHyperService::new(self.router.clone());
        let Ok(answer) = hyper::service::Service::call(&service, request.body(body).unwrap()).await;
        let answer: Response = answer;
        let (parts, body) = answer.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        HttpReply { status: parts.status, headers: parts.headers, body }
    }

    async fn enter(&self, code: &str, more: &[(&str, &str)]) -> HttpReply {
        let headers = [&[("origin", OWN)], more].concat();
        self.send("POST", "/ui/enter", &headers, json!({ "code": code, "name": "laptop" })).await
    }

    /// The code of a link that signs in.
    async fn code(&self) -> String {
        let reply = self.send("POST", "/ui/link", &[("authorization", "Bearer master")], json!({})).await;
        reply.body["url"].as_str().unwrap().split_once('#').unwrap().1.to_owned()
    }

    /// A browser that is signed in.
    async fn browser(&self) -> Browser {
        let reply = self.enter(&self.code().await, &[]).await;
        assert_eq!(reply.status, StatusCode::OK);
        Browser::from(&reply)
    }
}

/// What a signed-in browser has, and its page sends.
struct Browser {
    cookie: String,
    proof: String,
}

impl Browser {
    fn from(reply: &HttpReply) -> Self {
        let proof = reply.body["proof"].as_str().unwrap().to_owned();
        Self { cookie: reply.cookie().unwrap().to_owned(), proof }
    }

    /// As our own page asks.
    fn asks(&self) -> [(&str, &str); 3] {
        [("cookie", &self.cookie), ("x-ropewalk-proof", &self.proof), ("origin", OWN)]
    }
}

fn devices() -> Value {
    json!({ "do": "devices" })
}

#[tokio::test]
async fn the_cookie_is_out_of_reach_of_scripts_and_other_sites() {
    let server = TestServer::new();
    let reply = server.enter(&server.code().await, &[]).await;
    let cookie = reply.headers[SET_COOKIE].to_str().unwrap();
    let (pair, rest) = cookie.split_once("; ").unwrap();
    assert_eq!(rest, "HttpOnly; SameSite=Strict; Path=/ui; Max-Age=2592000");
    assert_eq!(pair.split_once('=').map(|(name, key)| (name, key.len())), Some(("ropewalk-80", 43)));
    assert_eq!(reply.body["role"], "owner");
    assert!(!reply.body.to_string().contains(pair.split_once('=').unwrap().1));
    assert!(
        !cookie.contains(reply.body["proof"].as_str().unwrap()),
        "where the cookie goes, the proof does not"
    );
}

/// Browsers send the cookie to every port of this host: whoever listens on one has it, and can send it here
/// under whatever `Origin` it likes.
#[tokio::test]
async fn a_cookie_without_its_proof_is_refused_on_every_route_of_the_app() {
    let server = TestServer::new();
    let (browser, other) = (server.browser().await, server.browser().await);
    let upgrade = [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let offered = |proof: &str| format!("ropewalk.v1, proof.{proof}");
    let (of_other, of_key) = (offered(&other.proof), offered(browser.cookie.split_once('=').unwrap().1));
    let guesses: [&[(&str, &str)]; 6] = [
        &[],
        &[("x-ropewalk-proof", "")],
        &[("x-ropewalk-proof", &other.proof)],
        &[("x-ropewalk-proof", browser.cookie.split_once('=').unwrap().1)],
        &[("sec-websocket-protocol", &of_other)],
        &[("sec-websocket-protocol", &of_key)],
    ];
    for guess in guesses {
        let forged = [&[("cookie", browser.cookie.as_str()), ("origin", OWN)], guess].concat();
        for (method, path, body) in [
            ("POST", "/ui/hall", json!({ "do": "invite", "role": "owner" })),
            ("POST", "/ui/hall", devices()),
            ("POST", "/ui/leave", json!({})),
            ("POST", "/ui/link", json!({})),
            ("GET", "/ui/socket", Value::Null),
            ("GET", "/ui/anything", Value::Null),
        ] {
            let reply = server.send(method, path, &forged, body).await;
            let seen = (reply.status, reply.error(), reply.cookie());
            assert_eq!(seen, (StatusCode::UNAUTHORIZED, "sign_in_again", None), "{method} {path} {guess:?}");
            assert!(reply.body["message"].as_str().unwrap().contains("`ropewalk up`"), "{:?}", reply.body);
        }
        let socket = [&forged[..], &upgrade].concat();
        let reply = server.send("GET", "/ui/socket", &socket, Value::Null).await;
        assert_eq!((reply.status, reply.error()), (StatusCode::UNAUTHORIZED, "sign_in_again"), "{guess:?}");
    }
    let reply = server.send("POST", "/ui/hall", &browser.asks(), devices()).await;
    assert_eq!(reply.body["devices"].as_array().unwrap().len(), 2, "nothing of it was done");
    // A page cannot set headers on a WebSocket: there the proof is among the sub-protocols.
    let right = offered(&browser.proof);
    let page = [("cookie", browser.cookie.as_str()), ("origin", OWN), ("sec-websocket-protocol", &right)];
    let reply = server.send("GET", "/ui/socket", &[&page[..], &upgrade].concat(), Value::Null).await;
    // What is missing here is the connection under the request, which the gate has passed.
    assert_ne!(reply.status, StatusCode::UNAUTHORIZED);
    // A proof alone is nobody's.
    let alone = [("x-ropewalk-proof", browser.proof.as_str()), ("origin", OWN)];
    let reply = server.send("POST", "/ui/hall", &alone, devices()).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::UNAUTHORIZED, "unauthorized"));
}

#[tokio::test]
async fn a_cookie_opens_the_rooms_of_our_own_clients_and_nothing_else() {
    let server = TestServer::new();
    let browser = server.browser().await;
    let with = browser.asks();
    assert_eq!(server.send("POST", "/ui/hall", &with, devices()).await.status, StatusCode::OK);
    for (method, path) in [
        ("GET", "/session"),
        ("POST", "/session"),
        ("GET", "/sessions"),
        ("POST", "/acp"),
        ("GET", "/acp"),
        ("GET", "/metrics"),
        ("GET", "/info"),
        ("GET", "/ui"),
        ("GET", "/uix/hall"),
        ("POST", "/UI/hall"),
        ("POST", "//ui/hall"),
        ("POST", "/ui%2fhall"),
        ("POST", "/x/../ui/hall"),
    ] {
        let body = if method == "POST" { json!({}) } else { Value::Null };
        let reply = server.send(method, path, &with, body).await;
        assert_eq!(
            (reply.status, reply.error()),
            (StatusCode::UNAUTHORIZED, "unauthorized"),
            "{method} {path}"
        );
    }
    // A key is no token.
    let bearer = format!("Bearer {}", browser.cookie.split_once('=').unwrap().1);
    let reply = server.send("POST", "/ui/hall", &[("authorization", &bearer)], devices()).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
}

/// Browsers add cookies to whatever asks; only our own pages may ask.
#[tokio::test]
async fn no_other_page_rides_on_the_cookie() {
    let server = TestServer::new();
    let browser = server.browser().await;
    let [cookie, proof, _] = browser.asks();
    for origin in
        ["http://evil.example", "null", "http://127.0.0.1:81", "https://127.0.0.1", "http://localhost"]
    {
        for path in ["/ui/hall", "/ui/leave", "/ui/link"] {
            let reply = server.send("POST", path, &[cookie, proof, ("origin", origin)], devices()).await;
            assert_eq!(
                (reply.status, reply.error()),
                (StatusCode::FORBIDDEN, "origin_not_allowed"),
                "{origin}"
            );
        }
    }
    for site in ["cross-site", "same-site"] {
        let reply =
            server.send("POST", "/ui/leave", &[cookie, proof, ("sec-fetch-site", site)], json!({})).await;
        assert_eq!(reply.error(), "origin_not_allowed", "{site}");
    }
    // Without a word about the page it is nobody's.
    let reply = server.send("POST", "/ui/hall", &[cookie, proof], devices()).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::UNAUTHORIZED, "unauthorized"));
    let socket = [cookie, proof, ("upgrade", "websocket"), ("connection", "upgrade")];
    assert_eq!(server.send("GET", "/ui/socket", &socket, Value::Null).await.status, StatusCode::UNAUTHORIZED);
    // Asked plainly by the page, the line's address says whether its reader is welcome, and nothing that is an error.
    let asked = [cookie, proof, ("sec-fetch-site", "same-origin")];
    let plainly = server.send("GET", "/ui/socket", &asked, Value::Null).await;
    assert_eq!(plainly.status, StatusCode::NO_CONTENT);
    // A form cannot say JSON.
    let form = [cookie, proof, ("origin", OWN), ("content-type", "text/plain")];
    let reply = server.send("POST", "/ui/leave", &form, Value::Null).await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let still = server.send("POST", "/ui/hall", &browser.asks(), devices()).await;
    assert_eq!(still.body["devices"].as_array().unwrap().len(), 1, "nothing of it was done");
}

/// Another server of this host can set cookies of our name; it cannot know a key of ours.
#[tokio::test]
async fn a_cookie_that_somebody_else_set_is_worth_nothing() {
    let server = TestServer::new();
    let browser = server.browser().await;
    let [_, proof, own] = browser.asks();
    let two = format!("{}; ropewalk-80=planted", browser.cookie);
    let reply = server.send("POST", "/ui/hall", &[("cookie", &two), proof, own], devices()).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    let planted = [("cookie", "ropewalk-80=planted"), proof, own];
    let reply = server.send("POST", "/ui/hall", &planted, devices()).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::UNAUTHORIZED, "signed_out"));
    assert_eq!(reply.cookie(), Some("ropewalk-80="), "the browser forgets it");
    // Who signs in with a planted cookie gets a key that nobody planted.
    let reply = server.enter(&server.code().await, &[("cookie", "ropewalk-80=planted")]).await;
    assert!(reply.cookie().is_some_and(|cookie| cookie != "ropewalk-80=planted"));
}

#[tokio::test]
async fn who_leaves_or_is_revoked_is_out_with_the_next_request() {
    let server = TestServer::new();
    let (first, second) = (server.browser().await, server.browser().await);
    let reply = server.send("POST", "/ui/leave", &first.asks(), json!({})).await;
    assert_eq!((reply.status, reply.cookie()), (StatusCode::OK, Some("ropewalk-80=")));
    let reply = server.send("POST", "/ui/hall", &first.asks(), devices()).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::UNAUTHORIZED, "signed_out"));
    let reply = server.send("POST", "/ui/hall", &second.asks(), devices()).await;
    let device = reply.body["devices"][0]["id"].as_str().unwrap().to_owned();
    let revoke = json!({ "do": "revoke", "device": device });
    let master = [("authorization", "Bearer master")];
    assert_eq!(server.send("POST", "/ui/hall", &master, revoke).await.status, StatusCode::OK);
    let reply = server.send("POST", "/ui/hall", &second.asks(), devices()).await;
    assert_eq!(reply.error(), "signed_out");
    assert_eq!(server.send("POST", "/ui/leave", &master, json!({})).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn only_who_holds_the_token_can_have_a_login_link() {
    let server = TestServer::new();
    let browser = server.browser().await;
    let reply = server.send("POST", "/ui/link", &browser.asks(), json!({})).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::FORBIDDEN, "forbidden"));
    assert_eq!(server.send("POST", "/ui/link", &[], json!({})).await.status, StatusCode::UNAUTHORIZED);
    // A device outlives whoever lets it in, so a named client lets none in, not even to its own sessions.
    let reply = server.send("POST", "/ui/link", &[("authorization", "Bearer of-ci")], json!({})).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::FORBIDDEN, "forbidden"));
    // The token of one session is for that session.
    let id = engine::SessionId::parse("a").unwrap();
    let token = format!("Bearer {}", server.state.gate.session_token(&engine::Principal::local(), &id));
    let reply = server.send("POST", "/ui/link", &[("authorization", &token)], json!({})).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn whoever_guesses_codes_has_to_wait() {
    let server = TestServer::new();
    let code = server.code().await;
    for number in 0..20 {
        let reply = server.enter(&format!("AAAA-AA{number:02}"), &[]).await;
        assert_eq!((reply.status, reply.error()), (StatusCode::FORBIDDEN, "code_unknown"), "{number}");
    }
    let reply = server.enter("AAAA-AAAA", &[]).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_codes"));
    assert_eq!(reply.headers["retry-after"], "3");
    // On this machine nobody can keep the owner out: a code that cannot be guessed is always looked at.
    assert_eq!(server.enter(&code, &[]).await.status, StatusCode::OK);
    tokio::time::advance(std::time::Duration::from_secs(3)).await;
    assert_eq!(server.enter("AAAA-AAAA", &[]).await.error(), "code_unknown");
}

#[tokio::test(start_paused = true)]
async fn a_code_that_opens_nothing_says_why() {
    let server = TestServer::new();
    let (used, late) = (server.code().await, server.code().await);
    assert_eq!(server.enter(&used, &[]).await.status, StatusCode::OK);
    let reply = server.enter(&used, &[]).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::GONE, "code_used"));
    tokio::time::advance(access::devices::TICKET_LIFE).await;
    let reply = server.enter(&late, &[]).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::GONE, "code_expired"));
    for bad in [json!({}), json!({ "code": 1 }), json!({ "code": "a", "knock": "b" }), json!({ "name": "x" })]
    {
        let reply = server.send("POST", "/ui/enter", &[("origin", OWN)], bad.clone()).await;
        assert_eq!((reply.status, reply.error()), (StatusCode::BAD_REQUEST, "bad_request"), "{bad}");
    }
    let huge = json!({ "code": "a", "name": "x".repeat(9000) });
    let reply = server.send("POST", "/ui/enter", &[("origin", OWN)], huge).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn a_phone_knocks_and_comes_in_when_the_owner_says_so() {
    let server = TestServer::new();
    let master = [("authorization", "Bearer master")];
    let ask = async |body: Value| server.send("POST", "/ui/hall", &master, body).await;
    let invited = ask(json!({ "do": "invite", "role": "approver" })).await;
    let reply = server.enter(invited.body["code"].as_str().unwrap(), &[]).await;
    assert_eq!((reply.status, reply.cookie()), (StatusCode::ACCEPTED, None));
    let (knock, words) = (reply.body["knock"].clone(), reply.body["words"].clone());
    let poll = async || server.send("POST", "/ui/enter", &[("origin", OWN)], json!({ "knock": knock })).await;
    assert_eq!(poll().await.body["words"], words);
    let waiting = ask(devices()).await.body["knocks"][0].clone();
    assert_eq!((&waiting["words"], &waiting["name"]), (&words, &json!("laptop")));
    ask(json!({ "do": "admit", "knock": waiting["id"], "role": "approver" })).await;
    let reply = poll().await;
    assert_eq!((reply.status, &reply.body["role"]), (StatusCode::OK, &json!("approver")));
    let phone = Browser::from(&reply);
    let own = phone.asks();
    for request in [devices(), json!({ "do": "invite", "role": "owner" })] {
        let reply = server.send("POST", "/ui/hall", &own, request).await;
        assert_eq!((reply.status, reply.error()), (StatusCode::FORBIDDEN, "forbidden"));
    }
    let reply = server
        .send("POST", "/ui/hall", &own, json!({ "do": "sessions", "before": null, "search": null }))
        .await;
    assert_eq!((reply.status, reply.error()), (StatusCode::BAD_REQUEST, "bad_request"));
}

#[tokio::test]
async fn the_app_is_for_everybody_under_our_own_name() {
    let server = TestServer::new();
    for path in ["/", "/login", "/pair", "/s/some-id/changes/a.rs", "/settings/devices", "/inbox"] {
        let reply = server.send("GET", path, &[], Value::Null).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        let header = |name: &str| reply.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        let policy = header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains("http:") && !policy.contains('*'), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(header("cache-control"), "no-cache");
    }
    let script = server.send("GET", "/app.js", &[], Value::Null).await;
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(server.send("POST", "/", &[], json!({})).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(
        server.send("GET", "/", &[("host", "evil.example")], Value::Null).await.status,
        StatusCode::BAD_REQUEST
    );
}

/// A link in a mail leads to the page; a picture, a frame or a script of another site does not.
#[tokio::test]
async fn another_site_can_lead_here_and_embed_nothing() {
    let server = TestServer::new();
    let from = |mode: &'static str, dest: &'static str| {
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
    };
    let followed = from("navigate", "document");
    assert_eq!(server.send("GET", "/s/a", &followed, Value::Null).await.status, StatusCode::OK);
    for (mode, dest, path) in [
        ("navigate", "iframe", "/"),
        ("no-cors", "script", "/app.js"),
        ("no-cors", "image", "/"),
        ("cors", "empty", "/"),
        ("navigate", "document", "/session"),
        ("navigate", "document", "/ui/socket"),
    ] {
        let reply = server.send("GET", path, &from(mode, dest), Value::Null).await;
        assert_eq!(
            (reply.status, reply.error()),
            (StatusCode::FORBIDDEN, "origin_not_allowed"),
            "{mode} {dest} {path}"
        );
    }
    let reply = server.send("POST", "/", &followed, json!({})).await;
    assert_eq!(reply.error(), "origin_not_allowed");
}

/// These routes have a state of their own, and are refused like every other.
#[tokio::test]
async fn another_method_than_the_routes_own_is_refused_as_everywhere() {
    let server = TestServer::new();
    let reply = server.send("GET", "/ui/link", &[("authorization", "Bearer master")], Value::Null).await;
    assert_eq!((reply.status, reply.error()), (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"));
}
