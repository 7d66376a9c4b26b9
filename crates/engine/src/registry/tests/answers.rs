//! What is taken is kept: prompts, questions, and the rules of answers for good.

use std::path::Path;
use std::sync::{Arc, Mutex};

use expect_test::expect;
use tokio::sync::Semaphore;

use super::{House, end_of, in_time, me, start};
use crate::backend::BoxFuture;
use crate::event::{AskRequest, Body, Event, Resolution, Stop};
use crate::handle::SessionHandle;
use crate::ids::{AskId, Seq};
use crate::registry::{Limits, Registry, RegistryParts};
use crate::rules::{Remembered, RuleHit, Rules};
use crate::session::{Answer, Input};
use crate::testing::{Obedient, Switched, TestClock, brief, sender, until};

/// Rules whose file is as slow, and as broken, as a test wants.
struct SlowFile {
    may_write: Arc<Semaphore>,
    written: Arc<Mutex<Vec<Remembered>>>,
    broken: bool,
}

impl Rules for SlowFile {
    fn find(&self, _workspace: &Path, _request: &AskRequest) -> Option<RuleHit> {
        None
    }

    fn remember(&self, answer: Remembered) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let (may_write, written, broken) =
            (Arc::clone(&self.may_write), Arc::clone(&self.written), self.broken);
        Box::pin(async move {
            may_write.acquire_owned().await.unwrap().forget();
            if broken {
                return Err("permissions.toml cannot be written: the disk is full".into());
            }
            written.lock().unwrap().push(answer);
            Ok("shell(git push)".into())
        })
    }
}

fn house(broken: bool) -> (House, Arc<SlowFile>) {
    let store = Arc::new(Switched::default());
    let rules =
        Arc::new(SlowFile { may_write: Arc::new(Semaphore::new(0)), written: Arc::default(), broken });
    let parts = RegistryParts::new(Arc::<Switched>::clone(&store), Obedient::new(), TestClock::new());
    let parts = RegistryParts { limits: Limits::default(), rules: Arc::<SlowFile>::clone(&rules), ..parts };
    (House { store, registry: Registry::new(parts) }, rules)
}

fn answered(event: &Event) -> bool {
    matches!(event.body, Body::Resolved { .. })
}

async fn ask_and_answer(session: &SessionHandle, answer: Answer) -> crate::ids::TurnId {
    let turn = start(session, "ask git push").await;
    until(session, |event| matches!(event.body, Body::Asked { .. })).await;
    session.send(Input::Answer { by: sender(), ask: AskId(1), answer }).await.unwrap();
    turn
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_good_is_seen_only_when_its_rule_is_kept() {
    for (answer, allow, resolution) in [
        (Answer::AllowAlways, true, Resolution::AllowedAlways),
        (Answer::DenyAlways, false, Resolution::DeniedAlways),
    ] {
        let (house, rules) = house(false);
        let session = house.create().await;
        let turn = ask_and_answer(&session, answer).await;
        // The session goes on taking requests, and whatever time passes, nobody learns of the answer.
        session.send(Input::Rename { by: sender(), title: "meanwhile".into() }).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let read = session.read(Seq::START).take(crate::store::Page::USUAL).await.unwrap();
        let crate::log::Taken::Events(seen) = read else { panic!("there are events") };
        assert!(!seen.iter().any(|event| answered(event)), "{}", brief(&seen));
        assert!(!house.stored(&session).await.iter().any(|event| answered(event)));

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
        in_time(house.registry.close(&me(), session.id())).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_rule_cannot_be_kept_counts_and_says_so() {
    let (house, rules) = house(true);
    let session = house.create().await;
    rules.may_write.add_permits(1);
    let turn = ask_and_answer(&session, Answer::AllowAlways).await;
    assert_eq!(end_of(&session, turn).await, Stop::EndTurn);
    expect![[r#"
        1 started
        1 user
        1 ask 1
        1 ask 1 AllowedAlways
        1 Warning: the answer counts only until this server stops, because its rule could not be saved: permissions.toml cannot be written: the disk is full
        1 text allowed
        1 ended EndTurn
    "#]]
    .assert_eq(&house.stored_brief(&session).await);
    in_time(house.registry.close(&me(), session.id())).await.unwrap();
}

/// What a client was told it has: a prompt, by its number; a question, by its number.
#[tokio::test(start_paused = true)]
async fn a_prompt_and_a_question_are_synced_before_anybody_sees_them() {
    let (house, rules) = house(false);
    rules.may_write.add_permits(1);
    let session = house.create().await;
    let unsynced = || brief(&house.store.unsynced.lock().unwrap());
    let turn = session.send(super::prompt("ask git push")).await.unwrap();
    session.written(turn.seq).await;
    assert_eq!(unsynced(), "");
    let queued = session.send(super::prompt("say next")).await.unwrap();
    session.written(queued.seq).await;
    assert_eq!(unsynced(), "");
    until(&session, |event| matches!(event.body, Body::Asked { .. })).await;
    assert_eq!(unsynced(), "");
    session.send(Input::Answer { by: sender(), ask: AskId(1), answer: Answer::AllowAlways }).await.unwrap();
    end_of(&session, queued.turn.unwrap()).await;
    // Seven batches at most: a turn's beginning is one with the end of the turn before it.
    let synced = house.store.appends.load(std::sync::atomic::Ordering::SeqCst);
    assert!(synced <= 7, "{synced} batches");
    in_time(house.registry.close(&me(), session.id())).await.unwrap();
}
