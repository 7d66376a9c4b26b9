//! Access over HTTP: tokens and their sources, host names, and origins of other pages.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::doors::web::{Ask, Server, Socket, TOKEN, home, ropewalk, run};

/// Behind the gate; that there is nothing shows who got through.
const INSIDE: &str = "/no/such/route";

fn status(server: &Server, ask: &Ask) -> u16 {
    ask.send(server).status
}

/// N2.
#[test]
fn without_the_right_token_nothing_but_health_is_answered() {
    let server = Server::start(&[]);
    let answer = Ask::get(INSIDE).bare().send(&server);
    assert_eq!((answer.status, answer.error().as_str()), (401, "unauthorized"));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert!(!answer.json()["message"].as_str().unwrap().is_empty());
    let half = &TOKEN[..TOKEN.len() - 1];
    for wrong in ["", " ", half, &format!("{TOKEN}x"), &TOKEN.to_uppercase(), "undefined"] {
        assert_eq!(status(&server, &Ask::get(INSIDE).token(wrong)), 401, "{wrong:?}");
    }
    for header in ["Basic dXNlcjpwYXNz", TOKEN, "Bearer", &format!("Token {TOKEN}")] {
        assert_eq!(status(&server, &Ask::get(INSIDE).header("authorization", header)), 401, "{header:?}");
    }
    let twice = Ask::get(INSIDE).and_header("authorization", format!("Bearer {TOKEN}").as_bytes());
    assert_eq!(status(&server, &twice), 400);
    assert_eq!(status(&server, &Ask::get(INSIDE)), 404);
    assert_eq!(status(&server, &Ask::post(INSIDE, "{}")), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE).header("authorization", &format!("bearer {TOKEN}"))), 404);
    assert_eq!(server.stop().0, Some(0));
}

/// N1, N4: the seeds' own variables open the same door, ours first.
#[test]
fn the_token_may_stand_in_any_of_the_known_variables() {
    for name in ["ROPEWALK_SERVER_TOKEN", "FERRET_SERVER_TOKEN", "OTTER_SERVER_TOKEN", "ZEPH_ACP_AUTH_TOKEN"]
    {
        let home = home();
        let mut command = ropewalk(home.path(), &["serve", "--http", ":0"]);
        command.env(name, TOKEN);
        if name != "ZEPH_ACP_AUTH_TOKEN" {
            command.env("ZEPH_ACP_AUTH_TOKEN", "another-token");
        }
        let server = Server::run(home, command);
        assert_eq!(status(&server, &Ask::get(INSIDE).bare()), 401, "{name}");
        assert_eq!(status(&server, &Ask::get(INSIDE)), 404, "{name}");
        let (code, log) = server.stop();
        assert_eq!(code, Some(0));
        assert!(!log.contains(TOKEN), "{log}");
    }
}

/// Seed trap: an empty token that equals an empty header.
#[test]
fn an_empty_token_is_refused_at_the_start_wherever_it_stands() {
    let home = home();
    for token in ["", " ", "\t", "two words"] {
        let ended = run(&home, &["serve", "--http", ":0", "--auth-token", token]).with(2);
        assert!(ended.err.contains("--auth-token"), "{}", ended.err);
        for name in
            ["ROPEWALK_SERVER_TOKEN", "FERRET_SERVER_TOKEN", "OTTER_SERVER_TOKEN", "ZEPH_ACP_AUTH_TOKEN"]
        {
            let mut command = ropewalk(home.path(), &["serve", "--http", ":0"]);
            let output = command.env(name, token).stdin(std::process::Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{name}={token:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(name));
        }
    }
}

#[test]
fn a_token_that_was_made_is_kept_for_its_owner_and_only_its_path_is_said() {
    let home = home();
    let start = || Server::run(home.clone(), ropewalk(home.path(), &["serve", "--http", ":0"]));
    let server = start();
    let path = home.path().join("state/http.token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).unwrap().trim().to_owned();
    assert_eq!(token.len(), 43);
    assert_eq!(status(&server, &Ask::get(INSIDE).token(&token)), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE)), 401);
    let (_, log) = server.stop();
    assert!(log.contains(path.to_str().unwrap()) && !log.contains(&token), "{log}");
    let again = start();
    assert_eq!(status(&again, &Ask::get(INSIDE).token(&token)), 404, "a restart keeps it");
    again.stop();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = run(&home, &["serve", "--http", ":0"]).with(1);
    assert!(ended.err.contains("other users may read it"), "{}", ended.err);
}

/// N4: open, with a warning.
#[test]
fn without_authentication_every_local_program_may_come_in_and_pages_may_not() {
    let home = home();
    let server = Server::run(home.clone(), ropewalk(home.path(), &["serve", "--http", ":0", "--no-auth"]));
    assert_eq!(status(&server, &Ask::get(INSIDE).bare()), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE).token("any")), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE).bare().header("origin", "http://evil.example")), 403);
    assert_eq!(status(&server, &Ask::get(INSIDE).bare().header("host", "evil.example")), 403);
    let (_, log) = server.stop();
    assert!(log.contains("warning:") && log.contains("no token is required"), "{log}");
    run(&home, &["serve", "--http", ":0", "--no-auth", "--auth-token", TOKEN]).with(2);
}

/// N5.
#[test]
fn named_clients_have_tokens_of_their_own() {
    let home = home();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    // SHA-256 of `client-token-of-ci`.
    let digest = "0c57e1fce5ec68c49609ced456988871f4a53e5455ec3d5ae93e5af938d8b050";
    let clients = |text: &str| fs::write(state.join("config.toml"), text).unwrap();
    clients(&format!(
        "[[clients]]\nid = \"ci\"\ntoken_sha256 = \"{digest}\"\n[[clients]]\nid = \"bot\"\ntoken = \"client-token-of-bot\"\n"
    ));
    let arguments = ["serve", "--http", ":0", "--auth-token", TOKEN];
    let server = Server::run(home.clone(), ropewalk(home.path(), &arguments));
    assert_eq!(status(&server, &Ask::get(INSIDE).token("client-token-of-ci")), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE).token("client-token-of-bot")), 404);
    assert_eq!(status(&server, &Ask::get(INSIDE).token(digest)), 401, "the digest is no token");
    assert_eq!(status(&server, &Ask::get(INSIDE)), 404);
    let (_, log) = server.stop();
    assert!(log.contains("client \"bot\"") && log.contains("use token_sha256 instead"), "{log}");
    assert!(!log.contains("client-token-of-bot"), "{log}");
    for wrong in [
        "[[clients]]\nid = \"local\"\ntoken = \"x1\"\n",
        "[[clients]]\nid = \"acp-local\"\ntoken = \"x1\"\n",
        "[[clients]]\nid = \"default\"\ntoken = \"x1\"\n",
        "[[clients]]\nid = \"a\"\ntoken = \"\"\n",
        "[[clients]]\nid = \"a\"\n",
        "[[clients]]\nid = \"\"\ntoken = \"x1\"\n",
        "[[clients]]\nid = \"a\"\ntoken = \"x1\"\n[[clients]]\nid = \"a\"\ntoken = \"x2\"\n",
        "[[clients]]\nid = \"a\"\ntoken = \"x1\"\n[[clients]]\nid = \"b\"\ntoken = \"x1\"\n",
    ] {
        clients(wrong);
        let ended = run(&home, &arguments).with(2);
        assert!(ended.err.contains("clients"), "{wrong}: {}", ended.err);
    }
}

/// N5, G9: a session's id is no key to it.
#[test]
fn named_clients_see_their_own_sessions_only() {
    let home = home();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    let entry = |id: &str| format!("[[clients]]\nid = \"{id}\"\ntoken = \"client-token-of-{id}\"\n");
    fs::write(state.join("config.toml"), entry("ci") + &entry("bot")).unwrap();
    let arguments = ["serve", "--http", ":0", "--auth-token", TOKEN];
    let server = Server::run(home.clone(), ropewalk(home.path(), &arguments));
    let place = json!({ "cwd": home.path(), "mcpServers": [] });
    let mut callers: Vec<Socket> = ["client-token-of-ci", "client-token-of-bot", TOKEN]
        .iter()
        .map(|token| Socket::open(&server, token))
        .collect();
    let made: Vec<Value> = callers
        .iter_mut()
        .map(|caller| caller.call("session/new", &place)["result"]["sessionId"].clone())
        .collect();
    for (caller, own) in callers.iter_mut().zip(&made) {
        let listed = caller.call("session/list", &json!({}))["result"]["sessions"].clone();
        let ids: Vec<&Value> = listed.as_array().unwrap().iter().map(|row| &row["sessionId"]).collect();
        assert_eq!(ids, [own]);
        for id in &made {
            let load = json!({ "sessionId": id, "cwd": home.path(), "mcpServers": [] });
            let reply = caller.call("session/load", &load);
            assert_eq!(reply.get("error").is_none(), id == own, "{reply}");
        }
    }
    assert_eq!(server.stop().0, Some(0));
}

/// The page asks before anybody is signed in, and nothing is red in its console.
#[test]
fn everybody_may_ask_whether_this_is_a_hub() {
    let server = Server::start(&[]);
    let answer = Ask::get("/auth/about").bare().send(&server);
    assert_eq!((answer.status, answer.json()), (200, json!({ "hub": false })));
    assert_eq!(server.stop().0, Some(0));
}

/// N12, G5: DNS rebinding shows in the name.
#[test]
fn only_names_of_this_server_are_answered() {
    let server = Server::start(&["--allow-host", "box.example.org", "--allow-host", "lan:81"]);
    let port = server.port;
    let ask = |host: &str| status(&server, &Ask::get("/health").header("host", host));
    for good in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        assert_eq!(ask(&format!("{good}:{port}")), 200, "{good}");
    }
    for good in ["box.example.org", "box.example.org:443", "lan:81"] {
        assert_eq!(ask(good), 200, "{good}");
    }
    let with_port =
        ["evil.example", "localhost.evil.com", "localhost.", "127.0.0.1.", "127.1", "0.0.0.0", "[::]"];
    let hosts = with_port.iter().map(|name| format!("{name}:{port}"));
    let without = ["localhost", "127.0.0.1", "localhost:1", "lan", "lan:82", "box.example.org.evil.com", "*"];
    for bad in hosts.chain(without.map(str::to_owned)) {
        assert_eq!(ask(&bad), 403, "{bad}");
    }
    let twice =
        Ask::get("/health").header("host", &format!("127.0.0.1:{port}")).and_header("host", b"evil.example");
    assert_eq!(status(&server, &twice), 400);
    let mut absolute = Ask::get("/health").header("host", &format!("127.0.0.1:{port}"));
    absolute.path = "http://evil.example/health".into();
    assert_eq!(status(&server, &absolute), 400, "two names that differ");
    assert_eq!(server.stop().0, Some(0));
}

/// N12, L20, K14, G6, G8.
#[test]
fn only_pages_that_were_named_may_talk_to_the_server_and_read_its_answers() {
    let server = Server::start(&["--cors", "https://app.example.org", "--cors", "http://localhost:3000"]);
    let own = format!("http://127.0.0.1:{}", server.port);
    let answer = Ask::get(INSIDE).header("origin", &own).send(&server);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (404, None));
    for named in ["https://app.example.org", "http://localhost:3000"] {
        let answer =
            Ask::get(INSIDE).header("origin", named).header("sec-fetch-site", "cross-site").send(&server);
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (404, Some(named)));
        assert_eq!(answer.header("vary"), Some("Origin"));
        let refused = Ask::get(INSIDE).bare().header("origin", named).send(&server);
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(named)));
    }
    for foreign in
        ["https://app.example.org.evil.com", "http://app.example.org", "null", "http://localhost:3001"]
    {
        let answer = Ask::get(INSIDE).header("origin", foreign).send(&server);
        assert_eq!((answer.status, answer.error().as_str()), (403, "origin_not_allowed"), "{foreign}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(status(&server, &Ask::get("/health").header("sec-fetch-site", site)), 403, "{site}");
    }
    for site in ["none", "same-origin"] {
        assert_eq!(status(&server, &Ask::get("/health").header("sec-fetch-site", site)), 200, "{site}");
    }
    assert_eq!(server.stop().0, Some(0));
}

/// L20, G8: the question before the request.
#[test]
fn a_preflight_is_answered_for_named_pages_only() {
    let server = Server::start(&["--cors", "https://app.example.org"]);
    let preflight = |origin: &str| {
        let ask = Ask::new("OPTIONS", "/acp").bare().header("origin", origin);
        ask.header("access-control-request-method", "POST").send(&server)
    };
    let answer = preflight("https://app.example.org");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.org"));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    for foreign in ["https://evil.example", "null", "*"] {
        let answer = preflight(foreign);
        assert_eq!(answer.status, 403, "{foreign}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert_eq!(answer.header("access-control-allow-methods"), None);
    }
    let own = preflight(&format!("http://127.0.0.1:{}", server.port));
    assert_eq!((own.status, own.header("access-control-allow-origin")), (401, None));
    assert_eq!(server.stop().0, Some(0));
}

/// G12. On loopback the right token still opens: otherwise every program could lock out the others.
#[test]
fn whoever_guesses_tokens_has_to_wait() {
    let server = Server::start(&["--behind-proxy"]);
    let guess = |number: usize| Ask::get(INSIDE).token(&format!("guess-{number}")).send(&server);
    let answers: Vec<_> = (0..100).map(guess).collect();
    let refused = answers.iter().filter(|answer| answer.status == 401).count();
    assert!((20..60).contains(&refused), "{refused} guesses were answered");
    let last = answers.last().unwrap();
    assert_eq!((last.status, last.error().as_str()), (429, "too_many_wrong_tokens"));
    assert!(last.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(status(&server, &Ask::get(INSIDE)), 404);
    // Somebody else, for whom the proxy speaks. What they say of themselves before that counts nothing.
    let from = |address: &str, token: &str| {
        status(&server, &Ask::get(INSIDE).token(token).header("x-forwarded-for", address))
    };
    assert_eq!(from("203.0.113.9", "guess"), 401);
    let guesses = (0..100).map(|number| from(&format!("10.0.0.{number}, 203.0.113.9"), "guess"));
    assert_eq!(guesses.collect::<Vec<_>>().last(), Some(&429));
    assert_eq!(from("203.0.113.9", TOKEN), 429, "not even compared");
    assert_eq!(from("203.0.113.10", TOKEN), 404);
    assert_eq!(server.stop().0, Some(0));
}

/// G3, N11: all that is kept, and all that is said at the highest level.
#[test]
fn a_token_is_in_no_file_and_in_no_log() {
    let home = home();
    let arguments = ["-vv", "serve", "--http", ":0", "--auth-token", TOKEN];
    let server = Server::run(home.clone(), ropewalk(home.path(), &arguments));
    assert_eq!(status(&server, &Ask::get(INSIDE)), 404);
    assert_eq!(status(&server, &Ask::get(&format!("{INSIDE}?token={TOKEN}"))), 400);
    assert_eq!(status(&server, &Ask::get(INSIDE).header("authorization", &format!("Basic {TOKEN}"))), 401);
    let offered = Ask::get("/acp")
        .bare()
        .websocket()
        .header("sec-websocket-protocol", &format!("acp.v1, bearer.{TOKEN}"));
    assert_ne!(status(&server, &offered), 401, "the sub-protocol opens too");
    let wrong = Ask::get("/acp").bare().websocket().header("sec-websocket-protocol", "acp.v1, bearer.guess");
    assert_eq!(status(&server, &wrong), 401);
    let (_, log) = server.stop();
    assert!(log.contains("a request was refused") && !log.contains(TOKEN), "{log}");
    let mut folders = vec![home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                assert!(!bytes.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes()), "{path:?}");
            }
        }
    }
}
