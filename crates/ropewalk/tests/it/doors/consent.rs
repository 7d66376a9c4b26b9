//! Authority through every door: the owner at the machine and a named client send the same requests through each of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::doors::clients::{Client, client};
use crate::doors::web::{Ask, Server, Socket, TOKEN, home, ropewalk, run};

/// Behind every one of these a person can type.
const DOORS: [&str; 6] =
    ["official http", "official websocket", "zeph http", "ferret websocket", "bernstein http", "rest"];

/// As many as are needed for one of them to be caught in between, nearly always.
const SWAPPED_OPENINGS: usize = 60;

/// Who holds the token that the clients of these tests show, all of them over loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenHolder {
    Owner,
    NamedClient,
}

/// A server where that token is the server's own or a named client's.
fn serve(who: TokenHolder, further: &[&str]) -> Server {
    serve_with(who, "", further)
}

/// The same with settings.
fn serve_with(who: TokenHolder, settings: &str, further: &[&str]) -> Server {
    let home = home();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    let (token, clients) = match who {
        TokenHolder::Owner => (TOKEN, String::new()),
        TokenHolder::NamedClient => {
            ("the-token-of-the-server-itself", format!("[[clients]]\nid = \"ci\"\ntoken = \"{TOKEN}\"\n"))
        }
    };
    fs::write(state.join("config.toml"), format!("{settings}{clients}")).unwrap();
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
    for who in [TokenHolder::Owner, TokenHolder::NamedClient] {
        let arguments: &[&str] = if who == TokenHolder::Owner { &["--stdio"] } else { &[] };
        let mut server = serve(who, arguments);
        let folder = folder(&server, "project");
        let stdio = (who == TokenHolder::Owner).then_some("official stdio");
        for (number, door) in DOORS.into_iter().chain(stdio).enumerate() {
            let mut client = client(door, &mut server);
            let rule = format!("shell(tool{number}:*)");
            say(client.as_mut(), door, &folder, &format!("/permissions add allow {rule}"));
            assert_eq!(rules(&server).contains(&rule), who == TokenHolder::Owner, "{who:?} through {door}");
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

/// V1: a program that a project names is not started by a preset, whoever chose it.
#[test]
fn a_projects_program_is_not_started_for_a_named_client_through_any_door() {
    let mut server = serve(TokenHolder::NamedClient, &["--approval", "full"]);
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

/// An editor over a WebSocket that offers its terminal, in a session where nothing is asked. Prompts for a
/// command and allows whatever is asked. Whether it was asked, whether the command came to its terminal, and all
/// that it was told.
fn run_in_editor(server: &Server, folder: &Path, more: impl FnOnce(Ask) -> Ask) -> (bool, bool, String) {
    let mut socket = Socket::asked(server.address(), TOKEN, more);
    let can = json!({ "protocolVersion": 1, "clientCapabilities": { "terminal": true } });
    socket.call("initialize", &can);
    let opened = socket.call("session/new", &json!({ "cwd": folder, "mcpServers": [] }));
    let session = opened["result"]["sessionId"].clone();
    let full = json!({ "sessionId": session, "configId": "approval", "value": "full" });
    socket.call("session/set_config_option", &full);
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "run touch made" }] });
    socket.send(&json!({ "jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt }));
    let (mut asked, mut created, mut told) = (false, false, String::new());
    loop {
        let frame = socket.frame().expect("the socket is open");
        told.push_str(&frame.to_string());
        let result = match frame["method"].as_str() {
            None if frame["id"] == "p" => return (asked, created, told),
            Some("session/request_permission") => {
                asked = true;
                json!({ "outcome": { "outcome": "selected", "optionId": "allow_always" } })
            }
            Some("terminal/create") => {
                created = true;
                json!({ "terminalId": "t" })
            }
            Some("terminal/output") => json!({ "output": "", "truncated": false }),
            Some("terminal/wait_for_exit") => json!({ "exitCode": 0 }),
            _ => json!({}),
        };
        if !frame["id"].is_null() && frame.get("method").is_some() {
            socket.send(&json!({ "jsonrpc": "2.0", "id": frame["id"], "result": result }));
        }
    }
}

/// V3: a command leaves the sandbox by the word of the owner at the machine; everybody else is told what to do.
#[test]
fn a_command_runs_in_an_editors_terminal_by_the_word_of_the_owner_at_the_machine_alone() {
    let settings = "terminal = \"editor\"\n";
    let server = serve_with(TokenHolder::NamedClient, settings, &[]);
    let folder_of_client = folder(&server, "project");
    let (asked, created, told) = run_in_editor(&server, &folder_of_client, |ask| ask);
    assert_eq!((asked, created), (false, false), "{told}");
    assert!(told.contains("nobody at this machine can be asked; remove `terminal ="), "{told}");
    assert_eq!(server.stop().0, Some(0));

    let server = serve_with(TokenHolder::Owner, settings, &[]);
    let folder = folder(&server, "project");
    let passed_on = |ask: Ask| ask.header("x-forwarded-for", "192.0.2.7");
    let (asked, created, told) = run_in_editor(&server, &folder, passed_on);
    assert_eq!((asked, created), (true, false), "{told}");
    assert!(told.contains("answer in a terminal or browser there, or remove `terminal ="), "{told}");
    assert!(!folder.join("made").exists());
    // The same from the machine itself, asked once since it is answered for good.
    let owner = |ask: Ask| ask;
    assert!(run_in_editor(&server, &folder, owner).0);
    let (asked, created, told) = run_in_editor(&server, &folder, owner);
    assert_eq!((asked, created), (false, true), "{told}");
    assert_eq!(rules(&server), "", "no rule was written");
    assert_eq!(server.stop().0, Some(0));
}

/// An official client's session in a folder, with further ones.
fn new_session(socket: &mut Socket, cwd: &Path, further: &[&Path]) -> Option<String> {
    let params = json!({ "cwd": cwd, "mcpServers": [], "additionalDirectories": further });
    Some(socket.call("session/new", &params)["result"]["sessionId"].as_str()?.to_owned())
}

fn prompt(socket: &mut Socket, session: &str, text: &str) {
    let prompt = json!([{ "type": "text", "text": text }]);
    socket.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
}

fn official_socket(server: &Server) -> Socket {
    let mut socket = Socket::open(server, TOKEN);
    socket.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    socket
}

#[test]
fn a_further_folder_that_became_a_link_is_not_opened_again_for_a_named_client() {
    let server = serve(TokenHolder::NamedClient, &[]);
    let (further, outside) = (folder(&server, "project/further"), tempfile::tempdir().unwrap());
    let cwd = folder(&server, "project");
    let mut socket = official_socket(&server);
    let session = new_session(&mut socket, &cwd, &[&further]).unwrap();
    fs::rename(&further, cwd.join("before")).unwrap();
    std::os::unix::fs::symlink(outside.path(), &further).unwrap();
    // As long as the session is in memory its folder stays the one that it was.
    let written = outside.path().join("written.txt");
    prompt(&mut socket, &session, &format!("write {}: x", written.display()));
    socket.call("session/close", &json!({ "sessionId": session }));
    let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
    let loaded = socket.call("session/load", &params);
    assert!(loaded["error"]["message"].as_str().unwrap().contains("--allow-dir"), "{loaded}");
    prompt(&mut socket, &session, &format!("write {}: x", written.display()));
    assert!(!written.exists());
    assert_eq!(server.stop().0, Some(0));
}

/// A link in a prompt is read without a question, but not past a rule that denies.
#[test]
fn a_file_that_a_rule_denies_is_not_read_by_a_link_in_a_prompt_either() {
    let server = serve(TokenHolder::Owner, &[]);
    let state = server.home.path().join("state");
    fs::write(state.join("permissions.toml"), "deny = [\"read(.env)\", \"fetch\"]\n").unwrap();
    let cwd = folder(&server, "project");
    fs::write(cwd.join(".env"), "NAME=value of the file").unwrap();
    fs::write(cwd.join("plain.txt"), "value of another file").unwrap();
    std::os::unix::fs::symlink(".env", cwd.join("way.txt")).unwrap();
    let mut socket = official_socket(&server);
    let session = new_session(&mut socket, &cwd, &[]).unwrap();
    let file = |name: &str| json!({ "type": "resource_link", "name": name, "uri": format!("file://{}", cwd.join(name).display()) });
    let page = json!({ "type": "resource_link", "name": "page", "uri": "https://192.0.2.7/" });
    let links =
        json!([{ "type": "text", "text": "hello" }, file(".env"), file("way.txt"), file("plain.txt"), page]);
    socket.call("session/prompt", &json!({ "sessionId": session, "prompt": links }));
    drop(socket);
    let home = server.home.clone();
    assert_eq!(server.stop().0, Some(0));
    let shown = run(&home, &["sessions", "show", "--full", &session]).with(0).out;
    let denied = |name: &str, rule: &str| {
        shown.lines().any(|line| line.contains(name) && line.contains(&format!("the rule {rule} denies")))
    };
    assert!(denied("/.env", "read(.env)") && denied("/way.txt", "read(.env)"), "{shown}");
    assert!(denied("192.0.2.7", "fetch") && !shown.contains("plain.txt was left out"), "{shown}");
}

/// Ends the swapping when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whoever swaps a folder for a link between the look and the opening wins nothing: what was opened is looked at.
#[test]
fn a_folder_that_is_a_link_every_other_moment_leads_a_named_client_nowhere() {
    let server = serve(TokenHolder::NamedClient, &[]);
    let outside = tempfile::tempdir().unwrap();
    let (cwd, inner) = (folder(&server, "project"), folder(&server, "project/inner"));
    let link = cwd.join("link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if something fails in here.
        let _stop = Stop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &inner, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut socket = official_socket(&server);
        for _ in 0..SWAPPED_OPENINGS {
            if let Some(session) = new_session(&mut socket, &inner, &[]) {
                prompt(&mut socket, &session, "write by-a-tool.txt: x");
            }
        }
    });
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(server.stop().0, Some(0));
}

/// The owner can cap what anybody may choose, themselves included.
#[test]
fn no_door_chooses_an_approval_above_the_cap() {
    let mut server = serve(TokenHolder::Owner, &["--approval-max", "suggest"]);
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
    let server = serve(TokenHolder::Owner, &[]);
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
        assert!(began.elapsed() < crate::doors::web::DEADLINE, "{}", rules(&server));
        std::thread::yield_now();
    }
    // Prompts are done in their order, so the first one is over.
    assert!(!rules(&server).contains("theirs"), "{}", rules(&server));
    assert_eq!(server.stop().0, Some(0));
}
