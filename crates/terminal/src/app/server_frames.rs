//! Frames from the server.

use wire::native::{
    ReplyBody, ReplyError, RequestReply, Row, RowContent, ServerFrame, ServerHello, ServerNotification,
    SessionCard, ToolCallState, ViewUpdate,
};

use super::{App, ConnectionState, Effect, Focus, PendingRequest, SEND_BLOCK_MS, SessionPhase};
use crate::completion::{Completion, CompletionContext, SHOWN_MAX, completion_context};
use crate::sanitize::one_line;
use crate::session_opener::Step;
use crate::session_picker::Picker;

impl App {
    pub(super) fn frame(&mut self, frame: ServerFrame) -> Vec<Effect> {
        match frame {
            ServerFrame::Reply(reply) => self.reply(reply),
            ServerFrame::Notification(told) => match *told {
                ServerNotification::Hello(hello) => self.hello(hello),
                ServerNotification::Cards { cards, gone, older } => {
                    self.cards(cards, &gone, older.as_deref())
                }
                ServerNotification::View(view) => self.view(view),
                ServerNotification::Faults { faults } => {
                    self.faults = faults.iter().map(|fault| one_line(fault)).collect();
                    Vec::new()
                }
                ServerNotification::WatchEnded { session, message } => {
                    if self.session.as_ref() == Some(&session) {
                        self.phase = SessionPhase::Over(one_line(&message));
                    }
                    Vec::new()
                }
                ServerNotification::Devices { .. } => Vec::new(),
            },
        }
    }

    fn hello(&mut self, hello: ServerHello) -> Vec<Effect> {
        self.connection = ConnectionState::Up;
        self.faults.clear();
        self.skew = hello.now - i64::try_from(self.now).unwrap_or(0);
        self.hello = Some(hello);
        // A second hello follows a reconnect: the session continues where it was.
        let Some(session) = self.session.clone().filter(|_| matches!(self.phase, SessionPhase::Open)) else {
            return Vec::new();
        };
        let mut effects = self.watch(session);
        effects.extend(self.send_unsent());
        effects
    }

    fn cards(&mut self, cards: Vec<SessionCard>, gone: &[String], older: Option<&str>) -> Vec<Effect> {
        let step = match &mut self.phase {
            SessionPhase::Opening(opener) => opener.cards(&cards, older),
            SessionPhase::Open | SessionPhase::Over(_) => Step::Wait,
        };
        self.cards.retain(|card| {
            !gone.contains(&card.session) && !cards.iter().any(|new| new.session == card.session)
        });
        self.cards.extend(cards);
        self.cards.sort_by_key(|card| -card.updated_at);
        self.step(step)
    }

    fn step(&mut self, step: Step) -> Vec<Effect> {
        match step {
            Step::Wait => Vec::new(),
            Step::Ask(request) => vec![self.ask(request, PendingRequest::Opening)],
            Step::Watch(session) => self.open_session(session),
            Step::Pick => {
                self.phase = SessionPhase::Open;
                self.picker = Some(Picker::default());
                Vec::new()
            }
            Step::Fail(failure) => vec![Effect::Fail(failure)],
        }
    }

    /// Shows the session that was found, with the settings and the prompt that the start options name.
    fn open_session(&mut self, session: String) -> Vec<Effect> {
        let is_new = self.start_options.session == crate::session_opener::WhichSession::New;
        let mut effects = self.watch(session.clone());
        if !is_new {
            for (setting, value) in self.start_options.settings.clone() {
                let request = wire::native::Request::Set { session: session.clone(), setting, value };
                effects.push(self.ask(request, PendingRequest::Other));
            }
        }
        if let Some(prompt) = self.start_options.prompt.take() {
            self.composer.remember(&prompt);
            effects.extend(self.prompt(prompt));
        }
        effects
    }

    fn view(&mut self, view: ViewUpdate) -> Vec<Effect> {
        if self.session.as_ref() != Some(&view.session) {
            return Vec::new();
        }
        self.upto = Some(view.upto);
        let state = view.state.clone();
        if view.reset {
            self.loading = false;
        }
        for row in &view.rows {
            self.add_to_history(row);
        }
        self.transcript.take(view);
        let Some(state) = state else { return Vec::new() };
        let was_busy = self.is_busy();
        let known: Vec<u64> = self.ask_panel.asks.iter().map(|ask| ask.ask).collect();
        let sent = self.ask_panel.sent.clone();
        let changed = self.ask_panel.update(&state.asks, self.now);
        for ask in changed.settled {
            if !sent.contains(&ask.ask) {
                self.settled_elsewhere(ask.row, &ask.title);
            }
        }
        let new = state.asks.iter().find(|ask| !known.contains(&ask.ask));
        let mut effects = Vec::new();
        if let Some(ask) = new {
            self.ask_panel_left = false;
            effects.extend(self.notify(&format!("needs you ({})", ask.title)));
        } else if was_busy && !state.busy {
            effects.extend(self.notify("the agent has finished"));
        }
        if let Some(text) = changed.unfinished {
            self.move_to_composer(&text);
        }
        self.state = Some(state);
        effects
    }

    /// Moves an unfinished answer, whose ask was answered elsewhere, to the composer: the text is not lost, and the
    /// next key does not answer another ask.
    fn move_to_composer(&mut self, text: &str) {
        self.composer.append(text);
        self.focus = Focus::Composer;
        self.ask_panel_left = true;
        self.send_blocked_until = self.now + SEND_BLOCK_MS;
    }

    /// Adds earlier prompts to the composer's history, so that the arrow keys find them also after a restart.
    fn add_to_history(&mut self, row: &Row) {
        if let RowContent::Prompt { text, .. } = &row.what
            && self.transcript.row(row.id).is_none()
        {
            self.composer.remember_earlier(text);
        }
    }

    fn notify(&self, what: &str) -> Option<Effect> {
        let title = self.state.as_ref().and_then(|state| state.title.as_deref()).unwrap_or("ropewalk");
        (!self.terminal_focused).then(|| Effect::Notify(one_line(&format!("{title}: {what}"))))
    }

    fn settled_elsewhere(&mut self, row: Option<u64>, title: &str) {
        let tool = row.and_then(|row| self.transcript.row(row)).and_then(|row| match &row.what {
            RowContent::Tool(tool) => Some(tool),
            _ => None,
        });
        let text = match tool {
            Some(tool) => match (&tool.decided, tool.state) {
                (Some(decided), _) => format!("{}: {decided}", tool.title),
                (None, ToolCallState::Refused) => {
                    format!("{}: {}", tool.title, tool.reason.as_deref().unwrap_or("refused"))
                }
                (None, _) => format!("{}: answered elsewhere", tool.title),
            },
            None => format!("{title}: answered elsewhere"),
        };
        self.show_message(one_line(&text));
    }

    fn reply(&mut self, reply: RequestReply) -> Vec<Effect> {
        let Some(pending) = self.pending.remove(&reply.re) else { return Vec::new() };
        let answer = match (reply.ok, reply.error) {
            (Some(answered), None) => Ok(answered),
            (_, Some(wrong)) => Err(wrong),
            (None, None) => Ok(ReplyBody::Done),
        };
        match pending {
            PendingRequest::Opening => {
                let SessionPhase::Opening(opener) = &mut self.phase else { return Vec::new() };
                let step = opener.reply(answer);
                return self.step(step);
            }
            PendingRequest::New => match answer {
                Ok(ReplyBody::SessionOpened { session }) => return self.switch(session),
                Ok(_) => {}
                Err(wrong) => self.show_error(one_line(&wrong.message)),
            },
            PendingRequest::Watch => {
                if let Err(wrong) = answer {
                    self.phase = SessionPhase::Over(one_line(&wrong.message));
                }
            }
            PendingRequest::Prompt(key) => self.prompted(&key, answer),
            PendingRequest::Answer(ask) => {
                if let Err(wrong) = answer {
                    self.ask_panel.sent.retain(|sent| *sent != ask);
                    self.show_error(one_line(&wrong.message));
                }
            }
            PendingRequest::Files { from, text } => self.files_found(from, &text, answer),
            PendingRequest::Earlier => {
                self.loading = false;
                match answer {
                    Ok(ReplyBody::Rows { rows, earlier }) => self.transcript.take_earlier(rows, earlier),
                    Ok(_) => {}
                    Err(wrong) => {
                        self.transcript.earlier = false;
                        self.show_error(one_line(&wrong.message));
                    }
                }
            }
            PendingRequest::Whole(row) => match answer {
                Ok(ReplyBody::Rows { rows, .. }) => {
                    let found = rows.into_iter().find(|whole| whole.id == row);
                    if let Some((entry, whole)) = self.transcript.entry_mut(row).zip(found) {
                        entry.replace(whole);
                        entry.open();
                    }
                }
                Ok(_) => {}
                Err(wrong) => self.show_error(one_line(&wrong.message)),
            },
            PendingRequest::Other => {
                if let Err(wrong) = answer {
                    self.show_error(one_line(&wrong.message));
                }
            }
        }
        Vec::new()
    }

    fn prompted(&mut self, key: &str, answer: Result<ReplyBody, ReplyError>) {
        let unsent = self.unsent.iter().position(|unsent| unsent.key == key).map(|at| self.unsent.remove(at));
        if let Err(wrong) = answer {
            self.show_error(one_line(&wrong.message));
            // The text is not lost.
            if let Some(unsent) = unsent.filter(|_| self.composer.is_empty()) {
                self.composer.set(&unsent.text);
            }
        }
    }

    fn files_found(&mut self, from: usize, text: &str, answer: Result<ReplyBody, ReplyError>) {
        let still = completion_context(self.composer.text(), self.composer.cursor())
            == CompletionContext::File { text, from };
        if let (true, Ok(ReplyBody::Files { files })) = (still, answer) {
            let completion = |file: wire::native::FileMatch| Completion {
                text: format!("@{} ", file.path),
                name: one_line(&file.path),
                about: String::new(),
                whole: false,
            };
            self.completions.put(from, files.into_iter().take(SHOWN_MAX * 4).map(completion).collect());
        }
    }
}
