//! `ropewalk restore`: restores a backup.
//!
//! Everything is first staged next to its destination. Then a plan of all moves is written and carried out; each step can be
//! repeated. So a restore that is killed before its plan is written has changed nothing, and one that is killed later is
//! finished by the next command, before that reads anything. A restore holds the state folder exclusively ([`StateLock`]).
//!
//! **Invariant:** at no moment is a file with rules, settings or keys missing that existed before.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::BackupReport;
use wire::timestamp;

use crate::backup::{StatePaths, as_json, in_words, tell_damage};
use crate::cli::RestoreOptions;
use crate::cli_error::CliError;
use crate::state_lock::StateLock;
use crate::{output, paths};

/// The file name of the plan, in the state folder.
const PLAN: &str = "restore-plan.json";
/// The suffix of staged files.
const STAGED: &str = "restoring";
/// Maximum number of restores per second: each needs its own folder for the old state.
const SAME_SECOND_MAX: u32 = 100;

/// The steps, in order. Each may already have been done.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RestorePlan {
    /// The backup, for messages.
    backup: PathBuf,
    /// The folder for the old state; `None` if there was none.
    set_aside: Option<PathBuf>,
    /// Files to copy to `set_aside`, under this name, before they are replaced.
    copied: Vec<(PathBuf, String)>,
    /// Large files and folders to move to `set_aside`, under this name.
    moved: Vec<(PathBuf, String)>,
    /// Copied files that are not replaced.
    removed: Vec<PathBuf>,
    /// Staged files, and their destinations.
    placed: Vec<(PathBuf, PathBuf)>,
}

pub fn run(options: &RestoreOptions) -> ExitCode {
    restore(options).unwrap_or_else(|error| error.report(options.json))
}

fn restore(options: &RestoreOptions) -> Result<ExitCode, CliError> {
    let shown = options.file.display();
    let failed = |reason: String| {
        CliError::failed("could not restore the backup; nothing was changed").because(reason)
    };
    if !options.file.is_file() {
        return Err(CliError::not_found(format!("file {shown} not found")));
    }
    let report =
        store::verify_backup(&options.file).map_err(|reason| failed(format!("{shown}: {reason}")))?;
    let places = match &options.into {
        Some(folder) => StatePaths::within(folder).map_err(|error| failed(error.to_string()))?,
        None => StatePaths::usual()?,
    };
    let _alone = StateLock::alone(&places.state)?;
    finish_interrupted(&places.state)?;
    refuse_open_store(&places)?;
    let mut plan = replaced(&places, &report, options)?;
    stage(&places, options, &mut plan).map_err(|reason| {
        remove_staged(&places, &plan);
        failed(reason)
    })?;
    let written = write_plan(&places.state, &plan).and_then(|()| finish(&places.state));
    let set_aside = plan.set_aside;
    written.map_err(|error| {
        CliError::failed("the restore is not finished").because(error).fix(match options.into {
            None => "fix the cause, then run any ropewalk command to finish the restore",
            Some(_) => "fix the cause, then run the same restore command again",
        })
    })?;
    if options.json {
        let into = places.state.display().to_string();
        let report = json!({ "into": into, "set_aside": set_aside, "backup": as_json(&report) });
        output::put_json(&report)?;
    } else {
        tell_damage(&report);
        if let Some(folder) = &set_aside {
            output::say(&format!("the previous state is in {}", folder.display()));
        }
        output::put(&format!("restored into {}: {}\n", places.state.display(), in_words(&report)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Other programs and older versions may have the store open without holding the lock.
fn refuse_open_store(places: &StatePaths) -> Result<(), CliError> {
    if store::is_in_use(&places.database()) {
        return Err(CliError::failed("could not restore the backup; nothing was changed")
            .because(format!("another program has {} open", places.database().display()))
            .fix("stop it (ropewalk serve stop, or close the editors that run it), then restore again"));
    }
    Ok(())
}

/// The plan for moving the old state aside, into a folder named after the date. Refused without --force.
fn replaced(
    places: &StatePaths,
    report: &BackupReport,
    options: &RestoreOptions,
) -> Result<RestorePlan, CliError> {
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (path, name)
    };
    let mut moved: Vec<_> = ["sessions.db", "sessions.db-wal", "sessions.db-shm", "audit"]
        .map(|name| (places.state.join(name), name.to_owned()))
        .into();
    moved.retain(|(path, _)| path.symlink_metadata().is_ok());
    let files = report.files.iter().filter(|name| !name.starts_with("audit/"));
    let mut copied: Vec<_> = files.filter_map(|name| Some((places.of(name)?, name.clone()))).collect();
    // Audit marks of the old history would report the restored log as cut.
    let mut marks: Vec<_> = store::audit::marks(&places.audit_key).into_iter().map(named).collect();
    copied.retain(|(path, _)| path.is_file());
    marks.retain(|(path, _)| path.is_file());
    let removed = marks.iter().map(|(path, _)| path.clone()).collect();
    copied.extend(marks);
    let mut plan =
        RestorePlan { backup: options.file.clone(), moved, copied, removed, ..RestorePlan::default() };
    if plan.moved.is_empty() && plan.copied.is_empty() {
        return Ok(plan);
    }
    if !options.force {
        let names: Vec<_> =
            plan.moved.iter().chain(&plan.copied).map(|(path, _)| path.display().to_string()).collect();
        return Err(CliError::failed("could not restore the backup; nothing was changed")
            .because(format!("there is existing state: {}", names.join(", ")))
            .fix("pass --force to move it aside, or --into DIR to restore elsewhere"));
    }
    let now = timestamp::compact(SystemClock.now());
    // Never overwrites what another restore set aside in the same second.
    let named = |number: u32| match number {
        0 => places.state.join(format!("before-restore-{now}")),
        _ => places.state.join(format!("before-restore-{now}-{number}")),
    };
    let free = |folder: &PathBuf| folder.symlink_metadata().is_err();
    plan.set_aside = Some((0..SAME_SECOND_MAX).map(named).find(free).ok_or_else(|| {
        CliError::failed("could not restore the backup; nothing was changed")
            .because("too many restores in one second")
            .fix("try again")
    })?);
    Ok(plan)
}

/// Writes the content of the backup next to its destinations, where nothing reads it.
fn stage(places: &StatePaths, options: &RestoreOptions, plan: &mut RestorePlan) -> Result<(), String> {
    let audit = staged(&places.state.join("audit"));
    let said = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    // Left over from a killed restore.
    match fs::remove_dir_all(&audit) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(said(&audit, error)),
        Ok(()) | Err(_) => {}
    }
    let database = places.database();
    let place = |name: &str, content: &[u8]| {
        let (path, target) = match name.strip_prefix("audit/") {
            Some(name) => (audit.join(name), None),
            None => match places.of(name) {
                Some(target) => (staged(&target), Some(target)),
                None => {
                    output::say(&format!("skipping {name}, which this version does not know"));
                    return Ok(());
                }
            },
        };
        let written =
            path.parent().map_or(Ok(()), create_private_dir).and_then(|()| write_private(&path, content));
        plan.placed.extend(target.map(|target| (path.clone(), target)));
        written.map_err(|error| said(&path, error))
    };
    store::restore_backup(&options.file, &staged(&database), place)?;
    if audit.is_dir() {
        sync(&audit).map_err(|error| said(&audit, error))?;
        plan.placed.push((audit, places.state.join("audit")));
    }
    // Last, so that sessions never appear without their rules and audit.
    plan.placed.push((staged(&database), database));
    Ok(())
}

/// Removes the staged files of a failed restore.
fn remove_staged(places: &StatePaths, plan: &RestorePlan) {
    let database = staged(&places.database());
    for path in plan.placed.iter().map(|(staged, _)| staged).chain([&database]) {
        // It may not have been written yet.
        drop(fs::remove_file(path));
    }
    drop(fs::remove_dir_all(staged(&places.state.join("audit"))));
}

fn staged(place: &Path) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(STAGED);
    place.with_file_name(name)
}

/// Writes the plan durably: from then on, the restore will be completed.
fn write_plan(state: &Path, plan: &RestorePlan) -> io::Result<()> {
    let path = state.join(PLAN);
    for (staged, _) in &plan.placed {
        staged.parent().map_or(Ok(()), sync)?;
    }
    write_private(&staged(&path), &serde_json::to_vec_pretty(plan)?)?;
    fs::rename(staged(&path), &path)?;
    sync(state)
}

/// For every other command: a shared lock on the state folder, which is created if `make` is set. Finishes an
/// interrupted restore first.
pub fn lock_state(make: bool) -> Result<Option<StateLock>, CliError> {
    // A command that needs the state folder reports it.
    let Ok(state) = paths::state() else { return Ok(None) };
    if make {
        // A command that needs the folder reports the error.
        drop(create_private_dir(&state));
    }
    loop {
        let shared = StateLock::shared(&state)?;
        if !state.join(PLAN).exists() {
            return Ok(shared);
        }
        drop(shared);
        let _alone = StateLock::alone(&state)?;
        finish_interrupted(&state)?;
    }
}

/// Finishes an interrupted restore, if any. The lock must be held.
fn finish_interrupted(state: &Path) -> Result<(), CliError> {
    match finish(state) {
        Ok(Some(plan)) => {
            let backup = plan.backup.display();
            output::say(&format!("note: finished the interrupted restore of {backup}"));
            if let Some(folder) = plan.set_aside {
                output::say(&format!("note: the previous state is in {}", folder.display()));
            }
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) => Err(CliError::failed("could not finish an interrupted restore").because(error).fix(
            format!("fix the cause and try again; {} lists the remaining steps", state.join(PLAN).display()),
        )),
    }
}

/// Carries out the written plan, if there is one.
fn finish(state: &Path) -> io::Result<Option<RestorePlan>> {
    let path = state.join(PLAN);
    let Some(file) = store::open_regular(&path)? else { return Ok(None) };
    let plan: RestorePlan = serde_json::from_reader(&file)?;
    plan.carry_out()?;
    fs::remove_file(&path)?;
    sync(state)?;
    Ok(Some(plan))
}

impl RestorePlan {
    fn carry_out(&self) -> io::Result<()> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        if let Some(aside) = &self.set_aside {
            create_private_dir(aside).map_err(|error| named(aside, error))?;
            for (path, name) in &self.copied {
                copy_once(path, &aside.join(name)).map_err(|error| named(path, error))?;
            }
            for (path, name) in &self.moved {
                let target = aside.join(name);
                // If it was moved before, this path now holds its replacement.
                if !target.exists() && path.symlink_metadata().is_ok() {
                    fs::rename(path, &target).map_err(|error| named(path, error))?;
                }
            }
            sync(aside)?;
        }
        for path in &self.removed {
            ignore_missing(fs::remove_file(path)).map_err(|error| named(path, error))?;
        }
        for (staged, place) in &self.placed {
            ignore_missing(fs::rename(staged, place)).map_err(|error| named(place, error))?;
            place.parent().map_or(Ok(()), sync)?;
        }
        Ok(())
    }
}

/// Ignores missing files: the step was done before.
fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Copies a file atomically, unless that was done before.
fn copy_once(path: &Path, target: &Path) -> io::Result<()> {
    if target.exists() {
        return Ok(());
    }
    let content = match store::read_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    write_private(&staged(target), &content)?;
    fs::rename(staged(target), target)
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
