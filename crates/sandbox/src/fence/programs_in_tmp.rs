//! Programs in folders that are emptied for the command: `/tmp` and the like.
//!
//! A person may keep an agent or a tool there. The command's own program, the programs that it names and the folders on its
//! `PATH` are put back: they can be read and run, and are never written.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::helper_request::HelperRequest;

/// How much of a script is read to find its interpreter.
const FIRST_LINE_BYTES_MAX: u64 = 512;
/// How much of a script is read to find the programs that it starts.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;
/// How many programs or folders a command can have put back.
const LENT_MAX: usize = 64;

/// The folders, or single files, to put back. `private` are the folders that are emptied; `seen` is whether a path is
/// visible anyway.
pub(super) fn find(spec: &HelperRequest, private: &[PathBuf], seen: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut search = ProgramSearch { private, found: Vec::new() };
    if let Some(program) = spec.arguments.first().filter(|program| program.as_bytes().contains(&b'/')) {
        search.file(&spec.cwd.join(program));
    }
    for argument in spec.arguments.iter().skip(1) {
        search.argument(argument);
    }
    if let Some(path) = spec.variable("PATH") {
        std::env::split_paths(path)
            .filter(|folder| folder.is_absolute())
            .for_each(|folder| search.folder(&folder));
    }
    search.found.retain(|path| !seen(path));
    search.found.sort();
    search.found.dedup();
    search.found.truncate(LENT_MAX);
    search.found
}

struct ProgramSearch<'a> {
    private: &'a [PathBuf],
    found: Vec<PathBuf>,
}

impl ProgramSearch<'_> {
    /// A path, or a line of shell that may name programs by their paths.
    fn argument(&mut self, argument: &OsString) {
        let whole = Path::new(argument);
        if whole.is_absolute() && whole.exists() {
            return if whole.is_dir() { self.folder(whole) } else { self.file(whole) };
        }
        self.shell(argument.as_bytes());
    }

    /// Programs that a line of shell names by their absolute path.
    fn shell(&mut self, line: &[u8]) {
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b";|&()<>'\"`$={}".contains(byte);
        let quote = |byte: &u8| b"'\"".contains(byte);
        for word in line.split(ends).chain(line.split(quote)) {
            let path = Path::new(OsStr::from_bytes(word));
            let runs = |path: &Path| {
                path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
            };
            if path.is_absolute() && runs(path) {
                self.program(path);
            }
        }
    }

    /// A program, and where it is a script, the programs that it names: wrappers start others.
    fn file(&mut self, path: &Path) {
        self.program(path);
        if let Some(text) = script(path) {
            self.shell(&text);
        }
    }

    /// A program with the folder around it, where the rest of it is. Where it is a link, both ends of it.
    fn program(&mut self, path: &Path) {
        self.single(path);
        if let Ok(real) = path.canonicalize() {
            if let Some(interpreter) = interpreter(&real) {
                self.single(&interpreter);
            }
            self.single(&real);
        }
    }

    fn single(&mut self, path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Ok(folder) = folder.canonicalize() else { return };
        if self.private.contains(&folder) {
            let file = folder.join(name);
            // A link cannot be put back; what it leads to has a folder of its own.
            self.found.extend(
                file.metadata()
                    .is_ok_and(|data| data.is_file())
                    .then(|| file.canonicalize())
                    .and_then(Result::ok),
            );
        } else {
            self.folder(&folder);
        }
    }

    fn folder(&mut self, folder: &Path) {
        let Ok(folder) = folder.canonicalize() else { return };
        let inside = |folder: &Path| {
            folder.is_dir()
                && self.private.iter().any(|private| folder.starts_with(private) && folder != private)
        };
        // Packages of Node find each other in the folder that holds them all.
        let packages = folder.ancestors().filter(|around| around.ends_with("node_modules")).last();
        let whole = folder.parent().filter(|parent| folder.ends_with("bin") && inside(parent));
        let place = packages.or(whole).unwrap_or(&folder);
        if inside(place) {
            self.found.push(place.to_owned());
        }
    }
}

/// The beginning of a script's text.
fn script(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(SCRIPT_BYTES_MAX).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then_some(text)
}

/// The interpreter of a script.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
    Some(PathBuf::from(OsStr::from_bytes(word))).filter(|path| path.is_absolute())
}
