//! The files, commands and editor terminals that an external agent is offered, with real files and real
//! commands.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Abilities, Backend, BackendSession, BoxFuture, Content, SessionSpec, Stop, ToolClass, TurnContext,
    TurnError, TurnInput, approval_spec,
};
use external::{Grant, HostServices, HostServicesSpec};
use sandbox::{CommandLimits, Mode, Policy};
use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run, write};

/// How the calls of an agent ended: with a result, or with a code and a text.
type CallResults = Arc<Mutex<Vec<Result<Value, (i64, String)>>>>;

/// An agent that asks its client for what the prompt lists: `[[method, params], ..]`. A method `allowed`
/// stands for a permission that it was given before.
struct ScriptedAgent {
    abilities: Abilities,
    mode: Mode,
    /// The person wants commands in the editor's terminal.
    editor_terminal: bool,
    results: CallResults,
}

struct ScriptedSession {
    services: HostServices,
    /// What `last` stands for.
    last_terminal: Mutex<Value>,
    results: CallResults,
}

impl Backend for ScriptedAgent {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec, _context: engine::SessionContext) -> Arc<dyn BackendSession> {
        let policy = Policy { mode: self.mode, roots: vec![spec.cwd.clone()], ..Policy::default() };
        let spec = HostServicesSpec {
            cwd: spec.cwd,
            policy,
            helper: None,
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            limits: CommandLimits { grace: Duration::from_millis(50), ..CommandLimits::default() },
            editor_terminal: self.editor_terminal,
        };
        let services = HostServices::open(spec, Arc::new(|_| Box::pin(async { Ok(()) })));
        Arc::new(ScriptedSession {
            services,
            last_terminal: Mutex::default(),
            results: Arc::clone(&self.results),
        })
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }
}

impl BackendSession for ScriptedSession {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        let Some(Content::Text(text)) = input.content.first() else { panic!("no prompt") };
        let calls: Vec<(String, Value)> = serde_json::from_str(text).unwrap();
        Box::pin(async move {
            for (method, mut params) in calls {
                if method == "allowed" {
                    let class = if params["path"].is_null() { ToolClass::Execute } else { ToolClass::Edit };
                    let path = params["path"].as_str().map(Into::into);
                    self.services.add_grant(Grant {
                        class,
                        path,
                        line: params["line"].as_str().map(Into::into),
                    });
                    continue;
                }
                params["sessionId"] = "theirs".into();
                if params["terminalId"] == "last" {
                    params["terminalId"] = self.last_terminal.lock().unwrap().clone();
                }
                let params = serde_json::value::to_raw_value(&params).unwrap();
                let answer = match wire::acp::host_request(&method, Some(&params)).unwrap() {
                    Ok(wish) => self.services.serve(Some(&context), wish.call).await,
                    Err(unserved) => Err(unserved),
                };
                let answer = answer.and_then(|reply| wire::acp::host_result(&reply));
                let answer: Result<Value, _> = answer.map(|raw| serde_json::from_str(raw.get()).unwrap());
                if let Ok(Value::String(id)) = answer.as_ref().map(|answer| answer["terminalId"].clone()) {
                    *self.last_terminal.lock().unwrap() = id.into();
                }
                self.results.lock().unwrap().push(answer.map_err(|error| (error.code(), error.to_string())));
            }
            self.services.turn_ended();
            Ok(if context.cancel.is_cancelled() { Stop::Cancelled } else { Stop::EndTurn })
        })
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.services.close().await })
    }
}

/// A session of such an agent under an approval, with a client that can do this.
async fn check(
    given: (Mode, &str, Value),
    test: impl AsyncFnOnce(&mut Server, &mut Client, String, &CallResults),
) {
    check_outside(false, given, test).await;
}

/// The same where the person may want commands in the editor's terminal.
async fn check_outside(
    editor_terminal: bool,
    (mode, approval, capabilities): (Mode, &str, Value),
    test: impl AsyncFnOnce(&mut Server, &mut Client, String, &CallResults),
) {
    let results = CallResults::default();
    let abilities = Abilities { settings: vec![approval_spec()], ..Abilities::default() };
    let setup = Setup::new(ScriptedAgent { abilities, mode, editor_terminal, results: Arc::clone(&results) });
    run(setup, async |server| {
        let mut client = server.connect();
        client.initialize_with(capabilities).await;
        let session = client.new_session().await;
        let params = json!({ "sessionId": session, "configId": "approval", "value": approval });
        client.call("session/set_config_option", params).await;
        test(server, &mut client, session, &results).await;
        client.catch_up_all().await;
    })
    .await;
}

async fn prompt(
    client: &mut Client,
    session: &str,
    calls: Value,
    results: &CallResults,
) -> Vec<Result<Value, (i64, String)>> {
    results.lock().unwrap().clear();
    assert_eq!(client.prompt(session, &calls.to_string()).await, "end_turn");
    std::mem::take(&mut results.lock().unwrap())
}

fn living(word: &str) -> usize {
    let lines = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

async fn until(state: impl Fn() -> bool) {
    let wait = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}

#[tokio::test]
async fn files_are_read_and_written_in_the_workspace() {
    check((Mode::WorkspaceWrite, "auto", json!({})), async |server, client, session, results| {
        let root = server.workspace();
        write(root.join("a.txt"), "one\ntwo\nthree\n");
        let calls = json!([
            ["fs/read_text_file", { "path": root.join("a.txt") }],
            ["fs/read_text_file", { "path": root.join("a.txt"), "line": 2, "limit": 1 }],
            ["fs/write_text_file", { "path": root.join("new/b.txt"), "content": "fresh\n" }],
            ["fs/read_text_file", { "path": root.join("gone.txt") }],
            ["fs/read_text_file", { "path": root.join("new") }],
            ["fs/read_text_file", {}],
        ]);
        let told = prompt(client, &session, calls, results).await;
        assert_eq!(told[0], Ok(json!({ "content": "one\ntwo\nthree\n" })));
        assert_eq!(told[1], Ok(json!({ "content": "two\n" })));
        assert_eq!(told[2], Ok(json!({})));
        assert_eq!(std::fs::read_to_string(root.join("new/b.txt")).unwrap(), "fresh\n");
        assert_eq!(told[3].clone().unwrap_err().0, -32002);
        assert!(told[4].clone().unwrap_err().1.contains("it is a folder"));
        assert_eq!(told[5].clone().unwrap_err().0, -32602);
    })
    .await;
}

#[tokio::test]
async fn whatever_leads_out_of_the_workspace_or_is_protected_is_refused() {
    check((Mode::WorkspaceWrite, "full", json!({})), async |server, client, session, results| {
        let (root, outside) = (server.workspace(), server.folder("outside"));
        write(outside.join("f"), "secret");
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        let mut calls = Vec::new();
        for path in [outside.join("f"), root.join("../outside/f"), root.join("link/f")] {
            calls.push(json!(["fs/read_text_file", { "path": path }]));
            calls.push(json!(["fs/write_text_file", { "path": path, "content": "x" }]));
            calls.push(json!(["terminal/create", { "command": "pwd", "cwd": path.parent() }]));
        }
        for path in [".git/hooks/pre-commit", ".vscode/tasks.json"] {
            calls.push(json!(["fs/write_text_file", { "path": root.join(path), "content": "x" }]));
        }
        for refused in prompt(client, &session, calls.into(), results).await {
            let (code, why) = refused.unwrap_err();
            assert!(code == -32001 && why.starts_with("not allowed: "), "{code} {why}");
        }
        assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "secret");
        assert!(!root.join(".git").exists() && !root.join(".vscode").exists());
    })
    .await;
}

#[tokio::test]
async fn each_wish_is_asked_for_as_those_of_our_own_agent_are() {
    check((Mode::WorkspaceWrite, "suggest", json!({})), async |server, client, session, results| {
        let root = server.workspace();
        write(root.join("a.txt"), "old\n");
        write(root.join(".env"), "KEY=1\n");
        let calls = json!([
            ["fs/read_text_file", { "path": root.join("a.txt") }],
            ["fs/write_text_file", { "path": root.join("a.txt"), "content": "new\n" }],
            ["fs/read_text_file", { "path": root.join(".env") }],
            ["terminal/create", { "command": "rm", "args": ["-rf", "a b"] }],
        ]);
        let turn = client.send_prompt(&session, &calls.to_string()).await;
        let ask = client.next_ask().await;
        let call = &ask["params"]["toolCall"];
        assert_eq!(
            (&call["title"], &call["kind"]),
            (&json!(format!("Write {}", root.join("a.txt").display())), &json!("edit"))
        );
        assert!(call["content"].to_string().contains(r#""oldText":"old\n","newText":"new\n""#), "{call}");
        client.answer(&ask, "allow_once").await;
        let ask = client.next_ask().await;
        assert_eq!(ask["params"]["toolCall"]["kind"], "read", "what holds secrets is asked for");
        client.answer(&ask, "reject_once").await;
        let ask = client.next_ask().await;
        assert_eq!(ask["params"]["toolCall"]["title"], "rm -rf 'a b'");
        client.answer(&ask, "reject_once").await;
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        let told = std::mem::take(&mut *results.lock().unwrap());
        assert_eq!(told[0], Ok(json!({ "content": "old\n" })));
        assert_eq!(told[1], Ok(json!({})));
        assert!(told[2..].iter().all(|answer| matches!(answer, Err((-32001, _)))), "{told:?}");
        assert_eq!(std::fs::read_to_string(root.join("a.txt")).unwrap(), "new\n");
    })
    .await;
}

#[tokio::test]
async fn what_was_just_allowed_is_not_asked_for_again_but_only_once_and_only_in_that_turn() {
    check((Mode::WorkspaceWrite, "suggest", json!({})), async |server, client, session, results| {
        let path = server.workspace().join("a.txt");
        let write = json!(["fs/write_text_file", { "path": path, "content": "x" }]);
        let run = json!(["terminal/create", { "command": "sh", "args": ["-c", "touch made"] }]);
        let calls = json!([
            ["allowed", { "path": path }],
            ["allowed", { "line": "touch made" }],
            write,
            run,
            ["terminal/wait_for_exit", { "terminalId": "last" }],
            ["allowed", { "path": path }],
        ]);
        let told = prompt(client, &session, calls, results).await;
        assert!(told.iter().all(Result::is_ok), "{told:?}");
        assert!(server.workspace().join("made").exists());
        let turn = client.send_prompt(&session, &json!([write]).to_string()).await;
        let ask = client.next_ask().await;
        client.answer(&ask, "reject_once").await;
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert!(results.lock().unwrap()[0].is_err());
    })
    .await;
}

#[tokio::test]
async fn commands_run_are_looked_at_waited_for_ended_and_released() {
    check((Mode::WorkspaceWrite, "full", json!({})), async |server, client, session, results| {
        let root = server.workspace();
        std::fs::create_dir(root.join("sub")).unwrap();
        let calls = json!([
            ["terminal/create", {
                "command": "sh", "args": ["-c", "pwd; echo $MARK; echo err >&2; exit 3"],
                "env": [{ "name": "MARK", "value": "a b" }], "cwd": root.join("sub"),
            }],
            ["terminal/wait_for_exit", { "terminalId": "last" }],
            ["terminal/output", { "terminalId": "last" }],
            ["terminal/release", { "terminalId": "last" }],
            ["terminal/output", { "terminalId": "last" }],
            ["terminal/create", { "command": "seq 1 100000 && echo done", "outputByteLimit": 20 }],
            ["terminal/wait_for_exit", { "terminalId": "last" }],
            ["terminal/output", { "terminalId": "last" }],
            ["terminal/create", { "command": "sleep", "args": ["300"] }],
            ["terminal/output", { "terminalId": "last" }],
            ["terminal/kill", { "terminalId": "last" }],
            ["terminal/wait_for_exit", { "terminalId": "last" }],
            ["terminal/create", { "command": "no-such-program" }],
            ["terminal/wait_for_exit", { "terminalId": "last" }],
            ["terminal/output", { "terminalId": "last" }],
        ]);
        let told = prompt(client, &session, calls, results).await;
        assert_eq!(told[1], Ok(json!({ "exitCode": 3 })));
        let output = told[2].as_ref().unwrap();
        let lines: Vec<_> = output["output"].as_str().unwrap().lines().collect();
        assert!(lines.contains(&root.join("sub").to_str().unwrap()), "{output}");
        assert!(lines.contains(&"a b") && lines.contains(&"err"), "{output}");
        assert_eq!((&output["truncated"], &output["exitStatus"]["exitCode"]), (&json!(false), &json!(3)));
        assert_eq!(told[4].as_ref().unwrap_err().0, -32002, "it was released");
        assert_eq!(told[7].as_ref().unwrap()["output"], "8\n99999\n100000\ndone\n");
        assert_eq!(told[7].as_ref().unwrap()["truncated"], true);
        assert!(told[9].as_ref().unwrap()["exitStatus"].is_null(), "it runs");
        assert_eq!(told[11].as_ref().unwrap()["signal"], "SIGTERM");
        assert_eq!(told[13], Ok(json!({ "exitCode": 127 })));
        assert!(told[14].as_ref().unwrap()["output"].as_str().unwrap().contains("could not be started"));
    })
    .await;
}

#[tokio::test]
async fn there_are_not_more_than_64_terminals_and_none_outlives_its_session() {
    let word = format!("desk-{}", std::process::id());
    check((Mode::WorkspaceWrite, "full", json!({})), async |_, client, session, results| {
        let start =
            json!(["terminal/create", { "command": "sh", "args": ["-c", format!("sleep 300; : {word}")] }]);
        let told = prompt(client, &session, vec![start.clone(); 65].into(), results).await;
        assert!(told[..64].iter().all(Result::is_ok), "{:?}", told[63]);
        assert!(told[64].as_ref().unwrap_err().1.contains("release some"), "{:?}", told[64]);
        until(|| living(&word) == 64).await;
        let calls = json!([["terminal/release", { "terminalId": "last" }], start]);
        assert!(prompt(client, &session, calls, results).await.iter().all(Result::is_ok));
        client.call("session/close", json!({ "sessionId": session })).await;
        until(|| living(&word) == 0).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_too_large_or_no_text_is_refused_and_the_next_call_works() {
    check((Mode::WorkspaceWrite, "full", json!({})), async |server, client, session, results| {
        let root = server.workspace();
        std::fs::write(root.join("large"), vec![b'x'; (10 << 20) + 1]).unwrap();
        std::fs::write(root.join("binary"), [0xff, 0xfe, 0]).unwrap();
        let calls = json!([
            ["fs/read_text_file", { "path": root.join("large") }],
            ["fs/read_text_file", { "path": root.join("binary") }],
            ["fs/write_text_file", { "path": root.join("binary"), "content": "text" }],
            ["fs/write_text_file", { "path": root.join("k"), "content": "key = [REDACTED]" }],
            ["terminal/create", { "command": "" }],
            ["fs/read_text_file", { "path": root.join("binary") }],
        ]);
        let told = prompt(client, &session, calls, results).await;
        assert!(told[0].as_ref().unwrap_err().1.contains("larger than 10 MiB"));
        assert!(told[1].as_ref().unwrap_err().1.contains("not a text file"));
        assert_eq!(told[2], Ok(json!({})));
        assert!(told[3].as_ref().unwrap_err().1.contains("destroy the secret"));
        assert_eq!(told[4].as_ref().unwrap_err().0, -32602);
        assert_eq!(told[5], Ok(json!({ "content": "text" })));
    })
    .await;
}

#[tokio::test]
async fn an_editor_that_offers_files_has_them_and_its_no_is_a_no() {
    let files = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    check((Mode::WorkspaceWrite, "full", files), async |server, client, session, results| {
        let root = server.workspace();
        write(root.join("a.txt"), "on the disk\n");
        let calls = json!([
            ["fs/read_text_file", { "path": root.join("a.txt"), "line": 1, "limit": 5 }],
            ["fs/write_text_file", { "path": root.join("b.txt"), "content": "x" }],
            ["fs/write_text_file", { "path": root.join("locked.txt"), "content": "x" }],
            ["fs/read_text_file", { "path": root.join("gone.txt") }],
        ]);
        let turn = client.send_prompt(&session, &calls.to_string()).await;
        let mut written = Vec::new();
        client
            .serve(turn, |method, params| {
                let path = params["path"].as_str().unwrap().to_owned();
                Some(match method {
                    "fs/read_text_file" if path.ends_with("a.txt") => Ok(json!({ "content": "unsaved\n" })),
                    "fs/write_text_file" if path.ends_with("b.txt") => {
                        written.push(path);
                        Ok(json!({}))
                    }
                    _ => Err("no"),
                })
            })
            .await;
        let told = std::mem::take(&mut *results.lock().unwrap());
        assert_eq!(told[0], Ok(json!({ "content": "unsaved\n" })));
        assert_eq!(told[1], Ok(json!({})));
        assert_eq!(written, [root.join("b.txt").display().to_string()]);
        assert!(told[2].as_ref().unwrap_err().1.contains("the editor refused: no"));
        assert!(!root.join("b.txt").exists() && !root.join("locked.txt").exists());
        assert_eq!(told[3].as_ref().unwrap_err().0, -32002);
    })
    .await;
}

#[tokio::test]
async fn an_editors_terminal_is_used_where_there_is_no_fence_and_goes_by_its_own_name() {
    for (mode, used) in [(Mode::Off, true), (Mode::WorkspaceWrite, false)] {
        check((mode, "full", json!({ "terminal": true })), async |server, client, session, results| {
            let calls = json!([
                ["terminal/create", { "command": "echo", "args": ["hi"] }],
                ["terminal/wait_for_exit", { "terminalId": "last" }],
                ["terminal/output", { "terminalId": "last" }],
                ["terminal/release", { "terminalId": "last" }],
            ]);
            let turn = client.send_prompt(&session, &calls.to_string()).await;
            let mut asked = Vec::new();
            client
                .serve(turn, |method, params| {
                    asked.push(method.to_owned());
                    Some(Ok(match method {
                        "terminal/create" => {
                            assert_eq!(params["cwd"], json!(server.workspace()));
                            // It only looks, so git would run nothing of the repository.
                            assert!(params["env"].to_string().contains("core.fsmonitor"), "{params}");
                            json!({ "terminalId": "editor-1" })
                        }
                        "terminal/output" => json!({ "output": "shown there", "truncated": false }),
                        "terminal/wait_for_exit" => json!({ "exitCode": 0 }),
                        _ => json!({}),
                    }))
                })
                .await;
            let told = std::mem::take(&mut *results.lock().unwrap());
            assert_eq!(told[0].as_ref().unwrap()["terminalId"] == "editor-1", used, "{mode}");
            let shown = if used { "shown there" } else { "hi\n" };
            assert_eq!(told[2].as_ref().unwrap()["output"], shown, "{mode}");
            assert_eq!(!asked.is_empty(), used, "{mode}");
        })
        .await;
    }
}

/// V3: neither a preset nor what the agent itself was allowed answers it.
#[tokio::test]
async fn an_agents_command_leaves_the_fence_only_if_that_very_command_is_allowed_to() {
    let given = (Mode::WorkspaceWrite, "full", json!({ "terminal": true }));
    check_outside(true, given, async |server, client, session, results| {
        let create = |arguments: &[&str], env: Value| {
            json!(["terminal/create", { "command": "touch", "args": arguments, "env": env }])
        };
        let release = json!(["terminal/release", { "terminalId": "last" }]);
        let calls = json!([
            ["allowed", { "line": "touch a" }],
            create(&["a"], json!([])),
            create(&["a"], json!([])),
            release,
            create(&["a"], json!([])),
            release,
            create(&["a"], json!([{ "name": "X", "value": "1" }])),
            create(&["b"], json!([])),
        ]);
        let turn = client.send_prompt(&session, &calls.to_string()).await;
        for (title, answer) in [
            ("touch a", "reject_once"),
            ("touch a", "allow_always"),
            ("X=1 touch a", "reject_once"),
            ("touch b", "reject_once"),
        ] {
            let ask = client.next_ask().await;
            assert_eq!(ask["params"]["toolCall"]["title"], title);
            assert!(ask.to_string().contains("runs in the editor's terminal, outside the sandbox"), "{ask}");
            client.answer(&ask, answer).await;
            for _ in 0..if answer == "allow_always" { 2 } else { 0 } {
                let call = client.next_call().await;
                assert_eq!(call["method"], "terminal/create");
                client.respond(&call, json!({ "terminalId": "editor-1" })).await;
                for method in ["terminal/kill", "terminal/release"] {
                    let call = client.next_call().await;
                    assert_eq!(call["method"], method);
                    client.respond(&call, json!({})).await;
                }
            }
        }
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        let told = std::mem::take(&mut *results.lock().unwrap());
        let refused = |at: usize| matches!(&told[at], Err((-32001, _)));
        assert!(refused(0) && refused(5) && refused(6), "{told:?}");
        assert_eq!(told[1], Ok(json!({ "terminalId": "editor-1" })));
        assert_eq!(told[3], Ok(json!({ "terminalId": "editor-1" })));
        assert!(!server.workspace().join("a").exists() && !server.workspace().join("b").exists());
    })
    .await;
}

/// What was asked for is what is done: an editor that comes later gets no command.
#[tokio::test]
async fn an_agents_command_that_was_asked_for_inside_the_fence_stays_there() {
    let given = (Mode::WorkspaceWrite, "suggest", json!({}));
    check_outside(true, given, async |server, client, session, results| {
        let calls = json!([
            ["terminal/create", { "command": "touch", "args": ["made"] }],
            ["terminal/wait_for_exit", { "terminalId": "last" }],
        ]);
        let turn = client.send_prompt(&session, &calls.to_string()).await;
        let ask = client.next_ask().await;
        let mut editor = server.connect();
        editor.initialize_with(json!({ "terminal": true })).await;
        editor.load(&session).await;
        client.answer(&ask, "allow_once").await;
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert!(results.lock().unwrap().iter().all(Result::is_ok));
        assert!(server.workspace().join("made").exists());
        // A change that changes nothing is answered behind everything else.
        let params = json!({ "sessionId": session, "configId": "approval", "value": "suggest" });
        editor.call("session/set_config_option", params).await;
        let asked = |frame: &Value| frame["method"] == "terminal/create";
        assert!(!editor.frames().iter().any(asked));
        editor.drain_withdrawn();
        editor.drain_asks();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_a_wish_that_waits_for_an_answer() {
    check((Mode::WorkspaceWrite, "suggest", json!({})), async |server, client, session, results| {
        let calls = json!([["fs/write_text_file", { "path": server.workspace().join("a"), "content": "x" }]]);
        let turn = client.send_prompt(&session, &calls.to_string()).await;
        client.next_ask().await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert!(results.lock().unwrap()[0].is_err());
        assert!(!server.workspace().join("a").exists());
        client.drain_withdrawn();
    })
    .await;
}
