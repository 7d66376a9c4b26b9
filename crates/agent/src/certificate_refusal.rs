//! Why a server's TLS certificate was refused, as text for people: the TLS library's own errors are names
//! from its code.

use std::error::Error;

use rustls::CertificateError;

/// The reason, if this error is about a certificate.
pub(crate) fn refusal_reason(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return match error {
            rustls::Error::NoCertificatesPresented => Some("the server sent no certificate"),
            rustls::Error::InvalidCertificate(wrong) => Some(describe(wrong)),
            _ => None,
        };
    }
    // An I/O error exposes its inner error only through `get_ref`.
    refusal_reason(error.downcast_ref::<std::io::Error>()?.get_ref()?)
}

fn describe(wrong: &CertificateError) -> &'static str {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "the server's certificate names no host: it has no subjectAltName; make one that has (openssl: -addext subjectAltName=DNS:HOST)"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name"
        }
        CertificateError::UnknownIssuer => {
            "the server's certificate is not signed by an authority that this machine trusts; add that authority to the system, or name its file in SSL_CERT_FILE"
        }
        _ => {
            "the server's certificate cannot be verified; use one that is signed by an authority that this machine trusts"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_told_in_words_also_from_within_an_error_of_io() {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = std::io::Error::other(unknown.clone());
        for error in [&unknown as &(dyn Error + 'static), &wrapped] {
            let said = refusal_reason(error).unwrap();
            assert!(said.contains("SSL_CERT_FILE") && !said.contains("UnknownIssuer"), "{said}");
        }
        assert_eq!(refusal_reason(&std::io::Error::other("the line is dead")), None);
    }

    #[test]
    fn a_certificate_without_names_is_not_said_to_be_for_another_one() {
        let refused_for = |presented: Vec<String>| {
            let expected = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            let wrong = CertificateError::NotValidForNameContext { expected, presented };
            refusal_reason(&rustls::Error::InvalidCertificate(wrong)).unwrap()
        };
        assert!(refused_for(Vec::new()).contains("names no host"));
        assert!(refused_for(vec!["DnsName(\"loom\")".into()]).contains("for another name"));
    }
}
