//! Sessions in folders of another program, and the ids of ferret's and otter's own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Body, BoxFuture, CallerKind, Content, Event, FolderEntry, FolderSession, HistoryPiece, Origin, Principal,
    Seq, SessionFolders, SessionId, SessionRow, Stop, SurfaceId, Timestamp, TurnId,
};
use serde_json::{Value, json};
use server::ConnectionParts;
use service::ServiceRules;
use testkit::server::{OlderClient, Server, Setup, run};
use testkit::{Script, say};
use wire::Dialect::{self, Ferret, Otter};
use wire::DialectSelection;

const FERRET: &str = "ferret-20230101T000000-0000000a";
const OTTER: &str = "otter-20230101T000001-0000000b";

/// One session of each program, which worked in this folder.
struct Folders(PathBuf);

fn entries() -> Vec<FolderEntry> {
    let entry = |(name, at)| FolderEntry { id: SessionId::parse(name).unwrap(), updated_at: Timestamp(at) };
    [(FERRET, 1000), (OTTER, 2000)].map(entry).into()
}

impl SessionFolders for Folders {
    fn entries(&self) -> BoxFuture<'_, Vec<FolderEntry>> {
        Box::pin(std::future::ready(entries()))
    }

    fn has(&self, id: &SessionId) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(entries().iter().any(|entry| entry.id == *id)))
    }

    fn describe(&self, entries: Vec<FolderEntry>) -> BoxFuture<'_, Vec<SessionRow>> {
        let row = |entry: FolderEntry| SessionRow {
            id: entry.id,
            owner: Principal::local(),
            cwd: self.0.clone(),
            roots: Vec::new(),
            parent: None,
            source: "ferret".into(),
            title: Some("an old one".into()),
            created_at: entry.updated_at,
            updated_at: entry.updated_at,
            busy: false,
            last_seq: Seq::START,
        };
        Box::pin(std::future::ready(entries.into_iter().map(row).collect()))
    }

    fn read(&self, id: &SessionId) -> BoxFuture<'_, Result<Option<FolderSession>, String>> {
        let found = entries().iter().any(|entry| entry.id == *id).then(|| {
            let (sender, history) = tokio::sync::mpsc::channel(2);
            sender.try_send(HistoryPiece::Events(story())).unwrap();
            sender.try_send(HistoryPiece::End).unwrap();
            let (title, parent, created_at) = (Some("an old one".into()), None, Timestamp(1000));
            FolderSession { cwd: Some(self.0.clone()), title, parent, created_at, history }
        });
        Box::pin(std::future::ready(Ok(found)))
    }
}

/// A turn of another program.
fn story() -> Vec<Event> {
    let by = Origin::Surface { id: SurfaceId(0), name: "chimera".into(), request: None, remote: None };
    let event = |body| Event {
        seq: Seq::START,
        at: Timestamp(1000),
        origin: by.clone(),
        turn: Some(TurnId(1)),
        body,
        relayed: None,
    };
    vec![
        event(Body::TurnStarted),
        event(Body::UserMessage { content: vec![Content::text("before")] }),
        event(Body::TurnEnded { stop: Stop::EndTurn, error: None }),
    ]
}

fn setup(cwd: PathBuf) -> Setup {
    let script = Script::new([vec![say("after")]]);
    Setup { folders: Some(Arc::new(Folders(cwd))), ..Setup::script(&script).on_disk() }
}

async fn client(server: &mut Server, parts: ConnectionParts) -> OlderClient {
    let mut client = server.connect_older_with(parts);
    client.call("initialize", json!({})).await;
    client
}

async fn ids(client: &mut OlderClient, params: Value) -> (Vec<String>, Value) {
    let list = client.call("session/list", params).await;
    let ids = list["sessions"].as_array().unwrap().iter().map(|row| row["sessionId"].as_str().unwrap());
    (ids.map(str::to_owned).collect(), list["nextCursor"].clone())
}

/// C7: in its own program's lists, among ours, and no longer twice once it is one of ours.
#[tokio::test]
async fn a_folder_is_listed_loaded_and_gone_on_with() {
    let cwd = tempfile::tempdir().unwrap();
    run(setup(cwd.path().to_owned()), async |server| {
        let mut client = server.older_client(Ferret).await;
        assert_eq!(ids(&mut client, json!({})).await.0, [FERRET]);
        let loaded = client.call("session/load", json!({ "sessionId": FERRET })).await;
        assert_eq!(loaded["sessionId"], FERRET);
        let told = client.take_updates();
        assert!(told.iter().any(|update| update["kind"] == "user_message" && update["text"] == "before"));
        assert_eq!(client.message(FERRET, "and now?").await["output"], "after");
        drop(client);
        server.restart().await;
        let mut client = server.older_client(Ferret).await;
        let list = client.call("session/list", json!({})).await;
        assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
        let listed = &list["sessions"][0];
        assert_eq!((&listed["sessionId"], &listed["title"]), (&json!(FERRET), &json!("an old one")));
        let cwd = cwd.path().canonicalize().unwrap();
        assert_eq!(listed["cwd"], json!(cwd));
        let mut otter = server.older_client(Otter).await;
        let (listed, _) = ids(&mut otter, json!({})).await;
        assert_eq!(listed, [FERRET, OTTER]);
        assert_eq!(otter.call("session/resume", json!({ "sessionId": OTTER })).await["sessionId"], OTTER);
        let mut official = server.client().await;
        let list = official.call("session/list", json!({})).await;
        assert_eq!(list["sessions"].as_array().unwrap().len(), 2, "{list}");
    })
    .await;
}

#[tokio::test]
async fn folders_are_on_pages_like_other_sessions() {
    let cwd = tempfile::tempdir().unwrap();
    let rules = ServiceRules { list_max: 1, ..ServiceRules::default() };
    run(Setup { rules, ..setup(cwd.path().to_owned()) }, async |server| {
        let mut client = server.older_client(Ferret).await;
        let ours = client.new_session().await;
        client.message(&ours, "hi").await;
        let (first, cursor) = ids(&mut client, json!({})).await;
        assert_eq!(first, [ours]);
        let (second, cursor) = ids(&mut client, json!({ "cursor": cursor })).await;
        assert_eq!((second.as_slice(), cursor), ([FERRET.to_owned()].as_slice(), Value::Null));
    })
    .await;
}

/// Only the owner at the machine learns of folders: neither a named client, nor whoever has a session's token or comes
/// over a bridge, who act for the owner from elsewhere.
#[tokio::test]
async fn nobody_else_learns_of_folders() {
    let cwd = tempfile::tempdir().unwrap();
    run(setup(cwd.path().to_owned()), async |server| {
        let ci = server.connection_parts(Principal("ci".into()));
        let far = ConnectionParts {
            kind: CallerKind::OwnerElsewhere,
            ..server.connection_parts(Principal::local())
        };
        for parts in [ci, far] {
            let mut other =
                client(server, ConnectionParts { dialect: wire::DialectSelection::Only(Ferret), ..parts })
                    .await;
            assert!(ids(&mut other, json!({})).await.0.is_empty());
            for method in ["session/load", "session/resume", "session/fork"] {
                let refused = other.refused(method, json!({ "sessionId": FERRET })).await;
                assert!(refused.message.contains("not found") || refused.code == -32601, "{refused:?}");
            }
        }
        let mut owner = server.older_client(Ferret).await;
        assert_eq!(ids(&mut owner, json!({})).await.0, [FERRET]);
    })
    .await;
}

/// Where sessions must stay in some folders, one that worked elsewhere is not taken in.
#[tokio::test]
async fn a_session_that_worked_where_none_may_is_refused() {
    let (cwd, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = Some(vec![open.path().to_owned()]);
    let rules = ServiceRules { places, home_dir: open.path().to_owned(), ..ServiceRules::default() };
    run(Setup { rules, ..setup(cwd.path().to_owned()) }, async |server| {
        let mut client = server.older_client(Ferret).await;
        let refused = client.refused("session/load", json!({ "sessionId": FERRET })).await;
        assert!(refused.message.contains("--allow-dir"), "{refused:?}");
        assert!(server.registry().row(&Principal::local(), &entries()[0].id).await.is_err());
    })
    .await;
}

/// C2: `ferret-20231114T2213-0123abcd`, also of copies; the official protocol has random ids.
#[tokio::test]
async fn the_ids_of_new_sessions_say_which_dialect_they_are_of() {
    run(Setup::offline(), async |server| {
        for (dialect, prefix) in [(Ferret, "ferret-"), (Otter, "otter-")] {
            let mut client = server.older_client(dialect).await;
            let (first, second) = (client.new_session().await, client.new_session().await);
            let copy = client.call("session/fork", json!({ "sessionId": first })).await;
            let copy = copy["sessionId"].as_str().unwrap().to_owned();
            for id in [&first, &second, &copy] {
                assert_eq!(id.get(..prefix.len() + 14), Some(&*format!("{prefix}20231114T2213-")), "{id}");
                let digits = &id[prefix.len() + 14..];
                assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
            }
            assert!(first != second && second != copy);
        }
        let mut official = server.client().await;
        let id = official.new_session().await;
        assert!(id.len() == 36 && id.as_bytes()[8] == b'-', "{id}");
        assert_eq!(Dialect::Acp.id_prefix(), None);
    })
    .await;
}

/// A history says where its session has been, and whoever imports it may have written it. A person at the machine may go
/// where it was; somebody elsewhere goes nowhere that is not open to them.
#[tokio::test]
async fn an_imported_history_opens_no_folder_to_somebody_elsewhere() {
    run(Setup::offline(), async |server| {
        let parts = server.connection_parts(Principal::local());
        let rules = ServiceRules { home_dir: server.workspace(), ..parts.rules.clone() }.confined();
        let dialect = DialectSelection::Only(Dialect::Acp);
        let kind = CallerKind::OwnerElsewhere;
        let mut client = server.connect_older_with(ConnectionParts { kind, rules, dialect, ..parts });
        client.call("initialize", json!({ "protocolVersion": 1 })).await;
        let events = json!([{ "event_type": "moved", "payload": { "cwd": "/" } }]);
        let id = client.call("_session/import", json!({ "events": events })).await["session_id"].clone();
        let here = server.workspace();
        client.call("session/load", json!({ "sessionId": id, "cwd": here, "mcpServers": [] })).await;
        let away = json!({ "session_id": id, "path": "/etc" });
        let refused = client.refused("_agent/working_dir/update", away).await;
        assert_eq!(refused.message, "/etc is outside the folders of this session");
        client.take_updates();
    })
    .await;
}
