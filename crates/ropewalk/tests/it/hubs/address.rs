//! The address of a hub, plain or over TLS with the test's own certificate authority.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The name that certificates are for.
const NAME: &str = "localhost";

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[derive(Clone)]
pub struct HubAddress {
    address: SocketAddr,
    /// As browsers and bridges know it, without a final slash.
    pub url: String,
    connector: Option<TlsConnector>,
}

impl HubAddress {
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, url: format!("http://{address}"), connector: None }
    }

    /// A TLS address; clients trust only the authority of these certificates.
    pub fn secure(address: SocketAddr, certificates: &CertificateFiles) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&certificates.authority).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let url = format!("https://{NAME}:{}", address.port());
        Self { address, url, connector: Some(TlsConnector::from(Arc::new(config))) }
    }

    pub fn host(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub async fn open(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address).await?;
        let Some(connector) = &self.connector else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(NAME).unwrap();
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

/// A certificate from a test authority, as PEM files.
pub struct CertificateFiles {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The hub options for them.
    pub fn arguments(&self) -> [String; 4] {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.to_str().unwrap().to_owned());
        ["--tls-cert".into(), certificate, "--tls-key".into(), key]
    }

    pub fn write(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new([NAME.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let written = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            authority: written("authority.pem", authority.pem()),
            certificate: written("certificate.pem", signed.pem()),
            key: written("key.pem", key.serialize_pem()),
        }
    }
}
