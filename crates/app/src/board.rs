//! The board: what is known of every session without folding its log.
//!
//! It follows the sessions that this process has open, and keeps only what a card shows: what
//! waits for a person, how the last turn ended, the last message. Of sessions that are not open it
//! reads the last few events.

mod card_facts;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    AskId, BoxFuture, Follower, ListedSession, PageRequest, Principal, Registry, Seq, SessionHandle,
    SessionId, Stop, follow_log,
};
use tokio::sync::watch;
use wire::native::{CardState, SessionCard};

use card_facts::CardFacts;

/// Events at the end of a log that are read for a card.
const TAIL_EVENTS: u64 = 48;
const TAIL_PAGE: PageRequest = PageRequest { count_max: 48, bytes_max: 256 << 10, outline: false };
/// Log tails that are cached.
const TAILS_MAX: usize = 1024;

/// Follows every session for the cards of our own clients.
#[derive(Default)]
pub(super) struct Board {
    inner: Arc<Mutex<Inner>>,
    version: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    live: HashMap<SessionId, LiveSession>,
    tails: HashMap<SessionId, (Seq, LogTail)>,
    /// Sessions that were deleted, and when.
    deleted: Vec<(u64, SessionId)>,
}

struct LiveSession {
    handle: SessionHandle,
    facts: CardFacts,
    /// The version of the board at which it changed last.
    changed: u64,
}

/// What a card shows of the end of a log.
#[derive(Debug, Clone, Default)]
struct LogTail {
    stop: Option<Stop>,
    line: Option<String>,
}

impl Board {
    /// Changes whenever a card does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Cards of open sessions that changed after a version.
    pub fn changed(&self, owner: &Principal, after: u64) -> (Vec<SessionCard>, Vec<SessionId>) {
        let inner = locked(&self.inner);
        let live = inner.live.values().filter(|live| live.changed > after && live.handle.owner() == owner);
        let cards = live.map(|live| live.card(inner.tail(live.handle.id()))).collect();
        let gone = inner.deleted.iter().filter(|(at, _)| *at > after).map(|(_, id)| id.clone()).collect();
        (cards, gone)
    }

    /// The card of a session that is in memory.
    pub fn live_card(&self, id: &SessionId) -> Option<SessionCard> {
        let inner = locked(&self.inner);
        inner.live.get(id).map(|live| live.card(inner.tail(id)))
    }

    /// A session as it is listed.
    pub async fn card(&self, registry: &Registry, listed: &ListedSession) -> SessionCard {
        let row = &listed.row;
        if !self.knows(&row.id, row.last_seq) {
            let tail = read_tail(registry, &row.owner, &row.id, row.last_seq).await;
            let mut inner = locked(&self.inner);
            if inner.tails.len() >= TAILS_MAX {
                inner.tails.clear();
            }
            inner.tails.insert(row.id.clone(), (row.last_seq, tail));
        }
        let inner = locked(&self.inner);
        if let Some(live) = inner.live.get(&row.id) {
            return live.card(inner.tail(&row.id));
        }
        let tail = inner.tail(&row.id);
        let state = match tail.and_then(|tail| tail.stop) {
            _ if row.busy => CardState::Elsewhere,
            Some(stop) => stopped(stop),
            None if row.last_seq == Seq::START => CardState::Empty,
            None => CardState::Done,
        };
        SessionCard {
            session: row.id.to_string(),
            title: row.title.as_ref().map(ToString::to_string),
            folder: row.cwd.display().to_string(),
            source: row.source.to_string(),
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
            state,
            line: tail.and_then(|tail| tail.line.clone()),
            cost_usd: None,
            branch: None,
            asks: Vec::new(),
        }
    }

    /// How an ask was settled, in words, if that was not long ago.
    pub fn settled(&self, id: &SessionId, ask: AskId) -> Option<String> {
        locked(&self.inner).live.get(id).and_then(|live| live.facts.settled(ask))
    }

    fn knows(&self, id: &SessionId, seq: Seq) -> bool {
        let inner = locked(&self.inner);
        let known = inner.tails.get(id).is_some_and(|(known, _)| *known == seq);
        known || inner.live.get(id).is_some_and(|live| live.facts.stop.is_some())
    }
}

impl Inner {
    fn tail(&self, id: &SessionId) -> Option<&LogTail> {
        self.tails.get(id).map(|(_, tail)| tail)
    }
}

impl LiveSession {
    fn card(&self, tail: Option<&LogTail>) -> SessionCard {
        let (snapshot, origin) = (self.handle.snapshot(), self.handle.origin());
        let stop = self.facts.stop.or(tail.and_then(|tail| tail.stop));
        let empty = origin.fresh && origin.opened_after == Seq::START;
        let state = match stop {
            _ if self.facts.asks().next().is_some() => CardState::Waiting,
            _ if self.facts.is_busy() => CardState::Working,
            Some(stop) => stopped(stop),
            None if empty => CardState::Empty,
            None => CardState::Done,
        };
        SessionCard {
            session: self.handle.id().to_string(),
            title: snapshot.title.as_ref().map(ToString::to_string),
            folder: snapshot.cwd.display().to_string(),
            source: origin.source.to_string(),
            created_at: origin.created_at.0,
            updated_at: snapshot.updated_at.0,
            state,
            line: self.facts.line().or_else(|| tail.and_then(|tail| tail.line.clone())),
            cost_usd: snapshot.totals.known_usd().filter(|cost| *cost > 0.0),
            branch: None,
            asks: self.facts.asks().cloned().collect(),
        }
    }
}

impl Follower for Board {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let (inner, version) = (Arc::clone(&self.inner), Arc::clone(&self.version));
        Box::pin(async move {
            let id = session.id().clone();
            let facts = CardFacts::new(&session);
            {
                let mut inner = locked(&inner);
                let live = LiveSession { handle: session.clone(), facts, changed: next(&version) };
                inner.live.insert(id.clone(), live);
            }
            version.send_modify(|version| *version += 1);
            follow_log(&session, |event| {
                let mut inner = locked(&inner);
                let Some(live) = inner.live.get_mut(&id).filter(|live| live.handle.is_same(&session)) else {
                    return;
                };
                if live.facts.observe(event) {
                    live.changed = next(&version);
                    drop(inner);
                    version.send_modify(|version| *version += 1);
                }
            })
            .await;
            let mut inner = locked(&inner);
            // It may be open again already.
            let own = inner.live.get(&id).is_some_and(|live| live.handle.is_same(&session));
            if own {
                inner.live.remove(&id);
            }
        })
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        let mut inner = locked(&self.inner);
        inner.tails.remove(id);
        inner.deleted.push((next(&self.version), id.clone()));
        let excess = inner.deleted.len().saturating_sub(TAILS_MAX);
        inner.deleted.drain(..excess);
        drop(inner);
        self.version.send_modify(|version| *version += 1);
        Box::pin(std::future::ready(()))
    }
}

/// The next version of the board. Computed while the board is locked, so that a client that has
/// seen this version has seen the changes that came with it.
fn next(version: &watch::Sender<u64>) -> u64 {
    *version.borrow() + 1
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped(stop: Stop) -> CardState {
    match stop {
        Stop::Failed | Stop::Interrupted => CardState::Failed,
        Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal | Stop::Cancelled => {
            CardState::Done
        }
    }
}

/// Reads the last events of a log. Events that cannot be read are left out.
async fn read_tail(registry: &Registry, owner: &Principal, id: &SessionId, last: Seq) -> LogTail {
    let after = Seq(last.0.saturating_sub(TAIL_EVENTS));
    let events = registry.read(owner, id, after, TAIL_PAGE).await.unwrap_or_default();
    let mut facts = CardFacts::default();
    for event in &events {
        facts.observe(event);
    }
    LogTail { stop: facts.stop, line: facts.line() }
}
