//! Completions in the composer: commands after `/`, a setting's choices, files after `@`.

use wire::native::{SessionState, SettingView};

use crate::composer::Composer;
use crate::sanitize::one_line;

/// Completions that are shown at once.
pub const SHOWN_MAX: usize = 8;

/// Commands that this client carries out itself.
pub const CLIENT_COMMANDS: [(&str, &str); 7] = [
    ("help", "Show keys and commands"),
    ("sessions", "Switch to another session"),
    ("new", "Start a new session in this folder"),
    ("copy", "Copy the last answer"),
    ("link", "Show the address of this session for a browser"),
    ("exit", "Quit; a turn on a server continues"),
    ("quit", "Same as /exit"),
];

/// Whether a line of input is a command that leaves this client.
pub fn is_exit_command(text: &str) -> bool {
    matches!(text.split_whitespace().next(), Some("/exit" | "/quit"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The text that replaces the word at the cursor.
    pub text: String,
    pub name: String,
    pub about: String,
    /// Nothing needs to follow it.
    pub whole: bool,
}

#[derive(Debug, Default)]
pub struct Completions {
    pub list: Vec<Completion>,
    pub chosen: usize,
    /// Where the word at the cursor begins.
    pub from: usize,
    /// The text at which the person closed the list.
    dismissed: Option<String>,
}

/// What the word at the cursor can be completed to.
#[derive(Debug, PartialEq, Eq)]
pub enum CompletionContext<'a> {
    Nothing,
    Command(&'a str),
    Choice { setting: &'a str, word: &'a str, from: usize },
    File { text: &'a str, from: usize },
}

impl Completions {
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

    pub fn put(&mut self, from: usize, list: Vec<Completion>) {
        self.from = from;
        self.chosen = self.chosen.min(list.len().saturating_sub(1));
        self.list = list;
    }

    /// Updates the list for the text in the composer. Returns the file name to search for, if any.
    pub fn update(&mut self, composer: &Composer, state: Option<&SessionState>) -> Option<String> {
        if self.dismissed.as_deref() == Some(composer.text()) {
            self.close();
            return None;
        }
        self.dismissed = None;
        match completion_context(composer.text(), composer.cursor()) {
            CompletionContext::Nothing => self.close(),
            CompletionContext::Command(word) => {
                let list = commands(word, state);
                self.put(0, list);
            }
            CompletionContext::Choice { setting, word, from } => {
                let found = state.and_then(|state| state.settings.iter().find(|known| known.id == setting));
                let list = found.map(|setting| choices(setting, word)).unwrap_or_default();
                self.put(from, list);
            }
            CompletionContext::File { text, from } => {
                if self.from != from {
                    self.close();
                }
                return Some(text.to_owned());
            }
        }
        None
    }
}

pub fn completion_context(text: &str, cursor: usize) -> CompletionContext<'_> {
    let Some(before) = text.get(..cursor) else { return CompletionContext::Nothing };
    if let Some(line) = before.strip_prefix('/')
        && !line.contains('\n')
    {
        return match line.split_once(' ') {
            None => CompletionContext::Command(line),
            Some((setting, word)) if !word.contains(' ') => {
                CompletionContext::Choice { setting, word, from: setting.len() + 2 }
            }
            Some(_) => CompletionContext::Nothing,
        };
    }
    let start = before
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    match before[start..].strip_prefix('@') {
        Some(text) => CompletionContext::File { text, from: start },
        None => CompletionContext::Nothing,
    }
}

/// Commands that begin with the word, then those that contain it.
fn commands(word: &str, state: Option<&SessionState>) -> Vec<Completion> {
    let mut all: Vec<Completion> = Vec::new();
    for command in state.into_iter().flat_map(|state| &state.commands) {
        let hint = command.hint.as_deref().map(|hint| format!(" {}", one_line(hint))).unwrap_or_default();
        all.push(Completion {
            text: format!("/{} ", command.name),
            name: format!("/{}{hint}", one_line(&command.name)),
            about: one_line(&command.description),
            whole: command.hint.is_none(),
        });
    }
    for setting in state.into_iter().flat_map(|state| &state.settings) {
        push_new(&mut all, &setting.id, &format!("{} (now {})", setting.name, setting.value), false);
    }
    for (name, about) in CLIENT_COMMANDS {
        push_new(&mut all, name, about, true);
    }
    let word = word.to_lowercase();
    let name = |completion: &Completion| completion.text.trim_start_matches('/').trim_end().to_lowercase();
    let (mut first, rest): (Vec<Completion>, Vec<Completion>) =
        all.into_iter().partition(|completion| name(completion).starts_with(&word));
    first.extend(rest.into_iter().filter(|completion| name(completion).contains(&word)));
    first
}

fn push_new(all: &mut Vec<Completion>, name: &str, about: &str, whole: bool) {
    let text = format!("/{name} ");
    if !all.iter().any(|completion| completion.text == text) {
        all.push(Completion { text, name: format!("/{}", one_line(name)), about: one_line(about), whole });
    }
}

fn choices(setting: &SettingView, word: &str) -> Vec<Completion> {
    let word = word.to_lowercase();
    let matching = setting.choices.iter().filter(|choice| choice.value.to_lowercase().contains(&word));
    let completion = |choice: &wire::native::SettingChoice| Completion {
        text: choice.value.clone(),
        name: one_line(&choice.value),
        about: one_line(if choice.description.is_empty() { &choice.name } else { &choice.description }),
        whole: true,
    };
    matching.map(completion).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_says_what_is_wanted() {
        for (text, expected) in [
            ("/mo", CompletionContext::Command("mo")),
            ("/model of", CompletionContext::Choice { setting: "model", word: "of", from: 7 }),
            ("/model a b", CompletionContext::Nothing),
            ("see @src/m", CompletionContext::File { text: "src/m", from: 4 }),
            ("@", CompletionContext::File { text: "", from: 0 }),
            ("a@b", CompletionContext::Nothing),
            ("a /b", CompletionContext::Nothing),
            ("/a\nb", CompletionContext::Nothing),
        ] {
            assert_eq!(completion_context(text, text.len()), expected, "{text:?}");
        }
    }
}
