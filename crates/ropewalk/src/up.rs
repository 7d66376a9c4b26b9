//! `ropewalk up`: the server for a person who wants to begin, and `ropewalk link` for one that runs.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use access::devices::Visitor;
use engine::{Principal, Standing};
use serde_json::json;
use wire::native::Role;

use crate::cli::{LinkOptions, UpOptions};
use crate::client::{self, Server};
use crate::doors::{Door, Open, Shared};
use crate::lan::Lan;
use crate::running::{self, Found};
use crate::session_store::SessionStore;
use crate::trouble::Trouble;
use crate::{browser, run, serve, terminal};

/// Ports that are tried after the usual one.
const PORTS_MORE: u16 = 20;

pub fn run(options: &UpOptions) -> anyhow::Result<ExitCode> {
    match prepare(options) {
        Ok(Some(up)) => serve::run_for_person(&options.serve(), up),
        Ok(None) => Ok(ExitCode::SUCCESS),
        Err(trouble) => Ok(trouble.report(false)),
    }
}

/// Nothing, if a server runs already: then its link was printed.
fn prepare(options: &UpOptions) -> Result<Option<Up>, Trouble> {
    let folder = run::folder(options.cwd.as_deref())?;
    let meant = |server: &Found| options.port.is_none_or(|port| port == server.port);
    let servers = running::all()?;
    let nearest = |server: &&Found| {
        let its = server.folder().filter(|its| folder.starts_with(its));
        its.map_or(0, |its| its.components().count())
    };
    // Of several the one that works here, or nearest above.
    if let Some(server) = servers.iter().filter(|server| meant(server)).max_by_key(nearest) {
        greet_again(server, &folder, options)?;
        return Ok(None);
    }
    let lan = Lan::prepare(options)?;
    Ok(Some(Up {
        lan,
        ports_more: if options.port.is_some() { 0 } else { PORTS_MORE },
        no_open: options.no_open,
    }))
}

/// A server of this person runs: it is enough to sign in there.
fn greet_again(server: &Found, folder: &Path, options: &UpOptions) -> Result<(), Trouble> {
    let link = client::run(async {
        let link = Server::of(server)?.link().await?;
        if wants_browser(options.no_open) {
            browser::open(&link).await;
        }
        Ok(link)
    })?;
    let mut text =
        format!("Ropewalk runs already. This link signs in, once, within five minutes:\n\n  {link}\n\n");
    if let Some(its) = server.folder().filter(|its| !folder.starts_with(its)) {
        text.push_str(&format!(
            "It works in {}. To work in this folder, start one of its own with --port, or end that one first:\n  ropewalk serve stop\n",
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
            "{option} takes effect when it is started anew: ropewalk serve stop, then this again.\n"
        ));
    }
    terminal::put(&text)
}

fn wants_browser(no_open: bool) -> bool {
    !no_open && std::io::stdout().is_terminal() && browser::has_screen()
}

/// What a person wants of a server besides serving.
pub struct Up {
    lan: Option<Lan>,
    ports_more: u16,
    no_open: bool,
}

impl Up {
    /// The door as it is opened for a person.
    pub fn fit(&mut self, door: Door) -> Door {
        door.quiet().or_next_ports(self.ports_more).with_lan(self.lan.take())
    }

    /// Says what to do next, and opens the browser.
    pub async fn show(&self, shared: &Shared, open: &Open, thinks: &(&str, String)) {
        let owner = Visitor {
            principal: Principal::local(),
            name: "up".into(),
            role: Role::Owner,
            device: None,
            remote: None,
            standing: Standing::OwnerAtMachine,
        };
        // A browser may be quicker than the disk.
        open.ready().await;
        let link = match shared.hall.login(&owner) {
            Ok(invitation) => invitation.url,
            Err(wrong) => {
                return terminal::say(&format!("there is no link to sign in: {}", wrong.message));
            }
        };
        // Whoever closed the output reads no link.
        drop(terminal::put(&welcome(&link, shared, open, thinks)));
        if wants_browser(self.no_open) {
            browser::open(&link).await;
        }
    }
}

fn welcome(link: &str, shared: &Shared, open: &Open, (who, thinks): &(&str, String)) -> String {
    let mut text = format!(
        "Ropewalk {} is up. This link signs in, once, within five minutes:\n\n  {link}\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut line = |name: &str, said: &str| text.push_str(&format!("  {name:9} {said}\n"));
    line("folder", &shared.rules.home_dir.to_string_lossy());
    line(who, thinks);
    if shared.registry.is_ephemeral() {
        line("sessions", "in memory only, gone when this ends (--ephemeral)");
    } else if let Ok(sessions) = SessionStore::chosen() {
        line("sessions", &sessions.shown());
    }
    line("link", "ropewalk link prints another");
    match open.outside() {
        Some(_) => line("phone", "ropewalk pair"),
        None => line("phone", "ropewalk up --lan, then ropewalk pair"),
    }
    line("editors", "ropewalk editors");
    if let Some(outside) = open.outside() {
        text.push_str(&format!("\nThis network reaches it at {outside}"));
        if let Some(fingerprint) = open.fingerprint() {
            text.push_str(&format!(
                ".\nBrowsers warn about its certificate, which is its own; it is the right one if its SHA-256 is\n  {fingerprint}\nNotifications need a certificate that the phone trusts: --tls-cert and --tls-key."
            ));
        }
        text.push('\n');
    }
    text.push_str("\nCtrl-C stops it.\n");
    text
}

/// `ropewalk link`.
pub fn link(options: &LinkOptions) -> ExitCode {
    let linked = client::run(async { Server::find(&options.server)?.link().await });
    let said = linked.and_then(|link| match options.server.json {
        true => terminal::put_json(&json!({ "url": link })),
        false => terminal::put(&format!("{link}\n")),
    });
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(options.server.json),
    }
}
