//! The panel of open asks (permission requests and questions), above the composer.
//!
//! Its keys act only while it has the focus. It takes the focus by itself only while nothing is being written, and then
//! ignores keys for a moment, as it does when another ask comes into view: a person who was about to type must not
//! answer by accident. A character that is no answer starts a text, and the keys after it go to the composer, so that a
//! command can be typed at any time. A risky ask needs a second press; one that is critical, or cannot be shown whole,
//! needs the word `yes`.

use wire::native::{AskView, Decision};

use crate::composer::Composer;

/// How long the panel ignores keys after it took the focus, or showed another ask, by itself.
const IGNORE_KEYS_MS: u64 = 600;

#[derive(Debug, Default)]
pub struct AskPanel {
    pub asks: Vec<AskView>,
    /// The index of the ask that is shown.
    pub at: usize,
    pub scroll: usize,
    pub input: AskInput,
    /// Asks that were answered here and are not confirmed by the server yet.
    pub sent: Vec<u64>,
    ignore_keys_until: u64,
}

/// How the next key is understood.
#[derive(Debug, Default)]
pub enum AskInput {
    #[default]
    Choosing,
    /// The same decision once more confirms it.
    Armed(Decision),
    /// The word `yes` is being typed; what is typed so far.
    Typing(String, Decision),
    /// A reason for denying, or a reply to a question, is being written.
    Writing(Composer, Decision),
}

/// The result of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum AskKeyResult {
    Nothing,
    Answer { ask: u64, decision: Decision, text: Option<String> },
}

/// What changed when the server sent the list of open asks.
#[derive(Debug, Default)]
pub struct AskChanges {
    pub settled: Vec<AskView>,
    /// What was being written for an ask that is settled now; empty if it was only the word `yes`.
    pub unfinished: Option<String>,
}

impl AskPanel {
    pub fn current(&self) -> Option<&AskView> {
        self.asks.get(self.at)
    }

    /// Takes the server's list of open asks.
    pub fn update(&mut self, asks: &[AskView], now: u64) -> AskChanges {
        let shown = self.current().map(|ask| ask.ask);
        let is_open = |ask: &AskView| asks.iter().any(|open| open.ask == ask.ask);
        let settled: Vec<AskView> = self.asks.iter().filter(|ask| !is_open(ask)).cloned().collect();
        self.asks = asks.to_vec();
        self.sent.retain(|sent| self.asks.iter().any(|ask| ask.ask == *sent));
        let still = shown.and_then(|shown| self.asks.iter().position(|ask| ask.ask == shown));
        if let Some(at) = still {
            self.at = at;
            return AskChanges { settled, unfinished: None };
        }
        let unfinished = match std::mem::take(&mut self.input) {
            AskInput::Writing(field, _) => Some(field.text().to_owned()),
            AskInput::Typing(..) => Some(String::new()),
            AskInput::Choosing | AskInput::Armed(_) => None,
        };
        self.show(0);
        if !self.asks.is_empty() {
            self.ignore_keys(now);
        }
        AskChanges { settled, unfinished }
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Ignores keys for a moment: nobody can have meant the ask that is shown now.
    pub fn ignore_keys(&mut self, now: u64) {
        self.ignore_keys_until = now + IGNORE_KEYS_MS;
    }

    pub fn ignores_keys(&self, now: u64) -> bool {
        now < self.ignore_keys_until
    }

    pub fn is_sent(&self) -> bool {
        self.current().is_some_and(|ask| self.sent.contains(&ask.ask))
    }

    pub fn is_writing(&self) -> bool {
        matches!(self.input, AskInput::Writing(..) | AskInput::Typing(..))
    }

    pub fn show(&mut self, at: usize) {
        self.at = at.min(self.asks.len().saturating_sub(1));
        self.scroll = 0;
        self.input = AskInput::Choosing;
    }

    pub fn step(&mut self, on: bool) {
        let count = self.asks.len().max(1);
        self.show(if on { (self.at + 1) % count } else { (self.at + count - 1) % count });
    }

    /// Whether this key belongs to the ask, even if it does nothing at the moment.
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

    /// A single key, while nothing is being written.
    pub fn press(&mut self, key: char) -> AskKeyResult {
        let Some(ask) = self.current() else { return AskKeyResult::Nothing };
        if self.is_sent() {
            return AskKeyResult::Nothing;
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
                    self.input = AskInput::Writing(Composer::default(), Decision::Reply)
                }
                'n' | 'd' => return self.answer(id, Decision::DenyOnce, None),
                _ => {}
            }
            return AskKeyResult::Nothing;
        }
        match key {
            'y' | 'a' => self.allow(id, &risk, Decision::AllowOnce),
            'A' | 'Y' => self.allow(id, &risk, Decision::AllowAlways),
            'n' | 'd' => self.answer(id, Decision::DenyOnce, None),
            'D' | 'N' => {
                self.input = AskInput::Writing(Composer::default(), Decision::DenyOnce);
                AskKeyResult::Nothing
            }
            _ => {
                self.input = AskInput::Choosing;
                AskKeyResult::Nothing
            }
        }
    }

    /// Enter: sends what is written; for a question without choices, starts writing.
    pub fn enter(&mut self) -> AskKeyResult {
        let Some(ask) = self.current() else { return AskKeyResult::Nothing };
        let id = ask.ask;
        let writes = ask.question.as_ref().is_some_and(|question| question.free_text);
        match std::mem::take(&mut self.input) {
            AskInput::Writing(field, decision) => {
                let text = field.text().trim().to_owned();
                if text.is_empty() && decision == Decision::Reply {
                    self.input = AskInput::Writing(field, decision);
                    return AskKeyResult::Nothing;
                }
                self.answer(id, decision, Some(text).filter(|text| !text.is_empty()))
            }
            AskInput::Typing(word, decision) if word.trim().eq_ignore_ascii_case("yes") => {
                self.answer(id, decision, None)
            }
            AskInput::Choosing if writes && !self.is_sent() => {
                self.input = AskInput::Writing(Composer::default(), Decision::Reply);
                AskKeyResult::Nothing
            }
            AskInput::Typing(..) | AskInput::Choosing | AskInput::Armed(_) => AskKeyResult::Nothing,
        }
    }

    fn allow(&mut self, id: u64, risk: &str, decision: Decision) -> AskKeyResult {
        let is_armed = matches!(self.input, AskInput::Armed(armed) if armed == decision);
        match risk {
            "critical" => {
                self.input = AskInput::Typing(String::new(), decision);
                AskKeyResult::Nothing
            }
            // "Always" needs two presses: what will be remembered is shown in between.
            "low" | "medium" if decision == Decision::AllowOnce => self.answer(id, decision, None),
            _ if is_armed => self.answer(id, decision, None),
            _ => {
                self.input = AskInput::Armed(decision);
                AskKeyResult::Nothing
            }
        }
    }

    fn answer(&mut self, ask: u64, decision: Decision, text: Option<String>) -> AskKeyResult {
        self.input = AskInput::Choosing;
        self.sent.push(ask);
        AskKeyResult::Answer { ask, decision, text }
    }
}
