//! The turns of a session: their prompts, results and costs.

use std::collections::VecDeque;

use engine::{Body, Event, SessionId, Stop, Timestamp, Totals, TurnId};
use serde_json::{Value, json};

use super::message_id;
use crate::ferret_otter_common::prompt_text;
use crate::money;
use crate::timestamp::rfc3339;

/// Earlier turns are not listed.
const TURNS_MAX: usize = 1000;
/// Only the beginning of a prompt is shown.
const PROMPT_CHARS_MAX: usize = 2000;

/// The latest turns of the log, without those that were cleared.
#[derive(Debug, Default)]
pub struct TurnList {
    turns: VecDeque<TurnEntry>,
    earlier: u64,
}

#[derive(Debug)]
struct TurnEntry {
    id: TurnId,
    prompt: String,
    started_at: Option<Timestamp>,
    ended: Option<(Timestamp, Stop)>,
    error: Option<String>,
    totals: Totals,
    steps: u64,
    tool_calls: u64,
}

impl TurnList {
    pub fn observe(&mut self, event: &Event) {
        if let Body::Cleared = &event.body {
            self.turns.clear();
            self.earlier = 0;
        }
        let Some(id) = event.turn else { return };
        if let Body::TurnQueued { content } | Body::UserMessage { content } = &event.body {
            self.turn(id).prompt = prompt_text(content).chars().take(PROMPT_CHARS_MAX).collect();
        } else if let Body::TurnStarted = &event.body {
            self.turn(id).started_at = Some(event.at);
        } else if let Some(turn) = self.turns.iter_mut().rev().find(|turn| turn.id == id) {
            if let Body::ToolStarted(_) = &event.body {
                turn.tool_calls += 1;
            } else if let Body::Usage(usage) = &event.body {
                turn.steps += 1;
                turn.totals.add(usage);
            } else if let Body::TurnEnded { stop, error } = &event.body {
                turn.ended = Some((event.at, *stop));
                turn.error = error.as_deref().map(str::to_owned);
            }
        }
    }

    /// The response to a request for the turns.
    pub fn to_json(&self, session: &SessionId) -> Value {
        let turns: Vec<Value> = self.turns.iter().map(|turn| turn.to_json(session)).collect();
        json!({ "session_id": session.as_str(), "turns": turns, "earlier": self.earlier })
    }

    fn turn(&mut self, id: TurnId) -> &mut TurnEntry {
        if let Some(at) = self.turns.iter().rposition(|turn| turn.id == id) {
            return &mut self.turns[at];
        }
        if self.turns.len() == TURNS_MAX {
            self.turns.pop_front();
            self.earlier += 1;
        }
        self.turns.push_back(TurnEntry::new(id));
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }
}

impl TurnEntry {
    fn new(id: TurnId) -> Self {
        Self {
            id,
            prompt: String::new(),
            started_at: None,
            ended: None,
            error: None,
            totals: Totals::default(),
            steps: 0,
            tool_calls: 0,
        }
    }

    fn status(&self) -> &'static str {
        match self.ended {
            None if self.started_at.is_none() => "queued",
            None => "running",
            Some((_, Stop::Cancelled)) => "cancelled",
            Some(_) if self.error.is_some() => "failed",
            Some(_) => "completed",
        }
    }

    fn to_json(&self, session: &SessionId) -> Value {
        let told = json!({
            "turn": self.id.0,
            "message_id": message_id(session, self.id),
            "prompt": self.prompt,
            "status": self.status(),
            "stop_reason": self.ended.map(|(_, stop)| stop.as_str()),
            "error": self.error,
            "started_at": self.started_at.map(rfc3339),
            "ended_at": self.ended.map(|(at, _)| rfc3339(at)),
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "cost": self.totals.known_usd(),
        });
        money::mark(told, "cost_unknown", self.totals.unpriced)
    }
}

#[cfg(test)]
mod tests {
    use engine::{Content, Origin, Seq, Usage};

    use super::*;

    fn event(turn: u64, body: Body) -> Event {
        Event {
            seq: Seq(1),
            at: Timestamp(0),
            origin: Origin::Engine,
            turn: Some(TurnId(turn)),
            body,
            relayed: None,
        }
    }

    fn said(text: &str) -> Body {
        Body::UserMessage { content: vec![Content::text(text)] }
    }

    /// L17.
    #[test]
    fn a_turn_is_told_from_its_prompt_to_its_end() {
        let session = SessionId::parse("s-1").unwrap();
        let mut turns = TurnList::default();
        let ended = |stop, error: Option<&str>| Body::TurnEnded { stop, error: error.map(Into::into) };
        for (turn, body) in [
            (1, said("gone")),
            (1, Body::Cleared),
            (2, Body::TurnStarted),
            (2, said("one")),
            (2, Body::Usage(Usage { cost_usd: 0.5, ..Usage::default() })),
            (2, ended(Stop::EndTurn, None)),
            (3, Body::TurnStarted),
            (3, said("two")),
            (3, ended(Stop::Cancelled, None)),
            (4, Body::TurnStarted),
            (4, said("three")),
            (4, ended(Stop::EndTurn, Some("broken"))),
            (5, Body::TurnStarted),
            (5, said("four")),
            (6, Body::TurnQueued { content: vec![Content::text("five")] }),
        ] {
            turns.observe(&event(turn, body));
        }
        let told = turns.to_json(&session);
        let list = told["turns"].as_array().unwrap();
        let brief: Vec<_> = list
            .iter()
            .map(|turn| (turn["prompt"].as_str().unwrap(), turn["status"].as_str().unwrap()))
            .collect();
        let expected = [
            ("one", "completed"),
            ("two", "cancelled"),
            ("three", "failed"),
            ("four", "running"),
            ("five", "queued"),
        ];
        assert_eq!(brief, expected);
        assert_eq!((&list[0]["cost"], &list[0]["steps"]), (&json!(0.5), &json!(1)));
        assert_eq!(list[0]["message_id"], "m2.s-1");
    }

    #[test]
    fn the_list_has_an_end() {
        let mut turns = TurnList::default();
        for turn in 0..TURNS_MAX as u64 + 5 {
            turns.observe(&event(turn, Body::TurnStarted));
        }
        let told = turns.to_json(&SessionId::parse("s-1").unwrap());
        assert_eq!((told["turns"].as_array().unwrap().len(), &told["earlier"]), (TURNS_MAX, &json!(5)));
    }
}
