//! One client's view of the board: which cards it has, and which updates to send it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::devices::Visitor;
use engine::{ListQuery, ListedSession, OpenError, SessionId, Timestamp};
use tokio::sync::mpsc;
use wire::native::{PAGE_CARDS, ReplyBody, ReplyError, ServerFrame, ServerNotification, SessionCard};

use super::AppServer;
use super::error_replies::{bad, not_opened};

/// How often changes by other processes are checked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The least time between two frames of cards.
const PACE: Duration = Duration::from_millis(100);
/// The longest text to search for.
const SEARCH_BYTES_MAX: usize = 256;

enum Wake {
    /// A card changed.
    Card,
    /// A session was opened or deleted, or it is time to check again.
    All,
}

pub(super) struct BoardUpdates {
    app: Arc<AppServer>,
    visitor: Arc<Visitor>,
    frames: mpsc::Sender<ServerFrame>,
    sent_cards: HashMap<String, SessionCard>,
    /// The first page was sent.
    listed: bool,
    version: u64,
}

impl BoardUpdates {
    pub fn new(app: Arc<AppServer>, visitor: Arc<Visitor>, frames: mpsc::Sender<ServerFrame>) -> Self {
        Self { app, visitor, frames, sent_cards: HashMap::new(), listed: false, version: 0 }
    }

    /// Sends the newest page, then every change, until the client is gone.
    pub async fn run(mut self) {
        let mut changes = self.app.board.changes();
        let mut openings = self.app.registry().openings();
        self.version = *changes.borrow_and_update();
        openings.mark_unchanged();
        if self.tell_page().await.is_err() {
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
                    self.tell_changed(version).await
                }
                Some(Wake::All) => self.tell_page().await,
            };
            if told.is_err() {
                return;
            }
            tokio::time::sleep(PACE).await;
        }
    }

    async fn tell_changed(&mut self, version: u64) -> Result<(), ClientGone> {
        if !self.listed {
            return self.tell_page().await;
        }
        let (cards, gone) = self.app.board.changed(&self.visitor.principal, self.version);
        self.version = version;
        self.tell(cards, gone, None).await
    }

    async fn tell_page(&mut self) -> Result<(), ClientGone> {
        // If the sessions cannot be listed now, they are listed the next time. Until then nothing is sent: an empty
        // page would say that there are no sessions.
        let Ok((cards, older)) = page(&self.app, &self.visitor, None).await else { return Ok(()) };
        let gone = self.find_deleted(&cards, older.is_some()).await;
        let first = (!std::mem::replace(&mut self.listed, true)).then_some(older);
        self.tell(cards, gone, first).await
    }

    /// Sessions that should be on the page and are not: another process may have deleted them.
    async fn find_deleted(&self, cards: &[SessionCard], full: bool) -> Vec<SessionId> {
        let oldest = cards.last().map(|card| card.updated_at).filter(|_| full).unwrap_or(i64::MIN);
        let told = self.sent_cards.values().filter(|told| told.updated_at > oldest);
        let missing = told.filter(|told| !cards.iter().any(|card| card.session == told.session));
        let mut gone = Vec::new();
        for id in missing.filter_map(|card| SessionId::parse(&card.session).ok()) {
            let row = self.app.registry().row(&self.visitor.principal, &id).await;
            if let Err(OpenError::NotFound(_)) = row {
                gone.push(id);
            }
        }
        gone
    }

    /// Sends the cards that the client does not have yet. `first` is given with the first page only.
    async fn tell(
        &mut self,
        cards: Vec<SessionCard>,
        gone: Vec<SessionId>,
        first: Option<Option<String>>,
    ) -> Result<(), ClientGone> {
        let gone: Vec<String> = gone.into_iter().map(|id| id.to_string()).collect();
        let gone: Vec<String> = gone.into_iter().filter(|id| self.sent_cards.remove(id).is_some()).collect();
        let fresh = |card: &SessionCard| self.sent_cards.get(&card.session) != Some(card);
        let cards: Vec<SessionCard> = cards.into_iter().filter(fresh).collect();
        if cards.is_empty() && gone.is_empty() && first.is_none() {
            return Ok(());
        }
        self.sent_cards.extend(cards.iter().map(|card| (card.session.clone(), card.clone())));
        let told = ServerNotification::Cards { cards, gone, older: first.flatten() };
        self.frames.send(ServerFrame::Notification(Box::new(told))).await.map_err(|_| ClientGone)
    }
}

/// The client is gone.
struct ClientGone;

/// A page of cards, and what continues it.
async fn page(
    app: &AppServer,
    visitor: &Visitor,
    before: Option<(Timestamp, SessionId)>,
) -> Result<(Vec<SessionCard>, Option<String>), ReplyError> {
    let owner = visitor.principal.clone();
    let query = ListQuery { owner, cwd: None, before, limit: PAGE_CARDS + 1 };
    let listed = app.registry().list_used(query).await.map_err(not_opened)?;
    Ok(cards_of(app, listed).await)
}

/// Answers a request for sessions: a page of all of them, or of those that match the search.
pub(super) async fn sessions(
    app: &AppServer,
    visitor: &Visitor,
    before: Option<String>,
    search: Option<String>,
) -> Result<ReplyBody, ReplyError> {
    let before = before.as_deref().map(parse_before).transpose()?;
    let words: Vec<String> = match search.as_deref() {
        Some(search) if search.len() > SEARCH_BYTES_MAX => {
            return Err(bad("the search text is too long; use fewer words"));
        }
        Some(search) => search.to_lowercase().split_whitespace().map(str::to_owned).collect(),
        None => Vec::new(),
    };
    if words.is_empty() {
        let (cards, older) = page(app, visitor, before).await?;
        return Ok(ReplyBody::Sessions { cards, older });
    }
    let query = ListQuery { before, ..ListQuery::all(visitor.principal.clone()) };
    let mut listed = app.registry().list_used(query).await.map_err(not_opened)?;
    listed.retain(|listed| has_words(listed, &words));
    let (cards, older) = cards_of(app, listed).await;
    Ok(ReplyBody::Sessions { cards, older })
}

fn has_words(listed: &ListedSession, words: &[String]) -> bool {
    let title = listed.row.title.as_deref().unwrap_or_default();
    let text = format!("{title}\n{}", listed.row.cwd.display()).to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

async fn cards_of(app: &AppServer, mut listed: Vec<ListedSession>) -> (Vec<SessionCard>, Option<String>) {
    let more = listed.len() > PAGE_CARDS;
    listed.truncate(PAGE_CARDS);
    let last = listed.last().filter(|_| more);
    let older = last.map(|last| format!("{}.{}", last.row.updated_at.0, last.row.id));
    let mut cards = Vec::with_capacity(listed.len());
    for listed in &listed {
        cards.push(app.board.card(app.registry(), listed).await);
    }
    (cards, older)
}

fn parse_before(text: &str) -> Result<(Timestamp, SessionId), ReplyError> {
    let parse = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), SessionId::parse(id).ok()?))
    };
    parse().ok_or_else(|| bad("`before` is not the end of a page of sessions; reload the list"))
}
