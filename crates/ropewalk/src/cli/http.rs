//! The part of the command line about the HTTP door, and about servers that run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use access::{HostName, Origin};
use clap::{Args, Subcommand};

/// Where ferret and otter listen too.
const PORT: u16 = 5173;

/// How long a server may take to end when it is asked to.
const STOP_SECONDS: u64 = 10;

#[derive(Debug, Clone, Default, Args)]
pub struct HttpOptions {
    /// Serve over HTTP: PORT, :PORT or HOST:PORT; without a value, 127.0.0.1:5173
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "")]
    pub http: Option<HttpAddress>,

    /// The port where none is said; without it, ours.
    #[arg(skip)]
    pub default_port: Option<u16>,

    /// The port to serve HTTP on; 0 takes any that is free
    #[arg(long, value_name = "N", requires = "http")]
    pub port: Option<u16>,

    /// The token that opens everything. Others on this machine can see it here: the variable
    /// ROPEWALK_SERVER_TOKEN is the better place. Without either, one is made and kept
    #[arg(long, value_name = "TOKEN", requires = "http")]
    pub auth_token: Option<String>,

    /// Ask for no token: every program of this machine may do what you may do
    #[arg(long, requires = "http", conflicts_with_all = ["auth_token", "behind_proxy"])]
    pub no_auth: bool,

    /// A certificate in PEM form, for https
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"])]
    pub tls_key: Option<PathBuf>,

    /// A proxy stands before this server and speaks TLS for it
    #[arg(long, requires = "http")]
    pub behind_proxy: bool,

    /// A further name that this server is reached by; repeat for more
    #[arg(long, value_name = "NAME", requires = "http")]
    pub allow_host: Vec<HostName>,

    /// A page that may talk to this server, such as https://app.example.org; repeat for more
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub cors: Vec<Origin>,
}

/// What `--http` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpAddress {
    host: IpAddr,
    port: Option<u16>,
}

impl HttpAddress {
    /// Whether nothing was said but that there is to be one.
    pub fn is_usual(&self) -> bool {
        self.host == IpAddr::V4(Ipv4Addr::LOCALHOST) && self.port.is_none()
    }
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "write PORT, :PORT or HOST:PORT, with an address such as 127.0.0.1 or [::1]".to_owned();
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let too_high =
                |_| format!("{text} is no port: ports go from 0, which takes a free one, to 65535");
            if digits { text.parse::<u16>().map(Some).map_err(too_high) } else { Err(wrong()) }
        };
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if text.is_empty() {
            return Ok(Self { host: here, port: None });
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self { host: here, port: port(text)? });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, number)) if !text.ends_with(']') => (host, port(number)?),
            _ => (text, None),
        };
        let host = match host {
            "" | "localhost" => here,
            host => match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(inner) => IpAddr::V6(inner.parse().map_err(|_| wrong())?),
                None => IpAddr::V4(host.parse().map_err(|_| wrong())?),
            },
        };
        Ok(Self { host, port })
    }
}

impl HttpOptions {
    /// Where a door is opened that nobody says anything about.
    pub fn usual_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.default_port.unwrap_or(PORT)))
    }

    /// The address to listen on, if there is to be an HTTP door; an error if two ports are named.
    pub fn address(&self) -> Result<Option<SocketAddr>, String> {
        let Some(named) = self.http else { return Ok(None) };
        let port = match (named.port, self.port) {
            (Some(one), Some(other)) if one != other => {
                return Err(format!("--http says port {one} and --port says {other}"));
            }
            (one, other) => one.or(other).or(self.default_port).unwrap_or(PORT),
        };
        Ok(Some(SocketAddr::new(named.host, port)))
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum ServeCommand {
    /// Say which servers run
    Status(StatusOptions),
    /// End a server
    Stop(StopOptions),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 one runs, 1 none does.")]
pub struct StatusOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 ended, 1 none runs, 2 it is not clear which, or it does not end.")]
pub struct StopOptions {
    /// The one on this port
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub port: Option<u16>,

    /// All of them
    #[arg(long)]
    pub all: bool,

    /// Seconds until it is ended by force
    #[arg(long, value_name = "SECONDS", alias = "serve-timeout", default_value_t = STOP_SECONDS)]
    pub timeout: u64,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(http: &str, port: Option<u16>) -> Option<String> {
        let http = http.parse().ok()?;
        let options = HttpOptions { http: Some(http), port, ..HttpOptions::default() };
        options.address().ok()?.map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_written_in_any_of_the_known_ways() {
        for (text, expected) in [
            ("", "127.0.0.1:5173"),
            (":8062", "127.0.0.1:8062"),
            ("8062", "127.0.0.1:8062"),
            ("0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("10.0.0.7", "10.0.0.7:5173"),
            ("[::1]:80", "[::1]:80"),
            ("[::1]", "[::1]:5173"),
        ] {
            assert_eq!(address(text, None).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(address("", Some(9)).as_deref(), Some("127.0.0.1:9"));
        assert_eq!(address(":9", Some(9)).as_deref(), Some("127.0.0.1:9"));
    }

    #[test]
    fn a_port_that_is_too_high_is_told_what_ports_there_are() {
        for text in [":99999", "65536", "127.0.0.1:99999", "[::1]:70000"] {
            let refused = text.parse::<HttpAddress>().unwrap_err();
            assert!(refused.contains("to 65535"), "{text}: {refused}");
        }
        assert_eq!(address(":65535", None).as_deref(), Some("127.0.0.1:65535"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            ":99999",
            "99999",
            ":",
            ":-1",
            ":+1",
            "a:b",
            "example.org:80",
            "::1:80",
            "http://x",
            "1.2.3:4",
            " 80",
        ] {
            assert_eq!(address(text, None), None, "{text}");
        }
        assert_eq!(address(":9", Some(10)), None);
    }
}
