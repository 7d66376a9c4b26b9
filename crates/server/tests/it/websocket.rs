//! A WebSocket as the clients of the field use it: what they offer, what they send beside messages, and how
//! a socket ends.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use testkit::server::{Door, MASTER, Setup, run};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(3600);

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(door: &Door, path: &str) -> Self {
        Self::offering(door, path, &format!("acp.v1, bearer.{MASTER}")).await.expect("it is opened").0
    }

    /// The socket, and the sub-protocol that was chosen; the status, if it was refused.
    async fn offering(door: &Door, path: &str, protocols: &str) -> Result<(Self, Option<String>, bool), u16> {
        let mut request = format!("ws://{}{path}", door.address).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let stream = TcpStream::connect(door.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, response)) => {
                let header =
                    |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
                let chosen = header("sec-websocket-protocol");
                Ok((Self(socket), chosen, header("acp-connection-id").is_some()))
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    async fn text(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    async fn next(&mut self) -> Option<Result<Message, Error>> {
        tokio::time::timeout(DEADLINE, self.0.next()).await.expect("something comes in time")
    }

    /// The next frame, which must be one message of ours.
    async fn message(&mut self) -> Value {
        match self.next().await {
            Some(Ok(Message::Text(text))) => {
                assert!(!text.contains('\n'), "one message, without an end of line: {text:?}");
                serde_json::from_str(&text).unwrap()
            }
            other => panic!("a message, not {other:?}"),
        }
    }

    /// Reads to the end, past messages and pings, and gives the reason of the close.
    async fn closed(&mut self) -> Option<CloseFrame> {
        loop {
            match self.next().await {
                Some(Ok(Message::Close(reason))) => return reason,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}

fn call(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn initialize() -> String {
    call(1, "initialize", &json!({ "protocolVersion": 1 }))
}

#[tokio::test]
async fn a_browser_offers_its_token_as_a_sub_protocol_and_never_gets_it_back() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        for offered in [format!("acp.v1, bearer.{MASTER}"), format!("bearer.{MASTER}, acp.v1")] {
            let (mut socket, chosen, named) = Socket::offering(&door, "/acp", &offered).await.unwrap();
            assert_eq!((chosen.as_deref(), named), (Some("acp.v1"), true), "{offered}");
            socket.text(&initialize()).await;
            assert_eq!(socket.message().await["result"]["protocolVersion"], 1);
        }
        for (offered, status) in [
            ("acp.v1".to_owned(), 401),
            ("acp.v1, bearer.".to_owned(), 401),
            ("acp.v1, bearer.somebody-elses".to_owned(), 401),
            (format!("bearer.{MASTER}, bearer.{MASTER}"), 400),
        ] {
            let refused = Socket::offering(&door, "/acp", &offered).await.err();
            assert_eq!(refused, Some(status), "{offered}");
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn ends_of_lines_and_empty_frames_are_taken_as_they_are_meant() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        for path in ["/acp", "/acp/ws"] {
            let mut socket = Socket::open(&door, path).await;
            for empty in ["", "\n", " \r\n\t"] {
                socket.text(empty).await;
            }
            socket.text(&format!("{}\n", initialize())).await;
            assert_eq!(socket.message().await["result"]["protocolVersion"], 1, "{path}");
            socket.text("").await;
            socket.text(&format!("\r\n{}\r\n\r\n", call(2, "session/list", &json!({})))).await;
            assert_eq!(socket.message().await["result"]["sessions"], json!([]), "{path}");
        }
        door.close().await;
    })
    .await;
}

/// How long the model thinks has a category of its own in the protocol, and is the model's in zeph's words.
#[tokio::test]
async fn what_thinking_is_about_is_said_in_the_words_of_each_transport() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        for (path, category) in [("/acp", "thought_level"), ("/acp/ws", "model")] {
            let mut socket = Socket::open(&door, path).await;
            socket.text(&initialize()).await;
            assert_eq!(socket.message().await["result"]["protocolVersion"], 1, "{path}");
            let new = json!({ "cwd": server.workspace(), "mcpServers": [] });
            socket.text(&call(2, "session/new", &new)).await;
            let opened = socket.message().await;
            let of = |told: &Value| {
                let options = told["configOptions"].as_array().unwrap();
                options.iter().find(|option| option["id"] == "thinking").unwrap()["category"].clone()
            };
            assert_eq!(of(&opened["result"]), category, "{path}");
            let session = &opened["result"]["sessionId"];
            let change = json!({ "sessionId": session, "configId": "thinking", "value": "low" });
            socket.text(&call(3, "session/set_config_option", &change)).await;
            let (mut answered, mut updated) = (false, false);
            while !(answered && updated) {
                let message = socket.message().await;
                let update = &message["params"]["update"];
                if message["id"] == 3 {
                    assert_eq!(of(&message["result"]), category, "{path}");
                    answered = true;
                } else if update["sessionUpdate"] == "config_option_update" {
                    assert_eq!(of(update), category, "{path}");
                    updated = true;
                }
            }
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_ping_that_is_a_notification_is_ignored_at_any_time() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut socket = Socket::open(&door, "/acp").await;
        let ping = json!({ "jsonrpc": "2.0", "method": "$/ping" }).to_string();
        socket.text(&ping).await;
        socket.text(&initialize()).await;
        // Frames are answered in order, so whatever the ping brought would be here.
        assert_eq!(socket.message().await["id"], 1);
        socket.text(&ping).await;
        socket.text(&call(2, "session/list", &json!({}))).await;
        assert_eq!(socket.message().await["id"], 2);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn binary_frames_are_passed_over_on_the_official_address_and_end_zephs() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let binary = Message::binary(initialize().into_bytes());
        let mut socket = Socket::open(&door, "/acp").await;
        socket.0.send(binary.clone()).await.unwrap();
        socket.text(&initialize()).await;
        assert_eq!(socket.message().await["id"], 1);
        socket.text(&call(2, "session/list", &json!({}))).await;
        assert_eq!(socket.message().await["id"], 2, "the binary frame was not answered");

        let mut socket = Socket::open(&door, "/acp/ws").await;
        socket.text(&initialize()).await;
        socket.message().await;
        socket.0.send(binary).await.unwrap();
        let reason = socket.closed().await.unwrap();
        assert_eq!(u16::from(reason.code), 1003);
        assert!(reason.reason.contains("text"), "{reason}");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_close_is_answered_and_the_session_goes_on_without_the_client() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut socket = Socket::open(&door, "/acp").await;
        socket.text(&initialize()).await;
        socket.message().await;
        let place = json!({ "cwd": server.workspace(), "mcpServers": [] });
        socket.text(&call(2, "session/new", &place)).await;
        let session = socket.message().await["result"]["sessionId"].clone();
        socket.0.close(None).await.unwrap();
        assert_eq!(socket.closed().await, None, "closed without a complaint");

        let mut socket = Socket::open(&door, "/acp").await;
        socket.text(&initialize()).await;
        socket.message().await;
        socket.text(&call(2, "session/list", &json!({}))).await;
        let listed = socket.message().await;
        assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_ends_says_so_with_the_code_for_it() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut socket = Socket::open(&door, "/acp").await;
        socket.text(&initialize()).await;
        socket.message().await;
        let (reason, ()) = tokio::join!(socket.closed(), door.close());
        let reason = reason.expect("a close frame");
        assert_eq!(u16::from(reason.code), 1001);
        assert!(reason.reason.contains("stopping"), "{reason}");
    })
    .await;
}

#[tokio::test]
async fn an_idle_socket_is_pinged_and_stays_open_for_as_long_as_the_client_answers() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut socket = Socket::open(&door, "/acp").await;
        socket.text(&initialize()).await;
        socket.message().await;
        tokio::time::pause();
        // Longer than a silent client may be silent. Reading on sends the answers.
        for _ in 0..8 {
            let ping = socket.next().await;
            assert!(matches!(ping, Some(Ok(Message::Ping(_)))), "{ping:?}");
        }
        tokio::time::resume();
        socket.text(&call(2, "session/list", &json!({}))).await;
        assert_eq!(socket.message().await["id"], 2);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_taken_for_gone() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut socket = Socket::open(&door, "/acp").await;
        // Before the last that is heard of it, so that the silence is no longer than what is measured.
        let began = tokio::time::Instant::now();
        socket.text(&initialize()).await;
        socket.message().await;
        // Its end of the line, without anybody who would answer.
        let line = socket.0.get_mut();
        tokio::time::pause();
        let mut bytes = [0; 1024];
        let gone = async {
            while line.readable().await.is_ok() {
                if matches!(line.try_read(&mut bytes), Ok(0)) {
                    return;
                }
            }
        };
        tokio::time::timeout(DEADLINE, gone).await.expect("the server hangs up");
        assert!(began.elapsed() > Duration::from_secs(90), "{:?}", began.elapsed());
        tokio::time::resume();
        door.close().await;
    })
    .await;
}
