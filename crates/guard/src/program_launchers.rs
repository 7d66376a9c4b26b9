//! Programs that start other programs: which they are, and where among their arguments the started program stands.
//!
//! Both readers of a command line use this one table: the risk assessment judges what is started, and rules that deny
//! search it for what they deny. Neither needs to know the options of every launcher: where a word may be either the value
//! of an option or the program, both readings are considered.
//!
//! **Invariant:** a program counts as starting nothing ([`starts_nothing`]) only if it is on a list.

use crate::shell::Word;

mod git;
mod non_launchers;
mod sed;

pub(crate) use git::parameters as git_parameters;
pub(crate) use non_launchers::starts_nothing;

/// The programs that a command starts, as far as its own words say.
#[derive(Debug, Default)]
pub(crate) struct LaunchedPrograms<'w> {
    /// Programs with their arguments. Where there are several, some may only be values of options.
    pub(crate) programs: Vec<&'w [Word]>,
    /// Lines of shell, or texts that may be lines of shell.
    pub(crate) lines: Vec<String>,
    /// The programs get more arguments from elsewhere: from the input, from the files that are found.
    pub(crate) open: bool,
    /// A program may begin at any word: a rule that denies examines each.
    pub(crate) anywhere: bool,
    /// It also runs something that its words do not say: its input, a file, a variable.
    pub(crate) unknown: bool,
}

/// Programs whose first operand is the program to start.
const PROGRAMS: &str = "sudo doas pkexec run0 env command exec builtin coproc nice nohup time gtime setsid \
    stdbuf unbuffer ionice caffeinate strace ltrace ptrace gdb lldb rust-gdb rust-lldb valgrind \
    heaptrack bpftrace uprobe numactl prlimit setpriv setarch linux32 linux64 i386 x86_64 uname26 cpulimit \
    cgexec systemd-run systemd-inhibit systemd-nspawn unshare nsenter bwrap firejail proot fakeroot \
    fakechroot eatmydata catchsegv libtool rlwrap dbus-run-session dbus-launch xvfb-run xinit startx \
    wine wine64 chronic ifne pee xe rush busybox toybox xargs gxargs entr fd fdfind watchexec reflex \
    nodemon onchange tini dumb-init catatonit chpst softlimit daemonize daemon start-stop-daemon \
    torsocks torify tsocks proxychains proxychains4 sshpass autossh ssh-agent gpg-agent dotenv dotenvx \
    foreman overmind hivemind npx pnpx bunx uvx ccache sccache distcc icecc bear scan-build ts-node-dev \
    coproc noglob nocorrect find gfind rtk trap multitime flatpak-spawn termux-chroot pv-run cset \
    execline-cd background foreground importas with-contenv nohupx ktrace dtruss sandbox-exec xcrun open \
    stap ltrace-ng schedtool trickle parallel sem hyperfine concurrently npm-run-all run-p run-s wsl \
    systemd-cat websocketd coreutils";
/// One operand comes before it: a time, a lock, a mask, a user, a folder.
const AFTER_ONE: &str = "timeout gtimeout flock taskset chrt chroot faketime gosu su-exec setuidgid \
    envuidgid sg envdir envchain lxc-attach lxc-execute pyenv-exec mosh ssh hssh dsh pssh pdsh schroot";
/// What follows is a line of shell as a whole, or each operand is one.
const LINES: &str = "watch ssh mosh autossh tmux byobu screen script hyperfine concurrently parallel sem \
    rush entr watchexec reflex nodemon onchange npm-run-all run-p run-s su runuser sg trap pssh pdsh dsh \
    zellij kitty wezterm xterm gnome-terminal konsole alacritty foot abduco dtach at batch \
    watchmedo when-changed cmd cmd.exe pee git-shell x-terminal-emulator capsh chokidar";
/// Their other words are files and names, but a text with blanks or the value of an option may be a line.
const TEXTS: &str = "make gmake bmake just ansible salt split csplit zip less more most man mapfile \
    readarray complete compgen bind fc socat nc ncat netcat rsync scp sftp tar bsdtar gtar cpio wget zenity \
    mail mutt crontab incrontab inotifywait ed pax star rclone borg restic";
/// Only behind one of these words: name, words, and how many operands come before the program.
const BY_VERB: &[(&str, &str, usize)] = &[
    ("npm pnpm yarn", "exec x dlx", 0),
    ("bun deno", "x run task", 0),
    ("uv poetry pipenv pdm hatch rye conda mamba micromamba", "run", 0),
    ("uv", "tool", 1),
    ("pipx", "run", 0),
    ("bundle bundler", "exec", 0),
    ("pyenv rbenv nodenv jenv goenv asdf fnm nvm volta plenv phpenv tfenv", "exec run shell", 0),
    ("asdf rustup nvm direnv chamber aws-vault", "exec run", 1),
    ("mise rtx devbox pkgx", "exec x run", 0),
    ("nix", "run shell develop", 1),
    ("guix", "shell environment", 1),
    ("docker podman nerdctl docker-compose podman-compose lxc incus kubectl oc crictl", "run exec debug", 1),
    ("docker podman nerdctl", "create", 1),
    ("machinectl toolbox distrobox vagrant flatpak snap", "run exec shell enter ssh", 1),
    ("apptainer singularity", "run exec shell", 1),
    ("op doppler teller heroku infisical sops", "run exec exec-env exec-file local:run", 0),
    ("lerna nx turbo rush", "exec run", 0),
    ("coverage", "run", 0),
    ("cargo", "watch nextest-run expand-run flamegraph", 0),
    ("perf trace-cmd rr", "record stat trace replay", 0),
    ("systemctl", "edit", 1),
    ("gh", "extension alias codespace", 1),
    ("just", "--command -c", 0),
    ("cmake", "env time chdir", 1),
    ("meson", "devenv", 0),
    ("ip", "exec", 1),
    ("jj fossil", "exec run", 0),
    ("runc crun ctr", "run exec", 2),
];
/// Options whose value is run, of programs that are not launchers otherwise.
const RUNNING_OPTIONS: &[(&str, &str)] = &[
    ("rg", "--pre --hostname-bin"),
    ("sort gsort", "--compress-program"),
    ("go", "-exec -toolexec -vettool"),
    ("nix-shell nix nix-build", "--run --command -c"),
    ("vim vi nvim view ex ed", "-c --cmd"),
    (
        "dpkg apt apt-get apt-cache apt-config aptitude",
        "-o --option --pre-invoke --post-invoke --status-logger",
    ),
    ("dnf yum microdnf", "--setopt"),
    ("npm pnpm yarn", "--script-shell --scripts-prepend-node-path script-shell --shell"),
    ("curl", "--netrc-cmd"),
    ("rustc rustdoc cargo", "--config -C"),
    ("gcc g++ cc clang", "-wrapper -B"),
    ("sqlite3", "-cmd"),
    ("psql", "-c --command"),
    ("ps2pdf gs", "-c"),
    ("logrotate", "--mail -m"),
    ("locate updatedb", "--database"),
    ("jq yq", "--from-file"),
    ("tcpdump", "-z"),
    ("wget", "--use-askpass"),
    ("dig host", "-f"),
    ("hg chg", "--config"),
    ("svn", "--config-option --diff-cmd --diff3-cmd --editor-cmd"),
    ("bat batcat delta", "--pager"),
    ("fzf sk", "--preview --bind"),
    ("yt-dlp youtube-dl", "--exec --exec-before-download"),
    ("gpg gpg2", "--photo-viewer --pinentry-program --agent-program"),
    ("msmtp", "--passwordeval"),
    ("gcloud", "--command"),
    ("bazel bazelisk", "--run_under"),
    ("ssh-keygen", "-D"),
    ("git-send-email", "--sendmail-cmd --to-cmd --cc-cmd"),
];

/// What a command starts; `None` if it is not known to start anything.
pub(crate) fn launched<'w>(name: &str, arguments: &'w [Word]) -> Option<LaunchedPrograms<'w>> {
    match name {
        "git" => return git::launched(arguments),
        "sed" | "gsed" => return sed::launched(arguments),
        _ => {}
    }
    let by_option = running_options(name, arguments);
    let Some(mut launched) = by_place(name, arguments) else { return by_option };
    if let Some(more) = by_option {
        launched.programs.extend(more.programs);
        launched.lines.extend(more.lines);
    }
    Some(launched)
}

/// What a launcher starts because of the position of a word.
fn by_place<'w>(name: &str, arguments: &'w [Word]) -> Option<LaunchedPrograms<'w>> {
    let (rest, leads) = if name == "bwrap" {
        // Some of its options have two values.
        (arguments, arguments.len())
    } else if is_listed(PROGRAMS, name) || is_loader(name) {
        (arguments, 0)
    } else if is_listed(AFTER_ONE, name) {
        (arguments, 1)
    } else if let Some(found) = behind_verb(name, arguments) {
        found
    } else if is_listed(LINES, name) || is_listed(TEXTS, name) {
        let anywhere = is_listed(LINES, name);
        // Multiplexers have a command of their own first.
        let leads = usize::from(matches!(name, "tmux" | "byobu" | "zellij"));
        let programs = if anywhere { candidates(arguments, leads) } else { Vec::new() };
        return Some(LaunchedPrograms {
            programs,
            lines: lines(name, arguments),
            anywhere,
            ..LaunchedPrograms::default()
        });
    } else {
        return None;
    };
    let programs = match name {
        "find" | "gfind" | "fd" | "fdfind" => after_exec(rest),
        _ => candidates(rest, leads),
    };
    let open =
        matches!(name, "xargs" | "gxargs" | "parallel" | "sem" | "find" | "gfind" | "fd" | "fdfind" | "xe");
    Some(LaunchedPrograms { programs, lines: lines(name, rest), open, anywhere: true, unknown: false })
}

/// Whether this program runs whatever it is given, so that allowing its name would allow anything.
pub(crate) fn starts_anything(name: &str) -> bool {
    let quiet = matches!(name, "find" | "gfind" | "fd" | "fdfind" | "open" | "libtool");
    !quiet && (is_listed(PROGRAMS, name) || is_listed(AFTER_ONE, name) || is_loader(name))
}

/// Whether this word makes the program start what follows: `npm exec`, `docker run`.
pub(crate) fn is_starting_verb(name: &str, verb: &str) -> bool {
    BY_VERB.iter().any(|(names, verbs, _)| is_listed(names, name) && is_listed(verbs, verb))
}

/// Loaders and emulators have the architecture in their names.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux")
        || name.starts_with("ld-musl")
        || name.starts_with("ld.so")
        || name.starts_with("qemu-")
}

pub(crate) fn is_listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

/// The words behind the verb, if one of the first words is one.
fn behind_verb<'w>(name: &str, arguments: &'w [Word]) -> Option<(&'w [Word], usize)> {
    const VERB_AMONG: usize = 6;
    let entries = || BY_VERB.iter().filter(|(names, _, _)| is_listed(names, name));
    entries().next()?;
    let at = arguments
        .iter()
        .take(VERB_AMONG)
        .position(|word| entries().any(|(_, verbs, _)| is_listed(verbs, word.text())))?;
    // With several entries, the one with more operands before the program covers the others.
    let leads =
        entries().filter(|(_, verbs, _)| is_listed(verbs, arguments[at].text())).map(|(_, _, leads)| *leads);
    Some((&arguments[at + 1..], leads.max().unwrap_or(0)))
}

/// Where the program may begin: at the first operand behind the leading ones, or later by as many words
/// as may be values of options.
fn candidates(arguments: &[Word], leads: usize) -> Vec<&[Word]> {
    let mut found = Vec::new();
    let (mut operands, mut may_be_values, mut after_option) = (0, 0, false);
    for (at, word) in arguments.iter().enumerate() {
        let text = word.text();
        if text == "--" {
            found.extend(arguments.get(at + 1..).filter(|rest| !rest.is_empty()));
            after_option = false;
            continue;
        }
        if text.starts_with(['-', '+']) && text.len() > 1 {
            after_option = !text.contains('=');
            continue;
        }
        if is_assignment(text) && operands == 0 {
            continue;
        }
        may_be_values += usize::from(after_option);
        after_option = false;
        found.push(&arguments[at..]);
        operands += 1;
        if operands > leads + may_be_values {
            let rest = &arguments[at + 1..];
            let end = rest.iter().position(|word| word.text() == "--");
            found.extend(end.and_then(|end| rest.get(end + 1..)).filter(|rest| !rest.is_empty()));
            break;
        }
    }
    found
}

/// `find . -exec a b \;`, `fd -x a b`: each of them, up to where it ends.
fn after_exec(arguments: &[Word]) -> Vec<&[Word]> {
    const STARTS: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let starts = |word: &Word| {
        let name = word.text().split('=').next().unwrap_or_default();
        STARTS.contains(&name) || (name.len() > 3 && "--exec-batch".starts_with(name))
    };
    let mut found = Vec::new();
    for (at, _) in arguments.iter().enumerate().filter(|(_, word)| starts(word)) {
        let inner = &arguments[at + 1..];
        let end =
            inner.iter().position(|word| matches!(word.text(), ";" | "+" | "\\;")).unwrap_or(inner.len());
        found.push(&inner[..end]);
    }
    found
}

/// Everything among the words that may be a line of shell.
fn lines(name: &str, arguments: &[Word]) -> Vec<String> {
    let mut found: Vec<String> =
        arguments.iter().map(Word::text).filter_map(|text| value(name, text)).collect();
    // `-ave'git push'`: which letter takes the rest is not known here.
    let clusters = arguments.iter().map(Word::text).filter(|text| {
        text.starts_with('-') && !text.starts_with("--") && text.contains(char::is_whitespace)
    });
    found.extend(clusters.flat_map(|text| (3..6).filter_map(|at| text.get(at..)).map(str::to_owned)));
    if name == "env" {
        let texts = || arguments.iter().map(Word::text);
        found.extend(texts().filter_map(split_string).map(str::to_owned));
        // The value of `-S` in a word of its own: variables may come before the program.
        found.extend(texts().filter(|text| text.contains(char::is_whitespace)).map(str::to_owned));
    }
    if is_listed(LINES, name) {
        let operands = || arguments.iter().map(Word::text).filter(|text| !text.starts_with('-'));
        let joined = operands().collect::<Vec<_>>().join(" ");
        // Keys that a terminal multiplexer is told to press.
        found.push(joined.replace(" Space ", " ").replace(" Enter", "").replace(" C-m", ""));
        found.extend(operands().map(|text| typed(text).to_owned()));
    }
    found.retain(|line| !line.trim().is_empty());
    found
}

/// The value of `env -S` in the same word, also behind other letters: `-iS'ls -l'`.
pub(crate) fn split_string(text: &str) -> Option<&str> {
    if let Some(long) = text.strip_prefix("--") {
        let (name, value) = long.split_once('=')?;
        return (!name.is_empty() && "split-string".starts_with(name)).then_some(value);
    }
    let letters = text.strip_prefix('-')?;
    let value = letters.trim_start_matches(['i', 'v', '0']).strip_prefix('S')?;
    (!value.is_empty()).then_some(value)
}

/// A text with blanks, without the option that it is the value of.
fn value(name: &str, text: &str) -> Option<String> {
    let value = match text.strip_prefix('-') {
        Some(option) if option.starts_with('-') => option.split_once('=')?.1,
        // `-c'git push'`, `-oProxyCommand=git push`
        Some(_) if text.contains(char::is_whitespace) => {
            let attached = text.get(2..).unwrap_or_default();
            attached
                .split_once('=')
                .filter(|(key, _)| !key.contains(char::is_whitespace))
                .map_or(attached, |(_, value)| value)
        }
        Some(_) => return None,
        None => text,
    };
    let value = value.strip_prefix("exec=").unwrap_or(value);
    // `bind -x '"key":line'`
    let value = if name == "bind" { value.rsplit(':').next().unwrap_or(value) } else { value };
    let lower = value.to_ascii_lowercase();
    let value = match ["exec:", "system:", "shell:"].iter().find(|prefix| lower.starts_with(**prefix)) {
        Some(prefix) if name == "socat" => &value[prefix.len()..],
        _ => value,
    };
    let value = match value.split_once('=') {
        Some((key, inner)) if is_assignment(value) || key.eq_ignore_ascii_case("proxycommand") => inner,
        _ => value,
    };
    let line = typed(value);
    (line.contains(char::is_whitespace) || text.starts_with("--")).then(|| line.to_owned())
}

/// Removes what editors and terminals need around a command: `:!`, a typed line end.
pub(crate) fn typed(text: &str) -> &str {
    let mut text = text.trim();
    for end in ["\\n", "\\r", "^M", "\\015", "\\012"] {
        text = text.strip_suffix(end).unwrap_or(text).trim_end();
    }
    let text = text.trim_start_matches([':', '!', '+', '|', '@']);
    ["shell ", "spawn ", "exec "].iter().find_map(|verb| text.strip_prefix(verb)).unwrap_or(text)
}

/// What a program runs that only runs the values of some options.
fn running_options<'w>(name: &str, arguments: &'w [Word]) -> Option<LaunchedPrograms<'w>> {
    let (_, options) = RUNNING_OPTIONS.iter().find(|(names, _)| is_listed(names, name))?;
    let mut launched = LaunchedPrograms::default();
    for (at, word) in arguments.iter().enumerate() {
        let text = word.text();
        let (option, attached) =
            text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
        // Long options may be abbreviated.
        let is_one = options.split_ascii_whitespace().any(|known| {
            known == option || (option.len() > 3 && option.starts_with("--") && known.starts_with(option))
        });
        // `-oName=value`
        let joined = options
            .split_ascii_whitespace()
            .filter(|known| known.len() == 2)
            .find_map(|known| text.strip_prefix(known))
            .filter(|value| !value.is_empty());
        match attached {
            Some(value) if is_one => launched.lines.extend(inner_lines(value)),
            None if is_one => {
                let next = arguments.get(at + 1..).unwrap_or_default();
                launched.lines.extend(next.first().map(|word| inner_lines(word.text())).unwrap_or_default());
                launched.programs.push(next);
            }
            _ => launched.lines.extend(joined.map(inner_lines).unwrap_or_default()),
        }
    }
    (!launched.lines.is_empty()).then_some(launched)
}

/// A value that is a line, or a setting (`name=line`, `name:action(line)`) whose value is one.
pub(crate) fn inner_lines(value: &str) -> Vec<String> {
    let bare = |text: &str| typed(text.trim_matches(['"', '\'', ')', ' '])).to_owned();
    let ends = [value.split_once('='), value.rsplit_once('='), value.split_once('(')];
    let mut found = vec![typed(value).to_owned()];
    found.extend(ends.into_iter().flatten().map(|(_, inner)| bare(inner)));
    // `-P line`, `+!line`
    if value.starts_with(['-', '+']) {
        found.extend(value.split_once(char::is_whitespace).map(|(_, line)| bare(line)));
    }
    found.retain(|line| !line.trim().is_empty());
    found.dedup();
    found
}

pub(crate) fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Variables whose value is a program or a line that something else runs.
pub(crate) fn is_run_by_others(variable: &str) -> bool {
    const NAMES: &str = "PROMPT_COMMAND PS0 PS1 PS4 PAGER MANPAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE \
        GIT_SSH GIT_EXTERNAL_DIFF GIT_ASKPASS GIT_PROXY_COMMAND SSH_ASKPASS SUDO_ASKPASS SHELL RUSTC RUSTDOC \
        CC CXX LD AR MAKE MAKEFLAGS FZF_DEFAULT_COMMAND NODE_OPTIONS PERL5OPT RUBYOPT PYTHONSTARTUP \
        BASH_ENV ENV TERMINAL OPENER RSYNC_CONNECT_PROG MANOPT LESS LESSEDIT GOFLAGS TAR_OPTIONS \
        FZF_DEFAULT_OPTS SVN_SSH HGEDITOR RUSTFLAGS CARGO_ENCODED_RUSTFLAGS npm_config_script_shell";
    const ENDS: [&str; 10] = [
        "_COMMAND", "_EDITOR", "_PAGER", "_WRAPPER", "_RUNNER", "_BROWSER", "_ASKPASS", "_SHELL", "_LINKER",
        "_RSH",
    ];
    is_listed(NAMES, variable)
        || ENDS.iter().any(|end| variable.ends_with(end))
        || variable.starts_with("GIT_CONFIG_VALUE_")
        || variable.starts_with("BASH_FUNC_")
}

/// Variables that make a program read settings from elsewhere, which may name programs to run.
pub(crate) fn names_settings(variable: &str, value: &str) -> bool {
    const NAMES: &str =
        "GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_EXEC_PATH GIT_TEMPLATE_DIR APT_CONFIG";
    is_listed(NAMES, variable) && !matches!(value, "" | "/dev/null")
}
