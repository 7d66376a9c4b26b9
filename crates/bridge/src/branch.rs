//! Whether a mirror is a copy of this log, and what is done where it is not.
//!
//! A state folder that was copied back, a virtual machine that was set back to a snapshot and a restored backup
//! have a log that ends earlier than what they told the mirror, or goes on otherwise at the same positions. Then
//! what is mirrored becomes a session of its own over there, this log is mirrored from its beginning, goes on at
//! positions that nobody has seen, and says so.
//!
//! What a power cut lost is no branch: the log goes on after everything that was reserved, under the same lineage,
//! and the mirror keeps what it had.

use std::sync::Arc;

use engine::{Body, DAMAGE_NOTICE, Event, Input, Page, Seq, SessionHandle, SessionId, StoreError, Taken};
use tokio::sync::{mpsc, watch};
use wire::record;
use wire::tunnel::{Before, Branch, Ready, Source, Up};

use super::Shared;
use super::mirror::ready;
use super::pipe::Outgoing;
use super::trouble::Trouble;

/// Branches that one process asks for, of one session. Two copies of one running machine would branch for ever.
const BRANCHES_MAX: u32 = 3;
const ONE: Page = Page { count_max: 1, bytes_max: 1, outline: false };

/// What one tunnel remembers of it, from connection to connection.
#[derive(Debug, Default)]
pub(super) struct Branching {
    /// What the hub refused does not count.
    made: u32,
    /// It was asked for, and the session was not told of it.
    is_open: bool,
}

/// Where mirroring begins, after the two have agreed on what the mirror is a copy of.
pub(super) async fn agree(
    shared: &Arc<Shared>,
    handles: &mut watch::Receiver<SessionHandle>,
    branching: &mut Branching,
    (incoming, out): (&mut mpsc::Receiver<Vec<u8>>, &mpsc::Sender<Outgoing>),
) -> Result<(Ready, Source), Trouble> {
    let mut first = ready(shared, incoming).await?;
    let source = Source { process: shared.process.clone(), lineage: lineage(shared).await };
    let handle = handles.borrow_and_update().clone();
    let store_fails = |error: StoreError| Trouble::Unreadable { reason: error.to_string() };
    if first.branches && is_other(shared, &handle, &first, &source).await.map_err(store_fails)? {
        if branching.made >= BRANCHES_MAX {
            return Err(Trouble::Diverged);
        }
        branching.is_open = true;
        let branch = Up::Branch(Branch { source: source.clone() });
        let frame = serde_json::to_vec(&branch).map_err(Trouble::malformed)?;
        // A pipe that is closed says why.
        drop(out.send(Outgoing::Frame(frame)).await);
        first = ready(shared, incoming).await?;
        branching.made += 1;
    }
    if let Some(before) = first.before.as_ref().filter(|_| first.events == 0) {
        // A process that was killed in between left a session that was not told.
        let is_behind = handle.read(Seq::START).head() <= Seq(before.events);
        if branching.is_open || is_behind {
            branching.is_open = !tell(shared, handles, before).await;
        }
    }
    Ok((first, source))
}

/// A lineage that cannot be read is not known: that is damage, and no restore.
async fn lineage(shared: &Shared) -> Option<String> {
    let found = shared.desk.registry().lineage().await;
    let found = found.inspect_err(
        |error| tracing::warn!(%error, "the store's lineage cannot be read; see `ropewalk doctor --store`"),
    );
    found.ok().flatten().map(|lineage| lineage.to_string())
}

/// Whether the mirror ends with something else than this log has there.
async fn is_other(
    shared: &Shared,
    handle: &SessionHandle,
    mirror: &Ready,
    source: &Source,
) -> Result<bool, StoreError> {
    let end = Seq(mirror.events);
    if end == Seq::START {
        return Ok(false);
    }
    if end > handle.read(Seq::START).head() {
        return Ok(true);
    }
    let restored =
        mirror.lineage.as_ref().zip(source.lineage.as_ref()).is_some_and(|(its, ours)| its != ours);
    let found = match handle.read(Seq(end.0 - 1)).take(ONE).await? {
        Taken::Events(events) => events.into_iter().next().filter(|event| event.seq == end),
        Taken::UpToDate | Taken::Ended { .. } => None,
    };
    let own = found.and_then(|event| shared.bodies.mark(handle.id(), &event));
    let marks = own.as_deref().zip(mirror.mark.as_deref());
    Ok(match marks.filter(|(own, its)| key_of(own) == key_of(its)) {
        Some((own, its)) => own != its,
        None => restored,
    })
}

/// Marks of different keys say nothing about each other.
fn key_of(mark: &str) -> Option<&str> {
    mark.split_once('.').map(|(key, _)| key)
}

/// What makes an event this one: not how it is encoded, which differs from version to version. None, for what stands in
/// the place of a damaged event: that may be readable again.
pub(super) fn facts(session: &SessionId, event: &Event) -> Option<String> {
    if matches!(&event.body, Body::Notice { text, .. } if text.starts_with(DAMAGE_NOTICE)) {
        return None;
    }
    let turn = event.turn.map_or(0, |turn| turn.0);
    Some(format!("{session} {} {} {turn} {}", event.seq, event.at.0, record::kind(&event.body)))
}

/// Says it where everybody who watches sees it, and where the log goes on. Says whether the session took it.
async fn tell(shared: &Arc<Shared>, handles: &mut watch::Receiver<SessionHandle>, before: &Before) -> bool {
    let Ok(kept) = SessionId::parse(&before.session) else { return false };
    let session = handles.borrow().id().clone();
    if handles.borrow().is_closed() {
        // It left memory; whoever brings it back gives it to this tunnel.
        drop(shared.desk.bring_back(&session).await);
    }
    let handle = handles.borrow_and_update().clone();
    let notice = format!(
        "this machine's state was put back to an earlier time. What happened after that time is not in this session any \
         more; the hub keeps it as a session of its own, {kept}"
    );
    shared.tell(&format!("[ferret] bridge: {notice} session={session}"));
    let told = handle.send(Input::PutBack { seen: Seq(before.events), notice: notice.into() }).await;
    if let Err(error) = &told {
        tracing::warn!(%session, %error, "a session was not told that its machine's state was put back");
    }
    told.is_ok()
}
