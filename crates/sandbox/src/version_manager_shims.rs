//! Programs that a workspace can control: files that an agent may write decide what is started under their name.
//!
//! Version managers (asdf, mise, pyenv, volta, corepack ..) put a stand-in (a "shim") for each program on the search path. The
//! shim reads `.tool-versions`, `mise.toml`, `.python-version`, `package.json` of the folder and runs what they name, which may
//! lie in the workspace. So `node --version` is harmless where `node` is a program, and runs anything where it is a shim.
//!
//! No list of such managers is complete. So a program outside the system's folders counts as controlled unless it is a native
//! program under its own name: a shim is a script, or a link to a program with another name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Folders whose programs a person did not put together by hand.
const SYSTEM: [&str; 10] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/opt/homebrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/snap/bin",
    "/run/current-system/sw/bin",
];
/// Nothing in these is ever changed after it was installed.
const STORES: [&str; 2] = ["/nix/store", "/gnu/store"];
/// What shims are links to, wherever they lie.
const MANAGERS: [&str; 26] = [
    "asdf",
    "mise",
    "rtx",
    "pyenv",
    "rbenv",
    "nodenv",
    "goenv",
    "jenv",
    "plenv",
    "phpenv",
    "tfenv",
    "tenv",
    "luaenv",
    "volta",
    "volta-shim",
    "volta-migrate",
    "proto",
    "proto-shim",
    "corepack",
    "rustup",
    "aqua",
    "aqua-proxy",
    "vfox",
    "hermit",
    "direnv",
    "pkgx",
];
/// A script that has another program interpret it, by its name, is followed this often.
const INTERPRETERS_MAX: usize = 4;
/// As much as a kernel reads of a script's first line.
const FIRST_BYTES_MAX: usize = 256;

/// Where a program lies that the workspace can steer, or nothing if it cannot, or if there is no such
/// program: then a shell runs none either, or one that is part of itself. The environment is the command's.
pub fn steered_program(
    program: &str,
    environment: &[(OsString, OsString)],
    cwd: &Path,
    roots: &[PathBuf],
) -> Option<PathBuf> {
    let (_, search) = environment.iter().find(|(name, _)| name == "PATH")?;
    follow_interpreters(program, search, cwd, roots, 0)
}

fn follow_interpreters(
    program: &str,
    search: &OsStr,
    cwd: &Path,
    roots: &[PathBuf],
    depth: usize,
) -> Option<PathBuf> {
    let found = find(program, search, cwd)?;
    let real = found.canonicalize().unwrap_or_else(|_| found.clone());
    let first = first_bytes(&real);
    if is_steered(&found, &real, &first, roots) {
        return Some(found);
    }
    match interpreter(&first) {
        Some(_) if depth >= INTERPRETERS_MAX => Some(found),
        Some(next) => follow_interpreters(&next, search, cwd, roots, depth + 1),
        None => None,
    }
}

/// The first file of that name on the search path. Entries that are empty or relative mean the folder of
/// the command.
fn find(program: &str, search: &OsStr, cwd: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|place| place.is_file());
    }
    std::env::split_paths(search).map(|folder| cwd.join(folder).join(program)).find(|place| place.is_file())
}

fn is_steered(found: &Path, real: &Path, first: &[u8], roots: &[PathBuf]) -> bool {
    let inside = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    let shim = |path: &Path| path.iter().any(|part| part == "shims" || part == ".volta");
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let (called, named) = (stem(found).unwrap_or_default(), stem(real).unwrap_or_default());
    if [found, real].into_iter().any(|path| inside(path) || shim(path)) {
        return true;
    }
    if MANAGERS.contains(&named.as_str()) && named != called {
        return true;
    }
    // The stand-ins that corepack makes are links into its folder, with names of their own.
    if real.iter().any(|part| part == "corepack") {
        return true;
    }
    let system = found.parent().is_some_and(|folder| SYSTEM.iter().any(|known| folder == Path::new(known)));
    if system || STORES.iter().any(|store| real.starts_with(store)) {
        return false;
    }
    // `python3` is `python3.12`, and so on.
    let own = named.starts_with(called.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
    !own || !is_native(first)
}

/// ELF, or one of the forms of macOS.
fn is_native(first: &[u8]) -> bool {
    const MAGIC: [[u8; 4]; 4] =
        [*b"\x7fELF", [0xcf, 0xfa, 0xed, 0xfe], [0xce, 0xfa, 0xed, 0xfe], [0xca, 0xfe, 0xba, 0xbe]];
    MAGIC.iter().any(|magic| first.starts_with(magic))
}

/// The program that a script's first line has looked for on the search path: `#!/usr/bin/env -S node`.
fn interpreter(first: &[u8]) -> Option<String> {
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if !program.ends_with("/env") {
        return None;
    }
    words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned)
}

fn first_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST_BYTES_MAX as u64).read_to_end(&mut bytes));
    // What cannot be read is not known to be a program.
    read.map(|_| bytes).unwrap_or_default()
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_shim_and_what_lies_in_the_workspace_are_steered_and_programs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let link = |path: &str, to: &str| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(home.join(to), path).unwrap();
        };
        let (native, script) = (b"\x7fELF program", b"#!/bin/sh\nexec something\n");
        write(".asdf/shims/node", b"#!/usr/bin/env bash\nexec asdf exec node\n");
        write(".pyenv/shims/python3", script);
        write("bin/mise", native);
        link("mise/links/ruby", "bin/mise");
        write(".volta/bin/volta-shim", native);
        link(".volta/bin/npm", ".volta/bin/volta-shim");
        write("node/lib/node_modules/corepack/dist/yarn.js", b"#!/usr/bin/env node\n");
        link("node/bin/yarn", "node/lib/node_modules/corepack/dist/yarn.js");
        write("work/.venv/bin/python", native);
        link("linked/jq", "work/jq");
        write("work/jq", native);
        write(".cargo/bin/rg", native);
        write("conda/bin/python3.12", native);
        link("conda/bin/python3", "conda/bin/python3.12");
        write(".local/bin/own", script);
        write("store/rg", native);
        link("other/fd", "store/rg");
        let (work, roots) = (home.join("work"), [home.join("work")]);
        let lookup = |program: &str, search: &OsStr| {
            steered_program(program, &[("PATH".into(), search.to_owned())], &work, &roots)
        };
        for (search, program, steered) in [
            (".asdf/shims:.cargo/bin", "node", true),
            (".pyenv/shims", "python3", true),
            ("mise/links", "ruby", true),
            (".volta/bin", "npm", true),
            ("node/bin", "yarn", true),
            ("work/.venv/bin", "python", true),
            ("linked", "jq", true),
            ("other", "fd", true),
            (".local/bin", "own", true),
            (".cargo/bin:.asdf/shims", "rg", false),
            ("conda/bin", "python3", false),
            ("bin", "mise", false),
            (".asdf/shims", "ls", false),
        ] {
            let search: Vec<_> = search.split(':').map(|part| home.join(part)).collect();
            let search = std::env::join_paths(search).unwrap();
            let found = lookup(program, &search);
            assert_eq!(found.is_some(), steered, "{program}: {found:?}");
        }
        let relative = lookup("jq", OsStr::new(""));
        assert_eq!(relative, Some(home.join("work/jq")), "an empty entry is the folder of the command");
        let path = OsStr::new("/usr/bin:/bin");
        for program in ["ls", "cat", "sh", "/bin/ls", "no-such-program"] {
            assert_eq!(lookup(program, path), None, "{program}");
        }
    }

    #[test]
    fn a_script_is_as_steered_as_the_program_that_it_is_looked_up_for() {
        assert_eq!(interpreter(b"#!/usr/bin/env node\nrest"), Some("node".into()));
        assert_eq!(interpreter(b"#!/usr/bin/env -S A=1 node -x\n"), Some("node".into()));
        assert_eq!(interpreter(b"#!/usr/bin/python3 -s\n"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }
}
