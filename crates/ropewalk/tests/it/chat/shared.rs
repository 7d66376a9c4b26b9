//! Several clients on one session of one server.

use crate::chat::world::World;

#[test]
fn what_is_answered_here_is_withdrawn_there() {
    let world = World::new();
    let _server = world.serve(0);
    let one = world.terminal("chat", 80, 24);
    one.shows("What should the agent do?");
    one.say("write shared.txt: x");
    one.shows("y allow once");
    let other = world.terminal("attach", 80, 24);
    other.shows("y allow once");
    other.answer("y");
    one.until("the question is gone", |screen| !screen.contains("y allow once"));
    one.shows("allowed by terminal");
    one.until("it is done", |_| world.path("project/shared.txt").exists());
    // A prompt from there is seen here.
    other.shows("Ready");
    other.say("list");
    one.shows("› list");
    // Leaving ends nothing.
    other.shows("Ready");
    other.say("sleep 60000");
    other.shows("Working");
    other.keys(&["C-d"]);
    other.shows("the turn continues; to follow it: ropewalk attach");
    one.shows("Working");
    one.keys(&["C-c"]);
    one.shows("stopped");
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let world = World::new();
    let server = world.serve(0);
    let port = server.port;
    let terminal = world.terminal("chat", 80, 24);
    terminal.shows("What should the agent do?");
    terminal.say("list");
    terminal.shows("done ·");
    server.kill();
    terminal.shows("Reconnecting");
    terminal.say("read README.md");
    terminal.shows("sending: read README.md");
    let _again = world.serve(port);
    terminal.until("the prompt is answered", |screen| screen.matches("done ·").count() == 2);
    assert!(!terminal.screen().contains("sending:"));
}
