//! TLS to a database and to NATS, with the same library as the rest of the program. Certificates are always verified, by the
//! machine's roots or by a file that the operator names.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use engine::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream as Encrypted};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_rustls::{TlsConnector, client};

use crate::sql::DbError;

/// Empty for a database without encryption.
#[derive(Clone)]
pub(super) struct DatabaseTls(Option<Arc<ClientConfig>>);

impl DatabaseTls {
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn verifying(file: Option<&str>) -> Result<Self, DbError> {
        client_config(file).map(|config| Self(Some(Arc::new(config))))
    }
}

/// Verifies a server by the certificates in this file, or by the machine's roots.
pub(super) fn client_config(file: Option<&str>) -> Result<ClientConfig, DbError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let failed = |error: &dyn std::fmt::Display| DbError::Failed {
            reason: format!("sslrootcert {file}: {error}"),
        };
        let read = CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?;
        for certificate in read {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        let reason = "no certificate to verify the server with; set sslrootcert=FILE";
        return Err(DbError::Failed { reason: reason.into() });
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| DbError::Failed { reason: error.to_string() })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl MakeTlsConnect<Socket> for DatabaseTls {
    type Stream = TlsStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other);
        Ok(Handshake(self.0.clone().zip(name.ok())))
    }
}

pub(super) struct Handshake(Option<(Arc<ClientConfig>, ServerName<'static>)>);

impl TlsConnect<Socket> for Handshake {
    type Stream = TlsStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TlsStream>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let (config, name) =
                self.0.ok_or_else(|| io::Error::other("its name is not one that TLS can verify"))?;
            TlsConnector::from(config).connect(name, stream).await.map(TlsStream)
        })
    }
}

pub(super) struct TlsStream(client::TlsStream<Socket>);

impl Encrypted for TlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
