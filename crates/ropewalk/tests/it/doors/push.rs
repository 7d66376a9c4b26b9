//! Web Push of the real binary: a browser signs in, subscribes, and gets pushes while it is away.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::push_service::PushService;

use crate::doors::web::{Answer, Ask, Server, Socket, TOKEN, home, ropewalk};

fn start(home: &Arc<TempDir>, loopback: bool) -> Server {
    let mut command = ropewalk(home.path(), &["-v", "serve", "--http", ":0", "--auth-token", TOKEN]);
    command.env("ROPEWALK_OFFLINE", "1");
    if loopback {
        command.env("ROPEWALK_PUSH_LOOPBACK", "1");
    }
    Server::run(Arc::clone(home), command)
}

/// A browser that has signed in by a link.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
    proof: String,
}

impl<'a> Browser<'a> {
    fn sign_in(server: &'a Server) -> Self {
        let link = Ask::post("/ui/link", "{}").send(server).json();
        let code = link["url"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
        let body = json!({ "code": code, "name": "phone" }).to_string();
        let entered = Ask::post("/ui/enter", &body).bare().header("origin", &server.url).send(server);
        assert_eq!(entered.status, 200, "{entered:?}");
        let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let proof = entered.json()["proof"].as_str().unwrap().to_owned();
        Self { server, cookie, proof }
    }

    fn ask(&self, request: &Value) -> Answer {
        let ask = Ask::post("/ui/hall", &request.to_string()).bare().header("x-ropewalk-proof", &self.proof);
        ask.header("cookie", &self.cookie).header("origin", &self.server.url).send(self.server)
    }
}

/// Sends a prompt, and answers the question that it leads to when `told` has been.
async fn ask_and_answer(server: &Server, told: impl AsyncFnOnce(&str)) {
    let mut socket = Socket::open(server, TOKEN);
    let params = json!({ "cwd": server.home.path(), "mcpServers": [] });
    let session = socket.call("session/new", &params)["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!([{ "type": "text", "text": "run touch made" }]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    socket.send(&json!({ "jsonrpc": "2.0", "id": 99, "method": "session/prompt", "params": params }));
    let asked = loop {
        let frame = socket.frame().unwrap();
        if frame["method"] == "session/request_permission" {
            break frame;
        }
    };
    told(&session).await;
    let outcome = json!({ "outcome": { "outcome": "cancelled" } });
    socket.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }));
    while socket.frame().unwrap()["id"] != 99 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_is_away_is_told_also_after_a_restart_and_by_the_same_key() {
    let (home, mut service) = (home(), PushService::start().await);
    let first = start(&home, true);
    let browser = Browser::sign_in(&first);
    let subscription = service.subscribe();
    let subscribed = browser.ask(&json!({ "do": "push", "subscription": subscription }));
    assert_eq!(subscribed.status, 200, "{subscribed:?}");
    assert_eq!(browser.ask(&json!({ "do": "tryPush" })).status, 200);
    let tried = service.next().await;
    assert_eq!(tried.payload["kind"], "test");
    let key = home.path().join("state/push.key").metadata().unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    assert_eq!(first.stop().0, Some(0));

    let second = start(&home, true);
    ask_and_answer(&second, async |session| {
        let asked = service.next().await;
        assert_eq!(asked.payload, json!({ "v": 1, "kind": "ask", "session": session, "ask": 1 }));
        assert_eq!(asked.key, tried.key);
    })
    .await;
    assert_eq!(service.next().await.payload["kind"], "clear");
    assert_eq!(second.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_switch_of_tests_no_push_goes_to_this_machine() {
    let (home, mut service) = (home(), PushService::start().await);
    let server = start(&home, false);
    let browser = Browser::sign_in(&server);
    let refused = browser.ask(&json!({ "do": "push", "subscription": service.subscribe() }));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(service.arrived(), None);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_server_whose_key_is_damaged_serves_without_notifications_and_says_so() {
    let home = home();
    std::fs::create_dir(home.path().join("state")).unwrap();
    let key = home.path().join("state/push.key");
    std::fs::write(&key, "nonsense").unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let server = start(&home, true);
    let tried = Browser::sign_in(&server).ask(&json!({ "do": "tryPush" }));
    assert!(tried.json().to_string().contains("does not send notifications"), "{tried:?}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("notifications are off:") && log.contains("delete it"), "{log}");
}
