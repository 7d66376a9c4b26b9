use std::fs;

use crate::chat::world::World;

#[test]
fn a_prompt_is_answered_a_permission_given_by_a_key_and_the_screen_comes_back() {
    let world = World::new();
    let terminal = world.terminal("chat --alone --approval suggest", 80, 24);
    terminal.shows("What should the agent do?");
    terminal.say("read README.md");
    terminal.until("the answer", |screen| screen.contains("# A net") || screen.contains("done ·"));
    terminal.shows("Ready");
    terminal.say("write made.txt: by hand");
    let asked = terminal.shows("y allow once");
    assert!(asked.contains("made.txt") && asked.contains("Needs you"), "{asked}");
    assert!(!world.path("project/made.txt").exists());
    // A key that was on its way when the question appeared does not answer it.
    terminal.answer("y");
    terminal.until("it is done", |_| world.path("project/made.txt").exists());
    terminal.shows("Ready");
    assert_eq!(fs::read_to_string(world.path("project/made.txt")).unwrap(), "by hand\n");
    terminal.keys(&["C-d"]);
    let left = terminal.shows("ended with 0");
    assert!(left.contains("before") && left.contains("to continue: ropewalk chat --resume"), "{left}");
    assert!(!left.contains("made.txt"), "the usual screen is as it was: {left}");
}

#[test]
fn a_denied_permission_with_its_reason_changes_nothing() {
    let world = World::new();
    let terminal = world.terminal("chat --alone --approval suggest 'write no.txt: x'", 80, 24);
    terminal.shows("y allow once");
    terminal.answer("D");
    terminal.shows("Reason, sent to the agent");
    terminal.say("not today");
    terminal.shows("⊘");
    terminal.shows("Ready");
    assert!(!world.path("project/no.txt").exists());
}

#[test]
fn what_is_said_meanwhile_waits_and_a_turn_is_stopped() {
    let world = World::new();
    let terminal = world.terminal("chat --alone", 80, 24);
    terminal.shows("What should the agent do?");
    terminal.say("sleep 60000");
    terminal.shows("Working");
    terminal.say("what did I say?");
    terminal.shows("queued: what did I say?");
    terminal.keys(&["C-x"]);
    terminal.until("it is taken back", |screen| {
        !screen.contains("queued:") && screen.contains("› what did I say?")
    });
    terminal.keys(&["C-c"]);
    terminal.shows("stopped");
    terminal.shows("Ready");
}

#[test]
fn a_flood_is_followed_and_any_size_will_do() {
    let world = World::new();
    let terminal = world.terminal("chat --alone", 80, 24);
    terminal.shows("What should the agent do?");
    terminal.say("stream 2000 40");
    // A quick machine is done before anybody looks.
    terminal.until("the flood", |screen| screen.contains("Working") || screen.contains("chunk "));
    for (columns, lines) in [(40, 20), (120, 40), (40, 10), (80, 24)] {
        terminal.resize(columns, lines);
        terminal.until("the composer", |screen| screen.contains("› "));
    }
    terminal.shows("done ·");
    terminal.keys(&["PageUp"]);
    terminal.shows("below");
    terminal.keys(&["C-End"]);
    terminal.until("the end", |screen| screen.contains("done ·") && !screen.contains("below"));
}

#[test]
fn commands_files_and_settings_are_offered() {
    let world = World::new();
    let terminal = world.terminal("chat --alone", 80, 24);
    terminal.shows("What should the agent do?");
    terminal.write("/mod");
    terminal.shows("/model");
    terminal.keys(&["C-u"]);
    terminal.write("/mode ask");
    terminal.keys(&["Enter"]);
    terminal.until("the mode in the header", |screen| {
        screen.lines().nth(1).is_some_and(|line| line.contains("· ask ·"))
    });
    terminal.write("read @READ");
    terminal.shows("Enter selects");
    terminal.keys(&["Tab"]);
    terminal.shows("› read @README.md");
    terminal.keys(&["C-u", "?"]);
    terminal.shows("any key goes back");
}

#[test]
fn a_session_is_gone_on_with_where_it_was() {
    let world = World::new();
    let terminal = world.terminal("chat --alone 'read README.md'", 80, 24);
    terminal.shows("done ·");
    terminal.keys(&["C-d"]);
    terminal.shows("ended with 0");
    let again = world.terminal("chat --alone -c", 80, 24);
    again.shows("› read README.md");
    again.keys(&["Up"]);
    again.until("what was sent before", |screen| screen.matches("› read README.md").count() == 2);
    let none = world.terminal("attach zzzzzzzz", 80, 24);
    none.shows("ended with 5");
}
