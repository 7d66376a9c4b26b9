//! The sessions and machines of one person, read once for all browsers of this node that show them.
//!
//! Each entry has the version of its last change. A browser has a version too, and gets what changed after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use store::sql::{DbError, Row, SqlValue, Statement};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::{BranchOrigin, CardState, SessionCard};
use wire::tunnel::WrappedKeys;

use crate::authenticator::PersonId;
use crate::hub::{Hub, NODE_SILENCE_MS};
use crate::topics;

/// How often everything is read again, without a notification.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// The least time between two reads.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Clocks of nodes differ, and an earlier write may become visible later.
const OVERLAP_MS: i64 = 5_000;
/// Sessions of one person that are listed.
pub const CARDS_MAX: u64 = 5_000;

#[derive(Default)]
pub struct SessionLists(Mutex<HashMap<PersonId, Weak<SessionList>>>);

pub struct SessionList {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    dropped: CancellationToken,
}

#[derive(Default)]
struct State {
    version: u64,
    /// The first read is done.
    loaded: bool,
    changed_at: i64,
    cards: HashMap<Arc<str>, (u64, Arc<ListedSession>)>,
    /// Removed sessions, by the version of the removal.
    gone: BTreeMap<u64, Arc<str>>,
    machines: Arc<Vec<ListedMachine>>,
}

/// A session in the list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedSession {
    pub session: Arc<str>,
    pub machine: Option<Arc<str>>,
    pub sealed: bool,
    pub cwd: Arc<str>,
    pub created_at: i64,
    pub updated_at: i64,
    pub attached: bool,
    pub stale: bool,
    pub state: Option<Arc<str>>,
    pub asks: Option<Arc<str>>,
    pub card: Option<Arc<str>>,
    /// The session that this is a branch of, and when the branch was made.
    pub branch: Option<(Arc<str>, i64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListedMachine {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub version: Arc<str>,
    pub sealed: bool,
    pub here: bool,
    pub seen_at: i64,
    pub keys: Option<WrappedKeys>,
}

/// What changed in a list after a version.
pub struct ListChanges {
    pub version: u64,
    pub cards: Vec<Arc<ListedSession>>,
    pub gone: Vec<Arc<str>>,
    pub machines: Arc<Vec<ListedMachine>>,
}

const COLUMNS: &str = "session, machine, sealed, cwd, created_at, updated_at, heard_at, changed_at, detached, node, \
    state, asks, card, branch_of, branched_at";

impl SessionLists {
    pub fn of(&self, hub: &Arc<Hub>, person: &PersonId) -> Arc<SessionList> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, list| list.strong_count() > 0);
        if let Some(list) = lists.get(person).and_then(Weak::upgrade) {
            return list;
        }
        let list = Arc::new(SessionList {
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            dropped: CancellationToken::new(),
        });
        lists.insert(person.clone(), Arc::downgrade(&list));
        let (weak, dropped, reading, person) =
            (Arc::downgrade(&list), list.dropped.clone(), Arc::clone(hub), person.clone());
        hub.start(async move {
            tokio::select! {
                biased;
                () = dropped.cancelled() => {}
                () = read(&reading, &person, &weak) => {}
            }
        });
        list
    }
}

impl Drop for SessionList {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

impl SessionList {
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What changed after a version; `None` before the first read.
    pub fn after(&self, version: u64) -> Option<ListChanges> {
        let state = self.state();
        if !state.loaded {
            return None;
        }
        let cards = state.cards.values().filter(|(changed, _)| *changed > version);
        let mut cards: Vec<_> = cards.map(|(_, card)| Arc::clone(card)).collect();
        newest_first(&mut cards);
        let gone = state.gone.range(version + 1..).map(|(_, session)| Arc::clone(session));
        let gone = gone.filter(|session| !state.cards.contains_key(session)).collect();
        Some(ListChanges { version: state.version, cards, gone, machines: Arc::clone(&state.machines) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the list with what was read; `there` are all listed sessions, if all were read.
    fn put(
        &self,
        found: Vec<(i64, ListedSession)>,
        there: Option<&[Arc<str>]>,
        machines: Vec<ListedMachine>,
    ) {
        let mut state = self.state();
        let (version, before) = (state.version + 1, state.version);
        for (changed_at, card) in found {
            state.changed_at = state.changed_at.max(changed_at);
            let known = state.cards.get(&card.session).is_some_and(|(_, known)| **known == card);
            if !known {
                state.version = version;
                state.cards.insert(Arc::clone(&card.session), (version, Arc::new(card)));
            }
        }
        if let Some(there) = there {
            let there: std::collections::HashSet<&str> = there.iter().map(AsRef::as_ref).collect();
            let gone: Vec<_> =
                state.cards.keys().filter(|id| !there.contains(id.as_ref())).cloned().collect();
            for session in gone {
                state.cards.remove(&session);
                state.version += 1;
                let number = state.version;
                state.gone.insert(number, session);
            }
            while state.gone.len() > 1024 {
                state.gone.pop_first();
            }
        }
        if *state.machines != machines {
            state.version = state.version.max(version);
            state.machines = Arc::new(machines);
        }
        let first = !std::mem::replace(&mut state.loaded, true);
        let changed = state.version != before || first;
        drop(state);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

pub fn newest_first(cards: &mut [Arc<ListedSession>]) {
    cards.sort_by(|one, other| (other.updated_at, &other.session).cmp(&(one.updated_at, &one.session)));
}

/// Keeps a list current until nobody needs it: reads changes on a notification, and everything now and then.
async fn read(hub: &Arc<Hub>, person: &PersonId, list: &Weak<SessionList>) {
    let mut wakeups = hub.topics.listen(&topics::person(&person.0));
    let mut all_at = tokio::time::Instant::now();
    loop {
        wakeups.mark_unchanged();
        let all = tokio::time::Instant::now() >= all_at;
        let Some(list) = list.upgrade() else { return };
        let read = refresh(hub, person, &list, all).await;
        drop(list);
        if read.is_ok() && all {
            all_at = tokio::time::Instant::now() + topics::jittered(POLL_EVERY);
        }
        tokio::time::sleep(MIN_INTERVAL).await;
        topics::wait_or_timeout(&mut wakeups, POLL_EVERY).await;
    }
}

async fn refresh(hub: &Hub, person: &PersonId, list: &SessionList, all: bool) -> Result<(), DbError> {
    let now = hub.now().0;
    let who: SqlValue = person.0.as_ref().into();
    let listed = hub.listed_since();
    let since = {
        let state = list.state();
        if state.loaded && !all { state.changed_at - OVERLAP_MS } else { i64::MIN }
    };
    let cards = Statement::new(
        format!(
            "SELECT {COLUMNS} FROM mirrors WHERE person = $1 AND changed_at >= $2 AND heard_at >= $3
             ORDER BY changed_at DESC LIMIT $4"
        ),
        [who.clone(), since.into(), listed.into(), CARDS_MAX.into()],
    );
    let machines = Statement::new(
        "SELECT machines.id, machines.name, machines.version, machines.sealed, machines.keys, machines.seen_at,
         nodes.seen_at FROM machines LEFT JOIN nodes ON nodes.id = machines.node
         WHERE machines.person = $1 ORDER BY machines.id",
        [who],
    );
    let found = hub.run(vec![cards, machines], Vec::new()).await?;
    let [cards, machines] = found.as_slice() else { return Ok(()) };
    let stale = i64::try_from(hub.options.stale_after.as_millis()).unwrap_or(i64::MAX);
    let cards = cards.rows.iter().map(|row| listed_session(row, now.saturating_sub(stale)));
    let cards = cards.collect::<Result<Vec<_>, _>>()?;
    let machines = machines.rows.iter().map(|row| listed_machine(row, now)).collect::<Result<Vec<_>, _>>()?;
    let there: Option<Vec<_>> =
        all.then(|| cards.iter().map(|(_, card)| Arc::clone(&card.session)).collect());
    list.put(cards, there.as_deref(), machines);
    Ok(())
}

fn listed_session(row: &Row, stale_before: i64) -> Result<(i64, ListedSession), DbError> {
    let card = ListedSession {
        session: row.text(0)?,
        machine: row.maybe_text(1)?,
        sealed: row.int(2)? != 0,
        cwd: row.text(3)?,
        created_at: row.int(4)?,
        updated_at: row.int(5)?,
        stale: row.int(6)? < stale_before,
        attached: row.int(8)? == 0 && row.maybe_text(9)?.is_some(),
        state: row.maybe_text(10)?,
        asks: row.maybe_text(11)?,
        card: row.maybe_text(12)?,
        branch: row.maybe_text(13)?.zip(row.maybe_int(14)?),
    };
    Ok((row.int(7)?, card))
}

fn listed_machine(row: &Row, now: i64) -> Result<ListedMachine, DbError> {
    // A machine has a node only while that node has its socket, and the node counts only while it is alive.
    let beat = row.maybe_int(6)?;
    let here = beat.is_some_and(|beat| beat > now - NODE_SILENCE_MS);
    let keys = row.maybe_text(4)?.and_then(|keys| serde_json::from_str(&keys).ok());
    Ok(ListedMachine {
        id: row.text(0)?,
        name: row.text(1)?,
        version: row.text(2)?,
        sealed: row.int(3)? != 0,
        here,
        seen_at: if here { row.int(5)? } else { beat.unwrap_or(0).max(row.int(5)?) },
        keys,
    })
}

impl ListedSession {
    pub fn state(&self) -> CardState {
        let word = self.state.as_deref().map(serde_json::Value::from);
        let known = word.and_then(|word| serde_json::from_value(word).ok());
        match known {
            Some(state) => state,
            // Relayed frames are not interpreted: the session is connected, or it is not.
            None if self.attached && !self.stale => CardState::Elsewhere,
            None => CardState::Done,
        }
    }

    pub fn asks(&self) -> Vec<u64> {
        self.asks.as_deref().and_then(|asks| serde_json::from_str(asks).ok()).unwrap_or_default()
    }

    /// A card for a session that has none: its bridge sends frames, or has only registered.
    pub fn placeholder_card(&self) -> SessionCard {
        let line = match (self.attached, self.stale) {
            (true, false) => "bridged; nothing was mirrored yet",
            (_, true) => "its bridge no longer responds",
            (false, false) => "its bridge is not connected",
        };
        SessionCard {
            session: self.session.to_string(),
            title: None,
            folder: self.cwd.to_string(),
            source: "bridge".into(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            state: self.state(),
            line: Some(line.into()),
            cost_usd: None,
            asks: Vec::new(),
            branch: self.branch_info(),
        }
    }

    pub fn branch_info(&self) -> Option<BranchOrigin> {
        self.branch.as_ref().map(|(of, at)| BranchOrigin { of: of.to_string(), at: *at })
    }

    /// Whether its title and folder contain all words. A sealed session is found by its id and folder.
    pub fn matches(&self, words: &[String]) -> bool {
        #[derive(serde::Deserialize)]
        struct CardText {
            title: Option<String>,
            folder: String,
        }
        let card = self.card.as_deref().filter(|_| !self.sealed);
        let card = card.and_then(|card| serde_json::from_str::<CardText>(card).ok());
        let text = match card {
            Some(card) => format!("{}\n{}", card.title.unwrap_or_default(), card.folder),
            None => format!("{}\n{}", self.session, self.cwd),
        };
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    }
}
