//! The loop of the full-screen client: keys, frames and time go into the app, requests come out.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::Event;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use wire::native::{Envelope, Frame};

use crate::app::{App, Effect, Input, Manner};
use crate::line::{Dial, Dialing, Line, Patience, later};
use crate::opening::{Failure, Wish};
use crate::screen::{Screen, events};

/// How often the screen changes by time alone.
const TICK: Duration = Duration::from_millis(250);
/// Frames that are taken before the screen is drawn again.
const FRAMES_AT_ONCE: usize = 64;
/// Requests that a server does not take: it hangs.
const OUTBOX_MAX: usize = 512;

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    /// Somebody left; what is worth knowing then.
    Left { words: Option<String> },
    /// There is no session to show.
    Failed(Failure),
}

/// Everything that wakes the loop.
enum Wake {
    Stop,
    Terminal(Option<Event>),
    Frame(Option<Frame>),
    Status(Vec<String>),
    Dialed(Result<Line, String>),
    Room,
    Tick,
}

struct Client<'a> {
    app: App,
    dial: &'a dyn Dial,
    line: Option<Line>,
    dialing: Option<Dialing>,
    patience: Patience,
    outbox: VecDeque<Envelope>,
    began: Instant,
    screen: Screen,
    stops: [Signal; 2],
    status: Option<watch::Receiver<Vec<String>>>,
}

/// Runs until somebody leaves. `status` is what the program around the client says of its state; it stands below the header.
pub async fn full_screen(
    wish: Wish,
    manner: Manner,
    dial: &dyn Dial,
    mut status: Option<watch::Receiver<Vec<String>>>,
) -> io::Result<Ended> {
    let stops = [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    // What was said before counts too.
    status.iter_mut().for_each(watch::Receiver::mark_changed);
    let screen = Screen::open()?;
    let mut client = Client {
        app: App::new(wish, manner),
        dial,
        line: None,
        dialing: Some(dial.dial()),
        patience: Patience::default(),
        outbox: VecDeque::new(),
        began: Instant::now(),
        screen,
        stops,
        status,
    };
    client.run(events()?).await
}

impl Client<'_> {
    async fn run(&mut self, mut keys: mpsc::Receiver<Event>) -> io::Result<Ended> {
        loop {
            self.screen.draw(&mut self.app)?;
            let wake = self.next(&mut keys).await;
            let inputs = match wake {
                // Without a terminal there is nobody to show anything to.
                Wake::Stop | Wake::Terminal(None) => {
                    return Ok(Ended::Left { words: self.app.last_words() });
                }
                Wake::Terminal(Some(event)) => of_terminal(event).into_iter().collect(),
                Wake::Frame(Some(frame)) => self.frames(frame),
                Wake::Status(lines) => vec![Input::Status(lines)],
                Wake::Frame(None) => vec![self.lost("the server closed the connection".into())],
                Wake::Dialed(Ok(line)) => {
                    self.line = Some(line);
                    self.dialing = None;
                    self.outbox.clear();
                    vec![Input::Connected]
                }
                Wake::Dialed(Err(why)) => vec![self.lost(why)],
                Wake::Room => Vec::new(),
                Wake::Tick => vec![Input::Tick],
            };
            for input in inputs {
                let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                for effect in self.app.apply(now, input) {
                    if let Some(ended) = self.carry_out(effect)? {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    /// Keys go first: whoever wants a flood to stop must be heard in it.
    async fn next(&mut self, keys: &mut mpsc::Receiver<Event>) -> Wake {
        let [terminate, hangup] = &mut self.stops;
        let ticks = self.app.ticks();
        let (requests, frames) = match &mut self.line {
            Some(line) => (Some(&line.requests), Some(&mut line.frames)),
            None => (None, None),
        };
        let wants_room = !self.outbox.is_empty();
        tokio::select! {
            biased;
            _ = terminate.recv() => Wake::Stop,
            _ = hangup.recv() => Wake::Stop,
            event = keys.recv() => Wake::Terminal(event),
            permit = reserve(requests), if wants_room => {
                // A line that is closed says so through its frames.
                if let (Some(permit), Some(envelope)) = (permit, self.outbox.pop_front()) {
                    permit.send(envelope);
                }
                Wake::Room
            }
            lines = said(self.status.as_mut()) => Wake::Status(lines),
            frame = receive(frames) => Wake::Frame(frame),
            dialed = dialed(&mut self.dialing) => Wake::Dialed(dialed),
            () = tokio::time::sleep(TICK), if ticks => Wake::Tick,
        }
    }

    /// This frame, and those that came with it.
    fn frames(&mut self, first: Frame) -> Vec<Input> {
        self.patience.calm();
        let mut inputs = vec![Input::Frame(Box::new(first))];
        if let Some(line) = &mut self.line {
            while let (true, Ok(frame)) = (inputs.len() < FRAMES_AT_ONCE, line.frames.try_recv()) {
                inputs.push(Input::Frame(Box::new(frame)));
            }
        }
        inputs
    }

    fn lost(&mut self, why: String) -> Input {
        let wait = self.patience.wait();
        self.line = None;
        self.outbox.clear();
        self.dialing = Some(later(self.dial, wait));
        Input::Cut { why, retry_ms: u64::try_from(wait.as_millis()).unwrap_or(0) }
    }

    fn carry_out(&mut self, effect: Effect) -> io::Result<Option<Ended>> {
        match effect {
            Effect::Send(envelope) => {
                if self.outbox.len() < OUTBOX_MAX {
                    self.outbox.push_back(envelope);
                } else {
                    self.line = None;
                    self.dialing = Some(Box::pin(async { Err("the server takes no requests".into()) }));
                }
            }
            Effect::Notify(text) => self.screen.notify(&text)?,
            Effect::Copy(text) => self.screen.copy(&text)?,
            Effect::Repaint => self.screen.repaint()?,
            Effect::Leave => return Ok(Some(Ended::Left { words: self.app.last_words() })),
            Effect::Fail(failure) => return Ok(Some(Ended::Failed(failure))),
        }
        Ok(None)
    }
}

fn of_terminal(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) => Some(Input::Key(key)),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Mouse(mouse) => Some(Input::Mouse(mouse)),
        Event::FocusGained => Some(Input::Focus(true)),
        Event::FocusLost => Some(Input::Focus(false)),
        // The next drawing asks for the size.
        Event::Resize(..) => None,
    }
}

async fn reserve(requests: Option<&mpsc::Sender<Envelope>>) -> Option<mpsc::Permit<'_, Envelope>> {
    match requests {
        Some(requests) => match requests.reserve().await {
            Ok(permit) => Some(permit),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Waits for the next change of what is said.
async fn said(status: Option<&mut watch::Receiver<Vec<String>>>) -> Vec<String> {
    if let Some(status) = status
        && status.changed().await.is_ok()
    {
        return status.borrow_and_update().clone();
    }
    std::future::pending().await
}

async fn receive(frames: Option<&mut mpsc::Receiver<Frame>>) -> Option<Frame> {
    match frames {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

async fn dialed(dialing: &mut Option<Dialing>) -> Result<Line, String> {
    match dialing {
        Some(dialing) => dialing.await,
        None => std::future::pending().await,
    }
}
