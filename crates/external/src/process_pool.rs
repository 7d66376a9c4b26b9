//! The pool of agent processes: one for each set of folders, started when needed and kept alive for a while.
//!
//! If a process ends soon after its start, the next start is delayed, longer each time, so that an agent that
//! cannot run does not keep the machine busy. Callers are told the reason and the remaining delay meanwhile.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ForeignError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_process::{AgentProcess, ProcessKeepAlive};
use super::backend::{Folders, Shared, failed};

/// A process that ran this long did not crash at its start.
const STEADY: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Failures in a row before starts are delayed.
const FREE_TRIES: u32 = 2;

/// From this many entries on, unneeded ones are removed.
const CLEANUP_FROM: usize = 64;

/// Sessions with the same folders and the same limits on where these may lead share a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    cwd: PathBuf,
    roots: Vec<PathBuf>,
    within: Option<Vec<PathBuf>>,
}

impl PoolKey {
    fn of(Folders { cwd, roots, within }: Folders<'_>) -> Self {
        Self { cwd: cwd.to_owned(), roots: roots.to_vec(), within: within.map(<[_]>::to_vec) }
    }
}

#[derive(Default)]
pub(super) struct ProcessPool {
    entries: Mutex<HashMap<PoolKey, Arc<PoolEntry>>>,
    /// Cancelled when no process may run any more.
    stop: CancellationToken,
}

/// The process for a set of folders, and its recent failures.
#[derive(Default)]
struct PoolEntry {
    /// Locked while the process is started, so that concurrent callers get the same one.
    process: tokio::sync::Mutex<Option<Arc<AgentProcess>>>,
    failures: Mutex<StartFailures>,
}

/// How often in a row the process ended soon after its start, and until when it is not started again.
#[derive(Default, Clone)]
struct StartFailures {
    count: u32,
    /// All failed starts so far.
    total: u64,
    until: Option<Instant>,
    reason: String,
}

impl ProcessPool {
    pub(super) async fn process(
        &self,
        shared: &Arc<Shared>,
        folders: Folders<'_>,
    ) -> Result<ProcessKeepAlive, ForeignError> {
        let entry = self.entry(PoolKey::of(folders));
        let failed_before = entry.failures().total;
        let mut current = entry.process.lock().await;
        if let Some(process) =
            current.as_ref().filter(|process| process.is_running()).and_then(AgentProcess::keep_alive)
        {
            return Ok(process);
        }
        if let Some(last) = current.take() {
            entry.ended(&last).await;
        }
        entry.failed_meanwhile(failed_before)?;
        entry.may_start(&shared.config.name)?;
        let started = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(failed("the server is stopping".into())),
            started = AgentProcess::start(shared, folders) => started,
        };
        match started {
            Ok(process) => {
                *current = Some(Arc::clone(&process));
                process.keep_alive().ok_or_else(|| failed("the server is stopping".into()))
            }
            Err(error) => {
                entry.failures().total += 1;
                entry.failed(&error.message);
                Err(error)
            }
        }
    }

    /// Ends all processes, including those that are starting, and starts no more.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let entries: Vec<_> = self.entries().values().cloned().collect();
        for entry in entries {
            if let Some(process) = entry.process.lock().await.take() {
                process.end().await;
            }
        }
    }

    fn entry(&self, key: PoolKey) -> Arc<PoolEntry> {
        let mut entries = self.entries();
        if entries.len() >= CLEANUP_FROM {
            entries.retain(|_, entry| entry.is_needed());
        }
        Arc::clone(entries.entry(key).or_default())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<PoolEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolEntry {
    /// Whether it has a process, is in use, or delays the next start.
    fn is_needed(self: &Arc<Self>) -> bool {
        let empty = self
            .process
            .try_lock()
            .is_ok_and(|process| process.as_ref().is_none_or(|process| !process.is_running()));
        Arc::strong_count(self) > 1
            || !empty
            || self.failures().until.is_some_and(|until| until > Instant::now())
    }

    async fn ended(&self, process: &AgentProcess) {
        let (lived, reason) = process.lifetime_and_reason().await;
        match lived < STEADY && !process.was_ended_idle() {
            true => self.failed(&reason),
            false => {
                let mut failures = self.failures();
                *failures = StartFailures { total: failures.total, ..StartFailures::default() };
            }
        }
    }

    fn failed(&self, reason: &str) {
        let mut failures = self.failures();
        failures.count += 1;
        failures.reason = reason.to_owned();
        failures.until = failures.count.checked_sub(FREE_TRIES + 1).map(|extra| {
            let wait = FIRST_WAIT.saturating_mul(1 << extra.min(6));
            Instant::now() + wait.min(LONGEST_WAIT)
        });
    }

    /// A caller that waited for a start that failed does not try again itself.
    fn failed_meanwhile(&self, before: u64) -> Result<(), ForeignError> {
        let failures = self.failures();
        if failures.total > before { Err(failed(failures.reason.clone())) } else { Ok(()) }
    }

    fn may_start(&self, name: &str) -> Result<(), ForeignError> {
        let failures = self.failures().clone();
        let left = failures.until.map(|until| until.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            None => Ok(()),
            Some(left) => Err(failed(format!(
                "{name} failed {} times in a row ({}); trying again in {} s",
                failures.count,
                failures.reason,
                left.as_secs() + 1
            ))),
        }
    }

    fn failures(&self) -> MutexGuard<'_, StartFailures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
