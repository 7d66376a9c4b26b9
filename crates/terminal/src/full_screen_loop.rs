//! The loop of the full-screen client: keys, frames and time go into the app, requests come out.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::Event;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use wire::native::{RequestEnvelope, ServerFrame};

use crate::app::{App, Effect, FullScreenOptions, Input};
use crate::connection::{Dial, Dialing, RetryDelay, ServerConnection, dial_after};
use crate::screen::{TerminalScreen, events};
use crate::session_opener::{OpenFailure, StartOptions};

/// How often the screen changes by time alone.
const TICK: Duration = Duration::from_millis(250);
/// Frames that are applied before the screen is drawn again.
const FRAMES_AT_ONCE: usize = 64;
/// Requests that wait for the server; with more of them, it counts as hung.
const OUTBOX_MAX: usize = 512;

/// How the full-screen client ended.
#[derive(Debug)]
pub enum ScreenExit {
    /// The person left; a hint to print.
    Left { words: Option<String> },
    /// There was no session to show.
    Failed(OpenFailure),
}

/// Everything that wakes the loop.
enum Wake {
    Stop,
    Terminal(Option<Event>),
    Frame(Option<ServerFrame>),
    Status(Vec<String>),
    Dialed(Result<ServerConnection, String>),
    Room,
    Tick,
}

struct Client<'a> {
    app: App,
    dial: &'a dyn Dial,
    connection: Option<ServerConnection>,
    dialing: Option<Dialing>,
    retry_delay: RetryDelay,
    outbox: VecDeque<RequestEnvelope>,
    began: Instant,
    screen: TerminalScreen,
    stops: [Signal; 2],
    status: Option<watch::Receiver<Vec<String>>>,
}

/// Runs until the person leaves. `status` are status lines of the program that runs the client, shown below the header.
pub async fn full_screen(
    start_options: StartOptions,
    options: FullScreenOptions,
    dial: &dyn Dial,
    mut status: Option<watch::Receiver<Vec<String>>>,
) -> io::Result<ScreenExit> {
    let stops = [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    // Lines from before the start are shown too.
    status.iter_mut().for_each(watch::Receiver::mark_changed);
    let screen = TerminalScreen::open()?;
    let mut client = Client {
        app: App::new(start_options, options),
        dial,
        connection: None,
        dialing: Some(dial.dial()),
        retry_delay: RetryDelay::default(),
        outbox: VecDeque::new(),
        began: Instant::now(),
        screen,
        stops,
        status,
    };
    client.run(events()?).await
}

impl Client<'_> {
    async fn run(&mut self, mut keys: mpsc::Receiver<Event>) -> io::Result<ScreenExit> {
        loop {
            self.screen.draw(&mut self.app)?;
            let wake = self.next(&mut keys).await;
            let inputs = match wake {
                // Without a terminal, nothing can be shown.
                Wake::Stop | Wake::Terminal(None) => {
                    return Ok(ScreenExit::Left { words: self.app.last_words() });
                }
                Wake::Terminal(Some(event)) => terminal_input(event).into_iter().collect(),
                Wake::Frame(Some(frame)) => self.frames(frame),
                Wake::Status(lines) => vec![Input::Status(lines)],
                Wake::Frame(None) => vec![self.reconnect("the server closed the connection".into())],
                Wake::Dialed(Ok(connection)) => {
                    self.connection = Some(connection);
                    self.dialing = None;
                    self.outbox.clear();
                    vec![Input::Connected]
                }
                Wake::Dialed(Err(why)) => vec![self.reconnect(why)],
                Wake::Room => Vec::new(),
                Wake::Tick => vec![Input::Tick],
            };
            for input in inputs {
                let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                for effect in self.app.apply(now, input) {
                    if let Some(exit) = self.carry_out(effect)? {
                        return Ok(exit);
                    }
                }
            }
        }
    }

    /// Keys go before frames, so that a person can stop a flood of output.
    async fn next(&mut self, keys: &mut mpsc::Receiver<Event>) -> Wake {
        let [terminate, hangup] = &mut self.stops;
        let ticks = self.app.ticks();
        let (requests, frames) = match &mut self.connection {
            Some(connection) => (Some(&connection.requests), Some(&mut connection.frames)),
            None => (None, None),
        };
        let wants_room = !self.outbox.is_empty();
        tokio::select! {
            biased;
            _ = terminate.recv() => Wake::Stop,
            _ = hangup.recv() => Wake::Stop,
            event = keys.recv() => Wake::Terminal(event),
            permit = reserve(requests), if wants_room => {
                // A closed connection is noticed when its frames end.
                if let (Some(permit), Some(envelope)) = (permit, self.outbox.pop_front()) {
                    permit.send(envelope);
                }
                Wake::Room
            }
            lines = next_status(self.status.as_mut()) => Wake::Status(lines),
            frame = receive(frames) => Wake::Frame(frame),
            dialed = dialed(&mut self.dialing) => Wake::Dialed(dialed),
            () = tokio::time::sleep(TICK), if ticks => Wake::Tick,
        }
    }

    /// This frame, and those that wait behind it.
    fn frames(&mut self, first: ServerFrame) -> Vec<Input> {
        self.retry_delay.reset();
        let mut inputs = vec![Input::Frame(Box::new(first))];
        if let Some(connection) = &mut self.connection {
            while let (true, Ok(frame)) = (inputs.len() < FRAMES_AT_ONCE, connection.frames.try_recv()) {
                inputs.push(Input::Frame(Box::new(frame)));
            }
        }
        inputs
    }

    fn reconnect(&mut self, why: String) -> Input {
        let wait = self.retry_delay.wait();
        self.connection = None;
        self.outbox.clear();
        self.dialing = Some(dial_after(self.dial, wait));
        Input::Disconnected { why, retry_ms: u64::try_from(wait.as_millis()).unwrap_or(0) }
    }

    fn carry_out(&mut self, effect: Effect) -> io::Result<Option<ScreenExit>> {
        match effect {
            Effect::Send(envelope) => {
                if self.outbox.len() < OUTBOX_MAX {
                    self.outbox.push_back(envelope);
                } else {
                    self.connection = None;
                    self.dialing =
                        Some(Box::pin(async { Err("the server does not accept requests".into()) }));
                }
            }
            Effect::Notify(text) => self.screen.notify(&text)?,
            Effect::Copy(text) => self.screen.copy(&text)?,
            Effect::Repaint => self.screen.repaint()?,
            Effect::Leave => return Ok(Some(ScreenExit::Left { words: self.app.last_words() })),
            Effect::Fail(failure) => return Ok(Some(ScreenExit::Failed(failure))),
        }
        Ok(None)
    }
}

fn terminal_input(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) => Some(Input::Key(key)),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Mouse(mouse) => Some(Input::Mouse(mouse)),
        Event::FocusGained => Some(Input::Focus(true)),
        Event::FocusLost => Some(Input::Focus(false)),
        // The size is read when the screen is drawn.
        Event::Resize(..) => None,
    }
}

async fn reserve(
    requests: Option<&mpsc::Sender<RequestEnvelope>>,
) -> Option<mpsc::Permit<'_, RequestEnvelope>> {
    match requests {
        Some(requests) => match requests.reserve().await {
            Ok(permit) => Some(permit),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Waits for the next status lines.
async fn next_status(status: Option<&mut watch::Receiver<Vec<String>>>) -> Vec<String> {
    if let Some(status) = status
        && status.changed().await.is_ok()
    {
        return status.borrow_and_update().clone();
    }
    std::future::pending().await
}

async fn receive(frames: Option<&mut mpsc::Receiver<ServerFrame>>) -> Option<ServerFrame> {
    match frames {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

async fn dialed(dialing: &mut Option<Dialing>) -> Result<ServerConnection, String> {
    match dialing {
        Some(dialing) => dialing.await,
        None => std::future::pending().await,
    }
}
