//! Standard input and output, each with a thread: both can block for as long as they like.

use std::io::{self, BufRead, Read, Write};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::printer::Put;

/// Lines that were read and are not asked yet: reading goes on when there is room again.
pub const LINES_MAX: usize = 16;
/// What waits to be written.
const WRITES_MAX: usize = 256;
/// A prompt that is longer was not written by anybody.
const PROMPT_BYTES_MAX: u64 = 4 << 20;

/// Lines of standard input, until it ends.
pub fn reader() -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    thread::Builder::new().name("input".into()).spawn(move || {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        while let Ok(1..) = (&mut input).take(PROMPT_BYTES_MAX).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.blocking_send(text).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Where everything is written, and what tells that all of it is.
pub fn writer() -> io::Result<(mpsc::Sender<Put>, oneshot::Receiver<()>)> {
    let (sender, mut receiver) = mpsc::channel::<Put>(WRITES_MAX);
    let (done, written) = oneshot::channel();
    thread::Builder::new().name("output".into()).spawn(move || {
        while let Some(put) = receiver.blocking_recv() {
            let written = match put {
                Put::Out(text) => {
                    let mut out = io::stdout().lock();
                    out.write_all(text.as_bytes()).and_then(|()| out.flush())
                }
                Put::Err { text, .. } => writeln!(io::stderr().lock(), "{text}"),
            };
            if written.is_err() {
                return;
            }
        }
        // Who does not wait for it does not need to know.
        done.send(()).ok();
    })?;
    Ok((sender, written))
}
