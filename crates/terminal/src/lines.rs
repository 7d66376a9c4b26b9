//! The client without a screen: prompts are lines of standard input, answers go to standard output.
//!
//! Standard output has what was said and nothing else; tools, questions and how it ended are lines on
//! standard error. Who sits at a terminal is asked what needs a person; a script is not, and what would
//! need one is refused. Input is read and output written by threads, so that neither a reader that does
//! not read nor a pipe that does not end keeps an interrupt from being heard.

mod pipes;
mod printer;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::VecDeque;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use wire::native::{Answered, AskView, Envelope, Frame, Reply, Request, SessionState, Told, View};

use self::pipes::{LINES_MAX, reader, writer};
use self::printer::{Printer, Put};
use self::turn::Turn;
use crate::clean::one_line;
use crate::line::{Dial, Line, Patience, later};
use crate::offers::leaves;
use crate::opening::{Failure, Opening, Step, Wish};

/// How often a server that is gone is tried again.
const TRIES_MAX: usize = 20;

/// What is ours to say of `/help`; the server says the rest.
const HELP: &str = "/exit, /quit or Ctrl-D: leave after the prompts already entered are done";

const DONE: u8 = 0;
const FAILED: u8 = 1;
const LIMITED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// How line mode is used.
#[derive(Debug, Clone, Copy)]
pub struct LineManner {
    /// Somebody sits at standard input.
    pub attended: bool,
    /// Standard output is a terminal, which would obey what it is told.
    pub screen: bool,
    /// Both outputs are on the same screen.
    pub one_screen: bool,
    pub colour: bool,
    /// Makes the keys of our prompts differ from those of others.
    pub seed: u64,
}

/// How it ended: with an exit code, or without a session.
#[derive(Debug, PartialEq, Eq)]
pub enum LineEnd {
    Code(u8),
    Failed(Failure),
    /// The server cannot be reached, or does not come back.
    Gone(String),
}

enum Wake {
    Stop,
    Frame(Option<Frame>),
    Read(Option<String>),
}

struct Lines<'a> {
    manner: LineManner,
    dial: &'a dyn Dial,
    line: Line,
    opening: Option<Opening>,
    wish: Wish,
    session: Option<String>,
    upto: Option<u64>,
    printer: Printer,
    writer: mpsc::Sender<Put>,
    reads: mpsc::Receiver<String>,
    read_all: bool,
    prompts: VecDeque<String>,
    /// Of the prompt that was sent, until that turn has ended.
    turn: Option<Turn>,
    /// What is answered for good becomes a rule; otherwise it holds in this session.
    makes_rules: bool,
    /// As it was told last.
    state: Option<SessionState>,
    /// What waits for an answer of the person at the terminal.
    asked: Option<AskView>,
    /// Asks that were answered or refused from here.
    answered: Vec<u64>,
    next_id: u64,
    next_key: u64,
    code: u8,
    stopping: bool,
    stops: [Signal; 2],
}

/// Runs until the input has ended and everything in it was answered.
pub async fn lines(wish: Wish, manner: LineManner, dial: &dyn Dial) -> io::Result<LineEnd> {
    let stops = stops()?;
    let line = match dial.dial().await {
        Ok(line) => line,
        Err(why) => return Ok(LineEnd::Gone(why)),
    };
    let (writer, written) = writer()?;
    let pipes = Pipes { writer, reads: reader()? };
    let mut lines = Lines::new(wish, manner, dial, line, pipes, stops);
    let end = lines.run().await;
    drop(lines);
    // What was said is written before the program ends; nobody waits for a reader that is gone.
    drop(written.await);
    Ok(end)
}

fn stops() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
}

/// What is read and what is written.
struct Pipes {
    reads: mpsc::Receiver<String>,
    writer: mpsc::Sender<Put>,
}

impl<'a> Lines<'a> {
    fn new(
        wish: Wish,
        manner: LineManner,
        dial: &'a dyn Dial,
        line: Line,
        pipes: Pipes,
        stops: [Signal; 2],
    ) -> Self {
        Self {
            manner,
            dial,
            line,
            opening: Some(Opening::new(&wish)),
            prompts: wish.prompt.clone().into_iter().collect(),
            wish,
            session: None,
            upto: None,
            printer: Printer::new(&manner),
            writer: pipes.writer,
            reads: pipes.reads,
            read_all: false,
            turn: None,
            makes_rules: false,
            state: None,
            asked: None,
            answered: Vec::new(),
            next_id: 1,
            next_key: 1,
            code: DONE,
            stopping: false,
            stops,
        }
    }

    async fn run(&mut self) -> LineEnd {
        loop {
            if let Some(code) = self.go_on().await {
                return LineEnd::Code(code);
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
        let reads = !self.read_all && (self.prompts.len() < LINES_MAX || self.asked.is_some());
        tokio::select! {
            biased;
            _ = interrupt.recv() => Wake::Stop,
            _ = terminate.recv() => Wake::Stop,
            frame = self.line.frames.recv() => Wake::Frame(frame),
            text = self.reads.recv(), if reads => Wake::Read(text),
        }
    }

    /// Sends the next prompt, if it is its turn. Answers the exit code when there is none left.
    async fn go_on(&mut self) -> Option<u8> {
        if self.turn.is_some() || self.upto.is_none() {
            return None;
        }
        match self.prompts.pop_front() {
            Some(text) => {
                let key = format!("{:016x}-{}", self.manner.seed, self.next_key);
                self.next_key += 1;
                self.printer.sends(&text);
                self.turn = Some(Turn::new(key, text));
                self.send_prompt().await;
                None
            }
            None => self.read_all.then_some(self.code),
        }
    }

    async fn ask(&mut self, request: Request) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        // A line that is closed says so through its frames.
        drop(self.line.requests.send(Envelope { id, request }).await);
        id
    }

    async fn frame(&mut self, frame: Frame) -> Option<LineEnd> {
        match frame {
            Frame::Reply(reply) => self.reply(reply).await,
            Frame::Told(told) => match *told {
                Told::Hello(hello) => {
                    self.makes_rules = hello.makes_rules;
                    let session = self.session.clone()?;
                    let after = self.upto;
                    self.ask(Request::Watch { session, after }).await;
                    self.go_on_with_turn().await;
                    None
                }
                Told::Cards { cards, older, .. } => {
                    let step = self.opening.as_mut()?.cards(&cards, older.as_deref());
                    self.step(step).await
                }
                Told::View(view) => self.view(view).await,
                Told::Over { session, message } => {
                    (self.session.as_ref() == Some(&session)).then(|| LineEnd::Gone(one_line(&message)))
                }
                Told::Faults { faults } => {
                    let said = faults.iter().map(|fault| Put::bad(one_line(fault))).collect();
                    self.put_all(said).await;
                    None
                }
                Told::Devices { .. } => None,
            },
        }
    }

    async fn step(&mut self, step: Step) -> Option<LineEnd> {
        match step {
            Step::Wait => {}
            Step::Ask(request) => drop(self.ask(request).await),
            Step::Watch(session) => {
                let is_new = self.wish.start == crate::opening::Start::New;
                self.opening = None;
                self.session = Some(session.clone());
                self.ask(Request::Watch { session: session.clone(), after: None }).await;
                for (setting, value) in self.wish.settings.clone().into_iter().filter(|_| !is_new) {
                    self.ask(Request::Set { session: session.clone(), setting, value }).await;
                }
            }
            Step::Pick => {
                let what = "several sessions wait for somebody".to_owned();
                return Some(LineEnd::Failed(Failure::NotFound {
                    what,
                    fix: "ropewalk attach SESSION".into(),
                }));
            }
            Step::Fail(failure) => return Some(LineEnd::Failed(failure)),
        }
        None
    }

    async fn reply(&mut self, reply: Reply) -> Option<LineEnd> {
        if let Some(wrong) = reply.error {
            let message = one_line(&wrong.message);
            if self.opening.is_some() || self.upto.is_none() {
                return Some(LineEnd::Failed(Failure::Refused(message)));
            }
            self.put(Put::bad(format!("error: {message}"))).await;
            if self.turn.as_ref().is_some_and(|turn| turn.prompt_id == reply.re) {
                self.leave_turn(FAILED);
            }
            self.fetched(reply.re).await;
            return None;
        }
        match reply.ok {
            Some(Answered::Taken { turn }) => self.taken(reply.re, turn).await,
            Some(Answered::Rows { rows, .. }) => {
                let puts = self.printer.rows(rows);
                self.put_all(puts).await;
                self.fetched(reply.re).await;
            }
            Some(answered) => {
                if let Some(opening) = &mut self.opening {
                    let step = opening.reply(Ok(answered));
                    return self.step(step).await;
                }
            }
            None => {}
        }
        None
    }

    async fn view(&mut self, view: View) -> Option<LineEnd> {
        if self.session.as_ref() != Some(&view.session) {
            return None;
        }
        if self.upto.is_none() {
            // What was said before this client began is not said again.
            self.printer.skip(&view.rows);
            self.upto = Some(view.upto);
            if let Some(state) = view.state {
                self.state = Some(state);
                self.asks().await;
            }
            return None;
        }
        self.upto = Some(view.upto);
        let puts = self.printer.view(view.rows, &view.appends);
        self.put_all(puts).await;
        if let Some(state) = view.state {
            self.state = Some(state);
            self.asks().await;
        }
        self.ended().await;
        None
    }

    /// A line of input leaves, answers what is asked, or is a prompt.
    async fn read(&mut self, text: String) {
        if leaves(&text) {
            return self.end_input().await;
        }
        if self.asked.is_some() && self.is_command(&text) {
            self.put(Put::quiet(format!("after this turn: {}", one_line(text.trim())))).await;
            self.prompts.push_back(text);
            return;
        }
        let Some(ask) = self.asked.take() else {
            if text.trim() == "/help" {
                self.put(Put::quiet(HELP)).await;
            }
            if !text.trim().is_empty() {
                self.prompts.push_back(text);
            }
            return;
        };
        match printer::understood(&ask, text.trim()) {
            Some((decision, text)) => self.decide(ask, decision, text).await,
            None => {
                let puts = printer::question(&ask, self.makes_rules);
                self.put_all(puts).await;
                self.asked = Some(ask);
            }
        }
    }

    /// A command of the session, which is no answer to what is asked. Any other text with a slash may be one, such as a path.
    fn is_command(&self, text: &str) -> bool {
        let name = text.trim().strip_prefix('/').and_then(|rest| rest.split_whitespace().next());
        let commands = self.state.as_ref().map(|state| state.commands.as_slice()).unwrap_or_default();
        name.is_some_and(|name| commands.iter().any(|command| command.name == name))
    }

    /// Nothing more is read. What was written before is done, and nobody can be asked about it any more.
    async fn end_input(&mut self) {
        self.read_all = true;
        self.asked = None;
        self.asks().await;
    }

    /// The server is gone: it is tried a while, and then the session goes on where it was.
    async fn redial(&mut self) -> Option<LineEnd> {
        self.put(Put::quiet("reconnecting")).await;
        let mut patience = Patience::default();
        let mut why = String::new();
        for _ in 0..TRIES_MAX {
            let [interrupt, terminate] = &mut self.stops;
            let dialed = tokio::select! {
                biased;
                _ = interrupt.recv() => return Some(LineEnd::Code(INTERRUPTED)),
                _ = terminate.recv() => return Some(LineEnd::Code(INTERRUPTED)),
                dialed = later(self.dial, patience.wait()) => dialed,
            };
            match dialed {
                Ok(line) => {
                    self.line = line;
                    if self.session.is_none() {
                        self.opening = Some(Opening::new(&self.wish));
                    }
                    return None;
                }
                Err(error) => why = error,
            }
        }
        Some(LineEnd::Gone(why))
    }

    async fn put_all(&mut self, puts: Vec<Put>) {
        for put in puts {
            self.put(put).await;
        }
    }

    async fn put(&mut self, put: Put) {
        let put = self.printer.painted(put);
        let [interrupt, _] = &mut self.stops;
        tokio::select! {
            // Whoever reads is gone; the turn goes on to its end all the same.
            sent = self.writer.send(put) => drop(sent),
            _ = interrupt.recv() => self.stopping = true,
        }
    }
}
