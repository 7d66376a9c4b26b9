//! Who is here by a cookie or a token, and how they learn that they may not be here any more.
//!
//! Whoever is let in holds a token of ours that is cancelled at that moment. It comes by a look at the database
//! for everybody who is here: at once after a change on this node, when another node tells of one, every few
//! seconds untold, and at the moment at which something ends by its date. A database that is away ends nothing
//! but what has a date.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Timestamp;
use store::sql::{DbError, EVERYWHERE, Statement, Value};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{People, push};

/// What every change that may end somebody's stay is told by.
pub(crate) const TOPIC: &str = "people";
/// How long a change of another node goes unnoticed if its telling is lost.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often the other nodes are told who looks; they believe it for longer.
const TELL_LOOKS_EVERY_MS: i64 = 10 * 1000;
/// Ids of one statement.
pub(super) const IDS_AT_ONCE: usize = 256;
/// How often what nobody needs any more is deleted.
const SWEEP_EVERY_MS: i64 = 60 * 60 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stay {
    Browser(Arc<str>),
    Token(Arc<str>),
}

#[derive(Debug, Default)]
struct End {
    ended: CancellationToken,
    until: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<HashMap<Stay, End>>);

impl Ends {
    /// Cancelled when this stay is over; until a date, if it has one.
    pub(super) fn of(&self, stay: Stay, until: Option<Timestamp>) -> CancellationToken {
        let mut ends = self.locked();
        let end = ends.entry(stay).or_default();
        end.until = until;
        end.ended.clone()
    }

    /// For who was let in a moment ago: cancelled, if they were seen off in between.
    pub(super) fn again(&self, stay: &Stay) -> CancellationToken {
        match self.locked().get(stay) {
            Some(end) => end.ended.clone(),
            None => {
                let ended = CancellationToken::new();
                ended.cancel();
                ended
            }
        }
    }

    fn cut(&self, over: impl Fn(&Stay, &End) -> bool) {
        self.locked().retain(|stay, end| {
            let over = over(stay, end);
            if over {
                end.ended.cancel();
            }
            !over
        });
    }

    /// The next date at which something ends.
    fn next(&self) -> Option<Timestamp> {
        self.locked().values().filter_map(|end| end.until).min()
    }

    fn ids(&self, browsers: bool) -> Vec<Arc<str>> {
        let id = |stay: &Stay| match stay {
            Stay::Browser(id) => browsers.then(|| Arc::clone(id)),
            Stay::Token(id) => (!browsers).then(|| Arc::clone(id)),
        };
        self.locked().keys().filter_map(id).collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Stay, End>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Wake {
    Look,
    Settled(Arc<str>),
    Stop,
}

impl People {
    /// Sees off whoever may not be here any more, tells the other nodes who looks, and sends the pushes, until it is
    /// told to stop. One task of every node.
    pub async fn keep_up(self: Arc<Self>, stop: CancellationToken) {
        let office = self.office.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sending = async {
            if let Some(office) = office {
                office.run(Arc::clone(&self), stop.clone()).await;
            }
        };
        tokio::join!(self.watch(&stop), sending);
    }

    async fn watch(&self, stop: &CancellationToken) {
        let mut heard = self.db.heard();
        let (mut swept, mut told) = (Timestamp(0), Timestamp(0));
        loop {
            match self.wake(&mut heard, stop).await {
                Wake::Look => self.look().await,
                Wake::Settled(topic) => self.settled(&topic),
                Wake::Stop => return,
            }
            let now = self.clock.now();
            if now.0 - told.0 > TELL_LOOKS_EVERY_MS {
                told = now;
                self.tell_who_looks().await;
            }
            if now.0 - swept.0 > SWEEP_EVERY_MS {
                swept = now;
                self.sweep().await;
            }
        }
    }

    async fn wake(&self, heard: &mut broadcast::Receiver<Arc<str>>, stop: &CancellationToken) -> Wake {
        let told = async {
            loop {
                match heard.recv().await {
                    Ok(topic) if *topic == *TOPIC || *topic == *EVERYWHERE => return Wake::Look,
                    Ok(topic) if topic.starts_with(push::TOPIC) => return Wake::Settled(topic),
                    Err(RecvError::Lagged(_)) => return Wake::Look,
                    Ok(_) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let wait = self.until_next_end().min(LOOK_EVERY);
        tokio::select! {
            biased;
            () = stop.cancelled() => Wake::Stop,
            wake = told => wake,
            () = tokio::time::sleep(wait) => Wake::Look,
        }
    }

    fn until_next_end(&self) -> Duration {
        let left = self.ends.next().map(|next| next.0.saturating_sub(self.clock.now().0));
        left.map_or(LOOK_EVERY, |left| Duration::from_millis(u64::try_from(left).unwrap_or_default()))
    }

    /// Sees off whoever may not be here any more.
    pub(super) async fn look(&self) {
        let now = self.clock.now();
        self.ends.cut(|_, end| end.until.is_some_and(|until| until <= now));
        if let Err(error) = self.look_up_stays().await {
            tracing::warn!(%error, "it cannot be looked up who may still be here");
        }
    }

    async fn look_up_stays(&self) -> Result<(), DbError> {
        for (browsers, sql) in
            [(true, "SELECT id FROM browsers WHERE id IN"), (false, "SELECT id FROM tokens WHERE id IN")]
        {
            let ids = self.ends.ids(browsers);
            for some in ids.chunks(IDS_AT_ONCE) {
                let found = self.db.run(vec![among(sql, Vec::new(), some)], Vec::new()).await?;
                let rows = found.into_iter().flat_map(|found| found.rows);
                let mut gone: HashSet<Arc<str>> = some.iter().cloned().collect();
                for row in rows {
                    gone.remove(&row.text(0)?);
                }
                self.ends.cut(|stay, _| match stay {
                    Stay::Browser(id) => browsers && gone.contains(id),
                    Stay::Token(id) => !browsers && gone.contains(id),
                });
            }
        }
        Ok(())
    }

    /// Deletes what is over.
    async fn sweep(&self) {
        let now = self.clock.now().0;
        let absent = now - super::browsers::ABSENCE_MAX_MS;
        let day = 24 * 60 * 60 * 1000;
        let old = |sql: &'static str, before: i64| Statement::new(sql, [before.into()]);
        let work = vec![
            old("DELETE FROM browsers WHERE seen_at < $1", absent),
            old("DELETE FROM browsers WHERE share IN (SELECT id FROM shares WHERE until <= $1)", now),
            old("DELETE FROM shares WHERE until <= $1", now),
            // A code that was used or has expired is remembered a while, so that who comes with it is told.
            old("DELETE FROM joins WHERE until <= $1", now - 30 * day),
            old("DELETE FROM challenges_used WHERE until <= $1", now),
            old("DELETE FROM pushes WHERE at <= $1", now - 2 * day),
        ];
        if let Err(error) = self.db.run(work, Vec::new()).await {
            tracing::warn!(%error, "what is over cannot be deleted");
        }
    }
}

/// The statement for some ids, after the values that it has besides.
pub(super) fn among(sql: &str, mut values: Vec<Value>, ids: &[Arc<str>]) -> Statement {
    let first = values.len() + 1;
    let places: Vec<String> = (first..first + ids.len()).map(|number| format!("${number}")).collect();
    values.extend(ids.iter().map(|id| Value::from(Arc::clone(id))));
    Statement::new(format!("{sql} ({})", places.join(", ")), values)
}
