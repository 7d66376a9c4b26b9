use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const LINE_BYTES_MAX: usize = 64 << 10;

/// The agent's end of a conversation.
struct Agent {
    input: BufReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
}

impl Agent {
    async fn says(&mut self, text: &str) {
        self.says_bytes(format!("{text}\n").as_bytes()).await;
    }

    async fn says_bytes(&mut self, bytes: &[u8]) {
        timeout(TEST_TIMEOUT, self.output.write_all(bytes)).await.unwrap().unwrap();
    }

    async fn hears(&mut self) -> String {
        let mut line = String::new();
        timeout(TEST_TIMEOUT, self.input.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits { line_bytes_max: LINE_BYTES_MAX, ..ConnectionLimits::default() }
}

fn talk_under(limits: ConnectionLimits) -> (AgentConnection, MessageReceiver, Agent, TaskTracker) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (input, output) = tokio::io::split(ours);
    let tasks = TaskTracker::new();
    let (connection, receiver) = AgentConnection::start(input, output, limits, None, &tasks);
    let (input, output) = tokio::io::split(theirs);
    (connection, receiver, Agent { input: BufReader::new(input), output }, tasks)
}

fn talk() -> (AgentConnection, MessageReceiver, Agent, TaskTracker) {
    talk_under(limits())
}

async fn next_message(receiver: &mut MessageReceiver) -> AgentMessage {
    timeout(TEST_TIMEOUT, receiver.next()).await.unwrap()
}

async fn shown(receiver: &mut MessageReceiver) -> String {
    let raw = |params: &Option<Box<RawValue>>| params.as_ref().map_or("-".into(), ToString::to_string);
    match next_message(receiver).await {
        AgentMessage::Request { id, method, params } => {
            format!("request {} {method} {}", id.as_json(), raw(&params))
        }
        AgentMessage::Notification { method, params } => format!("notification {method} {}", raw(&params)),
        AgentMessage::Reply(answered) => {
            format!("answered {}", answered.session().map_or("-", |session| session))
        }
        AgentMessage::InvalidOutput { what, omitted } => format!("noise {omitted}: {what}"),
        AgentMessage::Ended(ending) => format!("ended {ending:?}"),
    }
}

async fn answer(
    future: impl Future<Output = Result<Box<RawValue>, ConnectionError>>,
) -> Result<String, ConnectionError> {
    timeout(TEST_TIMEOUT, future).await.unwrap().map(|raw| raw.to_string())
}

#[tokio::test]
async fn both_sides_ask_answer_and_tell() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    let asked = connection.request("initialize", &json!({"a": "é\n"}), RequestOptions::default());
    assert_eq!(agent.hears().await, r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":"é\n"}}"#);
    agent.says(r#"{"jsonrpc":"2.0","id":1,"result":{"x" : 1.0}}"#).await;
    assert_eq!(shown(&mut receiver).await, "answered -");
    assert_eq!(answer(asked).await.unwrap(), r#"{"x" : 1.0}"#, "as it was written");

    connection.notify("session/cancel", &json!({"sessionId": "s"})).unwrap();
    assert_eq!(
        agent.hears().await,
        r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#
    );
    connection.notify("_x", &()).unwrap();
    assert_eq!(agent.hears().await, r#"{"jsonrpc":"2.0","method":"_x"}"#);

    for id in ["7", r#""a\u0062""#, "null", "-3"] {
        agent
            .says(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file","params":{{}}}}"#))
            .await;
        let AgentMessage::Request { id: asked, .. } = next_message(&mut receiver).await else {
            panic!("{id}")
        };
        connection.answer(&asked, &json!({"content": ""})).await.unwrap();
        assert_eq!(
            agent.hears().await,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":""}}}}"#)
        );
        connection.refuse(&asked, &RpcError::new(-32002, "no \"such\" file")).await.unwrap();
        let refused = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32002,"message":"no \"such\" file"}}}}"#
        );
        assert_eq!(agent.hears().await, refused);
    }
}

#[tokio::test]
async fn what_others_wrote_over_several_lines_leaves_as_one() {
    let (connection, _receiver, mut agent, _tasks) = talk();
    let params = RawValue::from_string("{\r\n \"a\": \"b\\n\"\n}".into()).unwrap();
    connection.notify("_x", &params).unwrap();
    assert_eq!(agent.hears().await, r#"{"jsonrpc":"2.0","method":"_x","params":{   "a": "b\n" }}"#);
}

#[tokio::test]
async fn a_refusal_comes_with_its_code_its_text_and_its_data() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    for (told, code, message, data) in [
        (
            r#"{"code":-32000,"message":"log in first","data":{"a":1}}"#,
            -32000,
            "log in first",
            Some(r#"{"a":1}"#),
        ),
        ("7", -32603, "the agent gave no reason", None),
        (r#"{"message":"  "}"#, -32603, "the agent gave no reason", None),
    ] {
        let asked = connection.request("m", &json!({}), RequestOptions::default());
        let number = connection.shared.pending().last;
        agent.says(&format!(r#"{{"jsonrpc":"2.0","id":{number},"error":{told}}}"#)).await;
        next_message(&mut receiver).await;
        let Err(ConnectionError::RpcError(remote)) = answer(asked).await else { panic!("{told}") };
        assert_eq!((remote.code, remote.message.as_str()), (code, message));
        assert_eq!(remote.data.map(|raw| raw.to_string()).as_deref(), data);
    }
}

#[tokio::test]
async fn an_answer_waits_for_everything_that_was_said_before_it() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    let options = RequestOptions { session: Some("s1".into()), ..RequestOptions::default() };
    let mut asked = connection.request("session/prompt", &json!({}), options);
    for n in 0..200 {
        agent.says(&format!(r#"{{"jsonrpc":"2.0","method":"u","params":[{n}]}}"#)).await;
    }
    agent.says(r#"{"jsonrpc":"2.0","id":1,"result":null}"#).await;
    agent.says(r#"{"jsonrpc":"2.0","method":"after"}"#).await;
    for n in 0..200 {
        assert!(futures_util::poll!(&mut asked).is_pending(), "{n}");
        assert_eq!(shown(&mut receiver).await, format!("notification u [{n}]"));
    }
    let AgentMessage::Reply(answered) = next_message(&mut receiver).await else { panic!() };
    assert_eq!(answered.session().map(|session| &**session), Some("s1"));
    assert_eq!(shown(&mut receiver).await, "notification after -");
    // Whoever hears for several hands the answer on, behind what it handed on before.
    assert!(futures_util::poll!(&mut asked).is_pending());
    drop(answered);
    assert_eq!(answer(asked).await.unwrap(), "null");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_tells_the_agent_and_a_late_answer_is_nobodys() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    drop(connection.request("a", &json!({}), RequestOptions::default()));
    agent.hears().await;
    let cancel =
        |n| format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{n}}}}}"#);
    assert_eq!(agent.hears().await, cancel(1));
    let options = RequestOptions { deadline: Some(Duration::from_millis(10)), ..RequestOptions::default() };
    assert!(matches!(
        answer(connection.request("b", &json!({}), options)).await,
        Err(ConnectionError::TimedOut)
    ));
    agent.hears().await;
    assert_eq!(agent.hears().await, cancel(2));
    agent.says(r#"{"jsonrpc":"2.0","id":1,"result":1}"#).await;
    agent.says(r#"{"jsonrpc":"2.0","method":"next"}"#).await;
    assert_eq!(shown(&mut receiver).await, "notification next -");
    assert_eq!(connection.invalid_output_count(), 0);
    // An answered request is not cancelled.
    let asked = connection.request("c", &json!({}), RequestOptions::default());
    agent.hears().await;
    agent.says(r#"{"jsonrpc":"2.0","id":3,"result":1}"#).await;
    next_message(&mut receiver).await;
    drop(asked);
    connection.notify("last", &()).unwrap();
    assert_eq!(agent.hears().await, r#"{"jsonrpc":"2.0","method":"last"}"#);
}

#[tokio::test(start_paused = true)]
async fn noise_is_named_and_the_conversation_goes_on() {
    for (said, told) in [
        (
            &b"Debugger listening on \x1b[1mws\x1b[0m"[..],
            "a line is not a message: Debugger listening on  [1mws [0m",
        ),
        (b"{\"half\": ", "a line is not a message: {\"half\": "),
        (b"\xff\xfe\x00binary", "a line of 9 bytes is not text"),
        (b"[1,2]", "a line is not a message (batches are not supported: send each message by itself): [1,2]"),
        (br#"{"jsonrpc":"2.0","id":99,"result":1}"#, "an answer to an unknown request: 99"),
        (br#"{"jsonrpc":"2.0","id":"99","result":1}"#, "an answer to an unknown request: \"99\""),
        (
            br#"{"jsonrpc":"2.0","id":1.5,"result":1}"#,
            "a line is not a message (id must be an integer, a string or null): {\"jsonrpc\":\"2.0\",\"id\":1.5,\"result\":1}",
        ),
    ] {
        let (connection, mut receiver, mut agent, _tasks) = talk();
        agent.says_bytes(&[b"\n\r\n", said, b"\r\n"].concat()).await;
        agent.says(r#"{"jsonrpc":"2.0","method":"ok"}"#).await;
        assert_eq!(shown(&mut receiver).await, format!("noise 0: {told}"));
        assert_eq!(shown(&mut receiver).await, "notification ok -");
        assert_eq!(connection.invalid_output_count(), 1);
    }
}

#[tokio::test]
async fn deep_nesting_passes_untouched() {
    let (_connection, mut receiver, mut agent, _tasks) = talk();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    agent.says(&format!(r#"{{"jsonrpc":"2.0","method":"m","params":{deep}}}"#)).await;
    assert_eq!(shown(&mut receiver).await, format!("notification m {deep}"));
}

#[tokio::test]
async fn a_message_that_breaks_the_rules_leaves_nobody_waiting() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    agent.says(r#"{"id":5,"method":"fs/read_text_file","params":{}}"#).await;
    let told = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"not a JSON-RPC request"}}"#;
    assert_eq!(agent.hears().await, told);
    assert!(shown(&mut receiver).await.contains("jsonrpc must be"));
    let asked = connection.request("m", &json!({}), RequestOptions::default());
    agent.hears().await;
    agent.says(r#"{"id":1,"result":{}}"#).await;
    assert_eq!(shown(&mut receiver).await, "answered -");
    assert!(matches!(answer(asked).await, Err(ConnectionError::Malformed)));
    assert!(shown(&mut receiver).await.starts_with("noise"));
}

#[tokio::test]
async fn a_line_of_100_megabytes_is_dropped_and_nobody_waits_for_it() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    let asked = connection.request("session/load", &json!({}), RequestOptions::default());
    agent.hears().await;
    let long = vec![b'x'; 1 << 20];
    let pour = async {
        for (before, times, after) in [
            (r#"{"jsonrpc":"2.0","method":"session/update","params":""#, 100, "\"}\n"),
            (r#"{"jsonrpc":"2.0","id":"w1","method":"fs/write_text_file","params":""#, 1, "\"}\n"),
            (r#"{"jsonrpc":"2.0","result":""#, 1, "\",\"id\":1}\n"),
        ] {
            agent.says_bytes(before.as_bytes()).await;
            for _ in 0..times {
                agent.says_bytes(&long).await;
            }
            agent.says_bytes(after.as_bytes()).await;
        }
        agent.says(r#"{"jsonrpc":"2.0","method":"ok"}"#).await;
        agent.hears().await
    };
    let listen = async {
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "notification ok -") {
            told.push(shown(&mut receiver).await);
        }
        told
    };
    let (refused, told) = tokio::join!(pour, listen);
    assert_eq!(told[0], "noise 0: a session/update of 104857655 bytes was dropped: the limit is 65536 bytes");
    assert!(told[1].starts_with("noise 0: a fs/write_text_file of "), "{told:?}");
    assert_eq!(told[2], "answered -");
    assert!(told[3].starts_with("noise 0: a message of "), "{told:?}");
    let why = "the message has 1048645 bytes, but the limit is 65536; it was dropped";
    assert_eq!(
        refused,
        format!(r#"{{"jsonrpc":"2.0","id":"w1","error":{{"code":-32600,"message":"{why}"}}}}"#)
    );
    assert!(matches!(answer(asked).await, Err(ConnectionError::TooLong { limit: 65536, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_noise_is_counted_and_told_now_and_then() {
    let (connection, mut receiver, mut agent, _tasks) = talk();
    for _ in 0..1000 {
        agent.says("log line").await;
    }
    agent.says(r#"{"jsonrpc":"2.0","method":"ok"}"#).await;
    for _ in 0..8 {
        assert_eq!(shown(&mut receiver).await, "noise 0: a line is not a message: log line");
    }
    assert_eq!(shown(&mut receiver).await, "notification ok -");
    assert_eq!(connection.invalid_output_count(), 1000);
    tokio::time::advance(Duration::from_secs(11)).await;
    agent.says("again").await;
    assert_eq!(shown(&mut receiver).await, "noise 992: a line is not a message: again");
}

#[tokio::test]
async fn the_end_is_told_after_everything_else_and_whoever_waits_learns_it() {
    let (connection, mut receiver, mut agent, tasks) = talk();
    let asked = connection.request("m", &json!({}), RequestOptions::default());
    agent.says(r#"{"jsonrpc":"2.0","method":"a"}"#).await;
    // A last message without its line end counts, half of one does not.
    agent.says_bytes(br#"{"jsonrpc":"2.0","method":"b"}"#).await;
    drop(agent);
    assert_eq!(shown(&mut receiver).await, "notification a -");
    assert_eq!(shown(&mut receiver).await, "notification b -");
    for _ in 0..2 {
        assert_eq!(shown(&mut receiver).await, "ended Closed");
    }
    assert!(matches!(answer(asked).await, Err(ConnectionError::Gone)));
    assert!(!connection.is_open());
    assert!(matches!(connection.notify("m", &()), Err(ConnectionError::Gone)));
    assert!(matches!(
        answer(connection.request("m", &(), RequestOptions::default())).await,
        Err(ConnectionError::Gone)
    ));
    tasks.close();
    timeout(TEST_TIMEOUT, tasks.wait()).await.unwrap();

    let (_connection, mut receiver, mut agent, _tasks) = talk();
    agent.says_bytes(br#"{"jsonrpc":"2.0","meth"#).await;
    drop(agent);
    assert_eq!(shown(&mut receiver).await, "noise 0: the output ended in the middle of a line of 22 bytes");
    assert_eq!(shown(&mut receiver).await, "ended Closed");
}

#[tokio::test]
async fn who_does_not_listen_slows_the_agent_down_and_loses_nothing() {
    let (_connection, mut receiver, agent, _tasks) =
        talk_under(ConnectionLimits { queued_bytes_max: 256 << 10, ..limits() });
    let text = "x".repeat(32 << 10);
    let Agent { mut output, input: _input } = agent;
    let written = std::sync::Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        for n in 0..400 {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"u\",\"params\":[{n},\"{text}\"]}}\n");
            output.write_all(line.as_bytes()).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    // It comes to stand still while nobody listens.
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) {
        before = written.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(before < 30, "{before} messages of 32 KiB are heard and not taken");
    for n in 0..400 {
        let AgentMessage::Notification { params: Some(params), .. } = next_message(&mut receiver).await
        else {
            panic!("{n}")
        };
        assert!(params.get().starts_with(&format!("[{n},")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_blocks_nobody_and_is_given_up() {
    let small = ConnectionLimits { unsent_bytes_max: 1 << 20, ..limits() };
    let (connection, mut receiver, mut agent, tasks) = talk_under(small);
    let asked = connection.request("m", &json!({}), RequestOptions::default());
    let big = "x".repeat(100 << 10);
    let mut sent = 0;
    let refused = loop {
        match connection.notify("m", &json!([big])) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 50);
        tokio::task::yield_now().await;
    };
    assert!(matches!(refused, ConnectionError::Busy));
    assert!(matches!(connection.notify("m", &"x".repeat(2 << 20)), Err(ConnectionError::TooLong { .. })));
    agent.says(r#"{"jsonrpc":"2.0","method":"why"}"#).await;
    assert_eq!(shown(&mut receiver).await, "notification why -");
    // After half a minute; the clock of this test is a fast one.
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(shown(&mut receiver).await, "ended NotReading");
    assert!(matches!(answer(asked).await, Err(ConnectionError::Gone)));
    tasks.close();
    timeout(TEST_TIMEOUT, tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn who_hangs_up_lets_the_agent_read_what_was_said_and_then_the_end() {
    let (connection, receiver, mut agent, tasks) = talk();
    connection.notify("last", &()).unwrap();
    connection.close();
    assert_eq!(agent.hears().await, r#"{"jsonrpc":"2.0","method":"last"}"#);
    assert_eq!(agent.hears().await, "");
    let asked = connection.request("m", &(), RequestOptions::default());
    assert!(matches!(answer(asked).await, Err(ConnectionError::Gone)));
    // Without ears nothing more is read, and the tasks end though the agent lives.
    drop(receiver);
    tasks.close();
    timeout(TEST_TIMEOUT, tasks.wait()).await.unwrap();
    let mut rest = Vec::new();
    agent.input.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn more_requests_than_may_wait_are_refused_and_none_is_lost() {
    let (connection, mut receiver, agent, _tasks) = talk();
    let Agent { mut input, mut output } = agent;
    let asked: Vec<_> =
        (0..PENDING_MAX).map(|_| connection.request("m", &(), RequestOptions::default())).collect();
    assert!(matches!(
        answer(connection.request("m", &(), RequestOptions::default())).await,
        Err(ConnectionError::Busy)
    ));
    let reply = async {
        for _ in 0..PENDING_MAX {
            let mut line = String::new();
            input.read_line(&mut line).await.unwrap();
            let id: serde_json::Value = serde_json::from_str(&line).unwrap();
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{0},\"result\":{0}}}\n", id["id"]);
            output.write_all(line.as_bytes()).await.unwrap();
        }
    };
    let listen = async {
        for _ in 0..PENDING_MAX {
            next_message(&mut receiver).await;
        }
    };
    tokio::join!(reply, listen);
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(answer(asked).await.unwrap(), (n + 1).to_string());
    }
}
