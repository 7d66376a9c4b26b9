//! Keeps one browser's list of cards and machines current: knows what it has, and sends what changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use wire::native::PAGE_CARDS;
use wire::native::hub_requests::{HubNotification, MachineView};

use super::{BrowserGone, send};
use crate::authenticator::{HubVisitor, VisitorKind};
use crate::session_list::{ListChanges, ListedMachine, ListedSession, SessionList, newest_first};
use crate::view_feed::sealed;
use crate::websocket_queues::OutgoingFrame;

/// The least time between two frames of cards.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct CardUpdates {
    visitor: Arc<HubVisitor>,
    session_list: Arc<SessionList>,
    outgoing: mpsc::Sender<OutgoingFrame>,
    version: u64,
    sent: HashSet<Arc<str>>,
    /// The machine of each session that the visitor sees.
    machine_of: HashMap<Arc<str>, Arc<str>>,
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

impl CardUpdates {
    pub fn new(
        visitor: Arc<HubVisitor>,
        session_list: Arc<SessionList>,
        outgoing: mpsc::Sender<OutgoingFrame>,
    ) -> Self {
        Self {
            visitor,
            session_list,
            outgoing,
            version: 0,
            sent: HashSet::new(),
            machine_of: HashMap::new(),
            machines: Vec::new(),
            keys: HashMap::new(),
        }
    }

    /// Sends the newest page, then all changes, until the browser is gone.
    pub async fn run(mut self) {
        let mut changes = self.session_list.changes();
        let mut first = true;
        loop {
            changes.mark_unchanged();
            if let Some(update) = self.session_list.after(self.version) {
                if self.send_changes(update, std::mem::take(&mut first)).await.is_err() {
                    return;
                }
                tokio::time::sleep(MIN_INTERVAL).await;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn send_changes(&mut self, update: ListChanges, first: bool) -> Result<(), BrowserGone> {
        self.version = update.version;
        let mut seen: Vec<_> = update.cards.into_iter().filter(|card| can_see(&self.visitor, card)).collect();
        for card in &seen {
            if let Some(machine) = &card.machine {
                self.machine_of.insert(Arc::clone(&card.session), Arc::clone(machine));
            }
        }
        let gone: Vec<_> = update.gone.into_iter().filter(|session| self.sent.remove(session)).collect();
        for session in &gone {
            self.machine_of.remove(session);
        }
        self.send_machines(&update.machines, first).await?;
        let mut older = None;
        if first {
            older = cut_page(&mut seen);
        }
        self.sent.extend(seen.iter().map(|card| Arc::clone(&card.session)));
        let (cards, sealed) = encode_cards(&seen);
        if first || !cards.is_empty() || !gone.is_empty() {
            send(&self.outgoing, &Cards { cards, gone, older }).await?;
        }
        for card in sealed {
            send(&self.outgoing, &card).await?;
        }
        Ok(())
    }

    async fn send_machines(&mut self, machines: &[ListedMachine], first: bool) -> Result<(), BrowserGone> {
        let views = views(&self.visitor, machines, &self.machine_of);
        if self.machines != views || first {
            send(&self.outgoing, &HubNotification::Machines { machines: views.clone() }).await?;
            self.machines = views;
        }
        let seen = |machine: &&ListedMachine| self.machines.iter().any(|view| view.id == *machine.id);
        let mut sent = Vec::new();
        for machine in machines.iter().filter(seen) {
            let Some(keys) = &machine.keys else { continue };
            if self.keys.get(&machine.id) == Some(&digest(keys)) {
                continue;
            }
            sent.push((Arc::clone(&machine.id), keys.clone()));
        }
        for (machine, keys) in sent {
            self.keys.insert(Arc::clone(&machine), digest(&keys));
            for wrapped in keys.wrapped {
                let key = HubNotification::Key {
                    machine: machine.to_string(),
                    generation: keys.generation,
                    device: wrapped.device,
                    key: wrapped.key,
                };
                send(&self.outgoing, &key).await?;
            }
        }
        Ok(())
    }
}

/// Identifies keys that were sent already.
fn digest(keys: &wire::tunnel::WrappedKeys) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    keys.generation.hash(&mut hasher);
    keys.wrapped.iter().for_each(|wrapped| (&wrapped.device, &wrapped.key).hash(&mut hasher));
    hasher.finish()
}

/// Whether a visitor may see a session of the list's owner.
pub(super) fn can_see(visitor: &HubVisitor, card: &ListedSession) -> bool {
    match &visitor.kind {
        VisitorKind::Person { .. } => true,
        VisitorKind::ShareLink { session, .. } => *session == card.session,
    }
}

/// The machines that a visitor sees, each with those of its sessions that they see.
pub(super) fn views(
    visitor: &HubVisitor,
    machines: &[ListedMachine],
    machine_of: &HashMap<Arc<str>, Arc<str>>,
) -> Vec<MachineView> {
    let own = matches!(visitor.kind, VisitorKind::Person { .. });
    let view = |machine: &ListedMachine| {
        let here = machine_of.iter().filter(|(_, its)| **its == machine.id);
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

/// Cuts the list to the newest page. Returns the cursor of the next page, if there is one.
pub(super) fn cut_page(cards: &mut Vec<Arc<ListedSession>>) -> Option<String> {
    newest_first(cards);
    let more = cards.len() > PAGE_CARDS;
    cards.truncate(PAGE_CARDS);
    cards.last().filter(|_| more).map(|last| format!("{}.{}", last.updated_at, last.session))
}

/// Cards as browsers get them: plain ones in one frame, each sealed one in a frame of its own.
pub(super) fn encode_cards(cards: &[Arc<ListedSession>]) -> (Vec<Box<RawValue>>, Vec<HubNotification>) {
    let (mut plain, mut sealed_cards) = (Vec::new(), Vec::new());
    for card in cards {
        match (&card.card, card.sealed) {
            (Some(body), true) => {
                sealed_cards.extend(sealed(body).map(|sealed| HubNotification::SealedCard {
                    session: card.session.to_string(),
                    machine: card.machine.as_deref().unwrap_or_default().to_owned(),
                    state: card.state(),
                    asks: card.asks(),
                    updated_at: card.updated_at,
                    sealed,
                    branch: card.branch_info(),
                }))
            }
            (Some(body), false) => plain.extend(RawValue::from_string(body.to_string()).ok()),
            // A sealed session is not shown before its own card has arrived.
            (None, true) => {}
            (None, false) => plain.extend(serde_json::value::to_raw_value(&card.placeholder_card()).ok()),
        }
    }
    (plain, sealed_cards)
}
