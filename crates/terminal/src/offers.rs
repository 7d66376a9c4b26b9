//! What is offered while somebody writes: commands after `/`, a setting's choices, files after `@`.

use wire::native::{SessionState, Setting};

use crate::clean::one_line;
use crate::composer::Composer;

/// Offers that are shown at once.
pub const SHOWN_MAX: usize = 8;

/// Commands that this client carries out itself.
pub const OWN: [(&str, &str); 7] = [
    ("help", "Keys and commands"),
    ("sessions", "Another session"),
    ("new", "A new session in this folder"),
    ("copy", "The last answer to the clipboard"),
    ("link", "This session in a browser"),
    ("exit", "Leave; a turn on a server goes on"),
    ("quit", "The same as /exit"),
];

/// Whether a line of input is the command that leaves this client.
pub fn leaves(text: &str) -> bool {
    matches!(text.split_whitespace().next(), Some("/exit" | "/quit"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What is written instead of the word at the cursor.
    pub text: String,
    pub name: String,
    pub about: String,
    /// Nothing has to follow it.
    pub whole: bool,
}

#[derive(Debug, Default)]
pub struct Offers {
    pub list: Vec<Offer>,
    pub chosen: usize,
    /// Where the word begins.
    pub from: usize,
    /// The text at which somebody did not want any.
    dismissed: Option<String>,
}

/// What the word at the cursor asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    Nothing,
    Command(&'a str),
    Choice { setting: &'a str, word: &'a str, from: usize },
    File { text: &'a str, from: usize },
}

impl Offers {
    pub fn is_open(&self) -> bool {
        !self.list.is_empty()
    }

    pub fn close(&mut self) {
        self.list.clear();
        self.chosen = 0;
    }

    pub fn dismiss(&mut self, composer: &Composer) {
        self.dismissed = Some(composer.text().to_owned());
        self.close();
    }

    pub fn step(&mut self, down: bool) {
        let count = self.list.len().max(1);
        self.chosen = if down { (self.chosen + 1) % count } else { (self.chosen + count - 1) % count };
    }

    pub fn put(&mut self, from: usize, list: Vec<Offer>) {
        self.from = from;
        self.chosen = self.chosen.min(list.len().saturating_sub(1));
        self.list = list;
    }

    /// Looks at what is written. Answers what files are looked for, if any.
    pub fn look(&mut self, composer: &Composer, state: Option<&SessionState>) -> Option<String> {
        if self.dismissed.as_deref() == Some(composer.text()) {
            self.close();
            return None;
        }
        self.dismissed = None;
        match wanted(composer.text(), composer.cursor()) {
            Wanted::Nothing => self.close(),
            Wanted::Command(word) => {
                let list = commands(word, state);
                self.put(0, list);
            }
            Wanted::Choice { setting, word, from } => {
                let found = state.and_then(|state| state.settings.iter().find(|known| known.id == setting));
                let list = found.map(|setting| choices(setting, word)).unwrap_or_default();
                self.put(from, list);
            }
            Wanted::File { text, from } => {
                if self.from != from {
                    self.close();
                }
                return Some(text.to_owned());
            }
        }
        None
    }
}

pub fn wanted(text: &str, cursor: usize) -> Wanted<'_> {
    let Some(before) = text.get(..cursor) else { return Wanted::Nothing };
    if let Some(line) = before.strip_prefix('/')
        && !line.contains('\n')
    {
        return match line.split_once(' ') {
            None => Wanted::Command(line),
            Some((setting, word)) if !word.contains(' ') => {
                Wanted::Choice { setting, word, from: setting.len() + 2 }
            }
            Some(_) => Wanted::Nothing,
        };
    }
    let start = before
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    match before[start..].strip_prefix('@') {
        Some(text) => Wanted::File { text, from: start },
        None => Wanted::Nothing,
    }
}

/// Those that begin with the word, then those that have it somewhere.
fn commands(word: &str, state: Option<&SessionState>) -> Vec<Offer> {
    let mut all: Vec<Offer> = Vec::new();
    for command in state.into_iter().flat_map(|state| &state.commands) {
        let hint = command.hint.as_deref().map(|hint| format!(" {}", one_line(hint))).unwrap_or_default();
        all.push(Offer {
            text: format!("/{} ", command.name),
            name: format!("/{}{hint}", one_line(&command.name)),
            about: one_line(&command.description),
            whole: command.hint.is_none(),
        });
    }
    for setting in state.into_iter().flat_map(|state| &state.settings) {
        push_new(&mut all, &setting.id, &format!("{} (is {})", setting.name, setting.value), false);
    }
    for (name, about) in OWN {
        push_new(&mut all, name, about, true);
    }
    let word = word.to_lowercase();
    let name = |offer: &Offer| offer.text.trim_start_matches('/').trim_end().to_lowercase();
    let (mut first, rest): (Vec<Offer>, Vec<Offer>) =
        all.into_iter().partition(|offer| name(offer).starts_with(&word));
    first.extend(rest.into_iter().filter(|offer| name(offer).contains(&word)));
    first
}

fn push_new(all: &mut Vec<Offer>, name: &str, about: &str, whole: bool) {
    let text = format!("/{name} ");
    if !all.iter().any(|offer| offer.text == text) {
        all.push(Offer { text, name: format!("/{}", one_line(name)), about: one_line(about), whole });
    }
}

fn choices(setting: &Setting, word: &str) -> Vec<Offer> {
    let word = word.to_lowercase();
    let matching = setting.choices.iter().filter(|choice| choice.value.to_lowercase().contains(&word));
    let offer = |choice: &wire::native::SettingChoice| Offer {
        text: choice.value.clone(),
        name: one_line(&choice.value),
        about: one_line(if choice.description.is_empty() { &choice.name } else { &choice.description }),
        whole: true,
    };
    matching.map(offer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_says_what_is_wanted() {
        for (text, expected) in [
            ("/mo", Wanted::Command("mo")),
            ("/model of", Wanted::Choice { setting: "model", word: "of", from: 7 }),
            ("/model a b", Wanted::Nothing),
            ("see @src/m", Wanted::File { text: "src/m", from: 4 }),
            ("@", Wanted::File { text: "", from: 0 }),
            ("a@b", Wanted::Nothing),
            ("a /b", Wanted::Nothing),
            ("/a\nb", Wanted::Nothing),
        ] {
            assert_eq!(wanted(text, text.len()), expected, "{text:?}");
        }
    }
}
