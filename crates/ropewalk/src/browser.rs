//! Opens the person's browser, where there is a screen to open it on.
//!
//! Every user of a machine can see the arguments of a program, and the link signs in. So the browser is
//! given a file that only the person can read, and the file leads it to the link.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::{random, url_safe};
use sandbox::{Command, Limits, Program, Service};

use crate::paths;
use crate::trouble::Trouble;

/// How long the program that opens the browser may take.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// It begins a session of its own, so that the browser stays when we end, and gets none of our pipes.
const DETACHED: &str = "exec setsid -f xdg-open \"$1\" </dev/null >/dev/null 2>&1";

/// Whether there is a screen.
pub fn has_screen() -> bool {
    cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| paths::variable(name).is_some())
}

/// Opens the link. The person has it on the terminal too, so a failure is only logged.
pub async fn open(link: &str) {
    match lead(link) {
        Ok(file) => {
            if tokio::time::timeout(OPENING_MAX, start(&file)).await.is_err() {
                tracing::info!("opening the browser took too long");
            }
        }
        Err(trouble) => tracing::info!(reason = trouble.in_short(), "the browser is not opened"),
    }
}

async fn start(file: &Path) {
    let (program, arguments) = if cfg!(target_os = "macos") {
        ("/usr/bin/open", vec![file.into()])
    } else {
        ("/bin/sh", vec!["-c".into(), DETACHED.into(), "sh".into(), file.into()])
    };
    let command = Command {
        program: Program::Exec { program: program.into(), arguments },
        cwd: PathBuf::from("/"),
        environment: paths::for_browser(),
        limits: Limits::default(),
        fence: None,
    };
    match Service::start(&command).await {
        Ok((mut service, _pipes)) => {
            let status = service.ended().await;
            tracing::info!(?status, "the browser was opened");
        }
        Err(error) => tracing::info!(%error, "the browser cannot be opened"),
    }
}

/// The file that leads to the link. Nobody says when the browser has read it, so it stays until the next
/// one is made; its link is worth nothing by then.
fn lead(link: &str) -> Result<PathBuf, Trouble> {
    let folder = paths::state()?.join("run");
    let write = || -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join("open.html");
        let unfinished = folder.join(format!(".open-{}", url_safe(&random()?[..9])));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        // The link has nothing in it that means something to HTML.
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0;url={link}\">\n\
             <title>Ropewalk</title>\n<a href=\"{link}\">Open Ropewalk</a>\n"
        );
        file.write_all(page.as_bytes())?;
        fs::rename(&unfinished, &path)?;
        Ok(path)
    };
    write().map_err(|error| Trouble::failed("the browser cannot be led").because(error))
}
