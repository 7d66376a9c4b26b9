//! `ropewalk pair`: shows a QR code, waits for who comes with it, and asks whether to let them in.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use access::devices::TICKET_LIFE;
use serde_json::json;
use tokio::time::Instant;
use wire::native::{Answered, Device, Invitation, Knock, Request, Role};

use crate::cli::PairOptions;
use crate::client::{self, Server};
use crate::devices::role;
use crate::sealed;
use crate::terminal;
use crate::trouble::Trouble;

/// How often it is asked who has come. A person waits for it.
pub const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long a device that was let in may take to come in: it asks for itself.
const ENTER_WAIT: Duration = Duration::from_secs(30);
/// Modules around a QR code that stay light.
const QUIET: usize = 4;

pub fn run(options: &PairOptions) -> ExitCode {
    match client::run(pair(options)) {
        Ok(code) => code,
        Err(trouble) => trouble.report(options.server.json),
    }
}

async fn pair(options: &PairOptions) -> Result<ExitCode, Trouble> {
    if let Some(hub) = sealed::bridged()? {
        return sealed::pair(&hub, options).await;
    }
    if !options.yes && !io::stdin().is_terminal() {
        return Err(Trouble::usage("there is nobody here to ask whether to let it in")
            .fix("run it on a terminal, or with --yes"));
    }
    let server = Server::find(&options.server)?;
    let (before, waiting) = guests(&server).await?;
    let invitation = server.invite(options.role.role()).await?;
    if is_loopback(&invitation.url) {
        return Err(Trouble::failed("the server can be reached from this machine only")
            .because("it listens on loopback")
            .fix("start it for the network: ropewalk serve stop, then ropewalk up --lan"));
    }
    show(&invitation, options.server.json)?;
    let knock = knocked(&server, (&invitation, options.role.role()), &waiting).await?;
    let name = terminal::one_line(&knock.name);
    let word = role(options.role.role());
    let question = format!("Let «{name}» in as {word} (words: {})?", knock.words);
    if !options.yes && !terminal::says_yes(&question)? {
        server.ask(&Request::Admit { knock: knock.id, role: None }).await?;
        return Err(Trouble::failed(format!("{name} was not let in")));
    }
    server.ask(&Request::Admit { knock: knock.id, role: Some(options.role.role()) }).await?;
    let device = entered(&server, &before).await?;
    if options.server.json {
        terminal::put_json(&json!({ "device": device, "words": knock.words }))?;
    } else {
        terminal::put(&format!(
            "{name} is in as {word}. Shut it out: ropewalk devices revoke {}\n",
            device.id
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn guests(server: &Server) -> Result<(Vec<Device>, Vec<Knock>), Trouble> {
    match server.ask(&Request::Devices).await? {
        Answered::Devices { devices, knocks } => Ok((devices, knocks)),
        _ => Err(Trouble::failed("the server did not say who has come")),
    }
}

/// Waits for somebody who was not there before.
async fn knocked(
    server: &Server,
    (invitation, role): (&Invitation, Role),
    before: &[Knock],
) -> Result<Knock, Trouble> {
    let deadline = Instant::now() + TICKET_LIFE;
    while Instant::now() < deadline {
        let (_, knocks) = guests(server).await?;
        // Others may have invitations to something else.
        let new = |knock: &Knock| knock.role == role && before.iter().all(|known| known.id != knock.id);
        if let Some(knock) = knocks.into_iter().find(new) {
            return Ok(knock);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Trouble::failed(format!("nobody came with the code {}", invitation.code))
        .fix("check that the phone is in the same network, then ropewalk pair again"))
}

/// Waits until who was let in has come in.
async fn entered(server: &Server, before: &[Device]) -> Result<Device, Trouble> {
    let deadline = Instant::now() + ENTER_WAIT;
    while Instant::now() < deadline {
        let (devices, _) = guests(server).await?;
        // A browser that was in before stays the same device, and was seen just now.
        let here = |device: &&Device| {
            let known = before.iter().find(|known| known.id == device.id);
            known.is_none_or(|known| known.seen_at != device.seen_at)
        };
        if let Some(device) = devices.iter().rfind(here) {
            return Ok(device.clone());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Trouble::failed("it was let in and did not come").fix("keep the page open, and ropewalk pair again"))
}

fn is_loopback(url: &str) -> bool {
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|host| authority.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')))
}

fn show(invitation: &Invitation, as_json: bool) -> Result<(), Trouble> {
    if as_json {
        return terminal::put_json(&json!({ "url": invitation.url, "code": invitation.code }));
    }
    let colours = io::stdout().is_terminal();
    terminal::put_bytes(drawn(&invitation.qr, colours).as_bytes())?;
    terminal::put(&format!(
        "Point the phone's camera at it, or open\n\n  {}\n\nor type the code {} there. It works once, within five minutes.\n\n",
        invitation.url, invitation.code
    ))
}

/// Two modules in a character. On a terminal the colours are set, dark on light, so that it can be read
/// on either background; elsewhere light is drawn, as it is on most terminals.
pub fn drawn(rows: &[String], colours: bool) -> String {
    let width = rows.first().map_or(0, String::len) + 2 * QUIET;
    let dark = |x: usize, y: usize| {
        let inside = y.checked_sub(QUIET).zip(x.checked_sub(QUIET));
        let module = inside.and_then(|(y, x)| rows.get(y)?.as_bytes().get(x));
        module == Some(&b'1')
    };
    let mut out = String::new();
    for y in (0..rows.len() + 2 * QUIET).step_by(2) {
        if colours {
            out.push_str("\x1b[30;107m");
        }
        for x in 0..width {
            let (upper, lower) = (dark(x, y), dark(x, y + 1));
            out.push(match (upper == colours, lower == colours) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        out.push_str(if colours { "\x1b[0m\n" } else { "\n" });
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_drawn_with_its_quiet_zone() {
        let rows = ["10".to_owned(), "01".to_owned()];
        let text = drawn(&rows, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "██████████");
        assert_eq!(lines[2], "████▄▀████");
        assert!(drawn(&rows, true).lines().nth(2).unwrap().contains("    ▀▄    "));
    }

    #[test]
    fn what_only_this_machine_reaches_is_recognised() {
        for here in ["http://127.0.0.1:5173/pair#x", "http://localhost/pair#x", "http://[::1]:80/pair#x"] {
            assert!(is_loopback(here), "{here}");
        }
        for other in [
            "https://10.0.0.7:5173/pair#x",
            "https://localhost.example.org/pair#x",
            "https://127.0.0.1.example.org/",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
