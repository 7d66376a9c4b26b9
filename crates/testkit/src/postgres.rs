//! A real PostgreSQL server for one test: its own folder, its own port, gone with the test.
//!
//! Making a cluster takes seconds, copying one does not: the first test on a machine keeps a fresh one in
//! `.setup/`, and every server starts from a copy of it. PostgreSQL refuses to run as root, so root's tests run it
//! as the user that its package makes.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::third_party_server::{free_port, program, start};

const START_MAX: Duration = Duration::from_secs(60);

pub struct Cluster {
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
    databases: AtomicU32,
}

impl Cluster {
    pub fn start() -> Self {
        let template = template();
        let folder = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        let data = folder.path().join("data");
        done(program("cp").arg("-a").arg(&template).arg(&data));
        give(folder.path());
        let mut cluster = Self { folder, port: free_port(), server: None, databases: AtomicU32::new(0) };
        cluster.restart();
        cluster
    }

    /// A database of its own, empty.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql(&format!("CREATE DATABASE {name}"));
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// The same database by way of the server's socket.
    pub fn by_socket(&self, url: &str) -> String {
        let name = url.rsplit('/').next().unwrap();
        format!("postgres://postgres@/{name}?host={}&port={}", self.folder.path().display(), self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL as the superuser, outside any database of a test.
    pub fn psql(&self, sql: &str) -> String {
        let mut psql = as_user(&binary("psql"));
        psql.arg("-h").arg(self.folder.path()).args(["-p", &self.port.to_string(), "-U", "postgres"]);
        let output = psql.args(["-X", "-A", "-t", "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// What a power cut or the kernel does: no goodbye, no last write.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // The others notice that the first one is gone, but not at once.
            let others = children(server.id());
            server.kill().unwrap();
            server.wait().unwrap();
            let until = Instant::now() + START_MAX;
            while others.iter().any(|one| alive(*one)) {
                assert!(Instant::now() < until, "PostgreSQL does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// As an operator stops it: clients are told, and everything is written.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            done(program("kill").args(["-INT", &server.id().to_string()]));
            server.wait().unwrap();
        }
    }

    /// Gives the server a certificate, and starts it anew with it.
    pub fn secure(&mut self, certificate: &str, key: &str) {
        self.stop();
        let data = self.folder.path().join("data");
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            std::fs::write(data.join(name), content).unwrap();
            std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
            give(&data.join(name));
        }
        std::fs::write(data.join("postgresql.auto.conf"), "ssl = on\n").unwrap();
        self.restart();
    }

    /// Starts it again where it was, after [`Self::stop`] or [`Self::kill`].
    pub fn restart(&mut self) {
        let folder = self.folder.path();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut server = as_user(&binary("postgres"));
        server.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
        server.args(["-p", &self.port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "fsync=on", "max_connections=200", "shared_buffers=32MB"]
        {
            server.args(["-c", setting]);
        }
        let copy = log.try_clone().unwrap();
        server.stdin(Stdio::null()).stdout(log).stderr(copy);
        self.server = Some(start(server));
        let until = Instant::now() + START_MAX;
        while !self.is_ready() {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < until, "PostgreSQL does not start: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The server says so in the last line of its file, which also has its process: an old one may still be there.
    fn is_ready(&self) -> bool {
        let said =
            std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        let server = self.server.as_ref().map(|server| server.id().to_string());
        said.lines().next() == server.as_deref()
            && said.lines().nth(7).is_some_and(|line| line.trim() == "ready")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `/usr/lib/postgresql/VERSION/bin` is not on the path where Debian installs it.
fn binary(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let found = folders.into_iter().rev().map(|folder| folder.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| name.into())
}

fn is_root() -> bool {
    Path::new("/proc/self").metadata().unwrap().uid() == 0
}

/// The user and group that run the server, where they are others.
fn user() -> Option<&'static (u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let number = |which: &str, name: &str| {
        let said = program("id").args([which, name]).output().ok()?.stdout;
        String::from_utf8(said).ok()?.trim().parse().ok()
    };
    let found =
        || ["postgres", "nobody"].into_iter().find_map(|name| number("-u", name).zip(number("-g", name)));
    USER.get_or_init(|| is_root().then(|| found().unwrap())).as_ref()
}

/// As whoever may run it, and not longer than who started it.
fn as_user(binary: &Path) -> Command {
    let mut command = program("setpriv");
    if let Some((user, group)) = user() {
        command.args(["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"]);
    }
    command.arg("--pdeathsig").arg("KILL").arg(binary);
    command
}

fn give(file: &Path) {
    if let Some((user, group)) = user() {
        std::os::unix::fs::chown(file, Some(*user), Some(*group)).unwrap();
    }
}

fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|one| one.parse().ok()).collect()
}

fn alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// A cluster that was just made and never ran.
fn template() -> PathBuf {
    let version = program(binary("postgres")).arg("--version").output();
    let version = version.expect("PostgreSQL is missing; run: cargo xtask setup").stdout;
    let version = String::from_utf8(version).unwrap();
    let name: String = version.chars().filter(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.setup");
    let template = setup.join(format!("postgres-{name}"));
    if !template.exists() {
        std::fs::create_dir_all(&setup).unwrap();
        let folder = tempfile::tempdir().unwrap();
        give(folder.path());
        let made = folder.path().join("data");
        let how = ["--auth=trust", "--no-sync", "--wal-segsize=1", "--encoding=UTF8", "--locale=C.UTF-8"];
        done(as_user(&binary("initdb")).arg("-D").arg(&made).args(["-U", "postgres"]).args(how));
        let beside = tempfile::Builder::new().prefix("postgres").tempdir_in(&setup).unwrap();
        let copy = beside.path().join("data");
        done(program("cp").arg("-a").arg(&made).arg(&copy));
        // Another test may have been faster, and its cluster is as good.
        if let Err(error) = std::fs::rename(&copy, &template) {
            assert!(template.exists(), "{error}");
        }
    }
    template
}
