//! `ropewalk up`: the server with the web app, for a person; and `ropewalk link` for a running server.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use access::devices::Visitor;
use engine::{Principal, Standing};
use serde_json::json;
use wire::native::Role;

use crate::cli::{LinkOptions, UpOptions};
use crate::cli_error::CliError;
use crate::http_door::{HttpDoor, OpenHttpDoor, Shared};
use crate::lan::Lan;
use crate::running_servers::{self, RunningServer};
use crate::server_client::{self, Server};
use crate::session_store::SessionStore;
use crate::{open_browser, output, run, serve};

/// How many ports to try after the default one.
const PORTS_MORE: u16 = 20;

pub fn run(options: &UpOptions) -> anyhow::Result<ExitCode> {
    match prepare(options) {
        Ok(Some(up)) => serve::run_for_person(&options.serve(), up),
        Ok(None) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(error.report(false)),
    }
}

/// `None` if a server already runs: then its link was printed.
fn prepare(options: &UpOptions) -> Result<Option<UpSetup>, CliError> {
    let folder = run::folder(options.cwd.as_deref())?;
    let meant = |server: &RunningServer| options.port.is_none_or(|port| port == server.port);
    let servers = running_servers::all()?;
    let nearest = |server: &&RunningServer| {
        let its = server.folder().filter(|its| folder.starts_with(its));
        its.map_or(0, |its| its.components().count())
    };
    // Of several, the one that works in this folder or the nearest one above.
    if let Some(server) = servers.iter().filter(|server| meant(server)).max_by_key(nearest) {
        greet_again(server, &folder, options)?;
        return Ok(None);
    }
    let lan = Lan::prepare(options)?;
    Ok(Some(UpSetup {
        lan,
        ports_more: if options.port.is_some() { 0 } else { PORTS_MORE },
        no_open: options.no_open,
    }))
}

/// A server of this person already runs: signs in there.
fn greet_again(server: &RunningServer, folder: &Path, options: &UpOptions) -> Result<(), CliError> {
    let link = server_client::run(async {
        let link = Server::of(server)?.link().await?;
        if wants_browser(options.no_open) {
            open_browser::open(&link).await;
        }
        Ok(link)
    })?;
    let mut text = format!(
        "Ropewalk is already running. This link signs you in (once, within five minutes):\n\n  {link}\n\n"
    );
    if let Some(its) = server.folder().filter(|its| !folder.starts_with(its)) {
        text.push_str(&format!(
            "It works in {}. To work in this folder, start another server with --port, or stop that one first:\n  ropewalk serve stop\n",
            its.display()
        ));
    }
    let later = [
        ("--agent", options.agent.agent.is_some()),
        ("--lan", options.lan.is_some()),
        ("--bridge", options.bridge.bridge.is_some()),
    ];
    for (option, _) in later.into_iter().filter(|(_, given)| *given) {
        text.push_str(&format!(
            "To apply {option}, restart it: ropewalk serve stop, then run this command again.\n"
        ));
    }
    output::put(&text)
}

fn wants_browser(no_open: bool) -> bool {
    !no_open && std::io::stdout().is_terminal() && open_browser::has_screen()
}

/// The options of `up` that concern the person, not the server.
pub struct UpSetup {
    lan: Option<Lan>,
    ports_more: u16,
    no_open: bool,
}

impl UpSetup {
    /// Adapts the HTTP door for a person.
    pub fn adapt_door(&mut self, door: HttpDoor) -> HttpDoor {
        door.quiet().or_next_ports(self.ports_more).with_lan(self.lan.take())
    }

    /// Prints what to do next, and opens the browser.
    pub async fn show(&self, shared: &Shared, open: &OpenHttpDoor, thinks: &(&str, String)) {
        let owner = Visitor {
            principal: Principal::local(),
            name: "up".into(),
            role: Role::Owner,
            device: None,
            remote: None,
            standing: Standing::OwnerAtMachine,
        };
        // A browser may be faster than the disk.
        open.ready().await;
        let link = match shared.devices.login(&owner) {
            Ok(invitation) => invitation.url,
            Err(wrong) => {
                return output::say(&format!("could not create a sign-in link: {}", wrong.message));
            }
        };
        // If the output is closed, nobody reads the link.
        drop(output::put(&welcome(&link, shared, open, thinks)));
        if wants_browser(self.no_open) {
            open_browser::open(&link).await;
        }
    }
}

fn welcome(link: &str, shared: &Shared, open: &OpenHttpDoor, (who, thinks): &(&str, String)) -> String {
    let mut text = format!(
        "Ropewalk {} is running. This link signs you in (once, within five minutes):\n\n  {link}\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut line = |name: &str, said: &str| text.push_str(&format!("  {name:9} {said}\n"));
    line("folder", &shared.rules.home_dir.to_string_lossy());
    line(who, thinks);
    if shared.registry.is_ephemeral() {
        line("sessions", "in memory only, gone when this process exits (--ephemeral)");
    } else if let Ok(sessions) = SessionStore::chosen() {
        line("sessions", &sessions.location());
    }
    line("new link", "ropewalk link");
    match open.outside() {
        Some(_) => line("phone", "ropewalk pair"),
        None => line("phone", "ropewalk up --lan, then ropewalk pair"),
    }
    line("editors", "ropewalk editors");
    if let Some(outside) = open.outside() {
        text.push_str(&format!("\nOn this network: {outside}"));
        if let Some(fingerprint) = open.fingerprint() {
            text.push_str(&format!(
                "\nBrowsers warn about its self-signed certificate. Before you accept it, check that its SHA-256 fingerprint is\n  {fingerprint}\nNotifications need a certificate that the phone trusts: --tls-cert and --tls-key."
            ));
        }
        text.push('\n');
    }
    text.push_str("\nPress Ctrl-C to stop.\n");
    text
}

/// `ropewalk link`.
pub fn link(options: &LinkOptions) -> ExitCode {
    let linked = server_client::run(async { Server::find(&options.server)?.link().await });
    let said = linked.and_then(|link| match options.server.json {
        true => output::put_json(&json!({ "url": link })),
        false => output::put(&format!("{link}\n")),
    });
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(options.server.json),
    }
}
