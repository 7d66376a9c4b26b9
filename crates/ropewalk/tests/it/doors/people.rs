//! Sign-in with the real binary: `up`, `link`, `pair`, `devices`, and browsers with links and cookies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_output::CommandOutput;
use crate::doors::web::{Answer, Ask, DEADLINE, Server, TOKEN, connect, home, ropewalk, run};

/// A program that goes on, and the lines it prints.
struct RunningProgram {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    home: Arc<TempDir>,
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl RunningProgram {
    fn start(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let mut command = ropewalk(home.path(), arguments);
        command.env("ROPEWALK_OFFLINE", "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (send, lines) = sync_channel(1 << 12);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                send.send(line).ok();
            }
        });
        Self { child, lines, said: Vec::new(), home: Arc::clone(home) }
    }

    /// `up`, when it has said all that it says.
    fn up(arguments: &[&str]) -> Self {
        let home = home();
        let mut up = Self::start(&home, &[&["up", "--no-open"], arguments].concat());
        up.until("Press Ctrl-C to stop.");
        up
    }

    fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{:?}", self.said));
        self.said.push(line.clone());
        line
    }

    fn until(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    fn link(&self) -> String {
        let mut lines = self.said.iter().map(|line| line.trim());
        lines.find(|line| line.starts_with("http")).unwrap().to_owned()
    }

    fn interrupt(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.code(), Some(0));
    }

    fn code(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < DEADLINE, "it does not end");
            std::thread::yield_now();
        }
    }
}

/// Where a link leads, and its code.
fn parts(link: &str) -> (SocketAddr, String) {
    let (base, code) = link.split_once("/login#").unwrap();
    (base.strip_prefix("http://").unwrap().parse().unwrap(), code.to_owned())
}

fn enter(address: SocketAddr, code: &str) -> Answer {
    let body = json!({ "code": code, "name": "laptop" }).to_string();
    let ask = Ask::post("/ui/enter", &body).bare();
    ask.header("origin", &format!("http://{address}")).send_to(address)
}

/// What a browser has that is signed in.
struct Browser {
    cookie: String,
    proof: String,
}

/// A browser that follows this link.
fn browser(link: &str) -> Browser {
    let (address, code) = parts(link);
    let answer = enter(address, &code);
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    Browser { cookie, proof: answer.json()["proof"].as_str().unwrap().to_owned() }
}

/// What a page of this browser is answered about devices.
fn devices(address: SocketAddr, browser: &Browser) -> Answer {
    let ask = Ask::post("/ui/hall", r#"{"do":"devices"}"#).bare().header("cookie", &browser.cookie);
    let ask = ask.header("x-ropewalk-proof", &browser.proof);
    ask.header("origin", &format!("http://{address}")).send_to(address)
}

fn audited(home: &TempDir) -> Vec<Value> {
    let days = std::fs::read_dir(home.path().join("state/audit")).unwrap().map(|day| day.unwrap().path());
    let files = days.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let text: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn up_prints_a_link_that_signs_one_browser_in() {
    let up = RunningProgram::up(&["--port", "0"]);
    let said = up.said.join("\n");
    for part in ["folder", "sessions.db", "offline", "ropewalk pair", "ropewalk editors", "ropewalk link"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (address, code) = parts(&up.link());
    let page = Ask::get("/login").bare().send_to(address);
    assert!(page.status == 200 && page.header("content-security-policy").is_some());
    let browser = browser(&up.link());
    assert_eq!(devices(address, &browser).status, 200);
    // What any other program of this machine could send, to whose port browsers send the cookie too.
    let stolen = devices(address, &Browser { proof: "guessed".into(), cookie: browser.cookie.clone() });
    assert_eq!((stolen.status, stolen.error().as_str()), (401, "sign_in_again"));
    assert_eq!(enter(address, &code).error(), "code_used");
    let api = Ask::get("/session").bare().header("cookie", &browser.cookie);
    let api = api.header("x-ropewalk-proof", &browser.proof).send_to(address);
    assert_eq!((api.status, api.error().as_str()), (401, "unauthorized"));
    up.interrupt();
}

#[test]
fn a_second_up_leads_to_the_first() {
    let up = RunningProgram::up(&["--port", "0"]);
    let home = Arc::clone(&up.home);
    let again = run(&home, &["up", "--no-open"]).with(0);
    assert!(again.out.contains("already running"), "{}", again.out);
    let link = again.out.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    assert_eq!(parts(&link).0, parts(&up.link()).0);
    assert!(browser(&link).cookie.starts_with("ropewalk-"));
    let elsewhere = run(&home, &["up", "--no-open", "-C", "/"]).with(0);
    assert!(elsewhere.out.contains("It works in"), "{}", elsewhere.out);
    let third = run(&home, &["link", "--json"]).with(0).json();
    assert_eq!(parts(third["url"].as_str().unwrap()).0, parts(&up.link()).0);
    up.interrupt();
    for command in [&["link"][..], &["devices", "list"], &["pair", "--yes"]] {
        let ended = run(&home, command).with(1);
        assert!(
            ended.err.contains("no server is running") && ended.err.contains("ropewalk up"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn a_port_that_is_taken_is_left_to_whoever_has_it() {
    let (first, second) = (RunningProgram::up(&[]), RunningProgram::up(&[]));
    let (one, other) = (parts(&first.link()).0, parts(&second.link()).0);
    assert_ne!(one.port(), other.port());
    let port = one.port().to_string();
    let refused = run(&second.home, &["up", "--no-open", "--port", &port]).with(1);
    assert!(refused.err.contains("could not listen on"), "{}", refused.err);
    first.interrupt();
    second.interrupt();
}

#[test]
fn a_revoked_device_is_out_and_its_line_ends() {
    let up = RunningProgram::up(&["--port", "0"]);
    let (address, _) = parts(&up.link());
    let browser = browser(&up.link());
    let ask = Ask::get("/ui/socket").bare().websocket().header("cookie", &browser.cookie);
    let forged = ask.clone().header("sec-websocket-protocol", "ropewalk.v1");
    let forged = forged.header("origin", &format!("http://{address}")).send_to(address);
    assert_eq!((forged.status, forged.error().as_str()), (401, "sign_in_again"));
    let ask = ask.header("sec-websocket-protocol", &format!("ropewalk.v1, proof.{}", browser.proof));
    for origin in [None, Some("http://evil.example"), Some("http://127.0.0.1:1")] {
        let ask = origin.map_or(ask.clone(), |origin| ask.clone().header("origin", origin));
        assert!(matches!(ask.send_to(address).status, 401 | 403), "{origin:?}");
    }
    let mut line = connect(address);
    line.write_all(&ask.header("origin", &format!("http://{address}")).bytes(address.port())).unwrap();
    assert_eq!(Answer::read(&mut line).status, 101);
    let listed = run(&up.home, &["devices", "list", "--json"]).with(0).json();
    assert_eq!(listed["devices"][0]["name"], "laptop");
    assert_eq!(listed["devices"][0]["role"], "owner");
    let shown = run(&up.home, &["devices", "ls"]).with(0);
    assert!(shown.out.contains("laptop") && shown.out.contains("owner"), "{}", shown.out);
    run(&up.home, &["devices", "revoke", "nobody"]).with(5);
    let revoked = run(&up.home, &["devices", "revoke", "laptop"]).with(0);
    assert_eq!(revoked.out, "revoked laptop\n");
    // Ends, or the deadline of the socket does.
    line.read_to_end(&mut Vec::new()).unwrap();
    let answer = devices(address, &browser);
    assert_eq!((answer.status, answer.error().as_str()), (401, "signed_out"));
    let home = Arc::clone(&up.home);
    up.interrupt();
    let rows = audited(&home);
    let of = |kind: &str| rows.iter().filter(|row| row["event_type"] == kind).count();
    assert_eq!((of("device.entered"), of("device.revoked")), (1, 1));
}

#[test]
fn a_device_is_known_after_a_restart_and_only_digests_of_its_secrets_are_kept() {
    let home = home();
    let start = || {
        let mut command = ropewalk(home.path(), &["serve", "--http", ":0"]);
        command.env("ROPEWALK_OFFLINE", "1");
        Server::run(Arc::clone(&home), command)
    };
    let server = start();
    server.until_log("ropewalk link");
    let link = run(&home, &["link"]).with(0).out;
    let Browser { cookie, proof } = browser(link.trim());
    let (_, log) = server.stop();
    let key = cookie.split_once('=').unwrap().1;
    assert!(!log.contains(key) && !log.contains(&proof), "{log}");
    assert!(!log.contains(link.trim().split_once('#').unwrap().1), "{log}");
    let file = home.path().join("state/devices.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(!kept.contains(key) && !kept.contains(&proof));
    let server = start();
    // The cookie's name has the port in it, which is another one here.
    let moved = Browser { cookie: format!("ropewalk-{}={key}", server.port), proof };
    assert_eq!(devices(server.address(), &moved).json()["devices"][0]["name"], "laptop");
    assert_eq!(server.stop().0, Some(0));
}

/// A phone that comes by the name that a proxy has.
#[test]
fn pair_lets_a_phone_in_that_has_the_code() {
    let home = home();
    let all = ["serve", "--http", ":0", "--behind-proxy", "--allow-host", "rope.example"];
    let server = Server::run(Arc::clone(&home), ropewalk(home.path(), &all));
    let asked = run(&home, &["pair"]).with(2);
    assert!(asked.err.contains("--yes"), "{}", asked.err);
    let mut pair = RunningProgram::start(&home, &["pair", "--yes", "--json", "--role", "approver"]);
    let shown: Value = serde_json::from_str(&pair.line()).unwrap();
    assert!(shown["url"].as_str().unwrap().starts_with("https://rope.example/pair#"), "{shown}");
    let post = |body: Value| {
        let ask = Ask::post("/ui/enter", &body.to_string()).bare().header("host", "rope.example");
        ask.header("origin", "https://rope.example").send(&server)
    };
    let mut answer = post(json!({ "code": shown["code"], "name": "iPhone \u{1b}[31m" }));
    assert_eq!(answer.status, 202, "{answer:?}");
    let words = answer.json()["words"].clone();
    while answer.status == 202 {
        answer = post(json!({ "knock": answer.json()["knock"] }));
    }
    assert_eq!((answer.status, &answer.json()["role"]), (200, &json!("approver")));
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"), "{answer:?}");
    let done: Value = serde_json::from_str(&pair.line()).unwrap();
    assert_eq!((&done["words"], &done["device"]["name"]), (&words, &json!("iPhone [31m")));
    assert_eq!(pair.code(), Some(0));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn pair_says_when_no_phone_could_come() {
    let up = RunningProgram::up(&["--port", "0"]);
    let ended = run(&up.home, &["pair", "--yes"]).with(1);
    assert!(ended.err.contains("this machine only") && ended.err.contains("up --lan"), "{}", ended.err);
    up.interrupt();
}

/// The network's address here is another one of loopback: the same to us, and there on every machine.
#[test]
fn up_for_the_network_speaks_tls_there_with_a_certificate_of_its_own() {
    let up = RunningProgram::up(&["--port", "0", "--lan", "127.0.0.2"]);
    let said = up.said.join("\n");
    assert!(said.contains("https://127.0.0.2:") && said.contains("Browsers warn"), "{said}");
    let fingerprint = up.said.iter().find(|line| line.matches(':').count() == 31).unwrap().trim().to_owned();
    let (address, code) = parts(&up.link());
    assert!(address.ip().is_loopback(), "the link is for this machine");
    let folder = up.home.path().join("state/lan");
    let key = std::fs::metadata(folder.join("127.0.0.2.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);

    let network = SocketAddr::new("127.0.0.2".parse().unwrap(), address.port());
    let ask = |origin: &str| {
        let body = json!({ "code": code, "name": "phone" }).to_string();
        let ask = Ask::post("/ui/enter", &body).bare().header("host", &network.to_string());
        ask.header("origin", origin)
    };
    let (seen, answer) = over_tls(network, &ask(&format!("http://{network}")));
    assert_eq!(seen, fingerprint);
    assert_eq!(answer.error(), "origin_not_allowed", "a page without TLS is another page");
    let (_, answer) = over_tls(network, &ask(&format!("https://{network}")));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"));
    // Nothing is answered in the clear there, and this machine's own names are not its names.
    let mut plain = connect(network);
    plain.write_all(&Ask::get("/health").bare().bytes(network.port())).unwrap();
    let mut answered = Vec::new();
    // It may be cut off in the middle of what we sent.
    drop(plain.read_to_end(&mut answered));
    assert!(!String::from_utf8_lossy(&answered).contains("200 OK"));
    let mut pair = RunningProgram::start(&up.home, &["pair", "--yes", "--json"]);
    let shown: Value = serde_json::from_str(&pair.line()).unwrap();
    assert!(shown["url"].as_str().unwrap().starts_with(&format!("https://{network}/pair#")), "{shown}");
    up.interrupt();
    assert_eq!(pair.code(), Some(1), "a server that ends is not waited for");
    run(&home(), &["up", "--no-open", "--lan", "0.0.0.0"]).with(2);
}

/// The certificate's fingerprint, and the answer.
fn over_tls(address: SocketAddr, ask: &Ask) -> (String, Answer) {
    use tokio_rustls::rustls::{ClientConnection, StreamOwned};
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let config = Arc::new(anybody(&seen));
    let connection = ClientConnection::new(config, address.ip().into()).unwrap();
    let mut stream = StreamOwned::new(connection, connect(address));
    stream.write_all(&ask.bytes(address.port())).unwrap();
    let answer = Answer::read(&mut stream);
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&*seen.lock().unwrap());
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    (hex.join(":"), answer)
}

/// Takes any certificate, and keeps it.
fn anybody(seen: &Arc<Mutex<Vec<u8>>>) -> tokio_rustls::rustls::ClientConfig {
    use tokio_rustls::rustls::client::danger::{
        HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
    };
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    struct AnyCertificate(Arc<Mutex<Vec<u8>>>);

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            *self.0.lock().unwrap() = end_entity.to_vec();
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }

    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(seen))))
        .with_no_client_auth()
}

/// Commands know a server that speaks TLS only by the certificate that it wrote down.
#[test]
fn a_server_with_a_certificate_can_be_asked_for_a_link() {
    let home = home();
    let made = rcgen::generate_simple_self_signed(["rope.example".to_owned()]).unwrap();
    let (certificate, key) = (home.path().join("c.pem"), home.path().join("k.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let all = ["serve", "--http", ":0", "--tls-cert", certificate, "--tls-key", key];
    let server = Server::run(Arc::clone(&home), ropewalk(home.path(), &all));
    let link = run(&home, &["link"]).with(0);
    assert!(link.out.starts_with(&format!("https://127.0.0.1:{}/login#", server.port)), "{}", link.out);
    // Another certificate than the one that was written down is not talked to.
    let facts = home.path().join(format!("state/run/http-{}.json", server.port));
    let text = std::fs::read_to_string(&facts).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["certificate_sha256"] = "0".repeat(64).into();
    std::fs::write(&facts, value.to_string()).unwrap();
    let ended = run(&home, &["link"]).with(1);
    assert!(ended.err.contains("could not reach the server"), "{}", ended.err);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_server_whose_token_is_not_known_here_is_not_asked() {
    let server = Server::start(&[]);
    let ended = run(&server.home, &["link"]).with(1);
    assert!(ended.err.contains("ROPEWALK_SERVER_TOKEN"), "{}", ended.err);
    let mut command = ropewalk(server.home.path(), &["link"]);
    command.env("ROPEWALK_SERVER_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = CommandOutput::of(command.spawn().unwrap()).with(0);
    assert!(browser(ended.out.trim()).cookie.starts_with("ropewalk-"));
    assert_eq!(server.stop().0, Some(0));
}
