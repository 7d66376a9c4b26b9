//! The cards and the machines of one person, read once for everybody at this node who sees them.
//!
//! Each entry has the number of its last change. Who is told is a number too, and gets what changed after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use store::sql::{DbError, Row, Statement, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::{Card, CardState, KeptOf};
use wire::tunnel::Keys;

use crate::guest::PersonId;
use crate::hub::{Hub, NODE_SILENCE_MS};
use crate::topics;

/// Everything is looked at untold this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The least time between two looks.
const PACE: Duration = Duration::from_millis(100);
/// Clocks of nodes differ, and what is written first may be seen second.
const OVERLAP_MS: i64 = 5_000;
/// Sessions of one person that are listed.
pub const CARDS_MAX: u64 = 5_000;

#[derive(Default)]
pub struct Shelves(Mutex<HashMap<PersonId, Weak<Shelf>>>);

pub struct Shelf {
    inside: Mutex<Inside>,
    changed: watch::Sender<u64>,
    over: CancellationToken,
}

#[derive(Default)]
struct Inside {
    version: u64,
    /// The first look is done.
    looked: bool,
    changed_at: i64,
    cards: HashMap<Arc<str>, (u64, Arc<Mirrored>)>,
    /// Sessions that are gone, by the number of the change.
    gone: BTreeMap<u64, Arc<str>>,
    machines: Arc<Vec<MachineRow>>,
}

/// A session as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Mirrored {
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
    /// Of which session it is what was kept when its machine's state was put back, and since when.
    pub branch: Option<(Arc<str>, i64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MachineRow {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub version: Arc<str>,
    pub sealed: bool,
    pub here: bool,
    pub seen_at: i64,
    pub keys: Option<Keys>,
}

/// What changed on a shelf.
pub struct News {
    pub version: u64,
    pub cards: Vec<Arc<Mirrored>>,
    pub gone: Vec<Arc<str>>,
    pub machines: Arc<Vec<MachineRow>>,
}

const COLUMNS: &str = "session, machine, sealed, cwd, created_at, updated_at, heard_at, changed_at, detached, node, \
    state, asks, card, branch_of, branched_at";

impl Shelves {
    pub fn of(&self, hub: &Arc<Hub>, person: &PersonId) -> Arc<Shelf> {
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.retain(|_, shelf| shelf.strong_count() > 0);
        if let Some(shelf) = shelves.get(person).and_then(Weak::upgrade) {
            return shelf;
        }
        let shelf = Arc::new(Shelf {
            inside: Mutex::default(),
            changed: watch::Sender::new(0),
            over: CancellationToken::new(),
        });
        shelves.insert(person.clone(), Arc::downgrade(&shelf));
        let (weak, over, reading, person) =
            (Arc::downgrade(&shelf), shelf.over.clone(), Arc::clone(hub), person.clone());
        hub.start(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = read(&reading, &person, &weak) => {}
            }
        });
        shelf
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Shelf {
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What changed after a number; nothing before the first look.
    pub fn after(&self, version: u64) -> Option<News> {
        let inside = self.inside();
        if !inside.looked {
            return None;
        }
        let cards = inside.cards.values().filter(|(changed, _)| *changed > version);
        let mut cards: Vec<_> = cards.map(|(_, card)| Arc::clone(card)).collect();
        newest_first(&mut cards);
        let gone = inside.gone.range(version + 1..).map(|(_, session)| Arc::clone(session));
        let gone = gone.filter(|session| !inside.cards.contains_key(session)).collect();
        Some(News { version: inside.version, cards, gone, machines: Arc::clone(&inside.machines) })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what was read in its place.
    fn put(&self, found: Vec<(i64, Mirrored)>, there: Option<&[Arc<str>]>, machines: Vec<MachineRow>) {
        let mut inside = self.inside();
        let (version, before) = (inside.version + 1, inside.version);
        for (changed_at, card) in found {
            inside.changed_at = inside.changed_at.max(changed_at);
            let known = inside.cards.get(&card.session).is_some_and(|(_, known)| **known == card);
            if !known {
                inside.version = version;
                inside.cards.insert(Arc::clone(&card.session), (version, Arc::new(card)));
            }
        }
        if let Some(there) = there {
            let there: std::collections::HashSet<&str> = there.iter().map(AsRef::as_ref).collect();
            let gone: Vec<_> =
                inside.cards.keys().filter(|id| !there.contains(id.as_ref())).cloned().collect();
            for session in gone {
                inside.cards.remove(&session);
                inside.version += 1;
                let number = inside.version;
                inside.gone.insert(number, session);
            }
            while inside.gone.len() > 1024 {
                inside.gone.pop_first();
            }
        }
        if *inside.machines != machines {
            inside.version = inside.version.max(version);
            inside.machines = Arc::new(machines);
        }
        let first = !std::mem::replace(&mut inside.looked, true);
        let changed = inside.version != before || first;
        drop(inside);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

pub fn newest_first(cards: &mut [Arc<Mirrored>]) {
    cards.sort_by(|one, other| (other.updated_at, &other.session).cmp(&(one.updated_at, &one.session)));
}

/// Reads until nobody needs it: all now and then, and what changed when something is told.
async fn read(hub: &Arc<Hub>, person: &PersonId, shelf: &Weak<Shelf>) {
    let mut ear = hub.topics.listen(&topics::person(&person.0));
    let mut all_at = tokio::time::Instant::now();
    loop {
        ear.mark_unchanged();
        let all = tokio::time::Instant::now() >= all_at;
        let Some(shelf) = shelf.upgrade() else { return };
        let read = look(hub, person, &shelf, all).await;
        drop(shelf);
        if read.is_ok() && all {
            all_at = tokio::time::Instant::now() + topics::about(LOOK_EVERY);
        }
        tokio::time::sleep(PACE).await;
        topics::heard_or(&mut ear, LOOK_EVERY).await;
    }
}

async fn look(hub: &Hub, person: &PersonId, shelf: &Shelf, all: bool) -> Result<(), DbError> {
    let now = hub.now().0;
    let who: Value = person.0.as_ref().into();
    let listed = hub.listed_since();
    let since = {
        let inside = shelf.inside();
        if inside.looked && !all { inside.changed_at - OVERLAP_MS } else { i64::MIN }
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
    let cards = cards.rows.iter().map(|row| mirrored(row, now.saturating_sub(stale)));
    let cards = cards.collect::<Result<Vec<_>, _>>()?;
    let machines = machines.rows.iter().map(|row| machine(row, now)).collect::<Result<Vec<_>, _>>()?;
    let there: Option<Vec<_>> =
        all.then(|| cards.iter().map(|(_, card)| Arc::clone(&card.session)).collect());
    shelf.put(cards, there.as_deref(), machines);
    Ok(())
}

fn mirrored(row: &Row, stale_before: i64) -> Result<(i64, Mirrored), DbError> {
    let card = Mirrored {
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

fn machine(row: &Row, now: i64) -> Result<MachineRow, DbError> {
    // Its node is there only while it holds the machine's socket, and counts only while it lives.
    let beat = row.maybe_int(6)?;
    let here = beat.is_some_and(|beat| beat > now - NODE_SILENCE_MS);
    let keys = row.maybe_text(4)?.and_then(|keys| serde_json::from_str(&keys).ok());
    Ok(MachineRow {
        id: row.text(0)?,
        name: row.text(1)?,
        version: row.text(2)?,
        sealed: row.int(3)? != 0,
        here,
        seen_at: if here { row.int(5)? } else { beat.unwrap_or(0).max(row.int(5)?) },
        keys,
    })
}

impl Mirrored {
    pub fn state(&self) -> CardState {
        let word = self.state.as_deref().map(serde_json::Value::from);
        let known = word.and_then(|word| serde_json::from_value(word).ok());
        match known {
            Some(state) => state,
            // Of frames nothing is understood: it is there, or it is not.
            None if self.attached && !self.stale => CardState::Elsewhere,
            None => CardState::Done,
        }
    }

    pub fn asks(&self) -> Vec<u64> {
        self.asks.as_deref().and_then(|asks| serde_json::from_str(asks).ok()).unwrap_or_default()
    }

    /// The card of a session of which there is none: its bridge sends frames, or has only registered.
    pub fn plain(&self) -> Card {
        let line = match (self.attached, self.stale) {
            (true, false) => "bridged; nothing was mirrored yet",
            (_, true) => "its bridge is silent",
            (false, false) => "its bridge is not connected",
        };
        Card {
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
            branch: self.kept_of(),
        }
    }

    pub fn kept_of(&self) -> Option<KeptOf> {
        self.branch.as_ref().map(|(of, at)| KeptOf { of: of.to_string(), at: *at })
    }

    /// Whether all words stand in its title or its folder. What is sealed is found by its id alone.
    pub fn has(&self, words: &[String]) -> bool {
        #[derive(serde::Deserialize)]
        struct Said {
            title: Option<String>,
            folder: String,
        }
        let said = self.card.as_deref().filter(|_| !self.sealed);
        let said = said.and_then(|card| serde_json::from_str::<Said>(card).ok());
        let text = match said {
            Some(said) => format!("{}\n{}", said.title.unwrap_or_default(), said.folder),
            None => format!("{}\n{}", self.session, self.cwd),
        };
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    }
}
