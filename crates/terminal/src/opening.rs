//! Which session is meant, found out from what the server tells.

use std::collections::BTreeMap;

use wire::native::{Answered, Card, Request, Wrong};

use crate::picker::{needs_somebody, title_of};

/// Sessions that are named when it is not clear which is meant.
const CANDIDATES_MAX: usize = 10;
/// Pages of sessions that are looked through for an id.
const PAGES_MAX: usize = 200;

/// What a person wants to begin with.
#[derive(Debug, Clone)]
pub struct Wish {
    pub start: Start,
    /// Where a new session works, and where the newest one is looked for.
    pub folder: String,
    /// Settings by id: of a new session, or changed in one that is gone on with.
    pub settings: BTreeMap<String, String>,
    pub prompt: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    New,
    /// The newest of the folder.
    Newest,
    /// An id, or the beginning of one.
    Named(String),
    /// The one that needs somebody, the newest one, or a choice of those that need somebody.
    Any,
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
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
    Fail(Failure),
}

#[derive(Debug)]
pub struct Opening {
    start: Start,
    folder: String,
    settings: BTreeMap<String, String>,
    /// Seen so far, newest first.
    cards: Vec<Card>,
    pages: usize,
    /// The newest page was looked at. What is told of cards after it is news about them.
    begun: bool,
}

impl Opening {
    pub fn new(wish: &Wish) -> Self {
        Self {
            start: wish.start.clone(),
            folder: wish.folder.clone(),
            settings: wish.settings.clone(),
            cards: Vec::new(),
            pages: 0,
            begun: false,
        }
    }

    /// The connection is gone: what was asked will not be answered, and the newest page comes again.
    pub fn restart(&mut self) {
        self.cards.clear();
        self.pages = 0;
        self.begun = false;
    }

    /// Cards came: the newest page first, and then those that changed.
    pub fn cards(&mut self, cards: &[Card], older: Option<&str>) -> Step {
        if std::mem::replace(&mut self.begun, true) {
            return Step::Wait;
        }
        if self.start == Start::New {
            let folder = Some(self.folder.clone());
            return Step::Ask(Request::Open { folder, settings: self.settings.clone() });
        }
        self.page(cards, older)
    }

    pub fn reply(&mut self, answer: Result<Answered, Wrong>) -> Step {
        match answer {
            Ok(Answered::Opened { session }) => Step::Watch(session),
            Ok(Answered::Sessions { cards, older }) => self.page(&cards, older.as_deref()),
            Ok(_) => Step::Wait,
            Err(wrong) => Step::Fail(Failure::Refused(wrong.message)),
        }
    }

    fn page(&mut self, cards: &[Card], older: Option<&str>) -> Step {
        // A session that changed between two pages can be on both.
        self.cards.retain(|card| !cards.iter().any(|new| new.session == card.session));
        self.cards.extend_from_slice(cards);
        self.pages += 1;
        let more = older.filter(|_| self.pages < PAGES_MAX);
        let next =
            |before: &str| Step::Ask(Request::Sessions { before: Some(before.to_owned()), search: None });
        match &self.start {
            Start::New => Step::Wait,
            Start::Any => self.any(),
            Start::Newest => match (self.newest(), more) {
                (Some(session), _) => Step::Watch(session),
                (None, Some(older)) => next(older),
                (None, None) => Step::Fail(Failure::NotFound {
                    what: format!("there is no session of {}", self.folder),
                    fix: "the same without --continue, or ropewalk sessions list".into(),
                }),
            },
            Start::Named(name) => {
                if self.cards.iter().any(|card| card.session == *name) {
                    return Step::Watch(name.clone());
                }
                // Another one may begin in the same way, so all of them have to be seen.
                more.map_or_else(|| self.named(name), next)
            }
        }
    }

    fn newest(&self) -> Option<String> {
        let here = self.cards.iter().filter(|card| card.folder == self.folder);
        here.max_by_key(|card| card.updated_at).map(|card| card.session.clone())
    }

    fn any(&self) -> Step {
        let waiting: Vec<&Card> = self.cards.iter().filter(|card| needs_somebody(card)).collect();
        match waiting.as_slice() {
            [one] => Step::Watch(one.session.clone()),
            [] => match self.cards.iter().max_by_key(|card| card.updated_at) {
                Some(newest) => Step::Watch(newest.session.clone()),
                None => Step::Fail(Failure::NotFound {
                    what: "there is no session yet".into(),
                    fix: "ropewalk chat".into(),
                }),
            },
            _ => Step::Pick,
        }
    }

    fn named(&self, name: &str) -> Step {
        let like: Vec<&Card> = self.cards.iter().filter(|card| card.session.starts_with(name)).collect();
        match like.as_slice() {
            [one] => Step::Watch(one.session.clone()),
            [] => Step::Fail(Failure::NotFound {
                what: format!("there is no session {name}"),
                fix: "ropewalk sessions list --all".into(),
            }),
            many => Step::Fail(Failure::Unclear {
                what: format!("{} sessions begin with {name}", many.len()),
                candidates: many
                    .iter()
                    .take(CANDIDATES_MAX)
                    .map(|card| (card.session.clone(), title_of(card)))
                    .collect(),
            }),
        }
    }
}
