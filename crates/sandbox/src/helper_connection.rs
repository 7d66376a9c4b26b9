//! What a child may reach, and the connection between the program and the helper that enforces it.
//!
//! The helper gets one socket, as its standard input. On it arrive the command, with the command's own input if it has one,
//! and then the request to end it; reports go back on it. When the program goes away for any reason, the helper reads the end
//! of the socket and ends everything.
//!
//! **Invariant:** a policy is enforced completely, or the command is refused.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt, Interest};

use crate::helper_frames;
use crate::helper_report::HelperReport;
use crate::helper_request::HelperRequest;
use crate::policy::Policy;
use crate::run::StartError;

/// The argument that turns this program into the helper.
pub const HELPER_ARGUMENT: &str = "sandbox-helper";
/// Asks the helper to let the command end by itself.
pub(crate) const ASK_TO_END: u8 = b'T';
/// Asks the helper to end the command.
pub(crate) const ASK_TO_KILL: u8 = b'K';
/// How much of the helper's reports is read at once.
const READ_BYTES: usize = 16 << 10;

/// What a child may reach, and who builds the fence around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub policy: Policy,
    pub helper: Helper,
}

/// How this program is started again as the one that builds the fence from within.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

/// Creates the two ends of the connection, before the helper is started.
pub(crate) fn socket_pair() -> Result<(UnixStream, OwnedFd), StartError> {
    if !cfg!(target_os = "linux") {
        return Err(StartError::NoFence("there is no sandbox for this operating system".into()));
    }
    let (ours, theirs) = UnixStream::pair().map_err(StartError::Spawn)?;
    ours.set_nonblocking(true).map_err(StartError::Spawn)?;
    Ok((ours, theirs.into()))
}

/// This program's end of the connection to the helper.
pub(crate) struct HelperConnection {
    socket: tokio::net::UnixStream,
    received: Vec<u8>,
    ended: bool,
}

impl HelperConnection {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        let socket = tokio::net::UnixStream::from_std(socket)?;
        Ok(Self { socket, received: Vec::new(), ended: false })
    }

    pub(crate) async fn send(&mut self, spec: &HelperRequest) -> io::Result<()> {
        self.socket.write_all(&spec.frame()).await
    }

    /// Sends a file, after the message that announces it.
    pub(crate) async fn send_file(&mut self, file: &OwnedFd) -> io::Result<()> {
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let (mut files, handed) = (SendAncillaryBuffer::new(&mut space), [file.as_fd()]);
            if !files.push(SendAncillaryMessage::ScmRights(&handed)) {
                return Err(io::Error::other("no room for a file"));
            }
            sendmsg(&self.socket, &[IoSlice::new(b"I")], &mut files, SendFlags::empty())?;
            Ok(())
        };
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Whether more reports may come.
    pub(crate) fn open(&self) -> bool {
        !self.ended
    }

    /// Asks the helper for something. A helper that is gone needs no asking.
    pub(crate) fn ask(&self, request: u8) {
        self.socket.try_write(&[request]).ok();
    }

    /// The next report, or `None` at the end. Safe to drop.
    pub(crate) async fn next(&mut self) -> Option<HelperReport> {
        loop {
            match helper_frames::take_frame(&mut self.received)
                .map(|frame| frame.map(|body| HelperReport::read(&body)))
            {
                Ok(Some(Ok(report))) => return Some(report),
                Ok(None) if !self.ended => {}
                Ok(None) => return None,
                Ok(Some(Err(_))) | Err(_) => {
                    self.ended = true;
                    return None;
                }
            }
            let mut bytes = [0; READ_BYTES];
            let read = match self.socket.readable().await {
                Ok(()) => self.socket.try_read(&mut bytes),
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => self.ended = true,
                Ok(count) => self.received.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.ended = true,
            }
        }
    }
}
