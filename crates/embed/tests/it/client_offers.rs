//! What a client can do for the agent, and how the agent learns that it cannot.

use std::sync::{Arc, Mutex};

use embed::{
    AskRequest, FunctionBackend, HostError, HostLink, PermissionOutcome, ServerParts, SessionLimits, Stop,
    ToolClass, TurnContext, TurnError,
};
use expect_test::expect;
use serde_json::{Value, json};

use crate::test_server::{TestServer, check, check_agent};

/// Says what its client offers.
fn curious() -> FunctionBackend {
    FunctionBackend::new(|_, context: TurnContext| async move {
        let can = |name, there: bool| if there { name } else { "-" };
        let said = [
            can("read", context.host(|can| can.read).is_some()),
            can("write", context.host(|can| can.write).is_some()),
            can("terminal", context.host(|can| can.terminal).is_some()),
            can("asked", context.attended()),
            can("cancelled", context.cancel.is_cancelled()),
        ];
        context.text(context.new_message(), said.join(" ")).await?;
        Ok(Stop::EndTurn)
    })
}

async fn offers(capabilities: Value) -> String {
    let mut said = String::new();
    check_agent(curious(), async |test_server| {
        let mut client = test_server.connect();
        client.initialize_with(capabilities).await;
        let session = client.new_session().await;
        client.prompt(&session, "what can I do?").await;
        said = client.said();
    })
    .await;
    said
}

/// CC2.
#[tokio::test]
async fn what_the_client_cannot_do_is_not_there() {
    assert_eq!(offers(json!({})).await, "- - - asked -");
    assert_eq!(offers(json!({ "fs": { "readTextFile": true } })).await, "read - - asked -");
    assert_eq!(
        offers(json!({ "fs": { "readTextFile": true, "writeTextFile": true } })).await,
        "read write - asked -"
    );
    assert_eq!(offers(json!({ "terminal": true })).await, "- - terminal asked -");
}

/// CC2: the way to ask for permission is always there; where nobody can come, the answer is no.
#[tokio::test]
async fn where_nobody_can_be_asked_the_answer_is_no() {
    let agent = FunctionBackend::new(|_, context: TurnContext| async move {
        let wish = AskRequest::new("launch", "Launch the rocket", ToolClass::Execute);
        let allowed = context.ask(wish).await? == PermissionOutcome::Allowed;
        context.text(context.new_message(), format!("{} {allowed}", context.attended())).await?;
        Ok(Stop::EndTurn)
    });
    let alone = |home| {
        let mut parts = ServerParts::new(agent, home);
        parts.sessions.limits = SessionLimits { attended: false, ..SessionLimits::default() };
        parts
    };
    check(alone, async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        client.prompt(&session, "go").await;
        assert_eq!(client.said(), "false false");
    })
    .await;
}

type HostErrors = Arc<Mutex<Vec<HostError>>>;

/// Asks its client for a file, as often as the prompt says, all at once; notes what went wrong.
fn reader(heard: &HostErrors) -> FunctionBackend {
    let (heard, kept) = (Arc::clone(heard), Arc::<Mutex<Option<HostLink>>>::default());
    FunctionBackend::new(move |input, context: TurnContext| {
        let (heard, kept) = (Arc::clone(&heard), Arc::clone(&kept));
        async move {
            let found = context.host(|can| can.read);
            let link = found.or_else(|| kept.lock().unwrap().clone());
            let link = link.ok_or_else(|| TurnError("no client can read".into()))?;
            *kept.lock().unwrap() = Some(link.clone());
            let embed::Content::Text(wish) = &input.content[0] else { return Ok(Stop::Refusal) };
            let times: usize = wish.parse().unwrap();
            let failed = first_failure((0..times).map(|_| link.read_text("/a".into(), None, None))).await;
            heard.lock().unwrap().extend(failed);
            Ok(Stop::EndTurn)
        }
    })
}

/// Waits for all of them at once, until one fails.
async fn first_failure<T>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, HostError>>>,
) -> Option<HostError> {
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    std::future::poll_fn(move |waker| {
        for index in (0..calls.len()).rev() {
            match calls[index].as_mut().poll(waker) {
                std::task::Poll::Ready(Err(error)) => return std::task::Poll::Ready(Some(error)),
                std::task::Poll::Ready(Ok(_)) => drop(calls.swap_remove(index)),
                std::task::Poll::Pending => {}
            }
        }
        if calls.is_empty() { std::task::Poll::Ready(None) } else { std::task::Poll::Pending }
    })
    .await
}

/// A client that reads files, with a session.
async fn reading(test_server: &mut TestServer) -> (testkit::server::Client, String) {
    let mut client = test_server.connect();
    client.initialize_with(json!({ "fs": { "readTextFile": true } })).await;
    let session = client.new_session().await;
    (client, session)
}

/// CC7: what goes well is no error, and every other end has a name. Time stands still unless everybody waits for it.
#[tokio::test(start_paused = true)]
async fn each_way_that_a_client_fails_its_agent_has_a_name() {
    let heard = HostErrors::default();
    check_agent(reader(&heard), async |test_server| {
        let (mut client, session) = reading(test_server).await;
        let turn = client.send_prompt(&session, "1").await;
        client.serve(turn, |_, _| Some(Ok(json!({ "content": "text" })))).await;
        let turn = client.send_prompt(&session, "1").await;
        client.serve(turn, |_, _| Some(Err("no such file"))).await;
        let turn = client.send_prompt(&session, "1").await;
        client.serve(turn, |_, _| Some(Ok(json!({ "content": 1 })))).await;
        let turn = client.send_prompt(&session, "1").await;
        client.serve(turn, |_, _| None).await;
        let turn = client.send_prompt(&session, "65").await;
        client.serve(turn, |_, _| None).await;
        client.drain_withdrawn();
        client.send_prompt(&session, "1").await;
        let _unanswered = client.next_call().await;
        client.vanish();
        test_server.all_hung_up().await;
        let mut another = test_server.client().await;
        another.load(&session).await;
        another.prompt(&session, "1").await;
    })
    .await;
    let heard: Vec<_> = heard.lock().unwrap().iter().map(|error| format!("{error:?}: {error}\n")).collect();
    expect![[r#"
        Refused("no such file"): the editor refused: no such file
        Malformed: the editor's answer is malformed
        TimedOut: the editor did not answer in time
        Busy: the editor has too many unanswered requests
        Gone: the editor disconnected
        Away: no editor is connected
    "#]]
    .assert_eq(&heard.concat());
}
