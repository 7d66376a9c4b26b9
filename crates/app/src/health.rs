//! Problems of the store, the permission rules or the audit, reported to every connected client.
//!
//! One task checks for all connections, and only while there are any. A client that is not the owner gets the report without
//! file paths and without file contents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::devices::Visitor;
use engine::{FollowerFault, Principal, Registry};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::native::{Role, ServerFrame, ServerNotification};

use super::AppServer;

/// How often it is checked: a repair may go unnoticed for so long.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the check of the store may take.
const CHECK_WAIT: Duration = Duration::from_secs(4);

/// A problem, in a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HealthFault {
    for_owner: String,
    for_others: String,
}

#[derive(Default)]
pub(super) struct HealthReports {
    current: watch::Sender<Arc<[HealthFault]>>,
    is_checking: AtomicBool,
}

impl HealthReports {
    fn subscribe(&self, app: &Arc<AppServer>) -> watch::Receiver<Arc<[HealthFault]>> {
        let changes = self.current.subscribe();
        if !self.is_checking.swap(true, Ordering::Relaxed) {
            drop(app.tasks.spawn(check_regularly(Arc::downgrade(app), app.stop.clone())));
        }
        changes
    }
}

/// Sends one client the problems, whenever they change.
pub(super) async fn tell(app: Arc<AppServer>, visitor: Arc<Visitor>, frames: mpsc::Sender<ServerFrame>) {
    let is_owner = visitor.role == Role::Owner && visitor.principal == Principal::local();
    let sentence =
        |fault: &HealthFault| if is_owner { fault.for_owner.clone() } else { fault.for_others.clone() };
    let mut changes = app.health.subscribe(&app);
    // Clients assume that there are no problems until they get some.
    let mut told = Vec::new();
    loop {
        let faults: Vec<String> = changes.borrow_and_update().iter().map(sentence).collect();
        if faults != told {
            told.clone_from(&faults);
            if frames
                .send(ServerFrame::Notification(Box::new(ServerNotification::Faults { faults })))
                .await
                .is_err()
            {
                return;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn check_regularly(app: Weak<AppServer>, stop: CancellationToken) {
    loop {
        let Some(app) = app.upgrade() else { return };
        if app.health.current.receiver_count() > 0 {
            let Some(found) = stop.run_until_cancelled(check(app.registry())).await else { return };
            app.health.current.send_if_modified(|current| {
                let changed = **current != *found;
                if changed {
                    *current = found.into();
                }
                changed
            });
        }
        drop(app);
        if stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none() {
            return;
        }
    }
}

async fn check(registry: &Registry) -> Vec<HealthFault> {
    let mut faults = Vec::new();
    let store = |why: String| {
        format!("The session store cannot be used: {why}. Nothing is saved. Run `ropewalk doctor`.")
    };
    match tokio::time::timeout(CHECK_WAIT, registry.check_store()).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => {
            faults
                .push(HealthFault { for_owner: store(fault.to_string()), for_others: store(fault.brief()) });
        }
        Err(_) => {
            let silent = store("it does not answer".to_owned());
            faults.push(HealthFault { for_owner: silent.clone(), for_others: silent });
        }
    }
    if let Some(why) = registry.rules_damage() {
        let begun = "Permission rules cannot be read, so every action is asked";
        faults.push(HealthFault {
            for_owner: format!("{begun}: {why}. Run `ropewalk doctor`."),
            for_others: format!("{begun}. Run `ropewalk doctor` on the machine."),
        });
    }
    if let Some(FollowerFault { for_owner, for_others }) = registry.follower_fault() {
        let text = |why: String| format!("Not everything is recorded yet: {why}. Run `ropewalk doctor`.");
        faults.push(HealthFault { for_owner: text(for_owner), for_others: text(for_others) });
    }
    faults
}
