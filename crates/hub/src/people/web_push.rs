//! Web Push from the hub: a person's browsers learn that something waits for them, on whichever node it happens.
//!
//! Sending is the same as in every server (`access::devices::push`): no content, public addresses only. A hub adds:
//! subscriptions are in the database; of several nodes that see the same event, one pushes it (by a row that only one of
//! them can insert); and all nodes learn of a settled ask, so that the node that pushed it clears the notification.

use std::sync::Arc;

use access::devices::push::{self, Addressees, Push, PushNote, PushParts, PushSender, PushSubscriber, Vapid};
use engine::{AskId, BoxFuture, Principal, SessionId, Timestamp};
use store::sql::{Db, DbError, Row, SqlValue, Statement};
use tokio::time::Instant;
use wire::native::{PushSubscription, Role};

use super::browsers::{ABSENCE_MAX_MS, LOOK_LIFE_MS};
use super::{OpenError, People, PeopleError, PushOptions, RefusalKind, secret};
use crate::authenticator::{HubVisitor, PersonId};

/// The topic by which every node learns of a settled ask, with its session and number.
pub(super) const TOPIC: &str = "push/";

/// An event in a session that its owner is notified of while they do not look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionNews {
    /// The session asks for permission, or a question.
    Asked {
        ask: u64,
    },
    /// The ask is settled.
    Settled {
        ask: u64,
    },
    /// A turn has ended, at this log position.
    Ended {
        at: u64,
    },
    Failed {
        at: u64,
    },
}

const SUBSCRIBED: &str = "SELECT id, endpoint, p256dh, auth, muted_until, looked_at FROM browsers
    WHERE endpoint IS NOT NULL AND seen_at >= $2 AND";

/// Opens the two ends of sending, with the hub's own key for push services.
pub(super) async fn open(
    db: &dyn Db,
    options: PushOptions,
    clock: Arc<dyn engine::Clock>,
) -> Result<(Arc<Push>, PushSender), OpenError> {
    let fresh = Vapid::new_key().map_err(OpenError::Key)?;
    let key = secret(db, "push", fresh).await.map_err(OpenError::Unread)?;
    let damaged = || DbError::Failed { reason: "it does not contain a push key".into() };
    let vapid = Vapid::of_key(&key, &options.contact).ok_or_else(|| OpenError::Unread(damaged().into()))?;
    Ok(push::open(PushParts { vapid, allowed: options.reach, clock }))
}

impl People {
    /// The key that browsers subscribe with, if this hub sends pushes.
    pub fn push_key(&self) -> Option<&str> {
        self.push.as_ref().map(|push| push.key())
    }

    /// Subscribes this browser to pushes, or unsubscribes it, for `native::Request::Push`.
    pub async fn subscribe(
        &self,
        visitor: &HubVisitor,
        subscription: Option<PushSubscription>,
    ) -> Result<(), PeopleError> {
        self.person(visitor).await?;
        if let Some(given) = &subscription {
            let refused =
                |error: push::BadSubscription| PeopleError::new(RefusalKind::BadRequest, error.to_string());
            self.pushes()?.check(given).map_err(refused)?;
        }
        self.keep_subscription(&visitor.device, subscription).await
    }

    /// Sends a test push to this browser, for `native::Request::TestPush`.
    pub async fn try_push(&self, visitor: &HubVisitor) -> Result<(), PeopleError> {
        self.person(visitor).await?;
        let tried = self.pushes()?.try_it(&visitor.device).await;
        tried.map_err(|wrong| PeopleError::new(RefusalKind::BadRequest, wrong.message))
    }

    fn pushes(&self) -> Result<&Push, PeopleError> {
        let none = || PeopleError::new(RefusalKind::BadRequest, "this hub does not send notifications");
        self.push.as_deref().ok_or_else(none)
    }

    /// Pushes an event of a person's session to their browsers that are not in view, once, however many nodes report it.
    /// Waits for the database only.
    pub async fn notify(
        &self,
        person: &PersonId,
        session: &SessionId,
        news: SessionNews,
    ) -> Result<(), PeopleError> {
        let Some(push) = &self.push else { return Ok(()) };
        let session = session.clone();
        let (claim, note) = match news {
            SessionNews::Asked { ask } => {
                (format!("{session}/ask/{ask}"), PushNote::Ask { session, ask: AskId(ask) })
            }
            SessionNews::Ended { at } => (format!("{session}/end/{at}"), PushNote::Ended { session }),
            SessionNews::Failed { at } => (format!("{session}/end/{at}"), PushNote::Failed { session }),
            SessionNews::Settled { ask } => {
                self.db.run(Vec::new(), vec![format!("{TOPIC}{session}/{ask}")]).await?;
                return Ok(());
            }
        };
        let sql = "INSERT INTO pushes (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
        let claim = Statement::new(sql, [claim.into(), self.now().0.into()]).must_change(1);
        match self.db.run(vec![claim], Vec::new()).await {
            Ok(_) if push.tell(Principal(Arc::clone(&person.0)), note) => {}
            Ok(_) => tracing::warn!("too many events at once: browsers were not notified of all of them"),
            // Another node pushes it, or has.
            Err(DbError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Handles the notification that an ask is settled.
    pub(super) fn settled(&self, topic: &str) {
        let Some((session, ask)) = topic.strip_prefix(TOPIC).and_then(|rest| rest.split_once('/')) else {
            return;
        };
        let (Ok(session), Ok(ask), Some(push)) = (SessionId::parse(session), ask.parse(), &self.push) else {
            return;
        };
        // Only the node that pushed the ask knows which browsers to clear.
        if !push.tell(Principal::local(), PushNote::Clear { session, ask: AskId(ask) }) {
            tracing::warn!("too many events at once: some notifications were not withdrawn");
        }
    }

    async fn find_subscribed(&self, column: &str, id: &str) -> Vec<PushSubscriber> {
        let now = self.now();
        let sql = format!("{SUBSCRIBED} {column} = $1");
        let values: [SqlValue; 2] = [id.into(), (now.0 - ABSENCE_MAX_MS).into()];
        let found = self.read(Statement::new(sql, values)).await;
        let rows = found.and_then(|found| found.rows.iter().map(|row| subscribed(row, now)).collect());
        rows.unwrap_or_else(|error: PeopleError| {
            tracing::warn!(%error, "could not look up who wants notifications");
            Vec::new()
        })
    }
}

fn subscribed(row: &Row, now: Timestamp) -> Result<PushSubscriber, PeopleError> {
    let looked_at_elsewhere = row.maybe_int(5)?.is_some_and(|at| now.0 - at < LOOK_LIFE_MS);
    Ok(PushSubscriber {
        device: row.text(0)?,
        role: Role::Owner,
        subscription: PushSubscription {
            endpoint: row.text(1)?.to_string(),
            p256dh: row.text(2)?.to_string(),
            auth: row.text(3)?.to_string(),
        },
        muted: looked_at_elsewhere || row.maybe_int(4)?.is_some_and(|until| until > now.0),
    })
}

impl Addressees for People {
    fn subscribed<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Vec<PushSubscriber>> {
        Box::pin(self.find_subscribed("person", &owner.0))
    }

    fn subscriber<'a>(&'a self, device: &'a str) -> BoxFuture<'a, Option<PushSubscriber>> {
        Box::pin(async move { self.find_subscribed("id", device).await.pop() })
    }

    fn looks(&self, device: &str) -> bool {
        self.presence.are_on(device, Instant::now())
    }

    fn unsubscribe<'a>(&'a self, device: &'a str, gone: &'a PushSubscription) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let sql = "UPDATE browsers SET endpoint = NULL, p256dh = NULL, auth = NULL
                       WHERE id = $1 AND endpoint = $2";
            let values: [SqlValue; 2] = [device.into(), gone.endpoint.as_str().into()];
            if let Err(error) = self.read(Statement::new(sql, values)).await {
                tracing::warn!(%error, "could not remove a push subscription");
            }
        })
    }
}
