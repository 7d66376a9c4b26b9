//! Opens the person's browser, if there is a display.
//!
//! The link signs in, and every user of a machine can see the arguments of a program. So the browser gets a private file,
//! which redirects it to the link.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::{random, url_safe};
use sandbox::{ChildCommand, CommandLimits, Program, ServiceProcess};

use crate::cli_error::CliError;
use crate::paths;

/// How long the program that opens the browser may take.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Starts a new session, so that the browser outlives us, and detaches it from our pipes.
const DETACHED: &str = "exec setsid -f xdg-open \"$1\" </dev/null >/dev/null 2>&1";

/// Whether there is a display.
pub fn has_screen() -> bool {
    cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| paths::variable(name).is_some())
}

/// Opens the link. It is also printed on the terminal, so a failure is only logged.
pub async fn open(link: &str) {
    match lead(link) {
        Ok(file) => {
            if tokio::time::timeout(OPENING_MAX, start(&file)).await.is_err() {
                tracing::info!("opening the browser took too long");
            }
        }
        Err(error) => tracing::info!(reason = error.summary(), "could not open the browser"),
    }
}

async fn start(file: &Path) {
    let (program, arguments) = if cfg!(target_os = "macos") {
        ("/usr/bin/open", vec![file.into()])
    } else {
        ("/bin/sh", vec!["-c".into(), DETACHED.into(), "sh".into(), file.into()])
    };
    let command = ChildCommand {
        program: Program::Exec { program: program.into(), arguments },
        cwd: PathBuf::from("/"),
        environment: paths::for_browser(),
        limits: CommandLimits::default(),
        fence: None,
    };
    match ServiceProcess::start(&command).await {
        Ok((mut service, _pipes)) => {
            let status = service.ended().await;
            tracing::info!(?status, "the browser was opened");
        }
        Err(error) => tracing::info!(%error, "could not open the browser"),
    }
}

/// Writes the file that redirects to the link. We cannot know when the browser has read it, so it stays until the next
/// one is written; its link has expired by then.
fn lead(link: &str) -> Result<PathBuf, CliError> {
    let folder = paths::state()?.join("run");
    let write = || -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join("open.html");
        let unfinished = folder.join(format!(".open-{}", url_safe(&random()?[..9])));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        // The link contains no HTML special characters.
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0;url={link}\">\n\
             <title>Ropewalk</title>\n<a href=\"{link}\">Open Ropewalk</a>\n"
        );
        file.write_all(page.as_bytes())?;
        fs::rename(&unfinished, &path)?;
        Ok(path)
    };
    write().map_err(|error| CliError::failed("could not open the browser").because(error))
}
