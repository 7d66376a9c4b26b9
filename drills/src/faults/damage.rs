//! A store with changed bytes or a missing end: reads return what was written, or an error.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::machine::{Fault, Tally};
use super::state_folder::StateFolder;
use crate::random::Random;

const TEXTS: usize = 60;
const SESSIONS: usize = 3;
const PAGE: u64 = 4096;

pub fn run(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Vec<Tally>> {
    let sound = StateFolder::new(&home.join("sound"))?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let (archive, texts) = sound.archive(&format!("session {number}"), TEXTS)?;
        let id = sound.said(&["sessions", "import", &archive.to_string_lossy()])?.trim().to_owned();
        sessions.push((id, texts));
    }
    let store = fs::read(sound.state().join("sessions.db")).context("the store")?;
    let length = store.len() as u64;
    let mut flips = Tally::new("one byte of the store changed");
    for round in 0..count.div_ceil(2) {
        let (at, change) = (random.below(length) as usize, 1 + random.below(255) as u8);
        let mut bytes = store.clone();
        bytes[at] ^= change;
        let told = format!("byte {at} ^ {change}");
        check(&sound, &home.join("flipped"), &bytes, &sessions, (&told, &mut flips))
            .with_context(|| format!("flip {round}"))?;
    }
    let mut cut = Tally::new("the store cut off at a page");
    let pages = length / PAGE;
    let share = (count / 2).min(pages);
    for round in 0..share {
        let page = round * pages / share.max(1);
        let bytes = &store[..(page * PAGE) as usize];
        check(&sound, &home.join("cut"), bytes, &sessions, (&format!("page {page} of {pages}"), &mut cut))
            .with_context(|| format!("page {page}"))?;
    }
    Ok(vec![flips, cut])
}

fn check(
    sound: &StateFolder,
    home: &Path,
    store: &[u8],
    sessions: &[(String, Vec<String>)],
    (told, tally): (&str, &mut Tally),
) -> anyhow::Result<()> {
    tally.runs += 1;
    drop(fs::remove_dir_all(home));
    let world = StateFolder::new(home)?;
    fs::create_dir_all(world.state())?;
    for entry in fs::read_dir(sound.state())? {
        let entry = entry?;
        if entry.file_type()?.is_file() && !entry.file_name().to_string_lossy().starts_with("sessions.db") {
            fs::copy(entry.path(), world.state().join(entry.file_name()))?;
        }
    }
    fs::write(world.state().join("sessions.db"), store)?;
    let mut hit = false;
    for (id, texts) in sessions {
        let output = world.output(&["sessions", "export", id, "--format", "json"])?;
        if !output.status.success() {
            hit = true;
            if output.stderr.is_empty() {
                tally.fault(Fault::Wrong, format!("{told}: {id} is refused without a word"));
            }
            continue;
        }
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let export: serde_json::Value = serde_json::from_str(&shown).context("an export that is no JSON")?;
        let events = export["events"].as_array().context("events")?;
        let kind = |event: &serde_json::Value| event["event_type"] == "text";
        let shown: Vec<_> = events
            .iter()
            .filter(|event| kind(event))
            .filter_map(|event| event["payload"]["text"].as_str())
            .collect();
        let known: BTreeSet<_> = texts.iter().map(String::as_str).collect();
        if let Some(stranger) = shown.iter().find(|text| !known.contains(*text)) {
            tally.fault(Fault::Wrong, format!("{told}: {id} shows {stranger:?}"));
        }
        let said = !output.stderr.is_empty() || events.len() > shown.len();
        if shown.len() < texts.len() && !said {
            let (there, all) = (shown.len(), texts.len());
            tally.fault(Fault::Lost, format!("{told}: {id} shows {there} of {all} texts and says nothing"));
        }
        hit |= shown.len() < texts.len();
    }
    tally.hit += u64::from(hit);
    Ok(())
}
