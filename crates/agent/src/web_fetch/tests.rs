use std::collections::HashMap;
use std::net::{Ipv4Addr, TcpListener};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::task::TaskTracker;

use super::*;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));

/// Names that lead where the test wants them to.
struct Book(HashMap<&'static str, Vec<IpAddr>>);

impl HostResolver for Book {
    fn find(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let found = self.0.get(host).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(found)))
    }
}

fn web(allows: fn(IpAddr) -> bool) -> WebClient {
    let book = [
        ("site.example", vec![LOOPBACK]),
        ("other.example", vec![LOOPBACK]),
        ("mixed.example", vec![PUBLIC, LOOPBACK]),
        ("metadata.example", vec![IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))]),
        ("mapped.example", vec!["::ffff:127.0.0.1".parse().unwrap()]),
    ];
    let names = Arc::new(Book(book.into()));
    WebClient { timeout: Duration::from_secs(30), ..WebClient::new(WebAccess { names, allows }) }
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_is_not_public_however_it_is_written() {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = web(is_public);
    for host in [
        "127.0.0.1",
        "127.1",
        "0",
        "0.0.0.0",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fe80::1]",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.168.0.1",
        "site.example",
        "SITE.example",
        "mixed.example",
        "metadata.example",
        "mapped.example",
    ] {
        for kind in [FetchPurpose::Link, FetchPurpose::Page] {
            let refused = web.read(&format!("http://{host}:{port}/x"), kind).await;
            assert!(matches!(refused, Err(WebError::Private(_))), "{host} {refused:?}");
        }
    }
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody has connected");
}

#[tokio::test]
async fn malformed_and_unknown_addresses_are_refused() {
    let web = web(|_| true);
    for (address, expected) in [
        ("ftp://site.example/x", WebError::Scheme),
        ("file:///etc/passwd", WebError::Scheme),
        ("http://", WebError::Malformed),
        ("no address", WebError::Malformed),
        ("http://me:secret@site.example/", WebError::Credentials),
        ("http://nobody.example/", WebError::Unknown("nobody.example".into())),
    ] {
        assert_eq!(web.read(address, FetchPurpose::Page).await, Err(expected), "{address}");
    }
}

/// What the server says to a request for a path.
fn answer(path: &str) -> String {
    let page = |kind: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let to = |place: &str| format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n");
    match path {
        "/text" => page("text/plain; charset=utf-8", "hello ü\n"),
        "/html" => page("TEXT/HTML", "<h1>Hi</h1><script>no</script>you"),
        "/json" => page("application/vnd.x+json", "{}"),
        "/image" => page("image/png", "x"),
        "/binary" => page("text/plain", "a\0b"),
        "/full" => page("text/plain", &"x".repeat(PAGE_BYTES_MAX)),
        "/over" => page("text/plain", &"x".repeat(PAGE_BYTES_MAX + 1)),
        "/none" => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        "/unnamed" => "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".into(),
        "/cut" => "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nx".into(),
        "/near" => to("/text"),
        "/round" => to("/round"),
        "/far" => to("http://other.example/text"),
        "/inside" => to("http://169.254.169.254/keys"),
        "/scheme" => to("file:///etc/passwd"),
        _ => "nonsense".into(),
    }
}

/// A server on this machine, and the requests it saw.
struct Server {
    port: u16,
    seen: Arc<std::sync::Mutex<Vec<String>>>,
    _tasks: TaskTracker,
}

impl Server {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tasks, seen) = (TaskTracker::new(), Arc::<std::sync::Mutex<Vec<String>>>::default());
        let (serving, noted) = (tasks.clone(), Arc::clone(&seen));
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let noted = Arc::clone(&noted);
                serving.spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(stream.read_u8().await.unwrap());
                    }
                    let request = String::from_utf8(request).unwrap();
                    let path = request.split(' ').nth(1).unwrap().to_owned();
                    noted.lock().unwrap().push(request);
                    if path == "/slow" {
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nx")
                            .await
                            .unwrap();
                        std::future::pending::<()>().await;
                    }
                    // Who has read enough may leave.
                    stream.write_all(answer(&path).as_bytes()).await.ok();
                });
            }
        });
        Self { port, seen, _tasks: tasks }
    }

    async fn read(&self, web: &WebClient, path: &str, kind: FetchPurpose) -> Result<String, WebError> {
        let page = web.read(&format!("http://site.example:{}{path}", self.port), kind).await?;
        Ok(page.text)
    }
}

#[tokio::test]
async fn text_is_read_and_everything_else_is_named() {
    let (server, web) = (Server::start().await, web(|_| true));
    for (path, link, page) in [
        ("/text", Ok("hello ü\n"), Ok("hello ü\n")),
        ("/html", Ok("# Hi\n\nyou\n"), Ok("# Hi\n\nyou\n")),
        ("/json", Err(WebError::Kind("application/vnd.x+json".into())), Ok("{}")),
        (
            "/near",
            Err(WebError::Elsewhere(format!("http://site.example:{}/text", server.port))),
            Ok("hello ü\n"),
        ),
    ] {
        assert_eq!(server.read(&web, path, FetchPurpose::Link).await, link.map(str::to_owned), "{path}");
        assert_eq!(server.read(&web, path, FetchPurpose::Page).await, page.map(str::to_owned), "{path}");
    }
    let elsewhere = |place: &str| WebError::Elsewhere(place.into());
    for (path, expected) in [
        ("/image", WebError::Kind("image/png".into())),
        ("/binary", WebError::Kind("binary".into())),
        ("/unnamed", WebError::Kind("of no known kind".into())),
        ("/over", WebError::TooLarge),
        ("/none", WebError::Status(404)),
        ("/far", elsewhere("http://other.example/text")),
        ("/inside", elsewhere("http://169.254.169.254/keys")),
        ("/scheme", WebError::Scheme),
    ] {
        for kind in [FetchPurpose::Link, FetchPurpose::Page] {
            let failed = server.read(&web, path, kind).await;
            assert_eq!(failed.as_ref().err(), Some(&expected), "{path} {kind:?}");
        }
    }
    assert_eq!(server.read(&web, "/round", FetchPurpose::Page).await, Err(WebError::TooManyRedirects));
    assert_eq!(server.read(&web, "/full", FetchPurpose::Page).await.unwrap().len(), PAGE_BYTES_MAX);
    for path in ["/cut", "/nonsense"] {
        let broken = server.read(&web, path, FetchPurpose::Page).await;
        assert!(matches!(broken, Err(WebError::Unreachable(_))), "{path} {broken:?}");
    }
    let seen = server.seen.lock().unwrap();
    assert!(seen.iter().all(|request| request.starts_with("GET /") && request.contains("accept: text/")));
    assert!(!seen.iter().any(|request| request.contains("other.example")));
}

#[tokio::test]
async fn a_page_that_never_ends_is_given_up() {
    let server = Server::start().await;
    let web = WebClient { timeout: Duration::from_millis(300), ..web(|_| true) };
    assert_eq!(server.read(&web, "/slow", FetchPurpose::Link).await, Err(WebError::TooSlow));
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_checked_again() {
    // The name was public at first and is not any more: every step looks it up and checks it.
    struct Turns(std::sync::atomic::AtomicUsize);
    impl HostResolver for Turns {
        fn find(&self, _: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            let turn = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let address = if turn == 0 { LOOPBACK } else { "10.0.0.1".parse().unwrap() };
            Box::pin(std::future::ready(Ok(vec![address])))
        }
    }
    let server = Server::start().await;
    let reach =
        WebAccess { names: Arc::new(Turns(Default::default())), allows: |address| address.is_loopback() };
    let refused = server.read(&WebClient::new(reach), "/near", FetchPurpose::Page).await;
    assert_eq!(refused, Err(WebError::Private("10.0.0.1".parse().unwrap())));
}
