//! Servers that tests start: on a port that nobody has, and gone with the test, however that ends.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

type Birth = (Command, Sender<io::Result<Child>>);

/// A port that nobody has. Until the server has it another one may take it, which fails visibly.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[expect(clippy::disallowed_methods, reason = "servers that tests need, started by tests alone")]
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}

/// Starts a server that the kernel ends together with this process. It ties the two by the thread that started it,
/// so that is one which lives as long as the process: a test's own may be gone before.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn start(command: Command) -> Child {
    static NURSERY: OnceLock<Mutex<Sender<Birth>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (sender, births) = channel::<Birth>();
        std::thread::spawn(move || {
            for (mut command, born) in births {
                // Who waits for it is there until it is answered.
                drop(born.send(command.spawn()));
            }
        });
        Mutex::new(sender)
    });
    let (born, child) = channel();
    nursery.lock().unwrap_or_else(PoisonError::into_inner).send((command, born)).unwrap();
    child.recv().unwrap().unwrap()
}
