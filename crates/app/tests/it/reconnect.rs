//! Coming back, falling behind, and sessions that go and come.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{MessageId, NewSessionRequest, PageRequest, Principal, Seq, SessionId, SessionLimits, Stop};
use testkit::server::{Server, Setup, run};
use testkit::{Script, Turns, call, say};
use wire::native::fold::Rows;
use wire::native::{CardState, Request, Row, RowContent, ServerFrame, ServerNotification};

use testkit::app_client::{AppHarness, ShownSession};

async fn events(server: &Server, session: &str) -> Vec<std::sync::Arc<engine::Event>> {
    let id = SessionId::parse(session).unwrap();
    let page = PageRequest { count_max: 100_000, bytes_max: usize::MAX, outline: false };
    server.registry().read(&Principal::local(), &id, Seq::START, page).await.unwrap()
}

#[tokio::test]
async fn from_every_position_one_comes_back_to_the_same() {
    let run_it = r#"{"command":"echo one; echo two"}"#;
    let script = Script::new([
        vec![say("first "), say("I run"), call("bash", run_it)],
        vec![say("done, "), say("really")],
        vec![say("again")],
    ]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        for key in ["a", "b"] {
            let turn = client.prompt(&session, key, "go on").await;
            client.ended(&session, turn).await;
        }
        server.idle(&session).await;
        let log = events(server, &session).await;
        client.until("everything", |client| client.shown(&session).upto == log.len() as u64).await;
        let all = client.shown(&session).rows.clone();
        assert!(all.len() > 6);
        let mut back = house.client("phone").await;
        for position in 0..=log.len() {
            let mut rows = Rows::default();
            log.iter().take(position).for_each(|event| rows.observe(event));
            let had: BTreeMap<u64, Row> = rows.iter().map(|row| (row.id, row.clone())).collect();
            let shown = ShownSession { rows: had, ..ShownSession::default() };
            back.sessions.insert(session.clone(), shown);
            back.watch(&session, Some(position as u64)).await;
            assert_eq!(back.shown(&session).rows, all, "from {position}");
            assert_eq!(back.shown(&session).resets, 0, "what is held is not told anew");
        }
        house.close().await;
    })
    .await;
}

/// A turn that says many words one by one.
fn talkative(words: u64) -> Turns {
    Turns::new(move |_, context| async move {
        for _ in 0..words {
            if context.text(MessageId(1), "word ").await.is_err() {
                break;
            }
        }
        Ok(Stop::EndTurn)
    })
}

#[tokio::test]
async fn who_reads_slowly_misses_nothing_and_holds_nobody_up() {
    run(Setup::new(talkative(5_000)), async |server| {
        let house = AppHarness::new(server);
        let (mut slow, mut quick) = (house.client("slow").await, house.client("quick").await);
        let session = quick.open().await;
        slow.watch(&session, None).await;
        quick.watch(&session, None).await;
        let turn = quick.prompt(&session, "k", "talk").await;
        quick.ended(&session, turn).await;
        let said = |shown: &ShownSession| {
            shown.rows.values().find_map(|row| match &row.what {
                RowContent::AgentMessage { text, more } => Some(text.len() as u64 + more),
                _ => None,
            })
        };
        assert_eq!(said(quick.shown(&session)), Some(25_000));
        slow.ended(&session, turn).await;
        assert_eq!(said(slow.shown(&session)), Some(25_000));
        assert_eq!(slow.shown(&session).rows, quick.shown(&session).rows);
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_the_position_still_counts() {
    let script = Script::new([vec![say("one")], vec![say("two")]]);
    run(Setup::script(&script).on_disk(), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        let first = client.prompt(&session, "a", "go").await;
        client.ended(&session, first).await;
        server.idle(&session).await;
        let had = client.shown(&session).clone();
        drop(client);
        house.close().await;
        server.restart().await;
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        assert_eq!(client.cards[&session].state, CardState::Done);
        assert_eq!(client.cards[&session].line.as_deref(), Some("one"));
        assert_eq!(client.prompt(&session, "a", "go").await, first, "a prompt of before is known");
        let upto = had.upto;
        client.sessions.insert(session.clone(), ShownSession { state: None, ..had });
        client.watch(&session, Some(upto)).await;
        let second = client.prompt(&session, "b", "go").await;
        client.ended(&session, second).await;
        assert_eq!(client.shown(&session).resets, 1, "only the first time");
        assert_eq!(client.shown(&session).words()[1], "said: one");
        drop(client);
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_left_memory_is_watched_on_when_it_returns() {
    let script = Script::new([vec![say("one")], vec![say("two")]]);
    let limits = SessionLimits { sessions_max: 1, ..SessionLimits::default() };
    run(Setup { limits, ..Setup::script(&script) }, async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        let other = client.open().await;
        assert_ne!(other, session, "the first one had to leave");
        let turn = client.prompt(&session, "a", "go").await;
        client.ended(&session, turn).await;
        assert_eq!(client.shown(&session).over, None);
        server.idle(&session).await;
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn who_watches_a_deleted_session_is_told() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let (mut one, mut two) = (house.client("one").await, house.client("two").await);
        let session = one.open().await;
        two.until("the card", |client| client.cards.contains_key(&session)).await;
        two.watch(&session, None).await;
        one.done(Request::Delete { session: session.clone() }).await;
        two.until("the end", |client| client.shown(&session).over.is_some()).await;
        assert_eq!(two.shown(&session).over.as_deref(), Some("the session was deleted"));
        two.until("no card", |client| !client.cards.contains_key(&session)).await;
        let gone = two.refused(Request::Watch { session: session.clone(), after: None }).await;
        assert_eq!(gone.code, "notFound");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn who_leaves_a_session_hears_no_more_of_it() {
    let script = Script::new([vec![say("one")]]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let (mut one, mut two) = (house.client("one").await, house.client("two").await);
        let session = one.open().await;
        one.watch(&session, None).await;
        two.watch(&session, None).await;
        one.until("company", |client| client.state(&session).others == ["two"]).await;
        two.done(Request::Unwatch { session: session.clone() }).await;
        one.until("alone", |client| client.state(&session).others.is_empty()).await;
        let turn = one.prompt(&session, "k", "go").await;
        one.ended(&session, turn).await;
        // The card of the ended turn is the last thing to come.
        two.until("done", |client| {
            client.cards.get(&session).is_some_and(|card| card.state == CardState::Done)
        })
        .await;
        assert!(two.shown(&session).rows.is_empty());
        house.close().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_come_no_faster_than_eyes() {
    run(Setup::new(talkative(2_000)), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        let begun = tokio::time::Instant::now();
        let turn = client.prompt(&session, "k", "talk").await;
        let mut views = 0_u32;
        while !client.shown(&session).rows.values().any(|row| matches!(row.what, RowContent::TurnEnd(_))) {
            let frame = client.frame().await;
            views += u32::from(
                matches!(&frame, ServerFrame::Notification(told) if matches!(**told, ServerNotification::View(_))),
            );
            client.take(frame);
        }
        let most = begun.elapsed().as_millis() / Duration::from_millis(33).as_millis() + 3;
        assert!(u128::from(views) <= most, "{views} views in {:?}", begun.elapsed());
        client.ended(&session, turn).await;
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn sessions_that_were_open_before_are_on_the_board_too() {
    let script = Script::new([vec![say("one")]]);
    run(Setup::script(&script), async |server| {
        let wish = NewSessionRequest::new(Principal::local(), server.workspace(), "acp");
        let session = server.registry().create(wish).await.unwrap().id().to_string();
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        assert_eq!(
            (client.cards[&session].state, client.cards[&session].source.as_str()),
            (CardState::Empty, "acp")
        );
        client.prompt(&session, "k", "go").await;
        client.until("the end", |client| client.cards[&session].state == CardState::Done).await;
        house.close().await;
    })
    .await;
}
