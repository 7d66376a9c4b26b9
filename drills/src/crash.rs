//! `cargo xtask crash`: kills the server at random moments and checks that nothing acknowledged is lost.
//!
//! `crash [--rounds N] [--seed S] [--serve-args "ARGS"] [--agent-command "COMMAND ARGS"]`
//!
//! The server is what the last `cargo build` made, or the program that `ROPEWALK_BIN` names.
//!
//! A round starts the server on the state the last one left behind, loads the session, compares it
//! with everything the driver was ever told, has a prompt answered, sends more work, and kills the
//! process somewhere in it. So each round checks the crash of the one before.
//!
//! The moments are drawn from a seed that is printed: the same seed gives the same plan, though not
//! the same interleaving in the server.
//!
//! **Invariant:** a failed check stops the run and leaves the state folder as it is.

mod check;
mod plan;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use self::check::{Replay, ReplayChecker};
use self::plan::{Moment, Plan};
use crate::flags;
use crate::peer::{Frame, Peer};
use crate::random::Random;

const ROUNDS_DEFAULT: u64 = 200;
/// A replay grows with every round; a session is left alone before that makes rounds slow.
const ROUNDS_PER_SESSION: u64 = 20;
/// Sessions that are loaded once more when all rounds are over.
const KEPT_SESSIONS_MAX: usize = 16;
const REPLY_MAX: Duration = Duration::from_secs(20);

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(args)?;
    let mut driver = Driver::new(&options)?;
    println!("crash: seed {}, state in {}", options.seed, driver.home.display());
    let start = Instant::now();
    for round in 1..=options.rounds {
        driver.round(round).with_context(|| {
            format!("round {round} of seed {}; the state is left in {}", options.seed, driver.home.display())
        })?;
    }
    driver.check_kept().with_context(|| format!("the state is left in {}", driver.home.display()))?;
    println!(
        "crash: {} kills in {:.1} s, nothing lost: {}",
        options.rounds,
        start.elapsed().as_secs_f64(),
        driver.tally.describe()
    );
    Ok(())
}

struct Options {
    rounds: u64,
    seed: u64,
    command: Vec<String>,
    home: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let (mut rounds, mut seed, mut serve_args, mut agent_command) =
            (ROUNDS_DEFAULT, 1, String::new(), None);
        flags::read("crash", args, |flag, value| {
            match flag {
                "--rounds" => rounds = value()?.parse()?,
                "--seed" => seed = value()?.parse()?,
                "--serve-args" => serve_args = value()?,
                "--agent-command" => agent_command = Some(value()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let command = match agent_command {
            Some(command) => words(&command),
            None => {
                let binary = xtask::command::server()?;
                let mut command = vec![binary.to_string_lossy().into_owned(), "serve".to_owned()];
                command.extend(words(&serve_args));
                command
            }
        };
        let home = std::env::temp_dir().join(format!("ropewalk-crash-{}-{seed}", std::process::id()));
        Ok(Self { rounds, seed, command, home })
    }
}

/// What the kills hit, so that a run which only ever hit idle servers is seen for what it is.
#[derive(Default)]
struct Tally {
    in_turn: u64,
    in_load: u64,
    in_start: u64,
    idle: u64,
    frames: u64,
    sessions: u64,
}

impl Tally {
    fn describe(&self) -> String {
        format!(
            "{} in a turn, {} in a load, {} while starting, {} idle; {} frames checked in {} sessions",
            self.in_turn, self.in_load, self.in_start, self.idle, self.frames, self.sessions
        )
    }
}

struct Driver {
    command: Vec<String>,
    home: PathBuf,
    random: Random,
    /// The session under test.
    checker: Option<ReplayChecker>,
    kept: Vec<ReplayChecker>,
    tally: Tally,
}

impl Driver {
    fn new(options: &Options) -> anyhow::Result<Self> {
        std::fs::create_dir_all(options.home.join("workspace"))?;
        let (command, home, random) =
            (options.command.clone(), options.home.clone(), Random::new(options.seed));
        Ok(Self { command, home, random, checker: None, kept: Vec::new(), tally: Tally::default() })
    }

    fn round(&mut self, round: u64) -> anyhow::Result<()> {
        let plan = Plan::draw(&mut self.random, round);
        if round % ROUNDS_PER_SESSION == 1 {
            self.change_session();
        }
        let mut peer = Peer::spawn(&self.command, &self.home)?;
        if plan.moment == Moment::Starting {
            peer.send_initialize()?;
            std::thread::sleep(plan.delay);
            self.tally.in_start += 1;
            return peer.kill().map(drop);
        }
        peer.initialize(REPLY_MAX)?;
        let Some(mut checker) = self.checker.take() else {
            let session = peer.new_session(REPLY_MAX)?;
            self.tally.sessions += 1;
            let mut checker = ReplayChecker::new(session);
            self.work(&mut peer, &mut checker, &plan)?;
            self.checker = Some(checker);
            return Ok(());
        };
        if plan.moment == Moment::Loading {
            self.kill_in_load(peer, &mut checker, &plan)?;
        } else {
            self.verify(&mut peer, &mut checker)?;
            self.work(&mut peer, &mut checker, &plan)?;
        }
        self.checker = Some(checker);
        Ok(())
    }

    fn change_session(&mut self) {
        if let Some(checker) = self.checker.take() {
            if self.kept.len() == KEPT_SESSIONS_MAX {
                self.kept.remove(0);
            }
            self.kept.push(checker);
        }
    }

    /// Loads the session, compares, and has a fresh prompt answered.
    fn verify(&mut self, peer: &mut Peer, checker: &mut ReplayChecker) -> anyhow::Result<()> {
        let replay = load(peer, checker)?;
        self.tally.frames += replay.frames;
        checker.check_replay(&replay)?;
        let events = peer.stored_events(&checker.session, REPLY_MAX)?;
        checker.check_events(events)?;
        let id = peer.send_prompt(&checker.session, "hi")?;
        checker.sent(id, "hi");
        listen(peer, checker, &plan::allow(), REPLY_MAX)?;
        let reason = checker.stop_reason(id).context("a fresh prompt after the restart was not answered")?;
        ensure!(reason == "end_turn", "a fresh prompt after the restart ended with {reason}");
        Ok(())
    }

    /// Sends the plan's prompts and kills the server when its moment has come.
    fn work(&mut self, peer: &mut Peer, checker: &mut ReplayChecker, plan: &Plan) -> anyhow::Result<()> {
        let mut answered = true;
        if plan.moment != Moment::BeforePrompt {
            for prompt in &plan.prompts {
                let id = peer.send_prompt(&checker.session, prompt)?;
                checker.sent(id, prompt);
            }
            let patience = if plan.moment == Moment::Idle { REPLY_MAX } else { plan.delay };
            answered = listen(peer, checker, plan, patience)?;
            ensure!(
                answered || plan.moment != Moment::Idle,
                "a prompt was not answered within {REPLY_MAX:?}"
            );
        }
        *if answered { &mut self.tally.idle } else { &mut self.tally.in_turn } += 1;
        if matches!(plan.moment, Moment::BeforePrompt | Moment::Idle) {
            std::thread::sleep(plan.delay);
        }
        // What was written before the kill is in the pipe, and a client would have read it.
        for frame in peer.kill()? {
            checker.received(&frame);
        }
        checker.cut_off();
        Ok(())
    }

    fn kill_in_load(
        &mut self,
        mut peer: Peer,
        checker: &mut ReplayChecker,
        plan: &Plan,
    ) -> anyhow::Result<()> {
        peer.send_load(&checker.session)?;
        std::thread::sleep(plan.delay);
        self.tally.in_load += 1;
        let mut partial = Replay::default();
        for frame in peer.kill()? {
            partial.push(&frame);
        }
        checker.cut_replay(partial);
        Ok(())
    }

    /// Sessions that were left alone must still be what they were.
    fn check_kept(&mut self) -> anyhow::Result<()> {
        self.change_session();
        let mut kept = std::mem::take(&mut self.kept);
        let mut peer = Peer::spawn(&self.command, &self.home)?;
        peer.initialize(REPLY_MAX)?;
        for checker in &mut kept {
            self.verify(&mut peer, checker).with_context(|| format!("session {}", checker.session))?;
        }
        peer.kill()?;
        std::fs::remove_dir_all(&self.home).context("cannot remove the state folder")
    }
}

fn load(peer: &mut Peer, checker: &ReplayChecker) -> anyhow::Result<Replay> {
    let id = peer.send_load(&checker.session)?;
    let deadline = Instant::now() + REPLY_MAX;
    let mut replay = Replay::default();
    loop {
        match peer.next(deadline)?.context("session/load was not answered")? {
            Frame::Response { id: answered, error: None, .. } if answered == id => return Ok(replay),
            Frame::Response { id: answered, error: Some(error), .. } if answered == id => {
                bail!("session/load of a session the server had named was refused: {error}")
            }
            frame => replay.push(&frame),
        }
    }
}

/// Takes in frames and answers permission requests until every prompt is answered or patience ends.
/// Returns whether all were answered.
fn listen(
    peer: &mut Peer,
    checker: &mut ReplayChecker,
    plan: &Plan,
    patience: Duration,
) -> anyhow::Result<bool> {
    let deadline = Instant::now() + patience;
    while checker.has_open_prompts() {
        let Some(frame) = peer.next(deadline)? else { return Ok(false) };
        checker.received(&frame);
        if let Frame::Request { id, params, .. } = &frame {
            peer.answer_permission(id, params, plan.answer)?;
        }
    }
    Ok(true)
}
