//! The gate in one process, with a route behind it that tells who came through.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use axum::{Extension, Router};
use engine::{Principal, SessionId, Timestamp};
use hyper::body::Frame;
use metrics::Metrics;
use serde_json::Value;
use testkit::router_requests::{ask, code, post, send};

use super::{Gate, GateParts, GateState, HttpCaller, TokenScope, pass};
use crate::hosts_and_origins::ServerNames;
use crate::request_body::{BodyBytes, JsonFields, REST_BYTES_MAX, RPC_BYTES_MAX};
use crate::tokens::{AcceptedTokens, Client, Digest};

pub fn state() -> GateState {
    let client = Client { id: "ci".into(), digest: Digest::of("of-ci") };
    let keys = AcceptedTokens::Tokens { master: Digest::of("master"), clients: vec![client] };
    let names = ServerNames {
        bound: "127.0.0.1:80".parse().unwrap(),
        secure: false,
        hosts: Vec::new(),
        cors: Vec::new(),
    };
    GateState {
        gate: Arc::new(Gate::new(GateParts { keys, names, behind_proxy: false, seed: [3; 32] })),
        devices: Arc::default(),
        metrics: Metrics::new("1.2.3", Timestamp(2_000)),
    }
}

async fn who(Extension(caller): Extension<HttpCaller>) -> String {
    let scope = match caller.scope {
        TokenScope::All => "all".to_owned(),
        TokenScope::Session(id) => id.to_string(),
    };
    format!("{} {} {scope}", caller.principal.0, caller.name)
}

/// The gate before routes of the test.
fn guarded(state: &GateState) -> Router {
    Router::new()
        .route(
            "/fields",
            any(|JsonFields(fields): JsonFields| async move { Value::Object(fields).to_string() }),
        )
        .route("/acp", any(|BodyBytes(bytes): BodyBytes| async move { bytes.len().to_string() }))
        .fallback(who)
        .layer(from_fn_with_state(state.clone(), pass))
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

/// N3, N5.
#[tokio::test]
async fn a_token_says_who_calls_and_what_they_may_reach() {
    let state = state();
    state.gate.open();
    let router = guarded(&state);
    let told = async |path: &str, token: &str| send(&router, ask(path, token)).await;
    assert_eq!(told("/x", "master").await, (StatusCode::OK, "local local all".into()));
    assert_eq!(told("/x", "of-ci").await, (StatusCode::OK, "ci ci all".into()));

    let token = state.gate.session_token(&Principal("ci".into()), &id("a"));
    for inside in ["/session/a", "/session/a/events", "/sessions/a/messages?since=1"] {
        assert_eq!(told(inside, &token).await, (StatusCode::OK, "ci ci a".into()), "{inside}");
    }
    for outside in [
        "/session",
        "/sessions",
        "/session/b",
        "/session/ab/x",
        "/session/%61",
        "/acp",
        "/x/session/a",
        "/session//a",
    ] {
        let (status, text) = told(outside, &token).await;
        assert_eq!((status, code(&text).as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"), "{outside}");
    }

    let next = state.gate.session_token(&Principal("ci".into()), &id("a"));
    assert_eq!(told("/session/a", &token).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(told("/session/a", &next).await.0, StatusCode::OK);
    state.gate.forget(&id("a"));
    assert_eq!(told("/session/a", &next).await.0, StatusCode::UNAUTHORIZED);
}

/// G14: also where no length is declared.
#[tokio::test]
async fn a_body_may_be_so_large_and_not_a_byte_larger() {
    let state = state();
    state.gate.open();
    let router = guarded(&state);
    let undeclared = |bytes: usize| Body::new(Pieces { left: bytes, then: End::Closed });
    assert_eq!(send(&router, post("/acp", undeclared(RPC_BYTES_MAX))).await.1, RPC_BYTES_MAX.to_string());
    for body in [undeclared(RPC_BYTES_MAX + 1), undeclared(usize::MAX)] {
        let (status, text) = send(&router, post("/acp", body)).await;
        assert_eq!((status, code(&text).as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "too_large"));
    }
    let (status, text) = send(&router, post("/fields", undeclared(REST_BYTES_MAX + 1))).await;
    assert_eq!((status, code(&text).as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "too_large"));
}

/// G13.
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_not_waited_for() {
    let state = state();
    state.gate.open();
    let router = guarded(&state);
    let began = tokio::time::Instant::now();
    let (status, text) =
        send(&router, post("/acp", Body::new(Pieces { left: 100, then: End::Silent }))).await;
    assert_eq!((status, code(&text).as_str()), (StatusCode::REQUEST_TIMEOUT, "body_timeout"));
    assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
}

/// L21.
#[tokio::test]
async fn a_body_of_fields_is_a_json_object() {
    let state = state();
    state.gate.open();
    let router = guarded(&state);
    assert_eq!(send(&router, post("/fields", "{\"a\":1}")).await, (StatusCode::OK, "{\"a\":1}".into()));
    assert_eq!(send(&router, post("/fields", "")).await, (StatusCode::OK, "{}".into()));
    let deep = "[".repeat(100_000);
    for bad in ["[]", "1", "{", "{\"a\":\"\\ud800\"}", &deep] {
        let (status, text) = send(&router, post("/fields", bad.to_owned())).await;
        assert_eq!((status, code(&text).as_str()), (StatusCode::BAD_REQUEST, "invalid_json"));
    }
    assert_eq!(send(&router, post("/fields", vec![b'"', 0xff, b'"'])).await.0, StatusCode::BAD_REQUEST);
}

/// Every refusal is counted as what it is.
#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_their_reason() {
    let state = state();
    let router = guarded(&state);
    let with = |name: &'static str, value: &str| {
        let mut request = ask("/x", "master");
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    let mut bare = ask("/x", "");
    bare.headers_mut().remove("authorization");
    let session = state.gate.session_token(&Principal::local(), &id("a"));
    send(&router, ask("/x", "master")).await;
    state.gate.open();
    let mut form = post("/x", "a=b");
    form.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    let mut declared = post("/x", "{}");
    declared.headers_mut().insert("content-length", "9999999999".parse().unwrap());
    let undeclared = post("/acp", Body::new(Pieces { left: usize::MAX, then: End::Closed }));
    let silent = post("/acp", Body::new(Pieces { left: 100, then: End::Silent }));
    let refused = [
        bare,
        ask("/x", "wrong"),
        ask("/x", &session),
        ask("/x?token=1", "master"),
        with("host", "evil.example"),
        with("origin", "http://evil.example"),
        form,
        declared,
        undeclared,
        silent,
    ];
    for request in refused {
        assert!(!send(&router, request).await.0.is_success());
    }
    let rendered = state.metrics.render();
    for (reason, count) in [
        ("refused", 1),
        ("no_token", 1),
        ("bad_token", 1),
        ("forbidden", 1),
        ("token_in_url", 1),
        ("bad_host", 1),
        ("bad_origin", 1),
        ("media_type", 1),
        ("too_large", 2),
        ("too_slow", 1),
    ] {
        let line = format!("ropewalk_rejected_total{{reason=\"{reason}\"}} {count}\n");
        assert!(rendered.contains(&line), "{line}{rendered}");
    }
}

enum End {
    Closed,
    Silent,
}

/// A body in pieces, whose length nobody knows before.
struct Pieces {
    left: usize,
    then: End,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        const PIECE: &[u8] = &[b'['; 1 << 16];
        let piece = self.left.min(PIECE.len());
        self.left -= piece;
        match self.then {
            _ if piece > 0 => {
                std::task::Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE[..piece])))))
            }
            End::Closed => std::task::Poll::Ready(None),
            End::Silent => std::task::Poll::Pending,
        }
    }
}
