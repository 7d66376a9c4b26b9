//! What the documents of ferret, its cloud bridge and otter say about ids and the event log: `~/.chimera/eventlog/`,
//! its folders listed, loaded and gone on with, and the same layout written.
//!
//! What stays different on purpose:
//! - `differs_no_event_log_is_written_unless_somebody_names_a_folder`: sessions are kept in one place, and chimera's folder is
//!   chimera's own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::web::Ask;
use crate::seeds::program::{self, DEADLINE, Program, http_server};

const LOOK_EVERY: Duration = Duration::from_millis(20);

pub const FERRET: &str = "ferret-20260430T1230-1f3c2a8b";
const OTTER: &str = "otter-20260501T0900-2a8b1f3c";

/// A session as chimera's programs leave it.
pub fn chimeras(home: &TempDir, name: &str) -> PathBuf {
    let folder = home.path().join(".chimera/eventlog").join(name);
    fs::create_dir_all(&folder).unwrap();
    let summary = json!({
        "run_id": name, "started_at": "2026-04-30T12:30:00+00:00", "ended_at": "2026-04-30T12:31:00+00:00",
        "model": "gpt-5", "prompt": "fix the build", "cwd": home.path().join("work"), "agent": "ferret",
        "steps": 1, "tool_calls_total": 1, "success": true, "cost_usd": 0.25, "total_tokens": 0, "error": null,
    });
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
    let events = [
        ("user_message", json!({ "content": "fix the build" })),
        ("tool_call", json!({ "tool_name": "bash", "call_id": "1", "arguments": { "command": "make" } })),
        ("tool_result", json!({ "call_id": "1", "output": "ok", "success": true })),
        ("agent_result", json!({ "output": "It builds.", "success": true, "cost": 0.25 })),
    ];
    for (at, (kind, metadata)) in events.iter().enumerate() {
        let id = format!("{at:08x}");
        let event = json!({
            "idx": at, "event_id": id, "type": kind, "timestamp": 100.5 + f64::from(u8::try_from(at).unwrap()),
            "metadata": metadata,
        });
        fs::write(folder.join(format!("event-{at:06}-{id}.json")), event.to_string()).unwrap();
    }
    fs::write(folder.join(".lock"), "").unwrap();
    folder
}

fn cli(home: &TempDir, arguments: &[&str]) -> Output {
    program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), home, arguments).output().unwrap()
}

#[track_caller]
fn done(home: &TempDir, arguments: &[&str]) -> String {
    let output = cli(home, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json_of(home: &TempDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(home, arguments)).unwrap()
}

fn listed(list: &Value) -> Vec<&str> {
    list["result"]["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["sessionId"].as_str().unwrap())
        .collect()
}

pub fn is_id(id: &str, prefix: &str) -> bool {
    let stamp = |text: &str| {
        text.len() == 13
            && text.bytes().enumerate().all(|(at, b)| if at == 8 { b == b'T' } else { b.is_ascii_digit() })
    };
    let parts: Vec<_> = id.split('-').collect();
    let hex = |text: &str| {
        text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    matches!(parts.as_slice(), [first, at, random] if *first == prefix && stamp(at) && hex(random))
}

/// The only folder in an event log.
#[track_caller]
fn only_folder(log: &Path) -> PathBuf {
    let mut folders: Vec<_> = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.pop().unwrap()
}

/// The events in a folder, in the order of their names.
fn events(folder: &Path) -> Vec<Value> {
    let names: BTreeSet<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_event = |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("event-");
    let read = |path: &PathBuf| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    names.iter().filter(is_event).map(read).collect()
}

fn summary(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("summary.json")).unwrap()).unwrap()
}

/// 000, 002, 003, C2: `session=ferret-20260430T1230-...`, `otter-...`.
#[test]
fn new_sessions_have_the_ids_of_their_program() {
    for program in ["ferret", "otter"] {
        let mut server = Program::start(&["serve", "--dialect", program]);
        server.call(1, "initialize", &json!({}));
        let (_, first) = server.call(2, "session/new", &json!({}));
        let (_, second) = server.call(3, "session/new", &json!({}));
        let ids = [&first, &second].map(|answer| answer["result"]["sessionId"].as_str().unwrap());
        assert!(ids.iter().all(|id| is_id(id, program)) && ids[0] != ids[1], "{ids:?}");
        // Nobody asked for an event log.
        assert!(!server.home.path().join(".chimera").exists());
        server.close();
    }
}

/// 000, C7: "List known sessions under `~/.chimera/eventlog/ferret-*/`"; 003: "Sessions persist across `session/load`
/// calls via `~/.chimera/eventlog/otter-<id>/`".
#[test]
fn chimeras_own_sessions_are_listed_loaded_and_gone_on_with() {
    let home = program::home();
    let folder = chimeras(&home, FERRET);
    chimeras(&home, OTTER);
    fs::create_dir(home.path().join(".chimera/eventlog/ferret-20260101T000000-empty000")).unwrap();
    let before = events(&folder);
    for (program, own) in [("ferret", FERRET), ("otter", OTTER)] {
        let mut server = Program::start_in(&home, &["serve", "--dialect", program]);
        server.call(1, "initialize", &json!({}));
        let (_, new) = server.call(2, "session/new", &json!({}));
        let new = new["result"]["sessionId"].clone();
        server.call(3, "session/message", &json!({ "sessionId": new, "message": "hello" }));
        let (_, list) = server.call(4, "session/list", &json!({}));
        let ids = listed(&list);
        assert!(ids.contains(&own) && ids.contains(&new.as_str().unwrap()), "{list}");
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{list}");
        let shown =
            &list["result"]["sessions"].as_array().unwrap().iter().find(|row| row["sessionId"] == own);
        assert_eq!(shown.unwrap()["title"], "fix the build", "{list}");
        let (told, loaded) = server.call(5, "session/load", &json!({ "sessionId": own }));
        assert_eq!(loaded["result"]["sessionId"], own, "{loaded}");
        let told = json!(told).to_string();
        assert!(told.contains("fix the build") && told.contains("It builds."), "{told}");
        let ask = json!({ "sessionId": own, "message": "what did I say?" });
        let (_, answer) = server.call(6, "session/message", &ask);
        assert!(answer["result"]["output"].as_str().unwrap().contains("fix the build"), "{answer}");
        let (code, log) = server.close();
        assert_eq!(code, Some(0), "{log}");
        assert!(program == "otter" || log.contains("ferret-20260101T000000-empty000"), "{log}");
    }
    // Chimera's files are as they were, and the session is there once.
    assert_eq!(events(&folder), before);
    let mut server = Program::start_in(&home, &["serve", "--dialect", "ferret"]);
    server.call(1, "initialize", &json!({}));
    let (_, list) = server.call(2, "session/list", &json!({}));
    assert_eq!(listed(&list).iter().filter(|id| **id == FERRET).count(), 1, "{list}");
    server.call(3, "session/delete", &json!({ "sessionId": FERRET }));
    let (_, list) = server.call(4, "session/list", &json!({}));
    assert!(!listed(&list).contains(&FERRET), "a deleted session comes back: {list}");
    server.close();
}

/// `CHIMERA_HOME` moves `~/.chimera`.
#[test]
fn chimeras_home_can_be_elsewhere() {
    let (home, other) = (program::home(), program::home());
    chimeras(&other, OTTER);
    let arguments = ["sessions", "list", "--all-clis", "--json"];
    let mut command = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &home, &arguments);
    let output = command.env("CHIMERA_HOME", other.path().join(".chimera")).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["sessions"][0]["id"], OTTER, "{list}");
}

/// T1, T2, T3 and 002: "The bridge logs to the standard ferret eventlog": with `--eventlog`, every session is written
/// in that layout, whatever it came through.
#[test]
fn sessions_are_written_to_the_event_log() {
    let home = program::home();
    let log = home.path().join("log");
    let option = log.to_str().unwrap().to_owned();
    let mut server = Program::start_in(&home, &["serve", "--dialect", "ferret", "--eventlog", &option]);
    server.call(1, "initialize", &json!({}));
    let (_, new) = server.call(2, "session/new", &json!({}));
    let id = new["result"]["sessionId"].as_str().unwrap().to_owned();
    server.call(3, "session/message", &json!({ "sessionId": id, "message": "list" }));
    server.close();
    let folder = only_folder(&log);
    assert_eq!(folder, log.join(&id));
    let written = events(&folder);
    for (at, event) in written.iter().enumerate() {
        let keys: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["idx", "event_id", "type", "timestamp", "metadata"]);
        assert_eq!(event["idx"], json!(at));
        let name = format!("event-{at:06}-{}.json", event["event_id"].as_str().unwrap());
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let kinds: BTreeSet<_> = written.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in ["user_message", "tool_call", "tool_result", "agent_result"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let told = summary(&folder);
    assert_eq!((&told["run_id"], &told["prompt"]), (&json!(id), &json!("list")));
    assert_eq!((&told["success"], &told["tool_calls_total"]), (&json!(true), &json!(1)));
    assert!(told["model"].is_string() && folder.join(".lock").exists(), "{told}");
    // Another process goes on where this one ended.
    done(&home, &["run", "--resume", &id, "--eventlog", &option, "hello"]);
    let after = events(&folder);
    assert_eq!(after[..written.len()], written);
    assert!(after.len() > written.len());
    let seqs: Vec<_> =
        after.iter().map(|event| event["metadata"]["ropewalk"]["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    assert_eq!(summary(&folder)["steps"], 2);
    // And it comes back.
    let imported = json_of(&home, &["sessions", "import", folder.to_str().unwrap(), "--json"]);
    assert_eq!(imported["events"], json!(after.len()), "{imported}");
    assert_eq!(imported["warnings"], json!([]));
}

/// A server that was killed has written what it showed, or writes it when the session is opened next.
#[test]
fn a_killed_server_leaves_no_gap_in_the_event_log() {
    let home = program::home();
    let log = home.path().join("log");
    let arguments = ["serve", "--dialect", "otter", "--eventlog", log.to_str().unwrap()];
    let mut server = Program::start_in(&home, &arguments);
    server.call(1, "initialize", &json!({}));
    let (_, new) = server.call(2, "session/new", &json!({}));
    let id = new["result"]["sessionId"].as_str().unwrap().to_owned();
    server.call(3, "session/message", &json!({ "sessionId": id, "message": "stream 200" }));
    // Killed where it is.
    drop(server);
    let mut server = Program::start_in(&home, &arguments);
    server.call(1, "initialize", &json!({}));
    server.call(2, "session/load", &json!({ "sessionId": id }));
    server.call(3, "session/message", &json!({ "sessionId": id, "message": "hello" }));
    server.close();
    let exported = home.path().join("export.json");
    done(&home, &["sessions", "export", &id, "-o", exported.to_str().unwrap()]);
    let exported: Value = serde_json::from_str(&fs::read_to_string(exported).unwrap()).unwrap();
    let ours: Vec<_> = exported["events"].as_array().unwrap().iter().map(|event| &event["seq"]).collect();
    let written = events(&log.join(&id));
    let theirs: Vec<_> = written.iter().map(|event| &event["metadata"]["ropewalk"]["seq"]).collect();
    assert_eq!(theirs, ours);
    let indexes: Vec<_> = written.iter().map(|event| event["idx"].as_u64().unwrap()).collect();
    assert_eq!(indexes, (0..written.len() as u64).collect::<Vec<_>>());
}

/// 000, 002, 003: the documents have sessions in `~/.chimera/eventlog/`, whoever made them. Here a session is in the store, and
/// what is written in that layout is a copy: a second place with everything that was said is for whoever asks for it, and
/// no program writes unasked into another one's folder, also not by its name. The documents' folder is one option away.
#[test]
fn differs_no_event_log_is_written_unless_somebody_names_a_folder() {
    for (program, wanted) in [("ferret", false), ("otter", false), ("ferret", true), ("otter", true)] {
        let home = program::home();
        let log = home.path().join(".chimera/eventlog");
        let option = ["--eventlog", log.to_str().unwrap()];
        let mut arguments = vec![program, "serve"];
        if wanted {
            arguments.extend(option);
        }
        let mut server = Program::named(&home, "chimera", &arguments);
        server.call(1, "initialize", &json!({}));
        let (_, new) = server.call(2, "session/new", &json!({}));
        let id = new["result"]["sessionId"].as_str().unwrap().to_owned();
        server.call(3, "session/message", &json!({ "sessionId": id, "message": "list" }));
        server.close();
        assert!(is_id(&id, program), "{id}");
        assert_eq!(log.join(&id).join("summary.json").is_file(), wanted, "{program}");
        assert_eq!(home.path().join(".chimera").exists(), wanted, "{program}");
    }
}

/// What could not write the event log is said once and stops nobody.
#[test]
fn an_event_log_that_cannot_be_written_stops_nobody() {
    let home = program::home();
    fs::write(home.path().join("file"), "").unwrap();
    let log = home.path().join("file/log");
    let mut server =
        Program::start_in(&home, &["serve", "--dialect", "ferret", "--eventlog", log.to_str().unwrap()]);
    server.call(1, "initialize", &json!({}));
    for number in 2..5 {
        let (_, new) = server.call(number * 10, "session/new", &json!({}));
        let id = &new["result"]["sessionId"];
        let (_, answer) =
            server.call(number * 10 + 1, "session/message", &json!({ "sessionId": id, "message": "list" }));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    let (code, said) = server.close();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("could not write the event log").count(), 1, "{said}");
    assert!(said.contains(log.to_str().unwrap()), "{said}");
}

/// Secrets are out of the log before anybody reads it.
#[test]
fn no_secret_gets_into_the_event_log() {
    let home = program::home();
    let log = home.path().join("log");
    done(
        &home,
        &["run", "--eventlog", log.to_str().unwrap(), "my key is ghp_4fGh7Jk2Lm9Np3Qr5St8Uv1Wx6Yz0Ab2Cd4E"],
    );
    let folder = only_folder(&log);
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("4fGh7Jk2"), "{text}");
    }
}

/// T6: `--no-save` leaves nothing on disk.
#[test]
fn without_saving_nothing_is_on_disk() {
    let home = program::home();
    let state = home.path().join(".local/state/ropewalk");
    let before = |folder: &Path| folder.join("sessions.db").exists();
    let output = cli(&home, &["run", "--no-save", "hello"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!before(&state), "a store was made");
    assert!(!home.path().join(".chimera").exists());
    let both = cli(&home, &["run", "--no-save", "--eventlog", "/tmp", "hello"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

/// C30.
#[test]
fn sessions_are_listed_shown_renamed_and_counted() {
    let home = program::home();
    chimeras(&home, FERRET);
    let mut server = Program::start_in(&home, &["serve", "--dialect", "ferret"]);
    server.call(1, "initialize", &json!({}));
    let (_, new) = server.call(2, "session/new", &json!({}));
    let session = &new["result"]["sessionId"];
    server.call(3, "session/setModel", &json!({ "sessionId": session, "model": "offline:terse" }));
    server.call(4, "session/message", &json!({ "sessionId": session, "message": "hello" }));
    server.close();
    let ours = json_of(&home, &["sessions", "list", "--json"]);
    assert_eq!(ours["sessions"].as_array().unwrap().len(), 1, "{ours}");
    let id = ours["sessions"][0]["id"].as_str().unwrap().to_owned();
    let all = json_of(&home, &["sessions", "list", "--all-clis", "--json"]);
    let clis: BTreeSet<_> =
        all["sessions"].as_array().unwrap().iter().map(|row| row["cli"].as_str().unwrap()).collect();
    assert_eq!(clis, BTreeSet::from(["ferret", "ropewalk"]));
    let table = done(&home, &["sessions", "list", "--all-clis"]);
    assert!(table.contains(FERRET) && table.contains("fix the build") && table.contains(&id), "{table}");
    for (model, expected) in [("offline:terse", id.as_str()), ("gpt-5", FERRET)] {
        let found = json_of(&home, &["sessions", "list", "--all-clis", "--model", model, "--json"]);
        assert_eq!(
            (&found["sessions"][0]["id"], found["sessions"].as_array().unwrap().len()),
            (&json!(expected), 1)
        );
    }
    let one = json_of(&home, &["sessions", "list", "--all-clis", "--limit", "1", "--json"]);
    assert_eq!((one["sessions"].as_array().unwrap().len(), &one["more"]), (1, &json!(1)));
    assert_eq!(
        json_of(&home, &["sessions", "list", "--since", "1h", "--json"])["sessions"][0]["id"],
        json!(id)
    );
    for command in
        [["sessions", "list", "--since", "yesterday"], ["sessions", "cost", "--since", "yesterday"]]
    {
        assert_eq!(cli(&home, &command).status.code(), Some(2));
    }
    let text = done(&home, &["sessions", "show", FERRET]);
    assert!(text.contains("fix the build") && text.contains("It builds."), "{text}");
    assert_eq!(json_of(&home, &["sessions", "cost", FERRET, "--json"])["total"]["cost_usd"], json!(0.25));
    let cost = json_of(&home, &["sessions", "cost", "--model", "terse", "--limit", "5", "--json"]);
    assert_eq!(cost["sessions"][0]["session_id"], json!(id), "{cost}");
    assert_eq!(json_of(&home, &["sessions", "cost", "--model", "gpt", "--json"])["sessions"], json!([]));
    // To look takes nothing in.
    assert_eq!(json_of(&home, &["sessions", "list", "--json"])["sessions"].as_array().unwrap().len(), 1);
    done(&home, &["sessions", "rename", FERRET, "the build"]);
    let ours = json_of(&home, &["sessions", "list", "--json"]);
    let titles: BTreeSet<_> =
        ours["sessions"].as_array().unwrap().iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(titles, BTreeSet::from(["hello", "the build"]));
}

/// 003: "the same directory layout used by `chimera otter sessions`": what `session/list` shows, the command lists, and of
/// the other programs' folders those of its own kind.
#[test]
fn the_sessions_command_of_a_program_lists_the_folders_of_its_kind() {
    let home = program::home();
    chimeras(&home, FERRET);
    chimeras(&home, OTTER);
    for (program, own, other) in [("otter", OTTER, FERRET), ("ferret", FERRET, OTTER)] {
        for arguments in [&[program, "sessions"][..], &[program, "sessions", "list"]] {
            let table = done(&home, arguments);
            assert!(table.contains(own) && !table.contains(other), "{arguments:?}: {table}");
        }
        let all = json_of(&home, &[program, "sessions", "list", "--all-clis", "--json"]);
        assert_eq!(all["sessions"].as_array().unwrap().len(), 2, "{all}");
        let show = done(&home, &[program, "sessions", "show", own]);
        assert!(show.contains("It builds."), "{show}");
    }
    // Our own command lists what is ours, unless it is asked for all.
    assert_eq!(json_of(&home, &["sessions", "list", "--json"])["sessions"], json!([]));
}

/// C31: a session of chimera's, and the newest of the folder.
#[test]
fn a_single_prompt_goes_on_with_an_old_session() {
    let home = program::home();
    chimeras(&home, OTTER);
    let said = done(&home, &["run", "--resume", OTTER, "what did I say?"]);
    assert!(said.contains("fix the build"), "{said}");
    done(&home, &["run", "hello"]);
    let said = done(&home, &["run", "-c", "what did I say?"]);
    assert!(said.contains("hello") && !said.contains("fix the build"), "{said}");
    let mut chat = Program::start_in(&home, &["chat", "--alone", "--plain", "--resume", OTTER]);
    chat.line("what did I say?");
    let (code, _) = chat.close();
    assert_eq!(code, Some(0));
    let events = json_of(&home, &["sessions", "show", OTTER, "--json"]);
    let turns =
        events["events"].as_array().unwrap().iter().filter(|event| event["event_type"] == "turn_started");
    assert_eq!(turns.count(), 3, "{events}");
}

/// C32: a copy has a new id and says what it is a copy of, also in the event log.
#[test]
fn a_copy_names_its_parent() {
    let home = program::home();
    chimeras(&home, FERRET);
    let log = home.path().join("log");
    let copy = json_of(&home, &["sessions", "fork", FERRET, "--json"]);
    assert_eq!(copy["parent_id"], FERRET);
    let last = json_of(&home, &["sessions", "fork", "--last", "--json"]);
    assert_eq!(last["parent_id"], copy["session_id"]);
    let last = json_of(&home, &["sessions", "fork", "--last", "--all", "--json"]);
    let id = last["session_id"].as_str().unwrap();
    done(&home, &["run", "--resume", id, "--eventlog", log.to_str().unwrap(), "hello"]);
    let told = summary(&only_folder(&log));
    assert_eq!(told["parent_id"], last["parent_id"], "{told}");
    assert_eq!(told["prompt"], "fix the build");
    for wrong in
        [&["sessions", "fork", FERRET, "--last"][..], &["sessions", "fork"], &["sessions", "fork", "--all"]]
    {
        assert_eq!(cli(&home, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// T1: the folder appears while the session runs, over HTTP as over everything else, and a server for one dialect gives
/// sessions of its REST interface that dialect's ids.
#[test]
fn a_session_over_http_is_written_and_named_alike() {
    let home = program::home();
    let log = home.path().join("log");
    let log_folder = log.to_str().unwrap();
    let arguments =
        ["serve", "--dialect", "otter", "--http", "127.0.0.1:0", "--stdio", "--eventlog", log_folder];
    let server = http_server(&home, "ropewalk", &arguments, "ROPEWALK_SERVER_TOKEN");
    let post = |path: &str, body: Value| {
        Ask::post(path, &body.to_string()).token(program::TOKEN).send(&server).json()
    };
    let answer = post("/session", json!({}));
    let id = answer["session_id"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(is_id(id, "otter"), "{answer}");
    post(&format!("/session/{id}/message"), json!({ "text": "hello" }));
    let folder = log.join(id);
    wait_for("the answer in the event log", || {
        folder.exists() && events(&folder).iter().any(|event| event["type"] == "agent_result")
    });
    let unsaved = post("/session", json!({ "persist": false }));
    assert_eq!(unsaved["error"], "unsupported_field", "{unsaved}");
    assert!(post("/session", json!({ "persist": true }))["session_id"].is_string());
    assert_eq!(server.stop().0, Some(0));
}

/// Waits for something that another process does and tells nobody. It looks from time to time: the processor is for
/// whoever does it.
#[track_caller]
fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_there() {
        assert!(since.elapsed() < DEADLINE, "{what} does not come");
        std::thread::sleep(LOOK_EVERY);
    }
}
