//! Watching, prompting, answering, cancelling.

use expect_test::expect;
use testkit::server::{Setup, run};
use testkit::{Line, Script, call, say, think};
use wire::native::{CardState, Decision, Request};

use testkit::app_client::AppHarness;

#[tokio::test]
async fn a_prompt_is_watched_to_its_end() {
    let script = Script::new([vec![think("hm"), say("Hel"), say("lo.")]]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        assert_eq!(client.hello.host, "this machine");
        let session = client.open().await;
        client.watch(&session, None).await;
        let turn = client.prompt(&session, "k1", "hi").await;
        client.ended(&session, turn).await;
        client.until("idle", |client| !client.state(&session).busy).await;
        expect![[r#"
            [
                "phone: hi",
                "thought: hm",
                "said: Hello.",
                "ended: endTurn",
            ]
        "#]]
        .assert_debug_eq(&client.shown(&session).words());
        client
            .until("a card", |client| {
                client.cards.get(&session).is_some_and(|card| card.state == CardState::Done)
            })
            .await;
        assert_eq!(client.cards[&session].line.as_deref(), Some("Hello."));
        drop(client);
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_asked_here_can_be_answered_there() {
    let edit = r#"{"path":"a.txt","text":"x\n"}"#;
    let script = Script::new([vec![call("write", edit)], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut phone = house.client("phone").await;
        let mut laptop = house.client("laptop").await;
        let session = phone.open().await;
        phone.watch(&session, None).await;
        laptop.watch(&session, None).await;
        let set =
            Request::Set { session: session.clone(), setting: "approval".into(), value: "suggest".into() };
        phone.done(set).await;
        let turn = phone.prompt(&session, "k", "write it").await;
        phone.until("an ask", |client| !client.state(&session).asks.is_empty()).await;
        laptop
            .until("an ask on the card", |client| {
                client.cards.get(&session).is_some_and(|card| card.asks.len() == 1)
            })
            .await;
        let ask = laptop.cards[&session].asks[0].clone();
        assert_eq!(laptop.cards[&session].state, CardState::Waiting);
        assert_eq!(&ask, &phone.state(&session).asks[0], "the inbox has what the session has");
        let answer =
            |decision| Request::Answer { session: session.clone(), ask: ask.ask, decision, text: None };
        laptop.done(answer(Decision::AllowOnce)).await;
        let late = phone.refused(answer(Decision::DenyOnce)).await;
        assert_eq!((late.code.as_str(), late.message.as_str()), ("answered", "it was allowed by laptop"));
        phone.ended(&session, turn).await;
        phone.until("withdrawn", |client| client.state(&session).asks.is_empty()).await;
        laptop.until("withdrawn", |client| client.cards[&session].asks.is_empty()).await;
        expect![[r#"
            [
                "note: approval is set to suggest",
                "phone: write it",
                "write Done (allowed by laptop)",
                "said: done",
                "ended: endTurn",
            ]
        "#]]
        .assert_debug_eq(&phone.shown(&session).words());
        assert_eq!(phone.state(&session).others, ["laptop"]);
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_the_turn_and_a_prompt_is_taken_once() {
    let script = Script::new([vec![say("working"), Line::Hang]]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        let turn = client.prompt(&session, "k", "go").await;
        assert_eq!(client.prompt(&session, "k", "go").await, turn);
        let mut again = house.client("phone").await;
        assert_eq!(again.prompt(&session, "k", "go").await, turn, "also after it came back");
        let second = client.prompt(&session, "k2", "and then").await;
        client.until("a queue", |client| client.state(&session).queue.len() == 1).await;
        let working = "said: working".to_owned();
        client.until("its first words", |client| client.shown(&session).words().contains(&working)).await;
        client.done(Request::Cancel { session: session.clone(), turn: Some(second) }).await;
        client.done(Request::Cancel { session: session.clone(), turn: Some(turn) }).await;
        client.ended(&session, turn).await;
        client.until("idle", |client| !client.state(&session).busy).await;
        assert!(client.state(&session).queue.is_empty());
        expect![[r#"
            [
                "phone: go",
                "said: working",
                "note: a queued prompt from phone was cancelled: and then",
                "note: phone asked to stop",
                "ended: cancelled",
            ]
        "#]]
        .assert_debug_eq(&client.shown(&session).words());
        house.close().await;
    })
    .await;
}
