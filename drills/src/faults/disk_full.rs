//! A disk that is full at some step of a start: the error is reported, and nothing is acknowledged that is not stored.

use std::path::Path;

use anyhow::Context;

use super::machine::{Fault, Tally};
use super::state_folder::StateFolder;
use xtask::command;

/// A first start and a prompt need less than this.
const ENOUGH_KIB: u64 = 2048;

pub fn run(home: &Path, steps: u64) -> anyhow::Result<Tally> {
    let mut tally = Tally::new("disk full at a step of the first start, then freed");
    let place = home.join("disk");
    std::fs::create_dir_all(&place)?;
    for step in 0..steps {
        let size = 4 + step * ENOUGH_KIB / steps.max(1);
        let option = format!("size={size}k");
        command::output(command::program("mount").args(["-t", "tmpfs", "-o", &option, "none"]).arg(&place))
            .context("a small file system needs root")?;
        let checked = check(&place, size, &mut tally);
        command::output(command::program("umount").arg(&place))?;
        checked.with_context(|| format!("{size} KiB"))?;
    }
    Ok(tally)
}

fn check(place: &Path, size: u64, tally: &mut Tally) -> anyhow::Result<()> {
    tally.runs += 1;
    let world = StateFolder::new(place)?;
    let ran = world.output(&["run", "stream 3"])?;
    if !ran.status.success() {
        tally.hit += 1;
        if ran.stderr.is_empty() {
            tally.fault(Fault::Wrong, format!("{size} KiB: it fails without a word"));
        }
    }
    command::output(command::program("mount").args(["-o", "remount,size=32m"]).arg(place))?;
    let sessions = world.sessions();
    let kept = sessions.as_ref().map_or(0, Vec::len);
    if ran.status.success() && kept != 1 {
        tally.fault(Fault::Lost, format!("{size} KiB: an answered run left {kept} sessions"));
    }
    // Space that is free again heals.
    let again = world.output(&["run", "stream 3"])?;
    if !again.status.success() {
        let told = String::from_utf8_lossy(&again.stderr).trim().to_owned();
        tally.fault(Fault::Wrong, format!("{size} KiB: it does not work with space either: {told}"));
    }
    Ok(())
}
