//! `ask_user`: a question that only the person can answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{BoxFuture, Question, Risk, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments};

const TEXT_BYTES_MAX: usize = 4 << 10;
const CHOICES_MAX: usize = 10;
const CHOICE_CHARS_MAX: usize = 200;

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "what you want to know, as one question"},
            "choices": {
                "type": "array", "maxItems": CHOICES_MAX, "items": {"type": "string"},
                "description": "short answers to choose from, if there are some"
            },
            "free_text": {
                "type": "boolean",
                "description": "whether something else than the choices may be answered"
            }
        },
        "required": ["question"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        "ask_user",
        "Asks the user something that you cannot find out and must not guess. Not for permission: that is asked by itself.",
        ToolKind::Other,
        ToolClass::Read,
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
    #[serde(default)]
    free_text: bool,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let asked: Arguments = arguments(text)?;
    let question = question(asked)?;
    Ok(Intent {
        title: question.text.to_string(),
        path: None,
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "asks a question",
        work: Box::new(Ask(question)),
    })
}

fn question(asked: Arguments) -> Result<Question, String> {
    let text = asked.question.trim();
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(format!("the question is empty or longer than {TEXT_BYTES_MAX} bytes"));
    }
    let choices: Vec<&str> = asked.choices.iter().map(|choice| choice.trim()).collect();
    let bad = |choice: &&str| choice.is_empty() || choice.chars().count() > CHOICE_CHARS_MAX;
    if choices.len() > CHOICES_MAX || choices.iter().any(bad) {
        return Err(format!(
            "there are at most {CHOICES_MAX} choices, each of 1 to {CHOICE_CHARS_MAX} characters"
        ));
    }
    if choices.iter().collect::<BTreeSet<_>>().len() < choices.len() {
        return Err("two of the choices are the same".into());
    }
    let choices: Vec<Arc<str>> = choices.into_iter().map(Arc::from).collect();
    let free_text = asked.free_text || choices.is_empty();
    Ok(Question { text: text.into(), choices, free_text })
}

struct Ask(Question);

impl ToolWork for Ask {
    fn question(&self) -> Option<Question> {
        Some(self.0.clone())
    }

    fn run(self: Box<Self>, _job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        // A question is not a permission request: it is answered or not.
        Box::pin(async { unanswered("there was no answer") })
    }
}

pub(crate) fn answered(reply: &str) -> ToolOutcome {
    ToolOutcome::text(format!("the user answered: {reply}"))
}

/// Not a failure: a model that asks must be prepared for it.
pub(crate) fn unanswered(reason: &str) -> ToolOutcome {
    ToolOutcome::text(format!("no answer: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, expected: Result<(&[&str], bool), &str>) {
        let asked: Arguments = serde_json::from_str(arguments).unwrap();
        match (question(asked), expected) {
            (Ok(question), Ok((choices, free))) => {
                let shown: Vec<&str> = question.choices.iter().map(AsRef::as_ref).collect();
                assert_eq!((shown.as_slice(), question.free_text), (choices, free), "{arguments}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{arguments}: {error}"),
            (other, _) => panic!("{arguments}: {other:?}"),
        }
    }

    #[test]
    fn a_question_is_short_and_its_choices_differ() {
        check(r#"{"question":"why?"}"#, Ok((&[], true)));
        check(r#"{"question":"which?","choices":["a "," b"]}"#, Ok((&["a", "b"], false)));
        check(r#"{"question":"which?","choices":["a"],"free_text":true}"#, Ok((&["a"], true)));
        check(r#"{"question":" "}"#, Err("empty"));
        check(r#"{"question":"which?","choices":["a","a "]}"#, Err("the same"));
        check(r#"{"question":"which?","choices":[""]}"#, Err("1 to 200"));
        check(&format!(r#"{{"question":"{}"}}"#, "x".repeat(5000)), Err("longer"));
        let many: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        check(&json!({"question": "which?", "choices": many}).to_string(), Err("at most 10"));
    }
}
