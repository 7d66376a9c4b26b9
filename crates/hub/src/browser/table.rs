//! The cards and machines of one browser: what it has, and what to tell it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use wire::native::PAGE_CARDS;
use wire::native::hub::{HubTold, MachineView};

use super::{Hung, send};
use crate::feed::sealed;
use crate::guest::{Guest, Who};
use crate::shelf::{MachineRow, Mirrored, News, Shelf, newest_first};
use crate::socket::Go;

/// The least time between two frames of cards.
const PACE: Duration = Duration::from_millis(100);

pub(super) struct Table {
    guest: Arc<Guest>,
    shelf: Arc<Shelf>,
    go: mpsc::Sender<Go>,
    version: u64,
    told: HashSet<Arc<str>>,
    /// The machine of each session that is seen.
    places: HashMap<Arc<str>, Arc<str>>,
    machines: Vec<MachineView>,
    keys: HashMap<Arc<str>, u64>,
}

/// `Told::Cards`, with cards as they were mirrored.
#[derive(Serialize)]
#[serde(tag = "on", rename = "cards")]
struct Cards {
    cards: Vec<Box<RawValue>>,
    gone: Vec<Arc<str>>,
    older: Option<String>,
}

impl Table {
    pub fn new(guest: Arc<Guest>, shelf: Arc<Shelf>, go: mpsc::Sender<Go>) -> Self {
        Self {
            guest,
            shelf,
            go,
            version: 0,
            told: HashSet::new(),
            places: HashMap::new(),
            machines: Vec::new(),
            keys: HashMap::new(),
        }
    }

    /// Tells the newest page, then whatever changes, until the browser is gone.
    pub async fn run(mut self) {
        let mut changes = self.shelf.changes();
        let mut first = true;
        loop {
            changes.mark_unchanged();
            if let Some(news) = self.shelf.after(self.version) {
                if self.tell(news, std::mem::take(&mut first)).await.is_err() {
                    return;
                }
                tokio::time::sleep(PACE).await;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tell(&mut self, news: News, first: bool) -> Result<(), Hung> {
        self.version = news.version;
        let mut seen: Vec<_> = news.cards.into_iter().filter(|card| sees(&self.guest, card)).collect();
        for card in &seen {
            if let Some(machine) = &card.machine {
                self.places.insert(Arc::clone(&card.session), Arc::clone(machine));
            }
        }
        let gone: Vec<_> = news.gone.into_iter().filter(|session| self.told.remove(session)).collect();
        for session in &gone {
            self.places.remove(session);
        }
        self.tell_machines(&news.machines, first).await?;
        let mut older = None;
        if first {
            older = page(&mut seen);
        }
        self.told.extend(seen.iter().map(|card| Arc::clone(&card.session)));
        let (cards, sealed) = drawn(&seen);
        if first || !cards.is_empty() || !gone.is_empty() {
            send(&self.go, &Cards { cards, gone, older }).await?;
        }
        for card in sealed {
            send(&self.go, &card).await?;
        }
        Ok(())
    }

    async fn tell_machines(&mut self, machines: &[MachineRow], first: bool) -> Result<(), Hung> {
        let views = views(&self.guest, machines, &self.places);
        if self.machines != views || first {
            send(&self.go, &HubTold::Machines { machines: views.clone() }).await?;
            self.machines = views;
        }
        let seen = |machine: &&MachineRow| self.machines.iter().any(|view| view.id == *machine.id);
        let mut told = Vec::new();
        for machine in machines.iter().filter(seen) {
            let Some(keys) = &machine.keys else { continue };
            if self.keys.get(&machine.id) == Some(&digest(keys)) {
                continue;
            }
            told.push((Arc::clone(&machine.id), keys.clone()));
        }
        for (machine, keys) in told {
            self.keys.insert(Arc::clone(&machine), digest(&keys));
            for wrapped in keys.wrapped {
                let key = HubTold::Key {
                    machine: machine.to_string(),
                    generation: keys.generation,
                    device: wrapped.device,
                    key: wrapped.key,
                };
                send(&self.go, &key).await?;
            }
        }
        Ok(())
    }
}

/// Tells keys apart that were told from those that were not.
fn digest(keys: &wire::tunnel::Keys) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    keys.generation.hash(&mut hasher);
    keys.wrapped.iter().for_each(|wrapped| (&wrapped.device, &wrapped.key).hash(&mut hasher));
    hasher.finish()
}

/// Whether a guest sees a session of the shelf's owner.
pub(super) fn sees(guest: &Guest, card: &Mirrored) -> bool {
    match &guest.who {
        Who::Person { .. } => true,
        Who::Bearer { session, .. } => *session == card.session,
    }
}

/// The machines that a guest sees, each with those of its sessions that they see.
pub(super) fn views(
    guest: &Guest,
    machines: &[MachineRow],
    places: &HashMap<Arc<str>, Arc<str>>,
) -> Vec<MachineView> {
    let own = matches!(guest.who, Who::Person { .. });
    let view = |machine: &MachineRow| {
        let here = places.iter().filter(|(_, its)| **its == machine.id);
        let mut sessions: Vec<_> = here.map(|(session, _)| session.to_string()).collect();
        sessions.sort();
        MachineView {
            id: machine.id.to_string(),
            name: machine.name.to_string(),
            version: machine.version.to_string(),
            sealed: machine.sealed,
            own,
            here: machine.here,
            seen_at: machine.seen_at,
            sessions,
        }
    };
    machines.iter().map(view).filter(|view| own || !view.sessions.is_empty()).collect()
}

/// Cuts a page off, and says what continues it.
pub(super) fn page(cards: &mut Vec<Arc<Mirrored>>) -> Option<String> {
    newest_first(cards);
    let more = cards.len() > PAGE_CARDS;
    cards.truncate(PAGE_CARDS);
    cards.last().filter(|_| more).map(|last| format!("{}.{}", last.updated_at, last.session))
}

/// Cards as browsers are told them: plain ones together, each sealed one for itself.
pub(super) fn drawn(cards: &[Arc<Mirrored>]) -> (Vec<Box<RawValue>>, Vec<HubTold>) {
    let (mut plain, mut closed) = (Vec::new(), Vec::new());
    for card in cards {
        match (&card.card, card.sealed) {
            (Some(body), true) => closed.extend(sealed(body).map(|sealed| HubTold::SealedCard {
                session: card.session.to_string(),
                machine: card.machine.as_deref().unwrap_or_default().to_owned(),
                state: card.state(),
                asks: card.asks(),
                updated_at: card.updated_at,
                sealed,
                branch: card.kept_of(),
            })),
            (Some(body), false) => plain.extend(RawValue::from_string(body.to_string()).ok()),
            // Of a sealed session nothing is told before its own card is there.
            (None, true) => {}
            (None, false) => plain.extend(serde_json::value::to_raw_value(&card.plain()).ok()),
        }
    }
    (plain, closed)
}
