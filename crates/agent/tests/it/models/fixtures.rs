//! Small replies written by hand: what a recording happens not to hold.

use std::fmt::Write as _;

use agent::Wire;
use expect_test::{Expect, expect};

use crate::models::{DecodedReply, hear};

fn check(wire: Wire, body: &str, expected: Expect) {
    let whole = hear(wire, body, usize::MAX);
    for size in [1, 2, 7] {
        assert_eq!(hear(wire, body, size), whole, "in pieces of {size} bytes");
    }
    expected.assert_eq(&told(&whole));
}

fn told(reply: &DecodedReply) -> String {
    let mut told = format!("order {}\n", reply.order);
    for (name, text) in [("text", &reply.text), ("thinking", &reply.thinking)] {
        if !text.is_empty() {
            writeln!(told, "{name} {text:?}").unwrap();
        }
    }
    for (id, name, arguments) in &reply.calls {
        writeln!(told, "call {id} {name} {arguments}").unwrap();
    }
    if let Some(usage) = reply.usage {
        let (read, write) = (usage.cache_read, usage.cache_write);
        let (input, output, reasoning, cost) = (usage.input, usage.output, usage.reasoning, usage.cost_usd);
        let all = usage.context_used;
        writeln!(
            told,
            "usage in {input} read {read} write {write} out {output} thought {reasoning} all {all} ${cost}"
        )
        .unwrap();
    }
    if let Some(error) = &reply.error {
        writeln!(told, "error {:?} {error}", error.kind).unwrap();
    }
    writeln!(told, "stop {:?}", reply.stop).unwrap();
    told
}

#[test]
fn thinking_and_interleaved_calls() {
    check(
        Wire::Anthropic,
        include_str!("fixtures/anthropic-thinking-tools.txt"),
        expect![[r#"
        order htcc
        text "I read them."
        thinking "Both files."
        call toolu_A read {"path":"ą"}
        call toolu_B read {"path":"b"}
        usage in 12 read 100 write 30 out 50 thought 20 all 192 $0
        stop Some(Finished)
    "#]],
    );
    check(
        Wire::Responses,
        include_str!("fixtures/responses-thinking-tools.txt"),
        expect![[r#"
        order hcc
        thinking "**One**\n\n**Two**"
        call call_A read {"path":"a"}
        call call_B read {"path":"b"}
        usage in 50 read 150 write 0 out 40 thought 25 all 240 $0
        stop Some(Finished)
    "#]],
    );
    check(
        Wire::Chat,
        include_str!("fixtures/chat-thinking-tools.txt"),
        expect![[r#"
        order htcc
        text "I read them."
        thinking "Both files."
        call call_A read {"path":"a"}
        call call_B read {"path":"b"}
        usage in 50 read 150 write 0 out 40 thought 25 all 240 $0.0125
        stop Some(Finished)
    "#]],
    );
    check(
        Wire::Gemini,
        include_str!("fixtures/gemini-thinking-tools.txt"),
        expect![[r#"
        order htcc
        text "I read them."
        thinking "Both files."
        call fn-1 read {"path":"a"}
        call  read {"path":"b"}
        usage in 50 read 150 write 0 out 40 thought 25 all 240 $0
        stop Some(Finished)
    "#]],
    );
    check(
        Wire::Ollama,
        include_str!("fixtures/ollama-thinking-tools.txt"),
        expect![[r#"
        order htcc
        text "I read them."
        thinking "Both files."
        call call_A read {"path":"a"}
        call call_B read {"path":"b"}
        usage in 200 read 0 write 0 out 40 thought 0 all 240 $0
        stop Some(Finished)
    "#]],
    );
}

#[test]
fn refusals_are_said() {
    check(
        Wire::Anthropic,
        include_str!("fixtures/anthropic-refusal.txt"),
        expect![[r#"
        order t
        text "I will not."
        usage in 12 read 0 write 0 out 4 thought 0 all 16 $0
        stop Some(Refusal)
    "#]],
    );
    check(
        Wire::Responses,
        include_str!("fixtures/responses-refusal.txt"),
        expect![[r#"
        order t
        text "I will not."
        usage in 20 read 0 write 0 out 4 thought 0 all 24 $0
        stop Some(Refusal)
    "#]],
    );
    check(
        Wire::Chat,
        include_str!("fixtures/chat-refusal.txt"),
        expect![[r#"
        order t
        text "I will not."
        stop Some(Refusal)
    "#]],
    );
    check(
        Wire::Gemini,
        include_str!("fixtures/gemini-blocked.txt"),
        expect![[r#"
        order t
        text "The provider blocked the prompt: PROHIBITED_CONTENT."
        usage in 20 read 0 write 0 out 0 thought 0 all 20 $0
        stop Some(Refusal)
    "#]],
    );
}

#[test]
fn a_truncated_call_stays_as_it_was_written() {
    check(
        Wire::Anthropic,
        include_str!("fixtures/anthropic-truncated-call.txt"),
        expect![[r#"
        order c
        call toolu_A write {"path":"a","text":"half
        usage in 12 read 0 write 0 out 4 thought 0 all 16 $0
        stop Some(MaxTokens)
    "#]],
    );
    check(
        Wire::Responses,
        include_str!("fixtures/responses-incomplete.txt"),
        expect![[r#"
        order c
        call call_A write {"path":"a","te
        usage in 20 read 0 write 0 out 4 thought 0 all 24 $0
        stop Some(MaxTokens)
    "#]],
    );
}

#[test]
fn calls_that_share_an_index_or_have_none() {
    check(
        Wire::Chat,
        include_str!("fixtures/chat-same-index.txt"),
        expect![[r#"
        order ccc
        call call_A read {"path":"a"}
        call call_B read {"path":"b"}
        call call_C read {"path":"c"
        stop Some(Finished)
    "#]],
    );
}

#[test]
fn errors_in_the_middle_are_errors() {
    check(
        Wire::Anthropic,
        include_str!("fixtures/anthropic-overloaded.txt"),
        expect![[r#"
        order t
        text "I be"
        error Transient { retry_after: None } Overloaded
        stop None
    "#]],
    );
    check(
        Wire::Responses,
        include_str!("fixtures/responses-failed.txt"),
        expect![[r#"
        order 
        error Transient { retry_after: None } Rate limit reached for gpt-5
        stop None
    "#]],
    );
    check(
        Wire::Chat,
        include_str!("fixtures/chat-cut.txt"),
        expect![[r#"
        order t
        text "I be"
        error Transient { retry_after: None } the answer was cut off: the connection ended before it did
        stop None
    "#]],
    );
    check(
        Wire::Gemini,
        include_str!("fixtures/gemini-error.txt"),
        expect![[r#"
        order t
        text "I be"
        error Transient { retry_after: None } The model is overloaded. Please try again later.
        stop None
    "#]],
    );
    check(
        Wire::Ollama,
        include_str!("fixtures/ollama-error.txt"),
        expect![[r#"
        order 
        error Permanent model requires more system memory (9.1 GiB) than is available (3.2 GiB)
        stop None
    "#]],
    );
}

#[test]
fn what_is_no_stream_is_understood_or_refused() {
    check(
        Wire::Chat,
        "data: <html>\n\n",
        expect![[r#"
        order 
        error Transient { retry_after: None } the answer is malformed: "<html>" is not JSON
        stop None
    "#]],
    );
    check(
        Wire::Chat,
        "",
        expect![[r#"
        order 
        error Transient { retry_after: None } the answer was cut off: the connection ended before it did
        stop None
    "#]],
    );
    check(
        Wire::Chat,
        "<html><body>login</body></html>",
        expect![[r#"
        order 
        error Transient { retry_after: None } the answer was cut off: the connection ended before it did
        stop None
    "#]],
    );
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    check(
        Wire::Chat,
        whole,
        expect![[r#"
        order t
        text "Hi."
        usage in 3 read 0 write 0 out 2 thought 0 all 5 $0
        stop Some(Finished)
    "#]],
    );
    check(
        Wire::Chat,
        r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
        expect![[r#"
        order 
        error TooLong prompt is too long: 9 tokens > 8 maximum
        stop None
    "#]],
    );
}

/// 200 KB in 25,000 pieces: joined once. Were each piece copied with all before it, that would be 2.5 GB.
#[test]
fn a_long_argument_in_small_pieces_is_read_in_linear_time() {
    let piece = "abcdefgh";
    let line = format!(
        r#"data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}}}]}}"#
    );
    let first = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"write","arguments":""}}]}}]}"#;
    let body = format!("{first}\n\n{}data: [DONE]\n\n", format!("{line}\n\n").repeat(25_000));
    let reply = hear(Wire::Chat, &body, 1024);
    assert_eq!(reply.calls.len(), 1);
    assert_eq!(reply.calls[0].2.len(), 200_000);
}
