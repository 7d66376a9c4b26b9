//! What the driver was told, and whether a replay still says so.
//!
//! Everything acknowledged is remembered as turns: a prompt, and the text and tool calls that came
//! for it. A turn that was answered must come back exactly; of a turn that was cut, what came before
//! the kill must be the beginning of what is replayed; a prompt of which nothing was ever heard may
//! be there or not.
//!
//! **Invariant:** once compared, a replay is what every later replay must begin with.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::peer::Frame;

/// A word or two may follow a cut stream to say that it was cut.
const CUT_NOTICE_BYTES_MAX: usize = 512;

/// One turn as a client sees it: neighbouring text is one piece, for servers may merge it.
#[derive(Debug, Default, Clone, PartialEq)]
struct Turn {
    prompt: String,
    pieces: Vec<TurnPiece>,
    planned: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum TurnPiece {
    Text(String),
    Tool(String),
}

/// A whole session as `session/load` told it.
#[derive(Default)]
pub struct Replay {
    pub frames: u64,
    turns: Vec<Turn>,
    tools: BTreeMap<String, Tool>,
}

#[derive(Default)]
struct Tool {
    started: u32,
    status: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Reply {
    Due,
    Given(String),
    /// The server was killed first.
    Cut,
}

struct SentPrompt {
    id: u64,
    turn: Turn,
    reply: Reply,
    /// Something came back for it, so it is in the log.
    heard: bool,
}

pub struct ReplayChecker {
    pub session: String,
    /// Turns that were compared with a replay already.
    settled: Vec<Turn>,
    sent: Vec<SentPrompt>,
    cut: Option<Replay>,
    events: Vec<Value>,
    faults: Vec<String>,
    /// Text of a whole stream, per chunk, once one was seen.
    chunk_bytes: Option<usize>,
}

impl ReplayChecker {
    pub fn new(session: String) -> Self {
        let (settled, sent, events, faults) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { session, settled, sent, cut: None, events, faults, chunk_bytes: None }
    }

    pub fn sent(&mut self, id: u64, prompt: &str) {
        let turn = Turn { prompt: prompt.to_owned(), ..Turn::default() };
        self.sent.push(SentPrompt { id, turn, reply: Reply::Due, heard: false });
    }

    pub fn has_open_prompts(&self) -> bool {
        self.sent.iter().any(|sent| sent.reply == Reply::Due)
    }

    pub fn stop_reason(&self, id: u64) -> Option<&str> {
        self.sent.iter().rev().find(|sent| sent.id == id).and_then(|sent| match &sent.reply {
            Reply::Given(reason) => Some(reason.as_str()),
            Reply::Due | Reply::Cut => None,
        })
    }

    /// The server is gone: what it has not answered it never will.
    pub fn cut_off(&mut self) {
        for sent in self.sent.iter_mut().filter(|sent| sent.reply == Reply::Due) {
            sent.reply = Reply::Cut;
        }
    }

    pub fn received(&mut self, frame: &Frame) {
        // Turns run one after the other, so whatever comes is about the oldest prompt without a reply.
        let current = self.sent.iter_mut().find(|sent| sent.reply == Reply::Due);
        match (frame, current) {
            (Frame::Update(params), Some(sent)) => sent.heard |= sent.turn.take(&params["update"]),
            (Frame::Update(params), None) => {
                if Turn::default().take(&params["update"]) && !is_user_text(&params["update"]) {
                    self.faults.push(format!("an update of a turn came after its reply: {params}"));
                }
            }
            (Frame::Request { .. }, Some(sent)) => sent.heard = true,
            (Frame::Response { id, result, error: None }, Some(sent)) if *id == sent.id => {
                sent.heard = true;
                sent.reply = Reply::Given(result["stopReason"].as_str().unwrap_or("nothing").to_owned());
            }
            (Frame::Response { id, result, error }, _) => {
                let answer = error.as_ref().unwrap_or(result);
                self.faults.push(format!("reply {id} is an error, or out of order: {answer}"));
            }
            (Frame::Request { method, .. }, None) => {
                self.faults.push(format!("{method} came outside of a turn"))
            }
            (Frame::Broken(line), _) => self.faults.push(format!("a broken line: {line}")),
        }
    }

    /// Keeps what a client saw of a replay that was cut by a kill.
    pub fn cut_replay(&mut self, partial: Replay) {
        self.cut = Some(partial);
    }

    pub fn check_replay(&mut self, replay: &Replay) -> anyhow::Result<()> {
        ensure!(self.faults.is_empty(), "the wire was not kept to: {}", self.faults.join("; "));
        for (index, settled) in self.settled.iter().enumerate() {
            let turn = replay
                .turns
                .get(index)
                .with_context(|| format!("turn {index} ({}) is gone", settled.prompt))?;
            ensure!(
                turn == settled,
                "turn {index} changed since the last load: {}",
                difference(settled, turn)
            );
        }
        if let Some(cut) = self.cut.take() {
            for (index, seen) in cut.turns.iter().enumerate() {
                let turn =
                    replay.turns.get(index).with_context(|| format!("turn {index} of a cut load is gone"))?;
                ensure!(
                    seen.begins(turn),
                    "turn {index} changed since a cut load: {}",
                    difference(seen, turn)
                );
            }
        }
        let fresh = replay.turns.get(self.settled.len()..).unwrap_or_default();
        self.check_fresh(fresh)?;
        for (id, tool) in &replay.tools {
            ensure!(tool.started == 1, "tool call {id} was started {} times in one replay", tool.started);
            ensure!(
                matches!(tool.status.as_str(), "completed" | "failed"),
                "tool call {id} has no final status but {:?}",
                tool.status
            );
        }
        self.settled = replay.turns.clone();
        self.sent.clear();
        Ok(())
    }

    /// Compares the turns since the last load with what was heard of them.
    fn check_fresh(&mut self, fresh: &[Turn]) -> anyhow::Result<()> {
        let mut replayed = fresh.iter().peekable();
        for sent in &self.sent {
            let Some(turn) = replayed.next_if(|turn| turn.prompt == sent.turn.prompt) else {
                ensure!(!sent.heard, "the turn of prompt {:?} ({:?}) is gone", sent.turn.prompt, sent.reply);
                continue;
            };
            let kept = match &sent.reply {
                Reply::Given(_) => sent.turn.pieces == turn.pieces,
                Reply::Due | Reply::Cut => sent.turn.begins(turn),
            };
            ensure!(
                kept,
                "prompt {:?} ({:?}): {}",
                sent.turn.prompt,
                sent.reply,
                difference(&sent.turn, turn)
            );
            ensure!(turn.planned || !sent.turn.planned, "the plan of prompt {:?} is gone", sent.turn.prompt);
            if let Some(chunks) = turn.streamed_chunks() {
                match (&sent.reply, self.chunk_bytes) {
                    (Reply::Given(reason), None) if reason == "end_turn" => {
                        self.chunk_bytes = Some(turn.text_bytes().div_ceil(chunks));
                    }
                    (Reply::Cut, Some(chunk_bytes)) => ensure!(
                        // Numbers in the text make chunks differ a little in length.
                        turn.text_bytes() <= chunks * chunk_bytes * 5 / 4 + CUT_NOTICE_BYTES_MAX,
                        "a cut stream came back longer than a whole one: {} bytes",
                        turn.text_bytes()
                    ),
                    _ => {}
                }
            }
        }
        match replayed.next() {
            Some(turn) => bail!("the replay has a turn nobody asked for, or twice: {:?}", turn.prompt),
            None => Ok(()),
        }
    }

    /// Sequence numbers are dense, and none is ever given to other content.
    pub fn check_events(&mut self, events: Vec<Value>) -> anyhow::Result<()> {
        let seq =
            |event: &Value| event["seq"].as_u64().with_context(|| format!("an event without seq: {event}"));
        for (expected, event) in (1..).zip(&events) {
            let found = seq(event)?;
            ensure!(found == expected, "the log has a gap or a double: {found} where {expected} is due");
        }
        for (before, after) in self.events.iter().zip(&events) {
            ensure!(before == after, "event {} is now another one: {before} became {after}", seq(before)?);
        }
        ensure!(
            events.len() >= self.events.len(),
            "the log shrank from {} to {} events",
            self.events.len(),
            events.len()
        );
        self.events = events;
        Ok(())
    }
}

impl Replay {
    pub fn push(&mut self, frame: &Frame) {
        let Frame::Update(params) = frame else { return };
        self.frames += 1;
        let update = &params["update"];
        if is_user_text(update) {
            self.turns.push(Turn { prompt: text_of(update).to_owned(), ..Turn::default() });
            return;
        }
        if let Some(id) = tool_id(update) {
            let tool = self.tools.entry(id.to_owned()).or_default();
            tool.started += u32::from(update["sessionUpdate"] == "tool_call");
            if let Some(status) = update["status"].as_str() {
                tool.status = status.to_owned();
            }
        }
        match self.turns.last_mut() {
            Some(turn) => drop(turn.take(update)),
            None => {
                let mut stray = Turn::default();
                if stray.take(update) {
                    self.turns.push(stray);
                }
            }
        }
    }
}

impl Turn {
    /// Takes in one update. Returns whether it was about a turn at all: a title or a list of
    /// commands is not.
    fn take(&mut self, update: &Value) -> bool {
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => match self.pieces.last_mut() {
                Some(TurnPiece::Text(text)) => text.push_str(text_of(update)),
                Some(TurnPiece::Tool(_)) | None => {
                    self.pieces.push(TurnPiece::Text(text_of(update).to_owned()))
                }
            },
            Some("tool_call" | "tool_call_update") => {
                let tool = TurnPiece::Tool(tool_id(update).unwrap_or_default().to_owned());
                if !self.pieces.contains(&tool) {
                    self.pieces.push(tool);
                }
            }
            Some("plan") => self.planned = true,
            Some("user_message_chunk") => {}
            // Thoughts too are left out: a client without notices is shown the server's own as thoughts,
            // and those belong to no turn.
            _ => return false,
        }
        true
    }

    /// Whether `whole` starts with all of this turn.
    fn begins(&self, whole: &Self) -> bool {
        let Some((last, earlier)) = self.pieces.split_last() else { return self.prompt == whole.prompt };
        let last_kept = match (last, whole.pieces.get(earlier.len())) {
            (TurnPiece::Text(seen), Some(TurnPiece::Text(kept))) => kept.starts_with(seen.as_str()),
            (seen, Some(kept)) => seen == kept,
            (_, None) => false,
        };
        self.prompt == whole.prompt && last_kept && whole.pieces.starts_with(earlier)
    }

    /// How many chunks the prompt asked for, if it asked for a stream.
    fn streamed_chunks(&self) -> Option<usize> {
        self.prompt.strip_prefix("stream ")?.parse().ok().filter(|chunks| *chunks > 0)
    }

    fn text_bytes(&self) -> usize {
        let text = |piece: &TurnPiece| match piece {
            TurnPiece::Text(text) => text.len(),
            TurnPiece::Tool(_) => 0,
        };
        self.pieces.iter().map(text).sum()
    }
}

fn is_user_text(update: &Value) -> bool {
    update["sessionUpdate"] == "user_message_chunk"
}

fn text_of(update: &Value) -> &str {
    update["content"]["text"].as_str().unwrap_or_default()
}

fn tool_id(update: &Value) -> Option<&str> {
    update["toolCallId"].as_str()
}

/// The first place where two turns differ, short enough to read.
fn difference(seen: &Turn, replayed: &Turn) -> String {
    let shown = |piece: Option<&TurnPiece>, from: usize| match piece {
        Some(TurnPiece::Text(text)) => {
            let tail: String = text.chars().skip(from).take(60).collect();
            format!("{} bytes of text, from character {from}: {tail:?}", text.len())
        }
        Some(TurnPiece::Tool(id)) => format!("tool call {id}"),
        None => "nothing".to_owned(),
    };
    let count = seen.pieces.len().max(replayed.pieces.len());
    let place =
        (0..count).find(|index| seen.pieces.get(*index) != replayed.pieces.get(*index)).unwrap_or(count);
    let (was, is) = (seen.pieces.get(place), replayed.pieces.get(place));
    let from = match (was, is) {
        (Some(TurnPiece::Text(was)), Some(TurnPiece::Text(is))) => {
            was.chars().zip(is.chars()).take_while(|(a, b)| a == b).count()
        }
        _ => 0,
    };
    format!("piece {place} was {}, is {}", shown(was, from), shown(is, from))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Frame, Replay, ReplayChecker};

    fn update(line: &str) -> Frame {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let body: Value = match kind {
            "user" => json!({"sessionUpdate": "user_message_chunk", "content": {"text": rest}}),
            "text" => json!({"sessionUpdate": "agent_message_chunk", "content": {"text": rest}}),
            "tool" => json!({"sessionUpdate": "tool_call", "toolCallId": rest, "status": "in_progress"}),
            _ => json!({"sessionUpdate": "tool_call_update", "toolCallId": rest, "status": kind}),
        };
        Frame::Update(json!({"update": body}))
    }

    /// Lets a client hear `heard` for one prompt "go", answered or cut, then compares with `replayed`.
    fn check(heard: &str, answered: bool, replayed: &str, expected: &str) {
        let mut checker = ReplayChecker::new("s".to_owned());
        checker.sent(1, "go");
        heard.lines().for_each(|line| checker.received(&update(line.trim())));
        if answered {
            checker.received(&Frame::Response {
                id: 1,
                result: json!({"stopReason": "end_turn"}),
                error: None,
            });
        }
        checker.cut_off();
        let mut replay = Replay::default();
        replayed.lines().for_each(|line| replay.push(&update(line.trim())));
        let outcome =
            checker.check_replay(&replay).map_or_else(|fault| fault.to_string(), |()| "kept".to_owned());
        assert!(outcome.contains(expected), "{outcome}");
    }

    #[test]
    fn merged_text_is_the_same_text() {
        check("text ab\ntext cd", true, "user go\ntext abcd", "kept");
        check("text ab", false, "user go\ntext abcd", "kept");
        check("", false, "", "kept");
    }

    #[test]
    fn lost_doubled_and_reordered_things_are_found() {
        check("text ab", true, "", "is gone");
        check("text ab", false, "user go\ntext a", "piece 0 was 2 bytes");
        check("text ab", true, "user go\ntext ab\ntext ab", "piece 0");
        check("text a\ntool t", false, "user go\ntool t\ncompleted t\ntext a", "piece 0");
        check("text ab", true, "user go\ntext ab\nuser go\ntext ab", "nobody asked for");
    }

    #[test]
    fn a_tool_call_without_an_end_is_found() {
        check("tool t", false, "user go\ntool t", "no final status");
        check("tool t", false, "user go\ntool t\nfailed t", "kept");
        check("tool t", false, "user go\ntool t\ntool t\nfailed t", "started 2 times");
    }

    #[test]
    fn sequence_numbers_stay_what_they_were() {
        let log = |texts: &[&str]| -> Vec<Value> {
            texts.iter().enumerate().map(|(index, text)| json!({"seq": index + 1, "payload": text})).collect()
        };
        let mut checker = ReplayChecker::new("s".to_owned());
        assert!(checker.check_events(log(&["a", "b"])).is_ok());
        assert!(checker.check_events(log(&["a", "b", "c"])).is_ok());
        assert!(checker.check_events(log(&["a", "x", "c"])).is_err());
        assert!(checker.check_events(log(&["a"])).is_err());
        assert!(checker.check_events(vec![json!({"seq": 2})]).is_err());
    }
}
