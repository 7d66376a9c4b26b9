//! A pseudo-terminal for one command, for programs that behave differently without a terminal: they ask, show progress, draw.
//!
//! Typed text is not echoed, so the output is only what the command wrote, and line ends stay as they were written. The command
//! can change that itself: the terminal is its own.
//!
//! The command gets it as input, output and controlling terminal of a session of its own, and no other process has it: whatever
//! the command does to the terminal affects only itself.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// A terminal before it is opened.
#[derive(Debug)]
pub struct PseudoTerminal {
    pub window: WindowSize,
    /// What is typed into it; `None` if nothing ever is.
    pub typed: Option<mpsc::Receiver<Vec<u8>>>,
}

/// How large it is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    pub columns: u16,
    pub rows: u16,
}

impl PseudoTerminal {
    /// Our end to read, our end to type on, and the command's end.
    pub(crate) fn open(self) -> io::Result<(TerminalReader, Option<TerminalWriter>, OwnedFd)> {
        let ours = openpt(flags())?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = other_end(&ours)?;
        let mut settings = tcgetattr(&theirs)?;
        settings.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        settings.output_modes.remove(OutputModes::ONLCR);
        tcsetattr(&theirs, OptionalActions::Now, &settings)?;
        let window =
            Winsize { ws_row: self.window.rows, ws_col: self.window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, window)?;
        fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
        let ours = Arc::new(watched(ours)?);
        let terminal_writer =
            |queue| TerminalWriter { terminal: Arc::clone(&ours), queue, waiting: Vec::new() };
        let terminal_writer = self.typed.map(terminal_writer);
        Ok((TerminalReader { terminal: ours }, terminal_writer, theirs))
    }
}

#[expect(unsafe_code, reason = "there is no safe way to watch a file of one's own")]
fn watched(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the file is owned by the result, never taken out of it or replaced, and so stays open and
    // the same as long as it is watched.
    Ok(unsafe { AsyncFd::register(file) }?)
}

fn flags() -> OpenptFlags {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    let flags = flags | OpenptFlags::CLOEXEC;
    flags
}

/// By its handle and not by its name, which may lead elsewhere.
#[cfg(target_os = "linux")]
fn other_end(ours: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::pty::ioctl_tiocgptpeer(ours, flags())?)
}

#[cfg(not(target_os = "linux"))]
fn other_end(ours: &OwnedFd) -> io::Result<OwnedFd> {
    let name = rustix::pty::ptsname(ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(name, flags, rustix::fs::Mode::empty())?)
}

/// What the command writes.
pub(crate) struct TerminalReader {
    terminal: Arc<AsyncFd<OwnedFd>>,
}

impl TerminalReader {
    /// The next piece, or `None` once the command's end is closed. Safe to drop.
    pub(crate) async fn read(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; bytes_max];
        loop {
            let mut ready = self.terminal.readable().await.ok()?;
            let read = ready.try_io(|terminal| Ok(rustix::io::read(terminal.get_ref(), &mut bytes[..])?));
            match read {
                // The end is reported as an error.
                Ok(Ok(0) | Err(_)) => return None,
                Ok(Ok(count)) => {
                    bytes.truncate(count);
                    return Some(bytes);
                }
                // It was not ready after all.
                Err(_) => {}
            }
        }
    }
}

/// Types what is put into its queue.
pub(crate) struct TerminalWriter {
    terminal: Arc<AsyncFd<OwnedFd>>,
    queue: mpsc::Receiver<Vec<u8>>,
    waiting: Vec<u8>,
}

impl TerminalWriter {
    /// Types some of the queued text, and returns whether more may come. Cancel-safe.
    pub(crate) async fn step(&mut self) -> bool {
        if self.waiting.is_empty() {
            match self.queue.recv().await {
                Some(bytes) => self.waiting = bytes,
                None => return false,
            }
        }
        let Ok(mut ready) = self.terminal.writable().await else { return false };
        match ready.try_io(|terminal| Ok(rustix::io::write(terminal.get_ref(), &self.waiting)?)) {
            Ok(Ok(count)) => {
                self.waiting.drain(..count);
                true
            }
            Ok(Err(_)) => false,
            Err(_) => true,
        }
    }
}
