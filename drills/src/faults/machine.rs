//! One machine and everything that can happen to it, with a table of what came of it.
//!
//! `faults --long [--kills N] [--cuts N] [--damage N] [--full N] [--seed S] [--table FILE]`
//!
//! The program under test is what the last `cargo build` made, or what `ROPEWALK_BIN` names. Moments are drawn
//! from a seed that is printed. A check that fails is counted and named, and the run goes on: the table says all
//! of it, and the run fails at its end.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};

use super::{backup_commands, cli, cuts, damage, disk_full, rest};
use crate::flags;
use crate::random::Random;
use xtask::command;

/// Any of these asks for this kind of run.
pub const FLAGS: [&str; 5] = ["--long", "--kills", "--cuts", "--damage", "--full"];
/// Set for the run that has the mount namespace.
const ALONE: &str = "ROPEWALK_FAULTS_ALONE";
/// Faults of one kind that are told one by one.
const TOLD_MAX: usize = 5;

struct Options {
    kills: u64,
    cuts: u64,
    damage: u64,
    full: u64,
    seed: u64,
    table: Option<PathBuf>,
}

/// What a kind of fault has done.
#[derive(Default)]
pub struct Tally {
    pub what: String,
    /// How often it was done.
    pub runs: u64,
    /// How often it hit something in the middle.
    pub hit: u64,
    pub lost: u64,
    pub doubled: u64,
    pub wrong: u64,
    pub reused: u64,
    pub told: Vec<String>,
}

/// What may be wrong afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Something was acknowledged and is not there.
    Lost,
    /// Something is there twice.
    Doubled,
    /// Something is there that nobody made, or only a part of what was made.
    Wrong,
    /// An id means something else than before.
    Reused,
}

impl Tally {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub fn fault(&mut self, fault: Fault, told: impl Into<String>) {
        *match fault {
            Fault::Lost => &mut self.lost,
            Fault::Doubled => &mut self.doubled,
            Fault::Wrong => &mut self.wrong,
            Fault::Reused => &mut self.reused,
        } += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(format!("{fault:?}: {}", told.into()));
        }
    }

    fn faults(&self) -> u64 {
        self.lost + self.doubled + self.wrong + self.reused
    }
}

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(args)?;
    if options.cuts + options.full > 0 && command::variable(ALONE).is_none() {
        // In a mount namespace of its own: whoever else makes one meanwhile would take our disks along, and a
        // disk that is held is not unmounted.
        let program = std::env::current_exe().context("finding this program")?;
        let mut again = command::program("unshare");
        again.arg("--mount").arg(program).arg("faults").args(args).env(ALONE, "1");
        return command::run(&mut again).context("power cuts and full disks need root");
    }
    let home = std::env::temp_dir().join(format!("ropewalk-faults-{}", std::process::id()));
    std::fs::create_dir_all(&home)?;
    println!("faults: seed {}, state in {}", options.seed, home.display());
    let (start, mut random) = (Instant::now(), Random::new(options.seed));
    let mut tallies = Vec::new();
    if options.kills > 0 {
        // Of ten kills, three hit commands that change sessions, two commands and answers that keep something, two
        // a server on standard input, two one over HTTP, one a pairing.
        let tenth = options.kills / 10;
        tallies.extend(cli::kills(&home.join("cli"), options.kills - 7 * tenth, &mut random)?);
        tallies.extend(backup_commands::kills(&home.join("keeping"), 2 * tenth, &mut random)?);
        tallies.push(cli::stdio(2 * tenth, options.seed)?);
        tallies.push(rest::kills(&home.join("rest"), 2 * tenth, &mut random)?);
        tallies.push(rest::pairing(&home.join("pairing"), tenth, &mut random)?);
    }
    if options.cuts > 0 {
        tallies.extend(cuts::run(&home.join("cuts"), options.cuts, &mut random)?);
    }
    if options.damage > 0 {
        tallies.extend(damage::run(&home.join("damage"), options.damage, &mut random)?);
    }
    if options.full > 0 {
        tallies.push(disk_full::run(&home.join("full"), options.full)?);
    }
    let table = table(&tallies);
    println!("{table}\nfaults: {:.0} s", start.elapsed().as_secs_f64());
    for tally in &tallies {
        tally.told.iter().for_each(|told| println!("{}: {told}", tally.what));
    }
    if let Some(path) = &options.table {
        let text = page(&options, &tallies, &table);
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let faults: u64 = tallies.iter().map(Tally::faults).sum();
    if faults > 0 {
        bail!("{faults} faults; the state is left in {}", home.display());
    }
    std::fs::remove_dir_all(&home).context("removing the state")
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let long = args.iter().any(|flag| flag == "--long");
        let usual = |count| if long { count } else { 0 };
        let (kills, cuts, damage, full) = (usual(1000), usual(200), usual(400), usual(64));
        let mut options = Self { kills, cuts, damage, full, seed: 7, table: None };
        flags::read("faults", args, |flag, value| {
            match flag {
                "--long" => {}
                "--kills" => options.kills = value()?.parse()?,
                "--cuts" => options.cuts = value()?.parse()?,
                "--damage" => options.damage = value()?.parse()?,
                "--full" => options.full = value()?.parse()?,
                "--seed" => options.seed = value()?.parse()?,
                "--table" => options.table = Some(value()?.into()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

/// The table as a page of the repository's documents.
fn page(options: &Options, tallies: &[Tally], table: &str) -> String {
    let Options { kills, cuts, damage, full, seed, .. } = options;
    let mut page = format!(
        "# Faults on one machine\n\n\
         Made by `cargo xtask faults --kills {kills} --cuts {cuts} --damage {damage} --full {full} --seed {seed} \
         --table FILE` with the built program. *In the middle* counts what hit something at work: a command that had \
         not ended, a turn, a session that could not be read whole. Of a power cut only what was acknowledged has to be \
         there: turns that were seen to their end, and prompts that were accepted.\n\n{table}\n"
    );
    let faults: u64 = tallies.iter().map(Tally::faults).sum();
    page.push_str(&format!("{faults} faults.\n"));
    let told = tallies.iter().flat_map(|tally| tally.told.iter().map(|told| (&tally.what, told)));
    for (what, told) in told {
        page.push_str(&format!("- {what}: {told}\n"));
    }
    page
}

fn table(tallies: &[Tally]) -> String {
    let mut out = String::from(
        "| what | times | in the middle | lost | doubled | wrong | ids reused |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for tally in tallies {
        let Tally { what, runs, hit, lost, doubled, wrong, reused, .. } = tally;
        out.push_str(&format!("| {what} | {runs} | {hit} | {lost} | {doubled} | {wrong} | {reused} |\n"));
    }
    out
}
