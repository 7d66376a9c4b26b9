//! How the agent is chosen: by name, as a command, or in the settings; and what is refused.

use crate::agents::world::World;

/// AA4.
#[test]
fn one_prompt_is_given_to_an_agent_by_its_name_or_its_command() {
    let world = World::new();
    let done = world.run(&["run", "--agent", "inner", "--approval", "full", "write a.txt: hello"]).with(0);
    assert!(world.path("project/a.txt").exists(), "{}", done.err);
    let json = world.run(&["run", "--agent", "inner", "--json", "hello"]).with(0).json();
    assert_eq!(json["stop_reason"], "end_turn", "{json}");
    world.program("my-agent", &script(&world));
    let named = ["run", "--command", "my-agent 'serve' --sandbox off", "hello"];
    let done = world.run(&named).with(0);
    assert!(!done.out.is_empty(), "{}", done.err);
    let zeph = [
        "acp",
        "run-agent",
        "--command",
        "my-agent serve --sandbox off",
        "--prompt",
        "hello",
        "--timeout",
        "60",
    ];
    assert_eq!(world.run(&zeph).with(0).out, done.out);
    world.wait_until_no_agent_runs();
}

#[test]
fn a_session_of_another_agent_is_gone_on_with_by_that_agent_or_by_ours_if_that_is_said() {
    let world = World::new();
    let first = world.run(&["run", "--agent", "inner", "--json", "hello"]).with(0).json();
    let id = first["session_id"].as_str().unwrap();
    let refused = world.run(&["run", "--continue", "hello again"]).with(2).err;
    assert!(
        refused.contains("this session belongs to the agent inner") && refused.contains("--agent inner"),
        "{refused}"
    );
    assert!(
        world.run(&["run", "--resume", id, "hello again"]).with(2).err.contains("belongs to the agent inner")
    );
    let chat = world.run(&["chat", "--plain", "--resume", id, "hello again"]).with(2).err;
    assert!(chat.contains("this session belongs to the agent inner"), "{chat}");
    world.run(&["run", "--continue", "--agent", "inner", "hello again"]).with(0);
    world.run(&["run", "--continue", "--agent", "ropewalk", "hello for the third time"]).with(0);
    let shown = world.run(&["sessions", "show", id]).with(0).out;
    assert!(shown.contains("with inner") && shown.contains("hello for the third time"), "{shown}");
    world.wait_until_no_agent_runs();
}

/// AA3, AA4.
#[test]
fn a_turn_that_takes_too_long_is_cancelled() {
    let world = World::new();
    let late = world.run(&["run", "--agent", "inner", "--timeout", "1", "sleep 600000"]).with(2);
    assert!(late.err.contains("timed out after 1 s"), "{}", late.err);
    let late = world.run(&["run", "--timeout", "1", "sleep 600000"]).with(2);
    assert!(late.err.contains("timed out after 1 s"), "{}", late.err);
    world.wait_until_no_agent_runs();
}

#[test]
fn a_start_that_takes_too_long_is_given_up_too() {
    let world = World::new();
    let late = world.run(&["run", "--command", "sleep 600", "--timeout", "1", "hello"]).with(2);
    assert!(late.err.contains("timed out after 1 s"), "{}", late.err);
}

/// A folder among the temporary files is there for an agent that may only read, and it only reads.
#[test]
fn an_agent_that_may_only_read_works_in_any_folder() {
    let world = World::new();
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let path = folder.path().to_str().unwrap();
    let order = ["run", "--agent", "inner", "--sandbox", "read-only", "--approval", "full", "-C", path];
    let done = world.run(&[&order[..], &["write a.txt: hello"]].concat()).with(0);
    assert!(!folder.path().join("a.txt").exists(), "{} {}", done.out, done.err);
}

/// The program as an agent that is found by its name and keeps its things in the working folder.
fn script(world: &World) -> String {
    let home = world.path("project/.inner");
    format!(
        "ROPEWALK_OFFLINE=1 ROPEWALK_HOME='{}' exec '{}' \"$@\"",
        home.display(),
        env!("CARGO_BIN_EXE_ropewalk")
    )
}

#[test]
fn a_command_after_two_dashes_is_an_agent() {
    let world = World::new();
    world.program("my-agent", &script(&world));
    let mut client = world.serve(&["--", "my-agent", "serve", "--sandbox", "off"]);
    let opened = client.call("session/new", world.folder());
    let answer = client.said(opened["sessionId"].as_str().unwrap(), "hello");
    assert!(!answer.is_empty());
    client.finish();
    assert!(world.path("project/.inner/sessions.db").exists(), "the agent has sessions of its own");
}

#[test]
fn the_settings_say_who_works_unless_the_command_line_does() {
    let world = World::new();
    world.settings(&format!("agent = \"inner\"\n{}", world.inner("")));
    world.run(&["run", "hello"]).with(0);
    assert!(world.path("inner/sessions.db").exists());
    std::fs::remove_file(world.path("inner/sessions.db")).unwrap();
    world.run(&["run", "--agent", "ropewalk", "hello"]).with(0);
    assert!(!world.path("inner/sessions.db").exists());
}

/// Whoever names a program has it started, so a project's file is not asked.
#[test]
fn a_project_cannot_name_a_program_to_start() {
    let world = World::new();
    std::fs::create_dir(world.path("project/.ropewalk")).unwrap();
    let trap = world.path("project/trap").display().to_string();
    let theirs =
        format!("agent = \"theirs\"\n[agents.theirs]\ncommand = \"/usr/bin/touch\"\nargs = [{trap:?}]\n");
    std::fs::write(world.path("project/.ropewalk/config.toml"), theirs).unwrap();
    world.run(&["run", "hello"]).with(0);
    world.run(&["run", "--agent", "theirs", "hello"]).with(5);
    let listed = world.run(&["agents", "list", "--json"]).with(0).out;
    assert!(!listed.contains("theirs") && listed.contains("inner"), "{listed}");
    assert!(!world.path("project/trap").exists());
}

#[test]
fn what_cannot_work_says_why_and_what_to_do() {
    let world = World::new();
    let unknown = world.run(&["run", "--agent", "opncode", "x"]).with(5);
    assert!(
        unknown.err.contains("did you mean opencode?") && unknown.err.contains("agents list"),
        "{}",
        unknown.err
    );
    let missing = world.run(&["run", "--agent", "kimi", "x"]).with(1);
    assert!(
        missing.err.contains("is not installed") && missing.err.contains("npm install"),
        "{}",
        missing.err
    );
    let missing = world.run(&["run", "--command", "no-such-agent", "x"]).with(1);
    assert!(missing.err.contains("program no-such-agent not found"), "{}", missing.err);
    let ours = world.run(&["run", "--agent", "inner", "--max-cost", "1", "x"]).with(2);
    assert!(ours.err.contains("--max-cost does not work with inner"), "{}", ours.err);
    world.run(&["run", "--agent", "inner", "--command", "x", "x"]).with(2);
    world.run(&["run", "--agent-env", "X", "x"]).with(2);
    let own = world.run(&["agents", "check", "ropewalk"]).with(2).err;
    assert!(own.contains("Ropewalk's built-in agent") && !own.contains("did you mean"), "{own}");
    world.run(&["run", "--command", "'", "x"]).with(2);
    world.settings("[agents.broken]\ncommand = \"/bin/false\"\n");
    let broken = world.run(&["run", "--agent", "broken", "x"]).with(1);
    assert!(
        broken.err.contains("broken ended with code 1") && broken.err.contains("agents check"),
        "{}",
        broken.err
    );
}
