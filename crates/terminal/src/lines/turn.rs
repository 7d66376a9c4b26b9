//! The turn of the prompt that was sent: others may use the session too, and what is theirs is neither
//! refused, nor stopped, nor taken for the end of ours.

use wire::native::{AskView, Decision, Ended, Request, SessionState};

use super::printer::{self, Put};
use super::{DONE, FAILED, INTERRUPTED, LIMITED, LineEnd, Lines};
use crate::clean::one_line;

pub struct Turn {
    /// Makes the prompt done once, however often it is sent.
    key: String,
    text: String,
    /// The request that sent it last.
    pub prompt_id: u64,
    /// Its number, as soon as the server has taken the prompt.
    number: Option<u64>,
    /// It has ended; what its messages were shortened by is fetched.
    ended: Option<Ended>,
    /// The row that is fetched, and the request for it.
    fetching: Option<(u64, u64)>,
}

impl Turn {
    pub fn new(key: String, text: String) -> Self {
        Self { key, text, prompt_id: 0, number: None, ended: None, fetching: None }
    }
}

impl Lines<'_> {
    pub(super) async fn send_prompt(&mut self) {
        let Some((turn, session)) = self.turn.as_ref().zip(self.session.clone()) else { return };
        let (key, text) = (turn.key.clone(), turn.text.clone());
        let id = self.ask(Request::Prompt { session, key, text, pictures: Vec::new() }).await;
        if let Some(turn) = &mut self.turn {
            turn.prompt_id = id;
        }
    }

    /// There is a new connection: what was asked on the old one will not be answered.
    pub(super) async fn go_on_with_turn(&mut self) {
        match self.turn.as_ref().is_some_and(|turn| turn.ended.is_some()) {
            true => self.fetch_or_finish().await,
            false => self.send_prompt().await,
        }
    }

    /// The server has the prompt. Its turn may have begun, asked or even ended before it said so.
    pub(super) async fn taken(&mut self, re: u64, number: u64) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.prompt_id == re) else { return };
        let is_news = turn.number.replace(number).is_none();
        if is_news && self.stopping {
            self.cancel().await;
        }
        self.asks().await;
        self.ended().await;
    }

    /// Turns have ended; ours may be among them. Until its number is known, all of them are kept.
    pub(super) async fn ended(&mut self) {
        let Some(turn) = &mut self.turn else {
            self.printer.ended.clear();
            return;
        };
        if turn.number.is_none() || turn.ended.is_some() {
            return;
        }
        let ended = std::mem::take(&mut self.printer.ended);
        turn.ended = ended.into_iter().find(|(number, _)| *number == turn.number).map(|(_, ended)| ended);
        if turn.ended.is_some() {
            self.fetch_or_finish().await;
        } else if self.is_withdrawn() {
            self.put(Put::bad("the prompt was taken back before its turn began")).await;
            self.leave_turn(INTERRUPTED);
        }
    }

    /// A prompt that waited and was taken back neither runs nor waits, and is noted.
    fn is_withdrawn(&self) -> bool {
        let Some(number) = self.turn.as_ref().and_then(|turn| turn.number) else { return false };
        let waits = |state: &SessionState| state.queue.iter().any(|queued| queued.turn == number);
        self.printer.noted.contains(&number) && !self.is_ours() && !self.state.as_ref().is_some_and(waits)
    }

    /// What messages were shortened by is fetched, one after the other, before the next prompt.
    async fn fetch_or_finish(&mut self) {
        match (self.printer.shortened.first().copied(), self.session.clone()) {
            (Some(row), Some(session)) => {
                let id = self.ask(Request::Whole { session, row }).await;
                if let Some(turn) = &mut self.turn {
                    turn.fetching = Some((id, row));
                }
            }
            _ => self.finish().await,
        }
    }

    /// A row was fetched, or cannot be.
    pub(super) async fn fetched(&mut self, re: u64) {
        let fetching = self.turn.as_mut().and_then(|turn| turn.fetching.take_if(|(id, _)| *id == re));
        if let Some((_, row)) = fetching {
            self.printer.shortened.retain(|shortened| *shortened != row);
            self.fetch_or_finish().await;
        }
    }

    async fn finish(&mut self) {
        let Some(ended) = self.turn.as_mut().and_then(|turn| turn.ended.take()) else { return };
        let session = self.session.clone().unwrap_or_default();
        let puts = self.printer.end(&ended, &session);
        self.put_all(puts).await;
        self.leave_turn(match ended.stop.as_str() {
            "endTurn" => DONE,
            "cancelled" => INTERRUPTED,
            "maxTurnRequests" => LIMITED,
            _ => FAILED,
        });
    }

    /// Nothing more is expected of it.
    pub(super) fn leave_turn(&mut self, code: u8) {
        self.turn = None;
        self.code = code;
        if self.stopping {
            self.read_all = true;
            self.prompts.clear();
        }
    }

    /// Whether what runs now was begun by our prompt.
    fn is_ours(&self) -> bool {
        let ours = self.turn.as_ref().and_then(|turn| turn.number);
        ours.is_some() && self.state.as_ref().and_then(|state| state.turn) == ours
    }

    /// Whoever sits here is asked; without anybody, what our turn needs a person for is refused.
    pub(super) async fn asks(&mut self) {
        let asks = self.state.as_ref().map(|state| state.asks.clone()).unwrap_or_default();
        if self.asked.take_if(|asked| !asks.iter().any(|ask| ask.ask == asked.ask)).is_some() {
            self.put(Put::quiet("answered elsewhere")).await;
        }
        for ask in asks {
            if self.answered.contains(&ask.ask)
                || self.asked.as_ref().is_some_and(|asked| asked.ask == ask.ask)
            {
                continue;
            }
            if self.manner.attended && !self.read_all {
                if self.asked.is_none() {
                    let puts = printer::question(&ask, self.makes_rules);
                    self.put_all(puts).await;
                    self.asked = Some(ask);
                }
            } else if self.is_ours() {
                self.put(Put::bad(format!("refused, nobody can be asked here: {}", one_line(&ask.title))))
                    .await;
                self.decide(ask, Decision::DenyOnce, Some("nobody can be asked here".into())).await;
            }
        }
    }

    pub(super) async fn decide(&mut self, ask: AskView, decision: Decision, text: Option<String>) {
        self.answered.push(ask.ask);
        let text = text.filter(|_| decision != Decision::DenyOnce || ask.question.is_none());
        self.ask(Request::Answer { session: ask.session, ask: ask.ask, decision, text }).await;
    }

    /// The first time, our turn is stopped; the second time, nobody waits for that.
    pub(super) async fn stop(&mut self) -> Option<LineEnd> {
        if self.turn.is_none() || self.stopping {
            return Some(LineEnd::Code(INTERRUPTED));
        }
        self.stopping = true;
        self.put(Put::quiet("stopping")).await;
        self.cancel().await;
        None
    }

    /// Without a number, the server would stop whatever runs: it is stopped when it has one.
    async fn cancel(&mut self) {
        let number = self.turn.as_ref().and_then(|turn| turn.number);
        if let Some((session, number)) = self.session.clone().zip(number) {
            self.ask(Request::Cancel { session, turn: Some(number) }).await;
        }
    }
}
