//! The file of a journal: made when the program starts, for its owner alone, and never over another file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use external::Journal;

use crate::secrets;
use crate::terminal::{self, one_line};
use crate::trouble::Trouble;

/// In a folder, the first number that is free.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=99_999;

/// Begins the journal of an agent, in a file or in a folder.
pub fn begin(agent: &str, place: &Path) -> Result<Journal, Trouble> {
    let redactor = secrets::redactor()?;
    let (mut file, path) = made(agent, place).map_err(|error| refused(place, &error))?;
    let write = move |line: &str| {
        // At once, so that it is there whatever happens to this program.
        let written = file.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = &written {
            let text = format!("the journal {} ends here, it cannot be written: {error}", path.display());
            terminal::say(&format!("{} {}", terminal::stderr_paint().warn("warning:"), one_line(&text)));
        }
        written.is_ok()
    };
    Ok(Journal::begin(agent, redactor, write))
}

fn made(agent: &str, place: &Path) -> io::Result<(File, PathBuf)> {
    if !place.is_dir() {
        return new(place).map(|file| (file, place.to_owned()));
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let agent: String = agent.chars().map(plain).collect();
    let mut free = NUMBERS.map(|number| place.join(format!("{agent}-{number}.jsonl")));
    let made = free.find_map(|path| match new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        made => Some(made.map(|file| (file, path))),
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

fn new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn refused(place: &Path, error: &io::Error) -> Trouble {
    let trouble = Trouble::failed(format!("there can be no journal {}", place.display()));
    match error.kind() {
        io::ErrorKind::AlreadyExists => trouble
            .because("there is such a file, and a journal is not written over another one")
            .fix("name another file, or a folder, where each start gets a file of its own"),
        _ => trouble.because(error).fix("name a file in a folder that is there and that you may write to"),
    }
}
