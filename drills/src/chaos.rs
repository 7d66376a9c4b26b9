//! `cargo xtask chaos`: every client behind a proxy that cuts, stalls and reorders its connections.
//!
//! `chaos [--cuts N] [--seed S]`
//!
//! The server is what the last `cargo build` made, or the program that `ROPEWALK_BIN` names.
//!
//! In each round one client works in a session of its own and others watch it, each over another
//! transport, while the proxy cuts their connections. Then the proxy is calm, and what each client has
//! seen must be what a reader saw that was never cut, and what the log holds: no gap, no double, every
//! prompt answered once. A fifth as many cuts follow while the server is killed and started again.
//!
//! The fates of connections are drawn from a seed that is printed: the same seed draws the same fates,
//! though the connections do not come in the same order.
//!
//! **Invariant:** a failed check stops the run and leaves the state folder as it is.

mod clients;
pub mod http_client;
mod judge;
mod proxy;
mod server;
mod socket;
mod view;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use self::clients::official::{PostOutcome, Remote};
use self::clients::{official, rest, websocket, zeph};
use self::judge::{Judge, SessionClients};
use self::proxy::Proxy;
use self::server::Server;
use crate::flags;
use crate::random::Random;

const CUTS_DEFAULT: u64 = 1_000;
/// A session is left alone before its load makes rounds slow.
const CUTS_PER_ROUND: u64 = 100;
const CUTS_PER_ROUND_WITH_KILLS: u64 = 40;
/// For so many cuts without a kill, one with kills.
const RESTARTS_EVERY: u64 = 5;
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How long a prompt of which nobody knows whether it arrived is waited for.
const UNKNOWN_WAIT: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(3);

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(args)?;
    println!("chaos: seed {}, state in {}", options.seed, options.home.display());
    let start = Instant::now();
    let mut run = Run { server: Server::start(&options.home)?, random: Random::new(options.seed) };
    let phases = [(options.cuts, false), (options.cuts.div_ceil(RESTARTS_EVERY), true)];
    let context = || format!("seed {}; the state is left in {}", options.seed, options.home.display());
    for (cuts, kills) in phases {
        run.phase(cuts, kills).with_context(context)?;
    }
    drop(run);
    println!("chaos: {:.1} s, every view is the log", start.elapsed().as_secs_f64());
    std::fs::remove_dir_all(&options.home).context("cannot remove the state folder")
}

struct Options {
    cuts: u64,
    seed: u64,
    home: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let (mut cuts, mut seed) = (CUTS_DEFAULT, 1);
        flags::read("chaos", args, |flag, value| {
            match flag {
                "--cuts" => cuts = value()?.parse()?,
                "--seed" => seed = value()?.parse()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let home = std::env::temp_dir().join(format!("ropewalk-chaos-{}-{seed}", std::process::id()));
        Ok(Self { cuts, seed, home })
    }
}

struct Run {
    server: Server,
    random: Random,
}

/// What a phase did, so that one which hit nothing is seen for what it is.
#[derive(Default)]
struct Tally {
    sessions: u64,
    prompts: u64,
    kills: u64,
    connections: u64,
    frames: u64,
    restarts: u64,
}

impl Run {
    fn phase(&mut self, cuts: u64, kills: bool) -> anyhow::Result<()> {
        let proxy = Proxy::start(self.server.address, self.random.next())?;
        let mut tally = Tally::default();
        while proxy.cuts() < cuts {
            let most = if kills { CUTS_PER_ROUND_WITH_KILLS } else { CUTS_PER_ROUND };
            let until = (proxy.cuts() + most).min(cuts);
            tally.sessions += 1;
            self.round(&proxy, until, kills, &mut tally)
                .with_context(|| format!("round {}, after {} cuts", tally.sessions, proxy.cuts()))?;
        }
        println!(
            "chaos: {} cuts ({}), {} kills of the server: {} prompts in {} sessions, {} frames over {} connections; \
             {} times zeph's client had to load again",
            proxy.cuts(),
            proxy.describe(),
            tally.kills,
            tally.prompts,
            tally.sessions,
            tally.frames,
            tally.connections,
            tally.restarts
        );
        Ok(())
    }

    fn round(&mut self, proxy: &Proxy, until: u64, kills: bool, tally: &mut Tally) -> anyhow::Result<()> {
        proxy.calm();
        let (near, far) = (self.server.web(self.server.address), self.server.web(proxy.address));
        let cwd = self.server.workspace();
        let (remote, worker, session) = official::usual(&far)?.open("worker", &cwd)?;
        let uncut = match kills {
            true => None,
            false => Some(Remote::connect(&near, None)?.load("uncut reader", &session, &cwd)?),
        };
        let followers = vec![
            worker,
            official::usual(&far)?.load("watcher", &session, &cwd)?,
            websocket::follow(&far, &session, &cwd)?,
            zeph::follow(&far, &session, &cwd)?,
        ];
        let rest = rest::Reader::follow(&far, &session);
        let judge = Judge { session: session.clone(), kills };
        let mut work = Work { run: self, remote, judge, sent: Vec::new(), tally };
        proxy.storm();
        let worked = work.until(|| proxy.cuts() >= until);
        proxy.calm();
        worked?;
        let Work { remote, judge, sent, .. } = work;
        let uncut = match uncut {
            Some(uncut) => uncut,
            None => Remote::connect(&near, None)?.load("late reader", &session, &cwd)?,
        };
        let seen = SessionClients {
            remote: &remote,
            sent: &sent,
            followers: &followers,
            rest: &rest,
            uncut: &uncut,
        };
        let judged = judge.settle(&self.server, &seen);
        for follower in followers.into_iter().chain([uncut]) {
            let seen = follower.shared.lock();
            tally.frames += seen.frames;
            tally.connections += seen.connections;
            tally.restarts += seen.restarts;
            drop(seen);
            follower.finish();
        }
        tally.frames += rest.shared.lock().frames;
        tally.connections += rest.shared.lock().connections;
        rest.finish();
        judged
    }
}

/// A request of the worker that changes something.
pub struct SentRequest {
    id: u64,
    prompt: bool,
    posted: PostOutcome,
}

/// The worker's round.
struct Work<'a> {
    run: &'a mut Run,
    remote: Remote,
    judge: Judge,
    sent: Vec<SentRequest>,
    tally: &'a mut Tally,
}

impl Work<'_> {
    fn until(&mut self, enough: impl Fn() -> bool) -> anyhow::Result<()> {
        while !enough() {
            for _ in 0..self.run.random.below(5) {
                self.change()?;
            }
            let mut waiting = Vec::new();
            for _ in 0..1 + self.run.random.below(2) {
                waiting.extend(self.prompt()?);
            }
            // The first of every round, so that none is without one.
            if self.judge.kills && (self.sent.len() <= 6 || self.run.random.below(3) == 0) {
                std::thread::sleep(self.run.random.moment_within(Duration::from_millis(300)));
                self.run.server.kill_and_restart()?;
                self.tally.kills += 1;
            }
            self.wait_for(&waiting)?;
        }
        Ok(())
    }

    fn prompt(&mut self) -> anyhow::Result<Option<u64>> {
        let text = prompt(&mut self.run.random, self.sent.len());
        loop {
            let (id, posted) = self.remote.prompt(&self.judge.session, &text)?;
            let again = posted == PostOutcome::TryAgain;
            let known = posted == PostOutcome::Accepted;
            self.sent.push(SentRequest { id, prompt: true, posted });
            if !again {
                self.tally.prompts += 1;
                return Ok(known.then_some(id));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// A change is told in several frames, which a cut may part.
    fn change(&mut self) -> anyhow::Result<()> {
        let (method, mut setting) = match self.run.random.below(4) {
            0 => ("session/set_mode", json!({"modeId": "architect"})),
            1 => ("session/set_mode", json!({"modeId": "code"})),
            2 => ("session/set_config_option", json!({"configId": "model", "value": "offline:terse"})),
            _ => ("session/set_config_option", json!({"configId": "model", "value": "offline:plain"})),
        };
        setting["sessionId"] = json!(self.judge.session);
        let (id, posted) = self.remote.post(method, &setting)?;
        self.sent.push(SentRequest { id, prompt: false, posted });
        Ok(())
    }

    /// Waits for the answers, and says yes to what is asked meanwhile. Prompts that may not have arrived
    /// are not waited for in particular; whether they were answered is judged by the log.
    fn wait_for(&mut self, waiting: &[u64]) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            self.remote.allow_all()?;
            let open: Vec<u64> = waiting.iter().copied().filter(|id| !self.remote.answered(*id)).collect();
            if open.is_empty() && (!waiting.is_empty() || start.elapsed() > UNKNOWN_WAIT) {
                return Ok(());
            }
            if start.elapsed() > ANSWER_MAX {
                bail!(
                    "the prompts {open:?} were not answered; faults: {:?}",
                    self.remote.shared.lock().faults
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The words that the offline model takes, in a mix that makes many frames and takes a while.
fn prompt(random: &mut Random, number: usize) -> String {
    let part = |random: &mut Random| match random.below(9) {
        0 | 1 => format!("stream {} {}", 1 + random.below(40), 20 + random.below(80)),
        2 => "think".to_owned(),
        3 => "plan".to_owned(),
        4 => format!("write f{}: x{number}", random.below(3)),
        5 => format!("run for i in 1 2 3; do echo line $i of {number}; sleep 0.01; done"),
        6 => format!("run echo {number} | tee out"),
        _ => format!("sleep {}\nstream {} 30", 5 + random.below(30), 1 + random.below(10)),
    };
    let parts: Vec<String> = (0..1 + random.below(4)).map(|_| part(random)).collect();
    parts.join("\n")
}
