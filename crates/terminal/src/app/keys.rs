//! What keys do, depending on the focus.

use crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::{App, Effect, Focus, SEND_BLOCK_MS};
use crate::ask_panel::AskInput;
use crate::completion::{CompletionContext, completion_context};
use crate::composer::{Composer, Erase, Move};

/// Escape twice within this time stops the turn.
const TWICE_MS: u64 = 1_000;
const WHEEL_LINES: isize = 3;

impl App {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if let Some(effects) = self.key_anywhere(key) {
            return effects;
        }
        self.leave_armed = false;
        if self.help {
            self.help = false;
            return Vec::new();
        }
        if self.picker.is_some() {
            return self.key_in_picker(key);
        }
        match self.focus {
            Focus::Composer => self.key_in_composer(key),
            Focus::AskPanel => self.key_in_ask_panel(key),
            Focus::Transcript => self.key_in_transcript(key),
        }
    }

    pub(super) fn paste(&mut self, text: &str) -> Vec<Effect> {
        if let (Focus::AskPanel, AskInput::Writing(field, _)) = (self.focus, &mut self.ask_panel.input) {
            field.insert(text);
            return Vec::new();
        }
        self.leave_ask_panel();
        if !self.composer.insert(text) {
            self.show_error("Too long to paste. Put the text in a file and name the file with @");
        }
        Vec::new()
    }

    pub(super) fn mouse(&mut self, event: MouseEvent) -> Vec<Effect> {
        match event.kind {
            MouseEventKind::ScrollUp if self.areas.ask_panel.contains((event.column, event.row).into()) => {
                self.ask_panel.scroll = self.ask_panel.scroll.saturating_sub(1);
            }
            MouseEventKind::ScrollDown if self.areas.ask_panel.contains((event.column, event.row).into()) => {
                self.ask_panel.scroll += 1;
            }
            MouseEventKind::ScrollUp => self.transcript.scroll(-WHEEL_LINES),
            MouseEventKind::ScrollDown => self.transcript.scroll(WHEEL_LINES),
            MouseEventKind::Down(MouseButton::Left) => {
                let area = self.areas.transcript;
                if area.contains((event.column, event.row).into()) && self.picker.is_none() && !self.help {
                    let row = self.transcript.row_at(usize::from(event.row - area.y));
                    if let Some(entry) = row.and_then(|row| self.transcript.entry_mut(row)) {
                        entry.toggle();
                    }
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// Keys that do the same everywhere.
    fn key_anywhere(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(self.interrupt()),
            KeyCode::Char('d') if control && (self.composer.is_empty() || self.focus != Focus::Composer) => {
                return Some(self.leave());
            }
            KeyCode::Char('l') if control => return Some(vec![Effect::Repaint]),
            KeyCode::Char('p') if control => self.plan_open = !self.plan_open,
            KeyCode::Char('x') if control => return Some(self.withdraw()),
            KeyCode::Char('o') if control => {
                if let Some(entry) =
                    self.transcript.last_folding().and_then(|row| self.transcript.entry_mut(row))
                {
                    entry.toggle();
                }
            }
            KeyCode::F(1) => self.help = !self.help,
            KeyCode::F(2) => self.focus_ask_panel(),
            KeyCode::PageUp => self.transcript.scroll(-self.transcript.page()),
            KeyCode::PageDown => self.transcript.scroll(self.transcript.page()),
            KeyCode::Home if control => self.transcript.scroll(isize::MIN),
            KeyCode::End if control => self.transcript.follow(),
            _ => return None,
        }
        Some(Vec::new())
    }

    fn key_in_composer(&mut self, key: KeyEvent) -> Vec<Effect> {
        if self.now < self.send_blocked_until {
            self.send_blocked_until = self.now + SEND_BLOCK_MS;
            if key.code == KeyCode::Enter {
                self.show_message("Not sent: the request was answered elsewhere, so your text is here now");
                return Vec::new();
            }
        }
        if self.completions.is_open()
            && let Some(effects) = self.key_in_completions(key)
        {
            return effects;
        }
        let newline = KeyModifiers::ALT | KeyModifiers::SHIFT | KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Enter if !key.modifiers.intersects(newline) => return self.submit(),
            KeyCode::Tab | KeyCode::BackTab => {
                if self.ask_panel.asks.is_empty() {
                    self.focus_transcript()
                } else {
                    self.focus_ask_panel()
                }
            }
            KeyCode::Esc if key.modifiers.contains(KeyModifiers::ALT) => {
                // Two that arrive together are read as one with Alt.
                self.escape();
                return self.escape();
            }
            KeyCode::Esc => return self.escape(),
            KeyCode::Char('?') if self.composer.is_empty() => self.help = true,
            KeyCode::Up if self.recalls() && self.composer.is_on_first_line() => self.composer.recall(true),
            KeyCode::Down if self.composer.is_recalled() && self.composer.is_on_last_line() => {
                self.composer.recall(false);
            }
            KeyCode::Home if self.composer.is_empty() => self.transcript.scroll(isize::MIN),
            KeyCode::End if self.composer.is_empty() => self.transcript.follow(),
            _ => {
                edit(&mut self.composer, key);
                return self.update_completions();
            }
        }
        Vec::new()
    }

    fn recalls(&self) -> bool {
        self.composer.is_empty() || self.composer.is_recalled()
    }

    fn update_completions(&mut self) -> Vec<Effect> {
        let Some(text) = self.completions.update(&self.composer, self.state.as_ref()) else {
            return Vec::new();
        };
        match completion_context(self.composer.text(), self.composer.cursor()) {
            CompletionContext::File { from, .. } => self.find_files(text, from),
            CompletionContext::Nothing | CompletionContext::Command(_) | CompletionContext::Choice { .. } => {
                Vec::new()
            }
        }
    }

    fn key_in_completions(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        match key.code {
            KeyCode::Up => self.completions.step(false),
            KeyCode::Down => self.completions.step(true),
            KeyCode::Esc => self.completions.dismiss(&self.composer),
            KeyCode::Tab | KeyCode::Enter if key.modifiers.is_empty() => {
                let completion = self.completions.list.get(self.completions.chosen).cloned()?;
                let complete = self.composer.text()[self.completions.from..self.composer.cursor()]
                    == *completion.text.trim_end();
                let sends = key.code == KeyCode::Enter && (completion.whole || complete);
                self.composer.complete(self.completions.from, &completion.text);
                self.completions.close();
                if sends {
                    return Some(self.submit());
                }
                return Some(self.update_completions());
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn escape(&mut self) -> Vec<Effect> {
        if !self.is_busy() {
            return Vec::new();
        }
        if self.escape_at.is_some_and(|at| self.now.saturating_sub(at) <= TWICE_MS) {
            return self.cancel();
        }
        self.escape_at = Some(self.now);
        self.show_message("Press Esc again to stop the turn");
        Vec::new()
    }

    fn key_in_ask_panel(&mut self, key: KeyEvent) -> Vec<Effect> {
        let goes_on = matches!(key.code, KeyCode::Up | KeyCode::Down)
            || (self.ask_panel.is_writing() && key.code != KeyCode::Enter);
        if key.kind == KeyEventKind::Repeat && !goes_on {
            // A held key counts once.
            return Vec::new();
        }
        if self.begins_text(key) {
            self.leave_ask_panel();
            return self.key_in_composer(key);
        }
        if !self.ask_panel.is_writing()
            && matches!(key.code, KeyCode::Char(_) | KeyCode::Enter)
            && self.ask_panel.ignores_keys(self.now)
        {
            // A person who keeps typing has not seen the question yet.
            self.ask_panel.ignore_keys(self.now);
            self.show_message("Key ignored: the request had only just appeared");
            return Vec::new();
        }
        match (&mut self.ask_panel.input, key.code) {
            (AskInput::Writing(..) | AskInput::Typing(..), KeyCode::Esc) => {
                self.ask_panel.input = AskInput::Choosing;
                return Vec::new();
            }
            (_, KeyCode::Enter) => {
                let outcome = self.ask_panel.enter();
                return self.decide(outcome);
            }
            (AskInput::Writing(field, _), _) => {
                edit(field, key);
                return Vec::new();
            }
            (AskInput::Typing(word, _), code) => {
                match code {
                    KeyCode::Char(c) if word.len() < 8 => word.push(c),
                    KeyCode::Backspace => drop(word.pop()),
                    _ => {}
                }
                return Vec::new();
            }
            (AskInput::Choosing | AskInput::Armed(_), _) => {}
        }
        match key.code {
            KeyCode::Tab | KeyCode::Esc => self.leave_ask_panel(),
            KeyCode::BackTab => self.focus_transcript(),
            KeyCode::Left => self.ask_panel.step(false),
            KeyCode::Right => self.ask_panel.step(true),
            KeyCode::Up => self.ask_panel.scroll = self.ask_panel.scroll.saturating_sub(1),
            KeyCode::Down => self.ask_panel.scroll += 1,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                let outcome = self.ask_panel.press(c);
                return self.decide(outcome);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Whether a key starts a text for the composer: a character that is no answer is the first one of something else,
    /// such as a command. From then on all keys are for the composer, until the person returns to the question.
    fn begins_text(&self, key: KeyEvent) -> bool {
        let KeyCode::Char(c) = key.code else { return false };
        !self.ask_panel.is_writing()
            && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
            && c != '?'
            && !self.ask_panel.is_answer(c)
    }

    fn key_in_transcript(&mut self, key: KeyEvent) -> Vec<Effect> {
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.transcript.choose(false),
            KeyCode::Down | KeyCode::Char('j') => self.transcript.choose(true),
            KeyCode::Char('[') => self.transcript.choose_prompt(false),
            KeyCode::Char(']') => self.transcript.choose_prompt(true),
            KeyCode::Home | KeyCode::Char('g') => self.transcript.scroll(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.transcript.follow(),
            KeyCode::Enter | KeyCode::Char('e' | ' ') => {
                let chosen = self.transcript.chosen;
                if let Some(entry) = chosen.and_then(|row| self.transcript.entry_mut(row)) {
                    entry.toggle();
                }
            }
            KeyCode::Char('w') => {
                let whole = self.transcript.chosen.filter(|row| {
                    self.transcript.entry(*row).is_some_and(crate::transcript_entry::Entry::has_more)
                });
                if let Some(row) = whole {
                    return self.load_whole(row);
                }
            }
            KeyCode::Char('p') => self.plan_open = !self.plan_open,
            KeyCode::Char('o') => self.show_link(),
            KeyCode::Char('?') => self.help = true,
            KeyCode::Tab | KeyCode::Esc | KeyCode::BackTab | KeyCode::Char('i' | 'q') => {
                self.focus = Focus::Composer;
                self.transcript.chosen = None;
            }
            _ => {}
        }
        Vec::new()
    }

    fn key_in_picker(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(picker) = &mut self.picker else { return Vec::new() };
        let count = picker.listed(&self.cards).len();
        match key.code {
            KeyCode::Up => picker.step(false, count),
            KeyCode::Down => picker.step(true, count),
            KeyCode::Backspace => drop(picker.filter.pop()),
            KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                picker.filter.push(c);
                picker.chosen = 0;
            }
            KeyCode::Enter => {
                let chosen = picker.listed(&self.cards).get(picker.chosen).map(|card| card.session.clone());
                return chosen.map(|session| self.switch(session)).unwrap_or_default();
            }
            KeyCode::Esc if self.session.is_some() => self.picker = None,
            KeyCode::Esc => return vec![Effect::Leave],
            _ => {}
        }
        Vec::new()
    }

    fn focus_ask_panel(&mut self) {
        if !self.ask_panel.asks.is_empty() {
            self.focus = Focus::AskPanel;
            self.ask_panel_left = false;
        }
    }

    /// Moves the focus to the composer. A half-given answer is discarded.
    fn leave_ask_panel(&mut self) {
        self.focus = Focus::Composer;
        self.ask_panel_left = true;
        self.ask_panel.input = AskInput::Choosing;
    }

    fn focus_transcript(&mut self) {
        self.focus = Focus::Transcript;
        if self.transcript.chosen.is_none() {
            self.transcript.choose(false);
        }
    }
}

/// What keys do in a text field.
fn edit(field: &mut Composer, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Enter => drop(field.insert("\n")),
        KeyCode::Char('j') if control => drop(field.insert("\n")),
        KeyCode::Char('a') if control => field.go(Move::LineStart),
        KeyCode::Char('e') if control => field.go(Move::LineEnd),
        KeyCode::Char('b') if alt => field.go(Move::WordLeft),
        KeyCode::Char('f') if alt => field.go(Move::WordRight),
        KeyCode::Char('b') if control => field.go(Move::Left),
        KeyCode::Char('f') if control => field.go(Move::Right),
        KeyCode::Char('u') if control => field.erase(Erase::ToLineStart),
        KeyCode::Char('k') if control => field.erase(Erase::ToLineEnd),
        KeyCode::Char('w') if control => field.erase(Erase::WordLeft),
        KeyCode::Char('d') if control => field.erase(Erase::Right),
        KeyCode::Char('h') if control => field.erase(Erase::Left),
        KeyCode::Char(_) if control => {}
        KeyCode::Char(c) => drop(field.insert(c.encode_utf8(&mut [0; 4]))),
        KeyCode::Backspace if alt => field.erase(Erase::WordLeft),
        KeyCode::Backspace => field.erase(Erase::Left),
        KeyCode::Delete => field.erase(Erase::Right),
        KeyCode::Left if control || alt => field.go(Move::WordLeft),
        KeyCode::Right if control || alt => field.go(Move::WordRight),
        KeyCode::Left => field.go(Move::Left),
        KeyCode::Right => field.go(Move::Right),
        KeyCode::Home => field.go(Move::LineStart),
        KeyCode::End => field.go(Move::LineEnd),
        KeyCode::Up => field.go(Move::Up),
        KeyCode::Down => field.go(Move::Down),
        _ => {}
    }
}
