//! Commands that are known to destroy data, to escape the sandbox or to spread.

use engine::Risk;

use super::command_options::{has, has_abbreviated, names, operands, texts};
use super::{CommandContext, Finding, git_commands, inside};
use crate::shell::{RedirectKind, SimpleCommand, Word};

/// The danger of a command, if there is one. It may also be a medium risk with a more specific reason than the
/// general one.
pub(super) fn finding(
    name: &str,
    words: &[Word],
    arguments: &[Word],
    context: CommandContext,
) -> Option<Finding> {
    let found = |risk, what| Some(Finding::new(risk, what, words));
    match name {
        "git" => git_commands::danger(words, arguments),
        "rm" => Some(removal(words, arguments)),
        "chmod" | "chown" | "chgrp" => Some(permission_change(name, words, arguments)),
        "dd" if texts(arguments).any(|text| text.starts_with("of=/dev/") && text != "of=/dev/null") => {
            found(Risk::Critical, "overwrites a device")
        }
        "mkswap" | "wipefs" | "fdisk" | "sfdisk" | "parted" | "blkdiscard" | "cryptsetup" | "diskutil" => {
            found(Risk::Critical, "changes disks")
        }
        _ if name == "mkfs" || name.starts_with("mkfs.") => found(Risk::Critical, "overwrites a disk"),
        "shred" | "srm" => found(Risk::High, "destroys files for good"),
        "kill" | "killall" | "pkill" => Some(process_kill(words, arguments)),
        "shutdown" | "reboot" | "halt" | "poweroff" | "init" | "telinit" => {
            found(Risk::High, "shuts down or restarts the machine")
        }
        "systemctl" | "service" | "launchctl" | "rc-service" | "update-rc.d" => {
            Some(service_control(words, arguments))
        }
        "crontab" if !matches!(arguments, [only] if only.text() == "-l") => {
            found(Risk::High, "changes what runs automatically later")
        }
        "at" | "batch" => found(Risk::High, "changes what runs automatically later"),
        "history" => found(
            if has(arguments, "cdw", &[]) { Risk::High } else { Risk::Medium },
            "touches the history of commands",
        ),
        "unset" if texts(arguments).any(|text| text.starts_with("HIST")) => {
            found(Risk::High, "hides commands from the history")
        }
        "mount" | "umount" | "losetup" | "insmod" | "rmmod" | "modprobe" | "sysctl" | "iptables"
        | "ip6tables" | "nft" | "ufw" | "useradd" | "userdel" | "usermod" | "groupadd" | "passwd"
        | "chpasswd" | "visudo" | "chsh" | "setcap" | "chattr" | "nsenter" | "unshare" | "chroot"
        | "swapoff" | "ssh-copy-id" | "authconfig" | "csrutil" => found(Risk::High, "changes the system"),
        "nc" | "ncat" | "netcat" | "socat" => Some(socket_tool(words, arguments)),
        _ => tools(name, words, arguments, context),
    }
}

fn tools(name: &str, words: &[Word], arguments: &[Word], context: CommandContext) -> Option<Finding> {
    let found = |risk, what| Some(Finding::new(risk, what, words));
    match name {
        "docker" | "podman" | "nerdctl" | "docker-compose" => containers(words, arguments),
        "kubectl" | "helm" | "oc" if names(arguments, &["delete", "drain", "uninstall", "cordon"]) => {
            found(Risk::High, "removes what runs on a cluster")
        }
        "terraform" | "tofu" | "pulumi" if names(arguments, &["destroy", "apply", "-auto-approve", "up"]) => {
            found(Risk::High, "changes what runs on other machines")
        }
        "aws" | "gcloud" | "az" | "gsutil" | "rclone"
            if texts(arguments).any(|text| {
                matches!(text, "rm" | "rb" | "delete" | "terminate-instances" | "purge")
                    || text.starts_with("delete-")
            }) =>
        {
            found(Risk::High, "removes data on other machines")
        }
        "gh" | "glab"
            if names(arguments, &["delete", "archive"]) || texts(arguments).any(|text| text == "DELETE") =>
        {
            found(Risk::High, "removes data on a server")
        }
        "npm" | "pnpm" | "yarn" | "cargo" | "gem" | "poetry" | "twine" | "flit" | "mvn" | "uv"
            if arguments.first().is_some_and(|first| {
                matches!(
                    first.text(),
                    "publish" | "upload" | "push" | "yank" | "unpublish" | "deploy" | "owner"
                )
            }) =>
        {
            found(Risk::High, "publishes a package")
        }
        _ if is_database(name) => database_statements(words, arguments, context),
        _ => carriers(name, words, arguments, context),
    }
}

/// Programs that transfer data, and can be made to run others or to show secrets.
fn carriers(name: &str, words: &[Word], arguments: &[Word], context: CommandContext) -> Option<Finding> {
    let found = |risk, what| Some(Finding::new(risk, what, words));
    match name {
        "dropdb" | "dropuser" => found(Risk::Critical, "removes a database"),
        "mysqladmin" if names(arguments, &["drop"]) => found(Risk::Critical, "removes a database"),
        "redis-cli"
            if texts(arguments)
                .any(|text| ["flushall", "flushdb"].contains(&text.to_lowercase().as_str())) =>
        {
            found(Risk::Critical, "empties a database")
        }
        "tar" | "bsdtar"
            if names(
                arguments,
                &[
                    "--to-command",
                    "--checkpoint-action",
                    "--use-compress-program",
                    "--rsh-command",
                    "--info-script",
                    "--new-volume-script",
                ],
            ) || has(arguments, "IF", &[]) =>
        {
            found(Risk::High, "makes tar run another program")
        }
        "rsync" if has(arguments, "e", &["rsh", "rsync-path"]) => {
            found(Risk::High, "makes rsync run another program")
        }
        "rsync"
            if names(
                arguments,
                &[
                    "--delete",
                    "--delete-after",
                    "--delete-before",
                    "--delete-excluded",
                    "--remove-source-files",
                ],
            ) =>
        {
            found(Risk::High, "removes files")
        }
        "scp" | "sftp"
            if texts(arguments).any(|text| text.to_lowercase().contains("proxycommand"))
                || has(arguments, "S", &[]) =>
        {
            found(Risk::High, "makes ssh run another program")
        }
        "gpg" if texts(arguments).any(|text| text.contains("secret-key")) => {
            found(Risk::Critical, "shows private keys")
        }
        "pass" | "security" | "op" | "vault" | "secret-tool" | "keyctl" => {
            found(Risk::High, "shows stored passwords")
        }
        "curl" | "wget"
            if texts(arguments).any(|text| {
                text.contains("169.254.169.254") || text.contains("metadata.google.internal")
            }) =>
        {
            found(Risk::High, "requests cloud credentials")
        }
        "source" | "." if context.others().any(|other| feeds_words(other, context)) => {
            found(Risk::Critical, "runs code from another machine")
        }
        _ if interprets(name) => code(name, words, arguments, context),
        _ => None,
    }
}

fn removal(words: &[Word], arguments: &[Word]) -> Finding {
    let recursive = has_abbreviated(arguments, "rR", &["recursive"]);
    let forced = has_abbreviated(arguments, "f", &["force"]);
    let everything = operands(arguments).any(|word| is_everything(word.text()));
    match (recursive, forced) {
        (true, true) => {
            Finding::new(Risk::Critical, "removes folders with everything in them, without asking", words)
        }
        (true, false) if everything => {
            Finding::new(Risk::Critical, "removes folders with everything in them", words)
        }
        (true, false) => Finding::new(Risk::High, "removes folders with everything in them", words),
        (false, _) if everything => Finding::new(Risk::High, "removes files", words),
        (false, _) => Finding::new(Risk::Medium, "removes files", words),
    }
}

fn is_everything(path: &str) -> bool {
    matches!(
        path.trim_matches(['"', '\'']),
        "/" | "/*" | "~" | "~/" | "~/*" | "*" | "." | "./" | ".." | "$HOME" | "${HOME}" | "$HOME/*" | "./*"
    )
}

fn permission_change(name: &str, words: &[Word], arguments: &[Word]) -> Finding {
    let recursive = has_abbreviated(arguments, "R", &["recursive"]);
    if recursive
        && operands(arguments).any(|word| matches!(word.text(), "/" | "/*" | "~" | "$HOME" | "/etc" | "/usr"))
    {
        return Finding::new(Risk::Critical, "changes the permissions of all files", words);
    }
    // A mode such as `-x` looks like an option.
    let open = name == "chmod" && texts(arguments).any(is_permissive_mode);
    if open {
        return Finding::new(Risk::High, "gives everybody full access to files", words);
    }
    let risk = if recursive && name != "chmod" { Risk::High } else { Risk::Medium };
    Finding::new(risk, "changes file permissions", words)
}

/// Modes that make a file writable for everybody, or run it with the owner's rights.
fn is_permissive_mode(mode: &str) -> bool {
    let octal = mode.len() >= 3 && mode.len() <= 5 && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if octal {
        let special = mode.len() > 3 && !mode.starts_with('0');
        return special || mode.ends_with(['2', '3', '6', '7']);
    }
    mode.split(',').any(|part| {
        let Some(at) = part.find(['+', '=']) else { return false };
        let (who, what) = part.split_at(at);
        let known = who.chars().all(|c| "ugoa".contains(c));
        known && (what.contains('s') || (what.contains('w') && who.contains(['o', 'a'])))
    })
}

fn process_kill(words: &[Word], arguments: &[Word]) -> Finding {
    // The first `-1` may be a signal; a second word `-1` is everybody.
    let everybody = texts(arguments).skip(1).any(|text| text == "-1")
        || texts(arguments).any(|text| text == "--") && texts(arguments).any(|text| text == "-1");
    if everybody {
        return Finding::new(Risk::Critical, "ends all programs", words);
    }
    Finding::new(Risk::Medium, "ends programs", words)
}

fn service_control(words: &[Word], arguments: &[Word]) -> Finding {
    let looks = names(
        arguments,
        &[
            "status",
            "list-units",
            "list-unit-files",
            "is-active",
            "is-enabled",
            "show",
            "cat",
            "list",
            "print",
        ],
    );
    let risk = if looks { Risk::Medium } else { Risk::High };
    Finding::new(risk, "controls the system's services", words)
}

fn socket_tool(words: &[Word], arguments: &[Word]) -> Finding {
    let runs = has(arguments, "ec", &["exec", "sh-exec", "lua-exec"])
        || texts(arguments).any(|text| {
            let text = text.to_lowercase();
            text.contains("exec:") || text.contains("system:")
        });
    match runs {
        true => Finding::new(Risk::Critical, "gives another machine a shell on this one", words),
        false => Finding::new(Risk::Medium, "reaches another machine", words),
    }
}

fn containers(words: &[Word], arguments: &[Word]) -> Option<Finding> {
    let whole = texts(arguments).any(|text| {
        text.starts_with("/:/")
            || text.contains("=/:/")
            || text.contains("source=/,")
            || text.contains("src=/,")
            || text.starts_with("-v/:")
    });
    if whole {
        return Some(Finding::new(Risk::Critical, "gives a container access to the whole machine", words));
    }
    let power = texts(arguments).any(|text| {
        text == "--privileged"
            || text.contains("docker.sock")
            || text.contains("--pid=host")
            || text.contains("--cap-add")
            || text.contains("--net=host")
            || text.contains("--network=host")
    });
    if power {
        return Some(Finding::new(Risk::High, "gives a container control over the machine", words));
    }
    let verbs: Vec<&str> = texts(arguments).filter(|text| !text.starts_with('-')).take(3).collect();
    let removes = verbs.contains(&"prune")
        || verbs.starts_with(&["volume", "rm"])
        || (verbs.contains(&"down") && has(arguments, "v", &["volumes"]));
    if removes {
        return Some(Finding::new(Risk::High, "removes the data of containers", words));
    }
    verbs.contains(&"push").then(|| Finding::new(Risk::High, "publishes an image", words))
}

/// Statements that a database gets as an argument, as a here-document, or through the pipe.
fn database_statements(words: &[Word], arguments: &[Word], context: CommandContext) -> Option<Finding> {
    let here = context
        .command
        .redirects
        .iter()
        .filter(|redirect| redirect.kind == RedirectKind::InlineText)
        .map(|redirect| redirect.target.text());
    let piped =
        context.others().filter(|other| same_pipe(other, context)).flat_map(|other| texts(&other.argv));
    let destroys = texts(arguments).chain(here).chain(piped).any(|text| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| {
            ["drop", "delete", "truncate", "dropdatabase", "deletemany", "deleteone"]
                .contains(&word.to_lowercase().as_str())
        })
    });
    destroys.then(|| Finding::new(Risk::Critical, "removes data from a database", words))
}

fn same_pipe(other: &SimpleCommand, context: CommandContext) -> bool {
    let (Some(pipe), Some(its)) = (context.command.position.pipe, other.position.pipe) else { return false };
    its.number == pipe.number && its.stage < pipe.stage
}

/// Programs that run code that they are given.
pub(crate) fn interprets(name: &str) -> bool {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        base,
        "python"
            | "pypy"
            | "perl"
            | "ruby"
            | "node"
            | "nodejs"
            | "deno"
            | "bun"
            | "php"
            | "lua"
            | "luajit"
            | "awk"
            | "gawk"
            | "mawk"
            | "nawk"
            | "tclsh"
            | "expect"
            | "osascript"
            | "Rscript"
            | "julia"
            | "ghci"
            | "irb"
            | "pwsh"
            | "powershell"
            | "ed"
            | "ex"
            | "vim"
            | "vi"
            | "nvim"
            | "emacs"
            | "tsx"
            | "ts-node"
            | "groovy"
            | "jshell"
            | "scala"
    )
}

fn code(name: &str, words: &[Word], arguments: &[Word], context: CommandContext) -> Option<Finding> {
    let fed = operands(arguments).next().is_none_or(|first| first.text() == "-")
        && !has(arguments, "ceEr", &["eval", "version", "print"]);
    let before = || context.others().filter(|other| same_pipe(other, context));
    if fed && !name.contains("awk") && before().any(is_download) {
        return Some(Finding::new(Risk::Critical, "runs code from another machine", words));
    }
    if fed && before().any(decodes) {
        return Some(Finding::new(Risk::Critical, "runs a script that is encoded or hidden", words));
    }
    if context.others().any(|other| feeds_words(other, context)) && has(arguments, "ceEr", &["eval"]) {
        return Some(Finding::new(Risk::Critical, "runs code from another machine", words));
    }
    let text: String = texts(arguments)
        .chain(context.command.redirects.iter().map(|redirect| redirect.target.text()))
        .collect::<Vec<_>>()
        .join(" ");
    let shell = ["/bin/sh", "/bin/bash", "pty.spawn", "cmd.exe"].iter().any(|part| text.contains(part));
    if shell && text.to_lowercase().contains("socket") {
        return Some(Finding::new(Risk::Critical, "gives another machine a shell on this one", words));
    }
    const HARMFUL_CALLS: [&str; 16] = [
        "rmtree",
        "unlink",
        "os.remove",
        "os.system",
        "subprocess",
        "system(",
        "exec(",
        "execSync",
        "child_process",
        "popen",
        "rmSync",
        "rmdirSync",
        "getline",
        "spawn(",
        "File.delete",
        "rm_rf",
    ];
    // Calls that only some of the interpreters have.
    let own: &[&str] = match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "perl" | "ruby" | "php" => &["`", "exec ", "qx"],
        "ed" | "ex" | "vi" | "vim" | "nvim" => &["!"],
        "awk" | "gawk" | "mawk" | "nawk" => &["| \"", "|\""],
        "expect" | "tclsh" => &["spawn ", "exec "],
        "emacs" => &["shell-command", "call-process", "start-process"],
        "lua" | "luajit" => &["os.execute"],
        _ => &[],
    };
    HARMFUL_CALLS
        .iter()
        .chain(own)
        .any(|deed| text.contains(deed))
        .then(|| Finding::new(Risk::High, "its code removes files or starts programs", words))
}

/// Whether the commands around a program decide what it does.
pub(super) fn depends_on_others(name: &str) -> bool {
    interprets(name)
        || is_database(name)
        || super::wrapper_programs::is_shell(name)
        || matches!(name, "eval" | "source" | "." | "xargs")
}

fn is_database(name: &str) -> bool {
    matches!(
        name,
        "psql"
            | "mysql"
            | "mariadb"
            | "sqlite3"
            | "sqlite"
            | "mongo"
            | "mongosh"
            | "clickhouse-client"
            | "duckdb"
            | "sqlcmd"
            | "cockroach"
            | "pgcli"
            | "mycli"
            | "cqlsh"
            | "bq"
            | "sqlplus"
    )
}

/// Whether a command downloads something from another machine.
pub(super) fn is_download(command: &SimpleCommand) -> bool {
    let words = super::wrapper_programs::unwrapped_command(&command.argv);
    let name = words.first().map(|word| word.text().rsplit('/').next().unwrap_or_default());
    matches!(
        name,
        Some(
            "curl"
                | "wget"
                | "fetch"
                | "aria2c"
                | "http"
                | "https"
                | "xh"
                | "lynx"
                | "nc"
                | "ncat"
                | "netcat"
                | "ftp"
                | "scp"
                | "ssh"
                | "lwp-request"
                | "GET"
        )
    )
}

/// Whether a command decodes unreadable data into text.
pub(super) fn decodes(command: &SimpleCommand) -> bool {
    let [name, arguments @ ..] = super::wrapper_programs::unwrapped_command(&command.argv) else {
        return false;
    };
    match name.text().rsplit('/').next().unwrap_or_default() {
        "base64" | "base32" | "gbase64" => has(arguments, "dD", &["decode"]),
        "xxd" => has(arguments, "r", &["revert"]),
        "openssl" => texts(arguments).any(|text| matches!(text, "-d" | "base64")),
        "rev" | "tr" | "uudecode" | "gunzip" | "zcat" | "gzip" => true,
        _ => false,
    }
}

/// Whether this command downloads the input of another command of the line.
pub(super) fn is_source(other: &SimpleCommand, context: CommandContext) -> bool {
    is_download(other) && same_pipe(other, context)
}

/// Whether this download stands inside the words or the input of the command.
pub(super) fn feeds_words(other: &SimpleCommand, context: CommandContext) -> bool {
    is_download(other) && inside(other, context.index)
}

/// The last resort for a line that could not be parsed: words that are never harmless.
pub(super) fn by_words(line: &str) -> Option<Finding> {
    let words: Vec<&str> = line
        .split(|c: char| c.is_whitespace() || ";|&()`$\"'{}<>".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let name = |word: &&str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let has_name = |wanted: &[&str]| words.iter().map(name).any(|word| wanted.contains(&word.as_str()));
    let forced = words.iter().any(|word| word.starts_with('-') && word.contains('r') && word.contains('f'));
    if has_name(&["rm"]) && forced {
        return Some(Finding::text(
            Risk::Critical,
            "removes folders with everything in them, and could not be understood",
            line,
        ));
    }
    if has_name(&["mkfs", "fdisk", "wipefs"]) || line.contains("/dev/tcp/") {
        return Some(Finding::text(
            Risk::Critical,
            "could not be understood and contains dangerous words",
            line,
        ));
    }
    if has_name(&["curl", "wget"]) && has_name(&["sh", "bash", "zsh", "dash"]) {
        return Some(Finding::text(
            Risk::Critical,
            "runs code from another machine, and could not be understood",
            line,
        ));
    }
    has_name(&[
        "rm", "sudo", "dd", "doas", "shred", "chmod", "chown", "shutdown", "reboot", "eval", "nc", "crontab",
    ])
    .then(|| Finding::text(Risk::High, "could not be understood and contains dangerous words", line))
}
