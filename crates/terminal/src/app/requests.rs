//! Requests to the server.

use wire::native::{Decision, Request, RequestEnvelope};

use super::{App, ConnectionState, Effect, PendingRequest, SessionPhase, UnsentPrompt};
use crate::ask_panel::AskKeyResult;
use crate::completion::{CLIENT_COMMANDS, is_exit_command};
use crate::formatting;
use crate::session_picker::Picker;

/// The most that terminals accept for the clipboard.
const COPY_BYTES_MAX: usize = 64 << 10;
/// Prompts that may wait for a connection. More are refused.
const UNSENT_MAX: usize = 20;

impl App {
    pub(super) fn ask(&mut self, request: Request, pending: PendingRequest) -> Effect {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        Effect::Send(RequestEnvelope { id, request })
    }

    /// Starts watching a session, or continues where the connection was lost.
    pub(super) fn watch(&mut self, session: String) -> Vec<Effect> {
        self.phase = SessionPhase::Open;
        let after = self.upto.filter(|_| self.session.as_ref() == Some(&session));
        self.session = Some(session.clone());
        let mut effects =
            vec![self.ask(Request::Watch { session: session.clone(), after }, PendingRequest::Watch)];
        let visible = self.terminal_focused;
        effects.push(self.ask(Request::Presence { at: Some(session), visible }, PendingRequest::Other));
        effects
    }

    /// Leaves this session for another one.
    pub(super) fn switch(&mut self, session: String) -> Vec<Effect> {
        self.picker = None;
        if self.session.as_ref() == Some(&session) {
            return Vec::new();
        }
        let mut effects = Vec::new();
        if let Some(old) = self.session.take() {
            effects.push(self.ask(Request::Unwatch { session: old }, PendingRequest::Other));
        }
        self.upto = None;
        self.state = None;
        self.transcript = Default::default();
        self.ask_panel.forget();
        self.unsent.clear();
        // Replies for the old session must not end up in the new one.
        self.pending
            .retain(|_, pending| matches!(pending, PendingRequest::Other | PendingRequest::Answer(_)));
        self.loading = false;
        effects.extend(self.watch(session));
        effects
    }

    /// Enter: sends the text as a command of this client, a setting, or a prompt.
    pub(super) fn submit(&mut self) -> Vec<Effect> {
        if self.composer.text().trim().is_empty() {
            return Vec::new();
        }
        if self.unsent.len() >= UNSENT_MAX {
            self.show_error("Too many prompts are waiting to be sent. Try again when connected");
            return Vec::new();
        }
        self.completions.close();
        let text = self.composer.send();
        self.transcript.follow();
        if let Some(effects) = self.own_command(text.trim()) {
            return effects;
        }
        self.prompt(text.trim_end().to_owned())
    }

    pub(super) fn prompt(&mut self, text: String) -> Vec<Effect> {
        let key = format!("{:016x}-{}", self.options.seed, self.next_key);
        self.next_key += 1;
        self.unsent.push(UnsentPrompt { key: key.clone(), text: text.clone() });
        if self.connection != ConnectionState::Up {
            self.show_message("Will be sent when the connection is back");
            return Vec::new();
        }
        self.send_prompt(key, text).into_iter().collect()
    }

    /// Sends unconfirmed prompts again, under the same keys, so that each runs once.
    pub(super) fn send_unsent(&mut self) -> Vec<Effect> {
        let unsent = self.unsent.clone();
        unsent.into_iter().filter_map(|unsent| self.send_prompt(unsent.key, unsent.text)).collect()
    }

    fn send_prompt(&mut self, key: String, text: String) -> Option<Effect> {
        let session = self.session.clone()?;
        let request = Request::Prompt { session, key: key.clone(), text, pictures: Vec::new() };
        Some(self.ask(request, PendingRequest::Prompt(key)))
    }

    fn own_command(&mut self, text: &str) -> Option<Vec<Effect>> {
        let (name, rest) = text.strip_prefix('/')?.split_once(' ').unwrap_or((&text[1..], ""));
        let rest = rest.trim();
        if let Some(effects) = self.setting_command(name, rest) {
            return Some(effects);
        }
        let state = self.state.as_ref();
        if !CLIENT_COMMANDS.iter().any(|(own, _)| *own == name) || (name == "help" && !rest.is_empty()) {
            return None;
        }
        if !is_exit_command(text)
            && state.is_some_and(|state| state.commands.iter().any(|known| known.name == name))
        {
            // The server's command of the same name is meant.
            return None;
        }
        Some(match name {
            "help" => {
                self.help = true;
                Vec::new()
            }
            "sessions" => {
                self.picker = Some(Picker::default());
                Vec::new()
            }
            "new" => self.open_new(),
            "copy" => self.copy_last(),
            "link" => {
                self.show_link();
                Vec::new()
            }
            _ => self.leave(),
        })
    }

    /// Whether an "always" answer becomes a rule. Until the server has said so, it does not.
    pub fn makes_rules(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.makes_rules)
    }

    /// Opens another session in the same folder, with the same settings.
    fn open_new(&mut self) -> Vec<Effect> {
        let folder = self.state.as_ref().map_or(&self.start_options.folder, |state| &state.folder).clone();
        let settings = self.start_options.settings.clone();
        vec![self.ask(Request::Open { folder: Some(folder), settings }, PendingRequest::New)]
    }

    fn copy_last(&mut self) -> Vec<Effect> {
        let Some((text, more)) = self.transcript.last_said() else {
            self.show_error("There is no answer to copy yet");
            return Vec::new();
        };
        if text.len() > COPY_BYTES_MAX || more > 0 {
            self.show_error("Too long for the clipboard. To save the session: ropewalk sessions export");
            return Vec::new();
        }
        let text = text.to_owned();
        self.show_message("Copied, if your terminal allows it");
        vec![Effect::Copy(text)]
    }

    fn setting_command(&mut self, name: &str, value: &str) -> Option<Vec<Effect>> {
        let state = self.state.as_ref()?;
        let setting = state.settings.iter().find(|setting| setting.id == name)?;
        if value.is_empty() {
            return None;
        }
        let Some(choice) = setting.choices.iter().find(|choice| choice.value == value) else {
            let known: Vec<&str> =
                setting.choices.iter().map(|choice| choice.value.as_str()).take(12).collect();
            let text =
                format!("{value:?} is not a valid value for {name}; choose one of {}", known.join(", "));
            self.show_error(text);
            return Some(Vec::new());
        };
        let (setting, value) = (setting.id.clone(), choice.value.clone());
        let session = self.session.clone()?;
        Some(vec![self.ask(Request::Set { session, setting, value }, PendingRequest::Other)])
    }

    pub(super) fn cancel(&mut self) -> Vec<Effect> {
        self.escape_at = None;
        let Some(session) = self.session.clone() else { return Vec::new() };
        self.show_message("Stopping");
        vec![self.ask(Request::Cancel { session, turn: None }, PendingRequest::Other)]
    }

    /// Takes the last queued prompt back into the composer.
    pub(super) fn withdraw(&mut self) -> Vec<Effect> {
        let Some(last) = self.state.as_ref().and_then(|state| state.queue.last()).cloned() else {
            self.show_message("No prompts are queued");
            return Vec::new();
        };
        if self.composer.is_empty() {
            self.composer.set(&last.text);
        }
        let Some(session) = self.session.clone() else { return Vec::new() };
        self.show_message("Removed from the queue");
        vec![self.ask(Request::Cancel { session, turn: Some(last.turn) }, PendingRequest::Other)]
    }

    pub(super) fn decide(&mut self, outcome: AskKeyResult) -> Vec<Effect> {
        let AskKeyResult::Answer { ask, decision, text } = outcome else { return Vec::new() };
        let session =
            self.ask_panel.asks.iter().find(|view| view.ask == ask).map(|view| view.session.clone());
        let Some(session) = session else { return Vec::new() };
        if self.connection != ConnectionState::Up {
            self.ask_panel.sent.clear();
            self.show_error("Not connected. Answer when the connection is back");
            return Vec::new();
        }
        let said = match decision {
            Decision::AllowOnce => "Allowed once".to_owned(),
            Decision::AllowAlways => format!("Always allowed {}", formatting::lasts(self.makes_rules())),
            Decision::DenyOnce | Decision::DenyAlways => "Denied".to_owned(),
            Decision::Reply => "Answered".to_owned(),
        };
        self.show_message(said);
        vec![self.ask(Request::Answer { session, ask, decision, text }, PendingRequest::Answer(ask))]
    }

    pub(super) fn find_files(&mut self, text: String, from: usize) -> Vec<Effect> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        let request = Request::FindFiles { session, text: text.clone() };
        vec![self.ask(request, PendingRequest::Files { from, text })]
    }

    pub(super) fn load_whole(&mut self, row: u64) -> Vec<Effect> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        vec![self.ask(Request::FullRow { session, row }, PendingRequest::Whole(row))]
    }

    /// At the top of the loaded rows, fetches earlier ones.
    pub(super) fn load_earlier(&mut self) -> Option<Effect> {
        if self.loading || !self.transcript.wants_earlier() || self.connection != ConnectionState::Up {
            return None;
        }
        let (session, before) = (self.session.clone()?, self.transcript.first()?);
        self.loading = true;
        Some(self.ask(Request::EarlierRows { session, before }, PendingRequest::Earlier))
    }

    pub(super) fn show_link(&mut self) {
        let link = self.options.address.as_deref().zip(self.session.as_deref());
        match link {
            Some((address, session)) => {
                let text = format!("{}/s/{session}", address.trim_end_matches('/'));
                self.show_message(text);
            }
            None => self.show_error("No server for browsers is running. To start one: ropewalk up"),
        }
    }

    /// The connection was lost: open requests will not be answered.
    pub(super) fn disconnected(&mut self, why: String, retry_ms: u64) {
        self.connection = ConnectionState::Down { why, retry_at: self.now + retry_ms };
        self.pending.clear();
        if let SessionPhase::Opening(opener) = &mut self.phase {
            opener.restart();
        }
        self.loading = false;
        self.ask_panel.sent.clear();
        self.completions.close();
    }

    /// `Reconnecting 3 s`.
    pub fn connection_word(&self) -> Option<String> {
        match &self.connection {
            ConnectionState::Up => None,
            ConnectionState::Connecting => Some("Connecting…".into()),
            ConnectionState::Down { retry_at, .. } => {
                let left = retry_at.saturating_sub(self.now);
                Some(if left < 1_000 {
                    "Reconnecting…".into()
                } else {
                    format!("Reconnecting {}", formatting::seconds(left))
                })
            }
        }
    }
}
