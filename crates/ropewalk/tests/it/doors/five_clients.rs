//! Five clients of different dialects on one session: each gets the permission request in its own form, the first answer
//! wins, and the others see the request withdrawn.

use std::fs;
use std::path::PathBuf;

use crate::doors::clients::{Client, PendingAsk, client};
use crate::doors::web::Server;

const COMMAND: &str = "touch decided.txt";

/// The first opens the session, the others join it.
const WITH_REST: [&str; 5] =
    ["official stdio", "official http", "official websocket", "ferret websocket", "rest"];
/// Bernstein's clients cannot join, so theirs is the prompt.
const WITH_BERNSTEIN: [&str; 5] =
    ["bernstein http", "official stdio", "official http", "official websocket", "ferret websocket"];

struct ConnectedClients {
    server: Server,
    list: Vec<(&'static str, Box<dyn Client>)>,
    folder: PathBuf,
}

impl ConnectedClients {
    fn new(doors: [&'static str; 5]) -> Self {
        let mut server = Server::start(&["--stdio"]);
        let folder = server.home.path().canonicalize().unwrap().join("project");
        fs::create_dir(&folder).unwrap();
        let clients = doors.map(|door| (door, client(door, &mut server))).into();
        Self { server, list: clients, folder }
    }

    /// All take part, and all are asked the same.
    fn asked(&mut self) -> Vec<PendingAsk> {
        let prompt = format!("run {COMMAND}");
        let ((door, first), others) = self.list.split_first_mut().unwrap();
        let mut join = |session: &str| {
            for (_, other) in others.iter_mut() {
                other.join(session, &self.folder);
            }
        };
        let session = if door.starts_with("bernstein") {
            let session = first.prompt(None, &self.folder, &prompt);
            join(&session);
            session
        } else {
            let session = first.open(&self.folder);
            join(&session);
            first.prompt(Some(&session), &self.folder, &prompt)
        };
        let asked: Vec<PendingAsk> = self.list.iter_mut().map(|(_, client)| client.asked()).collect();
        for (asked, (door, _)) in asked.iter().zip(&self.list) {
            assert_eq!(asked.session, session, "{door}");
            assert!(
                asked.request.to_string().contains(COMMAND),
                "{door} is not told what: {}",
                asked.request
            );
        }
        asked
    }
}

/// Whoever answers first decides, whatever the others say later.
fn check(doors: [&'static str; 5], winner: usize, allow: bool) {
    let mut clients = ConnectedClients::new(doors);
    let asked = clients.asked();
    let (door, first) = &mut clients.list[winner];
    assert!(first.answer(&asked[winner], allow), "{door} decides");
    for (at, (_, client)) in clients.list.iter_mut().enumerate().filter(|(at, _)| *at != winner) {
        client.withdrawn(&asked[at]);
    }
    assert_eq!(clients.list[0].1.stopped(), "end_turn");
    assert_eq!(clients.folder.join("decided.txt").exists(), allow, "{} has decided", doors[winner]);
    for (at, (door, client)) in clients.list.iter_mut().enumerate().filter(|(at, _)| *at != winner) {
        // The official protocol has no answer to an answer.
        let counts = client.answer(&asked[at], !allow) && !door.starts_with("official");
        assert!(!counts, "{door} answered late");
    }
    assert_eq!(clients.folder.join("decided.txt").exists(), allow, "late answers change nothing");
    assert_eq!(clients.server.stop().0, Some(0));
}

/// Whoever chooses an approval that does not ask has answered for all, and shows the question no longer either.
fn check_chosen(doors: [&'static str; 5], chooser: usize) {
    let mut clients = ConnectedClients::new(doors);
    let asked = clients.asked();
    clients.list[chooser].1.set_approval(&asked[chooser].session, "full");
    for (asked, (_, client)) in asked.iter().zip(&mut clients.list) {
        client.withdrawn(asked);
    }
    assert_eq!(clients.list[0].1.stopped(), "end_turn");
    assert!(clients.folder.join("decided.txt").exists(), "{} has decided", doors[chooser]);
    assert_eq!(clients.server.stop().0, Some(0));
}

#[test]
fn an_approval_that_does_not_ask_allows_what_waits_whoever_chooses_it() {
    for official_or_ferret in 0..4 {
        check_chosen(WITH_REST, official_or_ferret);
    }
    check_chosen(WITH_BERNSTEIN, 0);
}

#[test]
fn an_editor_on_standard_input_decides_for_all() {
    check(WITH_REST, 0, true);
    check(WITH_BERNSTEIN, 1, false);
}

#[test]
fn an_official_client_over_http_decides_for_all() {
    check(WITH_REST, 1, false);
    check(WITH_BERNSTEIN, 2, true);
}

#[test]
fn an_official_client_on_a_websocket_decides_for_all() {
    check(WITH_REST, 2, true);
    check(WITH_BERNSTEIN, 3, false);
}

#[test]
fn a_ferret_client_decides_for_all() {
    check(WITH_REST, 3, false);
    check(WITH_BERNSTEIN, 4, true);
}

#[test]
fn a_client_of_the_rest_surface_decides_for_all() {
    check(WITH_REST, 4, true);
}

#[test]
fn a_bernstein_client_decides_for_all() {
    check(WITH_BERNSTEIN, 0, true);
}
