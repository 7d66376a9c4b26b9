//! The client without a full screen: prompts are lines of standard input, answers go to standard output.
//!
//! Standard output has the agent's messages and nothing else; tools, questions and the end of a turn are lines on
//! standard error. A person at a terminal is asked what needs a decision; in a script, it is refused. Input is
//! read and output is written by threads, so that an interrupt is handled even while a pipe blocks.

mod own_turn;
mod printer;
mod standard_streams;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use wire::native::{
    AskView, ReplyBody, Request, RequestEnvelope, RequestReply, ServerFrame, ServerNotification,
    SessionState, ViewUpdate,
};

use self::own_turn::OwnTurn;
use self::printer::{LinePrinter, Output};
use self::standard_streams::{LINES_MAX, reader, writer};
use crate::completion::is_exit_command;
use crate::connection::{Dial, RetryDelay, ServerConnection, dial_after};
use crate::sanitize::one_line;
use crate::session_opener::{OpenFailure, SessionOpener, StartOptions, Step};

/// How many times a lost server is dialled again.
const TRIES_MAX: usize = 20;

/// This client's part of `/help`; the server prints the rest.
const HELP: &str = "/exit, /quit or Ctrl-D: quit when the prompts you entered are done";

const DONE: u8 = 0;
const FAILED: u8 = 1;
const LIMITED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// How line mode is used.
#[derive(Debug, Clone, Copy)]
pub struct LineModeOptions {
    /// A person sits at standard input.
    pub attended: bool,
    /// Standard output is a terminal, which would interpret control sequences.
    pub screen: bool,
    /// Standard output and standard error are on the same screen.
    pub one_screen: bool,
    pub colour: bool,
    /// Makes the keys of our prompts differ from those of other clients.
    pub seed: u64,
}

/// How line mode ended: with an exit code, or without a session.
#[derive(Debug, PartialEq, Eq)]
pub enum LineModeExit {
    Code(u8),
    Failed(OpenFailure),
    /// The server cannot be reached, or did not come back.
    Gone(String),
}

enum Wake {
    Stop,
    Frame(Option<ServerFrame>),
    Read(Option<String>),
}

struct LineMode<'a> {
    options: LineModeOptions,
    dial: &'a dyn Dial,
    connection: ServerConnection,
    opener: Option<SessionOpener>,
    start_options: StartOptions,
    session: Option<String>,
    upto: Option<u64>,
    printer: LinePrinter,
    writer: mpsc::Sender<Output>,
    reads: mpsc::Receiver<String>,
    read_all: bool,
    prompts: VecDeque<String>,
    /// The turn of the prompt that was sent, until it has ended.
    turn: Option<OwnTurn>,
    /// An "always" answer becomes a rule; otherwise it holds in this session.
    makes_rules: bool,
    /// The last state that the server sent.
    state: Option<SessionState>,
    /// The ask that the person at the terminal is to answer.
    open_ask: Option<AskView>,
    /// Asks that were answered or refused from here.
    answered: Vec<u64>,
    next_id: u64,
    next_key: u64,
    code: u8,
    stopping: bool,
    stops: [Signal; 2],
}

/// Runs until the input has ended and all of its prompts are answered.
pub async fn line_mode(
    start_options: StartOptions,
    options: LineModeOptions,
    dial: &dyn Dial,
) -> io::Result<LineModeExit> {
    let stops = stop_signals()?;
    let connection = match dial.dial().await {
        Ok(connection) => connection,
        Err(why) => return Ok(LineModeExit::Gone(why)),
    };
    let (writer, written) = writer()?;
    let pipes = Pipes { writer, reads: reader()? };
    let mut client = LineMode::new(start_options, options, dial, connection, pipes, stops);
    let end = client.run().await;
    drop(client);
    // All output is written before the program ends, unless its reader is gone.
    drop(written.await);
    Ok(end)
}

fn stop_signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
}

/// The channels of standard input and output.
struct Pipes {
    reads: mpsc::Receiver<String>,
    writer: mpsc::Sender<Output>,
}

impl<'a> LineMode<'a> {
    fn new(
        start_options: StartOptions,
        options: LineModeOptions,
        dial: &'a dyn Dial,
        connection: ServerConnection,
        pipes: Pipes,
        stops: [Signal; 2],
    ) -> Self {
        Self {
            options,
            dial,
            connection,
            opener: Some(SessionOpener::new(&start_options)),
            prompts: start_options.prompt.clone().into_iter().collect(),
            start_options,
            session: None,
            upto: None,
            printer: LinePrinter::new(&options),
            writer: pipes.writer,
            reads: pipes.reads,
            read_all: false,
            turn: None,
            makes_rules: false,
            state: None,
            open_ask: None,
            answered: Vec::new(),
            next_id: 1,
            next_key: 1,
            code: DONE,
            stopping: false,
            stops,
        }
    }

    async fn run(&mut self) -> LineModeExit {
        loop {
            if let Some(code) = self.send_next().await {
                return LineModeExit::Code(code);
            }
            let end = match self.next().await {
                Wake::Stop => self.stop().await,
                Wake::Frame(Some(frame)) => self.frame(frame).await,
                Wake::Frame(None) => self.redial().await,
                Wake::Read(Some(text)) => {
                    self.read(text).await;
                    None
                }
                Wake::Read(None) => {
                    self.end_input().await;
                    None
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn next(&mut self) -> Wake {
        let [interrupt, terminate] = &mut self.stops;
        let reads = !self.read_all && (self.prompts.len() < LINES_MAX || self.open_ask.is_some());
        tokio::select! {
            biased;
            _ = interrupt.recv() => Wake::Stop,
            _ = terminate.recv() => Wake::Stop,
            frame = self.connection.frames.recv() => Wake::Frame(frame),
            text = self.reads.recv(), if reads => Wake::Read(text),
        }
    }

    /// Sends the next prompt, unless a turn runs. Returns the exit code when there is none left.
    async fn send_next(&mut self) -> Option<u8> {
        if self.turn.is_some() || self.upto.is_none() {
            return None;
        }
        match self.prompts.pop_front() {
            Some(text) => {
                let key = format!("{:016x}-{}", self.options.seed, self.next_key);
                self.next_key += 1;
                self.printer.will_send(&text);
                self.turn = Some(OwnTurn::new(key, text));
                self.send_prompt().await;
                None
            }
            None => self.read_all.then_some(self.code),
        }
    }

    async fn ask(&mut self, request: Request) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        // A closed connection is noticed when its frames end.
        drop(self.connection.requests.send(RequestEnvelope { id, request }).await);
        id
    }

    async fn frame(&mut self, frame: ServerFrame) -> Option<LineModeExit> {
        match frame {
            ServerFrame::Reply(reply) => self.reply(reply).await,
            ServerFrame::Notification(told) => match *told {
                ServerNotification::Hello(hello) => {
                    self.makes_rules = hello.makes_rules;
                    let session = self.session.clone()?;
                    let after = self.upto;
                    self.ask(Request::Watch { session, after }).await;
                    self.resume_turn().await;
                    None
                }
                ServerNotification::Cards { cards, older, .. } => {
                    let step = self.opener.as_mut()?.cards(&cards, older.as_deref());
                    self.step(step).await
                }
                ServerNotification::View(view) => self.view(view).await,
                ServerNotification::WatchEnded { session, message } => {
                    (self.session.as_ref() == Some(&session)).then(|| LineModeExit::Gone(one_line(&message)))
                }
                ServerNotification::Faults { faults } => {
                    let said = faults.iter().map(|fault| Output::bad(one_line(fault))).collect();
                    self.write_all(said).await;
                    None
                }
                ServerNotification::Devices { .. } => None,
            },
        }
    }

    async fn step(&mut self, step: Step) -> Option<LineModeExit> {
        match step {
            Step::Wait => {}
            Step::Ask(request) => drop(self.ask(request).await),
            Step::Watch(session) => {
                let is_new = self.start_options.session == crate::session_opener::WhichSession::New;
                self.opener = None;
                self.session = Some(session.clone());
                self.ask(Request::Watch { session: session.clone(), after: None }).await;
                for (setting, value) in self.start_options.settings.clone().into_iter().filter(|_| !is_new) {
                    self.ask(Request::Set { session: session.clone(), setting, value }).await;
                }
            }
            Step::Pick => {
                let what = "several sessions need you".to_owned();
                return Some(LineModeExit::Failed(OpenFailure::NotFound {
                    what,
                    fix: "choose one: ropewalk attach SESSION".into(),
                }));
            }
            Step::Fail(failure) => return Some(LineModeExit::Failed(failure)),
        }
        None
    }

    async fn reply(&mut self, reply: RequestReply) -> Option<LineModeExit> {
        if let Some(wrong) = reply.error {
            let message = one_line(&wrong.message);
            if self.opener.is_some() || self.upto.is_none() {
                return Some(LineModeExit::Failed(OpenFailure::Refused(message)));
            }
            self.write(Output::bad(format!("error: {message}"))).await;
            if self.turn.as_ref().is_some_and(|turn| turn.prompt_id == reply.re) {
                self.leave_turn(FAILED);
            }
            self.fetched(reply.re).await;
            return None;
        }
        match reply.ok {
            Some(ReplyBody::PromptAccepted { turn }) => self.prompt_accepted(reply.re, turn).await,
            Some(ReplyBody::Rows { rows, .. }) => {
                let outputs = self.printer.rows(rows);
                self.write_all(outputs).await;
                self.fetched(reply.re).await;
            }
            Some(answered) => {
                if let Some(opener) = &mut self.opener {
                    let step = opener.reply(Ok(answered));
                    return self.step(step).await;
                }
            }
            None => {}
        }
        None
    }

    async fn view(&mut self, view: ViewUpdate) -> Option<LineModeExit> {
        if self.session.as_ref() != Some(&view.session) {
            return None;
        }
        if self.upto.is_none() {
            // Rows from before this client started are not printed.
            self.printer.skip(&view.rows);
            self.upto = Some(view.upto);
            if let Some(state) = view.state {
                self.state = Some(state);
                self.handle_asks().await;
            }
            return None;
        }
        self.upto = Some(view.upto);
        let outputs = self.printer.view(view.rows, &view.appends);
        self.write_all(outputs).await;
        if let Some(state) = view.state {
            self.state = Some(state);
            self.handle_asks().await;
        }
        self.check_turn_end().await;
        None
    }

    /// A line of input is an exit command, an answer to the open ask, or a prompt.
    async fn read(&mut self, text: String) {
        if is_exit_command(&text) {
            return self.end_input().await;
        }
        if self.open_ask.is_some() && self.is_command(&text) {
            self.write(Output::quiet(format!("queued: {}", one_line(text.trim())))).await;
            self.prompts.push_back(text);
            return;
        }
        let Some(ask) = self.open_ask.take() else {
            if text.trim() == "/help" {
                self.write(Output::quiet(HELP)).await;
            }
            if !text.trim().is_empty() {
                self.prompts.push_back(text);
            }
            return;
        };
        match printer::parse_answer(&ask, text.trim()) {
            Some((decision, text)) => self.decide(ask, decision, text).await,
            None => {
                let outputs = printer::question(&ask, self.makes_rules);
                self.write_all(outputs).await;
                self.open_ask = Some(ask);
            }
        }
    }

    /// Whether a line is a command of the session, and so no answer to an ask. Other text with a slash may be an answer, such as a path.
    fn is_command(&self, text: &str) -> bool {
        let name = text.trim().strip_prefix('/').and_then(|rest| rest.split_whitespace().next());
        let commands = self.state.as_ref().map(|state| state.commands.as_slice()).unwrap_or_default();
        name.is_some_and(|name| commands.iter().any(|command| command.name == name))
    }

    /// The input has ended. Earlier prompts still run, but nobody can be asked any more.
    async fn end_input(&mut self) {
        self.read_all = true;
        self.open_ask = None;
        self.handle_asks().await;
    }

    /// Reconnects to a lost server for a while; the session then continues where it was.
    async fn redial(&mut self) -> Option<LineModeExit> {
        self.write(Output::quiet("reconnecting")).await;
        let mut retry_delay = RetryDelay::default();
        let mut why = String::new();
        for _ in 0..TRIES_MAX {
            let [interrupt, terminate] = &mut self.stops;
            let dialed = tokio::select! {
                biased;
                _ = interrupt.recv() => return Some(LineModeExit::Code(INTERRUPTED)),
                _ = terminate.recv() => return Some(LineModeExit::Code(INTERRUPTED)),
                dialed = dial_after(self.dial, retry_delay.wait()) => dialed,
            };
            match dialed {
                Ok(connection) => {
                    self.connection = connection;
                    if self.session.is_none() {
                        self.opener = Some(SessionOpener::new(&self.start_options));
                    }
                    return None;
                }
                Err(error) => why = error,
            }
        }
        Some(LineModeExit::Gone(why))
    }

    async fn write_all(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            self.write(output).await;
        }
    }

    async fn write(&mut self, output: Output) {
        let output = self.printer.painted(output);
        let [interrupt, _] = &mut self.stops;
        tokio::select! {
            // If the reader is gone, the turn continues to its end all the same.
            sent = self.writer.send(output) => drop(sent),
            _ = interrupt.recv() => self.stopping = true,
        }
    }
}
