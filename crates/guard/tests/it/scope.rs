//! What "always" covers, and what a rule about a program covers.

use std::path::Path;

use engine::{PermissionRules, RuleEffect};
use guard::{CommandScope, RulePaths, Rulebook, covers, hypothetical_request, scope_of_always};

fn tokens(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

fn check(line: &str, expected: Option<&str>) {
    let scope = expected.map_or(CommandScope::Exact, |words| CommandScope::Program(tokens(words)));
    assert_eq!(scope_of_always(line), scope, "{line:?}");
}

#[test]
fn always_covers_a_kind_of_command_behind_what_changes_nothing() {
    check("git status -sb", Some("git status"));
    check("/usr/bin/git status", Some("git status"));
    check("ls -la src", Some("ls"));
    check("cargo test -p engine", Some("cargo test"));
    check("npm run build", Some("npm run build"));
    check("npm test", Some("npm test"));
    check("make", Some("make"));
    check("make test", Some("make test"));
    check("gh pr view 7", Some("gh pr view"));
    check("npm run update", Some("npm run update"));
    check("python -m pytest tests", Some("python -m pytest"));
    check("RUST_LOG=debug cargo test", Some("cargo test"));
    check("env NO_COLOR=1 nice cargo test", Some("cargo test"));
    check("command time nohup cargo test", Some("cargo test"));
    check("cargo test && cargo test --doc", Some("cargo test"));
    check("cargo test $NAME", Some("cargo test"));
}

#[test]
fn always_covers_only_the_very_line_where_a_name_says_too_little() {
    for line in [
        "bash -c 'ls'",
        "sh script.sh",
        "python x.py",
        "python -c 'print(1)'",
        "node x.js",
        "perl -e 1",
        "awk '{print}' f",
        "eval ls",
        "sudo ls",
        "ssh h ls",
        "xargs ls",
        "find . -name x",
        "env ls -la; rm x",
        "ls > x",
        "ls; pwd",
        "ls | sh",
        "ls $(pwd)",
        "FOO=1 ls",
        "LD_PRELOAD=x ls",
        "RUSTC_WRAPPER=x cargo test",
        "./x",
        "rm x",
        "rm -rf x",
        "git push",
        "git push origin main",
        "git push --force",
        "gh pr create --fill",
        "npm publish",
        "npm install left-pad",
        "cargo install x",
        "cargo publish --dry-run",
        "pip install x",
        "python -m pip install x",
        "python3 -m http.server",
        "terraform apply",
        "systemctl restart x",
        "sed -i s/a/b/ f",
        "sed -n 1p f",
        "sed -n '1e id' f",
        "git reset --hard",
        "git -C x status",
        "git -c a=b status",
        "$x",
        "ls 'unclosed",
        "ls &",
        "for i in a; do ls; done",
        "cargo -q test",
        "curl https://x",
        "docker run x",
        "npx x",
        "",
        "cat .env",
        "nohup",
        "env",
        "FOO=1",
    ] {
        check(line, None);
    }
}

#[test]
fn a_rule_covers_a_line_only_if_it_covers_all_of_it() {
    let rule = tokens("git status");
    for line in [
        "git status",
        "git status -sb",
        "git status; git status",
        "git status 2>/dev/null",
        "/bin/git status",
        "time git status",
        "git status | git status",
    ] {
        assert!(covers(&rule, line), "{line:?}");
    }
    for line in [
        "git stash",
        "git",
        "git statusx",
        "git -C x status",
        "git -c core.fsmonitor=x status",
        "git status; rm x",
        "git status && ls",
        "git status | sh",
        "git status > x",
        "git status $(rm x)",
        "git status `rm x`",
        "X=1 git status",
        "PATH=. git status",
        "./git status",
        "/tmp/git status",
        "sudo git status",
        "xargs git status",
        "bash -c 'git status'",
        "echo git status",
        "git status &",
        "git status\nrm x",
        "git \"$x\"",
        "$x status",
        "git status 'unclosed",
        "(git status",
        "",
        "git status <(rm x)",
        "cd x && git status",
        "git status <<< x",
        "env -i git status",
        "git status\r",
        "git status\\\nrm",
        "git {status,x}",
    ] {
        assert!(!covers(&rule, line), "{line:?}");
    }
    assert!(covers(&tokens("ls"), "ls *.rs"));
    assert!(!covers(&[], "ls"));
    assert!(!covers(&tokens("find ."), "find . -delete"));
    assert!(!covers(&tokens("rg"), "rg --pre ./evil x"));
    assert!(!covers(&tokens("sort"), "sort -o x y"));
    assert!(!covers(&tokens("git log"), "git log --output=x"));
}

#[test]
fn a_rule_for_a_family_does_not_cover_options_that_run_programs_or_write_elsewhere() {
    for (rule, line) in [
        ("git push", "git push --receive-pack=./x origin"),
        ("git push", "git push --receive-pack ./x origin"),
        ("git push", "git push --exec=./x origin"),
        ("git push", "git push --exe ./x origin"),
        ("git fetch", "git fetch --upload-pack=./x"),
        ("git fetch", "git fetch --upl ./x"),
        ("git clone", "git clone -u ./x y"),
        ("git clone", "git clone -c core.sshCommand=./x y"),
        ("git rebase", "git rebase -x ./x main"),
        ("git rebase", "git rebase --exec ./x main"),
        ("git log", "git log --outp=x"),
        ("git log", "git log -p --ext-diff"),
        ("git diff", "git diff --textc"),
        ("git grep", "git grep -O./x y"),
        ("sort", "sort --outp=x y"),
        ("sort", "sort -no x y"),
        ("tree", "tree -ao x"),
        ("tar", "tar --to-command=./x -xf y"),
        ("rsync", "rsync -e ./x a b:"),
        ("go test", "go test -exec ./x ./..."),
        ("cargo test", "cargo test --config ./x"),
        ("curl", "curl -o x https://y"),
        ("find", "find . -execdir ./x +"),
        ("split", "split --filter=./x y"),
    ] {
        assert!(!covers(&tokens(rule), line), "{rule}: {line}");
    }
    // What is named in the rule itself is meant.
    assert!(covers(&tokens("git push"), "git push origin main"));
    assert!(covers(&tokens("git bisect run"), "git bisect run make"));
    assert!(covers(&tokens("sort -o x"), "sort -o x y"));
    assert!(covers(&tokens("cargo test"), "cargo test --release -p x"));
}

#[test]
fn a_rule_that_refuses_touches_whatever_would_run_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join("permissions.toml");
    std::fs::write(&user, "deny = [\"shell(git push:*)\"]\n").unwrap();
    let book = Rulebook::new(RulePaths { user, ..RulePaths::default() });
    let touches = |line: &str| {
        let hit =
            book.find(folder.path(), &hypothetical_request("shell", line, folder.path(), None::<&Path>));
        hit.is_some_and(|hit| hit.effect == RuleEffect::Deny)
    };
    for line in [
        "git push",
        "git push origin main",
        "git -C x push",
        "git -c a=b push",
        "cd x && git push",
        "X=1 git push",
        "env X=1 git push",
        "sudo git push",
        "timeout 5 git push",
        "ls; git push",
        "ls | xargs git push",
        "echo $(git push)",
        "bash -c 'git push'",
        "eval 'git push'",
        "/usr/bin/git push",
        "(git push)",
        "if true; then git push; fi",
        "find . -exec git push \\;",
        "nohup git push &",
        "\"git\" pu\\sh",
        "sh -c \"bash -c 'git push'\"",
        "ssh h git push",
        "ls > x; git push > y",
    ] {
        assert!(touches(line), "{line:?}");
    }
    for line in ["git pull", "echo git push", "ls", "git log push", "cat 'git push'", ""] {
        assert!(!touches(line), "{line:?}");
    }
}
