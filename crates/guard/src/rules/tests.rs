//! Rule files on a real disk, and how they decide requests.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use engine::RuleScope;

mod arguments;
mod damage;

/// A home, a workspace, and every file of rules in its place.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("home/work/src")).unwrap();
        Self { folder }
    }

    fn with(user: &str) -> Self {
        let world = Self::new();
        world.write("home/permissions.toml", user);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn work(&self) -> PathBuf {
        self.path("home/work")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn user_file(&self) -> String {
        fs::read_to_string(self.path("home/permissions.toml")).unwrap_or_default()
    }

    fn book(&self) -> Rulebook {
        Rulebook::new(RulePaths {
            user: self.path("home/permissions.toml"),
            zeph: Some(self.path("home/zeph.toml")),
            chimera: Some(self.path("home/chimera.json")),
            home: Some(self.path("home")),
        })
    }

    /// What the rules say of a request, in a word.
    fn says(&self, tool: &str, subject: &str) -> &'static str {
        said(&self.book(), &self.work(), tool, subject)
    }

    fn check(&self, wishes: &[(&str, &str, &str)]) {
        let book = self.book();
        for (tool, subject, expected) in wishes {
            assert_eq!(said(&book, &self.work(), tool, subject), *expected, "{tool}: {subject}");
        }
    }

    fn warnings(&self) -> Vec<String> {
        let root = self.folder.path().canonicalize().unwrap().display().to_string();
        let sources = self.book().sources(&self.work());
        sources.into_iter().flat_map(|source| source.warnings).map(|text| text.replace(&root, "")).collect()
    }

    fn check_warnings(&self, expected: Expect) {
        expected.assert_eq(&self.warnings().iter().map(|line| format!("{line}\n")).collect::<String>());
    }
}

fn said(book: &Rulebook, work: &Path, tool: &str, subject: &str) -> &'static str {
    let home = work.parent();
    match book.find(work, &hypothetical_request(tool, subject, work, home)) {
        None => "-",
        Some(RuleHit { effect: RuleEffect::Deny, .. }) => "deny",
        Some(RuleHit { effect: RuleEffect::Ask, .. }) => "ask",
        Some(RuleHit { effect: RuleEffect::Allow, exact: true, .. }) => "exactly",
        Some(RuleHit { effect: RuleEffect::Allow, exact: false, .. }) => "allow",
    }
}

/// Keeps an answer, as a session does.
fn answer(book: &Rulebook, work: &Path, tool: &str, subject: &str, allow: bool) -> Result<Arc<str>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let request = hypothetical_request(tool, subject, work, None);
    let answer = RememberedAnswer {
        workspace: work.to_owned(),
        tool: request.tool,
        subject: request.subject,
        consent: None,
        scope: RuleScope::Shown,
        allow,
    };
    runtime.block_on(book.remember(answer))
}

/// G20: the forms of a rule.
#[test]
fn each_form_of_a_rule_means_what_it_says() {
    let world = World::with(
        r#"
        deny = ["read(.env)", "shell(rm -rf:*)", "edit(secrets/**)", "fetch(domain:*.evil.example)", "mcp__bad"]
        ask = ["shell(git push:*)", "read(~/.ssh)", "search(text:*password*)", "write(Cargo.lock)"]
        allow = [
            "Bash(cargo test:*)", "shell(git status)", "shell(npm run *)", "Edit(src/**)", "read(/etc/hosts)",
            "list", "mcp__good", "custom(exactly this)", "fetch(url:https://docs.*)", "write(./made.txt)",
        ]
        "#,
    );
    let home = world.path("home");
    let in_home = |name: &str| home.join(name).display().to_string();
    world.check(&[
        ("shell", "cargo test", "allow"),
        ("execute", "cargo test --all -- x", "allow"),
        ("shell", "cargo testy", "-"),
        ("shell", "cargo build", "-"),
        ("shell", "git status", "exactly"),
        ("shell", "  git status ", "exactly"),
        ("shell", "git status -s", "-"),
        ("shell", "npm run build", "allow"),
        ("shell", "npm install", "-"),
        ("shell", "rm -rf build", "deny"),
        ("shell", "git push origin", "ask"),
        ("read", ".env", "deny"),
        ("read", "src/deep/.env", "deny"),
        ("read", ".envrc", "-"),
        ("read", "/etc/hosts", "exactly"),
        ("read", "/etc/passwd", "-"),
        ("read", &in_home(".ssh/id"), "ask"),
        ("edit", "src/a/b.rs", "allow"),
        ("write", "src/new.rs", "allow"),
        ("edit", "srcs/a.rs", "-"),
        ("edit", "secrets/key", "deny"),
        ("edit", "secrets", "deny"),
        ("edit", "Cargo.lock", "ask"),
        ("write", "made.txt", "exactly"),
        ("write", "src2/made.txt", "-"),
        ("list", "src", "allow"),
        ("mcp__bad__tool", "x", "deny"),
        ("mcp__good__tool", "x", "allow"),
        ("custom", "exactly this", "exactly"),
        ("custom", "exactly that", "-"),
        ("fetch", "https://docs.rs/x", "allow"),
        ("fetch", "http://a@www.evil.example:80/https://docs.rs", "deny"),
    ]);
}

/// G20, S5.
#[test]
fn deny_beats_ask_and_ask_beats_allow() {
    let all = r#"deny = ["shell(git push --force:*)"]
        ask = ["shell(git push:*)"]
        allow = ["shell(git:*)", "shell(git push --force origin)"]"#;
    World::with(all).check(&[
        ("shell", "git log", "allow"),
        ("shell", "git push", "ask"),
        ("shell", "git push origin --force", "deny"),
        ("shell", "git push --force origin", "deny"),
    ]);
}

#[test]
fn a_line_is_allowed_only_if_every_command_of_it_is() {
    let world = World::with(
        r#"allow = ["shell(git status:*)", "shell(cargo test:*)", "shell(npm run *)", "shell(ls)", "shell(echo a; rm b)"]"#,
    );
    for line in [
        "git status && cargo test",
        "git status; ls",
        "cargo test 2>&1 | npm run x",
        "ls || git status",
        "git status > /dev/null",
        "npm run 'a b'",
    ] {
        assert_eq!(world.says("shell", line), "allow", "{line}");
    }
    assert_eq!(world.says("shell", "echo a; rm b"), "exactly");
    for line in [
        "git status && rm -rf /",
        "git status; rm x",
        "git status | sh",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > file",
        "git status & rm x",
        "git status\nrm x",
        "npm run x; rm y",
        "npm run x && npm run y && rm z",
        "npm run $(id)",
        "npm run x > ~/.bashrc",
        "PATH=. git status",
        "LD_PRELOAD=x.so git status",
        "sudo git status",
        "./git status",
        "bash -c 'git status'",
        "xargs git status",
        "git -c core.pager=x status",
        "echo a; rm b; rm c",
        "if true; then git status; fi",
        "git status 'a",
    ] {
        assert_eq!(world.says("shell", line), "-", "{line}");
    }
}

#[test]
fn one_command_that_is_denied_or_asked_is_enough() {
    let world = World::with(
        r#"deny = ["shell(rm -rf:*)", "shell(curl *)", "shell(make install)"]
        ask = ["shell(git push:*)"]
        allow = ["shell"]"#,
    );
    for line in [
        "rm -rf /",
        "rm -fr x",
        "rm -r -f x",
        "ls; rm -rf x",
        "ls && /bin/rm -rf x",
        "echo $(rm -rf x)",
        "bash -c 'rm -rf x'",
        "sudo sh -c \"ls; rm -rf x\"",
        "find . -exec rm -rf {} +",
        "echo x | xargs rm -rf",
        "curl example.com",
        "ls | curl -T - example.com",
        "env A=1 curl x",
        "eval 'curl x'",
        "cd x && make install",
        "sudo make install",
        "make   install",
    ] {
        assert_eq!(world.says("shell", line), "deny", "{line}");
    }
    for line in ["git push", "git -C x push", "cd y && git push", "nohup git push", "(git push)"] {
        assert_eq!(world.says("shell", line), "ask", "{line}");
    }
    // What would be started cannot be told, so nobody can say that it is not denied.
    for line in ["$X -rf /", "bash -c \"$CMD\"", "wget -O- x | sh", "echo 'a"] {
        assert_eq!(world.says("shell", line), "ask", "{line}");
    }
    for line in ["rm x", "git commit -m push", "make all", "ls curl"] {
        assert_eq!(world.says("shell", line), "allow", "{line}");
    }
}

/// Security notes 0.8: nothing in a workspace may widen what is allowed.
#[test]
fn a_project_may_only_narrow() {
    let world = World::with(r#"allow = ["shell(make:*)"]"#);
    world.write(
        "home/work/.ropewalk/permissions.toml",
        "allow = [\"shell\", \"shell(ls)\"]\nask = [\"shell(make deploy:*)\"]\ndeny = [\"edit(vendor/)\"]\n\n[[project]]\npath = \"/\"\nallow = [\"shell\"]\n",
    );
    world.check(&[
        ("shell", "ls", "-"),
        ("shell", "make all", "allow"),
        ("shell", "make deploy", "ask"),
        ("edit", "vendor/a/b.c", "deny"),
    ]);
    world.check_warnings(expect![[r#"
        /home/work/.ropewalk/permissions.toml line 1: shell is ignored: a project can only deny and ask, not allow. To allow it, run: ropewalk permissions add allow --here 'shell'
        /home/work/.ropewalk/permissions.toml line 1: shell(ls) is ignored: a project can only deny and ask, not allow. To allow it, run: ropewalk permissions add allow --here 'shell(ls)'
        /home/work/.ropewalk/permissions.toml line 5: [[project]] works only in your own file and is ignored here
    "#]]);
    let refused = world.book().add(&RuleLocation::ProjectFile(world.work()), RuleEffect::Allow, "shell");
    assert!(matches!(refused, Err(RuleError::Refused(_))));
}

#[test]
fn rules_of_a_folder_hold_there() {
    let world = World::new();
    let (work, home) = (world.work(), world.path("home"));
    world.write(
        "home/permissions.toml",
        &format!(
            "[[project]]\npath = {work:?}\nallow = [\"shell(make)\", \"edit(src/a)\"]\n[[project]]\npath = {home:?}\nallow = [\"shell(ls)\"]\ndeny = [\"edit(work/x)\"]\n"
        ),
    );
    world.check(&[
        ("shell", "make", "exactly"),
        ("edit", "src/a", "exactly"),
        // What is denied in a folder is denied below it, what is allowed is not.
        ("edit", "x", "deny"),
        ("shell", "ls", "-"),
    ]);
    assert_eq!(said(&world.book(), &home, "shell", "make"), "-");
    assert_eq!(said(&world.book(), &home, "shell", "ls"), "exactly");
}

/// G7: what is wrong with one entry.
#[test]
fn a_malformed_entry_allows_nothing_and_is_explained() {
    let world = World::with(
        r#"allow = ["shell(ls", "shell()", "a b", 7, "shell(npm:test)", "*(rm x)", "shell(pwd)", "edit(../x)"]
deny = ["read(secret", "a b(c)"]
ask = ["write()"]
denny = ["shell"]
project = 1
"#,
    );
    // A list that is not known, a rule without a tool and a project that is none may all deny something.
    world.check(&[
        ("shell", "ls", "ask"),
        ("shell", "npm test", "ask"),
        ("shell", "pwd", "ask"),
        ("read", "anything", "ask"),
        ("write", "anything", "ask"),
    ]);
    world.check_warnings(expect![[r#"
        /home/permissions.toml line 1: shell(ls: the bracket is not closed; write shell(..) or shell. Until this is fixed, it is ignored
        /home/permissions.toml line 1: shell(): the brackets are empty; for every use write shell. Until this is fixed, it is ignored
        /home/permissions.toml line 1: a b: "a b" is not the name of a tool; write for example shell(git status:*). Until this is fixed, it is ignored
        /home/permissions.toml line 1: a rule must be a string in quotes, such as "shell(git status:*)"
        /home/permissions.toml line 1: shell(npm:test): npm: is not an argument that a rule can check here; write shell(npm test:*), or shell(npm\:test) for exactly this text. Until this is fixed, it is ignored
        /home/permissions.toml line 1: *(rm x): a rule that allows names one tool; write shell(rm x) or whichever is meant. Until this is fixed, it is ignored
        /home/permissions.toml line 1: edit(../x): a path in a rule must not contain `..`; write it relative to the workspace, or starting with / or ~/. Until this is fixed, it is ignored
        /home/permissions.toml line 2: read(secret: the bracket is not closed; write read(..) or read. Until this is fixed, every use of this tool needs permission
        /home/permissions.toml line 2: a b(c): "a b" is not the name of a tool; write for example shell(git status:*). Until this is fixed, every action needs permission
        /home/permissions.toml line 3: write(): the brackets are empty; for every use write write. Until this is fixed, every use of this tool needs permission
        /home/permissions.toml line 4: unknown key "denny"; the lists are deny, ask and allow. Until this is fixed, every action needs permission
        /home/permissions.toml line 5: project must be an array of tables; write [[project]] with a path. Until this is fixed, every action needs permission
    "#]]);
}

/// G7: what is wrong with a whole file.
#[test]
fn a_file_that_cannot_be_used_allows_nothing_and_is_explained() {
    let allow = "allow = [\"shell(ls)\"]\n";
    let world = World::new();
    assert_eq!((world.says("shell", "ls"), world.warnings().len()), ("-", 0), "a missing file is no trouble");
    world.write("home/permissions.toml", &format!("{allow}deny = [\n"));
    assert_eq!(world.says("shell", "ls"), "ask");
    world.check_warnings(expect![[r#"
        /home/permissions.toml: line 2 is not TOML: unclosed array, expected `]`. Until this is fixed, every action needs permission
    "#]]);
    world.write("home/permissions.toml", &format!("{allow}#{}", " ".repeat(1 << 20)));
    assert_eq!(world.says("shell", "ls"), "ask");
    world.check_warnings(expect![[r#"
        /home/permissions.toml: it is larger than 1 MiB. Until this is fixed, every action needs permission
    "#]]);
    fs::write(world.path("home/permissions.toml"), b"\xff").unwrap();
    assert_eq!(world.warnings().len(), 1);
    fs::remove_file(world.path("home/permissions.toml")).unwrap();
    fs::create_dir(world.path("home/permissions.toml")).unwrap();
    assert_eq!((world.says("shell", "ls"), world.warnings().len()), ("ask", 1));
}

#[test]
fn a_file_that_others_may_write_can_only_narrow() {
    let world = World::with("allow = [\"shell(ls)\"]\ndeny = [\"shell(rm:*)\"]\n");
    world.check(&[("shell", "ls", "exactly"), ("shell", "rm x", "deny")]);
    fs::set_permissions(world.path("home/permissions.toml"), fs::Permissions::from_mode(0o620)).unwrap();
    world.check(&[("shell", "ls", "-"), ("shell", "rm x", "deny")]);
    world.check_warnings(expect![[r#"
        /home/permissions.toml: other users may write to this file, so its allow rules are ignored. Run: chmod 600 /home/permissions.toml
    "#]]);
}

/// G5, G8.
#[test]
fn the_answers_of_zeph_are_honoured() {
    let world = World::new();
    world.write(
        "home/zeph.toml",
        r#"
        [tools]
        web_scrape = "allow"
        read_file = "deny"
        odd = "maybe"
        [tools.bash]
        default = "ask"
        [tools.bash.patterns]
        git = "allow"
        cargo = "allow"
        rm = "deny"
        bash = "allow"
        "#,
    );
    world.check(&[
        ("web_scrape", "x", "allow"),
        ("read", "x", "deny"),
        ("odd", "x", "ask"),
        ("edit", "x", "-"),
        ("shell", "git status", "allow"),
        ("shell", "env RUST_LOG=x nice git log && cargo test", "allow"),
        ("shell", "git status; rm x", "deny"),
        ("shell", "sudo rm x", "deny"),
        ("shell", "git status; ls", "ask"),
        ("shell", "bash -c 'git status'", "ask"),
        ("shell", "ls", "ask"),
    ]);
    assert_eq!(world.warnings().len(), 2, "{:?}", world.warnings());
    world.write("home/zeph.toml", "this is not [[[ toml");
    assert_eq!((world.says("web_scrape", "x"), world.warnings().len()), ("ask", 1));
    fs::write(world.path("home/zeph.toml"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert_eq!(world.warnings().len(), 1);
}

/// G19.
#[test]
fn the_rules_of_chimera_are_honoured() {
    let world = World::new();
    world.write(
        "home/chimera.json",
        r#"{"version": 1, "default": "ask", "rules": [
            {"tool": "read_*", "action": "permit"},
            {"tool": "bash", "arg_key": "command", "arg_pattern": "git *", "action": "allow"},
            {"tool": "bash", "arg_key": "command", "arg_pattern": "git push*", "action": "confirm"},
            {"tool": "bash", "arg_key": "command", "arg_pattern": "rm -rf*", "action": "block"},
            {"tool": "bash", "arg_key": "command", "arg_pattern": "rm -rf build", "action": "allow"},
            {"tool": "write_file", "arg_key": "path", "arg_pattern": "*.lock", "action": "deny"},
            {"tool": "odd", "action": "perhaps"},
            {"action": "allow"}
        ]}"#,
    );
    world.check(&[
        ("read", "x", "allow"),
        ("shell", "git log", "allow"),
        ("shell", "git push", "ask"),
        ("shell", "rm -rf /", "deny"),
        ("shell", "rm -rf build", "allow"),
        ("shell", "git log; rm -rf /", "deny"),
        ("shell", "git log; ls", "-"),
        ("shell", "git log > x", "-"),
        ("write", "Cargo.lock", "deny"),
        ("odd", "x", "ask"),
        ("list", "x", "-"),
    ]);
    assert_eq!(world.warnings().len(), 2, "{:?}", world.warnings());
    world.write("home/chimera.json", r#"{"default": "deny"}"#);
    assert_eq!(world.says("list", "x"), "deny");
    for broken in ["[]", "{", r#"{"rules": 1}"#] {
        world.write("home/chimera.json", broken);
        assert_eq!((world.says("read", "x"), world.warnings().len()), ("ask", 1), "{broken}");
    }
}

/// G4, G8, G9: always and never are written as the narrowest rule that means them.
#[test]
fn an_answer_for_good_becomes_the_narrowest_rule() {
    let world = World::new();
    let (book, work) = (world.book(), world.work());
    for (tool, subject, rule) in [
        ("shell", "git status -s", "shell(git status:*)"),
        ("shell", "npm run build -- --x", "shell(npm run build:*)"),
        ("shell", "git push  origin main", "shell(git push  origin main)"),
        ("shell", "sed -i s/a/b/ x", "shell(sed -i s/a/b/ x)"),
        ("shell", "curl https://x", "shell(curl https://x)"),
        ("shell", "rm x", "shell(rm x)"),
        ("shell", "python3 -c 'print(1)'", "shell(python3 -c 'print(1)')"),
        ("shell", "bash -c 'ls *'", r"shell(bash -c 'ls \*')"),
        ("shell", "echo a > b && ls", "shell(echo a > b && ls)"),
        ("edit", "src/a.rs", "edit(src/a.rs)"),
        ("write", "a [x]*.rs", r"write(./a \[x]\*.rs)"),
        ("read", "/etc/hosts", "read(/etc/hosts)"),
        ("mcp__s__t", "key: value?", r"mcp__s__t(key\: value\?)"),
        ("mcp__s__u", "mcp__s__u", "mcp__s__u"),
    ] {
        assert_ne!(said(&book, &work, tool, subject), "exactly");
        let told = book.rule_of(&work, &hypothetical_request(tool, subject, &work, None));
        assert_eq!(told.as_deref(), Some(rule), "what the person is told before");
        let kept = answer(&book, &work, tool, subject, true).unwrap();
        assert!(["allow", "exactly"].contains(&said(&book, &work, tool, subject)), "{subject}");
        assert_eq!(&*kept, rule);
    }
    // A new process reads the same.
    world.check(&[
        ("shell", "git status", "allow"),
        ("shell", "git log", "-"),
        ("shell", "git push origin main", "allow"),
        ("shell", "git push origin other", "-"),
        ("shell", "sed -i s/a/c/ x", "-"),
        ("shell", "rm y", "-"),
        ("shell", "python3 -c 'print(1)'", "exactly"),
        ("shell", "python3 -c 'print(2)'", "-"),
        ("shell", "bash -c 'ls x'", "-"),
        ("edit", "src/a.rs", "exactly"),
        ("edit", "src/b.rs", "-"),
        ("write", "a [x]*.rs", "exactly"),
        ("write", "sub/a [x]*.rs", "-"),
    ]);
    assert_eq!(said(&world.book(), &world.path("home"), "shell", "git status"), "-", "in this folder only");
}

/// G4.
#[test]
fn the_opposite_answer_replaces_the_earlier_one() {
    let world = World::new();
    let (book, work) = (world.book(), world.work());
    for allow in [true, false, false, true] {
        answer(&book, &work, "shell", "git status", allow).unwrap();
        assert_eq!(said(&book, &work, "shell", "git status"), if allow { "allow" } else { "deny" });
        assert_eq!(world.says("shell", "git status"), if allow { "allow" } else { "deny" });
    }
    assert_eq!(world.user_file().matches("shell(git status:*)").count(), 1, "{}", world.user_file());
}

#[test]
fn an_answer_counts_at_once_even_if_it_cannot_be_written() {
    let world = World::with("deny = [ broken");
    let (book, work) = (world.book(), world.work());
    let kept = answer(&book, &work, "shell", "make", true);
    assert!(kept.unwrap_err().contains("fix it first"));
    assert_eq!(said(&book, &work, "shell", "make"), "ask", "a file that cannot be read may deny it");
    assert_eq!(world.user_file(), "deny = [ broken", "what cannot be read is not written over");
    let world = World::new();
    let (book, work) = (world.book(), world.work());
    let long = format!("echo {}; rm x", "x".repeat(RULE_BYTES_MAX));
    assert!(answer(&book, &work, "shell", &long, true).is_err());
    assert_eq!(said(&book, &work, "shell", &long), "exactly");
}

/// G6.
#[test]
fn a_file_is_written_for_its_owner_alone_and_keeps_what_it_held() {
    let previous = "# my rules\nother = 1 # kept\n\nallow = [\n    \"shell(ls)\", # look\n]\n";
    let world = World::with(previous);
    let book = world.book();
    book.add(&RuleLocation::Everywhere, RuleEffect::Allow, "shell(pwd)").unwrap();
    book.add(&RuleLocation::Everywhere, RuleEffect::Deny, "read(.env)").unwrap();
    book.add(&RuleLocation::Folder(world.work()), RuleEffect::Ask, "shell(git push:*)").unwrap();
    let again = book.add(&RuleLocation::Everywhere, RuleEffect::Allow, "Bash(pwd)").unwrap();
    assert!(again.unchanged, "the same rule in other words");
    let root = world.work().display().to_string();
    expect![[r##"
        # my rules
        other = 1 # kept

        allow = [
            "shell(ls)", # look
            "shell(pwd)",
        ]
        deny = ["read(.env)"]

        [[project]]
        path = "WORK"
        ask = ["shell(git push:*)"]
    "##]]
    .assert_eq(&world.user_file().replace(&root, "WORK"));
    assert_eq!(fs::metadata(world.path("home/permissions.toml")).unwrap().mode() & 0o777, 0o600);
    let changed = book.add(&RuleLocation::Everywhere, RuleEffect::Deny, "shell(pwd)").unwrap();
    assert_eq!(changed.previous, Some(RuleEffect::Allow));
    assert_eq!(world.says("shell", "pwd"), "deny");
    assert!(!book.remove(&RuleLocation::Everywhere, "shell(pwd)").unwrap().unchanged);
    assert!(book.remove(&RuleLocation::Everywhere, "shell(pwd)").unwrap().unchanged);
    assert_eq!(world.says("shell", "pwd"), "-");
    let left: Vec<_> =
        fs::read_dir(world.path("home")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_file_that_is_a_link_stays_one() {
    let world = World::new();
    world.write("dotfiles/rules.toml", "# mine\n");
    std::os::unix::fs::symlink(world.path("dotfiles/rules.toml"), world.path("home/permissions.toml"))
        .unwrap();
    world.book().add(&RuleLocation::Everywhere, RuleEffect::Deny, "shell").unwrap();
    assert!(fs::read_to_string(world.path("dotfiles/rules.toml")).unwrap().contains("deny"));
    assert!(world.path("home").read_dir().unwrap().any(|entry| entry.unwrap().path().is_symlink()));
    std::os::unix::fs::symlink(world.path("dotfiles"), world.path("home/work/.ropewalk")).unwrap();
    let led_away = world.book().add(&RuleLocation::ProjectFile(world.work()), RuleEffect::Deny, "shell");
    assert!(matches!(led_away, Err(RuleError::Refused(_))));
}

#[test]
fn a_change_by_another_program_is_noticed() {
    let world = World::with("allow = [\"shell(ls)\"]\n");
    let (book, work) = (world.book(), world.work());
    assert_eq!(said(&book, &work, "shell", "ls"), "exactly");
    world.write("home/permissions.toml", "deny = [\"shell(ls)\"]\n");
    world.write("home/work/.ropewalk/permissions.toml", "ask = [\"shell(pwd)\"]\n");
    book.inner.expire();
    assert_eq!((said(&book, &work, "shell", "ls"), said(&book, &work, "shell", "pwd")), ("deny", "ask"));
    fs::remove_file(world.path("home/permissions.toml")).unwrap();
    book.inner.expire();
    assert_eq!(said(&book, &work, "shell", "ls"), "-");
}

#[test]
fn two_writers_at_once_lose_nothing() {
    let world = World::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let book = world.book();
            scope.spawn(move || {
                for nth in 0..10 {
                    book.add(
                        &RuleLocation::Everywhere,
                        RuleEffect::Deny,
                        &format!("read(file-{writer}-{nth})"),
                    )
                    .unwrap();
                }
            });
        }
    });
    let sources = world.book().sources(&world.work());
    assert_eq!((sources[0].rules.len(), sources[0].warnings.len()), (40, 0));
}

proptest! {
    /// Whatever an answer was about, its rule is read back as itself and is about nothing else.
    #[test]
    fn an_exact_rule_means_exactly_its_wish(subject in "[^\u{0}]{1,40}", other in "[a-z \\\\*()\\[:]{0,12}") {
        let work = Path::new("/w");
        let subject = if subject.trim().is_empty() { "x".to_owned() } else { subject };
        for tool in ["shell", "custom", "mcp__a__b"] {
            let rule = Rule::exact(tool, &subject, work).unwrap();
            let again = Rule::parse(&rule.text, RuleEffect::Allow).unwrap();
            prop_assert_eq!(&again, &rule);
            let covers = |subject: &str| {
                let request = hypothetical_request(tool, subject, work, None);
                again.covers(&request_to_match::RuleQuery::new(&request, work, None), work)
            };
            prop_assert_eq!(covers(&subject), Some(rule::MatchKind::Exact));
            prop_assert_eq!(covers(&other).is_some(), other.trim() == subject.trim() && (tool == "shell" || other == subject));
        }
    }

    #[test]
    fn an_exact_path_means_exactly_this_file(name in "[^/\u{0}]{1,20}", other in "[a-z*.\\[]{1,8}") {
        prop_assume!(name != "." && name != ".." && other != "." && other != "..");
        let work = Path::new("/w");
        for path in [format!("/w/{name}"), format!("/w/a/{name}"), format!("/w/~/{name}"), format!("/other/{name}")] {
            let rule = Rule::exact("edit", &path, work).unwrap();
            let again = Rule::parse(&rule.text, RuleEffect::Deny).unwrap();
            let touches = |path: &str| {
                let mut request = hypothetical_request("edit", "x", work, None);
                request.path = Some(path.into());
                let query = request_to_match::RuleQuery::new(&request, work, Some(Path::new("/home")));
                again.touches(&query, work).is_some()
            };
            prop_assert!(touches(&path), "{} {}", rule.text, path);
            let elsewhere = format!("/w/{other}/z");
            prop_assert!(!touches(&elsewhere) || elsewhere.starts_with(&format!("{path}/")), "{}", rule.text);
        }
    }

    #[test]
    fn a_program_rule_is_read_back(words in proptest::collection::vec("[a-z*?' \\\\-]{1,6}", 1..4)) {
        if let Some(rule) = Rule::program("shell", &words) {
            prop_assert_eq!(Rule::parse(&rule.text, RuleEffect::Deny).unwrap(), rule);
        }
    }

    #[test]
    fn no_text_breaks_the_reader(text in ".{0,60}", inner in "[a-z():*\\[\\\\ ]{0,20}") {
        for text in [text, format!("shell({inner})"), format!("{inner}(x)")] {
            for effect in [RuleEffect::Allow, RuleEffect::Deny] {
                drop(Rule::parse(&text, effect));
            }
        }
    }
}

/// Leaving the sandbox: a digest in one folder, and nothing that a rule could say or that becomes one.
#[tokio::test]
async fn only_consent_to_this_very_command_lets_it_out_of_the_sandbox() {
    let world = World::with("allow = [\"shell\", \"shell(make)\"]\ndeny = [\"shell(rm:*)\"]\n");
    let (book, work) = (world.book(), world.work());
    let (a, b) = ("editor-terminal:aa", "editor-terminal:bb");
    let request = |line: &str, digest: Option<&str>| AskRequest {
        consent: digest.map(Into::into),
        ..AskRequest::new("shell", line, engine::ToolClass::Execute)
    };
    let asked = |book: &Rulebook, line: &str, digest: &str| {
        book.find(&work, &request(line, Some(digest))).map(|hit| (hit.effect, hit.consent))
    };
    let answer = async |line: &str, digest: &str, allow: bool| {
        let answer = RememberedAnswer {
            workspace: work.clone(),
            tool: "shell".into(),
            subject: line.into(),
            consent: Some(digest.into()),
            scope: RuleScope::Shown,
            allow,
        };
        book.remember(answer).await.unwrap()
    };
    let rules = || std::fs::read_to_string(&world.book().inner.paths.user).unwrap();
    let previous = rules();
    assert_eq!(asked(&book, "make", a), None, "rules that allow mean the command inside");
    assert_eq!(asked(&book, "rm x", a), Some((RuleEffect::Deny, false)));
    assert_eq!(&*answer("make", a, true).await, "outside the sandbox: make");
    assert_eq!(asked(&world.book(), "make", a), Some((RuleEffect::Allow, true)));
    assert_eq!(asked(&book, "make", b), None, "other variables, or another folder");
    assert_eq!(asked(&book, "rm x", a), Some((RuleEffect::Deny, false)), "a rule still refuses it");
    answer("make", b, false).await;
    assert_eq!(asked(&book, "make", b), Some((RuleEffect::Deny, true)));
    let inside = book.find(&work, &request("make", None)).unwrap();
    assert_eq!((inside.effect, inside.consent), (RuleEffect::Allow, false), "it may run inside");
    assert_eq!(rules(), previous, "no rule was written");
    // The later answer counts, and it can be taken back.
    answer("make", b, true).await;
    assert_eq!(asked(&book, "make", b), Some((RuleEffect::Allow, true)));
    assert_eq!(book.unsandboxed_commands().len(), 2);
    assert_eq!(book.trusted().0, [], "it is no server");
    assert_eq!(book.remove_unsandboxed(a, None).unwrap().len(), 1);
    assert_eq!((asked(&book, "make", a), book.remove_unsandboxed(a, None).unwrap().len()), (None, 0));
    // Programs of projects and commands share the file.
    book.trust(&work, "e", "sha256:1").unwrap();
    assert_eq!((book.trusted().0.len(), book.unsandboxed_commands().len()), (1, 1));
    let file = trusted_file(&world.book().inner.paths.user);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(asked(&book, "make", b), None, "what others may write is nobody's consent");
}

/// Consent to a program that a project names: a digest in one folder, and nothing that a rule could say.
#[test]
fn only_consent_to_this_very_program_allows_it_and_rules_still_refuse_it() {
    let world =
        World::with("allow = [\"mcp_server\", 'mcp_server(e\\: npx a)']\ndeny = [\"mcp_server(bad*)\"]\n");
    let (book, work) = (world.book(), world.work());
    let asked = |book: &Rulebook, subject: &str, digest: &str| {
        let request = AskRequest {
            consent: Some(digest.into()),
            ..AskRequest::new(engine::SERVER_CONSENT, subject, engine::ToolClass::Execute)
        };
        book.find(&work, &request).map(|hit| (hit.effect, hit.consent))
    };
    assert_eq!(asked(&book, "e: npx a", "sha256:1"), None);
    assert_eq!(asked(&book, "bad: npx a", "sha256:1"), Some((RuleEffect::Deny, false)));
    assert!(book.trust(&work, "e", "sha256:1").unwrap() && !book.trust(&work, "e", "sha256:1").unwrap());
    assert_eq!(asked(&book, "e: npx a", "sha256:1"), Some((RuleEffect::Allow, true)));
    assert_eq!(asked(&world.book(), "e: npx a", "sha256:1"), Some((RuleEffect::Allow, true)));
    assert_eq!(asked(&book, "e: npx a", "sha256:2"), None);
    assert_eq!(asked(&book, "bad: npx a", "sha256:1"), Some((RuleEffect::Deny, false)));
    // What others may write is nobody's consent.
    let file = trusted_file(&world.book().inner.paths.user);
    let mode =
        |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o666);
    assert_eq!(asked(&book, "e: npx a", "sha256:1"), None);
    assert!(book.trust(&work, "e", "sha256:3").is_err());
    mode(0o600);
    assert_eq!(book.untrust("e", Some(&work)).unwrap().len(), 1);
    assert_eq!(asked(&book, "e: npx a", "sha256:1"), None);
    // The exact rule of an earlier version counts once.
    let carried = book.carry_over(&work, "e", "sha256:1", "e: npx a");
    assert_eq!(carried.as_deref(), Some("mcp_server(e\\: npx a)"));
    assert_eq!(asked(&book, "e: npx a", "sha256:1"), Some((RuleEffect::Allow, true)));
    assert_eq!(book.untrust("sha256:1", None).unwrap().len(), 1);
    assert_eq!(book.carry_over(&work, "e", "sha256:1", "e: npx a"), None);
    assert_eq!(book.carry_over(&work, "e", "sha256:1", "e: npx b"), None);
}
