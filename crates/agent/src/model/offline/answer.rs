//! How the offline model answers: from the messages alone to the steps of one reply.

use std::time::Duration;

use serde_json::json;

use super::Step;
use super::request_parser::{Request, parse, resources};
use super::tool_result_summary;
use crate::model::{Image, Message, ModelRequest};

/// The beginning of the first answer of a session, by which the model also recognises that it has introduced
/// itself.
const INTRODUCTION: &str = "This is the offline model: no model key is configured. ";
/// How to get a real model.
const ADVICE: &str = "For a real model set a key, as in `export ANTHROPIC_API_KEY=...`, or start Ollama; \
    `ropewalk models list` says what else is looked for.";
const ABILITIES: &str = "I can do: `read FILE`, `list [DIR]`, `search TEXT`, `run CMD`, `write FILE: TEXT`, \
    `edit FILE: OLD => NEW`, `plan`, `think`, `stream N [BYTES]`, `sleep MS`, `what did I say?`, `fail`; \
    several at once on several lines or joined by ` && then `.";
/// A pause that is long enough to see each state of the plan.
const PLAN_PAUSE: Duration = Duration::from_millis(150);
const PLAN: [&str; 3] = ["Look at what is there", "Make the change", "Check the result"];

/// The steps of the next reply.
pub(super) fn steps(request: &ModelRequest) -> Vec<Step> {
    let terse = request.model.ends_with("terse");
    let last_user = request.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let Some((at, Message::User { text, images })) =
        last_user.and_then(|at| Some((at, request.messages.get(at)?)))
    else {
        return vec![Step::Say(ABILITIES.into())];
    };
    let (before, after) = (&request.messages[..at], &request.messages[at + 1..]);
    let requests = parse(text);
    let mut steps = if after.iter().any(|message| matches!(message, Message::ToolResult { .. })) {
        go_on(&requests, after, terse)
    } else {
        open(&requests, before, terse, &attachments(text, images))
    };
    if !request.messages.iter().any(introduces) {
        steps.insert(0, Step::Say(format!("{INTRODUCTION}{ABILITIES} {ADVICE}\n")));
    }
    steps
}

fn introduces(message: &Message) -> bool {
    match message {
        Message::Assistant { text, .. } => text.starts_with(INTRODUCTION),
        // The introduction was before the summary.
        Message::Summary(_) => true,
        Message::User { .. } | Message::ToolResult { .. } => false,
    }
}

fn attachments(text: &str, images: &[Image]) -> String {
    let mut seen: Vec<String> = resources(text);
    seen.extend(images.iter().map(|image| format!("an image ({}, which I cannot see)", image.mime)));
    if seen.is_empty() { String::new() } else { format!("Attached: {}.\n", seen.join(", ")) }
}

/// The first reply to a prompt: text, and calls of the tools that are needed.
fn open(requests: &[Request], before: &[Message], terse: bool, attached: &str) -> Vec<Step> {
    let mut said = Vec::new();
    let mut calls = Vec::new();
    if !attached.is_empty() {
        said.push(Step::Say(attached.to_owned()));
    }
    if requests.iter().all(|request| matches!(request, Request::Unknown(_))) {
        let sorry = "I did not understand that.";
        said.push(Step::Say(if terse { sorry.to_owned() } else { format!("{sorry} {ABILITIES}") }));
        return said;
    }
    for request in requests {
        match call(request) {
            Some(step) => calls.push(step),
            None => said.extend(say(request, before, terse)),
        }
    }
    if !terse && !calls.is_empty() {
        said.push(Step::Say(match calls.len() {
            1 => "I will do that.\n".to_owned(),
            count => format!("I will do these {count} things.\n"),
        }));
    }
    said.extend(calls);
    said
}

/// The tool call that a request needs, if it needs one.
fn call(request: &Request) -> Option<Step> {
    let (name, arguments) = match request {
        Request::Read(path) | Request::Review(Some(path)) => ("read", json!({"path": path})),
        Request::List(None) | Request::Review(None) => ("list", json!({})),
        Request::List(Some(path)) => ("list", json!({"path": path})),
        Request::Search(text) => ("search", json!({"text": text})),
        Request::Run(command) => ("shell", json!({"command": command})),
        Request::Write { path, text } => ("write", json!({"path": path, "text": text})),
        Request::Edit { path, old, new } => ("edit", json!({"path": path, "old": old, "new": new})),
        Request::Plan => return Some(plan(0)),
        Request::Think
        | Request::Stream { .. }
        | Request::Sleep(_)
        | Request::Recall
        | Request::Fail
        | Request::Unknown(_) => return None,
    };
    Some(Step::Call { name, arguments })
}

fn say(request: &Request, before: &[Message], terse: bool) -> Vec<Step> {
    match request {
        Request::Think => {
            let thoughts = ["Let me see. ", "There is a question, ", "and it wants an answer."];
            let mut steps: Vec<_> = thoughts.map(|thought| Step::Think(thought.into())).into();
            steps.push(Step::Say("I thought about it.\n".into()));
            steps
        }
        Request::Stream { count, chunk_bytes } => {
            vec![Step::Flood { next: 1, last: *count, chunk_bytes: *chunk_bytes }]
        }
        Request::Sleep(time_ms) => {
            vec![Step::Pause(Duration::from_millis(*time_ms)), Step::Say(format!("I slept {time_ms} ms.\n"))]
        }
        Request::Recall => vec![Step::Say(recall(before, terse))],
        Request::Fail => vec![Step::Fail("the offline model failed, as it was asked to".into())],
        Request::Unknown(text) => vec![Step::Say(format!("I did not understand {text:?}.\n"))],
        Request::Read(_)
        | Request::List(_)
        | Request::Search(_)
        | Request::Run(_)
        | Request::Write { .. }
        | Request::Edit { .. }
        | Request::Plan
        | Request::Review(_) => Vec::new(),
    }
}

/// The earlier messages of the user, as far as they are in the conversation.
fn recall(before: &[Message], terse: bool) -> String {
    let lines: Vec<String> = before
        .iter()
        .filter_map(|message| match message {
            Message::User { text, .. } => Some(text.to_string()),
            Message::Summary(summary) => Some(format!("(summed up) {}", summary.trim_end())),
            Message::Assistant { .. } | Message::ToolResult { .. } => None,
        })
        .collect();
    match (lines.is_empty(), terse) {
        (true, _) => "You said nothing before this.\n".to_owned(),
        (false, true) => format!("{}\n", lines.join(" | ").replace('\n', " ")),
        (false, false) => {
            format!("You said:\n{}", lines.iter().map(|line| format!("- {line}\n")).collect::<String>())
        }
    }
}

/// After tool results: the next state of a plan, or a report.
fn go_on(requests: &[Request], after: &[Message], terse: bool) -> Vec<Step> {
    let is_plan = |message: &&Message| matches!(message, Message::ToolResult { tool, .. } if tool.as_ref() == "update_plan");
    let shown = after.iter().filter(is_plan).count();
    // Nothing started, each entry in progress in turn, all done.
    if (1..PLAN.len() + 2).contains(&shown) {
        let mut steps = vec![Step::Pause(PLAN_PAUSE)];
        if let Some(entry) = PLAN.get(shown - 1).filter(|_| !terse) {
            steps.push(Step::Say(format!("{entry}.\n")));
        }
        steps.push(plan(shown));
        return steps;
    }
    let mut sentences = tool_result_summary::sentences(requests, after);
    if shown > 0 {
        sentences.push("The plan is done.".into());
    }
    let text = if terse { sentences.join(" ").replace('\n', " ") } else { sentences.join("\n") };
    vec![Step::Say(text)]
}

/// The plan in its `n`th state.
fn plan(n: usize) -> Step {
    let status = |at: usize| match (at + 1).cmp(&n) {
        std::cmp::Ordering::Less => "completed",
        std::cmp::Ordering::Equal => "in_progress",
        std::cmp::Ordering::Greater => "pending",
    };
    let entry = |(at, content): (usize, &&str)| json!({"content": content, "status": status(at), "priority": "medium"});
    let entries: Vec<_> = PLAN.iter().enumerate().map(entry).collect();
    Step::Call { name: "update_plan", arguments: json!({"entries": entries}) }
}
