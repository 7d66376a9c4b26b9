//! Files and terminals of the client's own program, as the agent uses them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod background;

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::{Agent, AgentConfig, ToolAccess};
use engine::Principal;
use sandbox::Mode;
use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run, write};
use testkit::{Line, Script, call, say};

fn files() -> Value {
    json!({ "fs": { "readTextFile": true, "writeTextFile": true } })
}

fn terminals() -> Value {
    json!({ "terminal": true })
}

/// A server whose model says this, with or without a fence.
fn setup(script: &Script, mode: Mode) -> Setup {
    let mut config = AgentConfig::new(vec![Arc::new(script.clone())]);
    config.reach = ToolAccess { mode, ..ToolAccess::default() };
    Setup::new(Agent::new(config))
}

/// A turn of a client with these abilities, from its beginning.
async fn check(
    capabilities: Value,
    mode: Mode,
    lines: Vec<Line>,
    test: impl AsyncFnOnce(&mut Server, &mut Client, String, &Script),
) {
    let script = Script::new([lines, vec![say("done")]]);
    run(setup(&script, mode), async |server| {
        let mut client = server.connect();
        client.initialize_with(capabilities).await;
        client.answer_all("allow_once");
        let session = client.new_session().await;
        test(server, &mut client, session, &script).await;
        client.catch_up_all().await;
    })
    .await;
}

/// An editor whose terminals can be typed to, its session, and the turn that has begun in it.
async fn typed_to(server: &mut Server) -> (Client, String, u64) {
    let mut client = server.connect();
    client.initialize_with(json!({ "terminal": true, "_meta": { "terminal_write_stdin": true } })).await;
    client.answer_all("allow_once");
    let session = client.new_session().await;
    let turn = client.send_prompt(&session, "go").await;
    (client, session, turn)
}

/// Edits are asked for too.
async fn ask_first(client: &mut Client, session: &str) {
    let params = json!({ "sessionId": session, "configId": "approval", "value": "suggest" });
    client.call("session/set_config_option", params).await;
}

/// An editor with these buffers.
struct Editor(BTreeMap<String, String>);

impl Editor {
    fn act(&mut self, method: &str, params: &Value) -> Option<Result<Value, &'static str>> {
        let path = params["path"].as_str().unwrap().to_owned();
        Some(match method {
            "fs/read_text_file" => match self.0.get(&path) {
                Some(text) => Ok(json!({ "content": text })),
                None => Err("no such file"),
            },
            "fs/write_text_file" => {
                self.0.insert(path, params["content"].as_str().unwrap().to_owned());
                Ok(json!({}))
            }
            other => panic!("{other}"),
        })
    }
}

/// F1.
#[tokio::test]
async fn what_is_not_saved_yet_is_what_the_agent_reads() {
    let read = call("read", r#"{"path":"a.txt","start_line":2,"line_count":1}"#);
    check(files(), Mode::WorkspaceWrite, vec![read], async |server, client, session, script| {
        let path = server.workspace().join("a.txt");
        write(&path, "old\n");
        let mut editor =
            Editor(BTreeMap::from([(path.display().to_string(), "one\nunsaved\nthree\n".into())]));
        let turn = client.send_prompt(&session, "read it").await;
        assert_eq!(client.serve(turn, |method, params| editor.act(method, params)).await, "end_turn");
        assert_eq!(script.last_result(), "unsaved\n[lines 2 to 2 of 3; continue with start_line 3]\n");
    })
    .await;
}

/// F2.
#[tokio::test]
async fn a_change_is_shown_first_and_then_made_in_the_editor() {
    let lines = vec![
        call("edit", r#"{"path":"a.txt","old":"two","new":"2"}"#),
        call("write", r#"{"path":"new.txt","text":"fresh\n"}"#),
    ];
    check(files(), Mode::WorkspaceWrite, lines, async |server, client, session, _| {
        let path = server.workspace().join("a.txt");
        write(&path, "on the disk\n");
        let name = path.display().to_string();
        let mut editor = Editor(BTreeMap::from([(name.clone(), "one\ntwo\n".into())]));
        ask_first(client, &session).await;
        let turn = client.send_prompt(&session, "change it").await;
        assert_eq!(client.serve(turn, |method, params| editor.act(method, params)).await, "end_turn");
        assert_eq!(editor.0[&name], "one\n2\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "on the disk\n", "that is the editor's business");
        let fresh = server.workspace().join("new.txt");
        assert_eq!(editor.0[&fresh.display().to_string()], "fresh\n");
        assert!(!fresh.exists());
        let probes = |frame: &&Value| {
            frame["method"] == "fs/read_text_file" && frame["params"]["path"] == json!(fresh)
        };
        assert_eq!(client.frames().iter().filter(probes).count(), 1, "an editor shows each failure");
        let asked = client.frames().iter().position(|frame| frame["method"] == "session/request_permission");
        let asked = asked.unwrap();
        let diff = &client.frames()[asked]["params"]["toolCall"]["content"][0];
        assert_eq!((&diff["oldText"], &diff["newText"]), (&json!("one\ntwo\n"), &json!("one\n2\n")));
        let written = client.frames().iter().position(|frame| frame["method"] == "fs/write_text_file");
        assert!(asked < written.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_refused_change_reaches_neither_the_editor_nor_the_disk() {
    let edit = vec![call("write", r#"{"path":"a.txt","text":"x"}"#)];
    check(files(), Mode::WorkspaceWrite, edit, async |server, client, session, _| {
        client.answer_all("reject_once");
        ask_first(client, &session).await;
        let turn = client.send_prompt(&session, "change it").await;
        let mut editor = Editor(BTreeMap::new());
        assert_eq!(client.serve(turn, |method, params| editor.act(method, params)).await, "end_turn");
        assert!(editor.0.is_empty() && !server.workspace().join("a.txt").exists());
    })
    .await;
}

#[tokio::test]
async fn an_editor_that_says_no_is_not_gone_around() {
    let write_it = vec![call("write", r#"{"path":"a.txt","text":"x"}"#)];
    check(files(), Mode::WorkspaceWrite, write_it, async |server, client, session, script| {
        let turn = client.send_prompt(&session, "change it").await;
        client.serve(turn, |_, _| Some(Err("the buffer is read only"))).await;
        assert!(
            script.last_result().contains("the editor refused: the buffer is read only"),
            "{}",
            script.last_result()
        );
        assert!(!server.workspace().join("a.txt").exists());
    })
    .await;
}

#[tokio::test]
async fn a_file_that_the_editor_cannot_show_is_read_from_the_disk_and_that_is_said() {
    let read = vec![call("read", r#"{"path":"a.txt"}"#)];
    check(files(), Mode::WorkspaceWrite, read, async |server, client, session, script| {
        write(server.workspace().join("a.txt"), "disk\n");
        let turn = client.send_prompt(&session, "read it").await;
        client.serve(turn, |_, _| Some(Err("not in the project"))).await;
        assert_eq!(
            script.last_result(),
            "[the editor refused: not in the project; this is the version on the disk]\ndisk\n"
        );
    })
    .await;
}

/// F5: what may not be reached is refused before any editor hears of it.
#[tokio::test]
async fn the_editor_is_asked_for_nothing_outside_the_workspace() {
    let read = vec![
        call("read", r#"{"path":"../secret"}"#),
        call("read", r#"{"path":"link"}"#),
        call("write", r#"{"path":"../other","text":"x"}"#),
    ];
    check(files(), Mode::WorkspaceWrite, read, async |server, client, session, _| {
        let out = server.workspace().with_file_name("secret");
        write(&out, "s");
        std::os::unix::fs::symlink(&out, server.workspace().join("link")).unwrap();
        let turn = client.send_prompt(&session, "look").await;
        client.serve(turn, |method, params| panic!("{method} {params}")).await;
        let failed = client.story().calls.into_values().filter(|call| call["status"] == "failed").count();
        assert_eq!(failed, 3);
    })
    .await;
}

/// F3.
#[tokio::test]
async fn what_no_text_file_holds_is_not_written() {
    let nul = json!({ "path": "a", "text": "a\u{0}b" }).to_string();
    let large = json!({ "path": "a", "text": "x".repeat((10 << 20) + 1) }).to_string();
    for (arguments, said) in [(nul, "contains a NUL"), (large, "larger than 10 MiB")] {
        let lines = vec![call("write", arguments)];
        check(files(), Mode::WorkspaceWrite, lines, async |server, client, session, script| {
            let turn = client.send_prompt(&session, "write").await;
            client.serve(turn, |method, params| panic!("{method} {params}")).await;
            assert!(script.last_result().contains(said), "{}", script.last_result());
            assert!(!server.workspace().join("a").exists());
        })
        .await;
    }
}

/// B16, F12.
#[tokio::test]
async fn a_client_is_never_asked_for_what_it_did_not_offer() {
    let lines = || {
        vec![
            call("write", r#"{"path":"a.txt","text":"x"}"#),
            call("read", r#"{"path":"a.txt"}"#),
            call("shell", r#"{"command":"echo hi"}"#),
        ]
    };
    for offered in [json!({}), json!({ "fs": { "readTextFile": false }, "terminal": false })] {
        check(offered, Mode::Off, lines(), async |server, client, session, _| {
            let turn = client.send_prompt(&session, "go").await;
            client.serve(turn, |method, params| panic!("{method} {params}")).await;
            assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "x");
        })
        .await;
    }
}

#[tokio::test]
async fn an_editor_that_goes_away_leaves_the_agent_the_disk() {
    let read = vec![call("read", r#"{"path":"a.txt"}"#)];
    let script = Script::new([read, vec![say("done")]]);
    run(setup(&script, Mode::WorkspaceWrite), async |server| {
        write(server.workspace().join("a.txt"), "disk\n");
        let mut client = server.connect();
        client.initialize_with(files()).await;
        let session = client.new_session().await;
        client.send_prompt(&session, "read it").await;
        client.next_call().await;
        client.vanish();
        server.idle(&session).await;
        assert_eq!(script.last_result(), "disk\n");
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_turn_gives_its_call_up_and_a_late_answer_is_nobodys() {
    let read = vec![call("read", r#"{"path":"a.txt"}"#)];
    check(files(), Mode::WorkspaceWrite, read, async |server, client, session, _| {
        write(server.workspace().join("a.txt"), "disk\n");
        let turn = client.send_prompt(&session, "read it").await;
        let asked = client.next_call().await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.next_withdrawn().await, asked["id"]);
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        client.respond(&asked, json!({ "content": "too late" })).await;
        client.respond(&asked, json!({ "content": "twice" })).await;
    })
    .await;
}

/// Few editors know the withdrawal of a request: most open the terminal all the same, and its command would run on.
#[tokio::test]
async fn a_terminal_that_is_opened_after_the_cancel_is_given_back_at_once() {
    let run_it = vec![call("shell", r#"{"command":"sleep 300"}"#)];
    check(terminals(), Mode::Off, run_it, async |_, client, session, _| {
        let turn = client.send_prompt(&session, "sleep").await;
        let created = client.next_call().await;
        assert_eq!(created["method"], "terminal/create");
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.next_withdrawn().await, created["id"]);
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        client.respond(&created, json!({ "terminalId": "late" })).await;
        let released = client.next_call().await;
        assert_eq!(released["method"], "terminal/release");
        assert_eq!(released["params"]["terminalId"], "late");
        client.respond(&released, json!({})).await;
    })
    .await;
}

/// Answers for a terminal that shows this and ends so.
fn terminal(method: &str, output: &str, exit: &Value) -> Option<Result<Value, &'static str>> {
    Some(Ok(match method {
        "terminal/create" => json!({ "terminalId": "term-1" }),
        "terminal/output" => json!({ "output": output, "truncated": false, "exitStatus": exit }),
        "terminal/wait_for_exit" => exit.clone(),
        "terminal/kill" | "terminal/release" => json!({}),
        other => panic!("{other}"),
    }))
}

fn methods(client: &Client) -> Vec<&str> {
    let methods = client.frames().iter().filter_map(|frame| frame["method"].as_str());
    methods.filter(|method| method.starts_with("terminal/")).collect()
}

/// F7, F9, E10.
#[tokio::test]
async fn a_command_runs_in_the_editors_terminal_which_is_given_back_last() {
    let run_it = vec![call("shell", r#"{"command":"make test"}"#)];
    check(terminals(), Mode::Off, run_it, async |server, client, session, script| {
        let turn = client.send_prompt(&session, "test it").await;
        let exit = json!({ "exitCode": 2 });
        let mut created = Value::Null;
        client
            .serve(turn, |method, params| {
                if method == "terminal/create" {
                    created = params.clone();
                }
                terminal(method, "1 failed\n", &exit)
            })
            .await;
        assert_eq!(created["command"], "sh");
        assert_eq!(created["args"], json!(["-c", "make test"]));
        assert_eq!(created["cwd"], json!(server.workspace()));
        assert!(!created["env"].to_string().contains("GIT_"), "{created}");
        assert_eq!(script.last_result(), "1 failed\n\n[exit code 2]");
        assert_eq!(
            methods(client),
            ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"]
        );
        let shown = json!([{ "type": "terminal", "terminalId": "term-1" }]);
        let embeds = |frame: &Value| frame["params"]["update"]["content"] == shown;
        let last_shown = client.frames().iter().rposition(embeds).unwrap();
        let released = client.frames().iter().position(|frame| frame["method"] == "terminal/release");
        assert!(last_shown < released.unwrap());
        assert_eq!(client.frames()[last_shown]["params"]["update"]["status"], "failed");
        assert_eq!(client.frames().iter().filter(|frame| embeds(frame)).count(), 2);
    })
    .await;
}

/// F10.
#[tokio::test]
async fn what_goes_on_in_the_editors_terminal_can_be_typed_to() {
    let script = Script::new([
        vec![call("shell", r#"{"command":"cat","tty":true,"background":true}"#)],
        vec![call("job_input", r#"{"job":"job-1","text":"hi\n"}"#)],
        vec![call("jobs", r#"{"action":"wait","job":"job-1"}"#)],
        vec![say("done")],
    ]);
    run(setup(&script, Mode::Off), async |server| {
        let (mut client, session, turn) = typed_to(server).await;
        let (mut waiting, mut typed, mut output) = (None, Value::Null, "");
        loop {
            let asked = client.next_call().await;
            let method = asked["method"].as_str().unwrap().to_owned();
            match method.as_str() {
                "terminal/wait_for_exit" => waiting = Some(asked),
                "terminal/write_stdin" => {
                    typed = asked["params"].clone();
                    output = "hi\n";
                    client.respond(&asked, json!({})).await;
                    client.respond(&waiting.take().unwrap(), json!({ "exitCode": 0 })).await;
                }
                _ => {
                    let answer = terminal(&method, output, &Value::Null).unwrap().unwrap();
                    client.respond(&asked, answer).await;
                }
            }
            if method == "terminal/release" {
                break;
            }
        }
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert_eq!(typed, json!({ "session_id": session, "terminal_id": "term-1", "data": "aGkK" }));
        let told = script.last_result();
        assert!(told.contains("job-1: ended with exit code 0") && told.contains("hi\n"), "{told}");
        let shown = json!([{ "type": "terminal", "terminalId": "term-1" }]);
        assert!(client.frames().iter().any(|frame| frame["params"]["update"]["content"] == shown));
        client.catch_up_all().await;
    })
    .await;
}

/// F10: an editor that does not say that it can be typed to is not asked, and where there is a sandbox, nothing
/// that can be typed to leaves it.
#[tokio::test]
async fn what_has_to_be_typed_to_runs_here_unless_the_editor_takes_it_and_there_is_no_sandbox() {
    let typing = json!({ "terminal": true, "_meta": { "terminal_write_stdin": true } });
    let modes = [(terminals(), Mode::Off), (typing, Mode::WorkspaceWrite)];
    for (capabilities, mode) in modes {
        let start = r#"{"command":"true","tty":true,"background":true}"#;
        let script = Script::new([vec![call("shell", start)], vec![say("done")]]);
        let setup = if mode == Mode::Off { setup(&script, mode) } else { outside(&script) };
        run(setup, async |server| {
            let mut client = server.connect();
            client.initialize_with(capabilities).await;
            client.answer_all("allow_once");
            let session = client.new_session().await;
            let turn = client.send_prompt(&session, "go").await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert!(script.last_result().contains("job-1"), "{}", script.last_result());
            assert_eq!(methods(&client), [""; 0], "{mode:?}");
            client.catch_up_all().await;
        })
        .await;
    }
}

/// F8.
#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_what_it_wrote_is_told() {
    let run_it = vec![call("shell", r#"{"command":"sleep 300","timeout_seconds":1}"#)];
    check(terminals(), Mode::Off, run_it, async |_, client, session, script| {
        let turn = client.send_prompt(&session, "sleep").await;
        let mut waiting = None;
        let mut killed = false;
        while !killed {
            let asked = client.next_call().await;
            match asked["method"].as_str().unwrap() {
                "terminal/wait_for_exit" => waiting = Some(asked),
                method => {
                    killed = method == "terminal/kill";
                    let answer = terminal(method, "partial", &Value::Null).unwrap().unwrap();
                    client.respond(&asked, answer).await;
                }
            }
        }
        client.respond(&waiting.unwrap(), json!({ "signal": "SIGKILL" })).await;
        client.serve(turn, |method, _| terminal(method, "partial", &json!({ "signal": "SIGKILL" }))).await;
        assert_eq!(script.last_result(), "partial\n[ended after 1 s: it took too long]\n[exit code 124]");
        client.drain_withdrawn();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_the_command_in_the_terminal() {
    let run_it = vec![call("shell", r#"{"command":"sleep 300"}"#)];
    check(terminals(), Mode::Off, run_it, async |_, client, session, _| {
        let turn = client.send_prompt(&session, "sleep").await;
        let created = client.next_call().await;
        client.respond(&created, json!({ "terminalId": "t" })).await;
        let waiting = client.next_call().await;
        assert_eq!(waiting["method"], "terminal/wait_for_exit");
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        let mut waiting = Some(waiting);
        loop {
            let asked = client.next_call().await;
            let method = asked["method"].as_str().unwrap().to_owned();
            client.respond(&asked, terminal(&method, "", &Value::Null).unwrap().unwrap()).await;
            if method == "terminal/kill"
                && let Some(waiting) = waiting.take()
            {
                client.respond(&waiting, json!({ "signal": "SIGTERM" })).await;
            }
            if method == "terminal/release" {
                break;
            }
        }
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        client.drain_withdrawn();
    })
    .await;
}

/// The editor reports neither the kill nor the exit, so the turn ends before the tool does.
#[tokio::test]
async fn a_terminal_is_given_back_after_the_end_of_its_call_also_if_the_editor_is_silent() {
    let run_it = vec![call("shell", r#"{"command":"sleep 300"}"#)];
    check(terminals(), Mode::Off, run_it, async |_, client, session, _| {
        let turn = client.send_prompt(&session, "sleep").await;
        let created = client.next_call().await;
        client.respond(&created, json!({ "terminalId": "t" })).await;
        assert_eq!(client.next_call().await["method"], "terminal/wait_for_exit");
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        while client.next_call().await["method"] != "terminal/release" {}
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        let shown = json!([{ "type": "terminal", "terminalId": "t" }]);
        let embeds = |frame: &Value| frame["params"]["update"]["content"] == shown;
        let last_shown = client.frames().iter().rposition(embeds).unwrap();
        assert_eq!(client.frames()[last_shown]["params"]["update"]["status"], "failed");
        let released = client.frames().iter().position(|frame| frame["method"] == "terminal/release");
        assert!(last_shown < released.unwrap(), "{:#?}", client.frames());
        client.drain_withdrawn();
    })
    .await;
}

/// One that hangs costs its person's time once.
#[tokio::test]
async fn an_editor_that_does_not_answer_is_asked_once_in_a_turn() {
    let lines = vec![
        call("write", r#"{"path":"a.txt","text":"one\n"}"#),
        call("write", r#"{"path":"a.txt","text":"two\n"}"#),
    ];
    check(files(), Mode::WorkspaceWrite, lines, async |server, client, session, _| {
        write(server.workspace().join("a.txt"), "disk\n");
        let turn = client.send_prompt(&session, "write it").await;
        assert_eq!(client.next_call().await["method"], "fs/read_text_file");
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(31)).await;
        tokio::time::resume();
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "two\n");
        let calls = client.story().calls.into_values();
        let mut ends: Vec<_> = calls.map(|call| call["status"].as_str().unwrap().to_owned()).collect();
        ends.sort_unstable();
        assert_eq!(ends, ["completed", "failed"], "the second one");
        let notice = |frame: &&Value| frame.to_string().contains("The editor did not answer");
        assert_eq!(client.frames().iter().filter(notice).count(), 1);
        client.drain_withdrawn();
    })
    .await;
}

/// A command in the editor's terminal would be outside the fence.
#[tokio::test]
async fn behind_a_fence_the_editors_terminal_is_used_only_if_the_person_wants_it() {
    for (mode, wanted, used) in [
        (Mode::WorkspaceWrite, false, false),
        (Mode::WorkspaceWrite, true, true),
        (Mode::ReadOnly, true, false),
    ] {
        let script = Script::new([vec![call("shell", r#"{"command":"true"}"#)], vec![say("done")]]);
        let mut config = AgentConfig::new(vec![Arc::new(script.clone())]);
        config.reach = ToolAccess { mode, editor_terminal: wanted, ..ToolAccess::default() };
        run(Setup::new(Agent::new(config)), async |server| {
            let mut client = server.connect();
            client.initialize_with(terminals()).await;
            client.answer_all("allow_once");
            let session = client.new_session().await;
            let turn = client.send_prompt(&session, "go").await;
            let exit = json!({ "exitCode": 0 });
            client.serve(turn, |method, _| terminal(method, "", &exit)).await;
            assert_eq!(!methods(&client).is_empty(), used, "{mode:?} {wanted}");
            client.catch_up_all().await;
        })
        .await;
    }
}

/// A server whose person wants commands in the editor's terminal, although there is a fence.
fn outside(script: &Script) -> Setup {
    let mut config = AgentConfig::new(vec![Arc::new(script.clone())]);
    config.environment = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    config.reach = ToolAccess { mode: Mode::WorkspaceWrite, editor_terminal: true, ..ToolAccess::default() };
    Setup::new(Agent::new(config))
}

async fn ask_nothing(client: &mut Client, session: &str) {
    let params = json!({ "sessionId": session, "configId": "approval", "value": "full" });
    client.call("session/set_config_option", params).await;
}

/// V9: what only looks runs without asking, so git runs nothing there that a repository names.
#[tokio::test]
async fn git_that_only_looks_runs_nothing_of_the_repository_in_the_editors_terminal() {
    let run_it = vec![call("shell", r#"{"command":"git status"}"#)];
    check(terminals(), Mode::Off, run_it, async |_, client, session, _| {
        let turn = client.send_prompt(&session, "go").await;
        let mut created = Value::Null;
        client
            .serve(turn, |method, params| {
                if method == "terminal/create" {
                    created = params.clone();
                }
                terminal(method, "", &json!({ "exitCode": 0 }))
            })
            .await;
        assert!(created["env"].to_string().contains("core.fsmonitor"), "{created}");
    })
    .await;
}

/// Does what the editor is asked to do for one command.
async fn run_one(client: &mut Client) {
    loop {
        let asked = client.next_call().await;
        let method = asked["method"].as_str().unwrap().to_owned();
        client.respond(&asked, terminal(&method, "", &json!({ "exitCode": 0 })).unwrap().unwrap()).await;
        if method == "terminal/release" {
            return;
        }
    }
}

/// V3: no preset answers it, and "always" is for that very command.
#[tokio::test]
async fn leaving_the_fence_is_asked_under_every_preset_and_for_each_command_of_its_own() {
    let shell = |command: &str| vec![call("shell", json!({ "command": command }).to_string())];
    let script = Script::new([shell("ls"), shell("ls"), shell("ls -a"), shell("ls -a"), vec![say("done")]]);
    run(outside(&script), async |server| {
        let mut client = server.connect();
        client.initialize_with(terminals()).await;
        let session = client.new_session().await;
        ask_nothing(&mut client, &session).await;
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        assert_eq!(ask["params"]["toolCall"]["title"], "ls");
        assert!(ask.to_string().contains("runs in the editor's terminal, outside the sandbox"), "{ask}");
        client.answer(&ask, "allow_always").await;
        run_one(&mut client).await;
        // The same again is not asked for.
        run_one(&mut client).await;
        for answer in ["allow_once", "reject_once"] {
            let ask = client.next_ask().await;
            assert_eq!(ask["params"]["toolCall"]["title"], "ls -a");
            client.answer(&ask, answer).await;
            if answer == "allow_once" {
                run_one(&mut client).await;
            }
        }
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert_eq!(script.last_result(), "not allowed: the user refused it");
        assert_eq!(methods(&client).iter().filter(|method| **method == "terminal/create").count(), 3);
        client.catch_up_all().await;
    })
    .await;
}

/// Where nobody at the machine can be asked it is refused, and what to do is said.
#[tokio::test]
async fn nobody_at_the_machine_means_that_no_command_leaves_the_fence() {
    for attended in [true, false] {
        let run_it = vec![call("shell", r#"{"command":"touch made"}"#)];
        let script = Script::new([run_it, vec![say("done")]]);
        let mut setup = outside(&script);
        setup.limits.attended = attended;
        run(setup, async |server| {
            let who = if attended { Principal("ci".into()) } else { Principal::local() };
            let mut client = server.connect_as(who);
            client.initialize_with(terminals()).await;
            let session = client.new_session().await;
            ask_nothing(&mut client, &session).await;
            assert_eq!(client.prompt(&session, "go").await, "end_turn");
            let told = script.last_result();
            assert!(told.contains("outside the sandbox, and nobody at this machine can be asked"), "{told}");
            assert!(told.contains("remove `terminal = \"editor\"` from this machine's settings"), "{told}");
            assert!(!server.workspace().join("made").exists());
            assert!(methods(&client).is_empty());
            client.catch_up_all().await;
        })
        .await;
    }
}

/// What was asked for is what is done, whoever comes or goes meanwhile.
#[tokio::test]
async fn an_editor_that_comes_while_a_command_is_asked_for_does_not_get_it() {
    let script = Script::new([vec![call("shell", r#"{"command":"touch made"}"#)], vec![say("done")]]);
    run(outside(&script), async |server| {
        let mut first = server.client().await;
        let session = first.new_session().await;
        let turn = first.send_prompt(&session, "go").await;
        let ask = first.next_ask().await;
        assert!(!ask.to_string().contains("outside the sandbox"), "{ask}");
        let mut editor = server.connect();
        editor.initialize_with(terminals()).await;
        editor.load(&session).await;
        first.answer(&ask, "allow_once").await;
        assert_eq!(first.stop_reason(turn).await, "end_turn");
        assert!(server.workspace().join("made").exists(), "{}", script.last_result());
        assert!(methods(&editor).is_empty());
        editor.catch_up(&session).await;
        editor.drain_withdrawn();
        editor.drain_asks();
        first.catch_up_all().await;
    })
    .await;
}

#[tokio::test]
async fn an_editor_that_goes_while_a_command_is_asked_for_leaves_it_to_the_fence() {
    let script = Script::new([vec![call("shell", r#"{"command":"touch made"}"#)], vec![say("done")]]);
    run(outside(&script), async |server| {
        let mut editor = server.connect();
        editor.initialize_with(terminals()).await;
        let session = editor.new_session().await;
        editor.send_prompt(&session, "go").await;
        editor.next_ask().await;
        let mut other = server.client().await;
        other.load(&session).await;
        let ask = other.next_ask().await;
        assert!(ask.to_string().contains("outside the sandbox"), "{ask}");
        editor.hang_up().await;
        other.answer(&ask, "allow_once").await;
        server.idle(&session).await;
        assert!(server.workspace().join("made").exists(), "{}", script.last_result());
        other.catch_up_all().await;
    })
    .await;
}

/// Those who do not have the terminal see what stands in it.
#[tokio::test]
async fn another_client_sees_the_output_as_text_and_no_terminal() {
    let run_it = vec![call("shell", r#"{"command":"make"}"#)];
    check(terminals(), Mode::Off, run_it, async |server, client, session, _| {
        let mut other = server.client().await;
        other.load(&session).await;
        let turn = client.send_prompt(&session, "go").await;
        let exit = json!({ "exitCode": 0 });
        client.serve(turn, |method, _| terminal(method, "built\n", &exit)).await;
        other.catch_up(&session).await;
        let shown = serde_json::to_string(other.frames()).unwrap();
        assert!(shown.contains("built") && !shown.contains("terminalId"), "{shown}");
        other.drain_withdrawn();
        other.drain_asks();
    })
    .await;
}
