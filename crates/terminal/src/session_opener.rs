//! Finds the session that is meant among those that the server lists, or opens a new one.

use std::collections::BTreeMap;

use wire::native::{ReplyBody, ReplyError, Request, SessionCard};

use crate::session_picker::{needs_somebody, title_of};

/// Sessions that are named if it is not clear which is meant.
const CANDIDATES_MAX: usize = 10;
/// Pages of sessions that are searched for an id.
const PAGES_MAX: usize = 200;

/// What the client starts with.
#[derive(Debug, Clone)]
pub struct StartOptions {
    pub session: WhichSession,
    /// The folder of a new session, and the one whose newest session is looked for.
    pub folder: String,
    /// Settings by id: of a new session, or changed in a continued one.
    pub settings: BTreeMap<String, String>,
    pub prompt: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichSession {
    New,
    /// The newest one of the folder.
    Newest,
    /// An id, or the beginning of one.
    Named(String),
    /// The one that waits for a person, or the newest one; a choice, if several wait.
    Any,
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenFailure {
    NotFound { what: String, fix: String },
    Unclear { what: String, candidates: Vec<(String, String)> },
    Refused(String),
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    Wait,
    Ask(Request),
    Watch(String),
    /// A person has to choose.
    Pick,
    Fail(OpenFailure),
}

#[derive(Debug)]
pub struct SessionOpener {
    session: WhichSession,
    folder: String,
    settings: BTreeMap<String, String>,
    /// The cards received so far, newest first.
    cards: Vec<SessionCard>,
    pages: usize,
    /// The newest page was received. Cards that arrive after it are changes.
    first_page_seen: bool,
}

impl SessionOpener {
    pub fn new(start_options: &StartOptions) -> Self {
        Self {
            session: start_options.session.clone(),
            folder: start_options.folder.clone(),
            settings: start_options.settings.clone(),
            cards: Vec::new(),
            pages: 0,
            first_page_seen: false,
        }
    }

    /// The connection was lost: open requests will not be answered, and the newest page comes again.
    pub fn restart(&mut self) {
        self.cards.clear();
        self.pages = 0;
        self.first_page_seen = false;
    }

    /// Takes cards: the newest page first, and then those that changed.
    pub fn cards(&mut self, cards: &[SessionCard], older: Option<&str>) -> Step {
        if std::mem::replace(&mut self.first_page_seen, true) {
            return Step::Wait;
        }
        if self.session == WhichSession::New {
            let folder = Some(self.folder.clone());
            return Step::Ask(Request::Open { folder, settings: self.settings.clone() });
        }
        self.page(cards, older)
    }

    pub fn reply(&mut self, answer: Result<ReplyBody, ReplyError>) -> Step {
        match answer {
            Ok(ReplyBody::SessionOpened { session }) => Step::Watch(session),
            Ok(ReplyBody::Sessions { cards, older }) => self.page(&cards, older.as_deref()),
            Ok(_) => Step::Wait,
            Err(wrong) => Step::Fail(OpenFailure::Refused(wrong.message)),
        }
    }

    fn page(&mut self, cards: &[SessionCard], older: Option<&str>) -> Step {
        // A session that changed between two pages can be on both.
        self.cards.retain(|card| !cards.iter().any(|new| new.session == card.session));
        self.cards.extend_from_slice(cards);
        self.pages += 1;
        let more = older.filter(|_| self.pages < PAGES_MAX);
        let next =
            |before: &str| Step::Ask(Request::Sessions { before: Some(before.to_owned()), search: None });
        match &self.session {
            WhichSession::New => Step::Wait,
            WhichSession::Any => self.any(),
            WhichSession::Newest => match (self.newest(), more) {
                (Some(session), _) => Step::Watch(session),
                (None, Some(older)) => next(older),
                (None, None) => Step::Fail(OpenFailure::NotFound {
                    what: format!("no session found for {}", self.folder),
                    fix: "leave out --continue, or choose one from ropewalk sessions list".into(),
                }),
            },
            WhichSession::Named(name) => {
                if self.cards.iter().any(|card| card.session == *name) {
                    return Step::Watch(name.clone());
                }
                // Another id may begin in the same way, so all pages are needed.
                more.map_or_else(|| self.named(name), next)
            }
        }
    }

    fn newest(&self) -> Option<String> {
        let here = self.cards.iter().filter(|card| card.folder == self.folder);
        here.max_by_key(|card| card.updated_at).map(|card| card.session.clone())
    }

    fn any(&self) -> Step {
        let waiting: Vec<&SessionCard> = self.cards.iter().filter(|card| needs_somebody(card)).collect();
        match waiting.as_slice() {
            [one] => Step::Watch(one.session.clone()),
            [] => match self.cards.iter().max_by_key(|card| card.updated_at) {
                Some(newest) => Step::Watch(newest.session.clone()),
                None => Step::Fail(OpenFailure::NotFound {
                    what: "there are no sessions yet".into(),
                    fix: "start one: ropewalk chat".into(),
                }),
            },
            _ => Step::Pick,
        }
    }

    fn named(&self, name: &str) -> Step {
        let like: Vec<&SessionCard> =
            self.cards.iter().filter(|card| card.session.starts_with(name)).collect();
        match like.as_slice() {
            [one] => Step::Watch(one.session.clone()),
            [] => Step::Fail(OpenFailure::NotFound {
                what: format!("no session found with the ID {name}"),
                fix: "list all sessions: ropewalk sessions list --all".into(),
            }),
            many => Step::Fail(OpenFailure::Unclear {
                what: format!("{} session IDs begin with {name}", many.len()),
                candidates: many
                    .iter()
                    .take(CANDIDATES_MAX)
                    .map(|card| (card.session.clone(), title_of(card)))
                    .collect(),
            }),
        }
    }
}
