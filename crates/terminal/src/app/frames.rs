//! What the server tells.

use wire::native::{Answered, Card, Frame, Hello, Reply, Row, Told, ToolState, View, What, Wrong};

use super::{App, Connection, Effect, Focus, Stage, UNAWARE_MS, Waits};
use crate::clean::one_line;
use crate::offers::{Offer, SHOWN_MAX, Wanted, wanted};
use crate::opening::Step;
use crate::picker::Picker;

impl App {
    pub(super) fn frame(&mut self, frame: Frame) -> Vec<Effect> {
        match frame {
            Frame::Reply(reply) => self.reply(reply),
            Frame::Told(told) => match *told {
                Told::Hello(hello) => self.hello(hello),
                Told::Cards { cards, gone, older } => self.cards(cards, &gone, older.as_deref()),
                Told::View(view) => self.view(view),
                Told::Faults { faults } => {
                    self.faults = faults.iter().map(|fault| one_line(fault)).collect();
                    Vec::new()
                }
                Told::Over { session, message } => {
                    if self.session.as_ref() == Some(&session) {
                        self.stage = Stage::Over(one_line(&message));
                    }
                    Vec::new()
                }
                Told::Devices { .. } => Vec::new(),
            },
        }
    }

    fn hello(&mut self, hello: Hello) -> Vec<Effect> {
        self.connection = Connection::Up;
        self.faults.clear();
        self.skew = hello.now - i64::try_from(self.now).unwrap_or(0);
        self.hello = Some(hello);
        // A second greeting follows a cut: the session goes on where it was.
        let Some(session) = self.session.clone().filter(|_| matches!(self.stage, Stage::Open)) else {
            return Vec::new();
        };
        let mut effects = self.watch(session);
        effects.extend(self.send_unsent());
        effects
    }

    fn cards(&mut self, cards: Vec<Card>, gone: &[String], older: Option<&str>) -> Vec<Effect> {
        let step = match &mut self.stage {
            Stage::Opening(opening) => opening.cards(&cards, older),
            Stage::Open | Stage::Over(_) => Step::Wait,
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
            Step::Ask(request) => vec![self.ask(request, Waits::Opening)],
            Step::Watch(session) => self.begin(session),
            Step::Pick => {
                self.stage = Stage::Open;
                self.picker = Some(Picker::default());
                Vec::new()
            }
            Step::Fail(failure) => vec![Effect::Fail(failure)],
        }
    }

    /// The session is found: what was wished for it is done.
    fn begin(&mut self, session: String) -> Vec<Effect> {
        let is_new = self.wish.start == crate::opening::Start::New;
        let mut effects = self.watch(session.clone());
        if !is_new {
            for (setting, value) in self.wish.settings.clone() {
                let request = wire::native::Request::Set { session: session.clone(), setting, value };
                effects.push(self.ask(request, Waits::Other));
            }
        }
        if let Some(prompt) = self.wish.prompt.take() {
            self.composer.remember(&prompt);
            effects.extend(self.prompt(prompt));
        }
        effects
    }

    fn view(&mut self, view: View) -> Vec<Effect> {
        if self.session.as_ref() != Some(&view.session) {
            return Vec::new();
        }
        self.upto = Some(view.upto);
        let state = view.state.clone();
        if view.reset {
            self.loading = false;
        }
        for row in &view.rows {
            self.learn(row);
        }
        self.transcript.take(view);
        let Some(state) = state else { return Vec::new() };
        let was_busy = self.is_busy();
        let known: Vec<u64> = self.shelf.asks.iter().map(|ask| ask.ask).collect();
        let sent = self.shelf.sent.clone();
        let changed = self.shelf.update(&state.asks, self.now);
        for ask in changed.settled {
            if !sent.contains(&ask.ask) {
                self.settled_elsewhere(ask.row, &ask.title);
            }
        }
        let new = state.asks.iter().find(|ask| !known.contains(&ask.ask));
        let mut effects = Vec::new();
        if let Some(ask) = new {
            self.shelf_left = false;
            effects.extend(self.notify(&format!("{} waits for you", ask.title)));
        } else if was_busy && !state.busy {
            effects.extend(self.notify("the turn has ended"));
        }
        if let Some(text) = changed.unfinished {
            self.take_over(&text);
        }
        self.state = Some(state);
        effects
    }

    /// What was being written has nobody any more whom it answers: it stays with who writes it, and the
    /// next key is no answer to another question.
    fn take_over(&mut self, text: &str) {
        self.composer.append(text);
        self.focus = Focus::Composer;
        self.shelf_left = true;
        self.unaware_until = self.now + UNAWARE_MS;
    }

    /// What was said here comes back with the arrow keys, also after a restart.
    fn learn(&mut self, row: &Row) {
        if let What::Prompt { text, .. } = &row.what
            && self.transcript.row(row.id).is_none()
        {
            self.composer.remember_earlier(text);
        }
    }

    fn notify(&self, what: &str) -> Option<Effect> {
        let title = self.state.as_ref().and_then(|state| state.title.as_deref()).unwrap_or("ropewalk");
        (!self.looked_at).then(|| Effect::Notify(one_line(&format!("{title}: {what}"))))
    }

    fn settled_elsewhere(&mut self, row: Option<u64>, title: &str) {
        let tool = row.and_then(|row| self.transcript.row(row)).and_then(|row| match &row.what {
            What::Tool(tool) => Some(tool),
            _ => None,
        });
        let text = match tool {
            Some(tool) => match (&tool.decided, tool.state) {
                (Some(decided), _) => format!("{}: {decided}", tool.title),
                (None, ToolState::Refused) => {
                    format!("{}: {}", tool.title, tool.reason.as_deref().unwrap_or("refused"))
                }
                (None, _) => format!("{}: settled elsewhere", tool.title),
            },
            None => format!("{title}: settled elsewhere"),
        };
        self.say(one_line(&text));
    }

    fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        let Some(waits) = self.waits.remove(&reply.re) else { return Vec::new() };
        let answer = match (reply.ok, reply.error) {
            (Some(answered), None) => Ok(answered),
            (_, Some(wrong)) => Err(wrong),
            (None, None) => Ok(Answered::Done),
        };
        match waits {
            Waits::Opening => {
                let Stage::Opening(opening) = &mut self.stage else { return Vec::new() };
                let step = opening.reply(answer);
                return self.step(step);
            }
            Waits::New => match answer {
                Ok(Answered::Opened { session }) => return self.switch(session),
                Ok(_) => {}
                Err(wrong) => self.complain(one_line(&wrong.message)),
            },
            Waits::Watch => {
                if let Err(wrong) = answer {
                    self.stage = Stage::Over(one_line(&wrong.message));
                }
            }
            Waits::Prompt(key) => self.prompted(&key, answer),
            Waits::Answer(ask) => {
                if let Err(wrong) = answer {
                    self.shelf.sent.retain(|sent| *sent != ask);
                    self.complain(one_line(&wrong.message));
                }
            }
            Waits::Files { from, text } => self.found(from, &text, answer),
            Waits::Earlier => {
                self.loading = false;
                match answer {
                    Ok(Answered::Rows { rows, earlier }) => self.transcript.take_earlier(rows, earlier),
                    Ok(_) => {}
                    Err(wrong) => {
                        self.transcript.earlier = false;
                        self.complain(one_line(&wrong.message));
                    }
                }
            }
            Waits::Whole(row) => match answer {
                Ok(Answered::Rows { rows, .. }) => {
                    let found = rows.into_iter().find(|whole| whole.id == row);
                    if let Some((entry, whole)) = self.transcript.entry_mut(row).zip(found) {
                        entry.replace(whole);
                        entry.open();
                    }
                }
                Ok(_) => {}
                Err(wrong) => self.complain(one_line(&wrong.message)),
            },
            Waits::Other => {
                if let Err(wrong) = answer {
                    self.complain(one_line(&wrong.message));
                }
            }
        }
        Vec::new()
    }

    fn prompted(&mut self, key: &str, answer: Result<Answered, Wrong>) {
        let unsent = self.unsent.iter().position(|unsent| unsent.key == key).map(|at| self.unsent.remove(at));
        if let Err(wrong) = answer {
            self.complain(one_line(&wrong.message));
            // What was written is not lost.
            if let Some(unsent) = unsent.filter(|_| self.composer.is_empty()) {
                self.composer.set(&unsent.text);
            }
        }
    }

    fn found(&mut self, from: usize, text: &str, answer: Result<Answered, Wrong>) {
        let still = wanted(self.composer.text(), self.composer.cursor()) == Wanted::File { text, from };
        if let (true, Ok(Answered::Files { files })) = (still, answer) {
            let offer = |file: wire::native::FoundFile| Offer {
                text: format!("@{} ", file.path),
                name: one_line(&file.path),
                about: String::new(),
                whole: false,
            };
            self.offers.put(from, files.into_iter().take(SHOWN_MAX * 4).map(offer).collect());
        }
    }
}
