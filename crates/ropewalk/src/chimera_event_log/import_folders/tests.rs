use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tempfile::TempDir;

use super::*;

const FERRET: &str = "ferret-20260430T123000-1f3c2a8b";
const OTTER: &str = "otter-20260501T090000-00000001";

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

/// A folder as chimera writes it, last active so many seconds after 1970.
fn session(root: &Path, name: &str, seconds: u64) {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    let summary = json!({
        "run_id": name, "started_at": "2026-04-30T12:30:00Z", "model": "gpt-5", "prompt": "fix the build",
        "cwd": root, "agent": "ferret", "steps": 1, "parent_id": OTTER,
    });
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
    let events = [
        json!({ "type": "user_message", "metadata": { "content": "fix the build" } }),
        json!({ "type": "agent_result", "metadata": { "output": "done", "success": true } }),
    ];
    for (at, event) in events.iter().enumerate() {
        fs::write(folder.join(format!("event-{at:06}-0000000{at}.json")), event.to_string()).unwrap();
    }
    touch(&folder, seconds);
}

fn touch(folder: &Path, seconds: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(folder).unwrap().set_modified(at).unwrap();
}

/// Everything that is sent; an error if it does not come to its end.
async fn history(mut found: FolderSession) -> Result<Vec<engine::Event>, String> {
    let mut events = Vec::new();
    loop {
        match found.history.recv().await {
            Some(HistoryPiece::Events(piece)) => events.extend(piece),
            Some(HistoryPiece::End) => return Ok(events),
            Some(HistoryPiece::Failed(reason)) => return Err(reason),
            None => return Err("it broke off".into()),
        }
    }
}

#[tokio::test]
async fn folders_are_listed_by_name_and_time_and_described_by_their_summary() {
    let root = TempDir::new().unwrap();
    session(root.path(), FERRET, 1000);
    session(root.path(), OTTER, 2000);
    session(root.path(), "mink-20260430T123000-1f3c2a8b", 3000);
    fs::write(root.path().join("ferret-file"), "").unwrap();
    symlink(root.path().join(FERRET), root.path().join("ferret-link")).unwrap();
    let folders = ChimeraFolders::new(root.path().to_owned());
    let mut entries = folders.entries().await;
    entries.sort_by_key(|entry| entry.updated_at);
    let at = |name, ms| FolderEntry { id: id(name), updated_at: Timestamp(ms) };
    assert_eq!(entries, [at(FERRET, 1_000_000), at(OTTER, 2_000_000)]);
    assert!(folders.has(&id(FERRET)).await && !folders.has(&id("ferret-link")).await);
    let rows = folders.describe(entries).await;
    let row = &rows[0];
    assert_eq!((row.id.as_str(), row.title.as_deref()), (FERRET, Some("fix the build")));
    assert_eq!((&*row.source, row.cwd.as_path()), ("ferret", root.path()));
    assert_eq!((row.parent.clone(), row.updated_at), (Some(id(OTTER)), Timestamp(1_000_000)));
    let none = ChimeraFolders::new(root.path().join("nowhere"));
    assert!(none.entries().await.is_empty() && !none.has(&id(FERRET)).await);
    assert!(none.read(&id(FERRET)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_is_read_with_its_history() {
    let root = TempDir::new().unwrap();
    session(root.path(), FERRET, 1000);
    let folders = ChimeraFolders::new(root.path().to_owned());
    let found = folders.read(&id(FERRET)).await.unwrap().unwrap();
    assert_eq!(found.cwd.as_deref(), Some(root.path()));
    assert_eq!(found.created_at, wire::timestamp::parse("2026-04-30T12:30:00Z").unwrap());
    assert_eq!(history(found).await.unwrap().len(), 4);
    assert!(folders.read(&id("ferret-unknown")).await.unwrap().is_none());
    assert!(folders.read(&id("0b5e5d0a-0000-4000-8000-000000000000")).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_no_session_or_hostile_is_left_out_and_refused() {
    let root = TempDir::new().unwrap();
    let folders = ChimeraFolders::new(root.path().to_owned());
    let make = |name: &str| {
        session(root.path(), name, 1000);
        root.path().join(name).join("summary.json")
    };
    fs::create_dir(root.path().join("ferret-empty")).unwrap();
    fs::write(make("ferret-torn"), "{\"run_id\": ").unwrap();
    fs::write(make("ferret-list"), "[]").unwrap();
    fs::write(make("ferret-deep"), format!("{{\"a\":{}{}}}", "[".repeat(9999), "]".repeat(9999))).unwrap();
    File::create(make("ferret-huge")).unwrap().set_len(2 << 20).unwrap();
    let linked = make("ferret-linked");
    fs::remove_file(&linked).unwrap();
    symlink("/etc/passwd", &linked).unwrap();
    let pipe = make("ferret-pipe");
    fs::remove_file(&pipe).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let entries = folders.entries().await;
    assert_eq!(entries.len(), 7);
    assert_eq!(folders.describe(entries.clone()).await, []);
    for entry in entries {
        assert!(folders.read(&entry.id).await.is_err(), "{}", entry.id);
    }
}

/// What is wrong with one file costs that file, and stands in the session.
#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_in_the_session() {
    let root = TempDir::new().unwrap();
    session(root.path(), FERRET, 1000);
    let folder = root.path().join(FERRET);
    symlink("/etc/passwd", folder.join("event-000002-00000002.json")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("event-000003-00000003.json"), rustix::fs::Mode::RUSR)
        .unwrap();
    fs::write(folder.join("event-000004-00000004.json"), "{").unwrap();
    let found = ChimeraFolders::new(root.path().to_owned()).read(&id(FERRET)).await.unwrap().unwrap();
    let events = history(found).await.unwrap();
    let notices: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            engine::Body::Notice { text, .. } => Some(text.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!((events.len(), notices.len()), (7, 3), "{notices:?}");
    assert!(notices[0].contains("it is a link") && notices[1].contains("not a regular file"), "{notices:?}");
}

/// A list of thousands reads no more than their names and times.
#[tokio::test]
async fn only_the_newest_of_very_many_are_listed() {
    let root = TempDir::new().unwrap();
    for number in 0..FOLDERS_MAX + 5 {
        fs::create_dir(root.path().join(format!("otter-{number:05}"))).unwrap();
    }
    for number in 0..5 {
        touch(&root.path().join(format!("otter-{number:05}")), 1000);
    }
    let entries = ChimeraFolders::new(root.path().to_owned()).entries().await;
    assert_eq!(entries.len(), FOLDERS_MAX);
    assert!(entries.iter().all(|entry| entry.updated_at > Timestamp(1_000_000)));
}
