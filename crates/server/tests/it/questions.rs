//! What the agent asks the person: as a form, as a choice, in every dialect, answered once.

use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run};
use testkit::{Script, call, say};
use wire::Dialect;

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// A server whose model asks this, and then says what it was told.
async fn check(question: &str, test: impl AsyncFnOnce(&mut Server, &Script)) {
    let script = Script::new([vec![call("ask_user", question)], vec![say("I see")]]);
    run(Setup::script(&script), async |server| test(server, &script).await).await;
}

const COLOUR: &str = r#"{"question":"Which colour?","choices":["red","green"]}"#;
const WHY: &str = r#"{"question":"Why?"}"#;

async fn client(server: &mut Server, capabilities: Value) -> (Client, String, u64) {
    let mut client = server.connect();
    client.initialize_with(capabilities).await;
    let session = client.new_session().await;
    let turn = client.send_prompt(&session, "paint it").await;
    (client, session, turn)
}

/// X8.
#[tokio::test]
async fn a_question_is_answered_with_a_form_and_the_model_is_told() {
    for (question, answer, expected) in [
        (COLOUR, json!({ "action": "accept", "content": { "answer": "green" } }), "the user answered: green"),
        (WHY, json!({ "action": "accept", "content": { "answer": "so" } }), "the user answered: so"),
        (WHY, json!({ "action": "decline" }), "no answer: the user lets you decide; say what you chose"),
        (
            WHY,
            json!({ "action": "cancel" }),
            "no answer: the user wants to answer in the conversation: ask in your reply, and end your turn there",
        ),
    ] {
        check(question, async |server, script| {
            let (mut client, session, turn) = client(server, forms()).await;
            let asked = client.next_call().await;
            assert_eq!(asked["method"], "elicitation/create");
            assert_eq!(asked["params"]["sessionId"], session);
            client.respond(&asked, answer.clone()).await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!(script.last_result(), expected);
            let call = client.story().calls.into_values().next_back().unwrap();
            assert_eq!(call["status"], "completed", "no answer is no failure");
        })
        .await;
    }
}

#[tokio::test]
async fn a_question_without_forms_is_a_choice() {
    for (option, expected) in [
        ("choice-1", "the user answered: green"),
        ("decide", "no answer: the user lets you decide; say what you chose"),
    ] {
        check(COLOUR, async |server, script| {
            let (mut client, _, turn) = client(server, json!({})).await;
            let asked = client.next_ask().await;
            let options = asked["params"]["options"].as_array().unwrap().iter();
            assert!(options.map(|option| &option["name"]).eq(["red", "green", "Let the agent decide"]));
            client.answer(&asked, option).await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!(script.last_result(), expected);
        })
        .await;
    }
}

#[tokio::test]
async fn an_open_question_survives_a_reconnect_and_is_settled_by_a_cancel() {
    check(COLOUR, async |server, _| {
        let (mut first, session, _) = client(server, json!({})).await;
        first.next_ask().await;
        first.vanish();
        let mut second = server.connect();
        second.initialize_with(forms()).await;
        second.load(&session).await;
        let asked = second.next_call().await;
        second.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(second.next_withdrawn().await, asked["id"]);
        server.idle(&session).await;
        second.catch_up(&session).await;
    })
    .await;
}

#[tokio::test]
async fn the_first_answer_to_a_question_wins_in_every_dialect() {
    for dialect in [Dialect::Ferret, Dialect::Otter] {
        check(COLOUR, async |server, script| {
            let (mut editor, session, turn) = client(server, forms()).await;
            let asked = editor.next_call().await;
            let mut older = server.older_client(dialect).await;
            older.call("session/load", json!({ "sessionId": session })).await;
            let update = older.next_of("permission_request").await;
            let request = if dialect == Dialect::Otter { &update["update"] } else { &update };
            assert_eq!(request["question"], "Which colour?");
            assert_eq!(request["choices"], json!(["red", "green"]));
            let params = match dialect {
                Dialect::Ferret => json!({ "sessionId": session, "id": request["id"], "answer": "red" }),
                _ => json!({ "requestId": request["requestId"], "answer": "red" }),
            };
            let mut wrong = params.clone();
            wrong["answer"] = "blue".into();
            older.refused("permission/respond", wrong).await;
            older.call("permission/respond", params).await;
            assert_eq!(editor.next_withdrawn().await, asked["id"]);
            assert_eq!(editor.stop_reason(turn).await, "end_turn");
            assert_eq!(script.last_result(), "the user answered: red");
            editor.respond(&asked, json!({ "action": "accept", "content": { "answer": "green" } })).await;
        })
        .await;
    }
}

#[tokio::test]
async fn where_nobody_can_answer_the_agent_decides_at_once() {
    let script = Script::new([vec![call("ask_user", WHY)], vec![say("I see")]]);
    let mut setup = Setup::script(&script);
    setup.limits.attended = false;
    run(setup, async |server| {
        let (mut client, _, turn) = client(server, forms()).await;
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert_eq!(
            script.last_result(),
            "no answer: nobody is available to answer; decide yourself, and state what you assumed"
        );
    })
    .await;
}
