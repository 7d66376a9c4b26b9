//! The options of a server, as its clients see them.

use embed::{Dialect, FunctionBackend, ServerParts, ServiceRules, Stop, TurnContext};
use serde_json::json;

use crate::test_server::check;

/// Says as many messages as the prompt has bytes.
fn wordy() -> FunctionBackend {
    FunctionBackend::new(|input, context: TurnContext| async move {
        let embed::Content::Text(text) = &input.content[0] else { return Ok(Stop::Refusal) };
        for _ in text.bytes() {
            context.text(context.new_message(), "word").await?;
        }
        Ok(Stop::EndTurn)
    })
}

/// CC9.
#[tokio::test]
async fn a_program_chooses_its_name_and_version() {
    check(
        |home| ServerParts::new(wordy(), home).named("harbour", "3.2.1"),
        async |test_server| {
            let hello = test_server.connect().initialize().await;
            assert_eq!(hello["agentInfo"]["name"], "harbour");
            assert_eq!(hello["agentInfo"]["version"], "3.2.1");
            assert_eq!(hello["protocolVersion"], 1);
        },
    )
    .await;
}

/// CC9: the dialect (and with it the version of the protocol), the folder, and how much is told again.
#[tokio::test]
async fn a_program_chooses_the_dialect_and_how_much_is_told_again() {
    let otter = |home| {
        let parts = ServerParts::new(wordy(), home);
        let rules = ServiceRules { history_max: 3, ..parts.rules };
        ServerParts { dialect: Some(Dialect::Otter), rules, ..parts }
    };
    check(otter, async |test_server| {
        let mut client = test_server.connect_older();
        let hello = client.call("initialize", json!({})).await;
        assert_ne!(hello["protocolVersion"], 1);
        let opened = client.call("session/new", json!({})).await;
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        client.message(&session, "12345678").await;
        assert!(client.take_updates().len() > 3);
        let answer = client.call("session/resume", json!({ "sessionId": session })).await;
        assert_eq!((&answer["replayed"], &answer["truncated"]), (&json!(3), &json!(true)));
    })
    .await;
}
