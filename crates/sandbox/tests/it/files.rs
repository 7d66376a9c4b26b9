//! The files of a session: what is reached through the handles, and that nothing else is.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use sandbox::{
    DenialReason, EntryKind, FileError, Files, Mode, PathAccess, PermittedPath, Policy, UnusableReason,
};

/// A workspace with one more root beside it, a hidden folder in it, and a place outside.
struct House {
    base: PathBuf,
    work: PathBuf,
    more: PathBuf,
    out: PathBuf,
    _folder: tempfile::TempDir,
}

fn house() -> House {
    // Where there is a file system in memory, syncing costs nothing.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let base = folder.path().canonicalize().unwrap();
    let [work, more, out] = ["work", "more", "out"].map(|name| base.join(name));
    for path in [&work.join("dir"), &work.join("state"), &work.join(".git/hooks"), &more, &out] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(work.join("a"), "inside").unwrap();
    std::fs::write(out.join("secret"), "outside").unwrap();
    House { base, work, more, out, _folder: folder }
}

impl House {
    fn policy(&self, mode: Mode) -> Policy {
        Policy {
            mode,
            roots: vec![self.work.clone(), self.more.clone()],
            hidden: vec![self.work.join("state"), self.base.join("secrets")],
            ..Policy::default()
        }
    }

    fn files(&self, mode: Mode) -> Files {
        Files::open(self.policy(mode)).unwrap()
    }

    /// Where a path leads, with the folder as `BASE`, or why not.
    fn answer(&self, files: &Files, path: &Path, want: PathAccess) -> String {
        match files.find(path, want) {
            Ok(spot) => spot.real().to_string_lossy().replace(self.base.to_str().unwrap(), "BASE"),
            Err(FileError::Refused { reason: broken, .. }) => format!("{broken:?}"),
            Err(FileError::Unusable { reason, .. }) => format!("{reason:?}"),
        }
    }
}

fn read(files: &Files, spot: &PermittedPath) -> Result<String, FileError> {
    let mut text = String::new();
    files.open_file(spot)?.read_to_string(&mut text).unwrap();
    Ok(text)
}

fn reason<T>(outcome: Result<T, FileError>) -> Option<UnusableReason> {
    match outcome {
        Err(FileError::Unusable { reason, .. }) => Some(reason),
        Ok(_) | Err(FileError::Refused { .. }) => None,
    }
}

/// Path, where it leads for reading, and for writing.
const TABLE: &[(&str, &str, &str)] = &[
    ("work/a", "BASE/work/a", "BASE/work/a"),
    ("work/a/", "BASE/work/a", "BASE/work/a"),
    ("work//./dir/../a", "BASE/work/a", "BASE/work/a"),
    ("work", "BASE/work", "BASE/work"),
    ("work/new/deep/file", "BASE/work/new/deep/file", "BASE/work/new/deep/file"),
    ("more/x", "BASE/more/x", "BASE/more/x"),
    ("way-in/a", "BASE/work/a", "BASE/work/a"),
    ("work/link-in", "BASE/work/a", "BASE/work/a"),
    ("work/dir-in/new", "BASE/work/dir/new", "BASE/work/dir/new"),
    ("work/dir-more/x", "BASE/more/x", "BASE/more/x"),
    ("work/../work/a", "BASE/work/a", "BASE/work/a"),
    ("work/link-out", "Outside", "Outside"),
    ("work/dir-out/secret", "Outside", "Outside"),
    ("work/dir-out/new", "Outside", "Outside"),
    ("work/dir-out/../work/a", "BASE/work/a", "BASE/work/a"),
    ("work/dangling", "LeadsNowhere", "LeadsNowhere"),
    ("work/dangling/x", "LeadsNowhere", "LeadsNowhere"),
    ("work/dangling-out", "Outside", "Outside"),
    ("work/loop", "TooManyLinks", "TooManyLinks"),
    ("work/magic/etc/passwd", "Outside", "Outside"),
    ("work/a/b", "NotAFolder", "NotAFolder"),
    ("work/none/../a", "Missing", "Missing"),
    ("out/secret", "Outside", "Outside"),
    ("out/missing/x", "Outside", "Outside"),
    ("out/secret/x", "Outside", "Outside"),
    ("out/missing/../../work/a", "Outside", "Outside"),
    ("work/../out/secret", "Outside", "Outside"),
    ("work-2/a", "Outside", "Outside"),
    ("secrets/key", "Hidden", "Hidden"),
    ("work/state/db", "Hidden", "Hidden"),
    ("work/dir/../state", "Hidden", "Hidden"),
    ("work/.git", "BASE/work/.git", "Protected"),
    ("work/.git/index", "BASE/work/.git/index", "Protected"),
    ("work/.git/rebase-merge/git-rebase-todo", "BASE/work/.git/rebase-merge/git-rebase-todo", "Protected"),
    ("work/lib2/.git/HEAD", "BASE/work/lib2/.git/HEAD", "Protected"),
    ("work/lib2/.git", "BASE/work/lib2/.git", "Protected"),
    ("work/dir/new/HEAD", "BASE/work/dir/new/HEAD", "Protected"),
    ("work/bare/config", "BASE/work/bare/config", "Protected"),
    ("work/bare/info/attributes", "BASE/work/bare/info/attributes", "Protected"),
    ("work/to-bare/config", "BASE/work/bare/config", "Protected"),
    ("work/dir/.ropewalk/config.toml", "BASE/work/dir/.ropewalk/config.toml", "Protected"),
    ("work/dir-in/.RopeWalk/config.toml", "BASE/work/dir/.RopeWalk/config.toml", "Protected"),
    ("work/dir/deep/x.code-workspace", "BASE/work/dir/deep/x.code-workspace", "Protected"),
    ("more/x/opencode.json", "BASE/more/x/opencode.json", "Protected"),
    ("work/.git/hooks/x", "BASE/work/.git/hooks/x", "Protected"),
    ("work/.git/link/x", "BASE/work/dir/x", "Protected"),
    ("work/dir-in/../.git/config", "BASE/work/.git/config", "Protected"),
    ("work/.GIT/config", "BASE/work/.GIT/config", "Protected"),
    ("work/.git./config", "BASE/work/.git./config", "Protected"),
    ("work/git~1/config", "BASE/work/git~1/config", "Protected"),
    ("work/.g\u{200c}it/config", "BASE/work/.g\u{200c}it/config", "Protected"),
    ("work/.idea/x", "BASE/work/.idea/x", "Protected"),
    ("more/.envrc", "BASE/more/.envrc", "Protected"),
    ("work/.vscode/tasks.json", "BASE/work/conf/tasks.json", "Protected"),
];

#[test]
fn hooks_above_the_workspace_of_its_own_repository_leave_it_free() {
    let house = house();
    for name in ["objects", "refs"] {
        std::fs::create_dir_all(house.work.join(".git").join(name)).unwrap();
    }
    std::fs::write(house.work.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(house.work.join(".git/config"), "[core]\n\thooksPath = ..\n").unwrap();
    let policy = Policy { roots: vec![house.work.clone()], mode: Mode::WorkspaceWrite, ..Policy::default() };
    let files = Files::open(policy).unwrap();
    files.find(&house.work.join("a"), PathAccess::Write).unwrap();
}

#[test]
fn no_root_leads_out_of_the_folders_that_it_must_be_in() {
    let house = house();
    let (inner, link) = (house.work.join("dir"), house.work.join("link"));
    symlink(&house.out, &link).unwrap();
    symlink(&inner, house.work.join("inside")).unwrap();
    let open = |root: &Path| {
        let within = Some(vec![house.more.clone(), house.work.clone()]);
        Files::open(Policy { roots: vec![root.to_owned()], within, ..Policy::default() }).map(drop)
    };
    for root in [&house.work, &inner, &house.more, &house.work.join("inside")] {
        assert_eq!(open(root), Ok(()), "{}", root.display());
    }
    for root in [&house.out, &link, &house.base, Path::new("/"), &house.work.join("../out")] {
        let refused =
            FileError::Refused { path: root.canonicalize().unwrap(), reason: DenialReason::Outside };
        assert_eq!(open(root), Err(refused), "{}", root.display());
    }
    let nowhere = Policy { roots: vec![house.work.clone()], within: Some(vec![]), ..Policy::default() };
    assert!(Files::open(nowhere).is_err());
}

#[test]
fn every_way_out_of_the_roots_is_refused_and_every_way_inside_works() {
    let house = house();
    let work = &house.work;
    symlink(house.out.join("secret"), work.join("link-out")).unwrap();
    symlink("../out", work.join("dir-out")).unwrap();
    symlink("a", work.join("link-in")).unwrap();
    symlink(work.join("dir"), work.join("dir-in")).unwrap();
    symlink(&house.more, work.join("dir-more")).unwrap();
    symlink("missing", work.join("dangling")).unwrap();
    symlink(house.out.join("missing"), work.join("dangling-out")).unwrap();
    symlink("loop", work.join("loop")).unwrap();
    symlink("/proc/self/root", work.join("magic")).unwrap();
    symlink(work, house.base.join("way-in")).unwrap();
    symlink("../dir", work.join(".git/link")).unwrap();
    for folder in ["conf", "bare/objects", "bare/refs"] {
        std::fs::create_dir_all(work.join(folder)).unwrap();
    }
    std::fs::write(work.join("bare/HEAD"), "ref: refs/heads/main").unwrap();
    symlink("bare", work.join("to-bare")).unwrap();
    symlink("conf", work.join(".vscode")).unwrap();
    let base = house.base.to_str().unwrap();
    let files = house.files(Mode::WorkspaceWrite);
    let up = "../".repeat(40);
    for (path, reading, writing) in TABLE {
        let path = house.base.join(path);
        assert_eq!(house.answer(&files, &path, PathAccess::Read), *reading, "read {}", path.display());
        assert_eq!(house.answer(&files, &path, PathAccess::Write), *writing, "write {}", path.display());
    }
    for (path, expected) in [
        (format!("/proc/self/root{base}/out/secret"), "Outside"),
        (format!("/proc/self/root{base}/work/a"), "BASE/work/a"),
        (format!("/proc/self/cwd/{up}etc/passwd"), "Outside"),
        (format!("{base}/work/{up}etc/passwd"), "Outside"),
        ("/proc/self/cwd/../x".into(), "Outside"),
        ("/proc/thread-self/root/etc/passwd".into(), "Outside"),
        ("/etc/passwd".into(), "Outside"),
        ("/".into(), "Outside"),
        ("relative".into(), "Malformed"),
    ] {
        assert_eq!(house.answer(&files, Path::new(&path), PathAccess::Read), expected, "{path}");
    }
}

#[test]
fn a_read_only_sandbox_reads_and_an_open_one_reaches_everything() {
    let house = house();
    let files = house.files(Mode::ReadOnly);
    let path = house.work.join("a");
    let spot = files.find(&path, PathAccess::Read).unwrap();
    assert_eq!(read(&files, &spot).unwrap(), "inside");
    let refused = FileError::Refused { path: path.clone(), reason: DenialReason::ReadOnly };
    assert_eq!(files.find(&path, PathAccess::Write).unwrap_err(), refused);
    // Neither does a spot that was found for reading let itself be written.
    assert_eq!(files.replace(&spot, b"x", "draft").unwrap_err(), refused);
    let files = house.files(Mode::Off);
    for path in [house.out.join("secret"), house.work.join(".git/config"), house.work.join("state/x")] {
        let spot = files.find(&path, PathAccess::Write).unwrap();
        files.replace(&spot, b"new", "draft").unwrap();
        assert_eq!(read(&files, &spot).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "new");
    }
}

#[test]
fn what_was_found_for_reading_is_judged_again_when_it_is_written() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let hook = files.find(&house.work.join(".git/hooks/x"), PathAccess::Read).unwrap();
    assert!(matches!(
        files.replace(&hook, b"x", "draft"),
        Err(FileError::Refused { reason: DenialReason::Protected, .. })
    ));
    let work = files.find(&house.work, PathAccess::Read).unwrap();
    let hidden = work.child(OsStr::new("state")).unwrap();
    assert!(matches!(files.entries(&hidden), Err(FileError::Refused { reason: DenialReason::Hidden, .. })));
    for name in ["..", ".", "", "a/b", "/", "a/"] {
        assert!(work.child(OsStr::new(name)).is_none(), "{name:?}");
    }
    let spot = files.find(&house.work.join("a"), PathAccess::Write).unwrap();
    assert_eq!(reason(files.replace(&spot, b"x", "../draft")), Some(UnusableReason::Malformed));
}

#[test]
fn a_refusal_says_what_to_do() {
    let house = house();
    let text = |mode, path: &Path| house.files(mode).find(path, PathAccess::Write).unwrap_err().to_string();
    assert!(text(Mode::WorkspaceWrite, Path::new("/etc/x")).ends_with("start with --add-dir and its folder"));
    assert!(text(Mode::ReadOnly, &house.work).ends_with("restart with --sandbox workspace-write"));
    assert!(text(Mode::WorkspaceWrite, &house.work.join(".git")).ends_with("change it yourself"));
    let state = house.work.join("state");
    assert!(text(Mode::WorkspaceWrite, &state).contains("hidden from tools and commands"));
}

#[test]
fn a_root_that_is_missing_is_named() {
    let house = house();
    let mut policy = house.policy(Mode::WorkspaceWrite);
    policy.roots.push(house.base.join("none"));
    let error = Files::open(policy).err().unwrap();
    assert_eq!(error, FileError::Unusable { path: house.base.join("none"), reason: UnusableReason::Missing });
    let mut policy = house.policy(Mode::WorkspaceWrite);
    policy.roots.push(house.work.join("a"));
    assert_eq!(reason(Files::open(policy)), Some(UnusableReason::NotAFolder));
}

#[test]
fn a_write_replaces_the_entry_and_nothing_else_that_shares_the_file() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let hard = house.work.join("hard");
    std::fs::hard_link(house.out.join("secret"), &hard).unwrap();
    files.replace(&files.find(&hard, PathAccess::Write).unwrap(), b"mine", "draft").unwrap();
    assert_eq!(std::fs::read_to_string(&hard).unwrap(), "mine");
    assert_eq!(std::fs::read_to_string(house.out.join("secret")).unwrap(), "outside");

    let path = house.work.join("a");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4750)).unwrap();
    files.replace(&files.find(&path, PathAccess::Write).unwrap(), b"new", "draft").unwrap();
    // Who may run it stays; as whom it runs does not.
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o750);

    let deep = files.find(&house.work.join("x/y/z"), PathAccess::Write).unwrap();
    files.replace(&deep, b"deep", "draft").unwrap();
    assert_eq!(read(&files, &deep).unwrap(), "deep");
    assert!(!house.work.join("draft").exists() && !house.work.join("x/y/draft").exists());
}

#[test]
fn only_a_regular_file_inside_is_removed_and_permissions_can_be_given() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let find = |path: &Path| files.find(path, PathAccess::Write).unwrap();
    let spot = find(&house.work.join("a"));
    files.replace_with(&spot, b"new", "draft", Some(0o7751)).unwrap();
    assert_eq!(spot.permissions(), Some(0o751));
    files.replace(&spot, b"newer", "draft").unwrap();
    assert_eq!(spot.permissions(), Some(0o751));
    assert!(spot.modified_ns().is_some());
    files.remove(&spot).unwrap();
    assert_eq!((spot.kind(), spot.permissions(), spot.modified_ns()), (None, None, None));
    assert_eq!(reason(files.remove(&spot)), Some(UnusableReason::Missing));
    assert_eq!(reason(files.remove(&find(&house.work.join("dir")))), Some(UnusableReason::Folder));
    let swapped = find(&house.work.join("swapped"));
    symlink(house.out.join("secret"), house.work.join("swapped")).unwrap();
    assert_eq!(reason(files.remove(&swapped)), Some(UnusableReason::Swapped));
    let hook = files.find(&house.work.join(".git/hooks/x"), PathAccess::Read).unwrap();
    assert!(matches!(files.remove(&hook), Err(FileError::Refused { .. })));
    let reader = house.files(Mode::ReadOnly);
    let spot = reader.find(&house.work.join("dir"), PathAccess::Read).unwrap();
    assert!(matches!(reader.remove(&spot), Err(FileError::Refused { .. })));
}

#[test]
fn a_failed_write_leaves_no_draft_and_takes_none_away() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let spot = files.find(&house.work.join("dir"), PathAccess::Write).unwrap();
    assert_eq!(reason(files.replace(&spot, b"x", "draft")), Some(UnusableReason::Folder));
    let root = files.find(&house.work, PathAccess::Write).unwrap();
    assert_eq!(reason(files.replace(&root, b"x", "draft")), Some(UnusableReason::Folder));
    assert!(!house.work.join("draft").exists());
    // A draft that somebody put there, perhaps as a link, is not written through.
    symlink(house.out.join("secret"), house.work.join("draft")).unwrap();
    let spot = files.find(&house.work.join("a"), PathAccess::Write).unwrap();
    assert!(files.replace(&spot, b"x", "draft").is_err());
    assert!(house.work.join("draft").is_symlink());
    assert_eq!(std::fs::read_to_string(house.out.join("secret")).unwrap(), "outside");
    assert_eq!(std::fs::read_to_string(house.work.join("a")).unwrap(), "inside");
}

#[test]
fn drafts_that_a_killed_process_left_are_removed_with_the_next_write() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let name = |letter: &str| format!(".ropewalk-{}.tmp", letter.repeat(32));
    let (old, new, other) = (name("a"), name("b"), ".ropewalk-notes.tmp".to_owned());
    for left in [&old, &new, &other] {
        std::fs::write(house.work.join(left), "left").unwrap();
    }
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for left in [&old, &other] {
        let file = std::fs::File::options().write(true).open(house.work.join(left)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let spot = files.find(&house.work.join("a"), PathAccess::Write).unwrap();
    files.replace(&spot, b"x", &name("c")).unwrap();
    assert!(!house.work.join(&old).exists());
    assert!(house.work.join(&new).exists(), "somebody may still write it");
    assert!(house.work.join(&other).exists(), "it is not named as ours are");
    assert!(!house.work.join(name("c")).exists());
}

#[test]
fn what_is_no_regular_file_is_never_waited_for() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let fifo = house.work.join("fifo");
    let bits = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, bits, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(house.work.join("socket")).unwrap();
    for name in ["fifo", "socket"] {
        let spot = files.find(&house.work.join(name), PathAccess::Write).unwrap();
        assert_eq!(reason(files.open_file(&spot)), Some(UnusableReason::Special), "{name}");
        assert_eq!(reason(files.replace(&spot, b"x", "draft")), Some(UnusableReason::Special), "{name}");
        assert_eq!(reason(files.entries(&spot)), Some(UnusableReason::NotAFolder), "{name}");
    }
    let folder = files.find(&house.work, PathAccess::Read).unwrap();
    assert_eq!(reason(files.open_file(&folder)), Some(UnusableReason::Folder));
    let open = house.files(Mode::Off);
    let device = open.find(Path::new("/dev/zero"), PathAccess::Read).unwrap();
    assert_eq!(reason(open.open_file(&device)), Some(UnusableReason::Special));
    symlink("a", house.work.join("link")).unwrap();
    let mut entries = files.entries(&folder).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    let expected = [
        (".git", EntryKind::Folder),
        ("a", EntryKind::File),
        ("dir", EntryKind::Folder),
        ("fifo", EntryKind::Other),
        ("link", EntryKind::Link),
        ("socket", EntryKind::Other),
        ("state", EntryKind::Folder),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn odd_names_are_names_or_errors() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    for name in [b"new\nline".as_slice(), b"\xff\xfe", b" ", b"-rf", "\u{202e}txt".as_bytes()] {
        let spot = files.find(&house.work.join(OsStr::from_bytes(name)), PathAccess::Write).unwrap();
        files.replace(&spot, b"odd", "draft").unwrap();
        assert_eq!(read(&files, &spot).unwrap(), "odd");
        assert_eq!(spot.real().parent(), Some(house.work.as_path()));
    }
    let nul = house.work.join(OsStr::from_bytes(b"a\0b"));
    assert_eq!(reason(files.find(&nul, PathAccess::Write)), Some(UnusableReason::Malformed));
    for long in ["x".repeat(5000), "x/".repeat(5000), format!("{}/../a", "y".repeat(5000))] {
        let path = house.work.join(&long);
        let outcome = files.find(&path, PathAccess::Write);
        // A path of many short names is only too long for the kernel, which says so when it is used.
        let outcome = outcome.and_then(|spot| files.replace(&spot, b"x", "draft"));
        assert!(matches!(outcome, Err(FileError::Unusable { .. })), "{}", &long[..3]);
        let outside = house.out.join(&long);
        assert!(
            matches!(files.find(&outside, PathAccess::Read), Err(FileError::Refused { .. })),
            "{}",
            &long[..3]
        );
    }
}

#[test]
fn a_root_stays_the_folder_that_was_opened() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let early = files.find(&house.work.join("a"), PathAccess::Write).unwrap();
    let moved = house.base.join("moved");
    std::fs::rename(&house.work, &moved).unwrap();
    symlink(&house.out, &house.work).unwrap();
    assert_eq!(read(&files, &early).unwrap(), "inside");
    let spot = files.find(&house.work.join("a"), PathAccess::Write).unwrap();
    files.replace(&spot, b"still", "draft").unwrap();
    assert_eq!(std::fs::read_to_string(moved.join("a")).unwrap(), "still");
    let secret = files.find(&house.work.join("secret"), PathAccess::Read).unwrap();
    assert_eq!(reason(files.open_file(&secret)), Some(UnusableReason::Missing));
    assert_eq!(house.answer(&files, &moved.join("a"), PathAccess::Read), "Outside");
    assert_eq!(std::fs::read_dir(&house.out).unwrap().count(), 1);
}

#[test]
fn a_link_put_in_the_way_after_the_check_is_an_error() {
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let dir = house.work.join("dir");
    std::fs::write(dir.join("secret"), "inside").unwrap();
    let find = |path: &str| files.find(&dir.join(path), PathAccess::Write).unwrap();
    let (file, new, folder) = (find("secret"), find("new/er"), find("."));
    std::fs::rename(&dir, house.work.join("away")).unwrap();
    symlink(&house.out, &dir).unwrap();
    assert!(files.open_file(&file).is_err());
    assert!(files.entries(&folder).is_err());
    for spot in [&file, &new, &folder] {
        assert!(files.replace(spot, b"x", "draft").is_err(), "{spot:?}");
    }
    assert_eq!(std::fs::read_dir(&house.out).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(house.out.join("secret")).unwrap(), "outside");
}

/// One thread swaps a folder and a link to the outside, others read and write below that name.
#[cfg(target_os = "linux")]
#[test]
fn a_race_never_reaches_the_outside() {
    use rustix::fs::{CWD, RenameFlags};

    const SWAPS: usize = 20_000;
    let house = house();
    let files = house.files(Mode::WorkspaceWrite);
    let (dir, link) = (house.work.join("dir"), house.work.join("link"));
    std::fs::write(dir.join("secret"), "inside").unwrap();
    symlink(&house.out, &link).unwrap();
    let over = AtomicBool::new(false);
    let target = dir.join("secret");
    let early = files.find(&target, PathAccess::Write).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..SWAPS {
                rustix::fs::renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
            over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                for spot in [files.find(&target, PathAccess::Read), Ok(early.clone())].into_iter().flatten() {
                    if let Ok(text) = read(&files, &spot) {
                        assert_eq!(text, "inside");
                    }
                }
            }
        });
        scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Acquire) {
                for spot in [files.find(&target, PathAccess::Write), Ok(early.clone())].into_iter().flatten()
                {
                    number += 1;
                    files.replace(&spot, b"inside", &format!("draft-{number}")).ok();
                }
                let new = dir.join(format!("new-{number}/folder/file"));
                if let Ok(new) = files.find(&new, PathAccess::Write) {
                    files.replace(&new, b"inside", "draft").ok();
                }
            }
        });
    });
    let names: Vec<_> =
        std::fs::read_dir(&house.out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(std::fs::read_to_string(house.out.join("secret")).unwrap(), "outside");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// The handle refuses what the table refuses, for the same reason, and reads only in the roots.
    #[test]
    fn the_handles_and_the_table_agree(
        at in prop::sample::select(vec!["", "work", "more", "out", "work-2", "secrets", "work/state"]),
        names in prop::collection::vec(prop::sample::select(vec![
            "dir", "x", "hooks", "config", "modules", "index", ".git", ".GIT", ".Git .", "git~1", ".vscode",
            ".mcp.json", ".bashrc", ".gitignore", ".g\u{200b}it", "state", "config:x", "s p",
        ]), 0..5),
        mode in prop::sample::select(Mode::ALL.to_vec()),
        writing: bool,
    ) {
        let house = house();
        let files = house.files(mode);
        let want = if writing { PathAccess::Write } else { PathAccess::Read };
        let path = names.iter().fold(house.base.join(at), |path, name| path.join(name));
        let mut expected = files.policy().judge(want, &path);
        let inside = path.starts_with(&house.work) || path.starts_with(&house.more);
        if expected.is_ok() && mode != Mode::Off && !inside {
            expected = Err(DenialReason::Outside);
        }
        match files.find(&path, want) {
            Ok(spot) => {
                prop_assert_eq!(expected, Ok(()));
                prop_assert_eq!(spot.real(), path.as_path());
            }
            Err(FileError::Refused { reason: broken, .. }) => prop_assert_eq!(expected, Err(broken)),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

/// A repository, with settings of its own.
fn repository(git: &Path, settings: &str) {
    for folder in ["objects", "refs", "hooks"] {
        std::fs::create_dir_all(git.join(folder)).unwrap();
    }
    std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(git.join("config"), settings).unwrap();
}

#[test]
fn what_repositories_around_and_below_a_root_run_or_include_is_protected() {
    let house = house();
    let named = "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../more.cfg\n";
    repository(&house.work.join(".git"), "[core]\n\thooksPath = .githooks\n");
    repository(&house.work.join("app/.git"), named);
    std::fs::write(house.work.join("app/more.cfg"), "[core]\n\thooksPath = ../others\n").unwrap();
    repository(&house.work.join("linked/.git"), "");
    std::fs::remove_dir(house.work.join("linked/.git/hooks")).unwrap();
    symlink("../run", house.work.join("linked/.git/hooks")).unwrap();
    std::fs::create_dir_all(house.work.join("tree")).unwrap();
    std::fs::write(house.work.join("tree/.git"), "gitdir: ../.git/worktrees/tree\n").unwrap();
    std::fs::create_dir_all(house.work.join(".git/worktrees/tree")).unwrap();
    std::fs::write(house.work.join(".git/worktrees/tree/commondir"), "../..\n").unwrap();
    repository(&house.work.join("bare"), "[core]\n\thooksPath = ../shared\n");
    repository(
        &house.base.join(".git"),
        "[core]\n\thooksPath = more/hooks\n[include]\n\tpath = ../more/a.cfg\n",
    );
    let files = house.files(Mode::WorkspaceWrite);
    // One that came later.
    repository(&house.work.join("node_modules/late/.git"), named);
    let check = |path: &str, expected: &str| {
        let answer = house.answer(&files, &house.base.join(path), PathAccess::Write);
        assert_eq!(answer == "Protected", expected == "kept", "{path}: {answer}");
    };
    for path in [
        "work/.githooks/pre-commit",
        "work/app/.githooks/pre-commit",
        "work/app/more.cfg",
        "work/others/pre-commit",
        "work/linked/run/pre-commit",
        "work/tree/.githooks/pre-commit",
        "work/shared/pre-commit",
        "work/node_modules/late/.githooks/pre-commit",
        "work/node_modules/late/more.cfg",
        "more/hooks/pre-commit",
        "more/a.cfg",
    ] {
        check(path, "kept");
    }
    for path in
        ["work/app/a", "work/dir/.githooks/x", "work/more.cfg", "more/b", "work/tree/a", "more/more/hooks/x"]
    {
        check(path, "free");
    }
}

/// A folder of hooks that is around a root makes nothing in it a hook.
#[test]
fn hooks_that_lie_around_a_root_leave_it_free() {
    let house = house();
    repository(&house.base.join(".git"), "[core]\n\thooksPath = .\n");
    let files = house.files(Mode::WorkspaceWrite);
    assert_eq!(house.answer(&files, &house.work.join("b"), PathAccess::Write), "BASE/work/b");
}
