//! Which messages are kept beside the summary after a compaction, and how many tokens messages have.
//!
//! The rule is a function of the messages alone, and the messages are a function of the log. So a compaction
//! in the log means the same after a restart as when it happened:
//!
//! 1. the user's own messages, the newest first, up to an eighth of the model's window and 20,000 tokens,
//!    without their images; the last one that fits only in part is cut;
//! 2. the summary, which replaces an earlier one;
//! 3. the newest messages, up to a quarter of the window and 15,000 tokens, but always the very last
//!    reply with all of its results, which are cut if they alone are more. None of these if a person
//!    asked for the compaction, because then no reply is unfinished.
//!
//! The window is the one of the last usage before the compaction. Tokens are counted as bytes divided by
//! four, which is the same everywhere and never far off.

use std::sync::Arc;

use crate::model::Message;
use crate::summary_without_model::cut;

const BYTES_PER_TOKEN: u64 = 4;
/// The approximate count of providers for an image of usual size.
const IMAGE_TOKENS: u64 = 1_500;
const MESSAGE_TOKENS: u64 = 4;
/// The window, if it is not known.
const WINDOW_TOKENS: u64 = 128_000;
const USERS_TOKENS_MAX: u64 = 20_000;
const TAIL_TOKENS_MAX: u64 = 15_000;
/// A part of a message that is shorter than this is useless.
const PART_TOKENS_MIN: u64 = 16;
/// The newest outputs up to this size are never pruned.
const PRUNE_KEEPS_TOKENS: u64 = 40_000;
/// Saving less than this is not worth invalidating the provider's cache.
const PRUNE_SAVES_TOKENS_MIN: u64 = 20_000;
const PRUNED: &str = "[this output was left out to make room; call the tool again if you need it]";

pub(crate) fn tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES_PER_TOKEN)
}

pub(crate) fn weight(message: &Message) -> u64 {
    let images = |count: usize| count as u64 * IMAGE_TOKENS;
    MESSAGE_TOKENS
        + match message {
            Message::Summary(text) => tokens(text),
            Message::User { text, images: shown } | Message::ToolResult { text, images: shown, .. } => {
                tokens(text) + images(shown.len())
            }
            Message::Assistant { text, calls, .. } => {
                tokens(text)
                    + calls.iter().map(|call| tokens(&call.arguments) + tokens(&call.name)).sum::<u64>()
            }
        }
}

/// The messages after a compaction.
pub(super) fn compacted(
    messages: &[Message],
    summary: &Arc<str>,
    window_tokens: u64,
    asked: bool,
) -> Vec<Message> {
    let window_tokens = if window_tokens == 0 { WINDOW_TOKENS } else { window_tokens };
    let tail_max = TAIL_TOKENS_MAX.min(window_tokens / 4);
    let from = if asked { messages.len() } else { tail_start(messages, tail_max) };
    let mut retention = users(&messages[..from], USERS_TOKENS_MAX.min(window_tokens / 8));
    retention.push(Message::Summary(Arc::clone(summary)));
    let tail = &messages[from..];
    // Only the very last reply can exceed the total.
    if tail.iter().map(weight).sum::<u64>() > tail_max {
        retention.extend(tail.iter().map(|message| cut_down(message, tail, tail_max, window_tokens)));
    } else {
        retention.extend_from_slice(tail);
    }
    retention
}

/// Where the newest messages begin: never between a call and its result, never before a summary.
fn tail_start(messages: &[Message], tail_max: u64) -> usize {
    let mut start = messages.len();
    let mut sum = 0;
    while let Some(before) =
        messages[..start].iter().rposition(|message| !matches!(message, Message::ToolResult { .. }))
    {
        if matches!(messages[before], Message::Summary(_)) {
            break;
        }
        sum += messages[before..start].iter().map(weight).sum::<u64>();
        if start != messages.len() && sum > tail_max {
            break;
        }
        start = before;
    }
    start
}

fn users(messages: &[Message], room: u64) -> Vec<Message> {
    let mut room = room;
    let mut retention = Vec::new();
    for message in messages.iter().rev() {
        let Message::User { text, .. } = message else { continue };
        let own = tokens(text) + MESSAGE_TOKENS;
        if own <= room {
            room -= own;
            retention.push(Message::User { text: Arc::clone(text), images: Vec::new() });
            continue;
        }
        if room > PART_TOKENS_MIN {
            let part = cut_to(text, room - MESSAGE_TOKENS);
            retention.push(Message::User { text: part, images: Vec::new() });
        }
        break;
    }
    retention.reverse();
    retention
}

/// Cuts a message of a reply that is too large. The last user message is kept whole if possible.
fn cut_down(message: &Message, tail: &[Message], tail_max: u64, window_tokens: u64) -> Message {
    match message {
        Message::ToolResult { call, tool, text, failed, .. } => {
            let results =
                tail.iter().filter(|other| matches!(other, Message::ToolResult { .. })).count() as u64;
            Message::ToolResult {
                call: Arc::clone(call),
                tool: Arc::clone(tool),
                text: cut_to(text, tail_max / results.max(1)),
                images: Vec::new(),
                failed: *failed,
            }
        }
        Message::User { text, images } => {
            Message::User { text: cut_to(text, window_tokens / 2), images: images.clone() }
        }
        Message::Summary(_) | Message::Assistant { .. } => message.clone(),
    }
}

fn cut_to(text: &Arc<str>, tokens_max: u64) -> Arc<str> {
    if tokens(text) <= tokens_max {
        return Arc::clone(text);
    }
    let bytes = usize::try_from(tokens_max * BYTES_PER_TOKEN).unwrap_or(usize::MAX);
    let head = &text[..text.floor_char_boundary(bytes)];
    cut(head, head.chars().count().saturating_sub(1)).into()
}

/// Removes old tool outputs. Returns how many tokens that saves; if it would be too few, nothing is removed.
pub(super) fn prune(messages: &mut [Message], newer: u64) -> u64 {
    let mut retention = newer;
    let mut old = Vec::new();
    let mut saved = 0;
    for (at, message) in messages.iter().enumerate().rev() {
        if !matches!(message, Message::ToolResult { .. }) {
            continue;
        }
        let own = weight(message);
        if retention + own <= PRUNE_KEEPS_TOKENS {
            retention += own;
            continue;
        }
        retention = PRUNE_KEEPS_TOKENS;
        let gain = own.saturating_sub(tokens(PRUNED) + MESSAGE_TOKENS);
        if gain > 0 {
            saved += gain;
            old.push(at);
        }
    }
    if saved < PRUNE_SAVES_TOKENS_MIN {
        return 0;
    }
    for at in old {
        if let Some(Message::ToolResult { text, images, .. }) = messages.get_mut(at) {
            *text = PRUNED.into();
            images.clear();
        }
    }
    saved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolCall;

    fn user(text: &str) -> Message {
        Message::User { text: text.into(), images: vec![] }
    }

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall { id: (*id).into(), name: "read".into(), arguments: "{}".into() };
        Message::Assistant { text: "".into(), calls: ids.iter().map(call).collect(), native: None }
    }

    fn result(id: &str, bytes: usize) -> Message {
        let (call, tool, text) = (id.into(), "read".into(), "x".repeat(bytes).into());
        Message::ToolResult { call, tool, text, images: vec![], failed: false }
    }

    fn shown(messages: &[Message]) -> String {
        let line = |message: &Message| match message {
            Message::Summary(text) => format!("summary {text}"),
            Message::User { text, .. } => format!("user {}", cut(text, 12)),
            Message::Assistant { calls, .. } => format!("assistant {}", calls.len()),
            Message::ToolResult { call, text, .. } => format!("result {call} {}", text.len()),
        };
        messages.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn the_users_words_the_summary_and_the_newest_stay() {
        let messages = [
            user("first"),
            calls(&["a"]),
            result("a", 40_000),
            user("second"),
            calls(&["b", "c"]),
            result("b", 400),
            result("c", 400),
        ];
        let retention = compacted(&messages, &"S".into(), 8_000, false);
        assert_eq!(
            shown(&retention),
            "user first; summary S; user second; assistant 2; result b 400; result c 400"
        );
        // A second one replaces the first, and the user's words of before are still there.
        let again = [retention, vec![calls(&["d"]), result("d", 9_000)]].concat();
        let retention = compacted(&again, &"T".into(), 8_000, false);
        assert_eq!(shown(&retention), "user first; user second; summary T; assistant 1; result d 8001");
    }

    #[test]
    fn a_heavy_last_reply_is_cut_and_a_prompt_of_the_user_hardly_ever() {
        let messages = [user("go"), calls(&["a", "b"]), result("a", 100_000), result("b", 100_000)];
        let retention = compacted(&messages, &"S".into(), 8_000, false);
        assert_eq!(shown(&retention), "user go; summary S; assistant 2; result a 4001; result b 4001");
        let prompt = "p".repeat(12_000);
        let retention = compacted(&[user("old"), user(&prompt)], &"S".into(), 8_000, false);
        assert_eq!(retention.last(), Some(&user(&prompt)));
        let retention = compacted(&[user(&prompt), user("new")], &"S".into(), 800, false);
        assert!(
            matches!(&retention[0], Message::User { text, .. } if text.len() < 500 && text.ends_with('…'))
        );
    }

    #[test]
    fn only_old_outputs_are_pruned_and_only_if_it_helps() {
        let mut few = vec![calls(&["a"]), result("a", 60_000), calls(&["b"]), result("b", 100_000)];
        assert_eq!(prune(&mut few, 0), 0);
        let mut many = few.clone();
        many.extend([calls(&["c"]), result("c", 150_000)]);
        let saved = prune(&mut many, 0);
        assert!(saved >= 20_000, "{saved}");
        assert!(matches!(&many[1], Message::ToolResult { text, .. } if **text == *PRUNED));
        assert!(matches!(&many[5], Message::ToolResult { text, .. } if text.len() == 150_000));
    }
}
