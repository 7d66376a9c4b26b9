//! The practical limit: the least an ACP agent on stdio can do and still be one.
//!
//! One thread reads, decides and writes; nothing is stored. Every other agent is measured as a
//! multiple of this one, so it must stay free of anything that is not needed to answer.
//!
//! With `--sync FILE` it appends 4 KiB to a file and waits for the disk before it ends a turn: the
//! practical limit of an agent whose answers are durable.
//!
//! **Invariant:** output is flushed before the program waits, for input or for the disk, and only
//! then, or when the 64 KiB buffer is full: that is what makes a stream of small notifications cheap.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Stdout, Write};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropewalk_bench::prompt::{Wish, nanos};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let disk = match (arguments.next().as_deref(), arguments.next()) {
        (None, None) => None,
        (Some("--sync"), Some(path)) => Some(OpenOptions::new().create(true).append(true).open(path)?),
        _ => anyhow::bail!("usage: echo_agent [--sync FILE]"),
    };
    let mut agent = EchoAgent {
        disk: disk.map(Arc::new),
        out: Arc::new(Mutex::new(BufWriter::with_capacity(64 * 1024, std::io::stdout()))),
        sessions: 0,
        sleeping: HashMap::new(),
    };
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        agent.handle(&serde_json::from_str(&line)?)?;
    }
}

type Out = Arc<Mutex<BufWriter<Stdout>>>;

struct EchoAgent {
    /// Written before a turn ends, if turns are to be durable.
    disk: Option<Arc<File>>,
    out: Out,
    sessions: u64,
    /// Sessions whose turn waits, with the sender that ends the wait.
    sleeping: HashMap<String, SyncSender<()>>,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptParams {
    session_id: String,
    #[serde(default)]
    prompt: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    text: String,
}

#[derive(Serialize)]
struct Update<'a> {
    jsonrpc: &'a str,
    method: &'a str,
    params: UpdateParams<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a> {
    session_id: &'a str,
    update: Chunk<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    session_update: &'a str,
    content: Text<'a>,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'a str,
    text: &'a str,
}

impl EchoAgent {
    fn handle(&mut self, incoming: &Incoming<'_>) -> anyhow::Result<()> {
        match (incoming.method, incoming.id) {
            (Some("initialize"), Some(id)) => self.answer(
                id,
                r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"echo","version":"0"}}"#,
            ),
            (Some("session/new"), Some(id)) => {
                self.sessions += 1;
                let result = format!(r#"{{"sessionId":"echo-{}"}}"#, self.sessions);
                self.answer(id, &result)
            }
            (Some("session/load"), Some(id)) => self.answer(id, "{}"),
            (Some("session/prompt"), Some(id)) => self.prompt(id, params(incoming)?),
            (Some("session/cancel"), None) => {
                let target: PromptParams = params(incoming)?;
                // Dropping the sender is what wakes the waiting turn.
                self.sleeping.remove(&target.session_id);
                Ok(())
            }
            (Some(_), Some(id)) => self.refuse(id),
            _ => Ok(()),
        }
    }

    fn prompt(&mut self, id: &RawValue, params: PromptParams) -> anyhow::Result<()> {
        let text = params.prompt.first().map_or("", |block| block.text.as_str());
        match Wish::parse(text) {
            Wish::Stream { chunks, text } => {
                let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
                for _ in 0..chunks {
                    write_chunk(&mut out, &params.session_id, &text)?;
                }
                self.write_end(&mut out, id)
            }
            Wish::Tick { chunks, micros } => {
                let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
                for _ in 0..chunks {
                    write_chunk(&mut out, &params.session_id, &format!("{};", nanos()))?;
                    out.flush()?;
                    std::thread::sleep(Duration::from_micros(micros));
                }
                self.write_end(&mut out, id)
            }
            Wish::Sleep { millis } => {
                let (sender, receiver) = sync_channel::<()>(0);
                self.sleeping.insert(params.session_id, sender);
                let (out, disk, id) = (Arc::clone(&self.out), self.disk.clone(), id.to_owned());
                std::thread::spawn(move || {
                    let reason = match receiver.recv_timeout(Duration::from_millis(millis)) {
                        Err(RecvTimeoutError::Timeout) => "end_turn",
                        Ok(()) | Err(RecvTimeoutError::Disconnected) => "cancelled",
                    };
                    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                    // A client that hung up needs no answer.
                    drop(write_end(&mut out, disk.as_deref(), &id, reason));
                });
                Ok(())
            }
            Wish::Say => {
                let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
                write_chunk(&mut out, &params.session_id, text)?;
                self.write_end(&mut out, id)
            }
        }
    }

    fn write_end(&self, out: &mut BufWriter<Stdout>, id: &RawValue) -> anyhow::Result<()> {
        write_end(out, self.disk.as_deref(), id, "end_turn")
    }

    fn answer(&self, id: &RawValue, result: &str) -> anyhow::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)?;
        Ok(out.flush()?)
    }

    fn refuse(&self, id: &RawValue) -> anyhow::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(
            out,
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"method not found"}}}}"#
        )?;
        Ok(out.flush()?)
    }
}

fn params(incoming: &Incoming<'_>) -> anyhow::Result<PromptParams> {
    Ok(serde_json::from_str(incoming.params.map_or("{}", RawValue::get))?)
}

fn write_chunk(out: &mut BufWriter<Stdout>, session_id: &str, text: &str) -> anyhow::Result<()> {
    let content = Text { r#type: "text", text };
    let update = Chunk { session_update: "agent_message_chunk", content };
    let params = UpdateParams { session_id, update };
    serde_json::to_writer(&mut *out, &Update { jsonrpc: "2.0", method: "session/update", params })?;
    Ok(out.write_all(b"\n")?)
}

fn write_end(
    out: &mut BufWriter<Stdout>,
    disk: Option<&File>,
    id: &RawValue,
    reason: &str,
) -> anyhow::Result<()> {
    if let Some(mut disk) = disk {
        // What was streamed is shown at once; only the end of the turn waits for the disk.
        out.flush()?;
        disk.write_all(&[b'x'; 4096])?;
        disk.sync_data()?;
    }
    writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"{reason}"}}}}"#)?;
    Ok(out.flush()?)
}
