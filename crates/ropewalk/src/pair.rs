//! `ropewalk pair`: shows a QR code, waits for a device to use it, and asks whether to accept the device.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use access::devices::TICKET_LIFE;
use serde_json::json;
use tokio::time::Instant;
use wire::native::{DeviceView, Invitation, PairingRequest, ReplyBody, Request, Role};

use crate::cli::PairOptions;
use crate::cli_error::CliError;
use crate::devices::role;
use crate::output;
use crate::sealed_devices;
use crate::server_client::{self, Server};

/// How often to poll for a device. A person is waiting.
pub const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long an approved device may take to connect: it polls too.
const ENTER_WAIT: Duration = Duration::from_secs(30);
/// Light modules around a QR code.
const QUIET: usize = 4;

pub fn run(options: &PairOptions) -> ExitCode {
    match server_client::run(pair(options)) {
        Ok(code) => code,
        Err(error) => error.report(options.server.json),
    }
}

async fn pair(options: &PairOptions) -> Result<ExitCode, CliError> {
    if let Some(hub) = sealed_devices::bridged()? {
        return sealed_devices::pair(&hub, options).await;
    }
    if !options.yes && !io::stdin().is_terminal() {
        return Err(CliError::usage("pairing needs a terminal to confirm the device")
            .fix("run it on a terminal, or pass --yes to accept without asking"));
    }
    let server = Server::find(&options.server)?;
    let (before, waiting) = devices_and_knocks(&server).await?;
    let invitation = server.invite(options.role.role()).await?;
    if is_loopback(&invitation.url) {
        return Err(CliError::failed("the server is reachable from this machine only")
            .because("it listens on loopback")
            .fix("restart it for the local network with `ropewalk serve stop`, then `ropewalk up --lan`"));
    }
    show(&invitation, options.server.json)?;
    let knock = wait_for_knock(&server, (&invitation, options.role.role()), &waiting).await?;
    let name = output::one_line(&knock.name);
    let word = role(options.role.role());
    let question = format!("Pair \"{name}\" as {word}? Check that it shows these words: {}", knock.words);
    if !options.yes && !output::says_yes(&question)? {
        server.ask(&Request::Admit { knock: knock.id, role: None }).await?;
        return Err(CliError::failed(format!("{name} was not paired")));
    }
    server.ask(&Request::Admit { knock: knock.id, role: Some(options.role.role()) }).await?;
    let device = wait_for_device(&server, &before).await?;
    if options.server.json {
        output::put_json(&json!({ "device": device, "words": knock.words }))?;
    } else {
        output::put(&format!(
            "{name} is paired as {word}. To revoke it: ropewalk devices revoke {}\n",
            device.id
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn devices_and_knocks(server: &Server) -> Result<(Vec<DeviceView>, Vec<PairingRequest>), CliError> {
    match server.ask(&Request::Devices).await? {
        ReplyBody::Devices { devices, knocks } => Ok((devices, knocks)),
        _ => Err(CliError::failed("the server did not list its devices")),
    }
}

/// Waits for a new device that wants to pair.
async fn wait_for_knock(
    server: &Server,
    (invitation, role): (&Invitation, Role),
    before: &[PairingRequest],
) -> Result<PairingRequest, CliError> {
    let deadline = Instant::now() + TICKET_LIFE;
    while Instant::now() < deadline {
        let (_, knocks) = devices_and_knocks(server).await?;
        // Other invitations may be for other roles.
        let new =
            |knock: &PairingRequest| knock.role == role && before.iter().all(|known| known.id != knock.id);
        if let Some(knock) = knocks.into_iter().find(new) {
            return Ok(knock);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(CliError::failed(format!("no device used the code {}", invitation.code))
        .fix("check that the phone is on the same network, then run `ropewalk pair` again"))
}

/// Waits until the approved device has connected.
async fn wait_for_device(server: &Server, before: &[DeviceView]) -> Result<DeviceView, CliError> {
    let deadline = Instant::now() + ENTER_WAIT;
    while Instant::now() < deadline {
        let (devices, _) = devices_and_knocks(server).await?;
        // A browser that was paired before stays the same device, with a new time of its last visit.
        let here = |device: &&DeviceView| {
            let known = before.iter().find(|known| known.id == device.id);
            known.is_none_or(|known| known.seen_at != device.seen_at)
        };
        if let Some(device) = devices.iter().rfind(here) {
            return Ok(device.clone());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(CliError::failed("the device was approved but never connected")
        .fix("keep the page open and run `ropewalk pair` again"))
}

fn is_loopback(url: &str) -> bool {
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|host| authority.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')))
}

fn show(invitation: &Invitation, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::put_json(&json!({ "url": invitation.url, "code": invitation.code }));
    }
    let colours = io::stdout().is_terminal();
    output::put_bytes(qr_text(&invitation.qr, colours).as_bytes())?;
    output::put(&format!(
        "Scan the code with the phone's camera, or open\n\n  {}\n\nor type the code {} there. It works once, within five minutes.\n\n",
        invitation.url, invitation.code
    ))
}

/// Draws a QR code with two modules per character. With `colours`, it sets dark on light, readable on any background;
/// otherwise it draws the light modules, for dark terminals.
pub fn qr_text(rows: &[String], colours: bool) -> String {
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
        let text = qr_text(&rows, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "██████████");
        assert_eq!(lines[2], "████▄▀████");
        assert!(qr_text(&rows, true).lines().nth(2).unwrap().contains("    ▀▄    "));
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
