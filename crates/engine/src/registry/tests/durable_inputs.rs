//! What is accepted is stored: prompts, questions, and the rules of remembered answers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use expect_test::expect;
use tokio::sync::Semaphore;

use super::{TestRegistry, end_of, in_time, me, start};
use crate::backend::BoxFuture;
use crate::event::{AskRequest, Body, Event, Resolution, Stop};
use crate::ids::{AskId, Seq};
use crate::registry::{Registry, RegistryParts, SessionLimits};
use crate::session::{Input, PermissionAnswer};
use crate::session_handle::SessionHandle;
use crate::stored_rules::{PermissionRules, RememberedAnswer, RuleHit};
use crate::testing::{FailingStore, ScriptedBackend, TestClock, brief, sender, until};

/// Rules whose file is as slow, and as broken, as a test wants.
struct SlowFile {
    may_write: Arc<Semaphore>,
    written: Arc<Mutex<Vec<RememberedAnswer>>>,
    broken: bool,
}

impl PermissionRules for SlowFile {
    fn find(&self, _workspace: &Path, _request: &AskRequest) -> Option<RuleHit> {
        None
    }

    fn remember(&self, answer: RememberedAnswer) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let (may_write, written, broken) =
            (Arc::clone(&self.may_write), Arc::clone(&self.written), self.broken);
        Box::pin(async move {
            may_write.acquire_owned().await.unwrap().forget();
            if broken {
                return Err("could not write permissions.toml: the disk is full".into());
            }
            written.lock().unwrap().push(answer);
            Ok("shell(git push)".into())
        })
    }
}

fn fixture(broken: bool) -> (TestRegistry, Arc<SlowFile>) {
    let store = Arc::new(FailingStore::default());
    let rules =
        Arc::new(SlowFile { may_write: Arc::new(Semaphore::new(0)), written: Arc::default(), broken });
    let parts =
        RegistryParts::new(Arc::<FailingStore>::clone(&store), ScriptedBackend::new(), TestClock::new());
    let parts =
        RegistryParts { limits: SessionLimits::default(), rules: Arc::<SlowFile>::clone(&rules), ..parts };
    (TestRegistry { store, registry: Registry::new(parts) }, rules)
}

fn answered(event: &Event) -> bool {
    matches!(event.body, Body::Resolved { .. })
}

async fn ask_and_answer(session: &SessionHandle, answer: PermissionAnswer) -> crate::ids::TurnId {
    let turn = start(session, "ask git push").await;
    until(session, |event| matches!(event.body, Body::Asked { .. })).await;
    session.send(Input::Answer { by: sender(), ask: AskId(1), answer }).await.unwrap();
    turn
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_good_is_seen_only_when_its_rule_is_kept() {
    for (answer, allow, resolution) in [
        (PermissionAnswer::AllowAlways, true, Resolution::AllowedAlways),
        (PermissionAnswer::DenyAlways, false, Resolution::DeniedAlways),
    ] {
        let (fixture, rules) = fixture(false);
        let session = fixture.create().await;
        let turn = ask_and_answer(&session, answer).await;
        // The session goes on taking requests, and whatever time passes, nobody learns of the answer.
        session.send(Input::Rename { by: sender(), title: "meanwhile".into() }).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let read = session.read(Seq::START).take(crate::store::PageRequest::USUAL).await.unwrap();
        let crate::event_log::LogRead::Events(seen) = read else { panic!("there are events") };
        assert!(!seen.iter().any(|event| answered(event)), "{}", brief(&seen));
        assert!(!fixture.stored(&session).await.iter().any(|event| answered(event)));

        rules.may_write.add_permits(1);
        let seen = until(&session, answered).await;
        let Body::Resolved { resolution: found, .. } = seen.last().unwrap().body else { panic!("answered") };
        assert_eq!(found, resolution);
        let kept = rules.written.lock().unwrap().clone();
        assert_eq!(
            kept.iter().map(|rule| (&*rule.subject, rule.allow)).collect::<Vec<_>>(),
            [("git push", allow)]
        );
        assert_eq!(end_of(&session, turn).await, Stop::EndTurn);
        in_time(fixture.registry.close(&me(), session.id())).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_rule_cannot_be_kept_counts_and_says_so() {
    let (fixture, rules) = fixture(true);
    let session = fixture.create().await;
    rules.may_write.add_permits(1);
    let turn = ask_and_answer(&session, PermissionAnswer::AllowAlways).await;
    assert_eq!(end_of(&session, turn).await, Stop::EndTurn);
    expect![[r#"
        1 started
        1 user
        1 ask 1
        1 ask 1 AllowedAlways
        1 Warning: the answer applies only until this server stops, because its rule could not be saved: could not write permissions.toml: the disk is full
        1 text allowed
        1 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&session).await);
    in_time(fixture.registry.close(&me(), session.id())).await.unwrap();
}

/// What a client was told it has: a prompt, by its number; a question, by its number.
#[tokio::test(start_paused = true)]
async fn a_prompt_and_a_question_are_synced_before_anybody_sees_them() {
    let (fixture, rules) = fixture(false);
    rules.may_write.add_permits(1);
    let session = fixture.create().await;
    let unsynced = || brief(&fixture.store.unsynced.lock().unwrap());
    let turn = session.send(super::prompt("ask git push")).await.unwrap();
    session.written(turn.seq).await;
    assert_eq!(unsynced(), "");
    let queued = session.send(super::prompt("say next")).await.unwrap();
    session.written(queued.seq).await;
    assert_eq!(unsynced(), "");
    until(&session, |event| matches!(event.body, Body::Asked { .. })).await;
    assert_eq!(unsynced(), "");
    session
        .send(Input::Answer { by: sender(), ask: AskId(1), answer: PermissionAnswer::AllowAlways })
        .await
        .unwrap();
    end_of(&session, queued.turn.unwrap()).await;
    // Seven batches at most: a turn's beginning is one with the end of the turn before it.
    let synced = fixture.store.appends.load(std::sync::atomic::Ordering::SeqCst);
    assert!(synced <= 7, "{synced} batches");
    in_time(fixture.registry.close(&me(), session.id())).await.unwrap();
}
