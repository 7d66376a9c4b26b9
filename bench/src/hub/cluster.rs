//! Hubs as programs, and what they hold in memory.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

const START_MAX: Duration = Duration::from_secs(30);

pub struct Hubs {
    hubs: Vec<(Child, SocketAddr, PathBuf)>,
    /// The name that all of them go by.
    pub public: String,
}

impl Hubs {
    #[expect(clippy::disallowed_methods, reason = "the hub under test is a program, not a sandboxed tool")]
    pub fn start(binary: &Path, scratch: &Path, count: usize, more: &[String]) -> anyhow::Result<Self> {
        let addresses = (0..count).map(|_| Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?));
        let addresses = addresses.collect::<anyhow::Result<Vec<_>>>()?;
        let public = format!("http://{}", addresses.first().context("no hub")?);
        let mut hubs = Self { hubs: Vec::new(), public };
        for (number, address) in addresses.into_iter().enumerate() {
            let home = scratch.join(format!("hub-{number}"));
            std::fs::create_dir_all(&home)?;
            let log = std::fs::File::create(home.join("log"))?;
            let child = Command::new(binary)
                .args(["hub", "--listen", &address.to_string(), "--public-url", &hubs.public])
                .args(more)
                .env("ROPEWALK_HOME", home.join("state"))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .context("starting a hub")?;
            hubs.hubs.push((child, address, home));
            let deadline = Instant::now() + START_MAX;
            while TcpStream::connect(address).is_err() {
                ensure!(Instant::now() < deadline, "a hub does not serve; see {}", scratch.display());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(hubs)
    }

    /// The hub that the client of this number comes to.
    pub fn of(&self, number: usize) -> SocketAddr {
        self.hubs
            .get(number % self.hubs.len())
            .map_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)), |hub| hub.1)
    }

    /// The code of the link that makes the first admin.
    pub fn setup_code(&self) -> anyhow::Result<String> {
        let deadline = Instant::now() + START_MAX;
        loop {
            for (_, _, home) in &self.hubs {
                let log = std::fs::read_to_string(home.join("log"))?;
                if let Some((_, rest)) = log.split_once("#setup.") {
                    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
                    let code: String = rest.chars().take_while(|letter| plain(*letter)).collect();
                    return Ok(format!("setup.{code}"));
                }
            }
            ensure!(Instant::now() < deadline, "no hub printed a setup link");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What all of them hold, in KiB.
    pub fn memory_kb(&self) -> u64 {
        self.hubs.iter().map(|(child, _, _)| resident_kb(child.id())).sum()
    }

    /// Processor time of all of them, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.hubs.iter().map(|(child, _, _)| cpu_s(child.id())).sum()
    }
}

impl Drop for Hubs {
    fn drop(&mut self) {
        for (child, _, _) in &mut self.hubs {
            // It is gone already, if it cannot be ended.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn resident_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// In hundredths of a second, as Linux counts it everywhere.
fn cpu_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}
