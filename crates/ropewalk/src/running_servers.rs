//! Running servers: each has a file about itself and holds a lock on it, for `serve status` and `serve stop`.
//!
//! The lock, not the file, shows whether a server is alive: the kernel releases it however the process ends. While the lock
//! is held, the process id in the file is that of its holder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use access::Digest;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::cli::{ServeCommand, StatusOptions, StopOptions};
use crate::cli_error::CliError;
use crate::{output, paths};

/// How often to check whether a server has stopped.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a killed server may take to disappear.
const KILL_WAIT: Duration = Duration::from_secs(5);
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Exit code if a server did not stop.
const UNDONE: u8 = 2;

/// What a server writes about itself.
pub struct ServerInfo {
    pub url: String,
    pub port: u16,
    /// In milliseconds.
    pub started_at: i64,
    /// The folder that its sessions work in.
    pub folder: PathBuf,
    /// Never the token: this tells whether a token is the right one, and nothing else.
    pub token_sha256: Option<String>,
    /// With TLS: the digest by which our commands recognise its certificate.
    pub certificate_sha256: Option<String>,
    /// For comparing the options about what the agent may do.
    pub options_sha256: String,
}

/// The file of this process. Removed on drop.
pub struct ServerFile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Drop for ServerFile {
    fn drop(&mut self) {
        // A leftover file does no harm: nobody holds its lock.
        drop(fs::remove_file(&self.path));
    }
}

/// Writes the file and takes the lock, replacing what a dead server left.
pub fn claim(facts: &ServerInfo) -> Result<ServerFile, CliError> {
    let path = folder()?.join(format!("http-{}.json", facts.port));
    let unusable = |error: io::Error| {
        CliError::failed(format!("could not write {}", path.display()))
            .because(error)
            .fix("check the permissions of the folder, or choose another one with ROPEWALK_HOME")
    };
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(unusable)?;
    }
    let mut file = locked(&path).map_err(unusable)?.ok_or_else(|| {
        CliError::failed(format!("another ropewalk already serves port {}", facts.port))
            .fix("stop it with `ropewalk serve stop`, or choose another --port")
    })?;
    let text = json!({
        "pid": std::process::id(),
        "address": facts.url,
        "port": facts.port,
        "started_at": facts.started_at,
        "folder": facts.folder.to_string_lossy(),
        "token_sha256": facts.token_sha256,
        "certificate_sha256": facts.certificate_sha256,
        "options_sha256": facts.options_sha256,
        "version": env!("CARGO_PKG_VERSION"),
    });
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{text}"));
    written.map_err(unusable)?;
    Ok(ServerFile { path, _file: file })
}

/// The locked file, or `None` if another process holds the lock. A server that ends removes its file, so the
/// locked file must still be the one at this path.
fn locked(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let ours = file.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|there| there.ino() == ours) {
            return Ok(Some(file));
        }
    }
}

fn folder() -> Result<PathBuf, CliError> {
    Ok(paths::state()?.join("run"))
}

/// A server that is alive.
pub struct RunningServer {
    path: PathBuf,
    pid: Pid,
    pub port: u16,
    facts: Value,
}

impl RunningServer {
    fn read(path: PathBuf) -> Option<Self> {
        let file = File::open(&path).ok()?;
        if !is_held(&file) {
            return None;
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let facts: Value = serde_json::from_str(&text).ok()?;
        let pid = Pid::from_raw(i32::try_from(facts["pid"].as_i64()?).ok()?)?;
        let port = u16::try_from(facts["port"].as_u64()?).ok()?;
        Some(Self { path, pid, port, facts })
    }

    pub fn address(&self) -> &str {
        self.facts["address"].as_str().unwrap_or("?")
    }

    /// The folder that its sessions work in, if known.
    pub fn folder(&self) -> Option<&Path> {
        self.facts["folder"].as_str().map(Path::new)
    }

    /// The digest of its token; `None` if it requires none.
    pub fn token_digest(&self) -> Option<Digest> {
        self.facts["token_sha256"].as_str().and_then(Digest::parse)
    }

    /// The digest of its options, if known.
    pub fn options(&self) -> Option<&str> {
        self.facts["options_sha256"].as_str()
    }

    /// The digest of its certificate, with TLS.
    pub fn certificate_digest(&self) -> Option<Digest> {
        self.facts["certificate_sha256"].as_str().and_then(Digest::parse)
    }

    fn is_alive(&self) -> bool {
        File::open(&self.path).is_ok_and(|file| is_held(&file))
    }

    /// Asks it to stop, and kills it after this time. Returns whether it is gone.
    fn end(&self, timeout: Duration) -> io::Result<bool> {
        // The handle stays bound to the process even if its id is reused. It is the right process because the
        // lock is still held after the handle was opened.
        let process = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for (signal, patience) in [(Signal::TERM, timeout), (Signal::KILL, KILL_WAIT)] {
            if !self.is_alive() {
                return Ok(true);
            }
            match pidfd_send_signal(&process, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
            let began = Instant::now();
            while self.is_alive() && began.elapsed() < patience {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(!self.is_alive())
    }
}

/// Whether a server holds the lock. Takes the lock for a moment if nobody does.
fn is_held(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // Closing the file releases it too.
            flock(file, FlockOperation::Unlock).ok();
            false
        }
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}

/// All servers that are alive, by port.
pub fn all() -> Result<Vec<RunningServer>, CliError> {
    let folder = folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(CliError::failed(format!("could not read {}", folder.display())).because(error));
        }
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("http-") && name.ends_with(".json")
    };
    let mut found: Vec<RunningServer> = files.filter(named).filter_map(RunningServer::read).collect();
    found.sort_by_key(|server| server.port);
    Ok(found)
}

pub fn run(command: &ServeCommand) -> ExitCode {
    let (as_json, outcome) = match command {
        ServeCommand::Status(options) => (options.json, status(options)),
        ServeCommand::Stop(options) => (options.json, stop(options)),
    };
    outcome.unwrap_or_else(|error| error.report(as_json))
}

fn status(options: &StatusOptions) -> Result<ExitCode, CliError> {
    let servers = all()?;
    if options.json {
        let facts: Vec<&Value> = servers.iter().map(|server| &server.facts).collect();
        output::put_json(&json!({ "running": facts }))?;
    } else if servers.is_empty() {
        output::put("No server is running.\n")?;
    }
    for server in servers.iter().filter(|_| !options.json) {
        let version = server.facts["version"].as_str().unwrap_or("?");
        output::put(&format!("{}  pid {}  version {version}\n", server.address(), server.pid))?;
    }
    Ok(if servers.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn stop(options: &StopOptions) -> Result<ExitCode, CliError> {
    let mut servers = all()?;
    if let Some(port) = options.port {
        servers.retain(|server| server.port == port);
    }
    if servers.is_empty() {
        return Err(CliError::failed("no such server is running").fix("ropewalk serve status"));
    }
    if servers.len() > 1 && !options.all {
        let addresses: Vec<&str> = servers.iter().map(RunningServer::address).collect();
        return Err(CliError::usage("more than one server is running")
            .because(addresses.join(", "))
            .fix("choose one with --port, or pass --all"));
    }
    let mut undone = false;
    let mut ended = Vec::new();
    for server in &servers {
        match server.end(Duration::from_secs(options.timeout)) {
            Ok(true) => ended.push(server.address()),
            Ok(false) => undone = true,
            Err(error) => {
                undone = true;
                CliError::failed(server.address()).because(error).warn("could not stop the server");
            }
        }
    }
    if options.json {
        output::put_json(&json!({ "ended": ended }))?;
    } else {
        for address in &ended {
            output::put(&format!("stopped {address}\n"))?;
        }
    }
    Ok(if undone { ExitCode::from(UNDONE) } else { ExitCode::SUCCESS })
}
