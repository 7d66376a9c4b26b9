//! What waits for a person, above the composer.
//!
//! Its keys act only while it has the focus. It takes that by itself only where nothing is being written,
//! and then waits a moment before it listens, as it does when another ask comes into view: who was about
//! to type must not have answered. A character that is no answer begins a text, and the keys after it belong
//! to the composer, so that a command can be typed at any time. What is risky needs a second press; what is critical, or cannot be
//! shown whole, needs the word `yes`.

use wire::native::{AskView, Decision};

use crate::composer::Composer;

/// How long it does not listen after it took the focus by itself, or showed another ask by itself.
const DEAF_MS: u64 = 600;

#[derive(Debug, Default)]
pub struct Shelf {
    pub asks: Vec<AskView>,
    /// Which of them is shown.
    pub at: usize,
    pub scroll: usize,
    pub stage: Stage,
    /// Answered here; the server has not said so yet.
    pub sent: Vec<u64>,
    deaf_until: u64,
}

/// What the next key means.
#[derive(Debug, Default)]
pub enum Stage {
    #[default]
    Choosing,
    /// The same decision once more is meant.
    Armed(Decision),
    /// The word `yes`, as far as it is typed.
    Typing(String, Decision),
    /// Why it is denied, or the reply to a question.
    Writing(Composer, Decision),
}

/// What came of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Nothing,
    Answer { ask: u64, decision: Decision, text: Option<String> },
}

/// What is different when the server tells what waits.
#[derive(Debug, Default)]
pub struct Changed {
    pub settled: Vec<AskView>,
    /// What was being written to one that is settled; empty if it was only the word `yes`.
    pub unfinished: Option<String>,
}

impl Shelf {
    pub fn current(&self) -> Option<&AskView> {
        self.asks.get(self.at)
    }

    /// What waits changed.
    pub fn update(&mut self, asks: &[AskView], now: u64) -> Changed {
        let shown = self.current().map(|ask| ask.ask);
        let is_open = |ask: &AskView| asks.iter().any(|open| open.ask == ask.ask);
        let settled: Vec<AskView> = self.asks.iter().filter(|ask| !is_open(ask)).cloned().collect();
        self.asks = asks.to_vec();
        self.sent.retain(|sent| self.asks.iter().any(|ask| ask.ask == *sent));
        let still = shown.and_then(|shown| self.asks.iter().position(|ask| ask.ask == shown));
        if let Some(at) = still {
            self.at = at;
            return Changed { settled, unfinished: None };
        }
        let unfinished = match std::mem::take(&mut self.stage) {
            Stage::Writing(field, _) => Some(field.text().to_owned()),
            Stage::Typing(..) => Some(String::new()),
            Stage::Choosing | Stage::Armed(_) => None,
        };
        self.show(0);
        if !self.asks.is_empty() {
            self.turn_deaf(now);
        }
        Changed { settled, unfinished }
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Nobody can have meant what is shown now.
    pub fn turn_deaf(&mut self, now: u64) {
        self.deaf_until = now + DEAF_MS;
    }

    pub fn is_deaf(&self, now: u64) -> bool {
        now < self.deaf_until
    }

    pub fn is_sent(&self) -> bool {
        self.current().is_some_and(|ask| self.sent.contains(&ask.ask))
    }

    pub fn is_writing(&self) -> bool {
        matches!(self.stage, Stage::Writing(..) | Stage::Typing(..))
    }

    pub fn show(&mut self, at: usize) {
        self.at = at.min(self.asks.len().saturating_sub(1));
        self.scroll = 0;
        self.stage = Stage::Choosing;
    }

    pub fn step(&mut self, on: bool) {
        let count = self.asks.len().max(1);
        self.show(if on { (self.at + 1) % count } else { (self.at + count - 1) % count });
    }

    /// Whether this key is for the question, also where it does nothing at the moment.
    pub fn is_answer(&self, key: char) -> bool {
        match self.current().and_then(|ask| ask.question.as_ref()) {
            Some(question) => match key {
                '1'..='9' => !question.choices.is_empty(),
                'r' | 'e' => question.free_text,
                key => matches!(key, 'n' | 'd'),
            },
            None => matches!(key, 'y' | 'Y' | 'a' | 'A' | 'n' | 'N' | 'd' | 'D'),
        }
    }

    /// A key that stands for itself, while nothing is written.
    pub fn press(&mut self, key: char) -> Outcome {
        let Some(ask) = self.current() else { return Outcome::Nothing };
        if self.is_sent() {
            return Outcome::Nothing;
        }
        let id = ask.ask;
        let risk = if ask.more > 0 { "critical" } else { ask.risk.as_str() }.to_owned();
        if let Some(question) = &ask.question {
            let choice =
                key.to_digit(10).and_then(|digit| question.choices.get((digit as usize).checked_sub(1)?));
            if let Some(choice) = choice.cloned() {
                return self.answer(id, Decision::Reply, Some(choice));
            }
            match key {
                'r' | 'e' if question.free_text => {
                    self.stage = Stage::Writing(Composer::default(), Decision::Reply)
                }
                'n' | 'd' => return self.answer(id, Decision::DenyOnce, None),
                _ => {}
            }
            return Outcome::Nothing;
        }
        match key {
            'y' | 'a' => self.allow(id, &risk, Decision::AllowOnce),
            'A' | 'Y' => self.allow(id, &risk, Decision::AllowAlways),
            'n' | 'd' => self.answer(id, Decision::DenyOnce, None),
            'D' | 'N' => {
                self.stage = Stage::Writing(Composer::default(), Decision::DenyOnce);
                Outcome::Nothing
            }
            _ => {
                self.stage = Stage::Choosing;
                Outcome::Nothing
            }
        }
    }

    /// Enter: what is written is meant; a question without choices is answered in writing.
    pub fn enter(&mut self) -> Outcome {
        let Some(ask) = self.current() else { return Outcome::Nothing };
        let id = ask.ask;
        let writes = ask.question.as_ref().is_some_and(|question| question.free_text);
        match std::mem::take(&mut self.stage) {
            Stage::Writing(field, decision) => {
                let text = field.text().trim().to_owned();
                if text.is_empty() && decision == Decision::Reply {
                    self.stage = Stage::Writing(field, decision);
                    return Outcome::Nothing;
                }
                self.answer(id, decision, Some(text).filter(|text| !text.is_empty()))
            }
            Stage::Typing(word, decision) if word.trim().eq_ignore_ascii_case("yes") => {
                self.answer(id, decision, None)
            }
            Stage::Choosing if writes && !self.is_sent() => {
                self.stage = Stage::Writing(Composer::default(), Decision::Reply);
                Outcome::Nothing
            }
            Stage::Typing(..) | Stage::Choosing | Stage::Armed(_) => Outcome::Nothing,
        }
    }

    fn allow(&mut self, id: u64, risk: &str, decision: Decision) -> Outcome {
        let is_armed = matches!(self.stage, Stage::Armed(armed) if armed == decision);
        match risk {
            "critical" => {
                self.stage = Stage::Typing(String::new(), decision);
                Outcome::Nothing
            }
            // For good is always said twice: what is remembered is shown in between.
            "low" | "medium" if decision == Decision::AllowOnce => self.answer(id, decision, None),
            _ if is_armed => self.answer(id, decision, None),
            _ => {
                self.stage = Stage::Armed(decision);
                Outcome::Nothing
            }
        }
    }

    fn answer(&mut self, ask: u64, decision: Decision, text: Option<String>) -> Outcome {
        self.stage = Stage::Choosing;
        self.sent.push(ask);
        Outcome::Answer { ask, decision, text }
    }
}
