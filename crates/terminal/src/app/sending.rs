//! What is asked of the server.

use wire::native::{Decision, Envelope, Request};

use super::{App, Connection, Effect, Stage, Unsent, Waits};
use crate::offers::{OWN, leaves};
use crate::picker::Picker;
use crate::shelf::Outcome;
use crate::words;

/// What terminals take for a clipboard.
const COPY_BYTES_MAX: usize = 64 << 10;
/// Prompts that may wait for a connection.
const UNSENT_MAX: usize = 20;

impl App {
    pub(super) fn ask(&mut self, request: Request, waits: Waits) -> Effect {
        let id = self.next_id;
        self.next_id += 1;
        self.waits.insert(id, waits);
        Effect::Send(Envelope { id, request })
    }

    /// Begins to look at a session, or goes on where the connection was cut.
    pub(super) fn watch(&mut self, session: String) -> Vec<Effect> {
        self.stage = Stage::Open;
        let after = self.upto.filter(|_| self.session.as_ref() == Some(&session));
        self.session = Some(session.clone());
        let mut effects = vec![self.ask(Request::Watch { session: session.clone(), after }, Waits::Watch)];
        let visible = self.looked_at;
        effects.push(self.ask(Request::Looking { at: Some(session), visible }, Waits::Other));
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
            effects.push(self.ask(Request::Unwatch { session: old }, Waits::Other));
        }
        self.upto = None;
        self.state = None;
        self.transcript = Default::default();
        self.shelf.forget();
        self.unsent.clear();
        // What the old session still answers must not end up in the new one.
        self.waits.retain(|_, waits| matches!(waits, Waits::Other | Waits::Answer(_)));
        self.loading = false;
        effects.extend(self.watch(session));
        effects
    }

    /// Enter: what is written is a command of ours, a setting, or a prompt.
    pub(super) fn submit(&mut self) -> Vec<Effect> {
        if self.composer.text().trim().is_empty() {
            return Vec::new();
        }
        if self.unsent.len() >= UNSENT_MAX {
            self.complain("too much waits to be sent: the connection is needed first");
            return Vec::new();
        }
        self.offers.close();
        let text = self.composer.send();
        self.transcript.follow();
        if let Some(effects) = self.own_command(text.trim()) {
            return effects;
        }
        self.prompt(text.trim_end().to_owned())
    }

    pub(super) fn prompt(&mut self, text: String) -> Vec<Effect> {
        let key = format!("{:016x}-{}", self.manner.seed, self.next_key);
        self.next_key += 1;
        self.unsent.push(Unsent { key: key.clone(), text: text.clone() });
        if self.connection != Connection::Up {
            self.say("It is sent when the connection is back");
            return Vec::new();
        }
        self.send_prompt(key, text).into_iter().collect()
    }

    /// Once more, under the same key, so that it is done once.
    pub(super) fn send_unsent(&mut self) -> Vec<Effect> {
        let unsent = self.unsent.clone();
        unsent.into_iter().filter_map(|unsent| self.send_prompt(unsent.key, unsent.text)).collect()
    }

    fn send_prompt(&mut self, key: String, text: String) -> Option<Effect> {
        let session = self.session.clone()?;
        let request = Request::Prompt { session, key: key.clone(), text, pictures: Vec::new() };
        Some(self.ask(request, Waits::Prompt(key)))
    }

    fn own_command(&mut self, text: &str) -> Option<Vec<Effect>> {
        let (name, rest) = text.strip_prefix('/')?.split_once(' ').unwrap_or((&text[1..], ""));
        let rest = rest.trim();
        if let Some(effects) = self.setting_command(name, rest) {
            return Some(effects);
        }
        let state = self.state.as_ref();
        if !OWN.iter().any(|(own, _)| *own == name) || (name == "help" && !rest.is_empty()) {
            return None;
        }
        if !leaves(text) && state.is_some_and(|state| state.commands.iter().any(|known| known.name == name)) {
            // The server's own is meant.
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

    /// Whether what is answered for good here becomes a rule. Before the server has said so, it does not.
    pub fn makes_rules(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.makes_rules)
    }

    /// Another session in the same folder, begun as this client was told to begin one.
    fn open_new(&mut self) -> Vec<Effect> {
        let folder = self.state.as_ref().map_or(&self.wish.folder, |state| &state.folder).clone();
        let settings = self.wish.settings.clone();
        vec![self.ask(Request::Open { folder: Some(folder), settings }, Waits::New)]
    }

    fn copy_last(&mut self) -> Vec<Effect> {
        let Some((text, more)) = self.transcript.last_said() else {
            self.complain("Nothing was said yet");
            return Vec::new();
        };
        if text.len() > COPY_BYTES_MAX || more > 0 {
            self.complain("The last answer is too long for a clipboard: ropewalk sessions export has it");
            return Vec::new();
        }
        let text = text.to_owned();
        self.say("Copied, if this terminal lets programs do that");
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
            let text = format!("{value:?} is not a choice for {name}: {}", known.join(", "));
            self.complain(text);
            return Some(Vec::new());
        };
        let (setting, value) = (setting.id.clone(), choice.value.clone());
        let session = self.session.clone()?;
        Some(vec![self.ask(Request::Set { session, setting, value }, Waits::Other)])
    }

    pub(super) fn cancel(&mut self) -> Vec<Effect> {
        self.escape_at = None;
        let Some(session) = self.session.clone() else { return Vec::new() };
        self.say("Stopping");
        vec![self.ask(Request::Cancel { session, turn: None }, Waits::Other)]
    }

    /// Takes back the last prompt that waits; it can be written again.
    pub(super) fn withdraw(&mut self) -> Vec<Effect> {
        let Some(last) = self.state.as_ref().and_then(|state| state.queue.last()).cloned() else {
            self.say("Nothing waits");
            return Vec::new();
        };
        if self.composer.is_empty() {
            self.composer.set(&last.text);
        }
        let Some(session) = self.session.clone() else { return Vec::new() };
        self.say("Taken back");
        vec![self.ask(Request::Cancel { session, turn: Some(last.turn) }, Waits::Other)]
    }

    pub(super) fn decide(&mut self, outcome: Outcome) -> Vec<Effect> {
        let Outcome::Answer { ask, decision, text } = outcome else { return Vec::new() };
        let session = self.shelf.asks.iter().find(|view| view.ask == ask).map(|view| view.session.clone());
        let Some(session) = session else { return Vec::new() };
        if self.connection != Connection::Up {
            self.shelf.sent.clear();
            self.complain("Nothing can be answered without a connection");
            return Vec::new();
        }
        let said = match decision {
            Decision::AllowOnce => "Allowed once".to_owned(),
            Decision::AllowAlways => format!("Allowed from now on {}", words::lasts(self.makes_rules())),
            Decision::DenyOnce | Decision::DenyAlways => "Denied".to_owned(),
            Decision::Reply => "Answered".to_owned(),
        };
        self.say(said);
        vec![self.ask(Request::Answer { session, ask, decision, text }, Waits::Answer(ask))]
    }

    pub(super) fn find_files(&mut self, text: String, from: usize) -> Vec<Effect> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        let request = Request::Find { session, text: text.clone() };
        vec![self.ask(request, Waits::Files { from, text })]
    }

    pub(super) fn load_whole(&mut self, row: u64) -> Vec<Effect> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        vec![self.ask(Request::Whole { session, row }, Waits::Whole(row))]
    }

    /// At the top of what is here, what came before is fetched.
    pub(super) fn load_earlier(&mut self) -> Option<Effect> {
        if self.loading || !self.transcript.wants_earlier() || self.connection != Connection::Up {
            return None;
        }
        let (session, before) = (self.session.clone()?, self.transcript.first()?);
        self.loading = true;
        Some(self.ask(Request::Earlier { session, before }, Waits::Earlier))
    }

    pub(super) fn show_link(&mut self) {
        let link = self.manner.address.as_deref().zip(self.session.as_deref());
        match link {
            Some((address, session)) => {
                let text = format!("{}/s/{session}", address.trim_end_matches('/'));
                self.say(text);
            }
            None => self.complain("No server runs that a browser could use: ropewalk up starts one"),
        }
    }

    /// The connection is gone: what was asked will not be answered.
    pub(super) fn cut(&mut self, why: String, retry_ms: u64) {
        self.connection = Connection::Down { why, retry_at: self.now + retry_ms };
        self.waits.clear();
        if let Stage::Opening(opening) = &mut self.stage {
            opening.restart();
        }
        self.loading = false;
        self.shelf.sent.clear();
        self.offers.close();
    }

    /// `Reconnecting 3 s`.
    pub fn connection_word(&self) -> Option<String> {
        match &self.connection {
            Connection::Up => None,
            Connection::Connecting => Some("Connecting…".into()),
            Connection::Down { retry_at, .. } => {
                let left = retry_at.saturating_sub(self.now);
                Some(if left < 1_000 {
                    "Reconnecting…".into()
                } else {
                    format!("Reconnecting {}", words::seconds(left))
                })
            }
        }
    }
}
