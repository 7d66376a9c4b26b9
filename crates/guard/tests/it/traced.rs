//! What is called low, against a real shell whose system calls are traced: nothing is written, nothing
//! is connected to, and no program is started but those that the line names.
//!
//! The short form runs the table, and the table with a word added that makes some programs write or
//! run others, as far as the verdict stays low; then some of all options that the programs on this machine
//! name in their own help, with values. The long forms try every word and every option:
//! `cargo nextest run -p guard --run-ignored only traced`.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use engine::Risk;
use guard::shell;
use tempfile::TempDir;

use crate::table::{assess, low_commands};

/// Words that make some program write or run something.
const ADDED: &[&str] = &[
    "-o out",
    "-oout",
    "--output=out",
    "--outp=out",
    "--output out",
    "-i",
    "-w out",
    "--ext-diff",
    "--textconv",
    "-O./x",
    "--open-files-in-pager=./x",
    "--pre=./x",
    "--compress-program=./x",
    "-f f",
    "--file=f",
    "-C",
    "-s",
    "--set=x",
    "-exec ./x {} +",
    "-delete",
    "-fprint out",
    "-T .",
    "--to-command=./x",
    "-e ./x",
    "-c ./x",
    "-x",
    "-R",
    "-H out",
    "-- -o out",
    "-e -- --pre=./x",
    "--format -- --output=out",
    "--sort --list made",
    "made",
    "out in",
    "-d made",
    "-D made",
    "--follow",
    "-l",
    "--paginate",
];
/// Programs that are started by others without doing more than these: interpreters of scripts, loaders.
const ALSO: &[&str] =
    &["sh", "dash", "bash", "env", "node", "perl", "python3", "git", "grep", "uname", "dircolors"];
/// Calls that change something whatever their arguments are.
const CHANGES: &[&str] = &[
    "creat(",
    "mkdir(",
    "mkdirat(",
    "unlink(",
    "unlinkat(",
    "rename(",
    "renameat(",
    "renameat2(",
    "link(",
    "linkat(",
    "symlink(",
    "symlinkat(",
    "truncate(",
    "ftruncate(",
    "chmod(",
    "fchmodat(",
    "chown(",
    "fchownat(",
    "rmdir(",
    "mknod(",
    "utimensat(",
    "setxattr(",
    "settimeofday(",
    "clock_settime(",
];

struct Tracer {
    folder: TempDir,
    /// A network of its own, where the machine allows that.
    alone: bool,
}

impl Tracer {
    /// Nothing if programs cannot be traced here, which is said.
    fn new() -> Option<Self> {
        let tracer = Self { folder: TempDir::new().unwrap(), alone: false };
        let here = tracer.here();
        fs::create_dir_all(here.join("src")).unwrap();
        for name in ["a", "b", "f", "x", "README.md", "Cargo.toml", "src/main.rs", "package.json", "in"] {
            fs::write(here.join(name), "{\"one\": 1}\n").unwrap();
        }
        fs::write(here.join("x"), "#!/bin/sh\necho ran > made-by-x\n").unwrap();
        tracer.plain("git init -q . && git add -A && git -c user.name=n -c user.email=e commit -qm first && chmod +x x && touch -d 2001-01-01 a");
        if !tracer.traces() {
            eprintln!("SKIPPED: strace cannot trace programs on this machine");
            return None;
        }
        let alone = Self { alone: true, ..tracer };
        Some(if alone.traces() { alone } else { Self { alone: false, ..alone } })
    }

    fn here(&self) -> std::path::PathBuf {
        self.folder.path().join("here")
    }

    #[expect(clippy::disallowed_methods, reason = "a real shell is what the verdict is compared with")]
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.here()).env_clear().env("HOME", self.folder.path());
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            // As commands that only look are run (`sandbox::git_read_only_environment`).
            .env("GIT_OPTIONAL_LOCKS", "0")
            .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "diff.autoRefreshIndex")])
            .env("GIT_CONFIG_VALUE_0", "false");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn plain(&self, line: &str) {
        drop(self.command("sh").arg("-c").arg(line).status());
    }

    fn traces(&self) -> bool {
        self.trace("true").is_some_and(|log| log.contains("execve("))
    }

    fn trace(&self, line: &str) -> Option<String> {
        let log = self.folder.path().join("log");
        drop(fs::remove_file(&log));
        let words = [
            "strace",
            "-f",
            "-qq",
            "-s",
            "4096",
            "-e",
            "trace=%file,%network,ftruncate,settimeofday,clock_settime",
            "-o",
        ];
        let mut command = if self.alone {
            let mut command = self.command("unshare");
            command.args(["-r", "-n"]).args(words);
            command
        } else {
            let mut command = self.command(words[0]);
            command.args(&words[1..]);
            command
        };
        drop(command.arg(&log).args(["sh", "-c", line]).status());
        Some(String::from_utf8_lossy(&fs::read(&log).ok()?).into_owned())
    }

    /// Everything that a line did and may not have done.
    fn wrongs(&self, line: &str) -> Vec<String> {
        let named: Vec<String> = shell::read(line)
            .commands
            .iter()
            .flat_map(|command| command.argv.iter().map(|word| base(word.text())))
            // What stands in a text for another shell.
            .flat_map(|text| text.split([' ', ';', '|', '&']).map(base).collect::<Vec<_>>())
            .collect();
        let log = self.trace(line).unwrap_or_default();
        log.lines().filter(|call| is_wrong(call, &named)).map(str::to_owned).collect()
    }
}

/// What may stand behind an option: nothing, a file that is there, one that is not, a program.
const VALUES: &[&str] = &["", " f", "=f", " out f", "=out f", " ./x f", "=./x f", "=sh f"];

/// Programs whose low lines are known, with their subcommands: `grep`, `git log`.
fn programs() -> BTreeSet<String> {
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let program = |line: String| {
        let mut words = line.split(' ');
        let first = words.next().filter(is_name)?;
        let second = words.next().filter(|word| ["git", "cargo"].contains(&first) && is_name(word));
        Some(second.map_or(first.to_owned(), |second| format!("{first} {second}")))
    };
    lines().filter_map(program).collect()
}

/// The options that a program names when it is asked for help.
fn options(tracer: &Tracer, program: &str) -> BTreeSet<String> {
    let asked = if program.starts_with("git ") { "-h" } else { "--help" };
    let mut command = tracer.command("timeout");
    command.args(["5", "sh", "-c", &format!("{program} {asked} 2>&1")]).stdout(Stdio::piped());
    let help = command.output().map(|output| output.stdout).unwrap_or_default();
    let help = String::from_utf8_lossy(&help).into_owned();
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let named = words.filter(|word| word.starts_with('-') && word.trim_matches('-').len() > 1);
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9').map(|letter| format!("-{letter}"));
    named.map(str::to_owned).chain(letters).collect()
}

fn with_options(tracer: &Tracer, every: usize) -> Vec<String> {
    let of_program = |program: String| {
        let options = options(tracer, &program);
        let line = move |option: String, value: &&str| format!("{program} {option}{value}");
        options.into_iter().flat_map(move |option| {
            let line = line.clone();
            VALUES.iter().map(move |value| line(option.clone(), value))
        })
    };
    let low = |line: &String| assess(line).risk == Risk::Low;
    programs().into_iter().flat_map(of_program).filter(low).step_by(every).collect()
}

fn base(text: &str) -> String {
    text.rsplit('/').next().unwrap_or_default().to_owned()
}

fn is_wrong(call: &str, named: &[String]) -> bool {
    let call = call.split_once(' ').map_or(call, |(_, call)| call.trim_start());
    // What does not fit into memory is sorted in files, which `sort` names and removes itself.
    if call.contains(" = -1 ") || call.contains("\"/tmp/sort") {
        return false;
    }
    if let Some(rest) = call.strip_prefix("execve(\"") {
        let program = base(rest.split('"').next().unwrap_or_default());
        return !named.contains(&program) && !ALSO.contains(&program.as_str());
    }
    if call.starts_with("open(") || call.starts_with("openat(") {
        let writes =
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"].iter().any(|flag| call.contains(flag));
        return writes
            && !["\"/dev/null\"", "\"/dev/tty\"", "\"/dev/stderr\""]
                .iter()
                .any(|stream| call.contains(stream));
    }
    call.starts_with("connect(") && !call.contains("AF_UNIX")
        || CHANGES.iter().any(|name| call.starts_with(name))
}

fn check(lines: impl FnOnce(&Tracer) -> Vec<String>, least: usize) {
    let Some(tracer) = Tracer::new() else { return };
    assert!(!tracer.wrongs("echo x > made").is_empty(), "a write is noticed");
    assert!(!tracer.wrongs("git log -1 --output=made").is_empty(), "a write by an option is noticed");
    assert!(!tracer.wrongs("rg --pre ./x one; sh -c ./x").is_empty(), "a program is noticed");
    let (mut count, mut wrong) = (0, Vec::new());
    for line in lines(&tracer) {
        count += 1;
        wrong.extend(tracer.wrongs(&line).into_iter().map(|call| format!("{line}\n    {call}")));
    }
    assert!(count >= least, "only {count} lines");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Without what asks programs of other makers for their version, npm keeps a log of that, and without
/// shells that first run what the machine has for every login.
fn lines() -> impl Iterator<Item = String> {
    let ours = |line: &String| {
        let foreign = ["npm", "node", "docker", "sleep"].iter().any(|name| line.starts_with(name));
        !foreign && !line.contains(" -lc ")
    };
    low_commands().into_iter().filter(ours)
}

fn with_words(every: usize) -> impl Iterator<Item = String> {
    let longer = |line: String| ADDED.iter().map(move |word| format!("{line} {word}"));
    let low = |line: &String| !line.contains('#') && assess(line).risk == Risk::Low;
    lines().flat_map(longer).filter(low).step_by(every)
}

#[test]
fn what_is_low_writes_nothing_and_starts_nothing_else() {
    check(|_| lines().collect(), 150);
}

#[test]
fn what_is_low_with_a_word_added_writes_nothing_and_starts_nothing_else() {
    check(|_| with_words(40).collect(), 20);
}

#[test]
#[ignore = "takes some minutes"]
fn traced_with_every_word_added() {
    check(|_| with_words(1).collect(), 200);
}

#[test]
fn what_is_low_with_an_option_of_its_program_writes_nothing_and_starts_nothing_else() {
    check(|tracer| with_options(tracer, 60), 20);
}

#[test]
#[ignore = "takes some minutes"]
fn traced_with_every_option() {
    check(|tracer| with_options(tracer, 1), 1000);
}

#[test]
fn the_trace_is_read_as_it_is_written() {
    let named = ["ls".to_owned()];
    for (call, wrong) in [
        ("12 execve(\"/usr/bin/ls\", [\"ls\"], 0x7f /* 5 vars */) = 0", false),
        ("12 execve(\"/usr/bin/evil\", [\"evil\"], 0x7f /* 5 vars */) = 0", true),
        ("12 execve(\"/bin/evil\", [\"evil\"], 0x7f) = -1 ENOENT (No such file)", false),
        ("12 openat(AT_FDCWD, \"x\", O_RDONLY|O_CLOEXEC) = 3", false),
        ("12 openat(AT_FDCWD, \"x\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3", true),
        ("12 openat(AT_FDCWD, \"/dev/null\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3", false),
        ("12 unlink(\"x\") = 0", true),
        ("12 connect(3, {sa_family=AF_INET, sin_port=htons(53)}, 16) = 0", true),
    ] {
        assert_eq!(is_wrong(call, &named), wrong, "{call}");
    }
}
