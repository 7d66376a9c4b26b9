//! One connection to a NATS server, on one subject that this process publishes to and subscribes to.
//!
//! The NATS client can reconnect by itself, but would keep trying after its owner dropped it. So a connection is used
//! until something goes wrong with it, and its owner then opens a new one.
//!
//! **Invariant:** with `tls://` nothing secret is sent before the server has proved its name. Neither errors nor logs
//! contain what the address has before its `@`.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_rustls::rustls::ClientConfig;

use super::tls::client_config;
use crate::sql::DbError;

/// Our messages are smaller; other users of the server may send larger ones.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Messages that wait to be received or sent. A process that receives more slowly misses some, and looks
/// everywhere.
const WAITING_MAX: usize = 1024;
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A server that leaves two of these unanswered is gone.
const ASK_EVERY: Duration = Duration::from_secs(2);
const TELL_MAX: Duration = Duration::from_secs(6);

#[derive(Clone)]
pub(super) struct BusAddress {
    server: ServerAddr,
    user: Option<(String, Option<String>)>,
    encrypted: bool,
    /// Without it, the client makes one if the server insists.
    tls: Option<ClientConfig>,
}

impl BusAddress {
    /// `nats://HOST[:PORT]` or `tls://HOST[:PORT]`, with `TOKEN@` or `USER:PASSWORD@` before the host, and with
    /// `?sslrootcert=FILE` after it, as in the address of a database.
    pub(super) fn parse(url: &str) -> Result<Self, DbError> {
        let wrong = || DbError::Failed {
            reason: "the bus must look like nats://HOST:4222, nats://TOKEN@HOST:4222 or \
                     nats://USER:PASSWORD@HOST:4222; with tls:// it is encrypted, verified by the machine's \
                     certificates or by those in FILE with ?sslrootcert=FILE after it"
                .into(),
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let encrypted = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(wrong()),
        };
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let (host, roots) = match host.split_once('?') {
            None => (host, None),
            Some((host, query)) => (host, Some(query.strip_prefix("sslrootcert=").ok_or_else(wrong)?)),
        };
        let host = host.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '#']) {
            return Err(wrong());
        }
        let server: ServerAddr = format!("{scheme}://{host}").parse().map_err(|_| wrong())?;
        let roots = roots.map(|file| file.replace("%2F", "/"));
        let tls = match encrypted || roots.is_some() {
            true => Some(client_config(roots.as_deref())?),
            false => None,
        };
        let user = user.map(|user| match user.split_once(':') {
            Some((name, password)) => (name.to_owned(), Some(password.to_owned())),
            None => (user.to_owned(), None),
        });
        Ok(Self { server, user, encrypted, tls })
    }

    fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new()
            .name("ropewalk")
            .no_echo()
            .require_tls(self.encrypted)
            .connection_timeout(CONNECT_MAX)
            .ping_interval(ASK_EVERY)
            .subscription_capacity(WAITING_MAX)
            .client_capacity(WAITING_MAX)
            .ignore_discovered_servers()
            .max_reconnects(1);
        let options = match &self.tls {
            Some(tls) => options.tls_client_config(tls.clone()),
            None => options,
        };
        match &self.user {
            Some((name, Some(password))) => options.user_and_password(name.clone(), password.clone()),
            Some((token, None)) => options.token(token.clone()),
            None => options,
        }
    }
}

pub(super) struct BusConnection {
    client: Client,
    messages: Subscriber,
    /// Why it is not to be used any more.
    ended: mpsc::Receiver<String>,
    subject: String,
}

impl BusConnection {
    pub(super) async fn open(address: &BusAddress, subject: &str) -> Result<Self, String> {
        // Addresses of one name are tried one after the other, each for its own time.
        match tokio::time::timeout(2 * CONNECT_MAX, Self::connect(address, subject)).await {
            Ok(opened) => opened,
            Err(_) => Err("it does not answer".into()),
        }
    }

    async fn connect(address: &BusAddress, subject: &str) -> Result<Self, String> {
        let (end, ended) = mpsc::channel(1);
        let options = address.options().event_callback(move |event| {
            match event {
                Event::Connected | Event::LameDuckMode | Event::ClientError(_) => {}
                // Whatever was refused, the connection does not do what it is for. The first reason is enough.
                Event::Disconnected
                | Event::Draining
                | Event::Closed
                | Event::SlowConsumer(_)
                | Event::ServerError(_) => drop(end.try_send(event.to_string())),
            }
            std::future::ready(())
        });
        let client = options.connect(address.server.clone()).await.map_err(|error| reason(&error))?;
        let messages = client.subscribe(subject.to_owned()).await.map_err(|error| reason(&error))?;
        client.flush().await.map_err(|error| reason(&error))?;
        Ok(Self { client, messages, ended, subject: subject.to_owned() })
    }

    /// Carries messages until something goes wrong, and says what.
    pub(super) async fn serve(
        &mut self,
        messages: &mut mpsc::Receiver<String>,
        mut hear: impl FnMut(&[u8]),
    ) -> String {
        loop {
            let message = tokio::select! {
                biased;
                reason = self.ended.recv() => return reason.unwrap_or_else(|| "it closed the connection".into()),
                heard = self.messages.next() => {
                    let Some(heard) = heard else { return "it closed the connection".into() };
                    if heard.payload.len() <= PAYLOAD_BYTES_MAX {
                        hear(&heard.payload);
                    }
                    continue;
                }
                Some(message) = messages.recv() => message,
            };
            let told = self.client.publish(self.subject.clone(), message.into());
            match tokio::time::timeout(TELL_MAX, told).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return reason(&error),
                Err(_) => return "it does not answer any more".into(),
            }
        }
    }
}

/// An error and what caused it, as far as that says more.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::nats::Server;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn opened(url: &str) -> Result<(), String> {
        BusConnection::open(&BusAddress::parse(url).unwrap(), "ropewalk.test").await.map(drop)
    }

    #[tokio::test]
    async fn a_server_proves_its_name_and_then_hears_who_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(path("right"), made.cert.pem()).unwrap();
        std::fs::write(path("wrong"), other.cert.pem()).unwrap();
        std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
        let server = Server::secured(&path("right"), &path("key"), "me", "s3cret");
        let url = |host: &str, name: &str| {
            format!("tls://me:s3cret@{host}:{}?sslrootcert={}", server.port(), path(name).display())
        };
        let right = url("localhost", "right");
        assert_eq!(opened(&right).await, Ok(()));
        assert_eq!(opened(&right.replace("tls://", "nats://")).await, Ok(()), "it insists");
        for (url, said) in [
            (url("localhost", "wrong"), "certificate"),
            (url("127.0.0.1", "right"), "certificate"),
            (format!("tls://me:s3cret@localhost:{}", server.port()), "certificate"),
            (right.replace("s3cret", "wr0ng"), "authorization"),
            (right.replace("me:s3cret", "s3cret"), "authorization"),
        ] {
            let error = opened(&url).await.unwrap_err();
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
        }
        let plain = Server::start();
        let url = url("localhost", "right").replace(&server.port().to_string(), &plain.port().to_string());
        assert!(opened(&url).await.is_err(), "nothing is told to a server that does not encrypt");
    }

    /// The client's tasks are not ours to wait for, so they have to end by themselves.
    #[tokio::test]
    async fn a_connection_that_nobody_holds_is_closed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let info =
                b"INFO {\"server_id\":\"x\",\"version\":\"2.14.0\",\"max_payload\":1048576}\r\nPONG\r\n";
            stream.write_all(info).await.unwrap();
            stream
        };
        let address = BusAddress::parse(&url).unwrap();
        let (line, mut stream) = tokio::join!(BusConnection::open(&address, "ropewalk.test"), serving);
        drop(line.unwrap());
        let mut heard = String::new();
        let closed = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut heard));
        closed.await.expect("it is closed").unwrap();
        assert!(heard.contains("SUB ropewalk.test"), "{heard}");
    }

    #[test]
    fn what_stands_before_the_host_may_have_any_characters() {
        let read = |url: &str| {
            BusAddress::parse(url).map(|address| (address.server.host().to_owned(), address.user))
        };
        let host = "bus.example".to_owned();
        assert_eq!(read("nats://bus.example/").unwrap(), (host.clone(), None));
        assert_eq!(
            read("nats://a/b?c+d=@bus.example:4222").unwrap(),
            (host.clone(), Some(("a/b?c+d=".into(), None)))
        );
        assert_eq!(
            read("nats://me:p:a@ss%@bus.example").unwrap(),
            (host, Some(("me".into(), Some("p:a@ss%".into()))))
        );
        assert_eq!(read("nats://[::1]:4222").unwrap().0, "::1");
        for url in [
            "nats://",
            "nats://h/x",
            "nats://h#x",
            "ws://h",
            "h",
            "nats://h?sslmode=disable",
            "nats://h:port",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
    }
}
