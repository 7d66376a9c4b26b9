//! `ropewalk backup`: all persistent state in one file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::json;
use store::{BackupFile, BackupReport};
use wire::timestamp;

use crate::cli::BackupOptions;
use crate::cli_error::CliError;
use crate::session_store::SessionStore;
use crate::{output, paths};

/// Files of the state folder to back up. The others can be recreated, or are for a running server only.
const STATE: [&str; 5] = ["devices.json", "sealed.json", "push.key", "http.token", "http.secret"];
/// Maximum number of damage lines to show.
const DAMAGE_MAX: usize = 8;

/// The paths of what a backup contains, on this machine or in a given folder.
pub struct StatePaths {
    pub state: PathBuf,
    pub audit_key: PathBuf,
    settings: PathBuf,
    rules: PathBuf,
}

impl StatePaths {
    pub fn usual() -> Result<Self, CliError> {
        Ok(Self {
            state: paths::state()?,
            audit_key: paths::audit_key()?,
            settings: paths::config()?,
            rules: paths::rules()?.user,
        })
    }

    /// The paths if `folder` is ROPEWALK_HOME.
    pub fn within(folder: &Path) -> io::Result<Self> {
        let state = std::path::absolute(folder)?;
        Ok(Self {
            audit_key: state.join("audit.key"),
            settings: state.join("config.toml"),
            rules: state.join("permissions.toml"),
            state,
        })
    }

    pub fn database(&self) -> PathBuf {
        self.state.join("sessions.db")
    }

    /// The path for a file with this name in a backup.
    pub fn of(&self, name: &str) -> Option<PathBuf> {
        match name {
            "audit.key" => Some(self.audit_key.clone()),
            "config.toml" => Some(self.settings.clone()),
            "permissions.toml" => Some(self.rules.clone()),
            "trusted_servers.toml" => Some(guard::trusted_file(&self.rules)),
            name if STATE.contains(&name) || name.starts_with("audit/") => Some(self.state.join(name)),
            _ => None,
        }
    }

    /// Whether this is the path of a file of the state itself.
    fn has(&self, path: &Path) -> bool {
        let real = |path: &Path| {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        };
        let Some(path) = real(path) else { return false };
        let names = ["audit.key", "config.toml", "permissions.toml", "trusted_servers.toml"];
        let mut own: Vec<_> = names.into_iter().chain(STATE).filter_map(|name| self.of(name)).collect();
        own.extend(["", "-wal", "-shm"].map(|end| self.state.join(format!("sessions.db{end}"))));
        own.extend(["state.lock", "machine.id"].map(|name| self.state.join(name)));
        let folders = ["audit", "owners", "undo", "bridge", "run", "lan"].map(|name| self.state.join(name));
        own.iter().any(|own| real(own).as_deref() == Some(&*path))
            || folders.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder)))
    }

    /// The existing files. One that cannot be read is an error: a backup without it would be restored as if it had never
    /// existed.
    pub fn files(&self) -> Result<Vec<BackupFile>, CliError> {
        let mut names: Vec<String> = ["audit.key", "config.toml", "permissions.toml", "trusted_servers.toml"]
            .map(str::to_owned)
            .into();
        names.extend(STATE.map(str::to_owned));
        names.extend(self.below("audit")?);
        let mut files = Vec::new();
        for name in names {
            let Some(path) = self.of(&name) else { continue };
            if store::open_regular(&path).map_err(|error| unreadable(&path, error))?.is_some() {
                files.push(BackupFile { name, path });
            }
        }
        Ok(files)
    }

    /// The names of all files below a folder of the state.
    fn below(&self, name: &str) -> Result<Vec<String>, CliError> {
        let folder = self.state.join(name);
        let failed = |error: io::Error| unreadable(&folder, error);
        if !store::is_there(&folder).map_err(failed)? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            let name = format!("{name}/{file}");
            match entry.file_type().map_err(failed)?.is_dir() {
                true => names.extend(self.below(&name)?),
                false => names.push(name),
            }
        }
        Ok(names)
    }
}

fn unreadable(path: &Path, error: io::Error) -> CliError {
    CliError::failed(format!("could not read {}", path.display()))
        .because(error)
        .fix("repair it, or delete it if you do not need it; run `ropewalk doctor` to check everything")
}

pub fn run(options: &BackupOptions) -> ExitCode {
    back_up(options).unwrap_or_else(|error| error.report(options.json))
}

fn back_up(options: &BackupOptions) -> Result<ExitCode, CliError> {
    let places = StatePaths::usual()?;
    let elsewhere = match SessionStore::chosen()? {
        SessionStore::File(_) => None,
        SessionStore::Postgres(address) => Some(address.shown),
    };
    let failed = |reason: String| CliError::failed("could not create the backup").because(reason);
    let files = places.files()?;
    if places.has(&options.file) {
        return Err(failed(format!("{} is part of the state that is backed up", options.file.display()))
            .fix("choose a file outside the state folder"));
    }
    let made_at = timestamp::rfc3339(SystemClock.now());
    let report =
        store::back_up(&places.database(), &files, &options.file, &made_at, options.force).map_err(failed)?;
    if options.json {
        let backup = as_json(&report);
        output::put_json(&json!({ "file": options.file, "backup": backup, "sessions_at": elsewhere }))?;
    } else {
        tell_damage(&report);
        if let Some(place) = &elsewhere {
            let paint = output::stderr_paint();
            let text =
                "they are not in this backup, which contains everything else; back up the database too";
            output::say(&format!(
                "{} sessions are stored in {place}: {text} (pg_dump)",
                paint.warn("warning:")
            ));
        }
        output::put(&format!("{}: {}\n", options.file.display(), in_words(&report)))?;
    }
    Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn in_words(report: &BackupReport) -> String {
    let BackupReport { bytes, sessions, events, files, .. } = report;
    format!("{sessions} sessions, {events} events, {} other files, {bytes} bytes, verified", files.len())
}

pub fn as_json(report: &BackupReport) -> serde_json::Value {
    let BackupReport { bytes, sessions, events, files, damage } = report;
    json!({ "bytes": bytes, "sessions": sessions, "events": events, "files": files, "damage": damage })
}

pub fn tell_damage(report: &BackupReport) {
    let warn = |text: &str| {
        let paint = output::stderr_paint();
        output::say(&format!("{} {}", paint.warn("warning:"), output::one_line(text)));
    };
    for line in report.damage.iter().take(DAMAGE_MAX) {
        warn(&format!("damaged in the store and in the backup: {line}"));
    }
    if report.damage.len() > DAMAGE_MAX {
        warn(&format!(
            "{} more; run `ropewalk doctor --store --deep` to list all",
            report.damage.len() - DAMAGE_MAX
        ));
    }
}
