//! `ropewalk backup` and `ropewalk restore`: everything that outlives the process, in one file.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::json;
use store::{BackupFile, BackupReport};
use wire::timestamp;

use crate::cli::{BackupOptions, RestoreOptions};
use crate::trouble::Trouble;
use crate::{paths, running, terminal};

/// Files of the state folder. What is not among them can be made anew, or is of use to a running server only.
const STATE: [&str; 5] = ["devices.json", "sealed.json", "push.key", "http.token", "http.secret"];
/// Lines of damage that are shown one by one.
const DAMAGE_MAX: usize = 8;

/// Where the parts of a backup are on this machine, or in a folder of one's choice.
struct Places {
    state: PathBuf,
    audit_key: PathBuf,
    settings: PathBuf,
    rules: PathBuf,
}

impl Places {
    fn usual() -> Result<Self, Trouble> {
        Ok(Self {
            state: paths::state()?,
            audit_key: paths::audit_key()?,
            settings: paths::config()?,
            rules: paths::rules()?.user,
        })
    }

    /// As ROPEWALK_HOME has them.
    fn within(folder: &Path) -> io::Result<Self> {
        let state = std::path::absolute(folder)?;
        Ok(Self {
            audit_key: state.join("audit.key"),
            settings: state.join("config.toml"),
            rules: state.join("permissions.toml"),
            state,
        })
    }

    fn database(&self) -> PathBuf {
        self.state.join("sessions.db")
    }

    /// Where the file with this name in a backup belongs.
    fn of(&self, name: &str) -> Option<PathBuf> {
        match name {
            "audit.key" => Some(self.audit_key.clone()),
            "config.toml" => Some(self.settings.clone()),
            "permissions.toml" => Some(self.rules.clone()),
            "trusted_servers.toml" => Some(guard::trusted_file(&self.rules)),
            name if STATE.contains(&name) || name.starts_with("audit/") => Some(self.state.join(name)),
            _ => None,
        }
    }

    /// The files that there are.
    fn files(&self) -> io::Result<Vec<BackupFile>> {
        let mut names: Vec<String> = ["audit.key", "config.toml", "permissions.toml", "trusted_servers.toml"]
            .map(str::to_owned)
            .into();
        names.extend(STATE.map(str::to_owned));
        match fs::read_dir(self.state.join("audit")) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry?;
                    if let (true, Ok(name)) = (entry.file_type()?.is_file(), entry.file_name().into_string())
                    {
                        names.push(format!("audit/{name}"));
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let there = names.into_iter().filter_map(|name| Some((self.of(&name)?, name)));
        Ok(there.filter(|(path, _)| path.is_file()).map(|(path, name)| BackupFile { name, path }).collect())
    }
}

pub fn run(options: &BackupOptions) -> ExitCode {
    back_up(options).unwrap_or_else(|trouble| trouble.report(options.json))
}

fn back_up(options: &BackupOptions) -> Result<ExitCode, Trouble> {
    let places = Places::usual()?;
    let failed = |reason: String| Trouble::failed("the backup was not made").because(reason);
    let files = places.files().map_err(|error| failed(error.to_string()))?;
    let made_at = timestamp::rfc3339(SystemClock.now());
    let report =
        store::back_up(&places.database(), &files, &options.file, &made_at, options.force).map_err(failed)?;
    if options.json {
        terminal::put_json(&json!({ "file": options.file, "backup": as_json(&report) }))?;
    } else {
        tell_damage(&report);
        terminal::put(&format!("{}: {}\n", options.file.display(), in_words(&report)))?;
    }
    Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(report: &BackupReport) -> String {
    let BackupReport { bytes, sessions, events, files, .. } = report;
    format!("{sessions} sessions, {events} events, {} other files, {bytes} bytes, verified", files.len())
}

fn as_json(report: &BackupReport) -> serde_json::Value {
    let BackupReport { bytes, sessions, events, files, damage } = report;
    json!({ "bytes": bytes, "sessions": sessions, "events": events, "files": files, "damage": damage })
}

fn tell_damage(report: &BackupReport) {
    let warn = |text: &str| {
        let paint = terminal::stderr_paint();
        terminal::say(&format!("{} {}", paint.warn("warning:"), terminal::one_line(text)));
    };
    for line in report.damage.iter().take(DAMAGE_MAX) {
        warn(&format!("damaged in the store, and so in the backup: {line}"));
    }
    if report.damage.len() > DAMAGE_MAX {
        warn(&format!("{} more; see `ropewalk doctor --store --deep`", report.damage.len() - DAMAGE_MAX));
    }
}

pub fn run_restore(options: &RestoreOptions) -> ExitCode {
    restore(options).unwrap_or_else(|trouble| trouble.report(options.json))
}

fn restore(options: &RestoreOptions) -> Result<ExitCode, Trouble> {
    let shown = options.file.display();
    let failed = |reason: String| Trouble::failed("nothing was restored").because(reason);
    if !options.file.is_file() {
        return Err(Trouble::not_found(format!("there is no file {shown}")));
    }
    let report =
        store::verify_backup(&options.file).map_err(|reason| failed(format!("{shown}: {reason}")))?;
    let places = match &options.into {
        Some(folder) => Places::within(folder).map_err(|error| failed(error.to_string()))?,
        None => Places::usual()?,
    };
    refuse_running(&places, options.into.is_none())?;
    let set_aside = set_aside(&places, &report, options.force)?;
    let private = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder);
    private(&places.state).map_err(|error| failed(error.to_string()))?;
    let place = |name: &str, content: &[u8]| {
        let Some(path) = places.of(name) else {
            terminal::say(&format!("{name} is not known to this version and is left out"));
            return Ok(());
        };
        let written = path.parent().map_or(Ok(()), private).and_then(|()| write_private(&path, content));
        written.map_err(|error| format!("{}: {error}", path.display()))
    };
    store::restore_backup(&options.file, &places.database(), place).map_err(|reason| {
        let failed = Trouble::failed("the backup was not restored as a whole").because(reason);
        match &set_aside {
            Some(folder) => failed.fix(format!("what was there before is in {}", folder.display())),
            None => failed,
        }
    })?;
    if options.json {
        let into = places.state.display().to_string();
        let report = json!({ "into": into, "set_aside": set_aside, "backup": as_json(&report) });
        terminal::put_json(&report)?;
    } else {
        tell_damage(&report);
        if let Some(folder) = &set_aside {
            terminal::say(&format!("what was there before is in {}", folder.display()));
        }
        terminal::put(&format!("restored into {}: {}\n", places.state.display(), in_words(&report)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_running(places: &Places, usual: bool) -> Result<(), Trouble> {
    let servers = if usual { running::all()?.len() } else { 0 };
    if servers > 0 || store::is_in_use(&places.database()) {
        return Err(Trouble::failed("nothing was restored")
            .because(format!("a ropewalk uses the sessions in {}", places.state.display()))
            .fix("end it (ropewalk serve stop; close editors that run it), then restore again"));
    }
    Ok(())
}

/// Moves what the backup would replace into a folder named after the date. Refused unless forced.
fn set_aside(places: &Places, report: &BackupReport, force: bool) -> Result<Option<PathBuf>, Trouble> {
    let database = places.database();
    let mut there = Vec::new();
    for end in ["", "-wal", "-shm"] {
        let name = format!("sessions.db{end}");
        there.push((database.with_file_name(&name), name));
    }
    there.extend(report.files.iter().filter_map(|name| Some((places.of(name)?, name.clone()))));
    there.extend(store::audit::marks(&places.audit_key).into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((path, name))
    }));
    there.retain(|(path, _)| path.symlink_metadata().is_ok());
    // Rows of another history in the same folder would break the chain of the one that is restored.
    let audit = places.state.join("audit");
    if audit.is_dir() {
        there.retain(|(_, name)| !name.starts_with("audit/"));
        there.push((audit, "audit".to_owned()));
    }
    if there.is_empty() {
        return Ok(None);
    }
    if !force {
        let names: Vec<_> = there.iter().map(|(path, _)| path.display().to_string()).collect();
        return Err(Trouble::failed("nothing was restored")
            .because(format!("there is something already: {}", names.join(", ")))
            .fix("--force moves it aside first; --into DIR restores elsewhere"));
    }
    let now = timestamp::compact(SystemClock.now());
    let folder = places.state.join(format!("before-restore-{now}"));
    let moved = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .and_then(|()| there.iter().try_for_each(|(path, name)| fs::rename(path, folder.join(name))));
    moved.map_err(|error| {
        Trouble::failed("nothing was restored")
            .because(format!("what is there could not be moved aside: {error}"))
            .fix(format!("look into {}; what was moved is there", folder.display()))
    })?;
    Ok(Some(folder))
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
