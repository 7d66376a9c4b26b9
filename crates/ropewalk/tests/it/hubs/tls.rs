//! A hub with its own TLS certificate, whose authority only some clients trust.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use store::sql::{Db, SqliteDb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::hubs::address::{CertificateFiles, HubAddress};
use crate::hubs::processes::{Hub, Laptop, ropewalk, until};
use crate::hubs::world::World;

const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// P5: everything between browser, hub and machine as without TLS, also over a line that is cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_with_its_own_certificate_is_driven_and_mirrored_to_over_tls() {
    let mut world = World::secure(async |folder: &Path| {
        let file = folder.join("hub-0/state/hub.db");
        Arc::new(SqliteDb::open(&file).unwrap()) as Arc<dyn Db>
    })
    .await;
    let (session, second) = world.read_by_two().await;
    world.prompt(&session, "stream 300 40").await;
    world.balancer.cut();
    world.prompt(&session, "write notes.txt: over TLS").await;
    world.judge(&session, &mut [second]).await;
    assert_eq!(world.laptop.file("notes.txt"), "over TLS\n");
}

/// A hub with papers of its own, and others that it does not have.
fn hub(folder: &Path) -> (Hub, CertificateFiles, CertificateFiles) {
    let (own, other) =
        (CertificateFiles::write(&folder.join("own")), CertificateFiles::write(&folder.join("other")));
    let arguments = own.arguments();
    let hub = Hub::start(folder, "hub", "https://localhost", &arguments.each_ref().map(String::as_str));
    (hub, own, other)
}

/// O19, P5: a machine that trusts another authority is not fooled, and is told what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_trust_the_hubs_certificate_tells_it_nothing_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, own, other) = hub(folder.path());
    let url = format!("https://localhost:{}", hub.address.port());
    let bridge = |trusts: &Path| {
        let home = folder.path().join("machine");
        std::fs::create_dir_all(&home).unwrap();
        let mut command = ropewalk(&home, "bridge.log");
        command.args(["bridge", "--remote-url", &url]).env("ROPEWALK_BRIDGE_TOKEN", TOKEN);
        let output = command.env("SSL_CERT_FILE", trusts).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for nobody in [other.authority.clone(), folder.path().join("no-such-file.pem")] {
        let (code, said) = bridge(&nobody);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("bridge: TLS verification failed"), "{said}");
        assert!(said.contains("SSL_CERT_FILE"), "{said}");
    }
    // It is the token that is wrong now: who trusts the authority gets as far as showing it.
    let (code, said) = bridge(&own.authority);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("bridge: 401 Unauthorized"), "{said}");

    let mut laptop = Laptop::start(folder.path(), &url, TOKEN, Some(&other.authority));
    until("the server says that its bridge is not", || laptop.log().contains("TLS verification failed"));
    assert!(laptop.is_running(), "it serves on without: {}", laptop.log());
}

/// P5: who forgets the s is told so, and is told nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_the_clear_to_a_hub_with_a_certificate_is_refused_and_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, own, _) = hub(folder.path());
    let health = async |place: &HubAddress| {
        let mut stream = place.open().await.unwrap();
        let request = format!(
            "GET /health HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\r\n",
            hub.address.port()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        drop(stream.read_to_end(&mut reply).await);
        String::from_utf8_lossy(&reply).into_owned()
    };
    let plain = health(&HubAddress::plain(hub.address)).await;
    assert!(plain.starts_with("HTTP/1.1 400 ") && plain.contains("https://"), "{plain}");
    assert!(!plain.contains("\"ok\""), "{plain}");
    let secure = health(&HubAddress::secure(hub.address, &own)).await;
    assert!(secure.starts_with("HTTP/1.1 200 "), "{secure}");
}
