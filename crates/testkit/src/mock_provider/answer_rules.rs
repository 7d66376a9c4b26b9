//! Answers chosen by what is asked, for agents whose requests nobody can count.
//!
//! A real agent asks for titles and summaries whenever it likes, so a list of answers in order would be
//! handed to the wrong request. A rule waits for a text in the conversation, the last one that is found
//! there counts, and how many results of tools came after it says which of its answers is due.
//!
//! `{"rules": [{"when": "write the note", "answers": [[{"call": ["write", {}]}], [{"text": "written"}]]}],
//!   "otherwise": [{"text": "A small task"}]}`

use serde_json::Value;

use super::script::answer;
use super::{ReceivedRequest, ScriptedReply};

/// Rules, and what is said to everything else.
pub struct Rules {
    rules: Vec<Rule>,
    otherwise: ScriptedReply,
}

struct Rule {
    when: String,
    answers: Vec<ScriptedReply>,
}

impl Rules {
    /// Reads rules. What it does not know is an error that names it.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("the rules are no JSON: {error}"))?;
        let rules = value["rules"].as_array().ok_or("rules are a list")?;
        Ok(Self {
            rules: rules.iter().map(rule).collect::<Result<_, _>>()?,
            otherwise: answer(&value["otherwise"])?,
        })
    }

    /// The answer to one request. Who offers no tools wants a title or a summary.
    pub(super) fn answer(&self, seen: &ReceivedRequest) -> ScriptedReply {
        let offers_tools = seen.body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let chosen = offers_tools.then(|| self.chosen(turns(&seen.body))).flatten();
        chosen.unwrap_or(&self.otherwise).clone()
    }

    fn chosen(&self, turns: &[Value]) -> Option<&ScriptedReply> {
        let texts: Vec<String> = turns.iter().map(Value::to_string).collect();
        // Agents join what was said in a row to one turn, so the place within it counts, too.
        let found = |(at, text): (usize, &String), when: &str| Some((at, text.rfind(when)?));
        let asked = |rule: &Rule| texts.iter().enumerate().rev().find_map(|turn| found(turn, &rule.when));
        let asked = self.rules.iter().filter_map(|rule| Some((asked(rule)?, rule)));
        let ((at, _), rule) = asked.max_by_key(|(at, _)| *at)?;
        let results = turns[at + 1..].iter().filter(|turn| is_result(turn)).count();
        rule.answers.get(results).or(rule.answers.last())
    }
}

fn rule(value: &Value) -> Result<Rule, String> {
    let when = value["when"].as_str().ok_or_else(|| format!("a rule needs `when`: {value}"))?;
    let answers =
        value["answers"].as_array().ok_or_else(|| format!("a rule is a list of answers: {value}"))?;
    // It is looked for in JSON, where quotes and the like are written otherwise.
    let when = Value::from(when).to_string();
    let when = when.trim_matches('"').to_owned();
    Ok(Rule { when, answers: answers.iter().map(answer).collect::<Result<_, _>>()? })
}

/// The conversation, wherever this language has it.
fn turns(body: &Value) -> &[Value] {
    let named = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array());
    named.map_or(&[], Vec::as_slice)
}

/// Whether this is what a tool said, in any of the languages.
fn is_result(turn: &Value) -> bool {
    let parts = || turn["content"].as_array().or(turn["parts"].as_array()).into_iter().flatten();
    turn["role"] == "tool"
        || turn["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"))
        || parts().any(|part| part["type"] == "tool_result" || part["functionResponse"].is_object())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Line, say};

    fn rules() -> Rules {
        let text = json!({
            "rules": [
                {"when": "write \"it\"", "answers": [[{"call": ["write", {}]}], [{"text": "written"}]]},
                {"when": "run it", "answers": [[{"text": "ran"}]]},
            ],
            "otherwise": [{"text": "a title"}],
        });
        Rules::read(&text.to_string()).expect("rules")
    }

    fn answered(body: Value) -> Vec<Line> {
        let seen = ReceivedRequest { method: "POST".into(), path: String::new(), headers: Vec::new(), body };
        rules().answer(&seen).lines
    }

    #[test]
    fn the_last_thing_asked_counts_and_results_lead_to_the_next_answer_in_every_language() {
        let tools = json!([{"name": "write"}]);
        let write = Line::Call("write".into(), "{}".into());
        let asked = json!({"role": "user", "content": "please write \"it\""});
        assert_eq!(answered(json!({"tools": tools, "messages": [asked]})), std::slice::from_ref(&write));
        let results = [
            ("messages", json!({"role": "tool", "content": "done"})),
            ("messages", json!({"role": "user", "content": [{"type": "tool_result"}]})),
            ("input", json!({"type": "function_call_output", "output": "done"})),
            ("contents", json!({"role": "user", "parts": [{"functionResponse": {"name": "write"}}]})),
        ];
        for (name, result) in results {
            assert_eq!(answered(json!({"tools": tools, name: [asked, result]})), [say("written")]);
        }
        let again = json!([asked, {"role": "assistant", "content": "written"}, {"role": "user", "content": "run it"}]);
        assert_eq!(answered(json!({"tools": tools, "messages": again})), [say("ran")]);
        let joined = json!([{"role": "user", "content": "write \"it\" run it write \"it\""}]);
        assert_eq!(answered(json!({"tools": tools, "messages": joined})), [write]);
    }

    #[test]
    fn a_request_without_tools_or_without_a_rule_gets_the_other_answer() {
        let asked = json!([{"role": "user", "content": "run it"}]);
        assert_eq!(answered(json!({"messages": asked})), [say("a title")]);
        let unknown = json!([{"role": "user", "content": "what else"}]);
        assert_eq!(answered(json!({"tools": [{}], "messages": unknown})), [say("a title")]);
    }
}
