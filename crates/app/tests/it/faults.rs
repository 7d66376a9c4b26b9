//! A store or rules that cannot be used: everybody who looks is told, and told when that is over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{AskRequest, BoxFuture, RememberedAnswer, RuleHit};
use testkit::Script;
use testkit::server::{Keep, Setup, run};
use wire::native::Role;

use testkit::app_client::AppHarness;

/// Rules in a file that somebody breaks and repairs.
#[derive(Default)]
struct Breakable(AtomicBool);

impl engine::PermissionRules for Breakable {
    fn find(&self, _: &Path, _: &AskRequest) -> Option<RuleHit> {
        None
    }

    fn damage(&self) -> Option<String> {
        self.0.load(Ordering::Relaxed).then(|| "/home/me/rules.toml: line 2 is not TOML".to_owned())
    }

    fn remember(&self, _: RememberedAnswer) -> BoxFuture<'static, Result<Arc<str>, String>> {
        Box::pin(std::future::ready(Err("nothing is remembered".to_owned())))
    }
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_read_are_told_live_and_without_paths_to_viewers() {
    let rules = Arc::new(Breakable::default());
    let permissions = Arc::clone(&rules) as Arc<dyn engine::PermissionRules>;
    let setup = Setup { permissions, ..Setup::script(&Script::new([])) };
    run(setup, async |server| {
        let house = AppHarness::new(server);
        let mut owner = house.client_as("owner", Role::Owner).await;
        let mut viewer = house.client_as("viewer", Role::Viewer).await;
        rules.0.store(true, Ordering::Relaxed);
        for client in [&mut owner, &mut viewer] {
            client.until("a fault", |client| !client.faults.is_empty()).await;
        }
        let begun = "Permission rules cannot be read, so every action is asked";
        assert_eq!(
            owner.faults,
            [format!("{begun}: /home/me/rules.toml: line 2 is not TOML. Run `ropewalk doctor`.")]
        );
        assert_eq!(viewer.faults, [format!("{begun}. Run `ropewalk doctor` on the machine.")]);
        let mut late = house.client_as("late", Role::Owner).await;
        late.until("a fault", |client| !client.faults.is_empty()).await;
        rules.0.store(false, Ordering::Relaxed);
        for client in [&mut owner, &mut viewer, &mut late] {
            client.until("no fault", |client| client.faults.is_empty()).await;
        }
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_told() {
    let setup = Setup { keep: Keep::Nowhere, ..Setup::script(&Script::new([])) };
    run(setup, async |server| {
        let house = AppHarness::new(server);
        let mut owner = house.client_as("owner", Role::Owner).await;
        let mut viewer = house.client_as("viewer", Role::Viewer).await;
        for client in [&mut owner, &mut viewer] {
            client.until("a fault", |client| !client.faults.is_empty()).await;
            let said = &client.faults[0];
            assert!(said.starts_with("The session store cannot be used: "), "{said}");
            assert!(said.contains("Nothing is saved. Run `ropewalk doctor`."), "{said}");
        }
        assert!(owner.faults[0].contains(".db"), "{:?}", owner.faults);
        assert!(!viewer.faults[0].contains(".db"), "{:?}", viewer.faults);
        house.close().await;
    })
    .await;
}
