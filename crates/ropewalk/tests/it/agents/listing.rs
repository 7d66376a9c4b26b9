//! `ropewalk agents list`, `check` and `install-hint`.

use serde_json::Value;

use crate::agents::world::World;

fn agent<'a>(listed: &'a Value, name: &str) -> &'a Value {
    listed["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()
}

#[test]
fn agents_that_are_here_are_told_from_those_that_are_not() {
    let world = World::new();
    world.program("opencode", "[ \"$1\" = --version ] && echo opencode v1.2.3");
    world.program("gemini", "exec sleep 1000");
    let listed = world.run(&["agents", "list", "--json"]).with(0).json();
    let opencode = agent(&listed, "opencode");
    assert_eq!((&opencode["installed"], &opencode["version"]), (&true.into(), &"1.2.3".into()), "{opencode}");
    let gemini = agent(&listed, "gemini");
    assert_eq!(
        (&gemini["installed"], &gemini["version"]),
        (&true.into(), &Value::Null),
        "one that hangs: {gemini}"
    );
    assert_eq!(agent(&listed, "goose")["installed"], false);
    assert_eq!(agent(&listed, "inner")["from"], "settings");
    assert!(!listed.to_string().contains("ROPEWALK_OFFLINE"), "what is set for an agent is not shown");
    let shown = world.run(&["agents", "list"]).with(0).out;
    assert!(shown.contains("opencode          1.2.3") && shown.contains("goose             -"), "{shown}");
    let here = world.run(&["agents", "list", "--installed"]).with(0).out;
    assert!(here.contains("opencode") && !here.contains("goose"), "{here}");
}

#[test]
fn a_check_starts_the_agent_and_says_what_it_answers() {
    let world = World::new();
    let checked = world.run(&["agents", "check", "inner", "--json"]).with(0).json();
    let inner = agent(&checked, "inner");
    assert_eq!(
        (&inner["ok"], &inner["agent"], &inner["protocol"]),
        (&true.into(), &world.mark().into(), &1.into())
    );
    assert_eq!(inner["version"], env!("CARGO_PKG_VERSION"));
    let abilities = inner["abilities"].to_string();
    assert!(abilities.contains("load") && abilities.contains("resume"), "{inner}");
    assert!(inner["milliseconds"].as_u64().unwrap() > 0 && inner["answer"]["agentCapabilities"].is_object());
    world.wait_until_no_agent_runs();
    let shown = world.run(&["agents", "check"]).with(0).out;
    assert!(shown.contains("inner  answers after") && shown.contains("resume"), "{shown}");
}

#[test]
fn a_check_of_one_that_does_not_work_says_why() {
    let world = World::new();
    world.settings("[agents.broken]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo no key >&2; exit 3\"]\n");
    let broken = world.run(&["agents", "check", "broken"]).with(1).out;
    assert!(broken.contains("broken ended with code 3") && broken.contains("no key"), "{broken}");
    let json = world.run(&["agents", "check", "broken", "--json"]).with(1).json();
    assert_eq!(agent(&json, "broken")["ok"], false);
    world.run(&["agents", "check", "goose"]).with(1);
    world.run(&["agents", "check", "nobody"]).with(5);
}

#[test]
fn whoever_wants_an_agent_is_told_how_to_get_it() {
    let world = World::new();
    assert_eq!(
        world.run(&["agents", "install-hint", "gemini"]).with(0).out,
        "npm install -g @google/gemini-cli\n"
    );
    let json = world.run(&["agents", "install-hint", "claude", "--json"]).with(0).json();
    assert_eq!((&json["name"], &json["installed"]), (&"claude-agent-acp".into(), &false.into()));
    world.run(&["agents", "install-hint", "nobody"]).with(5);
}
