//! Whole calls over loopback: asked again while that helps, and never once something was said.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use agent::{
    Message, Model, ModelError, ModelEvent, ModelRequest, Provider, ProviderConfig, Secret, Thinking, Wire,
};
use expect_test::{Expect, expect};

const KEY: &str = "sk-do-not-tell";
const DEADLINE: Duration = Duration::from_secs(20);
const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"}}]}\n\n";
const DONE: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the provider does with one request.
enum Does {
    /// Status, further headers, body; then the connection closes.
    Answers(&'static str, &'static str, String),
    /// Says so much of an answer that is promised to be longer, and breaks off.
    BreaksOff(String),
    /// Says so much and then nothing, until the other end is gone.
    Stalls(String),
    /// Shows that it lives and says nothing, until the other end is gone.
    Pings,
}

/// A provider that does one thing after the other. What it was asked comes back, and at the end of a
/// stall that the other end is gone.
fn provider(does: Vec<Does>) -> (Provider, Receiver<String>) {
    limited(does, |_| {})
}

fn limited(does: Vec<Does>, set: impl FnOnce(&mut ProviderConfig)) -> (Provider, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ProviderConfig::new("acme", Wire::Chat);
    config.base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    config.key = Some(Secret::new(KEY));
    config.timeouts.idle = Duration::from_secs(2);
    set(&mut config);
    let (told, asked) = channel();
    std::thread::spawn(move || {
        for what in does {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            told.send(request_of(&mut stream)).unwrap();
            let (status, headers, body, length) = match &what {
                Does::Answers(status, headers, body) => (*status, *headers, body, body.len()),
                Does::BreaksOff(body) | Does::Stalls(body) => ("200 OK", "", body, 100_000),
                Does::Pings => ("200 OK", "", &String::new(), 100_000),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            if let Does::Stalls(_) = what {
                let gone = matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_));
                told.send(format!("gone: {gone}")).unwrap();
            }
            if let Does::Pings = what {
                stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                while stream.write_all(b": ping\n\n").is_ok() && !matches!(stream.read(&mut [0; 16]), Ok(0)) {
                }
            }
        }
    });
    (Provider::new(config), asked)
}

fn request_of(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if read == 0 || body.len() >= length.parse().unwrap() {
            return text;
        }
    }
}

fn question() -> ModelRequest {
    ModelRequest {
        model: "acme:m1".into(),
        system: "".into(),
        messages: vec![Message::User { text: "Hello?".into(), images: Vec::new() }],
        tools: [].into(),
        output_tokens_max: None,
        thinking: Thinking::Off,
        temperature: Some(0.7),
        conversation: "c".into(),
    }
}

async fn ask(provider: &Provider) -> (Vec<ModelEvent>, Option<ModelError>) {
    let mut stream = provider.stream(question());
    let mut events = Vec::new();
    loop {
        match tokio::time::timeout(DEADLINE, stream.next()).await.expect("the call goes on") {
            Ok(event) => {
                let done = matches!(event, ModelEvent::Done { .. });
                events.push(event);
                if done {
                    return (events, None);
                }
            }
            Err(error) => return (events, Some(error)),
        }
    }
}

async fn check(does: Vec<Does>, expected: Expect) -> Vec<String> {
    let (provider, asked) = provider(does);
    let (events, error) = ask(&provider).await;
    let mut told: String = events.iter().map(|event| format!("{event:?}\n")).collect();
    if let Some(error) = error {
        told.push_str(&format!("{:?}: {error}\n", error.kind));
    }
    assert!(!told.contains(KEY), "{told}");
    expected.assert_eq(&told);
    asked.try_iter().collect()
}

fn answer() -> Does {
    Does::Answers("200 OK", "", format!("{TEXT}{DONE}"))
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_after_the_time_it_says() {
    let body = format!(r#"{{"error":{{"message":"Slow down, {KEY}"}}}}"#);
    let headers = "retry-after-ms: 20\r\nretry-after: 600\r\nx-request-id: req-7\r\n";
    let busy = Does::Answers("429 Too Many Requests", headers, body);
    let asked = check(
        vec![busy, answer()],
        expect![[r#"
        Notice("acme is busy (429): Slow down, *** [request req-7]; trying again in 1 s (1 of 5 tries)")
        Text("Hi.")
        Done { stop: Finished }
    "#]],
    )
    .await;
    assert_eq!(asked.len(), 2);
    let same = asked.iter().all(|asked| asked.contains(&format!("authorization: Bearer {KEY}")));
    assert!(same && asked[0] == asked[1], "{asked:?}");
}

#[tokio::test]
async fn a_wrong_key_and_a_redirect_are_not_asked_again() {
    let wrong = Does::Answers("401 Unauthorized", "", r#"{"error":{"message":"Invalid API Key"}}"#.into());
    assert_eq!(
        check(
            vec![wrong, answer()],
            expect![[r#"
        Permanent: acme says the key is not valid (401): Invalid API Key; set its key
    "#]]
        )
        .await
        .len(),
        1
    );
    let elsewhere =
        Does::Answers("307 Temporary Redirect", "location: http://127.0.0.1:1/\r\n", String::new());
    assert_eq!(
        check(
            vec![elsewhere, answer()],
            expect![[r#"
        Permanent: acme was not found at this address (307); check its base URL
    "#]]
        )
        .await
        .len(),
        1
    );
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_asked_for_again() {
    let asked = check(vec![Does::BreaksOff(TEXT.into()), answer()], expect![[r#"
        Text("Hi.")
        Transient { retry_after: None }: acme: the answer was cut off: end of file before message length reached; the answer so far is kept, send another prompt to continue
    "#]]).await;
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn an_answer_that_was_complete_may_break_off() {
    let whole = format!("{TEXT}{}", DONE.split("data: [DONE]").next().unwrap());
    check(
        vec![Does::BreaksOff(whole)],
        expect![[r#"
        Text("Hi.")
        Done { stop: Finished }
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_stall_ends_the_answer() {
    check(vec![Does::Stalls(TEXT.into())], expect![[r#"
        Text("Hi.")
        Transient { retry_after: None }: acme: the answer stopped: no more data for 2 s; the answer so far is kept, send another prompt to continue
    "#]]).await;
}

#[tokio::test]
async fn a_setting_that_a_model_refuses_is_left_out_from_then_on() {
    let body = r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.7"}}"#;
    let refused = Does::Answers("400 Bad Request", "", body.into());
    let (provider, asked) = provider(vec![refused, answer(), answer()]);
    let (events, error) = ask(&provider).await;
    assert_eq!((error, events.len()), (None, 3));
    expect![[r#"Notice("acme:m1 does not support the temperature; trying again without it")"#]]
        .assert_eq(&format!("{:?}", events[0]));
    let (events, error) = ask(&provider).await;
    assert_eq!((error, events.len()), (None, 2));
    let with: Vec<bool> = asked.try_iter().map(|asked| asked.contains("temperature")).collect();
    assert_eq!(with, [true, false, false]);
}

#[tokio::test]
async fn whoever_drops_the_stream_closes_the_connection() {
    let (provider, asked) = provider(vec![Does::Stalls(TEXT.into())]);
    let mut stream = provider.stream(question());
    let first = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
    assert_eq!(first, Ok(ModelEvent::Text("Hi.".into())));
    drop(stream);
    let reply = tokio::task::spawn_blocking(move || {
        (asked.recv_timeout(DEADLINE).unwrap(), asked.recv_timeout(DEADLINE).unwrap())
    });
    // The connection's own task sees that nobody listens when it next runs.
    let (_, gone) = tokio::time::timeout(DEADLINE, reply).await.unwrap().unwrap();
    assert_eq!(gone, "gone: true");
}

const BUSY: &str = "429 Too Many Requests";

/// M1: a wait of any length is said; a long one is the person's to decide.
#[tokio::test]
async fn a_provider_that_wants_to_be_left_alone_for_a_day_is_told_at_once() {
    for (seconds, told) in [("61", "1 min 1 s"), ("86400", "1 d"), ("604800", "7 d")] {
        let headers: &'static str = format!("retry-after: {seconds}\r\n").leak();
        let (provider, _asked) = provider(vec![Does::Answers(BUSY, headers, "{}".into())]);
        let (events, error) = ask(&provider).await;
        let error = error.unwrap().text;
        assert_eq!(events, []);
        let wait = format!("it asks to wait {told}: try again after that or choose another model");
        assert!(error.contains(&wait) && error.contains("retry_after_max"), "{error}");
    }
}

/// M2: an end is no answer.
#[tokio::test]
async fn an_answer_without_a_word_is_asked_for_again_and_then_an_error() {
    let empty = [
        "data: [DONE]\n\n",
        "",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    ];
    for body in empty {
        let (provider, _asked) = provider(vec![Does::Answers("200 OK", "", body.into()), answer()]);
        let (events, error) = ask(&provider).await;
        assert_eq!(error, None, "{body}");
        assert!(
            matches!(&events[0], ModelEvent::Notice(text) if text.contains("trying again")),
            "{events:?}"
        );
        assert!(events.contains(&ModelEvent::Text("Hi.".into())), "{events:?}");
    }
}

/// M3: what came is kept, the rest is not waited for.
#[tokio::test]
async fn an_answer_without_an_end_is_ended_at_the_limit() {
    let piece = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{text}}}]}}\n\n");
    let long = "x".repeat(600);
    for delta in [
        format!("{{\"content\":\"{long}\"}}"),
        format!("{{\"reasoning_content\":\"{long}\"}}"),
        format!(
            "{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"f\",\"arguments\":\"{long}\"}}}}]}}"
        ),
    ] {
        let (provider, asked) =
            limited(vec![Does::Stalls(piece(&delta).repeat(2))], |config| config.answer_bytes_max = 1000);
        let (events, error) = ask(&provider).await;
        assert_eq!(error, None);
        let [.., ModelEvent::Notice(notice), ModelEvent::Done { stop }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(*stop, agent::ModelStop::MaxTokens);
        assert!(notice.contains("1000 bytes") && notice.contains("answer_bytes_max"), "{notice}");
        let reply = tokio::task::spawn_blocking(move || {
            (asked.recv_timeout(DEADLINE).unwrap(), asked.recv_timeout(DEADLINE).unwrap())
        });
        // The connection's own task sees that nobody listens when it next runs.
        let (_, gone) = tokio::time::timeout(DEADLINE, reply).await.unwrap().unwrap();
        assert_eq!(gone, "gone: true");
    }
}

/// M4: with nothing but signs of life a model is given up, and the person hears of it meanwhile.
#[tokio::test]
async fn a_model_that_says_nothing_is_given_up_in_time() {
    let hangs = || Does::Stalls(String::new());
    let (provider, _asked) = limited(vec![hangs(), hangs(), hangs()], |config| {
        config.timeouts.idle = Duration::from_millis(400);
        config.timeouts.give_up = Duration::from_millis(1500);
    });
    let (events, error) = ask(&provider).await;
    let error = error.unwrap().text;
    // The second try would begin after what is left.
    assert!(error.contains("no more data for 0.4 s"), "{error}");
    assert_eq!(events, [], "{events:?}");
    let (provider, _asked) = limited(vec![Does::Pings], |config| {
        config.timeouts.give_up = Duration::from_millis(900);
    });
    let (_, error) = ask(&provider).await;
    let error = error.unwrap().text;
    assert!(error.contains("has sent nothing for 1 s"), "{error}");
}
