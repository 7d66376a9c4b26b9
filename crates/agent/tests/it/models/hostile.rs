//! Replies that nobody means: whatever comes, a reader does not break, and says the same however the
//! bytes are split.

use agent::Wire;
use proptest::prelude::*;

use crate::models::hear;

const REPLIES: [(Wire, &str); 12] = [
    (Wire::Anthropic, include_str!("fixtures/anthropic-thinking-tools.txt")),
    (Wire::Anthropic, include_str!("fixtures/anthropic-truncated-call.txt")),
    (Wire::Responses, include_str!("fixtures/responses-thinking-tools.txt")),
    (Wire::Responses, include_str!("fixtures/responses-refusal.txt")),
    (Wire::Responses, include_str!("fixtures/responses-incomplete.txt")),
    (Wire::Chat, include_str!("fixtures/chat-thinking-tools.txt")),
    (Wire::Chat, include_str!("fixtures/chat-same-index.txt")),
    (Wire::Chat, include_str!("fixtures/chat-refusal.txt")),
    (Wire::Gemini, include_str!("fixtures/gemini-thinking-tools.txt")),
    (Wire::Gemini, include_str!("fixtures/gemini-blocked.txt")),
    (Wire::Ollama, include_str!("fixtures/ollama-thinking-tools.txt")),
    (Wire::Ollama, include_str!("fixtures/ollama-error.txt")),
];

/// What a value may be instead.
const INSTEAD: [&str; 8] = ["null", "{}", "[]", "\"\"", "-1", "1e999", "18446744073709551615", "\"\\ud800\""];

/// Something done to a reply.
#[derive(Debug, Clone)]
enum Harm {
    Cut(usize),
    /// A line comes twice, or not at all, or before the one it should follow.
    Repeat(usize),
    Drop(usize),
    Swap(usize),
    /// The nth value is another one.
    Value(usize, usize),
    Noise(usize, String),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<usize>().prop_map(Harm::Cut),
        any::<usize>().prop_map(Harm::Repeat),
        any::<usize>().prop_map(Harm::Drop),
        any::<usize>().prop_map(Harm::Swap),
        (any::<usize>(), 0..INSTEAD.len()).prop_map(|(at, instead)| Harm::Value(at, instead)),
        (any::<usize>(), ".{0,12}").prop_map(|(at, noise)| Harm::Noise(at, noise)),
    ]
}

fn done_to(body: &str, harm: &Harm) -> String {
    let mut lines: Vec<&str> = body.lines().collect();
    let count = lines.len().max(1);
    let boundary = |at: usize| {
        let at = at % (body.len() + 1);
        (at..=body.len()).find(|at| body.is_char_boundary(*at)).unwrap_or(body.len())
    };
    match harm {
        _ if body.is_empty() => return String::new(),
        Harm::Cut(at) => return body[..boundary(*at)].to_owned(),
        Harm::Noise(at, noise) => {
            let (before, after) = body.split_at(boundary(*at));
            return format!("{before}{noise}{after}");
        }
        Harm::Value(at, instead) => {
            let colons: Vec<usize> = body.match_indices("\":").map(|(at, _)| at + 2).collect();
            let Some(start) = colons.get(at % colons.len().max(1)) else { return body.to_owned() };
            let end = body[*start..].find([',', '}', ']', '\n']).map_or(body.len(), |end| start + end);
            return format!("{}{}{}", &body[..*start], INSTEAD[*instead], &body[end..]);
        }
        Harm::Repeat(at) => lines.insert(at % count, lines[at % count]),
        Harm::Drop(at) => drop(lines.remove(at % count)),
        Harm::Swap(at) => {
            let other = (at % count + 2).min(lines.len() - 1);
            lines.swap(at % count, other);
        }
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_reply_is_read_to_an_end_or_an_error(
        which in 0..REPLIES.len(),
        wire in 0..2,
        harms in proptest::collection::vec(harm(), 1..4),
        size in 1..64usize,
    ) {
        let (own, reply) = REPLIES[which];
        // Now and then somebody speaks the wrong language.
        let wire = if wire == 0 { own } else { REPLIES[(which + harms.len()) % REPLIES.len()].0 };
        let body = harms.iter().fold(reply.to_owned(), |body, harm| done_to(&body, harm));
        let reply = hear(wire, &body, usize::MAX);
        prop_assert_eq!(reply.error.is_some(), reply.stop.is_none());
        prop_assert_eq!(&reply, &hear(wire, &body, size));
    }
}
