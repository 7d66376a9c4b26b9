//! A session of any length opens at its end, with as much as is shown and no more.

use engine::{NewSessionRequest, PageRequest, Principal, Seq};
use testkit::server::{Server, Setup, run};
use testkit::{Script, long_log};
use wire::native::fold::Rows;
use wire::native::{PAGE_ROWS, ReplyBody, Request, Row, RowContent, WINDOW_ROWS};

use testkit::app_client::{AppHarness, Client};

async fn import(server: &Server, events: usize, turns: Option<usize>) -> String {
    let wish = NewSessionRequest::new(Principal::local(), server.workspace(), "import");
    let handle = server.registry().import(wish, None, long_log(events, turns)).await.unwrap();
    handle.id().to_string()
}

/// All rows of a session, as nobody ever needs them.
async fn all_rows(server: &Server, session: &str) -> Vec<Row> {
    let (id, mut after) = (engine::SessionId::parse(session).unwrap(), Seq::START);
    let mut rows = Rows::default();
    loop {
        let events =
            server.registry().read(&Principal::local(), &id, after, PageRequest::USUAL).await.unwrap();
        let Some(last) = events.last() else { break };
        after = last.seq;
        events.iter().for_each(|event| rows.observe(event));
    }
    rows.iter().cloned().collect()
}

async fn earlier(client: &mut Client, session: &str, before: u64) -> (Vec<Row>, bool) {
    match client.ask(Request::EarlierRows { session: session.into(), before }).await {
        Ok(ReplyBody::Rows { rows, earlier }) => (rows, earlier),
        other => panic!("rows: {other:?}"),
    }
}

/// Opens the session at its end and pages back a little.
async fn check(events: usize, turns: Option<usize>) {
    run(Setup::script(&Script::new([])).on_disk(), async |server| {
        let session = import(server, events, turns).await;
        server.restart().await;
        let all = all_rows(server, &session).await;
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        client.watch(&session, None).await;
        let shown: Vec<Row> = client.shown(&session).rows.values().cloned().collect();
        assert_eq!(shown, &all[all.len() - WINDOW_ROWS..]);
        assert!(client.shown(&session).earlier);
        let bytes = serde_json::to_vec(&shown).unwrap().len();
        assert!(bytes < 600_000, "{bytes} bytes are told");
        let (mut end, mut first) = (all.len() - WINDOW_ROWS, shown[0].id);
        for _ in 0..3 {
            let (page, more) = earlier(&mut client, &session, first).await;
            assert_eq!(page, &all[end - PAGE_ROWS..end]);
            assert!(more);
            (end, first) = (end - PAGE_ROWS, page[0].id);
        }
        let (page, more) = earlier(&mut client, &session, all[10].id).await;
        assert_eq!((page.as_slice(), more), (&all[..10], false));
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_of_many_turns_opens_at_its_end() {
    check(100_000, None).await;
}

#[tokio::test]
async fn a_session_of_one_endless_turn_opens_at_its_end() {
    check(40_000, Some(1)).await;
}

#[tokio::test]
async fn a_row_that_is_cut_can_be_had_whole() {
    let text = "word ".repeat(20_000);
    let script = Script::new([vec![testkit::say(text.clone())]]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        client.watch(&session, None).await;
        let turn = client.prompt(&session, "k", "talk").await;
        client.ended(&session, turn).await;
        let said = client.shown(&session).rows.values().find_map(|row| match &row.what {
            RowContent::AgentMessage { text, more } => Some((row.id, text.len(), *more)),
            _ => None,
        });
        let (row, shown, more) = said.unwrap();
        assert_eq!(shown as u64 + more, text.len() as u64);
        let whole = client.ask(Request::FullRow { session: session.clone(), row }).await;
        let Ok(ReplyBody::Rows { rows, .. }) = whole else { panic!("the row: {whole:?}") };
        assert!(matches!(&rows[0].what, RowContent::AgentMessage { text: all, more: 0 } if *all == text));
        let none = client.refused(Request::FullRow { session: session.clone(), row: 9999 }).await;
        assert_eq!(none.code, "notFound");
        house.close().await;
    })
    .await;
}
