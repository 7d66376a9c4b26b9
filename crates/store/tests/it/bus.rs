//! NATS as the carrier of wake-ups: used while it is there, and missed by nobody when it is not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::sql::{Db, DbError, PostgresDb, Statement};
use testkit::nats::Server;
use testkit::postgres::Cluster;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::broadcast::Receiver;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const SOON: Duration = Duration::from_secs(30);

async fn tell(db: &PostgresDb, topic: &str) {
    db.run(vec![Statement::new("SELECT 1", [])], vec![topic.to_owned()]).await.unwrap();
}

/// Tells until the other one hears: what is told while a way is being found may be lost.
async fn reaches(from: &PostgresDb, heard: &mut Receiver<Arc<str>>, topic: &str) {
    let until = Instant::now() + SOON;
    loop {
        tell(from, topic).await;
        let waiting = async { while **heard.recv().await.as_ref().unwrap() != *topic {} };
        if tokio::time::timeout(Duration::from_millis(200), waiting).await.is_ok() {
            return;
        }
        assert!(Instant::now() < until, "{topic} is not heard");
    }
}

/// Somebody else on the bus, who sees what goes over it.
async fn sees(server: &Server, from: &PostgresDb, topic: &str) {
    let host = server.url().rsplit(['/', '@']).next().unwrap().to_owned();
    let stream = TcpStream::connect(host).await.unwrap();
    sees_by(BufReader::new(stream), "{\"verbose\":false}", from, topic).await;
}

async fn sees_by(
    mut stream: impl AsyncBufRead + AsyncWrite + Unpin,
    hello: &str,
    from: &PostgresDb,
    topic: &str,
) {
    let greeting = format!("CONNECT {hello}\r\nSUB ropewalk.> 1\r\nPING\r\n");
    stream.write_all(greeting.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let until = Instant::now() + SOON;
    loop {
        tell(from, topic).await;
        let mut line = String::new();
        let looking = async {
            while !line.contains(topic) {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_millis(200), looking).await.is_ok() {
            return;
        }
        assert!(Instant::now() < until, "{topic} does not go over the bus");
    }
}

#[tokio::test]
async fn wake_ups_go_over_nats_and_over_the_database_while_it_is_away() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let mut server = Server::start();
    let connect = async || PostgresDb::connect(&url, Some(&server.url())).await.unwrap();
    let (one, other) = (connect().await, connect().await);
    let mut there = other.subscribe();
    sees(&server, &one, "by the bus").await;
    reaches(&one, &mut there, "first").await;
    server.stop();
    reaches(&one, &mut there, "without").await;
    reaches(&other, &mut one.subscribe(), "back").await;
    server.restart();
    sees(&server, &one, "by the bus again").await;
    reaches(&one, &mut there, "last").await;
}

#[tokio::test]
async fn processes_with_and_without_the_bus_hear_each_other() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let server = Server::with_token(Some("s3cret"));
    let with = PostgresDb::connect(&url, Some(&server.url())).await.unwrap();
    let without = PostgresDb::connect(&url, None).await.unwrap();
    let refused = PostgresDb::connect(&url, Some(&server.url().replace("s3cret", "wrong"))).await.unwrap();
    for (from, to) in [(&with, &without), (&without, &with), (&with, &refused), (&refused, &with)] {
        reaches(from, &mut to.subscribe(), "news").await;
    }
}

#[tokio::test]
async fn wake_ups_go_encrypted_over_a_bus_that_asks_for_a_password() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut server = Server::secured(&certificate, &key, "me", "s3cret");
    let bus = format!("{}?sslrootcert={}", server.url(), certificate.display());
    let connect = async || PostgresDb::connect(&url, Some(&bus)).await.unwrap();
    let (one, other) = (connect().await, connect().await);
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let encrypted = async |server: &Server| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        // The server tells what it is before it encrypts.
        while stream.read_u8().await.unwrap() != b'\n' {}
        let name = "localhost".try_into().unwrap();
        TlsConnector::from(Arc::new(config.clone())).connect(name, stream).await.unwrap()
    };
    let hello = "{\"verbose\":false,\"user\":\"me\",\"pass\":\"s3cret\"}";
    sees_by(BufReader::new(encrypted(&server).await), hello, &one, "by the bus").await;
    reaches(&one, &mut other.subscribe(), "first").await;
    server.restart();
    sees_by(BufReader::new(encrypted(&server).await), hello, &other, "by the bus again").await;
    reaches(&other, &mut one.subscribe(), "last").await;
}

#[tokio::test]
async fn databases_on_one_bus_do_not_hear_each_other() {
    let cluster = Cluster::start();
    let server = Server::start();
    let (mine, yours) = (cluster.database(), cluster.database());
    let connect = async |url: &str| PostgresDb::connect(url, Some(&server.url())).await.unwrap();
    let (one, other, stranger) = (connect(&mine).await, connect(&mine).await, connect(&yours).await);
    let mut theirs = stranger.subscribe();
    sees(&server, &one, "secret").await;
    reaches(&one, &mut other.subscribe(), "secret").await;
    tell(&stranger, "own").await;
    let heard: Vec<Arc<str>> = std::iter::from_fn(|| theirs.try_recv().ok()).collect();
    assert!(heard.iter().all(|topic| **topic != *"secret"), "{heard:?}");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_its_secret() {
    let cluster = Cluster::start();
    let url = cluster.database();
    for bus in
        ["redis://secret@host", "nats://secret@", "tls://secret@host?secret", "nats://secret@host/path"]
    {
        let error = PostgresDb::connect(&url, Some(bus)).await.err().unwrap();
        assert!(matches!(error, DbError::Failed { .. }) && !error.to_string().contains("secret"), "{error}");
    }
}
