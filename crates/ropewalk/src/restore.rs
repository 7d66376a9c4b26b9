//! `ropewalk restore`: brings back what a backup has.
//!
//! Everything is staged beside its place first. Then a plan of what is moved where is written down, and carried out:
//! each step can be repeated. So a restore that is killed before its plan is written has changed nothing, and one that
//! is killed later is finished by whichever command comes next, before it reads anything. While it runs it has the
//! state folder for itself ([`StateLock`]).
//!
//! **Invariant:** at no moment is a file with rules, settings or keys missing that was there before.

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

use crate::backup::{Places, as_json, in_words, tell_damage};
use crate::cli::RestoreOptions;
use crate::state_lock::StateLock;
use crate::trouble::Trouble;
use crate::{paths, terminal};

/// The plan of a restore that is being carried out, in the state folder.
const PLAN: &str = "restore-plan.json";
/// What is staged has the name of its place and this.
const STAGED: &str = "restoring";
/// Restores of one second, each with a folder of its own for what was there before.
const SAME_SECOND_MAX: u32 = 100;

/// What is left to do, in this order. Each step is done, or was done before.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Plan {
    /// The backup, for messages.
    backup: PathBuf,
    /// Where that is kept which was there before; nothing was, without one.
    set_aside: Option<PathBuf>,
    /// What is copied to `set_aside`, under this name, before it is replaced.
    copied: Vec<(PathBuf, String)>,
    /// What is moved to `set_aside`, under this name: large, or a folder, and beside it.
    moved: Vec<(PathBuf, String)>,
    /// What was copied and has no successor.
    removed: Vec<PathBuf>,
    /// What was staged, and its place.
    placed: Vec<(PathBuf, PathBuf)>,
}

pub fn run(options: &RestoreOptions) -> ExitCode {
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
        Trouble::failed("the backup is not restored yet").because(error).fix(match options.into {
            None => "fix the cause, then run any ropewalk command: it finishes the restore",
            Some(_) => "fix the cause, then run the same restore command again",
        })
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

/// A program of somebody's own, or an older version, may have the store open without the lock.
fn refuse_open_store(places: &Places) -> Result<(), Trouble> {
    if store::is_in_use(&places.database()) {
        return Err(Trouble::failed("nothing was restored")
            .because(format!("another program has {} open", places.database().display()))
            .fix("end it (ropewalk serve stop; close editors that run it), then restore again"));
    }
    Ok(())
}

/// What the backup replaces, and where that is kept: in a folder named after the date. Refused unless forced.
fn replaced(places: &Places, report: &BackupReport, options: &RestoreOptions) -> Result<Plan, Trouble> {
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
    // Marks of another history would say of the restored one that it was cut.
    let mut marks: Vec<_> = store::audit::marks(&places.audit_key).into_iter().map(named).collect();
    copied.retain(|(path, _)| path.is_file());
    marks.retain(|(path, _)| path.is_file());
    let removed = marks.iter().map(|(path, _)| path.clone()).collect();
    copied.extend(marks);
    let mut plan = Plan { backup: options.file.clone(), moved, copied, removed, ..Plan::default() };
    if plan.moved.is_empty() && plan.copied.is_empty() {
        return Ok(plan);
    }
    if !options.force {
        let names: Vec<_> =
            plan.moved.iter().chain(&plan.copied).map(|(path, _)| path.display().to_string()).collect();
        return Err(Trouble::failed("nothing was restored")
            .because(format!("there is something already: {}", names.join(", ")))
            .fix("--force moves it aside first; --into DIR restores elsewhere"));
    }
    let now = timestamp::compact(SystemClock.now());
    // What was set aside in the same second stays what it is.
    let named = |number: u32| match number {
        0 => places.state.join(format!("before-restore-{now}")),
        _ => places.state.join(format!("before-restore-{now}-{number}")),
    };
    let free = |folder: &PathBuf| folder.symlink_metadata().is_err();
    plan.set_aside = Some((0..SAME_SECOND_MAX).map(named).find(free).ok_or_else(|| {
        Trouble::failed("nothing was restored").because("too many restores in one second").fix("try again")
    })?);
    Ok(plan)
}

/// Writes everything that the backup has beside its place, where nothing reads it.
fn stage(places: &Places, options: &RestoreOptions, plan: &mut Plan) -> Result<(), String> {
    let audit = staged(&places.state.join("audit"));
    let said = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    // Left by a restore that was killed.
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
                    terminal::say(&format!("{name} is not known to this version and is left out"));
                    return Ok(());
                }
            },
        };
        let written = path.parent().map_or(Ok(()), private).and_then(|()| write_private(&path, content));
        plan.placed.extend(target.map(|target| (path.clone(), target)));
        written.map_err(|error| said(&path, error))
    };
    store::restore_backup(&options.file, &staged(&database), place)?;
    if audit.is_dir() {
        sync(&audit).map_err(|error| said(&audit, error))?;
        plan.placed.push((audit, places.state.join("audit")));
    }
    // Last: whoever finds sessions finds their rules and their audit too.
    plan.placed.push((staged(&database), database));
    Ok(())
}

/// Takes away what a restore that cannot go on has written so far.
fn remove_staged(places: &Places, plan: &Plan) {
    let database = staged(&places.database());
    for path in plan.placed.iter().map(|(staged, _)| staged).chain([&database]) {
        // What was not written is not there.
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

/// Writes the plan down for good: from here on the restore happens.
fn write_plan(state: &Path, plan: &Plan) -> io::Result<()> {
    let path = state.join(PLAN);
    for (staged, _) in &plan.placed {
        staged.parent().map_or(Ok(()), sync)?;
    }
    write_private(&staged(&path), &serde_json::to_vec_pretty(plan)?)?;
    fs::rename(staged(&path), &path)?;
    sync(state)
}

/// For every other command: shares the state folder, which is made if `make`, as long as the lock is held. A restore
/// that was interrupted is finished before.
pub fn enter_state(make: bool) -> Result<Option<StateLock>, Trouble> {
    // Whoever needs a state folder and has none says so.
    let Ok(state) = paths::state() else { return Ok(None) };
    if make {
        // One that cannot be made is told of by whoever needs it.
        drop(private(&state));
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

/// Finishes a restore that was interrupted, if there is one. The lock is held.
fn finish_interrupted(state: &Path) -> Result<(), Trouble> {
    match finish(state) {
        Ok(Some(plan)) => {
            let backup = plan.backup.display();
            terminal::say(&format!("note: finished restoring {backup}, which was interrupted"));
            if let Some(folder) = plan.set_aside {
                terminal::say(&format!("note: what was there before is in {}", folder.display()));
            }
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) => Err(Trouble::failed("a restore was interrupted and cannot be finished")
            .because(error)
            .fix(format!(
                "fix the cause and try again; {} lists what is left to do",
                state.join(PLAN).display()
            ))),
    }
}

/// Carries out the plan that is written down, if there is one.
fn finish(state: &Path) -> io::Result<Option<Plan>> {
    let path = state.join(PLAN);
    let Some(file) = store::open_regular(&path)? else { return Ok(None) };
    let plan: Plan = serde_json::from_reader(&file)?;
    plan.carry_out()?;
    fs::remove_file(&path)?;
    sync(state)?;
    Ok(Some(plan))
}

impl Plan {
    fn carry_out(&self) -> io::Result<()> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        if let Some(aside) = &self.set_aside {
            private(aside).map_err(|error| named(aside, error))?;
            for (path, name) in &self.copied {
                copy_once(path, &aside.join(name)).map_err(|error| named(path, error))?;
            }
            for (path, name) in &self.moved {
                let target = aside.join(name);
                // What stands at its place now, if it was moved before, is its successor.
                if !target.exists() && path.symlink_metadata().is_ok() {
                    fs::rename(path, &target).map_err(|error| named(path, error))?;
                }
            }
            sync(aside)?;
        }
        for path in &self.removed {
            gone(fs::remove_file(path)).map_err(|error| named(path, error))?;
        }
        for (staged, place) in &self.placed {
            gone(fs::rename(staged, place)).map_err(|error| named(place, error))?;
            place.parent().map_or(Ok(()), sync)?;
        }
        Ok(())
    }
}

/// What is not there was done before.
fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Copies a file, whole or not at all, unless that was done before.
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

fn private(folder: &Path) -> io::Result<()> {
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
