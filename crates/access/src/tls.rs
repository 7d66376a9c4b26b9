//! TLS: a certificate and its key, read once at the start. TLS 1.3 only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::tokens::Digest;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("could not read the certificate in {0}")]
    Certificate(PathBuf, #[source] pem::Error),
    #[error("there is no certificate in {0}")]
    NoCertificate(PathBuf),
    #[error("could not read the key in {0}")]
    Key(PathBuf, #[source] pem::Error),
    #[error("could not use the certificate with the key")]
    Unusable(#[source] rustls::Error),
}

#[derive(Clone)]
pub struct Tls {
    pub(super) acceptor: TlsAcceptor,
    fingerprint: Digest,
}

impl Tls {
    /// Files in PEM form: the certificate with what it is signed by, and its private key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let wrong = |error| TlsError::Certificate(certificate.to_owned(), error);
        let chain = CertificateDer::pem_file_iter(certificate).map_err(wrong)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let fingerprint = chain.first().map(|first| Digest::of_bytes(first));
        let fingerprint = fingerprint.ok_or_else(|| TlsError::NoCertificate(certificate.to_owned()))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key(key.to_owned(), error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
    }

    /// SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Digest {
        self.fingerprint
    }
}
