//! Whether a mirror is a copy of this log, and what is done where it is not.
//!
//! A state folder that was copied back, a virtual machine that was reset to a snapshot and a restored backup
//! have a log that ends earlier than what was sent to the mirror, or continues differently at the same positions. Then
//! the mirrored part becomes a session of its own at the hub, this log is mirrored from its beginning, continues at
//! positions that nobody has seen, and gets a notice that says so.
//!
//! What a power cut lost is no branch: the log goes on after everything that was reserved, under the same lineage,
//! and the mirror keeps what it had.

use std::sync::Arc;

use engine::{
    Body, DAMAGE_NOTICE, Event, Input, LogRead, PageRequest, Seq, SessionHandle, SessionId, StoreError,
};
use tokio::sync::{mpsc, watch};
use wire::record;
use wire::tunnel::{BranchRequest, BranchedMirror, BridgeFrame, LogSource, MirrorReady};

use super::Shared;
use super::bridge_error::BridgeError;
use super::mirror_sender::ready;
use super::tunnel_pipe::Outgoing;

/// Branches that one process asks for, of one session. Two copies of one running machine would branch for ever.
const BRANCHES_MAX: u32 = 3;
const ONE: PageRequest = PageRequest { count_max: 1, bytes_max: 1, outline: false };

/// What one tunnel remembers of its branches, from connection to connection.
#[derive(Debug, Default)]
pub(super) struct BranchState {
    /// Branches that were made; refused ones do not count.
    made: u32,
    /// A branch was requested, and the session has no notice of it yet.
    is_open: bool,
}

/// Where mirroring begins, after the two have agreed on what the mirror is a copy of.
pub(super) async fn agree(
    shared: &Arc<Shared>,
    handles: &mut watch::Receiver<SessionHandle>,
    branch_state: &mut BranchState,
    (incoming, out): (&mut mpsc::Receiver<Vec<u8>>, &mpsc::Sender<Outgoing>),
) -> Result<(MirrorReady, LogSource), BridgeError> {
    let mut first = ready(shared, incoming).await?;
    let source = LogSource { process: shared.process.clone(), lineage: lineage(shared).await };
    let handle = handles.borrow_and_update().clone();
    let store_fails = |error: StoreError| BridgeError::Unreadable { reason: error.to_string() };
    if first.branches && is_other(shared, &handle, &first, &source).await.map_err(store_fails)? {
        if branch_state.made >= BRANCHES_MAX {
            return Err(BridgeError::Diverged);
        }
        branch_state.is_open = true;
        let branch = BridgeFrame::Branch(BranchRequest { source: source.clone() });
        let frame = serde_json::to_vec(&branch).map_err(BridgeError::malformed)?;
        // A pipe that is closed says why.
        drop(out.send(Outgoing::Frame(frame)).await);
        first = ready(shared, incoming).await?;
        branch_state.made += 1;
    }
    if let Some(before) = first.before.as_ref().filter(|_| first.events == 0) {
        // A process that was killed in between left a session that was not told.
        let is_behind = handle.read(Seq::START).head() <= Seq(before.events);
        if branch_state.is_open || is_behind {
            branch_state.is_open = !tell(shared, handles, before).await;
        }
    }
    Ok((first, source))
}

/// A lineage that cannot be read is not known: that is damage, and no restore.
async fn lineage(shared: &Shared) -> Option<String> {
    let found = shared.app.registry().lineage().await;
    let found = found.inspect_err(
        |error| tracing::warn!(%error, "could not read the lineage of the store; run `ropewalk doctor --store`"),
    );
    found.ok().flatten().map(|lineage| lineage.to_string())
}

/// Whether the mirror ends with something else than this log has there.
async fn is_other(
    shared: &Shared,
    handle: &SessionHandle,
    mirror: &MirrorReady,
    source: &LogSource,
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
        LogRead::Events(events) => events.into_iter().next().filter(|event| event.seq == end),
        LogRead::UpToDate | LogRead::Ended { .. } => None,
    };
    let own = found.and_then(|event| shared.codec.mark(handle.id(), &event));
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

/// The facts that identify an event, independent of its encoding, which differs from version to version. None, for the notice
/// in the place of a damaged event: the event may be readable again.
pub(super) fn facts(session: &SessionId, event: &Event) -> Option<String> {
    if matches!(&event.body, Body::Notice { text, .. } if text.starts_with(DAMAGE_NOTICE)) {
        return None;
    }
    let turn = event.turn.map_or(0, |turn| turn.0);
    Some(format!("{session} {} {} {turn} {}", event.seq, event.at.0, record::kind(&event.body)))
}

/// Writes a notice into the session, which everybody who watches sees. Gives whether the session accepted it.
async fn tell(
    shared: &Arc<Shared>,
    handles: &mut watch::Receiver<SessionHandle>,
    before: &BranchedMirror,
) -> bool {
    let Ok(kept) = SessionId::parse(&before.session) else { return false };
    let session = handles.borrow().id().clone();
    if handles.borrow().is_closed() {
        // It left memory; when it is loaded again, this tunnel gets the new handle.
        drop(shared.app.bring_back(&session).await);
    }
    let handle = handles.borrow_and_update().clone();
    let notice = format!(
        "this machine's state was restored to an earlier time. Later events are no longer in this session; the hub keeps them as a separate session, {kept}"
    );
    shared.tell(&format!("[ferret] bridge: {notice} session={session}"));
    let told = handle.send(Input::PutBack { seen: Seq(before.events), notice: notice.into() }).await;
    if let Err(error) = &told {
        tracing::warn!(%session, %error, "could not tell a session that its machine's state was restored");
    }
    told.is_ok()
}
