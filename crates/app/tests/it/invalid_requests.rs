//! What no honest client sends, and where the limits are.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use testkit::Script;
use testkit::server::{CI, DEADLINE, Door, MASTER, Setup, run};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use wire::native::{ImageAttachment, ReplyBody, Request};

use testkit::app_client::AppHarness;

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(door: &Door, protocols: &str) -> Result<(Self, Option<String>), u16> {
        let mut request = format!("ws://{}/ui/socket", door.address).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let stream = TcpStream::connect(door.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, response)) => {
                let chosen = response.headers().get("sec-websocket-protocol");
                let chosen = chosen.map(|value| value.to_str().unwrap().to_owned());
                Ok((Self(socket), chosen))
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(DEADLINE, self.0.next()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next answer, past what is told.
    async fn answer(&mut self) -> Value {
        loop {
            let frame = self.next().await.expect("the socket is open");
            if frame.get("re").is_some() {
                return frame;
            }
        }
    }

    async fn say(&mut self, text: impl Into<String>) {
        self.0.send(Message::text(text.into())).await.unwrap();
    }
}

fn mine() -> String {
    format!("ropewalk.v1, bearer.{MASTER}")
}

#[tokio::test]
async fn a_socket_begins_with_hello_and_cards_for_who_may_come_in() {
    run(Setup::script(&Script::new([])), async |server| {
        let door = server.door(0).await;
        let (mut socket, chosen) = Socket::open(&door, &mine()).await.unwrap();
        assert_eq!(chosen.as_deref(), Some("ropewalk.v1"));
        assert_eq!(socket.next().await.unwrap()["on"], "hello");
        assert_eq!(socket.next().await.unwrap()["on"], "cards");
        assert_eq!(Socket::open(&door, "ropewalk.v1").await.err(), Some(401));
        assert_eq!(Socket::open(&door, "ropewalk.v1, bearer.wrong").await.err(), Some(401));
        socket.say(json!({ "id": 1, "do": "open", "settings": {} }).to_string()).await;
        let session = socket.answer().await["ok"]["session"].as_str().unwrap().to_owned();
        let (mut other, _) = Socket::open(&door, &format!("ropewalk.v1, bearer.{CI}")).await.unwrap();
        assert_eq!(other.next().await.unwrap()["role"], "owner");
        let cards = other.next().await.unwrap();
        assert_eq!(cards["cards"], json!([]), "each sees their own");
        other.say(json!({ "id": 1, "do": "watch", "session": session }).to_string()).await;
        assert_eq!(other.answer().await["error"]["code"], "notFound");
        drop((socket, other));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_harms_nobody() {
    run(Setup::script(&Script::new([])), async |server| {
        let door = server.door(0).await;
        let (mut socket, _) = Socket::open(&door, &mine()).await.unwrap();
        let deep = format!("{{\"id\":5,\"do\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        let odd = [
            ("{", 0),
            ("null", 0),
            ("[]", 0),
            ("\"text\"", 0),
            ("{}", 0),
            (r#"{"id":7}"#, 7),
            (r#"{"id":8,"do":"dance"}"#, 8),
            (r#"{"id":9,"do":"prompt","session":"x"}"#, 9),
            (r#"{"id":-1,"do":"rules"}"#, 0),
            (r#"{"id":1.5,"do":"rules"}"#, 0),
            (r#"{"id":"a","do":"rules"}"#, 0),
            (r#"{"id":10,"do":"answer","session":"x","ask":1,"decision":"maybe"}"#, 10),
            (deep.as_str(), 5),
        ];
        for (text, id) in odd {
            socket.say(text).await;
            let answer = socket.answer().await;
            assert_eq!(
                (&answer["re"], &answer["error"]["code"]),
                (&json!(id), &json!("badRequest")),
                "{text}"
            );
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(!wire::json_errors::names_internals(message), "{text}: {message}");
        }
        for name in ["", "../../etc", "a b", "\u{0}", &"x".repeat(200)] {
            let text = json!({ "id": 11, "do": "watch", "session": name }).to_string();
            socket.say(text).await;
            assert_eq!(socket.answer().await["error"]["code"], "badRequest", "{name:?}");
        }
        socket.say("  \n").await;
        socket.say(" {\"id\":12,\"do\":\"rules\"}\n").await;
        assert_eq!(socket.answer().await, json!({ "re": 12, "ok": { "is": "rules", "rules": [] } }));
        socket.0.send(Message::binary(vec![0_u8; 8])).await.unwrap();
        while socket.next().await.is_some() {}
        drop(socket);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn random_bytes_in_requests_never_break_a_line() {
    run(Setup::script(&Script::new([])), async |server| {
        let door = server.door(0).await;
        let (mut socket, _) = Socket::open(&door, &mine()).await.unwrap();
        let good = json!({ "id": 3, "do": "sessions", "before": null, "search": "a" }).to_string();
        let mut random: u64 = 7;
        for _ in 0..300 {
            let mut bytes = good.clone().into_bytes();
            for _ in 0..3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(random >> 33).unwrap() % bytes.len();
                bytes[at] = u8::try_from(random >> 56).unwrap();
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.trim_ascii().is_empty() {
                continue;
            }
            socket.say(text.clone()).await;
            let answer = socket.answer().await;
            assert!(answer.get("ok").is_some() != answer.get("error").is_some(), "{text}: {answer}");
        }
        drop(socket);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn limits_are_where_they_are_said_to_be() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        let picture = || ImageAttachment { mime: "image/png".into(), data: "AAAA".into() };
        let prompt = |key: usize, pictures: Vec<ImageAttachment>| Request::Prompt {
            session: session.clone(),
            key: "k".repeat(key),
            text: "look".into(),
            pictures,
        };
        assert!(matches!(client.ask(prompt(128, Vec::new())).await, Ok(ReplyBody::PromptAccepted { .. })));
        assert_eq!(client.refused(prompt(129, Vec::new())).await.code, "badRequest");
        assert_eq!(client.refused(prompt(0, Vec::new())).await.code, "badRequest");
        let many = client.refused(prompt(1, (0..17).map(|_| picture()).collect())).await;
        assert!(many.message.contains("at most 16 pictures"), "{many:?}");
        let svg = ImageAttachment { mime: "image/svg+xml".into(), data: "AAAA".into() };
        assert_eq!(client.refused(prompt(2, vec![svg])).await.code, "badRequest");
        let rename = |bytes| Request::Rename { session: session.clone(), title: "t".repeat(bytes) };
        client.done(rename(400)).await;
        assert_eq!(client.refused(rename(401)).await.code, "badRequest");
        assert_eq!(client.refused(rename(0)).await.code, "badRequest");
        server.idle(&session).await;
        let mut sessions = vec![session];
        while sessions.len() < 17 {
            sessions.push(client.open().await);
        }
        for session in &sessions[..16] {
            client.done(Request::Watch { session: session.clone(), after: None }).await;
        }
        let watch = |at: usize| Request::Watch { session: sessions[at].clone(), after: None };
        assert_eq!(client.refused(watch(16)).await.code, "busy");
        client.done(watch(3)).await;
        client.done(Request::Unwatch { session: sessions[0].clone() }).await;
        client.done(watch(16)).await;
        house.close().await;
    })
    .await;
}
