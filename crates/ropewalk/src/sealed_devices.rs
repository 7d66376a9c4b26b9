//! Devices with end-to-end keys of this machine: paired over a hub that cannot read the content, listed and revoked in
//! the key file.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::sealed::{self, SealedDevice, SealedEventOpener, Vault, VaultError};
use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::native::DeviceView;
use wire::session_archive::ArchiveHead;

use crate::cli::PairOptions;
use crate::cli_error::CliError;
use crate::devices::role;
use crate::output;
use crate::pair::{LOOK_EVERY, qr_text};
use crate::paths;

const WHICH_KEY: &str = "pass --key FILE with the sealed.json of the machine that sealed it; a backup of that machine contains it \
    (ropewalk restore BACKUP --into DIR)";

/// The vault that seals for this hub while it is open.
pub fn vault(machine: &str, hub: &str) -> Result<Vault, CliError> {
    Vault::open(&paths::sealed()?, machine, hub, Arc::new(SystemClock)).map_err(|error| cli_error(&error))
}

/// Opens the events of a sealed hub export, with the keys in a file or this machine's own.
pub fn opener(name: &str, head: &ArchiveHead, key: Option<&Path>) -> Result<SealedEventOpener, CliError> {
    let by = head.sealed.as_ref().ok_or_else(|| {
        CliError::failed(format!("could not import {name}"))
            .because("it does not name the machine that sealed it")
    })?;
    let path = match key {
        Some(key) => key.to_owned(),
        None => paths::sealed()?,
    };
    let opener =
        SealedEventOpener::read(&path, &by.machine, &by.session).map_err(|error| cli_error(&error))?;
    opener.ok_or_else(|| {
        let what = format!("{name} is sealed, but {} has no key for it", path.display());
        CliError::failed(what).fix(WHICH_KEY)
    })
}

/// The error for an event that the keys do not open.
pub fn not_opened(name: &str, place: usize, error: &VaultError) -> CliError {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    CliError::failed(format!("{name} is sealed, and event {place} could not be decrypted"))
        .because(why)
        .fix(WHICH_KEY)
}

/// The hub that this machine currently seals for.
pub fn bridged() -> Result<Option<String>, CliError> {
    sealed::bridged(&paths::sealed()?).map_err(|error| cli_error(&error))
}

/// Shows a code and waits for a device to use it. Does not ask: only the person who sees the code has it.
pub async fn pair(hub: &str, options: &PairOptions) -> Result<ExitCode, CliError> {
    let path = paths::sealed()?;
    let role_wanted = options.role.role();
    let now = SystemClock.now();
    let invited = sealed::invite(&path, role_wanted, now).map_err(|error| cli_error(&error))?;
    if options.server.json {
        output::put_json(&json!({ "url": invited.url, "hub": hub, "expires_at": invited.expires_at }))?;
    } else {
        output::put_bytes(qr_text(&invited.qr, io::stdout().is_terminal()).as_bytes())?;
        output::put(&format!(
            "Scan the code with the phone's camera, or open\n\n  {}\n\nThe device becomes {} here and can read what {} cannot. The code works once, within five minutes.\n\n",
            invited.url,
            role(role_wanted),
            output::one_line(hub),
        ))?;
    }
    let life = Duration::from_millis(u64::try_from(invited.expires_at - now.0).unwrap_or_default());
    let deadline = Instant::now() + life;
    while Instant::now() < deadline {
        if let Some(device) = sealed::paired(&path, &invited).map_err(|error| cli_error(&error))? {
            report_paired(&device, options.server.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(CliError::failed("no device used the code")
        .fix("sign in to the hub on that device, run `ropewalk pair` again and open the link there"))
}

fn report_paired(device: &SealedDevice, print_json: bool) -> Result<(), CliError> {
    if print_json {
        return output::put_json(&json!({ "device": as_json(device), "words": device.words }));
    }
    output::put(&format!(
        "{} is paired as {}. Check that it shows these words: {}\nTo revoke it: ropewalk devices revoke {}\n",
        output::one_line(&device.name),
        role(device.role),
        device.words,
        device.id
    ))
}

pub fn devices() -> Result<Vec<SealedDevice>, CliError> {
    sealed::devices(&paths::sealed()?).map_err(|error| cli_error(&error))
}

pub fn revoke(device: &str) -> Result<(), CliError> {
    sealed::revoke(&paths::sealed()?, device).map(drop).map_err(|error| cli_error(&error))
}

/// A device for `--json`.
pub fn as_json(device: &SealedDevice) -> Value {
    json!({ "id": device.id, "name": device.name, "role": device.role, "createdAt": device.created_at })
}

/// Converts it to a device that can be looked up by name.
pub fn as_device(device: &SealedDevice) -> DeviceView {
    DeviceView {
        id: device.id.clone(),
        name: device.name.clone(),
        role: device.role,
        created_at: device.created_at,
        seen_at: None,
        push: false,
        muted_until: None,
    }
}

fn cli_error(error: &VaultError) -> CliError {
    let because = std::error::Error::source(error).map(ToString::to_string);
    let failed = CliError::failed(error.to_string());
    match because {
        Some(because) => failed.because(because),
        None => failed,
    }
}
