//! Over a thousand recorded replies, against what an independent decoder reads out of them.
//!
//! Nothing may be lost: text, thinking, calls, refusals, usage, the reason to stop. Where we differ on
//! purpose, the difference is a class below with its reason, and the number of its members is fixed.

use std::collections::BTreeMap;

use agent::ModelStop;
use expect_test::expect;
use serde_json::Value;

use crate::models::{DecodedReply, hear, recorded};

/// Bodies up to here are also read byte by byte.
const SMALL_BYTES: usize = 16 * 1024;

#[test]
fn nothing_of_a_recorded_reply_is_lost() {
    let (Some(rows), Some(expected)) =
        (recorded::file("model-streams.json.gz"), recorded::file("model-streams.expected.json.gz"))
    else {
        return;
    };
    let mut classes: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows.as_array().unwrap() {
        let (kind, id) = (row["kind"].as_str().unwrap(), recorded::id(row));
        let reply = hear(recorded::wire(kind), row["body"].as_str().unwrap(), usize::MAX);
        *classes.entry(format!("{kind}: all")).or_default() += 1;
        for class in compare(kind, row, &expected[&id], &reply) {
            match class {
                Ok(class) => *classes.entry(format!("{kind}: {class}")).or_default() += 1,
                Err(difference) => wrong.push(format!("{kind} {id}: {difference}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    let table: String = classes.iter().map(|(class, count)| format!("{count} {class}\n")).collect();
    expect![[r#"
        205 anthropic: all
        1 anthropic: an error after the reason to stop changes nothing
        137 gemini: all
        39 gemini: arguments written differently, the same in value
        18 ollama: all
        6 ollama: arguments written differently, the same in value
        10 openai_chat: a refusal is said and is the reason to stop
        561 openai_chat: all
        1 openai_chat: an error after the reason to stop changes nothing
        2 openai_chat: an error inside the stream
        6 openai_chat: arguments written differently, the same in value
        2 openai_chat: no usage was told
        1 openai_chat: thinking that is told in details only
        4 openai_chat: usage that stands elsewhere
        2 openai_resp: a refusal is said and is the reason to stop
        142 openai_resp: all
        1 openai_resp: an empty line between parts of thinking
    "#]]
    .assert_eq(&table);
}

#[test]
fn how_the_bytes_are_split_makes_no_difference() {
    let Some(rows) = recorded::file("model-streams.json.gz") else { return };
    for row in rows.as_array().unwrap() {
        let (kind, body) = (row["kind"].as_str().unwrap(), row["body"].as_str().unwrap());
        let whole = hear(recorded::wire(kind), body, usize::MAX);
        let sizes: &[usize] = if body.len() <= SMALL_BYTES { &[1, 7] } else { &[7, 4093] };
        for size in sizes {
            let pieces = hear(recorded::wire(kind), body, *size);
            assert!(pieces == whole, "{kind} {} in pieces of {size} bytes", recorded::id(row));
        }
    }
}

/// The known classes of difference, or a difference that is none of them.
fn compare(
    kind: &str,
    row: &Value,
    expected: &Value,
    reply: &DecodedReply,
) -> Vec<Result<&'static str, String>> {
    let mut found = Vec::new();
    words(kind, row, expected, reply, &mut found);
    calls(expected, reply, &mut found);
    usage(kind, &expected["usage"], reply, &mut found);
    ending(expected, reply, &mut found);
    found
}

type ComparisonResults = Vec<Result<&'static str, String>>;

fn words(kind: &str, row: &Value, expected: &Value, reply: &DecodedReply, found: &mut ComparisonResults) {
    let (text, thinking) = (expected["text"].as_str().unwrap(), expected["think"].as_str().unwrap());
    let refusal = refusal(kind, row["body"].as_str().unwrap());
    if !refusal.is_empty() {
        // The other decoder does not know refusals; theirs is taken from the raw stream here.
        found.push(Ok("a refusal is said and is the reason to stop"));
    }
    if reply.text != format!("{text}{refusal}") {
        found.push(Err(format!("text {text:?} {refusal:?}\n   heard {:?}", reply.text)));
    }
    if reply.thinking != thinking {
        if reply.thinking.replace("\n\n", "") == thinking.replace("\n\n", "") {
            // Parts of a summary begin with a headline; without a gap it sticks to the sentence before.
            found.push(Ok("an empty line between parts of thinking"));
        } else if thinking.is_empty() && row["body"].as_str().unwrap().contains("\"reasoning_details\":[{") {
            // Under the one name that the other decoder does not know.
            found.push(Ok("thinking that is told in details only"));
        } else {
            found.push(Err(format!("thinking {thinking:?}\n   heard {:?}", reply.thinking)));
        }
    }
}

fn refusal(kind: &str, body: &str) -> String {
    let events = body.lines().filter_map(|line| line.strip_prefix("data:"));
    let values = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let texts = values.filter_map(|value| {
        let text = match kind {
            "openai_chat" => value.pointer("/choices/0/delta/refusal"),
            "openai_resp" if value["type"] == "response.refusal.delta" => value.get("delta"),
            _ => None,
        };
        text?.as_str().map(str::to_owned)
    });
    texts.collect()
}

fn calls(expected: &Value, reply: &DecodedReply, found: &mut ComparisonResults) {
    let text = |call: &Value, key: &str| call[key].as_str().unwrap_or_default().to_owned();
    let theirs = expected["tools"].as_array().unwrap();
    let theirs: Vec<_> =
        theirs.iter().map(|call| (text(call, "id"), text(call, "name"), text(call, "args"))).collect();
    if theirs == reply.calls {
        return;
    }
    let same = theirs.len() == reply.calls.len()
        && theirs.iter().zip(&reply.calls).all(|(theirs, ours)| {
            (&theirs.0, &theirs.1) == (&ours.0, &ours.1) && arguments(&theirs.2) == arguments(&ours.2)
        });
    // Key order and spaces of arguments that come as JSON values, and {} for nothing at all.
    let difference = || format!("calls {theirs:?}\n   heard {:?}", reply.calls);
    found.push(if same { Ok("arguments written differently, the same in value") } else { Err(difference()) });
}

fn arguments(text: &str) -> Value {
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

fn usage(kind: &str, told: &Value, reply: &DecodedReply, found: &mut ComparisonResults) {
    let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let (input, output, cached) = match kind {
        "anthropic" => {
            let cached = number("/cache_read_input_tokens") + number("/cache_creation_input_tokens");
            (number("/input_tokens") + cached, number("/output_tokens"), cached)
        }
        "openai_resp" => {
            let cached = number("/input_tokens_details/cached_tokens")
                + number("/input_tokens_details/cache_write_tokens");
            (number("/input_tokens"), number("/output_tokens"), cached)
        }
        "openai_chat" => {
            let cached = number("/prompt_tokens_details/cached_tokens").max(number("/cached_tokens"));
            let written = number("/prompt_tokens_details/cache_write_tokens");
            (number("/prompt_tokens"), number("/completion_tokens"), cached + written)
        }
        "gemini" => {
            let output = number("/candidatesTokenCount") + number("/thoughtsTokenCount");
            let input = number("/promptTokenCount") + number("/toolUsePromptTokenCount");
            (input, output, number("/cachedContentTokenCount"))
        }
        _ => (number("/prompt_eval_count"), number("/eval_count"), 0),
    };
    let ours = reply.usage.map(|usage| {
        let cached = usage.cache_read + usage.cache_write;
        assert_eq!(usage.context_used, usage.input + cached + usage.output);
        assert!(usage.reasoning <= usage.output, "{usage:?}");
        (usage.input + cached, usage.output, cached)
    });
    match ours {
        None if told.is_null() => found.push(Ok("no usage was told")),
        _ if reply.error.is_some() => {}
        // Beside the place where the other decoder looks: `x_groq`, or next to a late error.
        Some(_) if told.is_null() && kind == "openai_chat" => found.push(Ok("usage that stands elsewhere")),
        Some(ours) if ours == (input, output, cached) => {}
        ours => found.push(Err(format!("usage {told}\n   heard {ours:?}"))),
    }
}

fn ending(expected: &Value, reply: &DecodedReply, found: &mut ComparisonResults) {
    let stop = match expected["stop"].as_str().unwrap_or_default() {
        _ if reply.stop == Some(ModelStop::Refusal) => ModelStop::Refusal,
        "length" | "MAX_TOKENS" | "max_tokens" | "response.incomplete" => ModelStop::MaxTokens,
        _ => ModelStop::Finished,
    };
    match (&reply.error, expected["err"].is_null()) {
        (None, true) if reply.stop == Some(stop) => {}
        (None, false) if reply.stop == Some(stop) && stop == ModelStop::MaxTokens => {
            // "Token limit reached" is what the reason to stop has said already.
            found.push(Ok("an error after the reason to stop changes nothing"));
        }
        (Some(_), false) => found.push(Ok("an error inside the stream")),
        _ => found.push(Err(format!(
            "stop {} err {}\n   heard {:?} {:?}",
            expected["stop"], expected["err"], reply.stop, reply.error
        ))),
    }
}
