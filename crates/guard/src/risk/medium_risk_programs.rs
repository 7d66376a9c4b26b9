//! Ordinary commands that have to be asked about: what kind of thing they do, in words.

use engine::Risk;

use super::Finding;
use super::dangerous_programs::interprets;
use crate::shell::Word;

/// A command that is neither known to be harmless nor to be dangerous.
pub(super) fn ordinary(name: &str, words: &[Word], arguments: &[Word]) -> Finding {
    Finding::new(Risk::Medium, effect(name, arguments), words)
}

fn effect(name: &str, arguments: &[Word]) -> &'static str {
    let first = arguments.first().map(Word::text).unwrap_or_default();
    match name {
        "rmdir" | "mv" | "cp" | "ln" | "touch" | "mkdir" | "install" | "truncate" | "tee" | "dd"
        | "patch" | "unzip" | "zip" | "tar" | "gzip" | "gunzip" | "bzip2" | "xz" | "split" | "csplit"
        | "mktemp" | "sed" | "sort" | "uniq" => "may change files",
        "npm" | "pnpm" | "yarn" | "bun" | "pip" | "pip3" | "uv" | "poetry" | "gem" | "apt" | "apt-get"
        | "brew" | "dpkg" | "yum" | "dnf" | "pacman" | "snap" | "apk" | "conda" | "rustup" | "composer"
            if matches!(
                first,
                "install"
                    | "i"
                    | "add"
                    | "ci"
                    | "remove"
                    | "uninstall"
                    | "update"
                    | "upgrade"
                    | "sync"
                    | "-S"
                    | "-i"
            ) =>
        {
            "installs or removes packages, which may run their code"
        }
        "make" | "ninja" | "cmake" | "cargo" | "npm" | "pnpm" | "yarn" | "npx" | "bunx" | "go" | "mvn"
        | "gradle" | "gradlew" | "pytest" | "tox" | "nox" | "just" | "rake" | "bundle" | "uv" | "poetry"
        | "meson" | "bazel" | "tsc" | "jest" | "vitest" | "rustc" | "gcc" | "g++" | "cc" | "clang" => {
            "runs code of the project"
        }
        "curl" | "wget" | "ftp" | "sftp" | "scp" | "rsync" | "ping" | "telnet" | "host" | "dig"
        | "nslookup" | "gh" | "glab" | "aws" | "gcloud" | "az" | "kubectl" | "helm" | "traceroute"
        | "whois" | "http" | "nmap" | "ssh-keyscan" => "reaches another machine",
        "git" => "may change the repository",
        "docker" | "podman" | "docker-compose" | "nerdctl" => "controls containers",
        "export" | "typeset" | "declare" | "local" | "readonly" | "set" | "shopt" | "unset" | "alias"
        | "unalias" | "source" | "." | "trap" | "enable" | "hash" | "read" | "mapfile" | "readarray"
        | "cd" | "pushd" | "popd" | "ulimit" | "umask" | "let" | "getopts" | "shift" | "exit" | "return"
        | "wait" | "bind" | "complete" => "changes the shell itself",
        "printenv" => "shows the environment, which may hold secrets",
        "psql" | "mysql" | "sqlite3" | "mongosh" | "redis-cli" | "mariadb" => "works on a database",
        "less" | "more" | "man" | "nano" | "top" | "htop" => "opens a program that can start others",
        _ if interprets(name) => "runs code that it is given",
        _ => "is not known to be harmless",
    }
}
