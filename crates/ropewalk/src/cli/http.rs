//! Options of the HTTP door, and `ropewalk serve status` and `stop`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use access::{HostName, Origin};
use clap::{Args, Subcommand};

/// The default port, the same as that of ferret and otter.
const PORT: u16 = 5173;

/// How long a server may take to stop after it is asked to.
const STOP_SECONDS: u64 = 10;

#[derive(Debug, Clone, Default, Args)]
pub struct HttpOptions {
    /// Serve over HTTP at PORT, :PORT or HOST:PORT; without a value, 127.0.0.1:5173
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "")]
    pub http: Option<HttpAddress>,

    /// Overrides the default port.
    #[arg(skip)]
    pub default_port: Option<u16>,

    /// Port for HTTP; 0 picks a free one
    #[arg(long, value_name = "N", requires = "http")]
    pub port: Option<u16>,

    /// Token with full access. Other users of this machine can see it here; prefer the variable
    /// ROPEWALK_SERVER_TOKEN. Without either, one is generated and kept
    #[arg(long, value_name = "TOKEN", requires = "http")]
    pub auth_token: Option<String>,

    /// Require no token: every program on this machine can act as you through this server
    #[arg(long, requires = "http", conflicts_with_all = ["auth_token", "behind_proxy"])]
    pub no_auth: bool,

    /// Certificate in PEM format, to serve https
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"])]
    pub tls_key: Option<PathBuf>,

    /// Set if a reverse proxy in front of this server handles TLS
    #[arg(long, requires = "http")]
    pub behind_proxy: bool,

    /// Accept this host name too; repeatable
    #[arg(long, value_name = "NAME", requires = "http")]
    pub allow_host: Vec<HostName>,

    /// Allow requests from this web origin, such as https://app.example.org; repeatable
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub cors: Vec<Origin>,
}

/// The value of `--http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpAddress {
    host: IpAddr,
    port: Option<u16>,
}

impl HttpAddress {
    /// Whether `--http` was given without a value.
    pub fn is_usual(&self) -> bool {
        self.host == IpAddr::V4(Ipv4Addr::LOCALHOST) && self.port.is_none()
    }
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected PORT, :PORT or HOST:PORT, where HOST is an IP address such as 127.0.0.1 or [::1]"
                .to_owned()
        };
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let too_high = |_| format!("{text} is not a port: use 1 to 65535, or 0 for a free one");
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
    /// The address of the HTTP door if nothing else is set.
    pub fn usual_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.default_port.unwrap_or(PORT)))
    }

    /// The address to listen on, or `None` without `--http`. An error if two different ports are given.
    pub fn address(&self) -> Result<Option<SocketAddr>, String> {
        let Some(named) = self.http else { return Ok(None) };
        let port = match (named.port, self.port) {
            (Some(one), Some(other)) if one != other => {
                return Err(format!("--http and --port give different ports: {one} and {other}"));
            }
            (one, other) => one.or(other).or(self.default_port).unwrap_or(PORT),
        };
        Ok(Some(SocketAddr::new(named.host, port)))
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum ServeCommand {
    /// Show running servers
    Status(StatusOptions),
    /// Stop a server
    Stop(StopOptions),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 a server is running, 1 none is.")]
pub struct StatusOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 stopped, 1 no server is running, 2 more than one is running, or it does not stop."
)]
pub struct StopOptions {
    /// Stop the server on this port
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub port: Option<u16>,

    /// Stop all servers
    #[arg(long)]
    pub all: bool,

    /// Seconds to wait before it is killed
    #[arg(long, value_name = "SECONDS", alias = "serve-timeout", default_value_t = STOP_SECONDS)]
    pub timeout: u64,

    /// Print JSON
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
            assert!(refused.contains("1 to 65535"), "{text}: {refused}");
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
