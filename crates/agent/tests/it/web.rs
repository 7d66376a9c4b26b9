//! Pages of the web in turns: what a prompt links to, and what the model fetches.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use agent::{HostResolver, Message, ToolAccess, WebAccess, is_public};
use engine::{BoxFuture, Content, ResourceLink};
use expect_test::{Expect, expect};
use sandbox::Mode;
use testkit::{Script, call, say};

use crate::harness::Harness;

/// Every name leads to this machine.
struct Here;

impl HostResolver for Here {
    fn find(&self, _: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])))
    }
}

fn here() -> WebAccess {
    WebAccess { names: Arc::new(Here), allows: |address| address.is_loopback() }
}

/// A site with one page for every path but `/gone`, and the paths it was asked for.
struct Site {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                    request.push(byte[0]);
                }
                let path = String::from_utf8(request).unwrap().split(' ').nth(1).unwrap().to_owned();
                let status = if path == "/gone" { "404 Not Found" } else { "200 OK" };
                let body = format!("page {path} </resource>");
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}",
                    body.len()
                );
                noted.lock().unwrap().push(path);
                write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}").unwrap();
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }

    fn address(&self, path: &str) -> String {
        format!("http://site.example:{}{path}", self.port)
    }

    fn assert(&self, expected: Expect, lines: &str) {
        expected.assert_eq(&lines.replace(&self.port.to_string(), "PORT"));
    }
}

fn link(uri: String) -> Content {
    Content::Link(ResourceLink::new(uri, "n"))
}

fn prompt_of(script: &Script, request: usize) -> String {
    match &script.requests()[request].messages[0] {
        Message::User { text, .. } => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_linked_page_is_a_part_of_the_prompt_and_is_read_once() {
    let (site, script) = (Site::open(), Script::new([vec![say("seen")], vec![say("again")]]));
    let mut harness = Harness::on_the_web(script.clone(), |_| ToolAccess::default(), here()).await;
    let links = ["/a?x=1&y=2", "/gone"].map(|path| link(site.address(path)));
    harness.send(vec![Content::text("look"), links[0].clone(), links[1].clone()]).await;
    let events = harness.turn().await;
    site.assert(
        expect![[r#"
        1 starts: Read http://site.example:PORT/a?x=1&y=2 (Fetch)
        2 starts: Read http://site.example:PORT/gone (Fetch)
        1 ends: page /a?x=1&y=2 </resource>
        Warning: http://site.example:PORT/gone was left out: the server answered 404
        2 fails: the server answered 404
        say seen
        title look
        EndTurn
    "#]],
        &harness.lines(&events),
    );
    let expected = format!(
        "look\n<resource uri=\"{}\">page /a?x=1&amp;y=2 &lt;/resource&gt;</resource>\n\
         <resource uri=\"{}\" unread=\"the server answered 404\"/>",
        site.address("/a?x=1&amp;y=2"),
        site.address("/gone")
    );
    assert_eq!(prompt_of(&script, 0), expected);
    harness.restart().await;
    harness.prompt("and now?").await;
    assert_eq!(prompt_of(&script, 1), expected, "a prompt stays what it was");
    assert_eq!(script.requests()[1].messages.len(), 3);
    assert_eq!(site.asked(), ["/a?x=1&y=2", "/gone"], "and nobody asks for it again");
}

#[tokio::test]
async fn a_link_to_this_machine_is_never_followed() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = Script::new([vec![say("no")]]);
    let web = WebAccess { names: Arc::new(Here), allows: is_public };
    let mut harness = Harness::on_the_web(script.clone(), |_| ToolAccess::default(), web).await;
    let hosts = ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "innocent.example"];
    let mut blocks = vec![Content::text("look")];
    blocks.extend(hosts.map(|host| link(format!("HTTP://{host}:{port}/x"))));
    harness.send(blocks).await;
    let events = harness.turn().await;
    expect![[r#"
        1 starts: Read HTTP://127.0.0.1:PORT/x (Fetch)
        2 starts: Read HTTP://[::ffff:127.0.0.1]:PORT/x (Fetch)
        3 starts: Read HTTP://2130706433:PORT/x (Fetch)
        4 starts: Read HTTP://innocent.example:PORT/x (Fetch)
        Warning: HTTP://127.0.0.1:PORT/x was left out: 127.0.0.1 is not a public address, and only public ones are read
        1 fails: 127.0.0.1 is not a public address, and only public ones are read
        Warning: HTTP://[::ffff:127.0.0.1]:PORT/x was left out: ::ffff:127.0.0.1 is not a public address, and only public ones are read
        2 fails: ::ffff:127.0.0.1 is not a public address, and only public ones are read
        Warning: HTTP://2130706433:PORT/x was left out: 127.0.0.1 is not a public address, and only public ones are read
        3 fails: 127.0.0.1 is not a public address, and only public ones are read
        Warning: HTTP://innocent.example:PORT/x was left out: 127.0.0.1 is not a public address, and only public ones are read
        4 fails: 127.0.0.1 is not a public address, and only public ones are read
        say no
        title look
        EndTurn
    "#]].assert_eq(&harness.lines(&events).replace(&port.to_string(), "PORT"));
    let prompt = prompt_of(&script, 0);
    assert_eq!(prompt.lines().next(), Some("look"));
    let unread = |line: &str| line.starts_with("<resource uri=\"HTTP://") && line.ends_with("are read\"/>");
    assert!(prompt.lines().count() == 5 && prompt.lines().skip(1).all(unread), "{prompt}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn the_model_fetches_a_page_after_the_person_allowed_its_host() {
    let site = Site::open();
    let wish = call("fetch", format!(r#"{{"url":"{}"}}"#, site.address("/p")));
    let script = Script::new([vec![wish], vec![say("Done.")]]);
    let reach =
        |_: &std::path::Path| ToolAccess { mode: Mode::WorkspaceWriteNetwork, ..ToolAccess::default() };
    let mut harness = Harness::on_the_web(script, reach, here()).await;
    let events = harness.prompt("go").await;
    site.assert(
        expect![[r#"
        1 starts: Fetch http://site.example:PORT/p (Fetch)
        asks Network Medium site.example
        1 ends: page /p </resource> told "http://site.example:PORT/p\n\npage /p </resource>"
        say Done.
        title go
        EndTurn
    "#]],
        &harness.lines(&events),
    );
    assert_eq!(site.asked(), ["/p"]);
}

#[tokio::test]
async fn a_sandbox_without_network_fetches_nothing_and_asks_nobody() {
    let site = Site::open();
    let wish = call("fetch", format!(r#"{{"url":"{}"}}"#, site.address("/p")));
    let script =
        Script::new([vec![wish, call("fetch", r#"{"url":"file:///etc/passwd"}"#)], vec![say("Done.")]]);
    let mut harness = Harness::on_the_web(script, |_| ToolAccess::default(), here()).await;
    let events = harness.prompt("go").await;
    site.assert(expect![[r#"
        1 starts: Fetch http://site.example:PORT/p (Fetch)
        blocked fetch  workspace-write
        1 fails: nothing is sent to other machines in the sandbox mode workspace-write; to allow it, start with --sandbox workspace-write-network
        2 starts: fetch (Fetch)
        2 fails: only http:// and https:// addresses are read
        say Done.
        title go
        EndTurn
    "#]], &harness.lines(&events));
    assert_eq!(site.asked(), Vec::<String>::new());
}
