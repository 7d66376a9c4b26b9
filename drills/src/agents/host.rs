//! Files and terminals that the test client serves to an agent, as an editor does.
//!
//! Only below the project's folder. Terminals are real commands; waiting for one does not hold up the
//! client, because a thread waits and tells it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::client::ClientEvent;
use xtask::command;

/// How a refusal begins that has the protocol's own code for it: agents ask for files that are not there yet.
pub(super) const NOT_FOUND: &str = "Resource not found: ";

pub(super) struct Host {
    pub offers: bool,
    project: PathBuf,
    sender: SyncSender<ClientEvent>,
    terminals: HashMap<String, Arc<Terminal>>,
}

/// A running command. A thread reads its output and learns how it ended.
struct Terminal {
    pid: u32,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    output: Vec<u8>,
    status: Option<Value>,
}

impl Host {
    pub fn new(offers: bool, project: PathBuf, sender: SyncSender<ClientEvent>) -> Self {
        Self { offers, project, sender, terminals: HashMap::new() }
    }

    /// The answer to a request, or `None` if it comes later.
    pub fn serve(&mut self, method: &str, params: &Value, id: &Value) -> Option<Result<Value, String>> {
        if !self.offers {
            return Some(Err(format!("{method} is not known")));
        }
        Some(match method {
            "fs/read_text_file" => self.read(params),
            "fs/write_text_file" => self.write(params),
            "terminal/create" => self.create(params),
            "terminal/output" => self.terminal(params).map(|terminal| terminal.output()),
            "terminal/kill" => self.terminal(params).map(|terminal| {
                terminal.kill();
                json!({})
            }),
            "terminal/release" => self.terminal(params).map(|terminal| {
                terminal.kill();
                json!({})
            }),
            "terminal/wait_for_exit" => match self.terminal(params) {
                Ok(terminal) => {
                    self.wait(terminal, id.clone());
                    return None;
                }
                Err(reason) => Err(reason),
            },
            _ => Err(format!("{method} is not known")),
        })
    }

    fn path(&self, params: &Value) -> Result<PathBuf, String> {
        let path = Path::new(params["path"].as_str().ok_or("a path is needed")?);
        if path.starts_with(&self.project) { Ok(path.to_owned()) } else { Err("outside the project".into()) }
    }

    fn read(&self, params: &Value) -> Result<Value, String> {
        let path = self.path(params)?;
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{NOT_FOUND}{}", path.display()),
            _ => error.to_string(),
        })?;
        let from = params["line"].as_u64().map_or(0, |line| line.saturating_sub(1));
        let most = params["limit"].as_u64().unwrap_or(u64::MAX);
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let lines: String = text.split_inclusive('\n').skip(number(from)).take(number(most)).collect();
        Ok(json!({"content": lines}))
    }

    fn write(&self, params: &Value) -> Result<Value, String> {
        let text = params["content"].as_str().ok_or("a content is needed")?;
        fs::write(self.path(params)?, text).map_err(|error| error.to_string())?;
        Ok(json!({}))
    }

    fn create(&mut self, params: &Value) -> Result<Value, String> {
        let program = params["command"].as_str().ok_or("a command is needed")?;
        let arguments: Vec<&str> =
            params["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // Some send a program and its arguments, some a line for a shell.
        let mut command = command::program("setsid");
        if params["args"].is_array() && !arguments.is_empty() {
            command.arg(program).args(arguments);
        } else {
            command.args(["sh", "-c", program]);
        }
        for variable in params["env"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                command.env(name, value);
            }
        }
        command.current_dir(params["cwd"].as_str().map_or(self.project.as_path(), Path::new));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let terminal = Arc::new(Terminal {
            pid: child.id(),
            state: Mutex::new(State::default()),
            ended: Condvar::new(),
        });
        let (reader, outputs) = (Arc::clone(&terminal), (child.stdout.take(), child.stderr.take()));
        std::thread::spawn(move || {
            std::thread::scope(|scope| {
                scope.spawn(|| outputs.0.map(|output| reader.read(output)));
                scope.spawn(|| outputs.1.map(|output| reader.read(output)));
            });
            reader.end(child.wait().ok());
        });
        let id = format!("terminal-{}", self.terminals.len() + 1);
        self.terminals.insert(id.clone(), terminal);
        Ok(json!({"terminalId": id}))
    }

    fn terminal(&self, params: &Value) -> Result<Arc<Terminal>, String> {
        let id = params["terminalId"].as_str().unwrap_or_default();
        self.terminals.get(id).cloned().ok_or_else(|| format!("there is no terminal {id}"))
    }

    fn wait(&self, terminal: Arc<Terminal>, request: Value) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let state = terminal.lock();
            let running = |state: &mut State| state.status.is_none();
            let state = terminal.ended.wait_while(state, running).unwrap_or_else(PoisonError::into_inner);
            let status = state.status.clone().unwrap_or_default();
            drop(state);
            drop(sender.send(ClientEvent::Exited { request, status }));
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.terminals.values().for_each(|terminal| terminal.kill());
    }
}

impl Terminal {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut output: impl Read) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut bytes) {
            self.lock().output.extend_from_slice(&bytes[..read]);
        }
    }

    fn end(&self, status: Option<std::process::ExitStatus>) {
        let code = status.and_then(|status| status.code());
        let signal = if code.is_none() { json!("SIGKILL") } else { Value::Null };
        self.lock().status = Some(json!({"exitCode": code, "signal": signal}));
        self.ended.notify_all();
    }

    fn output(&self) -> Value {
        let state = self.lock();
        let output = String::from_utf8_lossy(&state.output).into_owned();
        let mut answer = json!({"output": output, "truncated": false});
        if let Some(status) = &state.status {
            answer["exitStatus"] = status.clone();
        }
        answer
    }

    /// The whole group: the command leads one of its own.
    fn kill(&self) {
        if self.lock().status.is_none() {
            let group = format!("-{}", self.pid);
            drop(command::output(command::program("kill").args(["-9", "--", &group])));
        }
    }
}
