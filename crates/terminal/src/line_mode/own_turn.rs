//! The turn of our own prompt. Others may use the session too: their asks are not refused, their turns are not stopped,
//! and the end of their turns is not taken for the end of ours.

use wire::native::{AskView, Decision, Request, SessionState, TurnSummary};

use super::printer::{self, Output};
use super::{DONE, FAILED, INTERRUPTED, LIMITED, LineMode, LineModeExit};
use crate::sanitize::one_line;

pub struct OwnTurn {
    /// Makes the prompt run once, however often it is sent.
    key: String,
    text: String,
    /// The request that sent it last.
    pub prompt_id: u64,
    /// Its number, once the server has accepted the prompt.
    number: Option<u64>,
    /// Set once it has ended; shortened messages are then fetched whole.
    ended: Option<TurnSummary>,
    /// The row that is fetched, and the request for it.
    fetching: Option<(u64, u64)>,
}

impl OwnTurn {
    pub fn new(key: String, text: String) -> Self {
        Self { key, text, prompt_id: 0, number: None, ended: None, fetching: None }
    }
}

impl LineMode<'_> {
    pub(super) async fn send_prompt(&mut self) {
        let Some((turn, session)) = self.turn.as_ref().zip(self.session.clone()) else { return };
        let (key, text) = (turn.key.clone(), turn.text.clone());
        let id = self.ask(Request::Prompt { session, key, text, pictures: Vec::new() }).await;
        if let Some(turn) = &mut self.turn {
            turn.prompt_id = id;
        }
    }

    /// Continues the turn on a new connection: requests on the old one will not be answered.
    pub(super) async fn resume_turn(&mut self) {
        match self.turn.as_ref().is_some_and(|turn| turn.ended.is_some()) {
            true => self.fetch_or_finish().await,
            false => self.send_prompt().await,
        }
    }

    /// The server has accepted the prompt. Its turn may have begun, asked or even ended before.
    pub(super) async fn prompt_accepted(&mut self, re: u64, number: u64) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.prompt_id == re) else { return };
        let is_news = turn.number.replace(number).is_none();
        if is_news && self.stopping {
            self.cancel().await;
        }
        self.handle_asks().await;
        self.check_turn_end().await;
    }

    /// Checks whether our turn is among those that ended. Until its number is known, all of them are kept.
    pub(super) async fn check_turn_end(&mut self) {
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
            self.write(Output::bad("the prompt was removed from the queue")).await;
            self.leave_turn(INTERRUPTED);
        }
    }

    /// Whether our prompt was withdrawn: it neither runs nor waits, and the session has a note of it.
    fn is_withdrawn(&self) -> bool {
        let Some(number) = self.turn.as_ref().and_then(|turn| turn.number) else { return false };
        let waits = |state: &SessionState| state.queue.iter().any(|queued| queued.turn == number);
        self.printer.noted.contains(&number) && !self.is_ours() && !self.state.as_ref().is_some_and(waits)
    }

    /// Fetches shortened messages whole, one after the other, before the next prompt.
    async fn fetch_or_finish(&mut self) {
        match (self.printer.shortened.first().copied(), self.session.clone()) {
            (Some(row), Some(session)) => {
                let id = self.ask(Request::FullRow { session, row }).await;
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
        let outputs = self.printer.end(&ended, &session);
        self.write_all(outputs).await;
        self.leave_turn(match ended.stop.as_str() {
            "endTurn" => DONE,
            "cancelled" => INTERRUPTED,
            "maxTurnRequests" => LIMITED,
            _ => FAILED,
        });
    }

    /// Ends our turn with this exit code.
    pub(super) fn leave_turn(&mut self, code: u8) {
        self.turn = None;
        self.code = code;
        if self.stopping {
            self.read_all = true;
            self.prompts.clear();
        }
    }

    /// Whether the running turn is ours.
    fn is_ours(&self) -> bool {
        let ours = self.turn.as_ref().and_then(|turn| turn.number);
        ours.is_some() && self.state.as_ref().and_then(|state| state.turn) == ours
    }

    /// Asks the person at the terminal; without one, refuses the asks of our turn.
    pub(super) async fn handle_asks(&mut self) {
        let asks = self.state.as_ref().map(|state| state.asks.clone()).unwrap_or_default();
        if self.open_ask.take_if(|asked| !asks.iter().any(|ask| ask.ask == asked.ask)).is_some() {
            self.write(Output::quiet("answered elsewhere")).await;
        }
        for ask in asks {
            if self.answered.contains(&ask.ask)
                || self.open_ask.as_ref().is_some_and(|asked| asked.ask == ask.ask)
            {
                continue;
            }
            if self.options.attended && !self.read_all {
                if self.open_ask.is_none() {
                    let outputs = printer::question(&ask, self.makes_rules);
                    self.write_all(outputs).await;
                    self.open_ask = Some(ask);
                }
            } else if self.is_ours() {
                self.write(Output::bad(format!(
                    "denied, because nobody can be asked here: {}",
                    one_line(&ask.title)
                )))
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

    /// Stops our turn; the second time, ends without waiting for it.
    pub(super) async fn stop(&mut self) -> Option<LineModeExit> {
        if self.turn.is_none() || self.stopping {
            return Some(LineModeExit::Code(INTERRUPTED));
        }
        self.stopping = true;
        self.write(Output::quiet("stopping")).await;
        self.cancel().await;
        None
    }

    /// Cancels our turn once its number is known. Without a number, the server would stop whichever turn runs.
    async fn cancel(&mut self) {
        let number = self.turn.as_ref().and_then(|turn| turn.number);
        if let Some((session, number)) = self.session.clone().zip(number) {
            self.ask(Request::Cancel { session, turn: Some(number) }).await;
        }
    }
}
