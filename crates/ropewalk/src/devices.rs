//! `ropewalk devices`: lists and revokes paired devices.

use std::process::ExitCode;

use access::sealed::SealedDevice;
use engine::{Clock, SystemClock, Timestamp};
use serde_json::json;
use wire::native::{DeviceView, ReplyBody, Request, Role};

use crate::cli::{DevicesCommand, DevicesListOptions, DevicesRevokeOptions};
use crate::cli_error::CliError;
use crate::output;
use crate::sealed_devices;
use crate::server_client::{self, Server};

pub fn run(command: &DevicesCommand) -> ExitCode {
    let (as_json, outcome) = match command {
        DevicesCommand::List(options) => (options.server.json, server_client::run(list(options))),
        DevicesCommand::Revoke(options) => (options.server.json, server_client::run(revoke(options))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(as_json),
    }
}

async fn list(options: &DevicesListOptions) -> Result<(), CliError> {
    let sealed = sealed_devices::devices()?;
    // Devices with end-to-end keys are known without a server.
    let devices = match Server::find(&options.server) {
        Ok(server) => fetch(&server).await?,
        Err(_) if !sealed.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    if options.server.json {
        let sealed: Vec<_> = sealed.iter().map(sealed_devices::as_json).collect();
        return output::put_json(&json!({ "devices": devices, "sealed": sealed }));
    }
    if devices.is_empty() && sealed.is_empty() {
        return output::put("No devices are paired. To pair one: ropewalk pair\n");
    }
    let names = devices.iter().map(|device| &device.name).chain(sealed.iter().map(|device| &device.name));
    let width = names.map(|name| name.chars().count()).max().unwrap_or_default();
    let now = SystemClock.now();
    let line = |device: &DeviceView| {
        let seen = device.seen_at.map_or_else(|| "never seen".to_owned(), |at| ago(Timestamp(at), now));
        let push = if device.push { "  notifications on" } else { "" };
        let name = output::one_line(&device.name);
        format!("{}  {name:width$}  {:8}  {seen}{push}\n", device.id, role(device.role))
    };
    let with_keys = |device: &SealedDevice| {
        let (name, role) = (output::one_line(&device.name), role(device.role));
        let paired = ago(Timestamp(device.created_at), now).replace("active ", "");
        format!("{}  {name:width$}  {role:8}  end to end, paired {paired}\n", device.id)
    };
    let lines = devices.iter().map(line).chain(sealed.iter().map(with_keys));
    output::put(&lines.collect::<String>())
}

async fn revoke(options: &DevicesRevokeOptions) -> Result<(), CliError> {
    let sealed = sealed_devices::devices()?;
    let server = match Server::find(&options.server) {
        Ok(server) => Some(server),
        Err(_) if !sealed.is_empty() => None,
        Err(error) => return Err(error),
    };
    let mut devices = match &server {
        Some(server) => fetch(server).await?,
        None => Vec::new(),
    };
    devices.extend(sealed.iter().map(sealed_devices::as_device));
    let meant = options.devices.iter().map(|wish| find(&devices, wish));
    let meant = meant.collect::<Result<Vec<_>, _>>()?;
    for device in &meant {
        if sealed.iter().any(|sealed| sealed.id == device.id) {
            sealed_devices::revoke(&device.id)?;
        } else if let Some(server) = &server {
            server.ask(&Request::Revoke { device: device.id.clone() }).await?;
        }
        if !options.server.json {
            output::put(&format!("revoked {}\n", output::one_line(&device.name)))?;
        }
    }
    if options.server.json {
        let ids: Vec<&str> = meant.iter().map(|device| device.id.as_str()).collect();
        output::put_json(&json!({ "revoked": ids }))?;
    }
    Ok(())
}

pub async fn fetch(server: &Server) -> Result<Vec<DeviceView>, CliError> {
    match server.ask(&Request::Devices).await? {
        ReplyBody::Devices { devices, .. } => Ok(devices),
        _ => Err(CliError::failed("the server did not list its devices")),
    }
}

/// Finds a device by its id, or by a name that only one device has.
fn find<'a>(devices: &'a [DeviceView], wish: &str) -> Result<&'a DeviceView, CliError> {
    if let Some(device) = devices.iter().find(|device| device.id == wish) {
        return Ok(device);
    }
    let named: Vec<&DeviceView> = devices.iter().filter(|device| device.name == wish).collect();
    match named.as_slice() {
        [device] => Ok(device),
        [] => Err(CliError::not_found(format!("device {wish:?} not found")).fix("ropewalk devices list")),
        several => {
            let ids: Vec<&str> = several.iter().map(|device| device.id.as_str()).collect();
            Err(CliError::usage(format!("more than one device is called {wish:?}"))
                .because(ids.join(", "))
                .fix("use the id"))
        }
    }
}

pub fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Approver => "approver",
        Role::Driver => "driver",
        Role::Owner => "owner",
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    let minutes = now.0.saturating_sub(at.0).max(0) / 60_000;
    match minutes {
        0..=1 => "active just now".into(),
        2..=119 => format!("active {minutes} minutes ago"),
        120..=2879 => format!("active {} hours ago", minutes / 60),
        _ => format!("active {} days ago", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, name: &str) -> DeviceView {
        DeviceView {
            id: id.into(),
            name: name.into(),
            role: Role::Driver,
            created_at: 0,
            seen_at: None,
            push: false,
            muted_until: None,
        }
    }

    #[test]
    fn a_device_is_meant_by_its_id_or_by_a_name_of_its_own() {
        let devices =
            [device("d1", "iPhone"), device("d2", "iPhone"), device("d3", "d1"), device("d4", "Pad")];
        let found = |wish: &str| find(&devices, wish).map(|device| device.id.as_str()).map_err(|t| t.text());
        assert_eq!(found("d1").as_deref(), Ok("d1"));
        assert_eq!(found("Pad").as_deref(), Ok("d4"));
        assert!(found("iPhone").is_err_and(|text| text.contains("d1, d2")));
        assert!(found("pad").is_err_and(|text| text.contains("not found")));
    }

    #[test]
    fn how_long_ago_is_said_roughly() {
        let said = |minutes: i64| ago(Timestamp(0), Timestamp(minutes * 60_000));
        assert_eq!(said(0), "active just now");
        assert_eq!(said(119), "active 119 minutes ago");
        assert_eq!(said(120), "active 2 hours ago");
        assert_eq!(said(3000), "active 2 days ago");
    }
}
