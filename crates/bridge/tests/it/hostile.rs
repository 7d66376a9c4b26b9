//! Receivers that are not well, not who they should be, or hostile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bridge::{BridgeError, BridgeTimings};
use serde_json::json;
use testkit::server::{DEADLINE, OlderClient, Server, Setup, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_util::task::TaskTracker;
use wire::Dialect;

use super::test_bridge::{BridgeOptions, PACE, TOKEN, TestBridge};
use super::test_receiver::{Behaviour, Receiver, SWALLOWED};

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Dialect::Ferret).await;
    let session = client.new_session().await;
    (client, session)
}

/// O13, O19.
#[tokio::test]
async fn a_token_that_is_not_let_in_ends_the_bridge_at_once() {
    for (status, expected) in [(401, BridgeError::Unauthorized), (403, BridgeError::Forbidden)] {
        run(Setup::offline(), async |server| {
            let (_client, session) = opened(server).await;
            let receiver = Receiver::start(Behaviour::plain()).await;
            receiver.inner.manner.register.store(status, Ordering::SeqCst);
            let only = engine::SessionId::parse(&session).ok();
            let mut world =
                TestBridge::start(server, &receiver.url, BridgeOptions { only, ..BridgeOptions::default() });
            assert_eq!(world.failed().await, expected);
            let tries = receiver.all().iter().filter(|seen| seen.what == "POST /api/sessions").count();
            assert_eq!(tries, 1, "nothing is tried again");
            world.close().await;
        })
        .await;
    }
}

/// Of many sessions, one that belongs to somebody else over there is left out.
#[tokio::test]
async fn a_session_that_is_somebody_elses_over_there_is_not_bridged_and_the_others_are() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        receiver.inner.manner.register.store(403, Ordering::SeqCst);
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        world.said(&format!("bridge: 403 Forbidden session={session}"), 1).await;
        receiver.inner.manner.register.store(200, Ordering::SeqCst);
        let other = client.new_session().await;
        assert_eq!(receiver.socket().await.path, format!("/ws/{other}"));
        world.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_token_that_is_revoked_in_mid_life_ends_the_bridge() {
    run(Setup::offline(), async |server| {
        let (_client, _session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let mut world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let _socket = receiver.socket().await;
        receiver.inner.manner.heartbeat.store(401, Ordering::SeqCst);
        assert_eq!(world.failed().await, BridgeError::Unauthorized);
        world.close().await;
    })
    .await;
}

/// Whether the receiver has the session is not known then.
#[tokio::test]
async fn a_bridge_that_ends_while_it_registers_takes_its_session_away_too() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let receiver = Receiver::start(Behaviour::plain()).await;
        receiver.inner.manner.register.store(SWALLOWED, Ordering::SeqCst);
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        receiver.seen("POST /api/sessions", 1).await;
        world.close().await;
        receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
    })
    .await;
}

#[tokio::test]
async fn the_token_goes_to_no_other_place_than_the_one_that_was_named() {
    let other = Receiver::start(Behaviour::plain()).await;
    let socket = Behaviour { ws_url: Some(format!("ws://{}/ws/s", &other.url[7..])), ..Behaviour::plain() };
    let mut redirect =
        Behaviour { location: Some(format!("{}/api/sessions", other.url)), ..Behaviour::plain() };
    *redirect.register.get_mut() = 307;
    for manner in [socket, redirect] {
        run(Setup::offline(), async |server| {
            let (_client, _session) = opened(server).await;
            let receiver = Receiver::start(manner).await;
            let mut world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
            let trouble = world.failed().await;
            assert!(
                matches!(trouble, BridgeError::Elsewhere { .. } | BridgeError::Redirected { .. }),
                "{trouble:?}"
            );
            assert!(!format!("{trouble} {trouble:?}").contains(TOKEN));
            world.close().await;
        })
        .await;
    }
    assert!(other.all().is_empty(), "{:?}", other.all());
}

#[tokio::test]
async fn frames_that_are_too_large_or_no_frames_at_all_cost_a_receiver_its_connection_only() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        socket.raw("this is no frame").await;
        world.said("sent something unexpected", 1).await;
        let mut socket = receiver.socket().await;
        socket.send(json!({ "ready": { "events": u64::MAX, "view": u64::MAX, "watched": true } })).await;
        // A mirror that claims to be ahead is told what happens from here on.
        client.message(&session, "list").await;
        let first = socket.json().await;
        assert!(first["batch"].is_object(), "{first}");
        socket.send(json!({ "ack": { "events": u64::MAX } })).await;
        let large = format!("{{\"x\":\"{}\"}}", "x".repeat(25 << 20));
        // The bridge may hang up before it has heard all of it.
        drop(socket.web.send(axum::extract::ws::Message::Text(large.into())).await);
        world.said("bridge: WS closed (code=1009)", 1).await;
        let _again = receiver.socket().await;
        client.take_updates();
        world.close().await;
    })
    .await;
}

/// What a registration is answered with is read up to a limit, and believed if it is one.
#[tokio::test]
async fn a_registration_that_is_answered_with_nonsense_or_too_much_is_tried_again() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let large = json!({ "ui_url": "x".repeat(1 << 20), "ws_url": "ws://127.0.0.1:9/ws/s" }).to_string();
        let nonsense = ["", "x", "[]", "{}", "{\"ui_url\":1,\"ws_url\":2}"].map(str::to_owned);
        let odd = nonsense.into_iter().chain(["[".repeat(60_000), large]);
        let count = receiver.answers_oddly("/api/sessions", odd);
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        world.said("sent something unexpected", count).await;
        let mut socket = receiver.socket().await;
        let (said, _) =
            socket.call(1, "session/message", json!({ "sessionId": session, "message": "list" })).await;
        assert_eq!(said["result"]["stopReason"], "end_turn", "{said}");
        world.close().await;
    })
    .await;
}

/// O8 with nonsense: a plain receiver's nonsense is answered like every client's.
#[tokio::test]
async fn nonsense_from_a_plain_receiver_is_answered_and_the_session_goes_on() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        for nonsense in ["{", "[]", "7", r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#] {
            socket.raw(nonsense).await;
            let frames = socket.until(|frame| frame["error"].is_object()).await;
            assert_eq!(frames.len(), 1, "{frames:?}");
        }
        let (said, _) =
            socket.call(2, "session/message", json!({ "sessionId": session, "message": "list" })).await;
        assert_eq!(said["result"]["stopReason"], "end_turn", "{said}");
        world.close().await;
    })
    .await;
}

/// O12: 5, 10, 20, 40, 60, 60 seconds, by the clock that the waiting itself uses.
#[tokio::test(start_paused = true)]
async fn it_is_tried_again_after_5_10_20_40_and_60_seconds() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    run(Setup::offline(), async |server| {
        let (_client, _session) = opened(server).await;
        let options = BridgeOptions { pace: BridgeTimings::default(), ..BridgeOptions::default() };
        let world = TestBridge::start(server, &format!("http://{nobody}"), options);
        let lines = world.said_within("Trying again in", 6, Duration::from_secs(600)).await;
        let waits: Vec<String> = lines
            .iter()
            .map(|line| line.split("again in ").nth(1).unwrap().split(" s;").next().unwrap().to_owned())
            .collect();
        assert_eq!(waits, ["5", "10", "20", "40", "60", "60"]);
        assert!(world.lines()[0].starts_with("bridge: could not reach the receiver"), "{:?}", world.lines());
        world.close().await;
    })
    .await;
}

/// A machine without sessions has nobody else to say it.
#[tokio::test]
async fn a_receiver_that_cannot_be_reached_is_told_of_also_where_there_is_no_session_yet() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    run(Setup::offline(), async |server| {
        let world = TestBridge::start(server, &format!("http://{nobody}"), BridgeOptions::default());
        let lines = world.said("bridge: could not reach the receiver", 2).await;
        assert!(lines[0].contains("Trying again in"), "{lines:?}");
        world.close().await;
    })
    .await;
}

/// One that takes the connection and never answers is not waited for.
#[tokio::test]
async fn a_receiver_that_never_answers_is_not_waited_for() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", mute.local_addr().unwrap());
    run(Setup::offline(), async |server| {
        let (_client, _session) = opened(server).await;
        let pace = BridgeTimings { answer: Duration::from_millis(50), ..PACE };
        let world = TestBridge::start(server, &url, BridgeOptions { pace, ..BridgeOptions::default() });
        world.said("could not reach the receiver: it did not answer in time", 2).await;
        world.close().await;
    })
    .await;
}

/// A receiver that has forgotten the session learns of it again, and the socket stays.
#[tokio::test]
async fn a_session_that_the_receiver_forgot_is_registered_again() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        receiver.inner.manner.heartbeat.store(404, Ordering::SeqCst);
        receiver.seen("POST /api/sessions", 2).await;
        receiver.inner.manner.heartbeat.store(204, Ordering::SeqCst);
        let (said, _) =
            socket.call(1, "session/message", json!({ "sessionId": session, "message": "list" })).await;
        assert_eq!(said["result"]["stopReason"], "end_turn", "{said}");
        world.close().await;
    })
    .await;
}

/// A receiver that stalls in mid-life is given up and tried again.
#[tokio::test]
async fn a_receiver_that_goes_silent_is_given_up() {
    run(Setup::offline(), async |server| {
        let (_client, _session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let pace = BridgeTimings { silence: Duration::from_millis(60), ..PACE };
        let world =
            TestBridge::start(server, &receiver.url, BridgeOptions { pace, ..BridgeOptions::default() });
        // Held open, and never read: no pong comes.
        let _silent = receiver.socket().await;
        world.said("bridge: WS closed (code=1006)", 1).await;
        let _again = receiver.socket().await;
        world.close().await;
    })
    .await;
}

/// O5, O19: a certificate that nobody vouches for.
#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_not_spoken_to_unless_a_person_insists() {
    let tasks = TaskTracker::new();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let serving = tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            drop(stream.read(&mut head).await);
            let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        }
    });
    for insecure in [false, true] {
        run(Setup::offline(), async |server| {
            let (_client, _session) = opened(server).await;
            let mut world =
                TestBridge::start(server, &url, BridgeOptions { insecure, ..BridgeOptions::default() });
            let trouble = tokio::time::timeout(DEADLINE, world.failed()).await.unwrap();
            match insecure {
                false => {
                    assert!(trouble.to_string().starts_with("bridge: TLS verification failed"), "{trouble}");
                    assert!(trouble.fix().contains("--insecure"));
                }
                true => assert_eq!(trouble, BridgeError::Unauthorized, "it was asked, and said no"),
            }
            world.close().await;
        })
        .await;
    }
    serving.abort();
}
