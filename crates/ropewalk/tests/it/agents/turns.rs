//! What an editor sees of an external agent.

use std::fs;

use serde_json::{Value, json};

use crate::agents::world::{World, is, text_of};

/// AA1: greeting, session, prompt, updates, end.
#[test]
fn a_turn_of_another_program_is_a_turn() {
    let world = World::new();
    let mut client = world.serve(&["--agent", "inner", "--approval", "suggest"]);
    let opened = client.call("session/new", world.folder());
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let options = opened["configOptions"].to_string();
    assert!(options.contains("offline:terse"), "what the agent offers is offered: {opened}");
    let id = client.prompt(&session, "stream 3 10 && then run echo from-the-agent");
    let asked = client.until(|frame| frame["method"] == "session/request_permission");
    assert!(text_of(&asked).len() >= 30, "{asked:?}");
    client.answer(asked.last().unwrap(), "allow_once");
    let frames = client.frames_to(id);
    assert_eq!(frames.last().unwrap()["result"]["stopReason"], "end_turn");
    let updates = frames.iter().map(Value::to_string).collect::<String>();
    assert!(updates.contains("from-the-agent"), "{updates}");
    client.finish();
    world.wait_until_no_agent_runs();
    let shown = world.run(&["sessions", "show", "--full", &session]).with(0).out;
    assert!(shown.contains("from-the-agent"), "{shown}");
}

/// AA1: what the agent asks is asked, and the answer is its own option.
#[test]
fn what_the_agent_asks_a_person_answers() {
    let world = World::new();
    let (mut client, session) = world.session(&["--approval", "suggest"]);
    for (option, written) in [("reject_once", false), ("allow_once", true)] {
        let id = client.prompt(&session, "write a.txt: hello");
        let asked = client.until(|frame| frame["method"] == "session/request_permission").pop().unwrap();
        let options = asked["params"]["options"].as_array().unwrap();
        assert!(options.iter().any(|offered| offered["optionId"] == option), "{asked}");
        client.answer(&asked, option);
        client.reply(id);
        assert_eq!(world.path("project/a.txt").exists(), written, "{option}");
    }
    client.finish();
}

/// The outcome `cancelled` ends the turn here and there.
#[test]
fn a_request_of_the_agents_that_is_cancelled_cancels_the_turn() {
    let world = World::new();
    let (mut client, session) = world.session(&["--approval", "suggest"]);
    let id = client.prompt(&session, "write a.txt: hello");
    let asked = client.until(|frame| frame["method"] == "session/request_permission").pop().unwrap();
    let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
    client.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": cancelled }));
    assert_eq!(client.reply(id)["result"]["stopReason"], "cancelled");
    assert!(!world.path("project/a.txt").exists());
    assert!(client.said(&session, "what did I say?").contains("write a.txt"));
    client.finish();
}

/// Rules of the person are asked before the person is.
#[test]
fn a_preset_answers_for_the_person() {
    let world = World::new();
    let (mut client, session) = world.session(&["--approval", "full"]);
    let id = client.prompt(&session, "write a.txt: hello");
    let frames = client.frames_to(id);
    assert!(frames.iter().all(|frame| frame["method"] != "session/request_permission"), "{frames:?}");
    assert_eq!(fs::read_to_string(world.path("project/a.txt")).unwrap(), "hello\n");
    client.finish();
    let (mut client, session) = world.session(&["--approval", "read-only"]);
    let id = client.prompt(&session, "write b.txt: hello");
    let frames = client.frames_to(id);
    assert!(frames.iter().all(|frame| frame["method"] != "session/request_permission"), "{frames:?}");
    assert!(!world.path("project/b.txt").exists());
    client.finish();
}

#[test]
fn a_cancel_reaches_the_agent_and_the_session_goes_on() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    let id = client.prompt(&session, "think && then sleep 600000");
    client.until(is("agent_thought_chunk"));
    client.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(client.reply(id)["result"]["stopReason"], "cancelled");
    assert!(client.said(&session, "what did I say?").contains("sleep 600000"));
    client.finish();
}

/// What is chosen is chosen at the agent.
#[test]
fn a_model_of_the_agents_is_chosen() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    let long = client.said(&session, "hello");
    let set = json!({ "sessionId": session, "configId": "model", "value": "offline:terse" });
    client.call("session/set_config_option", set);
    let short = client.said(&session, "hello");
    assert!(short.len() < long.len(), "{long} / {short}");
    client.finish();
}

/// A second client takes part in the session, and both see everything.
#[test]
fn two_clients_share_a_session_of_the_agents() {
    let world = World::new();
    let (mut client, session) = world.session(&["--stdio", "--http", ":0"]);
    client.said(&session, "first hello");
    let mut other = world.command(&["chat", "--plain", "--resume", &session, "second hello"]);
    let other = crate::command_output::CommandOutput::of(other.spawn().unwrap()).with(0);
    assert!(!other.out.is_empty());
    let frames = client.until(|frame| {
        is("agent_message_chunk")(frame) && frame["params"]["update"].to_string().contains("second hello")
            || is("user_message_chunk")(frame)
                && frame["params"]["update"].to_string().contains("second hello")
    });
    assert!(!frames.is_empty());
    let recalled = client.said(&session, "what did I say?");
    assert!(recalled.contains("first hello") && recalled.contains("second hello"), "{recalled}");
    client.hang_up();
    rustix::process::kill_process(client.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(client.exit_code(), Some(0));
    world.wait_until_no_agent_runs();
}

/// AA2: a cleared environment, and what is named or set.
#[test]
fn the_agent_sees_nothing_of_the_environment_but_what_it_was_given() {
    let world = World::new();
    let program = env!("CARGO_BIN_EXE_ropewalk");
    let home = world.path("inner").display().to_string();
    world.settings(&format!(
        "[agents.printing]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"env > seen.txt; exec '{program}' serve --sandbox off\"]\n\
         env = {{ ROPEWALK_HOME = {home:?}, SET_FOR_IT = \"yes\" }}\nown_folders = [{home:?}]\n"
    ));
    let mut client = world.serve(&["--agent", "printing", "--agent-env", "NAMED_ONE"]);
    client.call("session/new", world.folder());
    client.finish();
    let seen = fs::read_to_string(world.path("project/seen.txt")).unwrap();
    let names: std::collections::BTreeSet<&str> =
        seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in ["HOME", "PATH", "NAMED_ONE", "SET_FOR_IT", "ROPEWALK_HOME"] {
        assert!(names.contains(name), "{name}: {seen}");
    }
    for name in ["OPENAI_API_KEY", "A_SECRET_TOKEN", "ROPEWALK_SERVER_TOKEN"] {
        assert!(!names.contains(name), "{name}: {seen}");
    }
    assert!(!seen.contains("hush"), "{seen}");
}

/// The agent's program writes where it works and where its own things are, and nowhere else.
#[test]
fn the_agent_is_held_in_by_the_fence() {
    let world = World::new();
    fs::create_dir(world.path("elsewhere")).unwrap();
    let (mut client, session) = world.session(&["--approval", "full"]);
    let outside = world.path("elsewhere/x").display().to_string();
    client.said(&session, &format!("run echo in > inside.txt; echo out > {outside}"));
    assert!(world.path("project/inside.txt").exists());
    assert!(!world.path("elsewhere/x").exists());
    client.finish();
}

/// The agent can fork, and what is said in the fork is not said in the session that it came from.
#[test]
fn a_fork_has_a_session_of_its_own_at_the_agent() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    client.said(&session, "remember the rope");
    let mut place = world.folder();
    place["sessionId"] = session.as_str().into();
    let forked = client.call("session/fork", place);
    let fork = forked["sessionId"].as_str().unwrap().to_owned();
    let said = client.said(&fork, "and the anchor");
    assert!(!said.is_empty());
    let recalled = client.said(&fork, "what did I say?");
    assert!(recalled.contains("remember the rope") && recalled.contains("anchor"), "{recalled}");
    let recalled = client.said(&session, "what did I say?");
    assert!(recalled.contains("remember the rope") && !recalled.contains("anchor"), "{recalled}");
    client.finish();
}
