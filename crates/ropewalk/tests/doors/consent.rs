//! One table of who may do what, over every door: the owner at the machine and a named client ask for the
//! same through each of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ways::{Client, client};
use crate::web::{Ask, Server, TOKEN, home, ropewalk};

/// Behind every one of these a person can type.
const DOORS: [&str; 6] =
    ["official http", "official websocket", "zeph http", "ferret websocket", "bernstein http", "rest"];

/// Who holds the token that the clients of these tests show, all of them over loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    NamedClient,
}

/// A server where that token is the server's own or a named client's.
fn serve(who: Who, further: &[&str]) -> Server {
    let home = home();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    let token = match who {
        Who::Owner => TOKEN,
        Who::NamedClient => {
            let entry = format!("[[clients]]\nid = \"ci\"\ntoken = \"{TOKEN}\"\n");
            fs::write(state.join("config.toml"), entry).unwrap();
            "the-token-of-the-server-itself"
        }
    };
    let base = ["serve", "--http", ":0", "--auth-token", token];
    let all: Vec<&str> = base.iter().chain(further).copied().collect();
    Server::run(home.clone(), ropewalk(home.path(), &all))
}

fn rules(server: &Server) -> String {
    fs::read_to_string(server.home.path().join("state/permissions.toml")).unwrap_or_default()
}

fn folder(server: &Server, name: &str) -> PathBuf {
    let folder = server.home.path().canonicalize().unwrap().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Prompts and waits for the end.
fn say(client: &mut dyn Client, door: &str, folder: &Path, text: &str) {
    if door.starts_with("bernstein") {
        client.prompt(None, folder, text);
    } else {
        let session = client.open(folder);
        client.prompt(Some(&session), folder, text);
    }
    client.stopped();
}

/// V4: rules outlive a session, so they are the owner's.
#[test]
fn rules_are_changed_by_the_owner_at_the_machine_through_any_door_and_by_nobody_else() {
    for who in [Who::Owner, Who::NamedClient] {
        let arguments: &[&str] = if who == Who::Owner { &["--stdio"] } else { &[] };
        let mut server = serve(who, arguments);
        let folder = folder(&server, "project");
        let stdio = (who == Who::Owner).then_some("official stdio");
        for (number, door) in DOORS.into_iter().chain(stdio).enumerate() {
            let mut client = client(door, &mut server);
            let rule = format!("shell(tool{number}:*)");
            say(client.as_mut(), door, &folder, &format!("/permissions add allow {rule}"));
            assert_eq!(rules(&server).contains(&rule), who == Who::Owner, "{who:?} through {door}");
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

/// V1: a program that a project names is not started by a preset, whoever chose it.
#[test]
fn a_projects_program_is_not_started_for_a_named_client_through_any_door() {
    let mut server = serve(Who::NamedClient, &["--approval", "full"]);
    for (number, door) in DOORS.into_iter().enumerate() {
        let folder = folder(&server, &format!("project{number}/sub"));
        let marker = folder.join("marker");
        fs::create_dir(folder.join(".ropewalk")).unwrap();
        fs::write(
            folder.join(".ropewalk/config.toml"),
            format!(
                "[mcp.servers.e]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo x > '{}'\"]\n",
                marker.display()
            ),
        )
        .unwrap();
        let mut client = client(door, &mut server);
        say(client.as_mut(), door, &folder, "/approval full");
        say(client.as_mut(), door, &folder, "list");
        assert!(!marker.exists(), "through {door}");
        if door == "rest" {
            client.hears("ropewalk mcp trust");
        }
    }
    assert_eq!(server.stop().0, Some(0));
}

/// The owner can cap what anybody may choose, themselves included.
#[test]
fn no_door_chooses_an_approval_above_the_cap() {
    let mut server = serve(Who::Owner, &["--approval-max", "suggest"]);
    let folder = folder(&server, "project");
    for door in DOORS {
        let mut client = client(door, &mut server);
        say(client.as_mut(), door, &folder, "/approval full");
        if !door.starts_with("bernstein") {
            client.hears("looser than suggest");
        }
    }
    assert_eq!(server.stop().0, Some(0));
}

/// The server's own token over a proxy is not the owner at the machine.
#[test]
fn a_token_that_was_passed_on_for_somebody_else_changes_no_rules() {
    let server = serve(Who::Owner, &[]);
    let folder = folder(&server, "project");
    let made = Ask::post("/session", &format!("{{\"working_dir\": {:?}}}", folder.display().to_string()));
    let session = made.send(&server).json()["session_id"].as_str().unwrap().to_owned();
    let say = |rule: &str| {
        let body = format!("{{\"text\": \"/permissions add allow {rule}\"}}");
        Ask::post(&format!("/session/{session}/message"), &body)
    };
    let passed_on = say("shell(theirs:*)").header("x-forwarded-for", "192.0.2.7");
    assert_eq!(passed_on.send(&server).status, 202);
    assert_eq!(say("shell(mine:*)").send(&server).status, 202);
    let began = std::time::Instant::now();
    while !rules(&server).contains("shell(mine:*)") {
        assert!(began.elapsed() < crate::web::DEADLINE, "{}", rules(&server));
        std::thread::yield_now();
    }
    // Prompts are done in their order, so the first one is over.
    assert!(!rules(&server).contains("theirs"), "{}", rules(&server));
    assert_eq!(server.stop().0, Some(0));
}
