//! What the relay needs of people: the view of a visitor, requests of browsers about themselves, and notifications.
//!
//! Authentication is `HubAuthenticator` alone. The rest exists only where people are kept in the database (`People`).

use std::sync::{Arc, Mutex, PoisonError};

use access::devices::PresenceHandle;
use engine::{SessionId, Timestamp};
use wire::native::hub_requests::PersonView;
use wire::native::{CardState, ReplyBody, ReplyError, Request};
use wire::tunnel::CardEntry;

use crate::authenticator::{HubAuthenticator, HubVisitor, PersonId, VisitorKind};
use crate::hub::wrong;
use crate::people::{People, SessionNews};

/// Sessions whose last notified state is remembered.
const REMEMBERED_MAX: usize = 8192;

pub struct PeopleApi {
    pub accounts: Arc<dyn HubAuthenticator>,
    people: Option<Arc<People>>,
    /// The last notified state of a session.
    last_notified: Mutex<std::collections::HashMap<SessionId, LastNotified>>,
}

#[derive(Debug, Clone, Default)]
struct LastNotified {
    asks: Vec<u64>,
    worked: bool,
}

impl PeopleApi {
    pub fn new(accounts: Arc<dyn HubAuthenticator>, people: Option<Arc<People>>) -> Self {
        Self { accounts, people, last_notified: Mutex::default() }
    }

    pub async fn view(&self, visitor: &HubVisitor) -> Result<Option<PersonView>, ReplyError> {
        if let Some(people) = &self.people {
            return people.view(visitor).await.map_err(|failure| failure.wrong());
        }
        let VisitorKind::Person { id, name, admin } = &visitor.kind else { return Ok(None) };
        Ok(Some(PersonView {
            id: id.0.to_string(),
            name: name.to_string(),
            admin: *admin,
            created_at: 0,
            seen_at: None,
            passkeys: 0,
        }))
    }

    pub fn push_key(&self) -> Option<String> {
        self.people.as_ref().and_then(|people| people.push_key().map(str::to_owned))
    }

    pub fn seat(&self, visitor: &HubVisitor) -> Option<PresenceHandle> {
        self.people.as_ref().map(|people| people.seat(visitor))
    }

    pub async fn looks(&self, seat: Option<&PresenceHandle>, visitor: &HubVisitor, visible: bool) {
        if let (Some(people), Some(seat)) = (&self.people, seat) {
            people.looks(seat, visitor, visible).await;
        }
    }

    /// Answers a browser's requests about itself and the person's other browsers.
    pub async fn answer(&self, visitor: &HubVisitor, request: Request) -> Result<ReplyBody, ReplyError> {
        let Some(people) = &self.people else { return Err(not_here()) };
        let done = match request {
            Request::Devices => {
                let devices = people.devices(visitor).await;
                return devices
                    .map(|devices| ReplyBody::Devices { devices, knocks: Vec::new() })
                    .map_err(|failure| failure.wrong());
            }
            Request::Revoke { device } => people.revoke(visitor, &device).await,
            Request::Push { subscription } => people.subscribe(visitor, subscription).await,
            Request::Mute { until } => people.mute(visitor, until.map(Timestamp)).await,
            Request::TestPush => people.try_push(visitor).await,
            _ => return Err(not_here()),
        };
        done.map(|()| ReplyBody::Done).map_err(|failure| failure.wrong())
    }

    /// What is new in a card, to be pushed to browsers that do not show it.
    pub fn news(&self, session: &SessionId, upto: u64, card: &CardEntry) -> Vec<SessionNews> {
        if self.people.is_none() {
            return Vec::new();
        }
        let mut all = self.last_notified.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            // News of forgotten sessions may be sent once more; the `pushes` table keeps each from being pushed twice.
            all.clear();
        }
        let last = all.entry(session.clone()).or_default();
        let asked = card
            .asks
            .iter()
            .filter(|ask| !last.asks.contains(ask))
            .map(|ask| SessionNews::Asked { ask: *ask });
        let settled = last
            .asks
            .iter()
            .filter(|ask| !card.asks.contains(ask))
            .map(|ask| SessionNews::Settled { ask: *ask });
        let mut news: Vec<SessionNews> = asked.chain(settled).collect();
        match card.state {
            CardState::Done if last.worked => news.push(SessionNews::Ended { at: upto }),
            CardState::Failed if last.worked => news.push(SessionNews::Failed { at: upto }),
            _ => {}
        }
        last.asks.clone_from(&card.asks);
        last.worked = matches!(card.state, CardState::Working | CardState::Waiting);
        news
    }

    pub async fn tell(&self, person: &PersonId, session: &SessionId, news: Vec<SessionNews>) {
        let Some(people) = &self.people else { return };
        for one in news {
            if let Err(error) = people.notify(person, session, one).await {
                tracing::info!(%error, "could not notify browsers");
            }
        }
    }
}

fn not_here() -> ReplyError {
    wrong("badRequest", "a hub cannot do this; use one of your machines, or the hub's own settings")
}
