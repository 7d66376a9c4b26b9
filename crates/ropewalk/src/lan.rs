//! `up --lan`: this machine's address in the local network, and the certificate for it.
//!
//! Beyond loopback, a token and TLS are always required. Without a certificate of the person's own, we create a
//! self-signed one: only we have its key, and the phone should see the fingerprint that we print.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use access::Tls;
use engine::{Clock, SystemClock, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

use crate::cli::UpOptions;
use crate::cli_error::CliError;
use crate::{http_door, paths};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Browsers reject certificates that are valid for longer.
const VALID_DAYS: i64 = 397;
/// A younger certificate is reused, so that a phone need not accept a new one every day.
const KEPT_DAYS: i64 = 300;

/// The listener for the local network, besides loopback.
pub struct Lan {
    pub address: IpAddr,
    pub tls: Tls,
    /// The fingerprint of the certificate, if it is self-signed.
    pub fingerprint: Option<String>,
}

impl Lan {
    pub fn prepare(options: &UpOptions) -> Result<Option<Self>, CliError> {
        let Some(wish) = options.lan else { return Ok(None) };
        let address = match wish {
            Some(address) => address,
            None => own_address().ok_or_else(|| {
                CliError::usage("could not find this machine's address in the local network")
                    .fix("ropewalk up --lan 192.168.1.20, with the address that phones can reach")
            })?,
        };
        if address.is_unspecified() || address.is_multicast() {
            return Err(CliError::usage(format!("{address} is not the address of a single machine"))
                .fix("ropewalk up --lan 192.168.1.20, with the address that phones can reach"));
        }
        if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
            let tls = Tls::read(certificate, key).map_err(http_door::tls_error)?;
            return Ok(Some(Self { address, tls, fingerprint: None }));
        }
        let (certificate, key) = own_certificate(address)?;
        let tls = Tls::read(&certificate, &key).map_err(http_door::tls_error)?;
        let fingerprint = Some(colons(&tls.fingerprint().hex()));
        Ok(Some(Self { address, tls, fingerprint }))
    }
}

/// The address that this machine uses to reach others. Nothing is sent: the system only looks up the route to
/// an address that is reserved for documentation.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

/// The files of the self-signed certificate for this address, created if it is missing or old.
fn own_certificate(address: IpAddr) -> Result<(PathBuf, PathBuf), CliError> {
    let folder = paths::state()?.join("lan");
    let name = address.to_string().replace(':', "-");
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let now = SystemClock.now();
    if is_young(&certificate, now) && key.is_file() {
        return Ok((certificate, key));
    }
    let unmade = |error: String| {
        CliError::failed("could not create a certificate")
            .because(error)
            .fix("pass --tls-cert and --tls-key files in PEM format")
    };
    let made = make(address, now).map_err(|error| unmade(error.to_string()))?;
    let written = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let written =
        written.and_then(|()| write(&key, &made.key)).and_then(|()| write(&certificate, &made.certificate));
    written.map_err(|error| unmade(error.to_string()))?;
    Ok((certificate, key))
}

fn is_young(certificate: &Path, now: Timestamp) -> bool {
    let Ok(modified) = fs::metadata(certificate).and_then(|file| file.modified()) else { return false };
    let Ok(since) = modified.duration_since(std::time::UNIX_EPOCH) else { return false };
    let age_ms = now.0 - i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    (0..KEPT_DAYS * DAY_MS).contains(&age_ms)
}

/// In PEM format.
struct NewCertificate {
    certificate: String,
    key: String,
}

fn make(address: IpAddr, now: Timestamp) -> Result<NewCertificate, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress(address));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Ropewalk on {address}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = day(Timestamp(now.0 - DAY_MS));
    params.not_after = day(Timestamp(now.0 + (VALID_DAYS - 1) * DAY_MS));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(NewCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn day(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.0 / 1000).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// Writes the file completely or not at all, readable only by its owner.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
    fs::rename(&unfinished, path)
}

/// Formats a fingerprint as browsers show it.
fn colons(hex: &str) -> String {
    let hex = hex.to_uppercase();
    let pairs = (0..hex.len()).step_by(2).filter_map(|at| hex.get(at..at + 2));
    pairs.collect::<Vec<_>>().join(":")
}
