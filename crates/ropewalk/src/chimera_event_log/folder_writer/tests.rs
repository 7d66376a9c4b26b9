use std::os::unix::fs::PermissionsExt;

use engine::{
    Content, MessageId, Origin, Principal, SessionId, Stop, SurfaceId, Timestamp, ToolStart, TurnId,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const ID: &str = "ferret-20260430T123000-1f3c2a8b";

fn described() -> SessionMeta {
    let row = SessionRow {
        id: SessionId::parse(ID).unwrap(),
        owner: Principal::local(),
        cwd: "/home/project".into(),
        roots: Vec::new(),
        parent: Some(SessionId::parse("ferret-parent").unwrap()),
        source: "ferret".into(),
        title: Some("the build".into()),
        created_at: Timestamp(1_777_552_200_000),
        updated_at: Timestamp(1_777_552_200_000),
        busy: false,
        last_seq: Seq::START,
    };
    SessionMeta { row, model: Some("gpt-5".into()) }
}

fn event(seq: u64, origin: Origin, body: Body) -> Arc<Event> {
    let at = Timestamp(1_777_552_200_000 + i64::try_from(seq).unwrap());
    Arc::new(Event { seq: Seq(seq), at, origin, turn: Some(TurnId(1)), body, relayed: None })
}

/// A turn that somebody began at another machine.
fn story() -> Vec<Arc<Event>> {
    let remote = Some("alice".into());
    let by = Origin::Surface { id: SurfaceId(1), name: "web".into(), request: None, remote };
    let call = ToolStart {
        kind: engine::ToolKind::Execute,
        input: engine::Opaque("{\"command\":\"make\"}".into()),
        ..ToolStart::new(engine::CallId("c1".into()), "shell".into(), "make".into())
    };
    let text = |text: &str| Body::Text { message: MessageId(1), text: text.into() };
    vec![
        event(1, by.clone(), Body::TurnStarted),
        event(2, by, Body::UserMessage { content: vec![Content::text("fix it")] }),
        event(3, Origin::Agent, text("I ")),
        event(4, Origin::Agent, Body::ToolStarted(Box::new(call))),
        event(7, Origin::Agent, text("did")),
        event(8, Origin::Agent, Body::TurnEnded { stop: Stop::EndTurn, error: None }),
    ]
}

fn writer(root: &Path, known: u64) -> FolderWriter {
    FolderWriter::open(root, &described().row, Seq(known)).unwrap()
}

/// The files with events, by name and content.
fn files(root: &Path) -> Vec<(String, Value)> {
    let folder = SessionFolder::open(&root.join(ID)).unwrap();
    let file = |(_, name): (u64, String)| {
        let text = folder.text(&name, 1 << 20).unwrap();
        (name, serde_json::from_str(&text).unwrap_or_default())
    };
    folder.events().unwrap().into_iter().map(file).collect()
}

fn positions(root: &Path) -> Vec<(u64, u64)> {
    let files = files(root);
    let position =
        |file: &Value| Some((file["idx"].as_u64()?, file["metadata"]["ropewalk"]["seq"].as_u64()?));
    files.iter().filter_map(|(_, file)| position(file)).collect()
}

/// T1, T2, T3, O15.
#[test]
fn a_session_is_written_as_chimera_writes_it_and_for_its_owner_alone() {
    let root = TempDir::new().unwrap();
    let log = root.path().join("deep/log");
    let mut writer = writer(&log, 0);
    writer.write(&described(), &story()).unwrap();
    writer.finish(&described()).unwrap();
    let files = files(&log);
    assert_eq!(files.len(), 6);
    for (at, (name, file)) in files.iter().enumerate() {
        let id = file["event_id"].as_str().unwrap();
        assert_eq!(*name, format!("event-{at:06}-{id}.json"));
        assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let keys: Vec<_> = file.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["idx", "event_id", "type", "timestamp", "metadata"]);
        assert_eq!((file["idx"].as_u64(), file["timestamp"].is_f64()), (Some(at as u64), true));
        let bridge = (at < 2).then(|| json!({ "origin": "bridge", "remote_user": "alice" }));
        assert_eq!(file["metadata"].get("bridge"), bridge.as_ref(), "{file}");
    }
    let kinds: Vec<_> = files.iter().map(|(_, file)| file["type"].as_str().unwrap()).collect();
    let wanted = ["turn_started", "user_message", "text_delta", "tool_call", "text_delta", "agent_result"];
    assert_eq!(kinds, wanted);
    assert_eq!(files[5].1["metadata"]["output"], "I did");
    let summary = SessionFolder::open(&log.join(ID)).unwrap().summary().unwrap().unwrap();
    let keys = [
        "run_id",
        "started_at",
        "ended_at",
        "model",
        "prompt",
        "cwd",
        "agent",
        "steps",
        "tool_calls_total",
        "success",
        "cost_usd",
        "total_tokens",
        "error",
        "title",
        "parent_id",
    ];
    assert!(keys.iter().all(|key| summary.get(key).is_some()), "{summary}");
    assert_eq!((&summary["run_id"], &summary["prompt"]), (&json!(ID), &json!("fix it")));
    assert_eq!((&summary["model"], &summary["parent_id"]), (&json!("gpt-5"), &json!("ferret-parent")));
    assert_eq!((&summary["steps"], &summary["tool_calls_total"]), (&json!(1), &json!(1)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log), mode(&log.join(ID))), (0o700, 0o700));
    let mut names: Vec<_> = fs::read_dir(log.join(ID)).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.iter().all(|path| mode(path) == 0o600), "{names:?}");
    assert_eq!((names.len(), names[0].file_name().unwrap()), (8, LOCK.as_ref()));
}

/// What is written twice is there once, whatever was written when the process ended.
#[test]
fn it_goes_on_after_a_restart_without_doubling() {
    for end in 0..=story().len() {
        let root = TempDir::new().unwrap();
        let mut first = writer(root.path(), 0);
        first.write(&described(), &story()[..end]).unwrap();
        drop(first);
        let mut second = writer(root.path(), 0);
        second.write(&described(), &story()).unwrap();
        assert_eq!(positions(root.path()), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 7), (5, 8)], "{end}");
        let answer = &files(root.path())[5].1["metadata"]["output"];
        assert_eq!(*answer, json!("I did"), "{end}");
    }
}

/// A power cut may leave the last files empty: their events are written again, under the next numbers.
#[test]
fn torn_files_are_passed_over() {
    let root = TempDir::new().unwrap();
    writer(root.path(), 0).write(&described(), &story()[..4]).unwrap();
    for (name, _) in &files(root.path())[2..] {
        fs::write(root.path().join(ID).join(name), "").unwrap();
    }
    fs::write(root.path().join(ID).join(".event-000004-00000000.json.part"), "{").unwrap();
    writer(root.path(), 0).write(&described(), &story()).unwrap();
    assert_eq!(positions(root.path()), [(0, 1), (1, 2), (4, 3), (5, 4), (6, 7), (7, 8)]);
}

/// A session that was taken in from the very folder that it is written to.
#[test]
fn what_chimera_wrote_stays_and_is_not_written_again() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join(ID)).unwrap();
    let theirs = json!({ "type": "user_message", "metadata": { "content": "fix it" } }).to_string();
    let file = root.path().join(ID).join("event-000000-0000000a.json");
    fs::write(&file, &theirs).unwrap();
    writer(root.path(), 4).write(&described(), &story()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
    assert_eq!(positions(root.path()), [(1, 7), (2, 8)]);
    writer(root.path(), 8).write(&described(), &story()).unwrap();
    assert_eq!(positions(root.path()), [(1, 7), (2, 8)]);
}

#[test]
fn what_cannot_be_written_is_an_error_and_follows_no_link() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    assert!(FolderWriter::open(&root.path().join("file"), &described().row, Seq::START).is_err());
    let mut writer = writer(root.path(), 0);
    let victim = root.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, root.path().join(ID).join(".summary.json.part")).unwrap();
    assert!(writer.write(&described(), &story()).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

/// Whoever has the lock is waited for.
#[test]
fn another_process_in_the_folder_is_waited_for() {
    let root = TempDir::new().unwrap();
    let mut writer = writer(root.path(), 0);
    let held = lock(&root.path().join(ID)).unwrap();
    let (started, waits) = std::sync::mpsc::sync_channel(1);
    let writing = std::thread::spawn(move || {
        started.send(()).unwrap();
        writer.write(&described(), &story())
    });
    waits.recv().unwrap();
    assert_eq!(positions(root.path()), []);
    drop(held);
    writing.join().unwrap().unwrap();
    assert_eq!(positions(root.path()).len(), 6);
}

/// What is written here is what `sessions import` and a load take in.
#[test]
fn it_comes_back_whole() {
    let root = TempDir::new().unwrap();
    writer(root.path(), 0).write(&described(), &story()).unwrap();
    let folder = SessionFolder::open(&root.path().join(ID)).unwrap();
    let mut reader = chimera_archive::Reader::new(&folder.summary().unwrap().unwrap());
    for (index, name) in folder.events().unwrap() {
        reader.take(&folder.event(index, name));
    }
    let imported = reader.finish();
    assert_eq!(imported.warnings, Vec::<String>::new());
    assert_eq!(imported.title.as_deref(), Some("the build"));
    let story: Vec<_> = story().iter().map(|event| Event::clone(event)).collect();
    let read: Vec<_> = imported.events;
    assert_eq!(read.len(), story.len());
    for (read, written) in read.iter().zip(&story) {
        assert_eq!((&read.body, &read.origin, read.at), (&written.body, &written.origin, written.at));
    }
}
