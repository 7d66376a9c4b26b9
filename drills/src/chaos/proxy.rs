//! A proxy that is hard on connections: it cuts them at frame boundaries, at any byte of either
//! direction and after a while, stalls them, and delays one direction, so that connections overtake
//! each other.
//!
//! What becomes of a connection is drawn when it is made. While the proxy is calm nothing is done to
//! any of them, and connections that stand still are cut so that their clients come back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::http_client::find;
use super::socket::FrameLayout;
use crate::random::Random;

/// Frame boundaries are taken in turn, up to this many frames into a connection.
const FRAMES_MAX: u64 = 12;
const BYTES_MAX: u64 = 6_000;
const REQUEST_BYTES_MAX: u64 = 500;
const LIFE_MAX: Duration = Duration::from_millis(120);
const STALL: Duration = Duration::from_millis(900);
const DELAY_MAX_MS: u64 = 25;
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How often a pump that waits looks around.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    random: Mutex<Random>,
    calm: AtomicBool,
    over: AtomicBool,
    frames_turn: AtomicU64,
    tally: Tally,
    /// The connections that are open, to be cut when a storm begins.
    open: Mutex<Vec<Arc<Pair>>>,
}

/// Cuts by what they were made at.
#[derive(Default)]
pub struct Tally {
    pub at_frame: AtomicU64,
    pub at_byte: AtomicU64,
    pub in_request: AtomicU64,
    pub after_time: AtomicU64,
    pub after_stall: AtomicU64,
    pub delayed: AtomicU64,
}

/// What is done to one connection.
#[derive(Debug, Clone, Copy)]
struct Interference {
    end: End,
    delay_up: Duration,
    delay_down: Duration,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Frames(u64),
    Bytes(u64),
    RequestBytes(u64),
    Time(Duration),
    /// Goes silent after so many bytes, and is cut a while later.
    Stall(u64),
}

struct Pair {
    client: TcpStream,
    server: TcpStream,
    cut: AtomicBool,
}

impl Pair {
    /// Says whether it was this call that cut.
    fn cut(&self) -> bool {
        // An end that is closed already needs no closing.
        drop(self.client.shutdown(Shutdown::Both));
        drop(self.server.shutdown(Shutdown::Both));
        !self.cut.swap(true, Ordering::SeqCst)
    }
}

impl Proxy {
    pub fn start(target: SocketAddr, seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            random: Mutex::new(Random::new(seed)),
            calm: AtomicBool::new(true),
            over: AtomicBool::new(false),
            frames_turn: AtomicU64::new(0),
            tally: Tally::default(),
            open: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || shared.carry(client));
            }
        });
        Ok(Self { address, shared })
    }

    /// Begins a storm: what is open is cut, what comes is drawn a fate.
    pub fn storm(&self) {
        self.shared.calm.store(false, Ordering::SeqCst);
        for pair in locked(&self.shared.open).drain(..) {
            if pair.cut() {
                count(&self.shared.tally.after_time);
            }
        }
    }

    pub fn calm(&self) {
        self.shared.calm.store(true, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> u64 {
        let Tally { at_frame, at_byte, in_request, after_time, after_stall, delayed: _ } = &self.shared.tally;
        let counts = [at_frame, at_byte, in_request, after_time, after_stall];
        counts.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    pub fn describe(&self) -> String {
        let tally = &self.shared.tally;
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        format!(
            "{} at frame boundaries, {} at random bytes, {} in requests, {} after a while, {} after a stall; {} \
             connections delayed",
            read(&tally.at_frame),
            read(&tally.at_byte),
            read(&tally.in_request),
            read(&tally.after_time),
            read(&tally.after_stall),
            read(&tally.delayed)
        )
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        for pair in locked(&self.shared.open).drain(..) {
            pair.cut();
        }
        // Wakes the thread that takes connections, so that it sees the end.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn draw(&self) -> Interference {
        let mut random = locked(&self.random);
        let end = match random.below(10) {
            0..=3 => End::Frames(self.frames_turn.fetch_add(1, Ordering::SeqCst) % (FRAMES_MAX + 1)),
            4 | 5 => End::Bytes(random.below(BYTES_MAX)),
            6 => End::RequestBytes(random.below(REQUEST_BYTES_MAX)),
            7 | 8 => End::Time(Duration::from_micros(random.below(LIFE_MAX.as_micros() as u64))),
            _ => End::Stall(random.below(BYTES_MAX)),
        };
        let delay = |random: &mut Random| match random.below(4) {
            0 => Duration::from_millis(1 + random.below(DELAY_MAX_MS)),
            _ => Duration::ZERO,
        };
        let (delay_up, delay_down) = (delay(&mut random), delay(&mut random));
        Interference { end, delay_up, delay_down }
    }

    fn carry(self: Arc<Self>, client: TcpStream) {
        let calm = self.calm.load(Ordering::SeqCst);
        // A server that is being started again takes nobody; the client sees its connection close.
        let Ok(server) = TcpStream::connect_timeout(&self.target, CONNECT_MAX) else { return };
        let sockets = [&client, &server];
        let ready = sockets.iter().all(|socket| {
            socket.set_nodelay(true).is_ok() && socket.set_read_timeout(Some(LOOK_EVERY)).is_ok()
        });
        let (Ok(client_end), Ok(server_end), true) = (client.try_clone(), server.try_clone(), ready) else {
            return;
        };
        let pair = Arc::new(Pair { client, server, cut: AtomicBool::new(false) });
        {
            let mut open = locked(&self.open);
            open.retain(|pair| !pair.cut.load(Ordering::SeqCst));
            open.push(Arc::clone(&pair));
        }
        let interference = if calm { None } else { Some(self.draw()) };
        if interference
            .is_some_and(|interference| interference.delay_up + interference.delay_down > Duration::ZERO)
        {
            count(&self.tally.delayed);
        }
        let up = Arc::clone(&self);
        let of_up = Arc::clone(&pair);
        let (to_server, from_client) = (server_end, client_end);
        std::thread::spawn(move || up.pump_up(&of_up, interference, from_client, to_server));
        self.pump_down(&pair, interference);
    }

    fn stormy(&self) -> bool {
        !self.calm.load(Ordering::SeqCst)
    }

    fn pump_up(
        &self,
        pair: &Pair,
        interference: Option<Interference>,
        mut from: TcpStream,
        mut to: TcpStream,
    ) {
        let mut left = match interference.map(|interference| interference.end) {
            Some(End::RequestBytes(bytes)) => usize::try_from(bytes).ok(),
            _ => None,
        };
        let mut buffer = vec![0; 16 << 10];
        while !pair.cut.load(Ordering::SeqCst) {
            let count_read = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if waits(&error) => continue,
                Err(_) => break,
            };
            if let Some(interference) = interference {
                std::thread::sleep(interference.delay_up);
            }
            let whole = buffer.get(..count_read).unwrap_or_default();
            match left {
                Some(most) if most < whole.len() && self.stormy() => {
                    drop(to.write_all(whole.get(..most).unwrap_or_default()));
                    if pair.cut() {
                        count(&self.tally.in_request);
                    }
                    return;
                }
                Some(most) => left = Some(most.saturating_sub(whole.len())),
                None => {}
            }
            if to.write_all(whole).is_err() {
                break;
            }
        }
        // What was said before the client hung up has arrived; then the server hears that it did, unless
        // this connection is one that goes silent.
        if !matches!(interference, Some(Interference { end: End::Stall(_), .. })) || !self.stormy() {
            drop(to.shutdown(Shutdown::Write));
        }
    }

    fn pump_down(&self, pair: &Pair, interference: Option<Interference>) {
        let (Ok(mut from), Ok(mut to)) = (pair.server.try_clone(), pair.client.try_clone()) else { return };
        let begun = Instant::now();
        let mut frames = Frames::default();
        let mut passed = 0;
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(Interference { end: End::Time(life), .. }) = interference
                && begun.elapsed() > life
                && self.stormy()
            {
                return self.cut(pair, &self.tally.after_time);
            }
            let count_read = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if waits(&error) && !pair.cut.load(Ordering::SeqCst) => continue,
                Err(_) => break,
            };
            let bytes = buffer.get(..count_read).unwrap_or_default();
            if let Some(interference) = interference {
                std::thread::sleep(interference.delay_down);
            }
            let most = match interference.map(|interference| interference.end) {
                Some(End::Frames(wanted)) => frames.until(wanted, bytes),
                Some(End::Bytes(most) | End::Stall(most)) if passed + count_read as u64 > most => {
                    usize::try_from(most.saturating_sub(passed)).ok()
                }
                Some(_) | None => None,
            };
            let most = most.filter(|_| self.stormy());
            let passing = bytes.get(..most.unwrap_or(count_read)).unwrap_or_default();
            if to.write_all(passing).is_err() {
                break;
            }
            passed += passing.len() as u64;
            if most.is_some() {
                return match interference.map(|interference| interference.end) {
                    Some(End::Frames(_)) => self.cut(pair, &self.tally.at_frame),
                    Some(End::Stall(_)) => self.stall(pair),
                    _ => self.cut(pair, &self.tally.at_byte),
                };
            }
        }
        pair.cut();
    }

    fn cut(&self, pair: &Pair, tally: &AtomicU64) {
        if pair.cut() {
            count(tally);
        }
    }

    /// Neither end hears of it for a while. The client may have given the connection up by then, the
    /// server has not.
    fn stall(&self, pair: &Pair) {
        let until = Instant::now() + STALL;
        while Instant::now() < until && self.stormy() && !pair.cut.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_EVERY);
        }
        self.cut(pair, &self.tally.after_stall);
    }
}

/// Where the frames of an answer end: events of a stream, or frames of a WebSocket.
#[derive(Default)]
struct Frames {
    kind: Kind,
    seen: u64,
    /// What is not a whole frame yet.
    begun: Vec<u8>,
}

#[derive(Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Head,
    SseEvents,
    WebSocket,
    /// An answer that has no frames.
    Plain,
}

impl Frames {
    /// How many of these bytes belong to the first so-many frames, once those have ended.
    fn until(&mut self, wanted: u64, bytes: &[u8]) -> Option<usize> {
        let before = self.begun.len();
        self.begun.extend_from_slice(bytes);
        let mut used = 0_usize;
        loop {
            if self.kind != Kind::Head && self.kind != Kind::Plain && self.seen >= wanted {
                return Some(used.saturating_sub(before));
            }
            let rest = self.begun.get(used..).unwrap_or_default();
            let Some((end, kind)) = end(&self.kind, rest) else { break };
            match kind {
                Some(kind) => self.kind = kind,
                None => self.seen += 1,
            }
            used += end;
        }
        self.begun.drain(..used);
        None
    }
}

/// Where the head or the next frame ends, if it does here; after the head, what kind of frames follow.
fn end(kind: &Kind, rest: &[u8]) -> Option<(usize, Option<Kind>)> {
    match kind {
        Kind::Head => {
            let end = find(rest, b"\r\n\r\n")? + 4;
            let head = rest.get(..end).unwrap_or_default();
            let kind = if head.starts_with(b"HTTP/1.1 101") {
                Kind::WebSocket
            } else if find(head, b"text/event-stream").is_some() {
                Kind::SseEvents
            } else {
                Kind::Plain
            };
            Some((end, Some(kind)))
        }
        Kind::SseEvents => Some((find(rest, b"\n\n")? + 2, None)),
        Kind::WebSocket => {
            let layout = FrameLayout::of(rest)?;
            let end = layout.head + layout.payload;
            (rest.len() >= end).then_some((end, None))
        }
        Kind::Plain => None,
    }
}

fn waits(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::SeqCst);
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Frames;

    /// Feeds an answer piece by piece, and says after how many bytes so many frames had ended.
    fn check(answer: &[u8], piece: usize, wanted: u64, expected: Option<usize>) {
        let mut frames = Frames::default();
        let mut passed = 0;
        for bytes in answer.chunks(piece) {
            if let Some(most) = frames.until(wanted, bytes) {
                assert_eq!(Some(passed + most), expected);
                return;
            }
            passed += bytes.len();
        }
        assert_eq!(expected, None);
    }

    #[test]
    fn a_frame_ends_where_its_last_byte_is_however_it_arrives() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let events = [head.as_slice(), b"8\r\nid: 1\n\n", b"\r\n8\r\nid: 2\n\n\r\n"].concat();
        let socket =
            [b"HTTP/1.1 101 S\r\n\r\n".as_slice(), b"\x81\x02hi", b"\x81\x00", b"\x81\x03abc"].concat();
        for piece in [1, 3, 7, 1000] {
            check(&events, piece, 0, Some(head.len()));
            check(&events, piece, 1, Some(head.len() + 10));
            check(&events, piece, 2, Some(events.len() - 2));
            check(&events, piece, 3, None);
            check(&socket, piece, 1, Some(18 + 4));
            check(&socket, piece, 2, Some(18 + 6));
            check(&socket, piece, 3, Some(socket.len()));
            check(b"HTTP/1.1 202 Accepted\r\n\r\nxx", piece, 0, None);
        }
    }
}
