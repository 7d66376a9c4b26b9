//! What the relay wants of people: who somebody is, what their browsers ask about themselves, and whom to call.
//!
//! Who comes in is the doorkeeper's business alone. The rest is there only where real people are (`People`).

use std::sync::{Arc, Mutex, PoisonError};

use access::devices::Seat;
use engine::{SessionId, Timestamp};
use wire::native::hub::PersonView;
use wire::native::{Answered, CardState, Request, Wrong};
use wire::tunnel::CardEntry;

use crate::guest::{Doorkeeper, Guest, PersonId, Who};
use crate::hub::wrong;
use crate::people::{News, People};

/// Sessions of which it is remembered what was last told.
const REMEMBERED_MAX: usize = 8192;

pub struct Welcome {
    pub keeper: Arc<dyn Doorkeeper>,
    people: Option<Arc<People>>,
    /// What was last told of a session: its asks, and whether it worked.
    told: Mutex<std::collections::HashMap<SessionId, Told>>,
}

#[derive(Debug, Clone, Default)]
struct Told {
    asks: Vec<u64>,
    worked: bool,
}

impl Welcome {
    pub fn new(keeper: Arc<dyn Doorkeeper>, people: Option<Arc<People>>) -> Self {
        Self { keeper, people, told: Mutex::default() }
    }

    pub async fn view(&self, guest: &Guest) -> Result<Option<PersonView>, Wrong> {
        if let Some(people) = &self.people {
            return people.view(guest).await.map_err(|failure| failure.wrong());
        }
        let Who::Person { id, name, admin } = &guest.who else { return Ok(None) };
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

    pub fn seat(&self, guest: &Guest) -> Option<Seat> {
        self.people.as_ref().map(|people| people.seat(guest))
    }

    pub async fn looks(&self, seat: Option<&Seat>, guest: &Guest, visible: bool) {
        if let (Some(people), Some(seat)) = (&self.people, seat) {
            people.looks(seat, guest, visible).await;
        }
    }

    /// What a browser asks about itself and its like.
    pub async fn answer(&self, guest: &Guest, request: Request) -> Result<Answered, Wrong> {
        let Some(people) = &self.people else { return Err(not_here()) };
        let done = match request {
            Request::Devices => {
                let devices = people.devices(guest).await;
                return devices
                    .map(|devices| Answered::Devices { devices, knocks: Vec::new() })
                    .map_err(|failure| failure.wrong());
            }
            Request::Revoke { device } => people.revoke(guest, &device).await,
            Request::Push { subscription } => people.subscribe(guest, subscription).await,
            Request::Mute { until } => people.mute(guest, until.map(Timestamp)).await,
            Request::TryPush => people.try_push(guest).await,
            _ => return Err(not_here()),
        };
        done.map(|()| Answered::Done).map_err(|failure| failure.wrong())
    }

    /// What is new in a card, for who does not look.
    pub fn news(&self, session: &SessionId, upto: u64, card: &CardEntry) -> Vec<News> {
        if self.people.is_none() {
            return Vec::new();
        }
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            // Forgotten ones are told again at most once: of the same news one row is made.
            all.clear();
        }
        let told = all.entry(session.clone()).or_default();
        let asked =
            card.asks.iter().filter(|ask| !told.asks.contains(ask)).map(|ask| News::Asked { ask: *ask });
        let settled =
            told.asks.iter().filter(|ask| !card.asks.contains(ask)).map(|ask| News::Settled { ask: *ask });
        let mut news: Vec<News> = asked.chain(settled).collect();
        match card.state {
            CardState::Done if told.worked => news.push(News::Ended { at: upto }),
            CardState::Failed if told.worked => news.push(News::Failed { at: upto }),
            _ => {}
        }
        told.asks.clone_from(&card.asks);
        told.worked = matches!(card.state, CardState::Working | CardState::Waiting);
        news
    }

    pub async fn tell(&self, person: &PersonId, session: &SessionId, news: Vec<News>) {
        let Some(people) = &self.people else { return };
        for one in news {
            if let Err(error) = people.told(person, session, one).await {
                tracing::info!(%error, "browsers could not be told");
            }
        }
    }
}

fn not_here() -> Wrong {
    wrong("badRequest", "a hub does not do this; name one of your machines, or use the hub's own settings")
}
