//! A script as a file: a list of answers, each a list of lines.
//!
//! `[[{"think": "hm"}, {"text": "hello"}, {"call": ["read", {"path": "a"}]}, {"usage": {"input": 3}}], [{"hang": true}]]`

use agent::ModelStop;
use engine::Usage;
use serde_json::Value;

use super::{Fault, ScriptedReply};
use crate::Line;

/// Reads a script. What it does not know is an error that names it.
pub fn read(text: &str) -> Result<Vec<ScriptedReply>, String> {
    let script: Value =
        serde_json::from_str(text).map_err(|error| format!("the script is no JSON: {error}"))?;
    let answers = script.as_array().ok_or("a script is a list of answers")?;
    answers.iter().map(answer).collect()
}

pub(super) fn answer(value: &Value) -> Result<ScriptedReply, String> {
    let lines = value.as_array().ok_or_else(|| format!("an answer is a list of lines, not {value}"))?;
    let mut answer = ScriptedReply::default();
    for value in lines {
        let line = value.as_object().and_then(|line| line.iter().next());
        let (word, what) = line.ok_or_else(|| format!("a line is an object with one word, not {value}"))?;
        let text = || what.as_str().map(str::to_owned).ok_or_else(|| format!("{word} needs a text"));
        match word.as_str() {
            "text" => answer.lines.push(Line::Text(text()?)),
            "think" => answer.lines.push(Line::Thinking(text()?)),
            "call" => {
                let tool = what[0].as_str().ok_or("call needs a tool and its arguments")?;
                answer.lines.push(Line::Call(tool.to_owned(), what[1].to_string()));
            }
            "usage" => answer.lines.push(Line::Usage(usage(what))),
            "error" => answer.lines.push(Line::Error(text()?)),
            "hang" => answer.lines.push(Line::Hang),
            "stop" => answer.lines.push(Line::Stop(stop(&text()?)?)),
            "fault" => answer.fault = Some(fault(what)?),
            _ => return Err(format!("a line cannot be {word:?}")),
        }
    }
    Ok(answer)
}

fn usage(value: &Value) -> Usage {
    let number = |name: &str| value[name].as_u64().unwrap_or(0);
    Usage {
        input: number("input"),
        output: number("output"),
        cache_read: number("cache_read"),
        cache_write: number("cache_write"),
        reasoning: number("reasoning"),
        ..Usage::default()
    }
}

fn stop(word: &str) -> Result<ModelStop, String> {
    match word {
        "finished" => Ok(ModelStop::Finished),
        "max_tokens" => Ok(ModelStop::MaxTokens),
        "refusal" => Ok(ModelStop::Refusal),
        _ => Err(format!("a reply stops as finished, max_tokens or refusal, not {word:?}")),
    }
}

fn fault(value: &Value) -> Result<Fault, String> {
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    if let Some(status) = value["status"].as_u64().and_then(|status| u16::try_from(status).ok()) {
        let after = value["retry_after_ms"].as_u64();
        let headers = after.map(|after| ("retry-after-ms".to_owned(), after.to_string()));
        return Ok(Fault::Refuse { status, headers: headers.into_iter().collect() });
    }
    if let Some(event) = number(&value["cut"]) {
        return Ok(Fault::Cut { event });
    }
    if let Some(bytes) = number(&value["split"]) {
        return Ok(Fault::Split(bytes));
    }
    match value.as_str() {
        Some("html") => Ok(Fault::Html { status: 502 }),
        Some("garbage") => Ok(Fault::Garbage),
        Some("endless_line") => Ok(Fault::EndlessLine),
        Some("no_terminator") => Ok(Fault::NoTerminator),
        _ => Err(format!("no fault is known as {value}")),
    }
}
