//! Standard input and output, each with a thread, because both may block.

use std::io::{self, BufRead, Read, Write};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::printer::Output;

/// Lines that were read and not sent yet: reading continues when there is room again.
pub const LINES_MAX: usize = 16;
/// Outputs that wait to be written.
const WRITES_MAX: usize = 256;
/// The longest line of input. Nobody types a longer prompt.
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

/// The channel for all output, and a signal that all of it is written.
pub fn writer() -> io::Result<(mpsc::Sender<Output>, oneshot::Receiver<()>)> {
    let (sender, mut receiver) = mpsc::channel::<Output>(WRITES_MAX);
    let (done, written) = oneshot::channel();
    thread::Builder::new().name("output".into()).spawn(move || {
        while let Some(output) = receiver.blocking_recv() {
            let written = match output {
                Output::Out(text) => {
                    let mut out = io::stdout().lock();
                    out.write_all(text.as_bytes()).and_then(|()| out.flush())
                }
                Output::Err { text, .. } => writeln!(io::stderr().lock(), "{text}"),
            };
            if written.is_err() {
                return;
            }
        }
        // Fails if nobody waits for it.
        done.send(()).ok();
    })?;
    Ok((sender, written))
}
