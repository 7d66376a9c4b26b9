//! Whichever process dies, the session survives and no process is left running.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::agents::world::{World, is, text_of};

/// How long a program may take to greet.
const HANDSHAKE: Duration = Duration::from_secs(30);

#[test]
fn an_agent_that_dies_in_a_turn_is_started_again_and_knows_what_was_said() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    client.said(&session, "remember the rope");
    let id = client.prompt(&session, "stream 3 10 && then sleep 600000");
    client.until(is("agent_message_chunk"));
    world.kill_agent();
    let failed = client.reply(id);
    assert!(failed.get("error").is_some() || failed["result"]["stopReason"] != "end_turn", "{failed}");
    assert!(failed.to_string().contains("inner"), "it is said who ended: {failed}");
    let recalled = client.said(&session, "what did I say?");
    assert!(recalled.contains("remember the rope"), "{recalled}");
    client.finish();
    world.wait_until_no_agent_runs();
}

#[test]
fn no_agent_outlives_a_server_that_was_killed() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    client.prompt(&session, "stream 3 10 && then sleep 600000");
    client.until(is("agent_message_chunk"));
    assert!(!world.agents().is_empty());
    kill_process(client.pid(), Signal::KILL).unwrap();
    world.wait_until_no_agent_runs();
}

/// The editor hangs up in the middle of a turn.
#[test]
fn no_agent_outlives_its_editor() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    client.prompt(&session, "stream 3 10 && then sleep 600000");
    client.until(is("agent_message_chunk"));
    client.hang_up();
    assert_eq!(client.exit_code(), Some(0));
    world.wait_until_no_agent_runs();
}

#[test]
fn after_a_restart_the_session_is_shown_whole_and_goes_on() {
    let world = World::new();
    let (mut client, session) = world.session(&[]);
    let first = client.said(&session, "remember the rope");
    let set = json!({ "sessionId": session, "configId": "model", "value": "offline:terse" });
    client.call("session/set_config_option", set);
    client.prompt(&session, "stream 5 10 && then sleep 600000");
    client.until(is("agent_message_chunk"));
    kill_process(client.pid(), Signal::KILL).unwrap();
    world.wait_until_no_agent_runs();
    let mut client = world.serve(&["--agent", "inner"]);
    let mut folder = world.folder();
    folder["sessionId"] = session.as_str().into();
    let id = client.send("session/load", folder);
    let frames = client.frames_to(id);
    assert!(text_of(&frames).contains(&first), "{frames:?}");
    let loaded = &frames.last().unwrap()["result"];
    let model =
        loaded["configOptions"].as_array().unwrap().iter().find(|option| option["id"] == "model").unwrap();
    assert_eq!(model["currentValue"], "offline:terse", "{loaded}");
    let recalled = client.said(&session, "what did I say?");
    assert!(recalled.contains("remember the rope"), "{recalled}");
    client.finish();
}

/// The greeting is kept, so that the next editor does not wait for the program.
#[test]
fn an_editor_is_greeted_at_once_the_second_time() {
    let world = World::new();
    let (client, _) = world.session(&[]);
    client.finish();
    let kept = std::fs::read_to_string(world.path("outer/agents/inner.json")).unwrap();
    assert!(kept.contains("protocolVersion"), "{kept}");
    // A program that never answers. Neither the greeting nor the end waits for it.
    world.settings("[agents.inner]\ncommand = \"/bin/sleep\"\nargs = [\"1000\"]\n");
    let began = std::time::Instant::now();
    let client = world.serve(&["--agent", "inner"]);
    client.finish();
    assert!(began.elapsed() < HANDSHAKE, "it took {:?}", began.elapsed());
}
