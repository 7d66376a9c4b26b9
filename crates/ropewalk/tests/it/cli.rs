//! Commands of the real binary: their output and exit codes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use store::sql::{SqliteDb, migrate};

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

/// A home of its own for each test, and a folder to work in.
#[derive(Default)]
struct World(WorkFolder);

impl World {
    fn project(&self) -> PathBuf {
        self.0.path("project")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env("ROPEWALK_HOME", self.0.path("home"));
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        CommandOutput::of(child)
    }

    /// A new session with one turn; its id.
    fn session(&self, prompt: &str) -> String {
        self.run(&["run", "--json", prompt]).with(0).json()["session_id"].as_str().unwrap().to_owned()
    }

    /// The session as it is shown, without its id.
    fn shown(&self, id: &str) -> String {
        self.run(&["sessions", "show", "--full", id]).with(0).out.replace(id, "ID")
    }

    fn titles(&self, arguments: &[&str]) -> Vec<String> {
        let listed = self.run(&[&["sessions", "list", "--json"], arguments].concat()).with(0).json();
        let title = |session: &Value| session["title"].as_str().unwrap_or("-").to_owned();
        listed["sessions"].as_array().unwrap().iter().map(title).collect()
    }
}

/// H17, H16: what a project brings is listed, and `run` can use it.
#[test]
fn agents_are_listed_and_shown() {
    let world = World::default();
    let agents = world.project().join(".ropewalk/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(
        agents.join("docs.md"),
        "---\ndescription: Writes docs\nmode: primary\ntools: [read]\n---\nBe \u{1b}[31mbrief.",
    )
    .unwrap();
    let listed = world.run(&["agents", "modes"]).with(0).out;
    assert!(listed.contains("code") && listed.contains("explore"), "{listed}");
    assert!(listed.contains("docs             primary   Writes docs ("), "{listed}");
    let shown = world.run(&["agents", "modes", "docs"]).with(0).out;
    assert!(
        shown.contains("tools: read\n") && shown.contains("brief.") && !shown.contains('\u{1b}'),
        "{shown}"
    );
    let json = world.run(&["agents", "modes", "docs", "--json"]).with(0).json();
    assert_eq!((json["mode"].as_str(), json["read_only"].as_bool()), (Some("primary"), Some(true)));
    let missing = world.run(&["agents", "modes", "nope"]).with(5);
    assert!(missing.err.contains("docs"), "{}", missing.err);
    let refused = world.run(&["run", "--mode", "docs", "--json", "write a.txt: x"]).with(0).json();
    assert!(!world.project().join("a.txt").exists(), "{refused}");
    world.run(&["run", "--mode", "nope", "x"]).with(2);
}

/// Waits until the child has begun its turn and ends it with a signal.
fn interrupted(mut child: Child, signal: Signal) -> CommandOutput {
    let mut begun = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    kill_process(Pid::from_child(&child), signal).unwrap();
    CommandOutput::of(child)
}

#[test]
fn an_answer_is_on_standard_output_and_the_rest_is_not() {
    let world = World::default();
    let run = world.run(&["run", "write a.txt: hello && then run touch b.txt"]).with(0);
    assert!(run.out.contains("I created a.txt"), "{}", run.out);
    assert!(!run.out.contains('•') && run.err.contains("• Write a.txt"), "{}", run.err);
    assert!(run.err.contains("nobody is available to ask"), "{}", run.err);
    assert!(!run.err.contains('\x1b'), "{}", run.err);
    assert_eq!(fs::read_to_string(world.project().join("a.txt")).unwrap(), "hello\n");
    assert!(!world.project().join("b.txt").exists());
    world.run(&["run", "-c", "--approval", "full", "run touch b.txt"]).with(0);
    assert!(world.project().join("b.txt").exists());
}

#[test]
fn what_one_run_is_allowed_ends_with_it() {
    let world = World::default();
    world.run(&["run", "--approval", "full", "run touch a.txt"]).with(0);
    world.run(&["run", "-c", "run touch b.txt"]).with(0);
    assert!(world.project().join("a.txt").exists() && !world.project().join("b.txt").exists());
    let arguments = ["run", "-c", "--approval", "full", "--format", "stream-json", "sleep 60000"];
    interrupted(world.command(&arguments).spawn().unwrap(), Signal::INT).with(130);
    world.run(&["run", "-c", "run touch c.txt"]).with(0);
    assert!(!world.project().join("c.txt").exists());
}

#[test]
fn a_terminal_is_not_given_what_it_would_obey() {
    let world = World::default();
    fs::write(world.project().join("a.txt"), "red \x1b[31mtext\rover\r\n").unwrap();
    let run = world.run(&["run", "read a.txt && then \x1b]0;title\x07"]).with(0);
    let shown = world.run(&["sessions", "show", "--full", &only_session(&world)]).with(0).out;
    assert!(shown.contains("[31mtext"), "{shown}");
    for text in [run.out, run.err, shown, world.run(&["sessions", "list"]).with(0).out] {
        assert!(!text.contains(['\x1b', '\x07']) && !text.replace("\r\n", "").contains('\r'), "{text:?}");
    }
}

fn only_session(world: &World) -> String {
    let listed = world.run(&["sessions", "list", "--json"]).with(0).json();
    listed["sessions"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_export_is_for_its_owner_and_goes_through_no_link() {
    let world = World::default();
    let id = world.session("hello");
    let victim = world.project().join("victim");
    fs::write(&victim, "mine").unwrap();
    for (name, beginning) in [("x.html", "<!doctype html>"), ("x.md", "# "), ("x.json", "{")] {
        let path = world.project().join(name);
        symlink(&victim, world.project().join(format!(".{name}.part"))).unwrap();
        symlink(&victim, &path).unwrap();
        world.run(&["sessions", "export", &id, "-o", name]).with(0);
        assert!(fs::read_to_string(&path).unwrap().starts_with(beginning), "{name}");
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600, "{name}");
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
}

#[test]
fn without_a_home_nothing_is_written() {
    let world = World::default();
    for arguments in [&["sessions", "list"][..], &["run", "hello"], &["serve"]] {
        let mut command = world.command(arguments);
        command.env_remove("ROPEWALK_HOME").env_remove("XDG_STATE_HOME").env_remove("HOME");
        let failed = CommandOutput::of(command.spawn().unwrap()).with(1);
        assert!(failed.err.contains("set HOME, or set ROPEWALK_HOME"), "{}", failed.err);
    }
    assert_eq!(fs::read_dir(world.project()).unwrap().count(), 0);
    let relative = world.command(&["run", "hello"]).env("ROPEWALK_HOME", "here").spawn().unwrap();
    CommandOutput::of(relative).with(0);
    assert!(world.project().join("here/sessions.db").exists());
}

#[test]
fn troubles_are_told_once_and_not_logged_besides() {
    let world = World::default();
    fs::write(world.0.path("home"), "not a folder").unwrap();
    for arguments in [&["sessions", "list"][..], &["sessions", "show", "abc"]] {
        let failed = world.run(arguments).with(1);
        assert!(failed.err.starts_with("error: ") && failed.err.lines().count() <= 3, "{}", failed.err);
        assert!(!failed.err.contains("WARN") && !failed.err.contains("ERROR"), "{}", failed.err);
    }
}

#[test]
fn a_turn_is_one_object_or_a_line_per_event() {
    let world = World::default();
    let result = world.run(&["run", "--json", "read nothing.txt"]).with(0).json();
    assert_eq!(result["stop_reason"], "end_turn");
    assert_eq!(result["tools"][0]["tool"], "read");
    assert_eq!(result["tools"][0]["status"], "failed");
    assert!(result["usage"]["input_tokens"].as_u64().unwrap() > 0);

    let run = world.run(&["run", "--format", "stream-json", "fail"]).with(1);
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, events) = lines.split_last().unwrap();
    assert_eq!((&last["type"], &last["stop_reason"]), (&"result".into(), &"failed".into()));
    assert!(last["error"].is_string());
    assert!(events.iter().all(|event| event["session_id"] == last["session_id"]));
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["event_type"], "turn_ended");
}

#[test]
fn a_session_goes_on_where_it_was() {
    let world = World::default();
    let id = world.session("remember the word rope");
    world.session("something else");
    let resumed = world.run(&["run", "--resume", &id[..8], "what did I say?"]).with(0);
    assert!(resumed.out.contains("remember the word rope"), "{}", resumed.out);
    let newest = world.run(&["run", "--json", "-c", "--model", "offline:terse", "list"]).with(0).json();
    assert_eq!(newest["session_id"], id.as_str());
    world.run(&["run", "-c", "-C", "/", "hello"]).with(5);
}

#[test]
fn what_cannot_be_asked_for_is_said_in_a_few_lines() {
    let world = World::default();
    for arguments in [
        &["run", ""][..],
        &["run", "--model", "nope", "x"],
        &["run", "--approval", "some", "x"],
        &["run", "--cwd", "/no/such/folder", "x"],
        &["run", "-f", "missing.txt", "x"],
        &["run", "-f", "-", "-"],
        &["run", "--image", "/etc/hostname", "x"],
        &["run", "--image", "missing.png", "x"],
        &["sessions", "list", "--since", "soon"],
        &["sessions", "fork", "abc", "--last"],
        &["sessions", "fork"],
        &["sessions", "show", "a/b"],
        &["nonsense"],
        &["--max-sessions", "3", "sessions", "list"],
        &["serve", "--allow-dir", "/no/such/folder"],
    ] {
        let ended = world.run(arguments).with(2);
        assert_eq!(ended.out, "", "{arguments:?}");
        assert!(ended.err.starts_with("error: "), "{arguments:?}: {}", ended.err);
    }
    for arguments in [
        &["run", "--resume", "abc", "x"][..],
        &["run", "-c", "x"],
        &["sessions", "show", "abc"],
        &["sessions", "fork", "--last"],
        &["sessions", "delete", "--yes", "abc"],
    ] {
        let ended = world.run(arguments).with(5);
        assert!(ended.err.lines().count() <= 3, "{}", ended.err);
    }
    let error = world.run(&["sessions", "show", "--json", "abc"]).with(5);
    assert_eq!((&error.json()["error"]["code"], error.err.as_str()), (&"not_found".into(), ""));
    let error = world.run(&["sessions", "list", "--json", "--since", "soon"]).with(2);
    assert_eq!(error.json()["error"]["code"], "usage");
    assert_eq!(world.titles(&[]), Vec::<String>::new(), "nothing was made on the way");
}

#[test]
fn files_and_standard_input_go_along() {
    let world = World::default();
    fs::write(world.project().join("big.txt"), "x".repeat(600 * 1024)).unwrap();
    let arguments = ["run", "--json", "-", "-f", "big.txt"];
    let run = world.run_with_input(&arguments, "what did I say?").with(0);
    assert!(run.err.contains("is large") && run.err.contains("was cut"), "{}", run.err);
    let id = run.json()["session_id"].as_str().unwrap().to_owned();
    let shown = world.run(&["sessions", "show", "--json", &id]).with(0).json();
    let content = &shown["events"][1]["payload"]["content"];
    assert_eq!(content[0]["text"], "what did I say?");
    let text = content[1]["resource"]["text"].as_str().unwrap();
    assert!(text.len() < 501 * 1024 && text.contains("[cut here: "), "{}", text.len());
    world.run_with_input(&["run", "hello", "-f", "-"], "from a pipe").with(0);
}

/// H19.
#[test]
fn only_the_tools_that_were_named_are_there() {
    let world = World::default();
    let wrong = world.run(&["run", "--allowed-tools", "Read,fly", "x"]).with(2);
    assert!(wrong.err.contains("\"fly\"") && wrong.err.contains("apply_patch"), "{}", wrong.err);
    let run = world.run(&["run", "--allowed-tools", "READ,grep", "--json", "write a.txt: x"]).with(0).json();
    assert!(run.to_string().contains("there is no tool \\\"write\\\"; the tools are read, search"), "{run}");
    assert!(!world.project().join("a.txt").exists());
}

#[test]
fn images_go_along() {
    let world = World::default();
    fs::write(world.project().join("dot.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let run = world.run(&["run", "--json", "what is this?", "--image", "dot.png"]).with(0);
    let id = run.json()["session_id"].as_str().unwrap().to_owned();
    let shown = world.run(&["sessions", "show", "--json", &id]).with(0).json();
    let image = &shown["events"][1]["payload"]["content"][1];
    assert_eq!(
        (&image["image"]["mime"], &image["image"]["data"]),
        (&"image/png".into(), &"iVBORw0KGgo=".into())
    );
}

#[test]
fn an_interrupted_turn_ends_properly() {
    for signal in [Signal::INT, Signal::TERM] {
        let world = World::default();
        let child = world.command(&["run", "--format", "stream-json", "sleep 60000"]).spawn().unwrap();
        let ended = interrupted(child, signal).with(130);
        let last: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
        assert_eq!(last["stop_reason"], "cancelled");
        let id = last["session_id"].as_str().unwrap();
        let shown = world.run(&["sessions", "show", "--json", id]).with(0).json();
        assert_eq!(shown["session"]["status"], "idle");
        let last = shown["events"].as_array().unwrap().last().unwrap();
        assert_eq!(last["event_type"], "turn_ended");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_turn_quietly() {
    let world = World::default();
    let mut child = world.command(&["run", "stream 1000000"]).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let ended = CommandOutput::of(child).with(1);
    assert!(!ended.err.contains("panicked") && !ended.err.contains("error"), "{}", ended.err);
    let id = world.run(&["sessions", "list", "--json"]).with(0).json()["sessions"][0]["id"].clone();
    let shown = world.run(&["sessions", "show", "--json", id.as_str().unwrap()]).with(0).json();
    assert_eq!(shown["session"]["status"], "idle");
    assert_eq!(shown["events"].as_array().unwrap().last().unwrap()["payload"]["stop"], "cancelled");
}

/// Editors begin a session for each window.
#[test]
fn a_session_that_was_never_prompted_is_listed_with_all_and_not_gone_on_with() {
    let world = World::default();
    let used = world.session("hello");
    let project = world.project();
    let new = serde_json::json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new",
        "params": { "cwd": project, "mcpServers": [] } });
    let frames = format!(
        "{}\n{new}\n",
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#
    );
    let served = world.run_with_input(&["serve"], &frames).with(0).out;
    let opened: Value = served
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|frame: &Value| frame["id"] == 2)
        .unwrap();
    let empty = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let listed = |arguments: &[&str]| {
        let listed = world.run(&[&["sessions", "list", "--json"], arguments].concat()).with(0).json();
        let ids = listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|session| session["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), [used.as_str()]);
    assert_eq!(listed(&["--all"]), [empty.as_str(), used.as_str()]);
    world.run(&["run", "--continue", "again"]).with(0);
    assert!(world.shown(&used).contains("again"), "the newest that was used is gone on with");
    world.run(&["sessions", "delete", "--yes", &empty]).with(0);
    assert_eq!(listed(&["--all"]), [used.as_str()]);
}

#[test]
fn listings_are_cut_where_they_should_be() {
    let world = World::default();
    for title in ["one", "two", "three"] {
        world.session(title);
    }
    assert_eq!(world.titles(&[]), ["three", "two", "one"]);
    assert_eq!(world.titles(&["-n", "2"]), ["three", "two"]);
    assert_eq!(world.titles(&["--all", "--since", "1h"]).len(), 3);
    assert_eq!(world.titles(&["--since", "2999-01-01"]).len(), 0);
    assert_eq!(world.titles(&["--cwd", "."]).len(), 3);
    assert_eq!(world.titles(&["--cwd", "/"]).len(), 0);
    let session = &world.run(&["sessions", "list", "--json"]).with(0).json()["sessions"][0];
    assert_eq!(session["source"], "run");
    let table = world.run(&["sessions", "list"]).with(0).out;
    assert!(table.starts_with("ID ") && table.lines().count() == 4, "{table}");
}

#[test]
fn what_is_exported_comes_back_equal() {
    let world = World::default();
    let id = world.session("write a.txt: x && then plan && then think && then run ls");
    let shown = world.shown(&id);
    world.run(&["sessions", "export", &id, "-o", "e.json"]).with(0);
    let chimera = ["sessions", "export", &id, "-f", "chimera", "-o", "log", "--json"];
    let written = world.run(&chimera).with(0).json();
    let folder = written["path"].as_str().unwrap();
    let name = Path::new(folder).file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("ropewalk-2") && name.ends_with(&id[..8]), "{name}");
    world.run(&chimera).with(1);
    let envelope = world.run(&["sessions", "export", &id, "-f", "chimera"]).with(0).out;
    for imported in [
        world.run(&["sessions", "import", "e.json"]).with(0),
        world.run(&["sessions", "import", &format!("log/{name}")]).with(0),
        world.run_with_input(&["sessions", "import", "-"], &envelope).with(0),
    ] {
        assert_eq!(imported.err, "");
        assert_eq!(world.shown(imported.out.trim()), shown);
    }
    let exported = fs::read_to_string(world.project().join("e.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap()["schema"], "ropewalk.session/1");
    let html = world.run(&["sessions", "export", &id, "-f", "html"]).with(0).out;
    assert!(html.starts_with("<!doctype html>"));
    assert!(world.run(&["sessions", "export", &id, "-f", "markdown"]).with(0).out.starts_with("# "));
}

/// Answers so many requests. What was asked, head and body.
fn receiver(replies: &'static [&'static str]) -> (String, thread::JoinHandle<Vec<(String, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let answer = |reply: &&str| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            let whole = |text: &str| {
                let (head, body) = text.split_once("\r\n\r\n")?;
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
                })?;
                (body.len() >= length).then(|| (head.to_owned(), body.to_owned()))
            };
            loop {
                if let Some(whole) = whole(&text) {
                    stream.write_all(reply.as_bytes()).unwrap();
                    return whole;
                }
                let read = stream.read(&mut buffer).unwrap();
                assert!(read > 0, "{text}");
                text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            }
        };
        replies.iter().map(answer).collect()
    };
    (address, thread::spawn(serve))
}

/// T7.
#[test]
fn a_session_is_shared_at_an_address_and_nowhere_in_the_clear() {
    const REPLIES: [&str; 3] = [
        "HTTP/1.1 201 Created\r\nLocation: /s/1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ];
    let world = World::default();
    let id = world.session("list");
    let (address, received) = receiver(&REPLIES);
    let share = |arguments: &[&str], url: &str| {
        let mut command = world.command(&[&["sessions", "share", &id], arguments].concat());
        command.env("OTTER_SHARE_URL", url).env("OTTER_SHARE_TOKEN", "share-token-0123456789");
        CommandOutput::of(command.spawn().unwrap())
    };
    let posted = share(&[], &format!("{address}/up?sig=x")).with(0);
    assert_eq!(posted.out, format!("{address}/s/1\n"));
    let place = format!("{address}/exact.json?sig=x");
    let put = share(&["--to", &place, "--put", "--format", "json", "--json"], "https://example.com").with(0);
    assert_eq!(put.json()["url"], format!("{address}/exact.json"), "a signature is not shown");
    let elsewhere = share(&[], &address).with(1);
    assert!(elsewhere.err.contains("it answered 302"), "{}", elsewhere.err);
    let asked = received.join().unwrap();
    assert!(
        asked[0].0.starts_with("POST /up?sig=x HTTP/1.1") && asked[0].1.contains("<html"),
        "{:?}",
        asked[0]
    );
    assert!(asked[1].0.starts_with("PUT /exact.json?sig=x HTTP/1.1"), "{}", asked[1].0);
    assert!(serde_json::from_str::<Value>(&asked[1].1).is_ok(), "{}", asked[1].1);
    for (head, _) in &asked {
        assert!(head.to_ascii_lowercase().contains("authorization: bearer share-token-0123456789"), "{head}");
    }
    let plain = share(&["--to", "http://share.example/up"], "").with(2);
    assert!(plain.err.contains("plain http"), "{}", plain.err);
    let nowhere = share(&[], "").with(2);
    assert!(nowhere.err.contains("ROPEWALK_SHARE_URL"), "{}", nowhere.err);
}

#[test]
fn an_imported_session_may_not_do_more_than_a_new_one() {
    let world = World::default();
    let run = world.run(&["run", "--json", "--approval", "full", "hello"]).with(0).json();
    let id = run["session_id"].as_str().unwrap();
    let mut exported = world.run(&["sessions", "export", id]).with(0).json();
    let last = exported["events"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(last["payload"]["id"], "approval", "{last}");
    fs::write(world.project().join("e.json"), exported.to_string()).unwrap();
    let imported = world.run(&["sessions", "import", "e.json", "--json"]).with(0).json();
    assert!(imported["warnings"][0].as_str().unwrap().contains("approval"), "{imported}");
    let copy = imported["session_id"].as_str().unwrap();
    world.run(&["run", "--resume", copy, "run touch b.txt"]).with(0);
    assert!(!world.project().join("b.txt").exists());
}

#[test]
fn a_damaged_log_of_chimeras_gives_what_it_has() {
    let world = World::default();
    let id = world.session("hello");
    world.run(&["sessions", "export", &id, "-f", "chimera", "-o", "log"]).with(0);
    let folder = fs::read_dir(world.project().join("log")).unwrap().next().unwrap().unwrap().path();
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    fs::write(&files[2], "{").unwrap();
    fs::remove_file(&files[3]).unwrap();
    let imported = world.run(&["sessions", "import", folder.to_str().unwrap()]).with(0);
    assert!(imported.err.contains("1 events are missing: 3"), "{}", imported.err);
    assert!(imported.err.contains("is left out"), "{}", imported.err);
    assert!(world.shown(imported.out.trim()).contains("> hello"));
    world.run(&["sessions", "import", "no.json"]).with(5);
    world.run_with_input(&["sessions", "import", "-"], "{}").with(1);
}

#[test]
fn sessions_are_copied_named_and_removed() {
    let world = World::default();
    let id = world.session("the first");
    let fork = world.run(&["sessions", "fork", "--last", "--json"]).with(0).json();
    assert_eq!(fork["parent_id"], id.as_str());
    let copy = fork["session_id"].as_str().unwrap();
    assert_eq!(world.shown(copy), world.shown(&id));
    world.run(&["run", "--resume", copy, "apart"]).with(0);
    assert_ne!(world.shown(copy), world.shown(&id));
    let renamed = world.run(&["sessions", "rename", copy, " Another\n one "]).with(0);
    assert_eq!(renamed.err, format!("renamed {copy} to Another one\n"));
    world.run(&["sessions", "rename", copy, " "]).with(2);
    assert_eq!(world.titles(&[]), ["Another one", "the first"]);
    world.run(&["sessions", "delete", &id]).with(2);
    let deleted = world.run(&["sessions", "delete", "--yes", &id, copy]).with(0);
    assert_eq!(deleted.err, format!("deleted {id}  the first\ndeleted {copy}  Another one\n"));
    assert_eq!(world.titles(&[]), Vec::<String>::new());
    world.run(&["sessions", "show", &id]).with(5);
}

#[test]
fn a_session_in_the_middle_of_a_turn_is_left_alone() {
    let world = World::default();
    let mut child = world.command(&["run", "--format", "stream-json", "sleep 60000"]).spawn().unwrap();
    let mut begun = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    let listed = world.run(&["sessions", "list", "--json"]).with(0).json();
    assert_eq!(listed["sessions"][0]["status"], "running");
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    for arguments in [
        &["run", "--resume", id, "x"][..],
        &["sessions", "delete", "--yes", id],
        &["sessions", "rename", id, "x"],
    ] {
        let ended = world.run(arguments).with(1);
        assert!(ended.err.contains("another ropewalk"), "{}", ended.err);
    }
    world.run(&["sessions", "show", id]).with(0);
    interrupted(child, Signal::INT).with(130);
}

#[test]
fn a_beginning_that_several_share_is_not_enough() {
    let world = World::default();
    // One more than there are first digits, so that two must share theirs.
    let ids: Vec<_> = (0..17).map(|_| world.session("hello")).collect();
    let twice = |digit: &char| ids.iter().filter(|id| id.starts_with(*digit)).count() > 1;
    let digit = "0123456789abcdef".chars().find(twice).unwrap().to_string();
    let ended = world.run(&["sessions", "show", &digit]).with(2);
    let named = ids.iter().filter(|id| id.starts_with(&digit)).all(|id| ended.err.contains(id.as_str()));
    assert!(named, "{}", ended.err);
    let error = world.run(&["sessions", "show", "--json", &digit]).with(2).json();
    assert!(error["error"]["candidates"].as_array().unwrap().len() > 1);
}

/// A terminal: what is typed into it and shown on it, and what a program is given for it.
fn terminal() -> (fs::File, fs::File) {
    let typed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&typed).unwrap();
    unlockpt(&typed).unwrap();
    let name = ptsname(&typed, Vec::new()).unwrap();
    let screen = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (typed.into(), screen.into())
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let world = World::default();
    let id = world.session("hello");
    let ask = |answer: &[u8]| {
        let (mut typed, screen) = terminal();
        // A whole answer, and the beginning of another.
        typed.write_all(b"y\nye").unwrap();
        let mut command = world.command(&["sessions", "delete", &id]);
        command.stdin(screen.try_clone().unwrap()).stderr(screen);
        let mut child = command.spawn().unwrap();
        // Reading ends when nobody has the terminal any more.
        drop(command);
        let mut shown = Vec::new();
        while !shown.ends_with(b"[y/N] ") {
            let mut byte = [0];
            typed.read_exact(&mut byte).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&shown)));
            shown.push(byte[0]);
        }
        typed.write_all(answer).unwrap();
        child.wait().unwrap();
    };
    ask(b"n\n");
    world.run(&["sessions", "show", &id]).with(0);
    // What is typed afterwards is all of the answer.
    ask(b"y\n");
    world.run(&["sessions", "show", &id]).with(5);
}

#[test]
fn a_hub_on_the_tables_of_a_newer_version_says_which_it_found_and_which_it_knows() {
    let world = World::default();
    let file = world.0.path("hub.db");
    let made = async {
        let db = SqliteDb::open(&file).unwrap();
        // One table, made and dropped again and again: 99 versions.
        let steps: Vec<&str> =
            ["CREATE TABLE a (a TEXT)", "DROP TABLE a"].into_iter().cycle().take(99).collect();
        migrate(&db, "people", &steps).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(made);
    let ended = world.run(&["hub", "--store", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]).with(1);
    for part in ["have version 99", "versions up to 2", "Use that version"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

/// Nobody would be known to a hub that takes it for a new one, and whoever comes first would be let in.
#[test]
fn a_hub_whose_database_was_emptied_does_not_start() {
    let world = World::default();
    let file = world.0.path("hub.db");
    fs::write(&file, "").unwrap();
    let ended = world.run(&["hub", "--store", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]).with(1);
    for part in ["hub.db", "is empty (0 bytes)", "restore it from a backup, or delete it"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

/// A service file sets variables where a person types options; an empty one is one that is not set.
#[test]
fn options_of_a_hub_may_be_variables() {
    let world = World::default();
    let with = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = world.command(&[&["hub"], arguments].concat());
        command.envs(variables.iter().map(|(name, value)| (format!("ROPEWALK_HUB_{name}"), value)));
        CommandOutput::of(command.spawn().unwrap())
    };
    let (mine, other) = (world.project().join("mine"), world.project().join("other"));
    let (mine, other) = (mine.to_str().unwrap(), other.to_str().unwrap());
    let link = ["link", "--person", "nobody"];
    with(&link, &[("DATA", mine), ("LISTEN", ""), ("PRUNE_DAYS", ""), ("BUS", "")]).with(1);
    assert!(world.project().join("mine/hub.db").exists());
    with(&[&link[..], &["--data", other]].concat(), &[("DATA", mine), ("STORE", "")]).with(1);
    assert!(world.project().join("other/hub.db").exists(), "what is typed goes before the variable");
    for (variable, value) in [("LISTEN", "nowhere"), ("PRUNE_DAYS", "0"), ("AUDIT_DAYS", "many")] {
        let ended = with(&[], &[(variable, value)]).with(2);
        let named = format!("the variable ROPEWALK_HUB_{variable}");
        assert!(ended.err.contains(&named) && ended.err.contains(&format!("'{value}'")), "{}", ended.err);
    }
    with(&[], &[("TLS_CERT", "cert.pem")]).with(2);
    for (word, said) in
        [("off", "is reachable from other machines"), ("1", "the public URL of this hub is not known")]
    {
        let ended = with(&["--listen", "0.0.0.0:0"], &[("BEHIND_PROXY", word)]).with(2);
        assert!(ended.err.contains(said), "{word}: {}", ended.err);
    }
    let secret =
        [("STORE", "postgres://me:hush@db/x"), ("BUS", "nats://hush@bus"), ("METRICS_TOKEN", "hush")];
    let help = with(&["--help"], &secret).with(0).out;
    assert!(help.contains("ROPEWALK_HUB_METRICS_TOKEN") && !help.contains("hush"), "{help}");
}
