//! Which servers the bridge accepts as its receiver: those with a certificate of an authority that this machine trusts.
//!
//! One more case is accepted than WebPKI does. `openssl req -x509` makes a certificate that is its own authority, and WebPKI
//! refuses an authority as a server, also where the person has named exactly this certificate as trusted. It is accepted
//! here if it is, byte for byte, among the trusted ones, and its dates and names fit. That trusts hardly more: the holder of
//! its key could sign another certificate for the same names. What it says of its own use (for servers, for some
//! names alone) is not checked: the person has named this very certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::bridge_error::{BridgeError, quoted};

/// With the certificates that this machine trusts: those of the system, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
pub(super) fn client_config() -> Result<ClientConfig, BridgeError> {
    let loaded = rustls_native_certs::load_native_certs();
    let nobody = || {
        let why = loaded.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        let reason = quoted(&format!("could not read any trusted certificate{why}"));
        BridgeError::Certificate { reason }
    };
    let verifier = CertificateVerifier::new(loaded.certs.clone()).ok_or_else(nobody)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| unusable(&error))?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

fn unusable(error: &Error) -> BridgeError {
    BridgeError::Certificate { reason: quoted(&error.to_string()) }
}

#[derive(Debug)]
struct CertificateVerifier {
    usual: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl CertificateVerifier {
    /// Nothing, if none of these can be used.
    fn new(trusted: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let provider = Arc::new(ring::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        Some(Self { usual, trusted })
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.usual.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        match verified {
            // The dates were looked at before: one that is expired is refused as that.
            Err(error) if is_authority(&error) && self.trusted.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// The reason why a certificate is refused that is for nobody: programs have not looked at its common name for years.
pub(super) const NAMELESS: &str = "the certificate names no host: it has no subjectAltName";

/// It is refused for nothing else than that it is an authority's own certificate.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else { return false };
    inner.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// What is wrong with the receiver's certificate, for people; nothing, if something else went wrong.
pub(super) fn why(error: &Error) -> Option<String> {
    use CertificateError as Wrong;
    let why = match error {
        Error::NoCertificatesPresented => "the receiver sent no certificate",
        Error::InvalidCertificate(wrong) => match wrong {
            _ if is_authority(error) => "the certificate is self-signed and not trusted on this machine",
            Wrong::UnknownIssuer => "the certificate is not signed by an authority that this machine trusts",
            Wrong::Expired | Wrong::ExpiredContext { .. } => "the certificate has expired",
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "the certificate is not valid yet",
            Wrong::NotValidForNameContext { presented, .. } if presented.is_empty() => NAMELESS,
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "the certificate is for another name than the one in the address"
            }
            Wrong::Revoked => "the certificate was revoked",
            Wrong::BadEncoding => "the certificate cannot be read",
            Wrong::BadSignature => "the certificate's signature is wrong",
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "the certificate is not meant for a server"
            }
            _ => "the certificate cannot be used",
        },
        _ => return None,
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// As `openssl req -x509` makes it: its own authority, for `localhost`, in the year 2026.
    fn own_authority(called: &str) -> CertifiedIssuer<'static, KeyPair> {
        own_authority_for(called, &["localhost"])
    }

    fn own_authority_for(called: &str, hosts: &[&str]) -> CertifiedIssuer<'static, KeyPair> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, called);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// What is wrong with a certificate for this name in this year, for whoever trusts that.
    fn check(
        shown: &CertificateDer<'_>,
        trusted: &CertificateDer<'static>,
        name: &str,
        year: u64,
    ) -> Option<String> {
        let verifier = CertificateVerifier::new(vec![trusted.clone()]).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 15_778_800));
        let verified = verifier.verify_server_cert(shown, &[], &name, &[], now);
        verified.err().map(|error| why(&error).unwrap())
    }

    #[test]
    fn a_certificate_that_is_its_own_authority_is_accepted_only_if_it_is_trusted_itself() {
        let (own, other) = (own_authority("own"), own_authority("other"));
        let (own, other) = (own.der(), other.der());
        assert_eq!(check(own, own, "localhost", 2026), None);
        let wrong = |shown, trusted, name, year| check(shown, trusted, name, year).unwrap();
        assert_eq!(
            wrong(own, own, "elsewhere.example", 2026),
            "the certificate is for another name than the one in the address"
        );
        assert_eq!(wrong(own, own, "localhost", 2028), "the certificate has expired");
        assert_eq!(wrong(own, own, "localhost", 2024), "the certificate is not valid yet");
        assert!(wrong(own, other, "localhost", 2026).contains("not trusted on this machine"));
    }

    /// `openssl req -x509 -subj /CN=localhost` without `-addext`.
    #[test]
    fn a_certificate_without_names_is_not_said_to_be_for_another_one() {
        let own = own_authority_for("localhost", &[]);
        for name in ["localhost", "127.0.0.1", "::1"] {
            let said = check(own.der(), own.der(), name, 2026).unwrap();
            assert_eq!(said, "the certificate names no host: it has no subjectAltName", "{name}");
        }
        let params = CertificateParams::new([]).unwrap();
        let signed = params.signed_by(&KeyPair::generate().unwrap(), &own).unwrap();
        assert_eq!(check(signed.der(), own.der(), "localhost", 2026).unwrap(), NAMELESS);
        let fix = BridgeError::Certificate { reason: NAMELESS.into() }.fix();
        assert!(fix.contains("-addext subjectAltName=DNS:HOST") && fix.contains("--insecure"), "{fix}");
        // One for other kinds of names is for others.
        let own = own_authority_for("own", &["10.0.0.1"]);
        assert!(check(own.der(), own.der(), "localhost", 2026).unwrap().contains("for another name"));
    }

    #[test]
    fn what_such_a_certificate_signs_is_accepted_as_ever() {
        let (own, other) = (own_authority("own"), own_authority("other"));
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let signed = params.signed_by(&KeyPair::generate().unwrap(), &own).unwrap();
        assert_eq!(check(signed.der(), own.der(), "localhost", 2026), None);
        let wrong = check(signed.der(), other.der(), "localhost", 2026).unwrap();
        assert_eq!(wrong, "the certificate is not signed by an authority that this machine trusts");
    }

    #[test]
    fn no_reason_is_a_name_out_of_the_code() {
        for wrong in [CertificateError::UnknownIssuer, CertificateError::UnhandledCriticalExtension] {
            let said = why(&Error::InvalidCertificate(wrong)).unwrap();
            assert!(said.contains("certificate") && !said.contains(char::is_uppercase), "{said}");
        }
        assert_eq!(why(&Error::DecryptError), None);
    }
}
