//! Attacks on the real server: each is refused with the documented status, and the server goes on.
//!
//! A new route is one line in [`ROUTES`]. What the gate refuses it refuses for every path, so a line
//! may be here before its route is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::doors::web::{Ask, DEADLINE, Server, TOKEN};

/// Every route that needs a token.
const ROUTES: &[(&str, &str)] = &[
    ("POST", "/acp"),
    ("GET", "/acp"),
    ("DELETE", "/acp"),
    ("GET", "/acp/ws"),
    ("GET", "/session"),
    ("POST", "/session"),
    ("GET", "/session/some-id"),
    ("DELETE", "/session/some-id"),
    ("POST", "/session/some-id/message"),
    ("GET", "/session/some-id/events"),
    ("POST", "/session/some-id/cancel"),
    ("POST", "/session/some-id/rotate-token"),
    ("POST", "/session/some-id/pty"),
    ("GET", "/sessions"),
    ("POST", "/sessions"),
    ("GET", "/sessions/some-id"),
    ("PATCH", "/sessions/some-id"),
    ("DELETE", "/sessions/some-id"),
    ("GET", "/sessions/some-id/messages"),
    ("POST", "/sessions/some-id/prompt"),
    ("GET", "/sessions/some-id/events"),
    ("POST", "/sessions/some-id/turns"),
    ("POST", "/sessions/some-id/cancel"),
    ("POST", "/sessions/some-id/rotate-token"),
    ("GET", "/sessions/some-id/transcript"),
    ("POST", "/sessions/some-id/share"),
    ("POST", "/sessions/some-id/fork"),
    ("POST", "/tool/approve"),
    ("GET", "/commands"),
    ("POST", "/commands/help/invoke"),
    ("GET", "/runs"),
    ("GET", "/runs/cost"),
    ("GET", "/info"),
    ("GET", "/providers"),
    ("GET", "/tools"),
    ("POST", "/deep-link"),
    ("GET", "/metrics"),
    ("GET", "/ui/socket"),
    ("POST", "/ui/leave"),
    ("POST", "/ui/link"),
    ("POST", "/ui/hall"),
    ("GET", "/no/such/route"),
];

const FOREIGN_ORIGINS: [&str; 12] = [
    "https://evil.example",
    "http://evil.example",
    "null",
    "http://localhost",
    "http://localhost:1",
    "http://127.0.0.1",
    "https://127.0.0.1:5173",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example:5173",
    "file://",
    "chrome-extension://abcdefghijklmnop",
    "http://[::1]:1",
];

const FORM_TYPES: [&str; 4] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "text/plain;application/json",
];

/// A server where each request may come from an address of its own, so that wrong tokens are counted
/// apart.
fn server() -> Server {
    Server::start(&["--behind-proxy"])
}

fn writes(method: &str) -> bool {
    matches!(method, "POST" | "PATCH" | "PUT")
}

fn asks() -> impl Iterator<Item = Ask> {
    ROUTES.iter().map(|(method, path)| {
        let ask = Ask::new(method, path);
        if writes(method) { ask.header("content-type", "application/json").body(b"{}") } else { ask }
    })
}

#[track_caller]
fn refused(server: &Server, ask: &Ask, status: u16, code: &str) {
    let answer = ask.send(server);
    assert_eq!((answer.status, answer.error().as_str()), (status, code), "{ask:?}");
    assert_eq!(answer.header("access-control-allow-origin"), None, "{ask:?}");
    assert!(!String::from_utf8_lossy(&answer.body).contains(TOKEN), "{ask:?}");
}

/// The log says that something was refused, and holds no token.
#[track_caller]
fn ended(server: Server) {
    server.must_serve();
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(!log.contains(TOKEN) && !log.contains("panicked"), "{log}");
}

/// G1, N2.
#[test]
fn no_route_answers_without_the_right_token() {
    let server = server();
    for (number, ask) in asks().enumerate() {
        let ask = ask.header("x-forwarded-for", &format!("198.51.100.{number}"));
        refused(&server, &ask.clone().bare(), 401, "unauthorized");
        for token in ["", "wrong", &TOKEN[1..]] {
            refused(&server, &ask.clone().token(token), 401, "unauthorized");
        }
        let offered = ask.bare().websocket().header("sec-websocket-protocol", "acp.v1, bearer.wrong");
        refused(&server, &offered, 401, "unauthorized");
    }
    server.until_log("a request was refused");
    ended(server);
}

/// G6, N12: the token does not help a page that was not named.
#[test]
fn no_route_answers_a_foreign_page() {
    let server = server();
    for ask in asks() {
        for origin in FOREIGN_ORIGINS {
            refused(&server, &ask.clone().header("origin", origin), 403, "origin_not_allowed");
        }
        let twice = ask.clone().and_header("origin", b"http://evil.example").and_header("origin", b"null");
        refused(&server, &twice, 403, "origin_not_allowed");
        let picture = ask.clone().header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "no-cors");
        refused(&server, &picture, 403, "origin_not_allowed");
        let socket = ask.websocket().header("origin", "https://evil.example");
        refused(&server, &socket.clone().bare(), 403, "origin_not_allowed");
        let offered = socket.bare().header("sec-websocket-protocol", &format!("acp.v1, bearer.{TOKEN}"));
        refused(&server, &offered, 403, "origin_not_allowed");
    }
    ended(server);
}

/// G5, N12.
#[test]
fn no_route_answers_to_a_foreign_name() {
    let server = server();
    let port = server.port;
    for ask in asks().chain(["/health", "/auth/about", "/.well-known/acp.json"].map(Ask::get)) {
        for host in
            ["evil.example".to_owned(), format!("evil.example:{port}"), format!("localhost.evil.com:{port}")]
        {
            refused(&server, &ask.clone().header("host", &host), 403, "host_not_allowed");
            refused(&server, &ask.clone().websocket().header("host", &host), 403, "host_not_allowed");
        }
    }
    ended(server);
}

/// G4.
#[test]
fn no_route_takes_a_token_from_the_address() {
    let server = server();
    for ask in asks() {
        for query in ["token", "access_token", "a=1&access_token", "%74oken"] {
            let mut ask = ask.clone();
            ask.path = format!("{}?{query}={TOKEN}", ask.path);
            refused(&server, &ask, 400, "token_in_url");
            refused(&server, &ask.bare(), 400, "token_in_url");
        }
    }
    ended(server);
}

/// G7.
#[test]
fn no_route_takes_a_form() {
    let server = server();
    for ask in asks().filter(|ask| writes(&ask.method)) {
        for kind in FORM_TYPES {
            refused(&server, &ask.clone().header("content-type", kind), 415, "unsupported_media_type");
        }
    }
    ended(server);
}

/// G14: refused by what is declared, before a byte of it is sent.
#[test]
fn no_route_takes_two_gigabytes() {
    let server = server();
    for ask in asks().filter(|ask| writes(&ask.method)) {
        let ask = ask.body(b"").header("content-length", "2147483648");
        refused(&server, &ask, 413, "too_large");
        refused(&server, &ask.bare(), 401, "unauthorized");
    }
    ended(server);
}

/// G14: nothing is declared, and it does not end.
#[test]
fn a_body_without_end_is_cut_off() {
    let server = server();
    let ask = Ask::new("POST", "/acp").header("content-type", "application/json");
    let mut stream = server.connect();
    stream.write_all(&ask.header("transfer-encoding", "chunked").bytes(server.port)).unwrap();
    let chunk = [&b"100000\r\n"[..], &[b'['; 1 << 20], b"\r\n"].concat();
    let taken = (0..256).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(taken < 64, "{taken} MiB were taken");
    ended(server);
}

/// What could be read in two ways is read in none.
#[test]
fn requests_that_two_servers_would_read_differently_are_refused() {
    let server = server();
    let line = |bytes: &[u8]| {
        let host = format!("host: 127.0.0.1:{}\r\nauthorization: Bearer {TOKEN}\r\n", server.port);
        let mut all = bytes.to_owned();
        let at = all.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
        all.splice(at..at, host.bytes());
        all
    };
    for (name, bytes) in [
        ("a line feed alone", line(b"GET /x HTTP/1.1\r\nx-a: b\nx-c: d\r\nset-cookie: a=b\r\n\r\n")),
        ("a zero", line(b"GET /x HTTP/1.1\r\nx-a: b\0c\r\n\r\n")),
        ("a carriage return", line(b"GET /x HTTP/1.1\r\nx-a: b\rc: d\r\n\r\n")),
        ("a folded line", line(b"GET /x HTTP/1.1\r\nx-a: b\r\n c\r\n\r\n")),
        ("a space before the colon", line(b"GET /x HTTP/1.1\r\nx-a : b\r\n\r\n")),
        ("two lengths", line(b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")),
        ("a length with a sign", line(b"POST /x HTTP/1.1\r\ncontent-length: +1\r\n\r\na")),
        ("an unknown encoding", line(b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked, x\r\n\r\n0\r\n\r\n")),
        ("a header in the path", line(b"GET /x\r\nset-cookie: a=b HTTP/1.1\r\n\r\n")),
        ("bytes that are no text in the path", line(b"GET /\xff\xfe HTTP/1.1\r\n\r\n")),
        ("another version", line(b"GET /x HTTP/3.7\r\n\r\n")),
        ("no request at all", line(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")),
    ] {
        let mut stream = server.connect();
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // A connection that is closed or reset has answered too.
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        let status = answer.split(' ').nth(1).unwrap_or("400");
        assert!(status.starts_with('4') && !answer.contains("set-cookie"), "{name}: {answer}");
        server.must_serve();
    }
    ended(server);
}

/// Length and chunks together: one request, however it is read.
#[test]
fn nothing_can_be_hidden_behind_a_request() {
    let server = server();
    let hidden = format!(
        "POST /x HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n",
        port = server.port
    );
    let mut stream = server.connect();
    stream.write_all(hidden.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("uptime_secs"), "{answer}");
    ended(server);
}

#[test]
fn headers_that_are_no_text_are_refused() {
    let server = server();
    let ask = Ask::get("/no/such/route");
    let invalid = b"Bearer \xff\xfe\xc0\xaf";
    assert_eq!(ask.clone().bare().and_header("authorization", invalid).send(&server).status, 400);
    assert_eq!(ask.clone().and_header("origin", b"http://\xff").send(&server).status, 403);
    assert_eq!(ask.clone().and_header("host", b"\xff\xfe").send(&server).status, 400);
    let socket = ask.bare().websocket().and_header("sec-websocket-protocol", b"bearer.\xff");
    assert_eq!(socket.send(&server).status, 400);
    ended(server);
}

/// Bodies that parsers choke on. Which of the answers a route gives is its own affair; that it gives one
/// of these, quickly, is not.
#[test]
fn no_body_upsets_a_route() {
    let server = server();
    let deep = "[".repeat(200_000);
    let objects = "{\"a\":".repeat(100_000);
    let batch = format!("[{}]", vec!["{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":1}"; 20_000].join(","));
    let bodies: [(&str, &[u8]); 7] = [
        ("text that is none", b"{\"a\":\"\xff\xfe\xc0\xaf\"}"),
        ("half a character", b"{\"a\":\"\xe2\x82\"}"),
        ("half a pair", b"{\"a\":\"\\ud800\"}"),
        ("deep lists", deep.as_bytes()),
        ("deep objects", objects.as_bytes()),
        ("a huge batch", batch.as_bytes()),
        ("nothing", b""),
    ];
    for ask in asks().filter(|ask| writes(&ask.method)) {
        for (name, body) in bodies {
            let answer = ask.clone().body(body).send(&server);
            // 501 is what the official transport says to a batch.
            let fine = answer.status < 500 || answer.status == 501;
            assert!(fine, "{name}: {} {}: {answer:?}", ask.method, ask.path);
        }
    }
    ended(server);
}

/// Ids are names and never paths.
#[test]
fn no_path_leaves_the_sessions() {
    let server = server();
    for id in [
        "..",
        "../..",
        "../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%5c..%5cwin.ini",
        "%00",
        "a%00b",
        "a%0d%0aset-cookie:%20x=y",
        "%c0%ae%c0%ae",
        "%ff",
        "a%20b",
        "....//....//etc/passwd",
        "/etc/passwd",
        &"x".repeat(10_000),
    ] {
        for (before, after) in
            [("/session/", ""), ("/session/", "/events"), ("/sessions/", ""), ("/sessions/", "/messages")]
        {
            let answer = Ask::get(&format!("{before}{id}{after}")).send(&server);
            assert!((400..500).contains(&answer.status), "{before}{id}{after}: {answer:?}");
            assert!(answer.header("set-cookie").is_none());
            assert!(!String::from_utf8_lossy(&answer.body).contains("root:"), "{id}");
        }
    }
    ended(server);
}

/// What is too much in a head.
#[test]
fn a_head_has_a_size() {
    let server = server();
    let long = "x".repeat(200 << 10);
    let many = (0..500).fold(Ask::get("/health"), |ask, number| ask.and_header(&format!("x-{number}"), b"y"));
    for ask in [Ask::get(&format!("/{long}")), Ask::get("/health").header("x-long", &long), many] {
        let mut stream = server.connect();
        drop(stream.write_all(&ask.bytes(server.port)));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or("431");
        assert!(status.starts_with('4'), "{status}");
    }
    ended(server);
}

/// Sockets beyond what a process usually may have.
fn allow_sockets(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(count, |maximum| maximum.min(count));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
}

/// Waits for the end of a connection: closed, or reset.
fn ends(mut stream: TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection is still there: {error}"),
    }
}

/// G13: heads that never end, in both versions of HTTP, and connections that say nothing.
#[test]
fn whoever_sends_half_a_request_is_cut_off_and_holds_nobody_up() {
    let server = server();
    allow_sockets(4096);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // A frame of headers that says that more will follow.
    let half = b"\0\0\x01\x01\0\0\0\0\x01\x82";
    let openings: [&[u8]; 4] =
        [b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ", b"G", b"", &[&preface[..], half].concat()];
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..300 {
        let mut stream = server.connect();
        stream.write_all(openings[number % openings.len()]).unwrap();
        slow.push(stream);
    }
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(Ask::get("/health").bare().send(&server).status, 200);
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    // Far from what a held-up server would take, and far from what a busy machine takes.
    assert!(times[98] < Duration::from_secs(2), "{:?}", times[98]);
    slow.into_iter().for_each(ends);
    // The longest of the limits is 15 seconds.
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    ended(server);
}

/// G13: silent connections push each other out, and nobody who asks for something.
#[test]
fn many_connections_leave_room_for_others() {
    let server = server();
    allow_sockets(16_384);
    let count = if slow() { 10_000 } else { 2_000 };
    let mut held = Vec::new();
    for number in 0..count {
        match TcpStream::connect_timeout(&server.address(), DEADLINE) {
            Ok(stream) => held.push(stream),
            // The test's own machine may have no more sockets to give.
            Err(error) => assert!(number > 1_000, "{number}: {error}"),
        }
        if number % 500 == 499 {
            server.must_serve();
        }
    }
    server.must_serve();
    drop(held);
    ended(server);
}

#[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for in the environment")]
fn slow() -> bool {
    std::env::var_os("SLOW").is_some()
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn http2(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).unwrap();
    stream
}

/// `GET /no/such/route` in the compact form of HTTP/2, with the right token.
fn http2_head(server: &Server) -> Vec<u8> {
    let mut head = vec![0x82, 0x86];
    let host = format!("127.0.0.1:{}", server.port);
    let token = format!("Bearer {TOKEN}");
    // Indexes of the static table: path, authority, authorization; each with a literal value.
    for (index, value) in [(4u8, "/no/such/route"), (1, &host), (23, &token)] {
        if index < 15 {
            head.push(index)
        } else {
            head.extend([0x0f, index - 15])
        }
        head.push(u8::try_from(value.len()).unwrap());
        head.extend(value.bytes());
    }
    head
}

#[test]
fn http2_is_spoken_and_guarded_alike() {
    // With everything logged: the libraries below must not write the token either.
    let server = Server::start(&["-v"]);
    let mut stream = http2(&server);
    stream.write_all(&frame(1, 5, 1, &http2_head(&server))).unwrap();
    let mut answer = Vec::new();
    let mut some = [0; 1024];
    let found = |answer: &[u8]| answer.windows(9).any(|part| part == b"not_found");
    while !found(&answer) {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "{answer:?}");
        answer.extend(&some[..count]);
    }
    drop(stream);
    ended(server);
}

/// Streams that are opened only to be reset.
#[test]
fn whoever_resets_streams_rapidly_is_cut_off() {
    let server = server();
    let mut stream = http2(&server);
    let head = http2_head(&server);
    let mut storm = Vec::new();
    for number in 0..20_000 {
        let id = 2 * number + 1;
        storm.extend(frame(1, 5, id, &head));
        storm.extend(frame(3, 0, id, &8u32.to_be_bytes()));
    }
    // The server may close before all of it is written.
    drop(stream.write_all(&storm));
    ends(stream);
    ended(server);
}

/// A head in endless pieces.
#[test]
fn whoever_continues_a_head_without_end_is_cut_off() {
    let server = server();
    let mut stream = http2(&server);
    stream.write_all(&frame(1, 1, 1, &http2_head(&server))).unwrap();
    let piece = frame(9, 0, 1, &[&[0x00, 0x01, b'a', 0x7f, 0xa1, 0x1e][..], &[b'b'; 4000]].concat());
    let wrote = (0..20_000).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(wrote < 20_000, "all of it was taken");
    ends(stream);
    ended(server);
}
