//! Conversations that are longer than a model can take.

use agent::{Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use engine::{Body, BoxFuture, Usage};
use testkit::{Line, Script, call, fail, say};

use crate::harness::Harness;

/// A scripted model that takes so many tokens and not more.
struct Narrow {
    script: Script,
    window: u64,
    /// It refuses more than this, whatever it says of itself.
    takes: u64,
}

impl Narrow {
    fn new(script: &Script, window: u64) -> Self {
        Self { script: script.clone(), window, takes: window }
    }
}

impl Model for Narrow {
    fn offers(&self) -> Vec<ModelInfo> {
        let narrow = |info| ModelInfo { context_tokens: self.window, ..info };
        self.script.offers().into_iter().map(narrow).collect()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        if size(&request.messages) > self.takes {
            return Box::new(Full);
        }
        self.script.stream(request)
    }
}

struct Full;

impl ModelStream for Full {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        let error = ModelError { text: "the conversation is too long".into(), kind: ModelErrorKind::TooLong };
        Box::pin(std::future::ready(Err(error)))
    }
}

fn size(messages: &[Message]) -> u64 {
    let bytes = messages.iter().map(|message| match message {
        Message::Summary(text) | Message::User { text, .. } | Message::ToolResult { text, .. } => text.len(),
        Message::Assistant { text, calls, .. } => {
            text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>()
        }
    });
    bytes.sum::<usize>() as u64 / 4
}

fn shown(messages: &[Message]) -> Vec<String> {
    let line = |message: &Message| match message {
        Message::Summary(text) => format!("summary {text}"),
        Message::User { text, .. } => format!("user {text}"),
        Message::Assistant { text, calls, .. } => format!("assistant {text} {}", calls.len()),
        Message::ToolResult { tool, text, .. } => format!("{tool} {}", text.len()),
    };
    messages.iter().map(line).collect()
}

fn read(path: &str) -> Line {
    call("read", format!(r#"{{"path":"{path}"}}"#))
}

/// T9: in the middle of a task, when the window is nearly full by our own count.
#[tokio::test]
async fn a_conversation_is_summed_up_in_mid_task_and_a_restart_changes_nothing() {
    let used = Usage { input: 7, output: 3, context_used: 100, ..Usage::default() };
    let script = Script::new([
        vec![say("I look."), read("big.txt")],
        vec![read("small.txt")],
        vec![say("SUMMARY"), Line::Usage(used)],
        vec![say("done")],
        vec![say("next")],
        vec![say("restarted")],
    ]);
    let mut harness = Harness::with(Narrow::new(&script, 40_000)).await;
    harness.write("big.txt", &"a".repeat(100_000));
    harness.write("small.txt", &"b".repeat(32_000));
    let events = harness.prompt("do it").await;
    let lines = harness.lines(&events);
    let tail = "compacting\ncompacted\nsay done\ntitle do it\nEndTurn\n";
    assert!(lines.ends_with(tail), "{}", &lines[lines.len() - 200..]);
    let requests = script.requests();
    // The first reading alone fits; with the second there is too little room for an answer.
    assert_eq!(requests.len(), 4, "{:?}", requests.iter().map(|r| shown(&r.messages)).collect::<Vec<_>>());
    let asked = &requests[2];
    assert!(
        asked.tools.is_empty() && size(&asked.messages) < 1_500,
        "outputs are cut before they are summed up"
    );
    assert_eq!(
        shown(&requests[3].messages),
        ["user do it", "summary SUMMARY", "assistant  1", "read 32000"],
        "the task goes on with the summary and what the model has not seen yet"
    );
    let usages = events.iter().filter_map(|event| match &event.body {
        Body::Usage(usage) => Some(*usage),
        _ => None,
    });
    let usages: Vec<_> = usages.collect();
    assert!(usages.iter().any(|usage| usage.input == 7 && usage.output == 3), "it is counted: {usages:?}");
    assert_eq!(harness.session.snapshot().totals.input, 7);
    harness.prompt("and now?").await;
    harness.restart().await;
    harness.prompt("and now?").await;
    let requests = script.requests();
    let (live, restarted) = (&requests[4].messages, &requests[5].messages);
    assert_eq!(live[..4], requests[3].messages[..]);
    assert_eq!(live[..], restarted[..live.len()]);
}

/// The provider's own count is better than ours.
#[tokio::test]
async fn the_window_is_full_when_the_provider_says_so() {
    let nearly = Usage { context_used: 7_000, context_size: 8_000, ..Usage::default() };
    let script =
        Script::new([vec![read("a.txt"), Line::Usage(nearly)], vec![say("SUMMARY")], vec![say("done")]]);
    let mut harness = Harness::with(Narrow::new(&script, 8_000)).await;
    harness.write("a.txt", &"x".repeat(400));
    let events = harness.prompt(&"please ".repeat(1_700)).await;
    let requests = script.requests();
    assert_eq!(requests.len(), 3, "{}", harness.lines(&events));
    assert!(shown(&requests[2].messages)[1].starts_with("summary SUMMARY"));
}

/// A model that takes less than it says: it is summed up once, and asked again.
#[tokio::test]
async fn a_model_that_says_too_long_is_asked_again_with_a_summary() {
    let script = Script::new([vec![read("big.txt")], vec![say("SUMMARY")], vec![say("done")]]);
    let mut harness = Harness::with(Narrow { takes: 4_000, ..Narrow::new(&script, 12_000) }).await;
    harness.write("big.txt", &"x".repeat(20_000));
    let events = harness.prompt("do it").await;
    assert!(
        harness.lines(&events).ends_with("compacted\nsay done\ntitle do it\nEndTurn\n"),
        "{}",
        harness.lines(&events)
    );
    let last = &script.requests()[2].messages;
    assert_eq!(shown(last)[..2], ["user do it", "summary SUMMARY"]);
}

/// What cannot be made smaller fails once, clearly, and the session goes on.
#[tokio::test]
async fn what_a_summary_does_not_make_smaller_ends_the_turn_and_not_the_session() {
    let script = Script::new([vec![say("hello")]]);
    let mut harness = Harness::with(Narrow { takes: 50, ..Narrow::new(&script, 12_000) }).await;
    let events = harness.prompt(&"x".repeat(1_000)).await;
    assert!(
        harness.lines(&events).ends_with("Error: the conversation is too long\nFailed\n"),
        "{}",
        harness.lines(&events)
    );
    harness.prompt("/clear").await;
    let events = harness.prompt("hi").await;
    assert!(harness.lines(&events).starts_with("say hello\n"));
}

/// H11.
#[tokio::test]
async fn compact_asks_the_model_and_does_without_it_if_need_be() {
    let script = Script::new([
        vec![say("I did one thing.")],
        vec![say("SUMMARY of it")],
        vec![say("yes")],
        vec![fail("no credit")],
        vec![say("still here")],
    ]);
    let mut harness = Harness::with(script.clone()).await;
    let events = harness.prompt("/compact").await;
    assert_eq!(harness.lines(&events), "say There is nothing to compact yet.\nEndTurn\n");
    harness.prompt("first").await;
    let events = harness.prompt("/compact").await;
    assert_eq!(
        harness.lines(&events),
        "compacting\ncompacted\n\
         say For the model, this summary now replaces the conversation so far:||SUMMARY of it\nEndTurn\n"
    );
    harness.prompt("second").await;
    assert_eq!(shown(&script.requests()[2].messages), ["user first", "summary SUMMARY of it", "user second"]);
    let events = harness.prompt("/compact").await;
    let lines = harness.lines(&events);
    assert!(
        lines.contains("Warning: the model did not write a summary (no credit)")
            && lines.contains("compacted"),
        "{lines}"
    );
    harness.prompt("third").await;
    let last = shown(&script.requests()[4].messages);
    assert_eq!(last.len(), 4, "{last:?}");
    assert!(last[2].starts_with("summary Earlier:\nSUMMARY of it"), "an earlier summary is kept: {last:?}");
    // The log has it all.
    let mut all = Vec::new();
    let mut reader = harness.session.read(engine::Seq::START);
    while let engine::LogRead::Events(events) = reader.take(engine::PageRequest::USUAL).await.unwrap() {
        all.extend(events);
    }
    assert!(harness.lines(&all).contains("say I did one thing."));
}
