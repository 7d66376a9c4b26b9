//! `up --lan`: which address this machine has in its network, and the certificate for it.
//!
//! Beyond loopback there is a token and TLS, always. Who has no certificate gets one that we sign
//! ourselves: nobody but us has its key, and the fingerprint that we print is what the phone should see.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use access::Tls;
use engine::{Clock, SystemClock, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

use crate::cli::UpOptions;
use crate::trouble::Trouble;
use crate::{doors, paths};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Browsers take none that is longer.
const VALID_DAYS: i64 = 397;
/// A younger one is used again, so that a phone that took it once need not do so every day.
const KEPT_DAYS: i64 = 300;

/// What listens for the network besides loopback.
pub struct Lan {
    pub address: IpAddr,
    pub tls: Tls,
    /// Of the certificate, if we signed it ourselves.
    pub fingerprint: Option<String>,
}

impl Lan {
    pub fn prepare(options: &UpOptions) -> Result<Option<Self>, Trouble> {
        let Some(wish) = options.lan else { return Ok(None) };
        let address = match wish {
            Some(address) => address,
            None => found().ok_or_else(|| {
                Trouble::usage("this machine's address in its network cannot be found")
                    .fix("name it: ropewalk up --lan 192.168.1.20")
            })?,
        };
        if address.is_unspecified() || address.is_multicast() {
            return Err(Trouble::usage(format!("{address} is no address of one machine"))
                .fix("name the one that phones use: ropewalk up --lan 192.168.1.20"));
        }
        if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
            let tls = Tls::read(certificate, key).map_err(doors::no_tls)?;
            return Ok(Some(Self { address, tls, fingerprint: None }));
        }
        let (certificate, key) = own(address)?;
        let tls = Tls::read(&certificate, &key).map_err(doors::no_tls)?;
        let fingerprint = Some(colons(&tls.fingerprint().hex()));
        Ok(Some(Self { address, tls, fingerprint }))
    }
}

/// The address that this machine would use for others. Nothing is sent: the system only looks up the
/// way to an address that is reserved for documents.
fn found() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

/// The files of our own certificate for this address, made if there is none or it is old.
fn own(address: IpAddr) -> Result<(PathBuf, PathBuf), Trouble> {
    let folder = paths::state()?.join("lan");
    let name = address.to_string().replace(':', "-");
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let now = SystemClock.now();
    if is_young(&certificate, now) && key.is_file() {
        return Ok((certificate, key));
    }
    let unmade = |error: String| {
        Trouble::failed("no certificate can be made")
            .because(error)
            .fix("give --tls-cert and --tls-key files in PEM form")
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

/// In PEM form.
struct Made {
    certificate: String,
    key: String,
}

fn make(address: IpAddr, now: Timestamp) -> Result<Made, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress(address));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Ropewalk on {address}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = day(Timestamp(now.0 - DAY_MS));
    params.not_after = day(Timestamp(now.0 + (VALID_DAYS - 1) * DAY_MS));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn day(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.0 / 1000).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// Whole or not at all, and for its owner alone.
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

/// As browsers show it.
fn colons(hex: &str) -> String {
    let hex = hex.to_uppercase();
    let pairs = (0..hex.len()).step_by(2).filter_map(|at| hex.get(at..at + 2));
    pairs.collect::<Vec<_>>().join(":")
}
