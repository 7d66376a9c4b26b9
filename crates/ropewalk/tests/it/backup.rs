//! Damage, backup, restore and salvage with the real binary.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Child;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

#[derive(Default)]
struct World(WorkFolder);

impl World {
    fn start(&self, home: &str, arguments: &[&str]) -> Child {
        self.0.command(arguments).env("ROPEWALK_HOME", self.0.path(home)).spawn().unwrap()
    }

    fn at(&self, home: &str, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.start(home, arguments))
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.at("home", arguments)
    }

    fn session(&self, prompt: &str) -> String {
        self.run(&["run", "--json", prompt]).with(0).json()["session_id"].as_str().unwrap().to_owned()
    }
}

fn finding<'j>(report: &'j Value, name: &str) -> &'j Value {
    report["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name).unwrap()
}

#[test]
fn a_backup_comes_back_whole_and_replaces_nothing_unasked() {
    let world = World::default();
    let id = world.session("write a.txt: hello");
    fs::write(world.0.path("home/permissions.toml"), "deny = [\"read(secret.txt)\"]\n").unwrap();
    let file = world.0.path("all.backup");
    let file = file.to_str().unwrap();
    let made = world.run(&["backup", "--json", file]).with(0).json();
    assert_eq!((&made["backup"]["sessions"], &made["backup"]["damage"]), (&1.into(), &Value::Array(vec![])));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = world.run(&["backup", file]).with(1);
    assert!(again.err.contains("exists already"), "{}", again.err);
    world.run(&["backup", "--force", file]).with(0);
    let shown = world.run(&["sessions", "show", "--full", &id]).with(0).out;
    let later = world.session("write b.txt: later");

    // Into another folder.
    let into = world.0.path("other");
    world.run(&["restore", file, "--into", into.to_str().unwrap()]).with(0);
    assert_eq!(world.at("other", &["sessions", "show", "--full", &id]).with(0).out, shown);
    world.at("other", &["audit", "verify"]).with(0);
    world.at("other", &["doctor", "--store", "--deep"]).with(0);
    assert!(fs::read_to_string(into.join("permissions.toml")).unwrap().contains("secret"));
    world.at("other", &["run", "--resume", &id, "write c.txt: on"]).with(0);

    // Over what is there: only if forced, and that is kept beside.
    let refused = world.run(&["restore", file]).with(1);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    let restored = world.run(&["restore", "--force", "--json", file]).with(0).json();
    let aside = PathBuf::from(restored["set_aside"].as_str().unwrap());
    assert!(aside.join("sessions.db").is_file() && aside.join("audit").is_dir());
    world.run(&["sessions", "show", &later]).with(5);
    assert_eq!(world.run(&["sessions", "show", "--full", &id]).with(0).out, shown);
    world.run(&["audit", "verify"]).with(0);
}

#[test]
fn a_backup_that_is_damaged_is_not_restored() {
    let world = World::default();
    world.session("write a.txt: hello");
    let path = world.0.path("all.backup");
    let file = path.to_str().unwrap();
    world.run(&["backup", file]).with(0);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let into = world.0.path("other");
    world.run(&["restore", file, "--into", into.to_str().unwrap()]).with(1);
    fs::write(&path, "something else").unwrap();
    world.run(&["restore", file, "--into", into.to_str().unwrap()]).with(1);
    assert!(!into.join("sessions.db").exists());
}

#[test]
fn damage_is_found_said_and_saved_from() {
    let world = World::default();
    let id = world.session("write a.txt: hello");
    world.run(&["doctor", "--store"]).with(0);
    let well = world.run(&["doctor", "--store", "--deep", "--json"]).with(0).json();
    assert_eq!((&well["ok"], &finding(&well, "sessions")["ok"]), (&true.into(), &true.into()));

    // One changed byte of an event.
    let database = world.0.path("home/sessions.db");
    let bytes = fs::read(&database).unwrap();
    let text = b"\"end_turn\"";
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    File::options().write(true).open(&database).unwrap().write_at(b"X", at as u64 + 1).unwrap();
    let found = world.run(&["doctor", "--store", "--deep", "--json"]).with(1).json();
    let said = finding(&found, "sessions")["text"].as_str().unwrap().to_owned();
    assert!(said.contains(&id) && said.contains("checksum"), "{said}");
    let shown = world.run(&["sessions", "show", "--full", &id]).with(0).out;
    assert!(shown.contains("hello") && shown.contains("damaged"), "{shown}");
    world.run(&["sessions", "export", &id, "-o", "e.json"]).with(0);
    world.run(&["run", "--resume", &id, "write b.txt: on"]).with(0);
    let backup = world.run(&["backup", world.0.path("all.backup").to_str().unwrap()]).with(1);
    assert!(backup.err.contains("damaged in the store"), "{}", backup.err);

    // Half of the file is gone.
    let bytes = fs::read(&database).unwrap();
    fs::write(&database, &bytes[..bytes.len() / 2]).unwrap();
    for end in ["-wal", "-shm"] {
        drop(fs::remove_file(world.0.path(&format!("home/sessions.db{end}"))));
    }
    let truncated = fs::read(&database).unwrap();
    world.run(&["doctor", "--store"]).with(1);
    let saved = world.0.path("saved/sessions.db");
    fs::create_dir(world.0.path("saved")).unwrap();
    let saving = ["sessions", "salvage", "--json", "--into", saved.to_str().unwrap()];
    let report = world.run(&saving).with(0).json();
    assert!(report["sessions"].is_array(), "{report}");
    assert_eq!(fs::read(&database).unwrap(), truncated, "the damaged file is only read");
    world.run(&saving).with(1);
    world.at("saved", &["sessions", "list"]).with(0);
    world.at("saved", &["doctor", "--store", "--json"]);
}

/// The start or the end of a turn, of a call, of a question: whatever of them is damaged, the session goes on.
#[test]
fn a_session_goes_on_whichever_of_its_events_is_damaged() {
    let world = World::default();
    let id = world.session("write a.txt: hello && then run touch b.txt && then plan");
    let database = world.0.path("home/sessions.db");
    let whole = fs::read(&database).unwrap();
    let marks: [&[u8]; 5] = [b"\"stop\":", b"\"resolution\":", b"\"ask\":", b"\"exit\"", b"turn_started"];
    let mut tried = 0;
    for mark in marks {
        let places = (0..whole.len() - mark.len()).filter(|at| whole[*at..].starts_with(mark));
        for at in places.take(3) {
            let mut damaged = whole.clone();
            damaged[at + 2] ^= 0x20;
            fs::write(&database, &damaged).unwrap();
            let shown = world.run(&["sessions", "show", "--full", &id]).with(0).out;
            assert!(shown.contains("damaged"), "{at}: {shown}");
            let went_on = world.run(&["run", "--resume", &id, "write c.txt: on"]).with(0);
            assert!(went_on.out.contains("c.txt"), "{at}: {}", went_on.out);
            tried += 1;
        }
    }
    assert!(tried >= 3, "{tried}");
}

/// The lock that a restore holds while it runs.
fn state_lock(world: &World, kind: FlockOperation) -> File {
    let path = world.0.path("home/state.lock");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    flock(&file, kind).unwrap();
    file
}

#[test]
fn a_command_waits_while_a_backup_is_restored() {
    let world = World::default();
    let id = world.session("write a.txt: hello");
    let restore = state_lock(&world, FlockOperation::LockExclusive);
    for arguments in [&["sessions", "list", "--all"][..], &["run", "--resume", &id, "write b.txt: on"]] {
        let mut child = world.start("home", arguments);
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("restoring a backup") && line.contains("waiting"), "{line}");
        assert!(!world.0.path("project/b.txt").exists());
        assert_eq!(child.try_wait().unwrap(), None);
        flock(&restore, FlockOperation::Unlock).unwrap();
        CommandOutput::of(child).with(0);
        flock(&restore, FlockOperation::LockExclusive).unwrap();
    }
    assert!(world.0.path("project/b.txt").exists());
}

#[test]
fn nothing_is_restored_while_a_command_runs_or_into_a_restore() {
    let world = World::default();
    world.session("write a.txt: hello");
    let file = world.0.path("all.backup");
    let file = file.to_str().unwrap();
    world.run(&["backup", file]).with(0);
    for kind in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
        let held = state_lock(&world, kind);
        let before = fs::metadata(world.0.path("home/sessions.db")).unwrap();
        let refused = world.run(&["restore", "--force", file]).with(1);
        let pid = std::process::id().to_string();
        assert!(refused.err.contains("in use") && refused.err.contains(&pid), "{}", refused.err);
        let after = fs::metadata(world.0.path("home/sessions.db")).unwrap();
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
        drop(held);
    }
    // A server that keeps nothing uses the settings and the rules all the same.
    let mut server = world.start("home", &["serve", "--http", "127.0.0.1:0", "--ephemeral"]);
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    said.find(|line| line.as_ref().unwrap().contains("http://")).unwrap().unwrap();
    let refused = world.run(&["restore", "--force", file]).with(1);
    assert!(refused.err.contains(&server.id().to_string()), "{}", refused.err);
    server.kill().unwrap();
    server.wait().unwrap();
    world.run(&["restore", "--force", file]).with(0);
}

/// Whoever comes when: each restore is whole, and each command finds a whole store.
#[test]
fn restores_and_commands_at_once_leave_a_whole_store() {
    let world = World::default();
    world.session("write a.txt: hello");
    let file = world.0.path("all.backup");
    let file = file.to_str().unwrap();
    world.run(&["backup", file]).with(0);
    for round in 0..6 {
        let commands: [&[&str]; 4] = [
            &["restore", "--force", file],
            &["run", "write b.txt: on"],
            &["restore", "--force", file],
            &["sessions", "list"],
        ];
        let children = commands.map(|arguments| (arguments, world.start("home", arguments)));
        for (arguments, child) in children {
            let ended = CommandOutput::of(child);
            let refused = arguments[0] == "restore" && ended.err.contains("in use");
            ended.with(i32::from(refused));
        }
        world.run(&["doctor", "--store", "--deep"]).with(0);
        assert!(world.0.path("home/sessions.db").is_file(), "round {round}");
        world.run(&["audit", "verify"]).with(0);
    }
}

#[test]
fn backups_to_one_name_at_once_leave_a_whole_one() {
    let world = World::default();
    world.session("write a.txt: hello");
    let file = world.0.path("all.backup");
    let file = file.to_str().unwrap();
    for round in 0..5 {
        let children = [(); 3].map(|()| world.start("home", &["backup", "--force", file]));
        children.into_iter().for_each(|child| drop(CommandOutput::of(child).with(0)));
        let into = world.0.path(&format!("into {round}"));
        world.run(&["restore", file, "--into", into.to_str().unwrap()]).with(0);
    }
}

/// A killed restore is one whose next step was not done. Here that step cannot be done.
#[test]
fn a_restore_that_was_interrupted_is_finished_by_the_next_command() {
    let world = World::default();
    let id = world.session("write a.txt: hello");
    let (rules, settings) = (world.0.path("home/permissions.toml"), world.0.path("home/config.toml"));
    fs::write(&rules, "deny = [\"read(secret.txt)\"]\n").unwrap();
    fs::write(&settings, "approval = \"suggest\"\n").unwrap();
    let file = world.0.path("all.backup");
    let file = file.to_str().unwrap();
    world.run(&["backup", file]).with(0);
    fs::write(&rules, "deny = [\"read(other.txt)\"]\n").unwrap();
    let later = world.session("write b.txt: later");

    // A folder where a file belongs.
    fs::remove_file(&settings).unwrap();
    fs::create_dir_all(settings.join("in the way")).unwrap();
    let stopped = world.run(&["restore", "--force", file]).with(1);
    assert!(
        stopped.err.contains("the restore is not finished") && stopped.err.contains("config.toml"),
        "{}",
        stopped.err
    );
    let refused = world.run(&["sessions", "list"]).with(1);
    assert!(refused.err.contains("could not finish an interrupted restore"), "{}", refused.err);
    assert!(rules.is_file(), "rules are there at every moment");

    fs::remove_dir_all(&settings).unwrap();
    let shown = world.run(&["sessions", "list", "--all"]).with(0);
    assert!(shown.err.contains("finished the interrupted restore"), "{}", shown.err);
    assert!(shown.out.contains(&id[..8]) && !shown.out.contains(&later[..8]), "{}", shown.out);
    assert!(fs::read_to_string(&rules).unwrap().contains("secret.txt"));
    assert!(fs::read_to_string(&settings).unwrap().contains("suggest"));
    world.run(&["audit", "verify"]).with(0);
    let again = world.run(&["sessions", "list"]).with(0);
    assert!(!again.err.contains("restor"), "{}", again.err);
    let aside = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("before-restore-");
    let asides = fs::read_dir(world.0.path("home")).unwrap().map(Result::unwrap).filter(aside);
    let asides: Vec<_> = asides.map(|entry| entry.path()).collect();
    assert_eq!(asides.len(), 1, "{asides:?}");
    assert!(fs::read_to_string(asides[0].join("permissions.toml")).unwrap().contains("other.txt"));
    assert!(asides[0].join("sessions.db").is_file() && asides[0].join("audit").is_dir());
}
