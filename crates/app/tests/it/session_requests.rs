//! Where sessions may be, how they are found, and what can be asked of them besides.

use std::collections::BTreeMap;

use testkit::server::{Setup, run, write};
use testkit::{Script, call, say};
use wire::native::{Decision, FileMatch, PAGE_CARDS, ReplyBody, Request, SessionCard};

use testkit::app_client::{AppHarness, Client};

fn open(folder: Option<&std::path::Path>, settings: &[(&str, &str)]) -> Request {
    let settings = settings.iter().map(|(id, value)| ((*id).to_owned(), (*value).to_owned()));
    Request::Open { folder: folder.map(|path| path.display().to_string()), settings: settings.collect() }
}

#[tokio::test]
async fn sessions_open_where_the_server_opens_and_as_they_are_wanted() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let (inside, outside) = (server.workspace().join("inside"), server.folder("outside"));
        std::fs::create_dir(&inside).unwrap();
        for folder in [outside.as_path(), "/no/such/folder".as_ref(), "inside".as_ref()] {
            assert_eq!(client.refused(open(Some(folder), &[])).await.code, "forbidden", "{folder:?}");
        }
        write(server.workspace().join("file"), "");
        let file = server.workspace().join("file");
        assert_eq!(client.refused(open(Some(&file), &[])).await.code, "badRequest");
        for settings in [[("mode", "no such mode")], [("colour", "blue")]] {
            assert_eq!(client.refused(open(None, &settings)).await.code, "badRequest");
        }
        let all = Request::Sessions { before: None, search: None };
        assert!(matches!(client.ask(all).await, Ok(ReplyBody::Sessions { cards, .. }) if cards.is_empty()));
        let opened = client.ask(open(Some(&inside), &[("mode", "ask"), ("approval", "strict")])).await;
        let Ok(ReplyBody::SessionOpened { session }) = opened else { panic!("a session: {opened:?}") };
        client.watch(&session, None).await;
        let state = client.state(&session);
        assert_eq!(state.folder, inside.display().to_string());
        let value = |id: &str| state.settings.iter().find(|setting| setting.id == id).unwrap().value.clone();
        assert_eq!((value("mode").as_str(), value("approval").as_str()), ("ask", "strict"));
        let offer = client.ask(Request::Offer { folder: None }).await;
        let Ok(ReplyBody::Offer { settings, commands, .. }) = offer else { panic!("an offer: {offer:?}") };
        assert!(settings.len() > 2 && !commands.is_empty());
        house.close().await;
    })
    .await;
}

async fn page(
    client: &mut Client,
    before: Option<String>,
    search: Option<&str>,
) -> (Vec<SessionCard>, Option<String>) {
    let request = Request::Sessions { before, search: search.map(str::to_owned) };
    match client.ask(request).await {
        Ok(ReplyBody::Sessions { cards, older }) => (cards, older),
        other => panic!("sessions: {other:?}"),
    }
}

#[tokio::test]
async fn sessions_are_listed_by_pages_and_found_by_words() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        for number in 0..=PAGE_CARDS {
            let session = client.open().await;
            let title = format!("  Number   {number} ");
            client.done(Request::Rename { session, title }).await;
        }
        let (first, older) = page(&mut client, None, None).await;
        assert_eq!(first.len(), PAGE_CARDS);
        let (second, end) = page(&mut client, older, None).await;
        assert_eq!((second.len(), end), (1, None));
        let (found, _) = page(&mut client, None, Some("NUMBER 42 workspace")).await;
        assert_eq!(
            found.iter().map(|card| card.title.as_deref().unwrap()).collect::<Vec<_>>(),
            ["Number 42"]
        );
        let mut late = house.client("laptop").await;
        assert_eq!(late.cards.len(), PAGE_CARDS);
        assert!(late.older.is_some());
        let odd = Request::Sessions { before: Some("yesterday".into()), search: None };
        assert_eq!(late.refused(odd).await.code, "badRequest");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn files_are_found_by_a_few_letters() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let session = client.open().await;
        write(server.workspace().join("notes.txt"), "");
        std::os::unix::fs::symlink("/etc", server.workspace().join("elsewhere")).unwrap();
        let mut find = async |text: &str| {
            let found = client.ask(Request::FindFiles { session: session.clone(), text: text.into() }).await;
            let Ok(ReplyBody::Files { files }) = found else { panic!("files: {found:?}") };
            files
        };
        assert_eq!(find("NOT").await, [FileMatch { path: "notes.txt".into() }]);
        assert_eq!(find("passwd").await, [], "links lead nowhere");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_no_says_why_and_a_question_has_a_reply() {
    let script = Script::new([
        vec![call("write", r#"{"path":"a.txt","text":"x\n"}"#)],
        vec![call("ask_user", r#"{"question":"which?","choices":["red","blue"]}"#)],
        vec![say("done")],
    ]);
    run(Setup::script(&script), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("phone").await;
        let Ok(ReplyBody::SessionOpened { session }) =
            client.ask(open(None, &[("approval", "suggest")])).await
        else {
            panic!("a session");
        };
        client.watch(&session, None).await;
        let turn = client.prompt(&session, "k", "go").await;
        let answer = |ask, decision, text: Option<&str>| Request::Answer {
            session: session.clone(),
            ask,
            decision,
            text: text.map(str::to_owned),
        };
        client.until("a wish", |client| client.state(&session).asks.len() == 1).await;
        let wish = client.state(&session).asks[0].clone();
        assert!(wish.question.is_none() && wish.diffs.len() == 1 && wish.row.is_some());
        let wordless = client.refused(answer(wish.ask, Decision::Reply, None)).await;
        assert_eq!(wordless.code, "badRequest");
        client.done(answer(wish.ask, Decision::DenyOnce, Some("not that file"))).await;
        client
            .until("a question", |client| {
                client.state(&session).asks.first().is_some_and(|ask| ask.question.is_some())
            })
            .await;
        let question = client.state(&session).asks[0].ask;
        let odd = client.refused(answer(question, Decision::Reply, Some("green"))).await;
        assert!(odd.code == "badRequest" && odd.message.contains("red, blue"), "{odd:?}");
        client.done(answer(question, Decision::Reply, Some("blue"))).await;
        client.ended(&session, turn).await;
        let words = client.shown(&session).words().join("\n");
        assert!(words.contains(r#"which? Some("blue") Some("phone")"#), "{words}");
        assert!(script.requests().iter().any(|request| format!("{request:?}").contains("not that file")));
        let settings = BTreeMap::new();
        assert!(client.ask(Request::Open { folder: None, settings }).await.is_ok());
        house.close().await;
    })
    .await;
}
