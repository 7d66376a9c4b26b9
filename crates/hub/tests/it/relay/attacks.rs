//! Hostile input: wrong tokens, other people's ids, malformed frames, pages of other sites.

use serde_json::json;
use wire::json_errors::names_internals;

use crate::relay::test_cluster::{TestCluster, events, view};

const TUNNEL: (&str, &str) = ("sec-websocket-protocol", "ropewalk.tunnel.v1");

#[tokio::test]
async fn nothing_is_open_without_a_token_and_nothing_of_others_with_one() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let _machine = node.machine("ops", "box").await;
    cluster.wait_for_machine("box").await;
    let beat = || Some(json!({ "sandbox": "", "approval": "", "cost_total_usd": 0.0 }));
    let routes = [
        ("POST", "/api/sessions/s1/heartbeat", beat()),
        ("DELETE", "/api/sessions/s1", None),
        ("POST", "/api/tunnel/s1/open", None),
    ];
    for (method, path, body) in routes {
        assert_eq!(node.http(method, path, "wrong", body.clone()).await.0, 401, "{path}");
        let others = node.http(method, path, "of-dev", body.clone()).await;
        let none = node.http(method, &path.replace("s1", "none"), "of-dev", body.clone()).await;
        assert_eq!(others.0, 404, "{path}");
        assert_eq!(others, none, "nothing says that it exists");
    }
    assert_eq!(node.register("dev", "s1", None).await.0, 403);
    assert_eq!(node.register("dev", "s2", Some("box")).await.0, 403, "the machine is not theirs");
    for path in ["/ws/s1", "/ws/none", "/ws/..%2Fs1"] {
        assert_eq!(
            node.socket(path, &[("authorization", "Bearer of-dev"), TUNNEL]).await.err(),
            Some(404),
            "{path}"
        );
        assert_eq!(
            node.socket(path, &[("authorization", "Bearer x"), TUNNEL]).await.err(),
            Some(401),
            "{path}"
        );
        assert_eq!(node.socket(path, &[TUNNEL]).await.err(), Some(401), "{path}");
    }
    let mut thief = node.machine("dev", "box").await;
    assert_eq!(thief.closed().await.0, 1008, "the id is taken");
    assert_eq!(node.http("GET", "/metrics", "wrong", None).await.0, 401);
    assert_eq!(node.http("GET", "/metrics", "numbers", None).await.0, 200);
    assert_eq!(node.http("GET", "/metrics", "of-dev", None).await.0, 200);
    assert_eq!(node.http("GET", "/api/sessions/s1?token=x", "of-ops", None).await.0, 400);
}

#[tokio::test]
async fn a_page_of_others_gets_nowhere_with_somebodys_cookie() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let own = format!("http://{}", node.address);
    for path in ["/ui/socket", "/ws/s1"] {
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            let headers = [("cookie", "who=ops"), ("origin", origin)];
            assert_eq!(node.socket(path, &headers).await.err(), Some(403), "{path} {origin}");
        }
        assert_eq!(
            node.socket(path, &[("cookie", "who=ops")]).await.err(),
            Some(403),
            "{path}: no page says so"
        );
        assert!(
            node.socket(path, &[("cookie", "who=ops"), ("origin", own.as_str())]).await.is_ok(),
            "{path}"
        );
    }
    let host = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(node.raw(host).await.0, 403);
}

#[tokio::test]
async fn frames_that_are_none_end_their_own_socket_and_no_other() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "good", None).await;
    node.register("ops", "bad", None).await;
    let mut good = node.bridge("ops", "good").await;
    good.ready().await;
    let foreign = view("good", None, 1);
    let mut spoofed = view("bad", None, 1);
    spoofed["batch"]["view"]["body"]["on"] = "hello".into();
    let odd = [
        "x".to_owned(),
        "[]".to_owned(),
        "{\"batch\":{}}".to_owned(),
        "{\"batch\":{\"after\":-1}}".to_owned(),
        "{\"machine\":{\"id\":\"a\",\"name\":\"a\",\"version\":\"1\"}}".to_owned(),
        json!({ "batch": { "after": 0, "events": [{ "seq": 0, "body": {} }] } }).to_string(),
        json!({ "batch": { "after": 0, "events": [{ "seq": 2, "body": {} }, { "seq": 1, "body": {} }] } })
            .to_string(),
        json!({ "batch": { "after": 0, "events": [{ "seq": 1, "body": "text" }] } }).to_string(),
        foreign.to_string(),
        spoofed.to_string(),
        "[".repeat(100_000),
    ];
    for frame in odd {
        let mut bad = node.bridge("ops", "bad").await;
        assert_eq!(bad.ready().await, (0, None));
        bad.say_text(&frame).await;
        let (code, reason) = bad.closed().await;
        assert_eq!(code, 1008, "{}: {reason}", &frame[..frame.len().min(80)]);
        assert!(!reason.is_empty() && !names_internals(&reason), "{reason}");
    }
    good.say(events(0, 1..=1)).await;
    good.acked(1).await;
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_its_socket() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    let text = format!("{{\"batch\":\"{}\"}}", "x".repeat(wire::tunnel::TUNNEL_FRAME_BYTES_MAX));
    // It may be cut off before all of it is sent.
    drop(bridge.try_say(&text).await);
    assert!(matches!(bridge.closed().await.0, 1009 | 1006));
    assert_eq!(node.bridge("ops", "s1").await.ready().await.0, 0);
}

#[tokio::test]
async fn a_machine_says_its_own_name_first_and_nothing_odd_after() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let token = [("authorization", "Bearer of-ops"), TUNNEL];
    let name =
        |id: &str, name: &str| json!({ "machine": { "id": id, "name": name, "version": "1" } }).to_string();
    let odd = [
        name("other", "x"),
        name("box", &"x".repeat(500)),
        "{}".to_owned(),
        "[]".to_owned(),
        "{\"machine\":[]}".to_owned(),
        "{\"machine\":{\"id\":7}}".to_owned(),
        "{\"dance\":{}}".to_owned(),
        json!({ "answer": { "call": 1, "body": {} } }).to_string(),
    ];
    for first in odd {
        let mut machine = node.socket("/ws/machine/box", &token).await.unwrap();
        machine.say_text(&first).await;
        let (code, reason) = machine.closed().await;
        assert_eq!(code, 1008, "{first}");
        assert!(!names_internals(&reason), "{first}: {reason}");
    }
    let mut machine = node.machine("ops", "box").await;
    machine.say(events(0, 1..=1)).await;
    assert_eq!(machine.closed().await.0, 1008);
    assert_eq!(node.socket("/ws/machine/a%2Fb", &token).await.err(), Some(404));
    assert_eq!(node.socket("/ws/machine/box", &[token[0]]).await.err(), Some(400), "it speaks the tunnel");
}

#[tokio::test]
async fn registrations_that_are_none_are_refused() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let ids = ["", "a/b", "machine", "../x", &"x".repeat(200), "a b"];
    for id in ids {
        assert_eq!(node.register("ops", id, None).await.0, 400, "{id:?}");
    }
    assert_eq!(node.register("ops", "ok", Some("a/b")).await.0, 400);
    for body in [
        json!([]),
        json!({}),
        json!({ "session_id": 7 }),
        json!({ "session_id": "ok", "cwd": {} }),
        json!({ "session_id": "ok", "cwd": "x".repeat(9000) }),
        json!({ "session_id": "ok", "model": "a\u{0}b" }),
    ] {
        let (status, said) = node.http("POST", "/api/sessions", "of-ops", Some(body)).await;
        let message = said["message"].as_str().unwrap();
        assert_eq!((status, names_internals(message)), (400, false), "{message}");
    }
    let large = json!({ "session_id": "ok", "cwd": "x".repeat(100 << 10) });
    assert_eq!(node.http("POST", "/api/sessions", "of-ops", Some(large)).await.0, 413);
    let (status, body) = node.register("ops", "ok", None).await;
    assert_eq!(status, 200);
    assert_eq!(body["ui_url"], format!("http://{}/s/ok", node.address));
    assert_eq!(body["ws_url"], format!("ws://{}/ws/ok", node.address));
}

#[tokio::test]
async fn a_browser_that_sends_nonsense_is_answered_and_stays() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut browser = node.browser("who=ops").await;
    for (text, re) in [
        ("x", 0),
        ("{\"id\":3,\"do\":\"fly\"}", 3),
        ("{\"id\":4}", 4),
        ("{\"id\":5,\"do\":\"at\",\"machine\":1}", 5),
        ("{\"id\":7,\"do\":\"tokens\",\"machine\":1}", 7),
        ("{\"id\":8,\"do\":\"makeToken\",\"name\":[]}", 8),
        ("{\"id\":9,\"do\":\"watch\",\"session\":{}}", 9),
        ("[]", 0),
    ] {
        browser.say_text(text).await;
        let reply = browser.until(|frame| frame["re"] == re).await;
        assert_eq!(reply["error"]["code"], "badRequest", "{text}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(!names_internals(message), "{text}: {message}");
    }
    let answer = browser.ask(json!({ "id": 6, "do": "rules" })).await;
    assert_eq!(answer["error"]["code"], "badRequest", "of which machine?");
}

#[tokio::test]
async fn the_app_is_served_with_its_headers_and_a_stopping_node_says_so() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    for path in ["/", "/s/abc", "/p/x", "/settings"] {
        let (status, body) = node.http("GET", path, "", None).await;
        assert_eq!((status, body), (200, serde_json::Value::Null), "{path}");
    }
    let (_, page) =
        node.raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", node.address)).await;
    assert!(page.contains("<html"), "{page}");
    assert_eq!(node.http("GET", "/health", "", None).await.0, 200);
    let mut browser = node.browser("who=ops").await;
    node.stop().await;
    assert_eq!(browser.closed().await.0, 1001);
}

#[tokio::test]
async fn a_session_that_names_somebody_elses_machine_does_not_drive_it() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "a1", Some("box")).await;
    let mut machine = node.machine("ops", "box").await;
    cluster.wait_for_machine("box").await;
    let mut ops = node.browser("who=ops").await;
    let forgotten = ops.ask(json!({ "id": 1, "do": "forgetMachine", "machine": "box" })).await;
    assert_eq!(forgotten["ok"]["is"], "done", "{forgotten}");
    assert_eq!(machine.closed().await.0, 1012);
    // Both ids are free for a moment, and then the machine is back.
    assert_eq!(node.register("dev", "a1", Some("box")).await.0, 200);
    let mut machine = node.machine("ops", "box").await;
    cluster.wait_for_machine("box").await;
    let mut dev = node.browser("who=dev").await;
    let prompt =
        |id| json!({ "id": id, "do": "prompt", "session": "a1", "key": "k", "text": "x", "pictures": [] });
    let asked = [
        prompt(1),
        json!({ "id": 1, "do": "at", "machine": "box", "request": prompt(1) }),
        json!({ "id": 1, "do": "sealed", "machine": "box", "session": "a1", "sealed": "x" }),
    ];
    for request in asked {
        let reply = dev.ask(request.clone()).await;
        assert!(reply["error"]["code"].is_string(), "{request}: {reply}");
    }
    // The first that the machine hears is its owner's.
    ops.say(json!({ "id": 2, "do": "at", "machine": "box", "request": { "do": "rules" } })).await;
    let call = machine.next().await;
    assert_eq!(call["call"]["by"]["id"], "ops", "{call}");
}
