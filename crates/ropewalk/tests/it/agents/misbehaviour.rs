//! Agents that send unexpected messages: the session stays usable, memory and disk stay bounded, and extensions that only
//! the agent and its client understand are passed through.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::agents::world::{Client, World, text_of};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/agents/odd.py");
/// A tenth of the longest line that the agent sends.
const MORE_MEMORY_KIB_MAX: u64 = 100 << 10 >> 1;

fn odd() -> (World, Client, String) {
    odd_with(&[], json!({}))
}

fn odd_with(options: &[&str], can: Value) -> (World, Client, String) {
    odd_with_settings("", options, can)
}

fn odd_with_settings(settings: &str, options: &[&str], can: Value) -> (World, Client, String) {
    let world = World::new();
    fs::copy(SCRIPT, world.path("bin/odd.py")).unwrap();
    let script = world.path("bin/odd.py").display().to_string();
    world.settings(&format!("{settings}[agents.odd]\ncommand = \"python3\"\nargs = [{script:?}]\n"));
    let mut client = world.serve_editor(&[&["--agent", "odd"], options].concat(), can);
    let opened = client.call("session/new", world.folder());
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    (world, client, session)
}

/// The most memory that a process has had.
fn most_memory_kib(process: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_line_of_a_hundred_megabytes_is_left_out_and_said() {
    let (_world, mut client, session) = odd();
    client.said(&session, "hello");
    let before = most_memory_kib(client.pid());
    let id = client.prompt(&session, "long_line");
    let frames = client.frames_to(id);
    assert_eq!(frames.last().unwrap()["result"]["stopReason"], "end_turn", "{frames:?}");
    let shown = frames.iter().map(Value::to_string).collect::<String>();
    assert!(shown.contains("odd sent something invalid") && shown.contains("after the long line"));
    let more = most_memory_kib(client.pid()) - before;
    assert!(more < MORE_MEMORY_KIB_MAX, "{more} KiB more were needed");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
}

#[test]
fn what_is_no_message_is_passed_over() {
    let (_world, mut client, session) = odd();
    let said = client.said(&session, "nonsense");
    assert!(said.contains("after") && said.contains("the nonsense"), "{said}");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
}

#[test]
fn half_a_line_ends_the_turn_and_the_next_prompt_is_answered() {
    let (_world, mut client, session) = odd();
    let id = client.prompt(&session, "half_a_line");
    let failed = client.reply(id);
    assert!(failed.to_string().contains("odd ended with code 7"), "{failed}");
    let said = client.said(&session, "still there");
    assert!(said.ends_with("heard still there"), "{said}");
    client.finish();
}

/// Two thousand updates, each of which says all of the output again: 44 MB in all, of 46 KB of output.
#[test]
fn output_that_is_said_again_and_again_is_stored_once() {
    let (world, mut client, session) = odd();
    let id = client.prompt(&session, "cumulative");
    let frames = client.frames_to(id);
    assert!(text_of(&frames).contains("after the build"));
    client.finish();
    let stored: u64 = fs::read_dir(world.path("outer"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("sessions.db"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(stored > 0 && stored < 4 << 20, "{stored} bytes are stored");
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert!(shown.contains("line 1999 of a long build"), "{shown}");
}

const LIMITS: &str = "[limits]\nanswer_bytes_max = 200000\nturn_bytes_max = 2000000\n";

/// Ends the turn of an agent that does not end it, and prompts it once more.
fn ends_at(deed: &str, limit: &str) {
    let (world, mut client, session) = odd_with_settings(LIMITS, &["--approval", "full"], json!({}));
    let id = client.prompt(&session, deed);
    let frames = client.frames_to(id);
    assert_eq!(frames.last().unwrap()["result"]["stopReason"], "max_tokens", "{:?}", frames.last());
    let shown = frames.iter().map(Value::to_string).collect::<String>();
    assert!(shown.contains(limit) && shown.contains("odd sent more than"), "{shown}");
    let said = client.said(&session, "still there");
    assert!(said.ends_with("heard still there"), "{said}");
    client.finish();
    let stored = fs::metadata(world.path("outer/sessions.db")).unwrap().len();
    assert!(stored < 8 << 20, "{stored} bytes are stored");
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert_eq!(shown.matches("odd sent more than").count(), 1, "it is said once");
}

#[test]
fn a_message_without_an_end_is_ended_at_the_limit() {
    ends_at("endless_message", "answer_bytes_max");
}

#[test]
fn updates_without_an_end_are_ended_at_the_limit() {
    ends_at("endless_updates", "turn_bytes_max");
}

/// A request to empty a file is small, and what it leaves in the log is the file.
#[test]
fn writes_without_an_end_are_ended_at_the_limit() {
    ends_at("endless_writes", "turn_bytes_max");
}

#[test]
fn an_agent_that_says_too_much_and_ends_its_turn_at_once_is_told_of() {
    ends_at("too_much_and_the_end", "answer_bytes_max");
}

#[test]
fn an_agent_that_does_not_stop_at_the_limit_is_ended() {
    ends_at("endless_and_deaf", "answer_bytes_max");
}

#[test]
fn what_only_the_agent_and_its_client_understand_gets_through_both_ways() {
    let (_world, mut client, session) = odd();
    let id = client.prompt(&session, "extensions");
    let frames = client.until(|frame| frame["method"] == "_odd/wish");
    let told =
        |method: &str| frames.iter().find(|frame| frame["method"] == method).unwrap()["params"].clone();
    assert_eq!(told("_odd/told"), json!({ "sessionId": session, "mood": "fine", "_meta": { "x": 1 } }));
    assert_eq!(told("_odd/told_nobody")["mood"], "fine");
    assert_eq!(told("_odd/wish"), json!({ "sessionId": session, "wish": "tea" }));
    let wish = frames.last().unwrap();
    client.write(&json!({ "jsonrpc": "2.0", "id": wish["id"], "result": { "tea": true } }));
    assert_eq!(text_of(&client.frames_to(id)), r#"{"tea": true}"#);
    let asked = client.call("_odd/asked", json!({ "sessionId": session, "what": [1] }));
    assert_eq!(asked, json!({ "asked": { "sessionId": "odd-1", "what": [1] } }));
    client.finish();
}

#[test]
fn what_is_said_after_a_turn_comes_after_it_and_is_in_no_other() {
    let (world, mut client, session) = odd();
    let id = client.prompt(&session, "late");
    let frames = client.until(|frame| frame["method"] == "_odd/outcome");
    let at = |what: &dyn Fn(&Value) -> bool| frames.iter().position(what).unwrap();
    let says = |words: &'static str| {
        move |frame: &Value| frame["params"]["update"]["content"]["text"].as_str() == Some(words)
    };
    let (answer, late) = (at(&|frame| frame["id"] == id), at(&says("late")));
    assert!(at(&says("in time")) < answer && answer < late, "{frames:?}");
    let outcome = &frames.last().unwrap()["params"]["outcome"]["outcome"];
    assert_eq!(outcome, "cancelled", "nobody is asked outside a turn");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert!(shown.contains("late"), "{shown}");
}

#[test]
fn an_agent_with_too_many_questions_is_refused_some_and_goes_on() {
    let (_world, mut client, session) = odd();
    let id = client.prompt(&session, "many");
    let said = text_of(&client.frames_to(id));
    assert!(said.contains("requests are open in this session"), "{said}");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
}

#[test]
fn a_second_session_of_the_same_name_is_refused_and_the_first_goes_on() {
    let (world, mut client, session) = odd();
    let id = client.send("session/new", world.folder());
    let refused = client.reply(id)["error"].to_string();
    assert!(refused.contains("odd gave a new session the id of one that is already open"), "{refused}");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
}

#[test]
fn what_a_command_says_in_a_terminal_of_ours_can_be_seen() {
    let (world, mut client, session) = odd_with(&["--approval", "full"], json!({}));
    let id = client.prompt(&session, "in_a_terminal");
    let frames = client.frames_to(id);
    assert_eq!(frames.last().unwrap()["result"]["stopReason"], "end_turn", "{frames:?}");
    assert!(frames.iter().any(|frame| frame.to_string().contains("said in a terminal")), "{frames:?}");
    client.finish();
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert!(shown.contains("said in a terminal"), "{shown}");
}

/// What runs in an editor's terminal runs outside the fence, so it takes a setting of the person's.
#[test]
fn a_command_of_an_agent_stays_behind_the_fence_although_the_editor_offers_a_terminal() {
    let (world, mut client, session) = odd_with(&["--approval", "full"], json!({ "terminal": true }));
    let id = client.prompt(&session, "in_a_terminal");
    let frames = client.frames_to(id);
    assert_eq!(frames.last().unwrap()["result"]["stopReason"], "end_turn", "{frames:?}");
    assert!(frames.iter().all(|frame| frame["method"] != "terminal/create"), "{frames:?}");
    client.finish();
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert!(shown.contains("said in a terminal"), "{shown}");
}

/// Prompts an agent that has a command run, as an editor that answers each question so. What the editor was
/// asked to do.
fn run_in_editor(client: &mut Client, session: &str, word: &str, answer: &str) -> Vec<String> {
    let id = client.prompt(session, word);
    let mut asked = Vec::new();
    loop {
        let next = client.until(|frame| frame["id"] == id || frame.get("method").is_some()).pop().unwrap();
        let Some(method) = next["method"].as_str().filter(|_| !next["id"].is_null()) else {
            if next["id"] == id && next.get("method").is_none() {
                return asked;
            }
            continue;
        };
        asked.push(method.to_owned());
        let result = match method {
            "session/request_permission" => {
                let told = next.to_string();
                assert!(told.contains("runs in the editor's terminal, outside the sandbox"), "{told}");
                client.answer(&next, answer);
                continue;
            }
            "terminal/create" => json!({ "terminalId": "t" }),
            "terminal/wait_for_exit" => json!({ "exitCode": 0 }),
            _ => json!({}),
        };
        client.write(&json!({ "jsonrpc": "2.0", "id": next["id"], "result": result }));
    }
}

/// V3: the setting alone lets nothing out. No preset answers, and "always" is for that very command.
#[test]
fn a_command_of_an_agent_leaves_the_fence_by_the_owners_word_for_that_very_command() {
    let (settings, can) = ("terminal = \"editor\"\n", json!({ "terminal": true }));
    let (world, mut client, session) = odd_with_settings(settings, &["--approval", "full"], can.clone());
    let mut run = |word: &str, answer: &str| {
        let asked = run_in_editor(&mut client, &session, word, answer);
        let has = |method: &str| asked.iter().any(|asked| asked == method);
        (has("session/request_permission"), has("terminal/create"))
    };
    assert_eq!(run("in_a_terminal", "reject_once"), (true, false));
    assert_eq!(run("in_a_terminal", "allow_once"), (true, true));
    assert_eq!(run("in_a_terminal", "allow_always"), (true, true));
    assert_eq!(run("in_a_terminal", "reject_once"), (false, true), "it was answered for good");
    assert_eq!(run("in_another_terminal", "reject_always"), (true, false), "that was another command");
    assert_eq!(run("in_another_terminal", "allow_once"), (false, false));
    client.finish();
    // It is kept as what it was about, and as no rule.
    assert!(!world.path("outer/permissions.toml").exists());
    let listed = world.run(&["permissions", "list", "--json"]).with(0).json();
    let outside = listed["outside"].as_array().unwrap();
    assert_eq!(outside.len(), 2, "{listed}");
    assert_eq!((&outside[0]["allow"], &outside[1]["allow"]), (&json!(true), &json!(false)));
    assert_eq!(outside[0]["command"], "echo 'said in a terminal'");
    // It holds in the next process, until it is taken back.
    let again = |expected| {
        let mut client = world.serve_editor(&["--agent", "odd", "--approval", "full"], can.clone());
        let opened = client.call("session/new", world.folder());
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let asked = run_in_editor(&mut client, &session, "in_a_terminal", "reject_once");
        assert_eq!(asked.iter().any(|asked| asked == "session/request_permission"), expected, "{asked:?}");
        client.finish();
    };
    again(false);
    let shown = world.run(&["permissions", "list"]).with(0).out;
    assert!(shown.contains("allow  echo 'said in a terminal'"), "{shown}");
    let digest = outside[0]["digest"].as_str().unwrap();
    world.run(&["permissions", "remove", digest]).with(0);
    world.run(&["permissions", "remove", digest]).with(1);
    again(true);
}

/// A command that goes on after its turn is followed until it ends.
#[test]
fn what_a_command_leaves_after_its_turn_is_told_when_it_ends() {
    // Whoever takes no notices is told with the next turn.
    let notices = json!({ "session": { "notices": {} } });
    let (world, mut client, session) = odd_with(&["--approval", "full"], notices);
    client.said(&session, "in_a_terminal_for_later");
    fs::write(world.path("project/go"), "").unwrap();
    let frames = client.until(|frame| frame.to_string().contains("new files in the workspace"));
    assert!(frames.last().unwrap().to_string().contains(": a/.vscode; check them"), "{frames:?}");
    assert_eq!(client.said(&session, "still there"), "heard still there");
    client.finish();
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert_eq!(shown.matches("new files in the workspace").count(), 1, "{shown}");
}

/// Every agent of the table, with what `agents list` says of it and a program that does what it is told.
fn known_agents(world: &World) -> Vec<(String, Vec<PathBuf>, Vec<PathBuf>)> {
    fs::copy(SCRIPT, world.path("bin/odd.py")).unwrap();
    let listed = world.run(&["agents", "list", "--json"]).with(0).json();
    let agents = listed["agents"].as_array().unwrap().iter().filter(|agent| agent["from"] == "table");
    agents
        .map(|agent| {
            let below = |key: &str| -> Vec<PathBuf> {
                let paths = agent[key].as_array().unwrap().iter();
                paths.map(|path| world.path(path.as_str().unwrap().strip_prefix("~/").unwrap())).collect()
            };
            let program = agent["commands"][0].as_str().unwrap();
            world.program(program, &format!("exec python3 '{}'", world.path("bin/odd.py").display()));
            (agent["name"].as_str().unwrap().to_owned(), below("own_folders"), below("own_settings"))
        })
        .collect()
}

/// What the agent could write of these, and what it was said about it afterwards.
fn written(world: &World, agent: &str, options: &[&str], paths: &[PathBuf]) -> (Vec<PathBuf>, String) {
    let mut client = world.serve(&[&["--agent", agent], options].concat());
    let opened = client.call("session/new", world.folder());
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    // By their names below the home: its own path may have a space in it.
    let name = |path: &Path| format!("~/{}", path.strip_prefix(world.path("")).unwrap().display());
    let words = paths.iter().map(|path| format!(" {}", name(path))).collect::<String>();
    let said = client.said(&session, &format!("write{words}"));
    client.finish();
    let (_, wrote) = said.split_once("wrote").unwrap_or_else(|| panic!("{agent}: {said}"));
    let written = |path: &&PathBuf| wrote.split_whitespace().any(|word| word == name(path));
    let wrote = paths.iter().filter(written).cloned().collect();
    (wrote, world.run(&["sessions", "show", "--full", &session]).with(0).out)
}

/// What an agent is started with next time, perhaps without a fence, is not for it to choose.
#[test]
fn no_known_agent_changes_what_makes_it_run_something() {
    let world = World::new();
    for (agent, own, settings) in known_agents(&world) {
        for path in &settings {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if path.extension().is_some() || path.ends_with(".env") {
                fs::write(path, "mine").unwrap();
            } else {
                fs::create_dir(path).unwrap();
            }
        }
        fs::create_dir_all(&own[0]).unwrap();
        fs::write(own[0].join("line.sh"), "mine").unwrap();
        let free = own[0].join("of-its-own");
        let tried: Vec<_> = settings.iter().cloned().chain([own[0].join("line.sh"), free.clone()]).collect();
        let (wrote, shown) = written(&world, &agent, &[], &tried);
        assert_eq!(wrote, [free], "{agent}");
        assert!(!shown.contains("new files in the agent's own folders"), "{agent}: {shown}");
    }
}

/// A name that nobody has cannot be made read-only; in a session that only reads the agent can make it, too.
#[test]
fn what_an_agent_leaves_in_its_own_folders_that_makes_it_run_something_is_told() {
    for options in [&[][..], &["--sandbox", "read-only"]] {
        let world = World::new();
        for (agent, _, settings) in known_agents(&world).into_iter().take(4) {
            let first = &settings[..1];
            let (wrote, shown) = written(&world, &agent, options, first);
            assert_eq!(wrote, first, "{agent}");
            assert!(shown.contains("new files in the agent's own folders"), "{agent}: {shown}");
            let (wrote, shown) = written(&world, &agent, options, first);
            assert_eq!(wrote, [""; 0].map(PathBuf::from), "{agent}: it is there now");
            assert!(!shown.contains("new files in the agent's own folders"), "{agent}: {shown}");
        }
    }
}

/// Somebody who waits for a command keeps nobody from ending it.
#[test]
fn a_terminal_of_the_editor_is_given_back_when_the_agent_ends() {
    let can = json!({ "terminal": true });
    let settings = "terminal = \"editor\"\n";
    let (_world, mut client, session) = odd_with_settings(settings, &["--approval", "full"], can);
    let id = client.prompt(&session, "leave_a_terminal");
    let (mut asked, mut answered) = (Vec::new(), false);
    while !(answered && asked.iter().any(|method| method == "terminal/release")) {
        let next = client.until(|_| true).pop().unwrap();
        let method = next["method"].as_str().unwrap_or_default().to_owned();
        answered |= method.is_empty() && next["id"] == id;
        if method.is_empty() || next["id"].is_null() {
            continue;
        }
        if method != "terminal/wait_for_exit" {
            let result = match method.as_str() {
                "terminal/create" => json!({ "terminalId": "t" }),
                "session/request_permission" => {
                    let option = &next["params"]["options"][0]["optionId"];
                    json!({ "outcome": { "outcome": "selected", "optionId": option } })
                }
                _ => json!({}),
            };
            client.write(&json!({ "jsonrpc": "2.0", "id": next["id"], "result": result }));
        }
        asked.push(method);
    }
    assert!(asked.iter().any(|method| method == "terminal/kill"), "{asked:?}");
    client.finish();
}

#[test]
fn a_session_that_its_agent_does_not_name_is_called_by_its_first_prompt() {
    let (world, mut client, session) = odd();
    client.said(&session, "look after  the tea");
    client.finish();
    let shown = world.run(&["sessions", "list", "--json"]).with(0).json();
    assert_eq!(shown["sessions"][0]["title"], "look after the tea", "{shown}");
}

/// Answers that go past the log are cleaned like what is in it.
#[test]
fn secrets_in_what_an_agent_answers_are_taken_out() {
    let (_world, mut client, session) = odd();
    let key = "ghp_4fGh7Jk2Lm9Np3Qr5St8Uv1Wx6Yz0AbCdEfG";
    let params = json!({ "sessionId": session, "key": key });
    let asked = client.call("_odd/asked", params.clone());
    assert_eq!(asked["asked"]["key"], "ghp_[REDACTED]");
    let id = client.send("_odd/refused", params);
    let refused = client.reply(id)["error"].take();
    assert_eq!(refused["code"], -1);
    assert_eq!([&refused["message"], &refused["data"]["key"]], ["ghp_[REDACTED]"; 2]);
    client.finish();
}

/// Names of methods and updates that would be something else if they were not read as what they are.
#[test]
fn an_agent_cannot_ask_the_editor_under_a_false_name() {
    let (world, mut client, session) = odd();
    let id = client.prompt(&session, "forgery");
    let mut frames = Vec::new();
    loop {
        let next = client.until(|frame| frame["id"] == id || frame.get("method").is_some()).pop().unwrap();
        let (asks, last) = (next["method"].is_string() && !next["id"].is_null(), next["id"] == id);
        if asks && next["method"] != "session/request_permission" {
            let refused = json!({ "code": -32601, "message": "unknown" });
            client.write(&json!({ "jsonrpc": "2.0", "id": next["id"], "error": refused }));
        }
        frames.push(next);
        if last && !asks {
            break;
        }
    }
    assert_eq!(text_of(&frames), "[true, true, true]", "{frames:?}");
    assert!(frames.iter().all(|frame| frame["method"] != "terminal/create"), "{frames:?}");
    let spoken = |frame: &Value| frame["params"]["update"]["sessionUpdate"] == "user_message_chunk";
    assert!(!frames.iter().any(spoken), "{frames:?}");
    assert!(!world.path("project/forged.txt").exists());
    client.finish();
}

#[test]
fn a_program_that_is_no_agent_is_said_to_be_none() {
    let world = World::new();
    let mut client = world.serve(&["--", "cat"]);
    let id = client.send("session/new", world.folder());
    let refused = client.reply(id)["error"]["message"].to_string();
    assert!(refused.contains("cat only echoes its input") && refused.contains("Agent Client Protocol"));
    assert!(!refused.contains("signal"), "how we ended it is no news: {refused}");
    client.finish();
}

#[test]
fn an_agent_that_cannot_work_is_left_alone_for_a_while_and_that_is_said() {
    let world = World::new();
    world.settings("[agents.broken]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo no key >&2; exit 3\"]\n");
    let mut client = world.serve(&["--agent", "broken"]);
    let mut refused = String::new();
    for _ in 0..5 {
        let id = client.send("session/new", world.folder());
        refused = client.reply(id)["error"].to_string();
        assert!(refused.contains("no key"), "{refused}");
    }
    assert!(refused.contains("times in a row") && refused.contains("trying again in"), "{refused}");
    client.finish();
}
