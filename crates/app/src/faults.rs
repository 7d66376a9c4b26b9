//! What is wrong with the store, the permission rules or the audit, for everybody who looks.
//!
//! One task looks for all lines, and only while there are any. Whoever is not the owner is told without the place
//! of a file and without what stands in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::devices::Visitor;
use engine::{FollowerFault, Principal, Registry};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::native::{Frame, Role, Told};

use super::Desk;

/// How often is looked: as long as a repair may go unseen.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the store may take to say how it is.
const CHECK_WAIT: Duration = Duration::from_secs(4);

/// Something that is wrong, in a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    for_owner: String,
    for_others: String,
}

#[derive(Default)]
pub(super) struct Faults {
    known: watch::Sender<Arc<[Fault]>>,
    looking: AtomicBool,
}

impl Faults {
    fn subscribe(&self, desk: &Arc<Desk>) -> watch::Receiver<Arc<[Fault]>> {
        let changes = self.known.subscribe();
        if !self.looking.swap(true, Ordering::Relaxed) {
            drop(desk.tasks.spawn(look(Arc::downgrade(desk), desk.stop.clone())));
        }
        changes
    }
}

/// Tells one client what is wrong, whenever that changes.
pub(super) async fn tell(desk: Arc<Desk>, visitor: Arc<Visitor>, frames: mpsc::Sender<Frame>) {
    let is_owner = visitor.role == Role::Owner && visitor.principal == Principal::local();
    let sentence = |fault: &Fault| if is_owner { fault.for_owner.clone() } else { fault.for_others.clone() };
    let mut changes = desk.faults.subscribe(&desk);
    // Clients take nothing to be wrong until they are told.
    let mut told = Vec::new();
    loop {
        let faults: Vec<String> = changes.borrow_and_update().iter().map(sentence).collect();
        if faults != told {
            told.clone_from(&faults);
            if frames.send(Frame::Told(Box::new(Told::Faults { faults }))).await.is_err() {
                return;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn look(desk: Weak<Desk>, stop: CancellationToken) {
    loop {
        let Some(desk) = desk.upgrade() else { return };
        if desk.faults.known.receiver_count() > 0 {
            let Some(found) = stop.run_until_cancelled(find(desk.registry())).await else { return };
            desk.faults.known.send_if_modified(|known| {
                let changed = **known != *found;
                if changed {
                    *known = found.into();
                }
                changed
            });
        }
        drop(desk);
        if stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none() {
            return;
        }
    }
}

async fn find(registry: &Registry) -> Vec<Fault> {
    let mut faults = Vec::new();
    let store = |why: String| {
        format!("The session store cannot be used: {why}. Nothing is saved. Run `ropewalk doctor`.")
    };
    match tokio::time::timeout(CHECK_WAIT, registry.check_store()).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => {
            faults.push(Fault { for_owner: store(fault.to_string()), for_others: store(fault.brief()) });
        }
        Err(_) => {
            let silent = store("it does not answer".to_owned());
            faults.push(Fault { for_owner: silent.clone(), for_others: silent });
        }
    }
    if let Some(why) = registry.rules_damage() {
        let begun = "Permission rules cannot be read, so every action is asked";
        faults.push(Fault {
            for_owner: format!("{begun}: {why}. Run `ropewalk doctor`."),
            for_others: format!("{begun}. Run `ropewalk doctor` on the machine."),
        });
    }
    if let Some(FollowerFault { for_owner, for_others }) = registry.follower_fault() {
        let text = |why: String| format!("Something is not recorded yet: {why}. Run `ropewalk doctor`.");
        faults.push(Fault { for_owner: text(for_owner), for_others: text(for_others) });
    }
    faults
}
