//! Messages from inside the fence to the supervisor outside.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::FenceError;

const MESSAGE_BYTES_MAX: usize = 4096;

pub(super) enum FenceMessage {
    /// The fence stands. The handles are the listener for calls to be judged, the root folder and `/proc` as the command
    /// sees them.
    Started(FenceHandles),
    Failed(FenceError),
    /// The command ended; a status as `wait` gives it.
    Ended(i32),
}

pub(super) struct FenceHandles {
    pub(super) listener: OwnedFd,
    pub(super) root: OwnedFd,
    pub(super) processes: OwnedFd,
}

/// Creates the channel: the inner end and the outer end.
pub(super) fn pair() -> io::Result<(InnerEnd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (inside, outside) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((InnerEnd(inside), outside))
}

pub(super) struct InnerEnd(OwnedFd);

impl InnerEnd {
    pub(super) fn started(&self, handles: &FenceHandles) -> io::Result<()> {
        let files = [handles.listener.as_fd(), handles.root.as_fd(), handles.processes.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut files_message = SendAncillaryBuffer::new(&mut space);
        if !files_message.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("no room for three files"));
        }
        sendmsg(&self.0, &[IoSlice::new(b"S")], &mut files_message, SendFlags::empty())?;
        Ok(())
    }

    /// If this fails, the receiver is gone.
    pub(super) fn failed(&self, error: &FenceError) {
        match error {
            FenceError::NoFence(reason) => {
                self.send(b'F', &reason.as_bytes()[..reason.len().min(MESSAGE_BYTES_MAX - 1)])
            }
            FenceError::NotStarted(error) => self.send(b'X', &error.to_le_bytes()),
        }
    }

    pub(super) fn ended(&self, status: i32) {
        self.send(b'E', &status.to_le_bytes());
    }

    fn send(&self, kind: u8, body: &[u8]) {
        rustix::net::send(&self.0, &[&[kind], body].concat(), SendFlags::NOSIGNAL).ok();
    }
}

impl AsFd for InnerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Receives the file that comes with the next byte of the connection to the program.
pub(super) fn receive_file(connection: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut files, RecvFlags::CMSG_CLOEXEC).ok()?;
    let file = files.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.filter(|_| received.bytes == 1)
}

/// The next message that has arrived, if any.
pub(super) fn receive(outside: &OwnedFd) -> Option<FenceMessage> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut files_message = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(outside, &mut [IoSliceMut::new(&mut bytes)], &mut files_message, flags).ok()?;
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in files_message.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let (kind, body) = bytes[..received.bytes].split_first()?;
    let number = || body.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
    match kind {
        b'S' => {
            let [listener, root, processes] = <[OwnedFd; 3]>::try_from(files).ok()?;
            Some(FenceMessage::Started(FenceHandles { listener, root, processes }))
        }
        b'F' => Some(FenceMessage::Failed(FenceError::NoFence(String::from_utf8_lossy(body).into_owned()))),
        b'X' => Some(FenceMessage::Failed(FenceError::NotStarted(number()?))),
        b'E' => Some(FenceMessage::Ended(number()?)),
        _ => None,
    }
}
