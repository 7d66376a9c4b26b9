//! Every wire over real sockets, against a provider that misbehaves in every way that is known.
//!
//! Each promise is checked on each of the five wires: it ends in an answer or in a clear error, and the
//! session can be used afterwards.

use std::sync::Arc;
use std::time::Duration;

use agent::{ModelInfo, Provider, ProviderConfig, Secret, Timeouts, Wire, catalog};
use engine::{Body, Event, NoticeLevel, Stop, Usage};
use testkit::mock_provider::{Fault, Mock, ProviderApi, ScriptedReply};
use testkit::{Line, Script, call, fail, say, think};

use crate::harness::Harness;

/// Short, because the tests wait for it; long enough for a busy machine between two pieces.
const IDLE: Duration = Duration::from_millis(1500);

macro_rules! on_every_wire {
    ($($promise:ident),* $(,)?) => {
        $(mod $promise {
            use testkit::mock_provider::ProviderApi;

            #[tokio::test]
            async fn anthropic() { super::$promise(ProviderApi::Anthropic).await; }
            #[tokio::test]
            async fn responses() { super::$promise(ProviderApi::Responses).await; }
            #[tokio::test]
            async fn chat() { super::$promise(ProviderApi::Chat).await; }
            #[tokio::test]
            async fn gemini() { super::$promise(ProviderApi::Gemini).await; }
            #[tokio::test]
            async fn ollama() { super::$promise(ProviderApi::Ollama).await; }
        })*
    };
}

on_every_wire!(
    a_busy_provider_is_asked_again_when_it_said,
    an_answer_that_breaks_off_is_a_clear_error_and_the_next_prompt_works,
    nonsense_instead_of_an_answer_ends_the_turn_or_is_asked_again,
    characters_may_be_split_anywhere,
    a_long_argument_in_many_pieces_arrives_whole,
    a_cancel_closes_the_connection_at_once,
    what_was_used_is_counted_and_an_unknown_price_is_unknown,
    a_wrong_key_is_said_and_not_asked_again,
    the_wire_carries_the_key_and_the_tools,
);

fn provider(mock: &Mock, tongue: ProviderApi) -> Provider {
    let wire = match tongue {
        ProviderApi::Anthropic => Wire::Anthropic,
        ProviderApi::Responses => Wire::Responses,
        ProviderApi::Chat => Wire::Chat,
        ProviderApi::Gemini => Wire::Gemini,
        ProviderApi::Ollama => Wire::Ollama,
    };
    let mut config = ProviderConfig::new("mock", wire);
    config.base_url = mock.base_url(tongue);
    config.key = Some(Secret::new("sk-mock-key"));
    config.key_name = Some("MOCK_API_KEY".into());
    config.models = vec![ModelInfo { images: true, ..catalog::describe("mock", "mock-1") }];
    config.timeouts = Timeouts { idle: IDLE, ..Timeouts::default() };
    Provider::new(config)
}

async fn harness(tongue: ProviderApi, answers: Vec<ScriptedReply>) -> (Harness, Mock) {
    let mock = Mock::start(answers).await;
    let harness = Harness::with(provider(&mock, tongue)).await;
    (harness, mock)
}

fn said(events: &[Arc<Event>]) -> String {
    let texts = events.iter().filter_map(|event| match &event.body {
        Body::Text { text, .. } => Some(text.as_ref()),
        _ => None,
    });
    texts.collect()
}

fn ended(events: &[Arc<Event>]) -> (Stop, String) {
    let end = events.iter().find_map(|event| match &event.body {
        Body::TurnEnded { stop, error } => Some((*stop, error.as_deref().unwrap_or_default().to_owned())),
        _ => None,
    });
    end.unwrap()
}

fn notices(events: &[Arc<Event>]) -> Vec<String> {
    let notices = events.iter().filter_map(|event| match &event.body {
        Body::Notice { level: NoticeLevel::Info, text } => Some(text.to_string()),
        _ => None,
    });
    notices.collect()
}

/// The session takes the next prompt and answers it.
async fn goes_on(harness: &mut Harness, mock: &Mock) {
    mock.then(vec![say("still here")]);
    let events = harness.prompt("are you there?").await;
    assert_eq!((said(&events).as_str(), ended(&events).0), ("still here", Stop::EndTurn));
}

async fn a_busy_provider_is_asked_again_when_it_said(tongue: ProviderApi) {
    let dated = vec![
        ("retry-after".to_owned(), "Wed, 21 Oct 2015 07:28:01 GMT".to_owned()),
        ("date".to_owned(), "Wed, 21 Oct 2015 07:28:00 GMT".to_owned()),
    ];
    let soon = vec![("retry-after-ms".to_owned(), "15".to_owned())];
    let answers = vec![
        ScriptedReply::faulty(Fault::busy("retry-after-ms", "20"), vec![]),
        ScriptedReply::faulty(Fault::busy("retry-after", "0"), vec![]),
        ScriptedReply::faulty(Fault::Refuse { status: 503, headers: dated }, vec![]),
        ScriptedReply::faulty(Fault::Refuse { status: 529, headers: soon }, vec![]),
        vec![say("at last")].into(),
    ];
    let (mut harness, mock) = harness(tongue, answers).await;
    let events = harness.prompt("go").await;
    assert_eq!((said(&events).as_str(), ended(&events).0), ("at last", Stop::EndTurn));
    assert_eq!(mock.requests().len(), 5);
    let notices = notices(&events);
    assert_eq!(notices.len(), 4, "{notices:?}");
    assert!(notices.iter().all(|notice| notice.contains("trying again in")), "{notices:?}");
}

async fn an_answer_that_breaks_off_is_a_clear_error_and_the_next_prompt_works(tongue: ProviderApi) {
    // Far enough that something was said: then it is not asked again.
    let last = 1_000_000;
    let long = || vec![say("a long answer that comes in several pieces, and then no more"); 3];
    let broken: Vec<(&str, ScriptedReply)> = vec![
        ("error", vec![say("begin"), fail("the machine is on fire")].into()),
        ("cut", ScriptedReply::faulty(Fault::Cut { event: 8 }, long())),
        ("stall", vec![say("begin"), Line::Hang].into()),
        (
            "cut after the last event",
            ScriptedReply::faulty(Fault::Cut { event: last }, vec![say("begin"), Line::Hang]),
        ),
    ];
    let (mut harness, mock) = harness(tongue, Vec::new()).await;
    for (what, answer) in broken {
        mock.then(answer);
        let before = mock.requests().len();
        let events = harness.prompt("go").await;
        let (stop, error) = ended(&events);
        assert_eq!(stop, Stop::Failed, "{what}: {error}");
        assert!(error.contains("mock") && error.contains("the answer so far is kept"), "{what}: {error}");
        assert!(what != "error" || error.contains("the machine is on fire"), "{error}");
        assert!(!error.contains("sk-mock-key"), "{error}");
        assert!(!said(&events).is_empty(), "{what}");
        assert_eq!(mock.requests().len(), before + 1, "{what} must not be asked again");
        goes_on(&mut harness, &mock).await;
    }
    // Where the end was told otherwise the provider's own mark is not missed; else it is a cut.
    mock.then(ScriptedReply::faulty(Fault::NoTerminator, vec![say("begin")]));
    let (stop, error) = ended(&harness.prompt("go").await);
    assert!(stop == Stop::EndTurn || stop == Stop::Failed && !error.is_empty(), "{stop:?} {error}");
    goes_on(&mut harness, &mock).await;
}

async fn nonsense_instead_of_an_answer_ends_the_turn_or_is_asked_again(tongue: ProviderApi) {
    let (mut harness, mock) = harness(tongue, Vec::new()).await;
    for fault in
        [Fault::Garbage, Fault::Html { status: 200 }, Fault::Html { status: 502 }, Fault::EndlessLine]
    {
        mock.then(ScriptedReply::faulty(fault.clone(), vec![]));
        mock.then(vec![say("sound")]);
        let events = harness.prompt("go").await;
        match ended(&events) {
            (Stop::EndTurn, _) => assert_eq!(said(&events), "sound", "{fault:?}"),
            (Stop::Failed, error) => {
                assert!(error.contains("mock") && !error.contains("<html>"), "{fault:?}: {error}");
                // The sound answer is still to be had.
                assert_eq!(said(&harness.prompt("again").await), "sound", "{fault:?}");
            }
            other => panic!("{fault:?}: {other:?}"),
        }
    }
}

async fn characters_may_be_split_anywhere(tongue: ProviderApi) {
    let text = "Grüße, 世界 👋🏽! \u{2028}Ñandú\nand a \"quote\" \\ too";
    let lines =
        vec![think("日本語で考える"), say(text), call("write", r#"{"path":"ü.txt","text":"żółć 🦀"}"#)];
    let split = |bytes, lines| ScriptedReply::faulty(Fault::Split(bytes), lines);
    let (mut harness, _mock) =
        harness(tongue, vec![split(7, lines), split(1, vec![say("ferti\u{67} ✓")])]).await;
    let events = harness.prompt("go").await;
    assert_eq!(said(&events), format!("{text}fertig ✓"));
    assert_eq!(harness.read("ü.txt"), "żółć 🦀");
    let thought = events.iter().filter_map(|event| match &event.body {
        Body::Thought { text, .. } => Some(text.as_ref()),
        _ => None,
    });
    assert_eq!(thought.collect::<String>(), "日本語で考える");
}

async fn a_long_argument_in_many_pieces_arrives_whole(tongue: ProviderApi) {
    let content: String = (0..25_000).map(|n| format!("{n:07}\n")).collect();
    let arguments = serde_json::json!({ "path": "big.txt", "text": content }).to_string();
    assert!(arguments.len() > 200_000);
    let (mut harness, _mock) =
        harness(tongue, vec![vec![call("write", arguments)].into(), vec![say("done")].into()]).await;
    let events = harness.prompt("go").await;
    assert_eq!(ended(&events).0, Stop::EndTurn);
    assert!(harness.read("big.txt") == content, "the file is not what was written");
}

async fn a_cancel_closes_the_connection_at_once(tongue: ProviderApi) {
    let (mut harness, mock) = harness(tongue, vec![vec![say("beginning "), Line::Hang].into()]).await;
    harness.send(vec![engine::Content::text("go")]).await;
    harness.until(|body| matches!(body, Body::Text { .. })).await;
    harness.cancel().await;
    let events = harness.turn().await;
    assert_eq!(ended(&events).0, Stop::Cancelled);
    mock.hung_up(1).await;
    goes_on(&mut harness, &mock).await;
    // The same while it waits to ask again: an hour is not waited for, a minute is cancelled.
    mock.then(ScriptedReply::faulty(Fault::busy("retry-after", "60"), vec![]));
    harness.send(vec![engine::Content::text("go")]).await;
    harness.until(|body| matches!(body, Body::Notice { .. })).await;
    harness.cancel().await;
    assert_eq!(ended(&harness.turn().await).0, Stop::Cancelled);
    goes_on(&mut harness, &mock).await;
}

async fn what_was_used_is_counted_and_an_unknown_price_is_unknown(tongue: ProviderApi) {
    let usage = Usage { input: 100, output: 50, cache_read: 30, reasoning: 10, ..Usage::default() };
    let (mut harness, _mock) = harness(tongue, vec![vec![say("hi"), Line::Usage(usage)].into()]).await;
    let events = harness.prompt("go").await;
    let counted = events.iter().find_map(|event| match &event.body {
        Body::Usage(usage) => Some(*usage),
        _ => None,
    });
    let counted = counted.unwrap();
    // Ollama knows no cache that it could tell of, and only the wires of OpenAI and Gemini count thoughts.
    let (input, cache_read) = if tongue == ProviderApi::Ollama { (130, 0) } else { (100, 30) };
    let thoughts = matches!(tongue, ProviderApi::Responses | ProviderApi::Chat | ProviderApi::Gemini);
    let reasoning = if thoughts { 10 } else { 0 };
    let told = (counted.input, counted.output, counted.cache_read, counted.reasoning);
    assert_eq!(told, (input, 50, cache_read, reasoning));
    assert_eq!((counted.context_used, counted.cost_usd, counted.unpriced), (180, 0.0, true));
}

async fn a_wrong_key_is_said_and_not_asked_again(tongue: ProviderApi) {
    let (mut harness, mock) = harness(tongue, vec![ScriptedReply::faulty(Fault::refuse(401), vec![])]).await;
    let (stop, error) = ended(&harness.prompt("go").await);
    assert_eq!(stop, Stop::Failed);
    assert!(error.contains("MOCK_API_KEY") && !error.contains("sk-mock-key"), "{error}");
    assert_eq!(mock.requests().len(), 1);
    goes_on(&mut harness, &mock).await;
}

async fn the_wire_carries_the_key_and_the_tools(tongue: ProviderApi) {
    let (mut harness, mock) = harness(tongue, vec![vec![say("hi")].into()]).await;
    harness.prompt("a prompt to be found").await;
    let requests = mock.requests();
    let header = match tongue {
        ProviderApi::Anthropic => "x-api-key",
        ProviderApi::Gemini => "x-goog-api-key",
        ProviderApi::Responses | ProviderApi::Chat | ProviderApi::Ollama => "authorization",
    };
    assert!(
        requests[0].header(header).is_some_and(|key| key.ends_with("sk-mock-key")),
        "{:?}",
        requests[0].headers
    );
    assert!(!requests[0].path.contains("sk-mock-key"));
    let body = requests[0].body.to_string();
    assert!(body.contains("a prompt to be found") && body.contains("\"shell\""), "{body}");
}

/// A small repository with a bug, and what a model does about it.
fn task() -> Vec<Vec<Line>> {
    let usage = || Line::Usage(Usage { input: 900, output: 40, ..Usage::default() });
    vec![
        vec![
            think("Where is it added?"),
            say("I look for it."),
            call("search", r#"{"text":"add"}"#),
            usage(),
        ],
        vec![call("read", r#"{"path":"lib/add.sh"}"#), call("read", r#"{"path":"test.sh"}"#), usage()],
        vec![say("The tests first."), call("shell", r#"{"command":"sh test.sh"}"#), usage()],
        vec![call("edit", r#"{"path":"lib/add.sh","old":"$1 - $2","new":"$1 + $2"}"#), usage()],
        vec![call("shell", r#"{"command":"sh test.sh"}"#), usage()],
        vec![say("It subtracted; now it adds, and the tests pass."), usage()],
    ]
}

async fn do_task(mut harness: Harness) -> String {
    harness.write("lib/add.sh", "echo $(($1 - $2))\n");
    harness
        .write("test.sh", "test \"$(sh lib/add.sh 2 3)\" = 5 && echo passed || { echo failed; exit 1; }\n");
    let events = harness.prompt("find the bug, fix it and run the tests").await;
    assert_eq!(harness.read("lib/add.sh"), "echo $(($1 + $2))\n");
    let lines = harness.lines(&events);
    // How a text was cut differs from wire to wire.
    let mut whole: Vec<String> = Vec::new();
    for line in lines.lines() {
        match (whole.last_mut(), line.strip_prefix("think ")) {
            (Some(last), Some(rest)) if last.starts_with("think ") => last.push_str(rest),
            _ => whole.push(line.to_owned()),
        }
    }
    // Calls that only read run side by side: whichever ends first.
    let ends = |line: &String| line.split(' ').nth(1) == Some("ends:");
    for group in whole.chunk_by_mut(|one, other| ends(one) && ends(other)) {
        group.sort();
    }
    whole.join("\n")
}

#[tokio::test]
async fn the_same_task_leaves_the_same_log_through_every_wire() {
    let expected = do_task(Harness::with(Script::new(task())).await).await;
    assert!(
        expected.contains("failed") && expected.contains("passed") && expected.ends_with("EndTurn"),
        "{expected}"
    );
    for tongue in ProviderApi::ALL {
        let mock = Mock::start(task()).await;
        let found = do_task(Harness::with(provider(&mock, tongue)).await).await;
        assert_eq!(found, expected, "{tongue:?}");
        assert_eq!(mock.requests().len(), 6, "{tongue:?}");
        // What came of the calls was told in the provider's own words.
        assert!(mock.requests()[5].body.to_string().contains("passed"), "{tongue:?}");
    }
}
