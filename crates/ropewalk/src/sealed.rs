//! Devices that hold keys of this machine: paired over a hub that cannot read along, listed and revoked by the file.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::sealed::{self, Opener, SealedDevice, Vault, VaultError};
use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::archive::Head;
use wire::native::Device;

use crate::cli::PairOptions;
use crate::devices::role;
use crate::pair::{LOOK_EVERY, drawn};
use crate::paths;
use crate::terminal;
use crate::trouble::Trouble;

const WHICH_KEY: &str = "--key FILE, with the sealed.json of the machine that sealed it; a backup of that machine has it \
    (ropewalk restore BACKUP --into DIR)";

/// What seals for this hub, as long as it lives.
pub fn vault(machine: &str, hub: &str) -> Result<Vault, Trouble> {
    Vault::open(&paths::sealed()?, machine, hub, Arc::new(SystemClock)).map_err(|error| trouble(&error))
}

/// What opens the events of an export that a hub made: with the keys in a file, or with this machine's own.
pub fn opener(name: &str, head: &Head, key: Option<&Path>) -> Result<Opener, Trouble> {
    let by = head.sealed.as_ref().ok_or_else(|| {
        Trouble::failed(format!("{name} cannot be imported"))
            .because("it does not say which machine sealed it")
    })?;
    let path = match key {
        Some(key) => key.to_owned(),
        None => paths::sealed()?,
    };
    let opener = Opener::read(&path, &by.machine, &by.session).map_err(|error| trouble(&error))?;
    opener.ok_or_else(|| {
        let what = format!("{name} is sealed, and there is no key for it in {}", path.display());
        Trouble::failed(what).fix(WHICH_KEY)
    })
}

/// The event at this place is not for the keys that were tried.
pub fn not_opened(name: &str, place: usize, error: &VaultError) -> Trouble {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Trouble::failed(format!("{name} is sealed, and its event {place} does not open"))
        .because(why)
        .fix(WHICH_KEY)
}

/// The hub that this machine seals for at the moment.
pub fn bridged() -> Result<Option<String>, Trouble> {
    sealed::bridged(&paths::sealed()?).map_err(|error| trouble(&error))
}

/// Shows a code, and waits for who comes with it. Nobody is asked: who has the code was shown it.
pub async fn pair(hub: &str, options: &PairOptions) -> Result<ExitCode, Trouble> {
    let path = paths::sealed()?;
    let role_wanted = options.role.role();
    let now = SystemClock.now();
    let invited = sealed::invite(&path, role_wanted, now).map_err(|error| trouble(&error))?;
    if options.server.json {
        terminal::put_json(&json!({ "url": invited.url, "hub": hub, "expires_at": invited.expires_at }))?;
    } else {
        terminal::put_bytes(drawn(&invited.qr, io::stdout().is_terminal()).as_bytes())?;
        terminal::put(&format!(
            "Point the phone's camera at it, or open\n\n  {}\n\nWho opens it is {} here, and reads what {} cannot. It works once, within five minutes.\n\n",
            invited.url,
            role(role_wanted),
            terminal::one_line(hub),
        ))?;
    }
    let life = Duration::from_millis(u64::try_from(invited.expires_at - now.0).unwrap_or_default());
    let deadline = Instant::now() + life;
    while Instant::now() < deadline {
        if let Some(device) = sealed::paired(&path, &invited).map_err(|error| trouble(&error))? {
            came(&device, options.server.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Trouble::failed("nobody came with the code")
        .fix("sign in at the hub on that device, open the link there, and ropewalk pair again"))
}

fn came(device: &SealedDevice, as_json: bool) -> Result<(), Trouble> {
    if as_json {
        return terminal::put_json(&json!({ "device": told(device), "words": device.words }));
    }
    terminal::put(&format!(
        "{} is paired as {}. On its screen stand the words: {}\nShut it out: ropewalk devices revoke {}\n",
        terminal::one_line(&device.name),
        role(device.role),
        device.words,
        device.id
    ))
}

pub fn devices() -> Result<Vec<SealedDevice>, Trouble> {
    sealed::devices(&paths::sealed()?).map_err(|error| trouble(&error))
}

pub fn revoke(device: &str) -> Result<(), Trouble> {
    sealed::revoke(&paths::sealed()?, device).map(drop).map_err(|error| trouble(&error))
}

/// As it is listed for programs.
pub fn told(device: &SealedDevice) -> Value {
    json!({ "id": device.id, "name": device.name, "role": device.role, "createdAt": device.created_at })
}

/// As one of the devices that can be meant.
pub fn as_device(device: &SealedDevice) -> Device {
    Device {
        id: device.id.clone(),
        name: device.name.clone(),
        role: device.role,
        created_at: device.created_at,
        seen_at: None,
        push: false,
        muted_until: None,
    }
}

fn trouble(error: &VaultError) -> Trouble {
    let because = std::error::Error::source(error).map(ToString::to_string);
    let trouble = Trouble::failed(error.to_string());
    match because {
        Some(because) => trouble.because(because),
        None => trouble,
    }
}
