//! Web Push from the hub: a person's browsers learn that something waits for them, whoever's node it happens at.
//!
//! Sending is that of every server (`access::devices::push`): no content, public addresses only. What a hub adds: who may
//! be told is in the database, of several nodes that see the same news one tells it (a row that only one of them
//! can make), and what is settled is heard by all, so that whoever told of it takes it back.

use std::sync::Arc;

use access::devices::push::{self, Addressees, Note, Office, Push, PushParts, Subscribed, Vapid};
use engine::{AskId, BoxFuture, Principal, SessionId, Timestamp};
use store::sql::{Db, DbError, Row, Statement, Value};
use tokio::time::Instant;
use wire::native::{Role, Subscription};

use super::browsers::{ABSENCE_MAX_MS, LOOK_LIFE_MS};
use super::{Failure, OpenError, People, PushOptions, Why, secret};
use crate::guest::{Guest, PersonId};

/// What every node hears of an ask that is over, with its session and number.
pub(super) const TOPIC: &str = "push/";

/// What a person may want to know of a session while they do not look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It asks for something.
    Asked {
        ask: u64,
    },
    /// What it asked for is over.
    Settled {
        ask: u64,
    },
    /// A turn that took long has ended; the position at which it did.
    Ended {
        at: u64,
    },
    Failed {
        at: u64,
    },
}

const SUBSCRIBED: &str = "SELECT id, endpoint, p256dh, auth, muted_until, looked_at FROM browsers
    WHERE endpoint IS NOT NULL AND seen_at >= $2 AND";

/// The two ends of sending, with the hub's own key for push services.
pub(super) async fn open(
    db: &dyn Db,
    options: PushOptions,
    clock: Arc<dyn engine::Clock>,
) -> Result<(Arc<Push>, Office), OpenError> {
    let fresh = Vapid::new_key().map_err(OpenError::Key)?;
    let key = secret(db, "push", fresh).await.map_err(OpenError::Unread)?;
    let damaged = || DbError::Failed { reason: "it holds no key for pushes".into() };
    let vapid = Vapid::of_key(&key, &options.contact).ok_or_else(|| OpenError::Unread(damaged().into()))?;
    Ok(push::open(PushParts { vapid, reach: options.reach, clock }))
}

impl People {
    /// What browsers subscribe with, if there are pushes here.
    pub fn push_key(&self) -> Option<&str> {
        self.push.as_ref().map(|push| push.key())
    }

    /// This browser wants to be told when it does not look, or no longer: `native::Request::Push`.
    pub async fn subscribe(&self, guest: &Guest, subscription: Option<Subscription>) -> Result<(), Failure> {
        self.person(guest).await?;
        if let Some(given) = &subscription {
            let refused = |error: push::BadSubscription| Failure::new(Why::BadRequest, error.to_string());
            self.pushes()?.check(given).map_err(refused)?;
        }
        self.keep_subscription(&guest.device, subscription).await
    }

    /// This browser is told something now: `native::Request::TryPush`.
    pub async fn try_push(&self, guest: &Guest) -> Result<(), Failure> {
        self.person(guest).await?;
        let tried = self.pushes()?.try_it(&guest.device).await;
        tried.map_err(|wrong| Failure::new(Why::BadRequest, wrong.message))
    }

    fn pushes(&self) -> Result<&Push, Failure> {
        let none = || Failure::new(Why::BadRequest, "this hub sends no notifications");
        self.push.as_deref().ok_or_else(none)
    }

    /// Something happened in a session of this person: their browsers that nobody looks at are told, once, whichever
    /// nodes say so. Waits for the database only.
    pub async fn told(&self, person: &PersonId, session: &SessionId, news: News) -> Result<(), Failure> {
        let Some(push) = &self.push else { return Ok(()) };
        let session = session.clone();
        let (claim, note) = match news {
            News::Asked { ask } => (format!("{session}/ask/{ask}"), Note::Ask { session, ask: AskId(ask) }),
            News::Ended { at } => (format!("{session}/end/{at}"), Note::Ended { session }),
            News::Failed { at } => (format!("{session}/end/{at}"), Note::Failed { session }),
            News::Settled { ask } => {
                self.db.run(Vec::new(), vec![format!("{TOPIC}{session}/{ask}")]).await?;
                return Ok(());
            }
        };
        let sql = "INSERT INTO pushes (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
        let claim = Statement::new(sql, [claim.into(), self.now().0.into()]).must_change(1);
        match self.db.run(vec![claim], Vec::new()).await {
            Ok(_) if push.tell(Principal(Arc::clone(&person.0)), note) => {}
            Ok(_) => tracing::warn!("too much happens at once: browsers were not told of all of it"),
            // Another node does it, or has.
            Err(DbError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// An ask is over, as some node has heard.
    pub(super) fn settled(&self, topic: &str) {
        let Some((session, ask)) = topic.strip_prefix(TOPIC).and_then(|rest| rest.split_once('/')) else {
            return;
        };
        let (Ok(session), Ok(ask), Some(push)) = (SessionId::parse(session), ask.parse(), &self.push) else {
            return;
        };
        // Whom it clears is known by who told of it.
        if !push.tell(Principal::local(), Note::Clear { session, ask: AskId(ask) }) {
            tracing::warn!("too much happens at once: what was told was not taken back everywhere");
        }
    }

    async fn find_subscribed(&self, column: &str, id: &str) -> Vec<Subscribed> {
        let now = self.now();
        let sql = format!("{SUBSCRIBED} {column} = $1");
        let values: [Value; 2] = [id.into(), (now.0 - ABSENCE_MAX_MS).into()];
        let found = self.read(Statement::new(sql, values)).await;
        let rows = found.and_then(|found| found.rows.iter().map(|row| subscribed(row, now)).collect());
        rows.unwrap_or_else(|error: Failure| {
            tracing::warn!(%error, "it cannot be looked up who wants to be told");
            Vec::new()
        })
    }
}

fn subscribed(row: &Row, now: Timestamp) -> Result<Subscribed, Failure> {
    let looked_at_elsewhere = row.maybe_int(5)?.is_some_and(|at| now.0 - at < LOOK_LIFE_MS);
    Ok(Subscribed {
        device: row.text(0)?,
        role: Role::Owner,
        subscription: Subscription {
            endpoint: row.text(1)?.to_string(),
            p256dh: row.text(2)?.to_string(),
            auth: row.text(3)?.to_string(),
        },
        muted: looked_at_elsewhere || row.maybe_int(4)?.is_some_and(|until| until > now.0),
    })
}

impl Addressees for People {
    fn subscribed<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Vec<Subscribed>> {
        Box::pin(self.find_subscribed("person", &owner.0))
    }

    fn subscriber<'a>(&'a self, device: &'a str) -> BoxFuture<'a, Option<Subscribed>> {
        Box::pin(async move { self.find_subscribed("id", device).await.pop() })
    }

    fn looks(&self, device: &str) -> bool {
        self.presence.are_on(device, Instant::now())
    }

    fn unsubscribe<'a>(&'a self, device: &'a str, gone: &'a Subscription) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let sql = "UPDATE browsers SET endpoint = NULL, p256dh = NULL, auth = NULL
                       WHERE id = $1 AND endpoint = $2";
            let values: [Value; 2] = [device.into(), gone.endpoint.as_str().into()];
            if let Err(error) = self.read(Statement::new(sql, values)).await {
                tracing::warn!(%error, "a subscription was not forgotten");
            }
        })
    }
}
