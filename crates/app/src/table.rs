//! One client's view of the board: which cards it has, and what to tell it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::devices::Visitor;
use engine::{ListQuery, Listed, OpenError, SessionId, Timestamp};
use tokio::sync::mpsc;
use wire::native::{Answered, Card, Frame, PAGE_CARDS, Told, Wrong};

use super::Desk;
use super::wrong::{bad, not_opened};

/// What other processes do is looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The least time between two frames of cards.
const PACE: Duration = Duration::from_millis(100);
/// What is searched for is this short.
const SEARCH_BYTES_MAX: usize = 256;

enum Wake {
    /// A card changed.
    Card,
    /// A session was opened or deleted, or it is time to look.
    All,
}

pub(super) struct Table {
    desk: Arc<Desk>,
    visitor: Arc<Visitor>,
    frames: mpsc::Sender<Frame>,
    told: HashMap<String, Card>,
    /// The first page was told.
    listed: bool,
    version: u64,
}

impl Table {
    pub fn new(desk: Arc<Desk>, visitor: Arc<Visitor>, frames: mpsc::Sender<Frame>) -> Self {
        Self { desk, visitor, frames, told: HashMap::new(), listed: false, version: 0 }
    }

    /// Tells the newest page, then whatever changes, until the client is gone.
    pub async fn run(mut self) {
        let mut changes = self.desk.board.changes();
        let mut openings = self.desk.registry().openings();
        self.version = *changes.borrow_and_update();
        openings.mark_unchanged();
        if self.all().await.is_err() {
            return;
        }
        loop {
            let wake = tokio::select! {
                changed = changes.changed() => changed.is_ok().then_some(Wake::Card),
                changed = openings.changed() => changed.is_ok().then_some(Wake::All),
                () = tokio::time::sleep(LOOK_EVERY) => Some(Wake::All),
                () = self.frames.closed() => None,
            };
            let told = match wake {
                None => return,
                Some(Wake::Card) => {
                    let version = *changes.borrow_and_update();
                    self.changed(version).await
                }
                Some(Wake::All) => self.all().await,
            };
            if told.is_err() {
                return;
            }
            tokio::time::sleep(PACE).await;
        }
    }

    async fn changed(&mut self, version: u64) -> Result<(), Gone> {
        if !self.listed {
            return self.all().await;
        }
        let (cards, gone) = self.desk.board.changed(&self.visitor.principal, self.version);
        self.version = version;
        self.tell(cards, gone, None).await
    }

    async fn all(&mut self) -> Result<(), Gone> {
        // What cannot be listed at the moment is listed the next time. Until then nothing is told: an empty
        // page would say that there are no sessions.
        let Ok((cards, older)) = page(&self.desk, &self.visitor, None).await else { return Ok(()) };
        let gone = self.missing(&cards, older.is_some()).await;
        let first = (!std::mem::replace(&mut self.listed, true)).then_some(older);
        self.tell(cards, gone, first).await
    }

    /// Sessions that should be on the page and are not: another process may have deleted them.
    async fn missing(&self, cards: &[Card], full: bool) -> Vec<SessionId> {
        let oldest = cards.last().map(|card| card.updated_at).filter(|_| full).unwrap_or(i64::MIN);
        let told = self.told.values().filter(|told| told.updated_at > oldest);
        let missing = told.filter(|told| !cards.iter().any(|card| card.session == told.session));
        let mut gone = Vec::new();
        for id in missing.filter_map(|card| SessionId::parse(&card.session).ok()) {
            let row = self.desk.registry().row(&self.visitor.principal, &id).await;
            if let Err(OpenError::NotFound(_)) = row {
                gone.push(id);
            }
        }
        gone
    }

    /// Tells what the client does not have yet. `first` is said the first time.
    async fn tell(
        &mut self,
        cards: Vec<Card>,
        gone: Vec<SessionId>,
        first: Option<Option<String>>,
    ) -> Result<(), Gone> {
        let gone: Vec<String> = gone.into_iter().map(|id| id.to_string()).collect();
        let gone: Vec<String> = gone.into_iter().filter(|id| self.told.remove(id).is_some()).collect();
        let fresh = |card: &Card| self.told.get(&card.session) != Some(card);
        let cards: Vec<Card> = cards.into_iter().filter(fresh).collect();
        if cards.is_empty() && gone.is_empty() && first.is_none() {
            return Ok(());
        }
        self.told.extend(cards.iter().map(|card| (card.session.clone(), card.clone())));
        let told = Told::Cards { cards, gone, older: first.flatten() };
        self.frames.send(Frame::Told(Box::new(told))).await.map_err(|_| Gone)
    }
}

/// The client is gone.
struct Gone;

/// A page of cards, and what continues it.
async fn page(
    desk: &Desk,
    visitor: &Visitor,
    before: Option<(Timestamp, SessionId)>,
) -> Result<(Vec<Card>, Option<String>), Wrong> {
    let owner = visitor.principal.clone();
    let query = ListQuery { owner, cwd: None, before, limit: PAGE_CARDS + 1 };
    let listed = desk.registry().list_used(query).await.map_err(not_opened)?;
    Ok(shown(desk, listed).await)
}

/// What a client asks for: a page of all sessions, or of those that have these words.
pub(super) async fn sessions(
    desk: &Desk,
    visitor: &Visitor,
    before: Option<String>,
    search: Option<String>,
) -> Result<Answered, Wrong> {
    let before = before.as_deref().map(parse_place).transpose()?;
    let words: Vec<String> = match search.as_deref() {
        Some(search) if search.len() > SEARCH_BYTES_MAX => return Err(bad("search for fewer words")),
        Some(search) => search.to_lowercase().split_whitespace().map(str::to_owned).collect(),
        None => Vec::new(),
    };
    if words.is_empty() {
        let (cards, older) = page(desk, visitor, before).await?;
        return Ok(Answered::Sessions { cards, older });
    }
    let query = ListQuery { before, ..ListQuery::all(visitor.principal.clone()) };
    let mut listed = desk.registry().list_used(query).await.map_err(not_opened)?;
    listed.retain(|listed| has_words(listed, &words));
    let (cards, older) = shown(desk, listed).await;
    Ok(Answered::Sessions { cards, older })
}

fn has_words(listed: &Listed, words: &[String]) -> bool {
    let title = listed.row.title.as_deref().unwrap_or_default();
    let text = format!("{title}\n{}", listed.row.cwd.display()).to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

async fn shown(desk: &Desk, mut listed: Vec<Listed>) -> (Vec<Card>, Option<String>) {
    let more = listed.len() > PAGE_CARDS;
    listed.truncate(PAGE_CARDS);
    let last = listed.last().filter(|_| more);
    let older = last.map(|last| format!("{}.{}", last.row.updated_at.0, last.row.id));
    let mut cards = Vec::with_capacity(listed.len());
    for listed in &listed {
        cards.push(desk.board.card(desk.registry(), listed).await);
    }
    (cards, older)
}

fn parse_place(text: &str) -> Result<(Timestamp, SessionId), Wrong> {
    let parse = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), SessionId::parse(id).ok()?))
    };
    parse().ok_or_else(|| bad("`before` is not what a page of sessions ended with"))
}
