//! `chimera ferret bridge` as a process: how it is started, what it says, and how it is ended.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Lines, sync_channel};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::seeds::program::{self, DEADLINE};
use crate::seeds::receiver::{Receiver, Socket};

/// `openssl rand -hex 32`.
pub const TOKEN: &str = "5d1c0f2be0a94c7c8f37d3a1b6e2f4905d1c0f2be0a94c7c8f37d3a1b6e2f490";

/// `chimera ferret bridge`, and what it says on standard error.
pub struct Bridge {
    child: Child,
    lines: Lines<String>,
    pub said: Vec<String>,
    pub home: Arc<TempDir>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Bridge {
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(&program::home(), arguments, variables)
    }

    pub fn start_in(home: &Arc<TempDir>, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::run(home, arguments, variables, (Stdio::null(), Stdio::null()))
    }

    /// With standard input and output as they are given.
    pub fn run(
        home: &Arc<TempDir>,
        arguments: &[&str],
        variables: &[(&str, &str)],
        (input, output): (Stdio, Stdio),
    ) -> Self {
        let arguments = [&["ferret", "bridge"], arguments].concat();
        let mut command = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), home, &arguments);
        command.env("NO_PROXY", "*").env("NO_COLOR", "1").envs(variables.iter().copied());
        let pipes = command.stdin(input).stdout(output).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let errors = child.stderr.take().unwrap();
        Self { child, lines: lines_of(errors), said: Vec::new(), home: Arc::clone(home) }
    }

    /// Waits for a line that begins so.
    #[track_caller]
    pub fn says(&mut self, beginning: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("{beginning:?} was not said: {:#?}", self.said));
            self.said.push(line.clone());
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// Its exit code, and everything that it said.
    #[track_caller]
    pub fn ends(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.said.push(line);
        }
        (code, self.said.join("\n"))
    }

    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> Lines<String> {
    let (send, lines) = sync_channel(1 << 12);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            send.send(line).ok();
        }
    });
    lines
}

/// What is drawn between two moves of the cursor or changes of colour: the text of neighbouring cells.
fn pieces_of(stream: impl Read + Send + 'static) -> Lines<String> {
    let (send, pieces) = sync_channel(1 << 16);
    std::thread::spawn(move || {
        for piece in BufReader::new(stream).split(0x1b).map_while(Result::ok) {
            send.send(String::from_utf8_lossy(&piece).into_owned()).ok();
        }
    });
    pieces
}

/// A terminal: its keyboard and what it shows, and the end that a program gets.
pub fn terminal() -> (File, OwnedFd) {
    let typed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&typed).unwrap();
    unlockpt(&typed).unwrap();
    let name = ptsname(&typed, Vec::new()).unwrap();
    let screen = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&screen, size).unwrap();
    (File::from(typed), screen)
}

/// The terminal that somebody sits at while the bridge runs.
pub struct Terminal {
    typed: File,
    shown: Lines<String>,
}

impl Terminal {
    /// A bridge whose standard input and output are this terminal, line by line.
    pub fn start(home: &Arc<TempDir>, arguments: &[&str], variables: &[(&str, &str)]) -> (Self, Bridge) {
        Self::open(home, &[arguments, &["--plain"]].concat(), variables, lines_of)
    }

    /// The same with the client that draws a screen. What it draws comes in pieces.
    pub fn full_screen(
        home: &Arc<TempDir>,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> (Self, Bridge) {
        Self::open(home, arguments, variables, pieces_of)
    }

    fn open(
        home: &Arc<TempDir>,
        arguments: &[&str],
        variables: &[(&str, &str)],
        read: impl FnOnce(File) -> Lines<String>,
    ) -> (Self, Bridge) {
        let (typed, screen) = terminal();
        let pipes = (screen.try_clone().unwrap().into(), screen.into());
        let bridge = Bridge::run(home, arguments, variables, pipes);
        let shown = read(typed.try_clone().unwrap());
        (Self { typed, shown }, bridge)
    }

    pub fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    pub fn presses(&mut self, keys: &str) {
        self.typed.write_all(keys.as_bytes()).unwrap();
    }

    /// Ctrl-D on an empty line.
    pub fn leaves(&mut self) {
        self.typed.write_all(b"\x04").unwrap();
    }

    /// Waits for a line with these words.
    #[track_caller]
    pub fn shows(&mut self, words: &str) -> String {
        let (until, mut shown) = (Instant::now() + DEADLINE, Vec::new());
        loop {
            let line = self.shown.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("{words:?} was not shown: {shown:#?}"));
            if line.contains(words) {
                return line;
            }
            shown.push(line);
        }
    }
}

/// A bridge that is connected over TLS, the receiver's end of its socket, and the session.
pub async fn connected(arguments: &[&str]) -> (Receiver, Bridge, Socket, String) {
    connected_in(&program::home(), arguments).await
}

/// In a home that is there already.
pub async fn connected_in(home: &Arc<TempDir>, arguments: &[&str]) -> (Receiver, Bridge, Socket, String) {
    let mut receiver = Receiver::secure(home.path()).await;
    let authority = receiver.authority.as_ref().unwrap().to_str().unwrap().to_owned();
    let arguments = [&["--remote-url", &receiver.url, "--auth-token", TOKEN], arguments].concat();
    let mut bridge = Bridge::start_in(home, &arguments, &[("SSL_CERT_FILE", &authority)]);
    let socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    assert_eq!(bridge.said, [line.as_str()], "a one-line status");
    let session = line.rsplit_once(" session=").unwrap().1.to_owned();
    assert_eq!(line, format!("[ferret] bridge connected: {} session={session}", receiver.url));
    (receiver, bridge, socket, session)
}
