//! The file of a journal: created when the program starts, private, and never over an existing file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use external::AgentJournal;

use crate::cli_error::CliError;
use crate::output::{self, one_line};
use crate::secrets_to_redact;

/// In a folder, the file gets the first free number.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=99_999;

/// Starts the journal of an agent, in a file or in a folder.
pub fn begin(agent: &str, place: &Path) -> Result<AgentJournal, CliError> {
    let redactor = secrets_to_redact::redactor()?;
    let (mut file, path) = create(agent, place).map_err(|error| refused(place, &error))?;
    let write = move |line: &str| {
        // Written at once, so that nothing is lost if this process dies.
        let written = file.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = &written {
            let text = format!("could not write the journal {}; it ends here: {error}", path.display());
            output::say(&format!("{} {}", output::stderr_paint().warn("warning:"), one_line(&text)));
        }
        written.is_ok()
    };
    Ok(AgentJournal::begin(agent, redactor, write))
}

fn create(agent: &str, place: &Path) -> io::Result<(File, PathBuf)> {
    if !place.is_dir() {
        return create_new(place).map(|file| (file, place.to_owned()));
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let agent: String = agent.chars().map(plain).collect();
    let mut free = NUMBERS.map(|number| place.join(format!("{agent}-{number}.jsonl")));
    let made = free.find_map(|path| match create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        made => Some(made.map(|file| (file, path))),
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn refused(place: &Path, error: &io::Error) -> CliError {
    let failed = CliError::failed(format!("could not create the journal {}", place.display()));
    match error.kind() {
        io::ErrorKind::AlreadyExists => failed
            .because("the file already exists")
            .fix("choose another file, or a folder: each start creates its own file there"),
        _ => failed.because(error).fix("choose a file in an existing folder that you can write to"),
    }
}
