//! Programs that start nothing because of their arguments: these are files, texts and names.
//!
//! A program that is not listed here may start what it is given. So if the command that a rule denies stands behind such
//! a program, the person is asked.

use super::is_listed;
use crate::risk::reads_with_known_options;
use crate::shell::Word;

/// Programs that start nothing, whatever their options are.
const PROGRAMS: &str = "echo printf true false : test [ cd pushd popd pwd type which whereis export declare typeset \
    readonly local unset set shopt ulimit umask wait read exit return shift break continue let getopts \
    cp mv rm rmdir mkdir touch ln chmod chown chgrp tee dd truncate shred mktemp mkfifo install \
    kill pkill killall pgrep ps sleep date jq basename dirname realpath readlink \
    ping dig host nslookup traceroute whois aws gcloud az gh glab terraform tofu helm \
    pip pip3 gem composer brew dnf yum pacman apk snap conda rustup gunzip gzip bzip2 xz zstd unzip \
    pytest jest vitest tsc eslint prettier ruff black isort mypy pyright flake8 clippy-driver rustfmt gofmt \
    psql mysql mariadb mongosh redis-cli patch systemctl service journalctl launchctl mount umount \
    docker podman nerdctl docker-compose kubectl npm pnpm yarn bun deno uv poetry gradle gradlew mvn \
    history alias unalias";
/// Programs that start nothing if one of these words comes first.
const BY_VERB: &[(&str, &str)] = &[
    (
        "cargo",
        "build test check clippy fmt doc add remove update fetch tree metadata clean new init search \
      publish install uninstall nextest bench version generate-lockfile vendor package deny audit",
    ),
    ("go", "build test vet fmt mod get list env doc version install clean"),
    (
        "git",
        "add am apply archive blame branch bundle cat-file checkout cherry-pick clean clone commit describe \
      diff fetch format-patch gc grep init log ls-files ls-remote ls-tree merge merge-base mv notes pull \
      push range-diff rebase reflog remote reset restore revert rev-list rev-parse rm shortlog show \
      show-ref sparse-checkout stash status submodule switch symbolic-ref tag update-index update-ref \
      version whatchanged worktree config bisect for-each-ref name-rev diff-tree count-objects \
      check-ignore read-tree write-tree commit-tree hash-object prune repack fsck replace rerere",
    ),
];

/// Whether a command starts nothing but itself.
pub(crate) fn starts_nothing(name: &str, arguments: &[Word]) -> bool {
    if is_listed(PROGRAMS, name) {
        return true;
    }
    if let Some((_, verbs)) = BY_VERB.iter().find(|(known, _)| *known == name) {
        let verb = if name == "git" {
            crate::risk::git_subcommand(arguments).map(|(verb, _)| verb)
        } else {
            arguments.iter().find(|word| !word.text().starts_with(['-', '+'])).and_then(Word::literal)
        };
        return verb.is_none_or(|verb| is_listed(verbs, verb));
    }
    reads_with_known_options(name, arguments)
}
