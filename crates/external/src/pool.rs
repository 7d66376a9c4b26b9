//! The programs that run: one for each set of folders, started when it is needed and kept for a while.
//!
//! A program that ends soon after its start is started again later and later, so that one that cannot work
//! does not keep the machine busy; whoever needs it meanwhile is told why and when.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ForeignError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::crew::{Crew, Held};
use super::external::{Folders, Shared, failed};

/// A program that lived this long was no crash at its start.
const STEADY: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// So many may fail before anybody waits.
const FREE_TRIES: u32 = 2;

/// From this many on, rooms that nobody needs are forgotten.
const ROOMS_KEPT: usize = 64;

/// Sessions that work in the same folders, and may not leave the same ones, share a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    cwd: PathBuf,
    roots: Vec<PathBuf>,
    within: Option<Vec<PathBuf>>,
}

impl Key {
    fn of(Folders { cwd, roots, within }: Folders<'_>) -> Self {
        Self { cwd: cwd.to_owned(), roots: roots.to_vec(), within: within.map(<[_]>::to_vec) }
    }
}

#[derive(Default)]
pub(super) struct Pool {
    rooms: Mutex<HashMap<Key, Arc<Room>>>,
    /// Cancelled when no program is to run any more.
    stop: CancellationToken,
}

/// Where the program of some folders is, or was.
#[derive(Default)]
struct Room {
    /// Held while a program is started: whoever comes meanwhile gets the same one.
    crew: tokio::sync::Mutex<Option<Arc<Crew>>>,
    trouble: Mutex<Trouble>,
}

/// How often in a row the program ended soon after its start, and until when it is left alone.
#[derive(Default, Clone)]
struct Trouble {
    count: u32,
    /// Starts that came to nothing, ever.
    failures: u64,
    until: Option<Instant>,
    why: String,
}

impl Pool {
    pub(super) async fn crew(
        &self,
        shared: &Arc<Shared>,
        folders: Folders<'_>,
    ) -> Result<Held, ForeignError> {
        let room = self.room(Key::of(folders));
        let failed_before = room.trouble().failures;
        let mut held = room.crew.lock().await;
        if let Some(crew) = held.as_ref().filter(|crew| crew.is_there()).and_then(Crew::hold) {
            return Ok(crew);
        }
        if let Some(last) = held.take() {
            room.ended(&last).await;
        }
        room.failed_meanwhile(failed_before)?;
        room.may_start(&shared.config.name)?;
        let started = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(failed("the server is stopping".into())),
            started = Crew::start(shared, folders) => started,
        };
        match started {
            Ok(crew) => {
                *held = Some(Arc::clone(&crew));
                crew.hold().ok_or_else(|| failed("the server is stopping".into()))
            }
            Err(error) => {
                room.trouble().failures += 1;
                room.failed(&error.message);
                Err(error)
            }
        }
    }

    /// Ends the programs, also those that are only starting, and starts no more.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let rooms: Vec<_> = self.rooms().values().cloned().collect();
        for room in rooms {
            if let Some(crew) = room.crew.lock().await.take() {
                crew.end().await;
            }
        }
    }

    fn room(&self, key: Key) -> Arc<Room> {
        let mut rooms = self.rooms();
        if rooms.len() >= ROOMS_KEPT {
            rooms.retain(|_, room| room.is_needed());
        }
        Arc::clone(rooms.entry(key).or_default())
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<Key, Arc<Room>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Somebody is in it, or it says that nobody should be yet.
    fn is_needed(self: &Arc<Self>) -> bool {
        let empty = self.crew.try_lock().is_ok_and(|crew| crew.as_ref().is_none_or(|crew| !crew.is_there()));
        Arc::strong_count(self) > 1
            || !empty
            || self.trouble().until.is_some_and(|until| until > Instant::now())
    }

    async fn ended(&self, crew: &Crew) {
        let (lived, why) = crew.obituary().await;
        match lived < STEADY && !crew.was_let_go() {
            true => self.failed(&why),
            false => {
                let mut trouble = self.trouble();
                *trouble = Trouble { failures: trouble.failures, ..Trouble::default() };
            }
        }
    }

    fn failed(&self, why: &str) {
        let mut trouble = self.trouble();
        trouble.count += 1;
        trouble.why = why.to_owned();
        trouble.until = trouble.count.checked_sub(FREE_TRIES + 1).map(|extra| {
            let wait = FIRST_WAIT.saturating_mul(1 << extra.min(6));
            Instant::now() + wait.min(LONGEST_WAIT)
        });
    }

    /// Whoever has waited for a start that came to nothing does not begin the next.
    fn failed_meanwhile(&self, before: u64) -> Result<(), ForeignError> {
        let trouble = self.trouble();
        if trouble.failures > before { Err(failed(trouble.why.clone())) } else { Ok(()) }
    }

    fn may_start(&self, name: &str) -> Result<(), ForeignError> {
        let trouble = self.trouble().clone();
        let left = trouble.until.map(|until| until.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            None => Ok(()),
            Some(left) => Err(failed(format!(
                "{name} failed {} times in a row ({}); it is tried again in {} s",
                trouble.count,
                trouble.why,
                left.as_secs() + 1
            ))),
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
