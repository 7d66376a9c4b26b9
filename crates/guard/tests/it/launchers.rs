//! Every way to have a command run by something else: rules that deny hold, and the risk is that of
//! the command.

use std::path::Path;

use engine::{PermissionRules, RuleEffect};
use guard::{RulePaths, Rulebook, hypothetical_request};

use crate::table::{assess, judged_launchers, launchers};

fn rules(text: &str) -> (tempfile::TempDir, Rulebook) {
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join("permissions.toml");
    std::fs::write(&user, text).unwrap();
    let book = Rulebook::new(RulePaths { user, ..RulePaths::default() });
    (folder, book)
}

fn effect(book: &Rulebook, folder: &Path, line: &str) -> Option<RuleEffect> {
    book.find(folder, &hypothetical_request("shell", line, folder, None::<&Path>)).map(|hit| hit.effect)
}

#[test]
fn a_rule_that_denies_holds_behind_every_launcher() {
    let table = launchers();
    assert!(table.len() >= 250, "the table has only {} lines", table.len());
    for (rule, command) in
        [("git push:*", "git push"), ("git push", "git push"), ("deploy now *", "deploy now x")]
    {
        let (folder, book) = rules(&format!("deny = [\"shell({rule})\"]\n"));
        let wrong: Vec<String> = table
            .iter()
            // A rule for exactly this text is not about one with more words.
            .filter(|(_, line)| rule != "git push" || !line.contains(":::"))
            .map(|(expected, line)| (*expected, line.replace("CMD", command)))
            .map(|(expected, line)| (expected, effect(&book, folder.path(), &line), line))
            .filter(|(expected, found, _)| {
                *found < Some(*expected) && (rule == "git push:*" || found.is_none())
            })
            .map(|(expected, found, line)| format!("{line}\n    is {expected:?} and was {found:?}"))
            .collect();
        assert!(wrong.is_empty(), "{rule}: {} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn a_rule_that_denies_leaves_alone_what_only_speaks_of_the_command() {
    let (folder, book) = rules("deny = [\"shell(git push:*)\", \"shell(rm -rf:*)\"]\n");
    for line in [
        "echo git push",
        "printf '%s\\n' 'git push'",
        "cat 'git push'",
        "grep -rn 'git push' docs",
        "rg 'git push' *.md",
        "git log --grep='git push'",
        "git commit -m 'git push works'",
        "git commit -am \"rm -rf is gone\"",
        "git pull",
        "git log $X",
        "git stash push -m x",
        "git add src/*.rs",
        "gh pr create --title 'git push' --body 'rm -rf x'",
        "cargo test push",
        "cargo build --release && cargo test -- $ARGS",
        "npm run build",
        "npm install $PACKAGE",
        "mkdir -p git push",
        "rm file.txt",
        "rm src/*.o",
        "ls *.rs",
        "make",
        "make -j4 test",
        "python script.py",
        "python -m pytest -x tests",
        "python3 -c 'print(1)'",
        "timeout 60 cargo test",
        "time make",
        "bash script.sh",
        "docker ps",
        "docker compose up -d",
        "FOO=1 cargo run",
        "find . -name '*.rs'",
        "uv run pytest -q",
        "curl -s https://example.org -o x",
        "tar czf x.tgz src",
        "sed -i 's/a/b/' f",
        "sed -n '/push/,/e/p' f | head -5",
        "sed -E -i.bak -e 's/(a)/e \\1/g' -e '$!N' f",
        "sed -i \"s/$A/$B/\" f",
        "cp target/release/x /usr/local/bin/x",
        "cp src/a.rs src/b.rs",
        "ln -s ../lib lib",
        "x=(a b); echo ${x[0]}",
        "x[1]=2",
        "GIT_CONFIG_GLOBAL=/dev/null git status",
        "git -c user.name=me commit -m x",
        "apt-get -o Acquire::Retries=3 update",
        "cargo --config net.offline=true build",
        "./gradlew build",
        "./scripts/test.sh --fast",
        "RUSTFLAGS='-D warnings' cargo build",
        "LESS=-R git log",
        "vim src/main.rs",
        "echo yes | make install",
        "make -f other.mk all",
        "npm run build --if-present",
    ] {
        assert_eq!(effect(&book, folder.path(), line), None, "{line:?}");
    }
}

#[test]
fn what_is_computed_or_fed_may_be_what_is_denied() {
    let (folder, book) = rules("deny = [\"shell(git push:*)\", \"shell(rm -rf:*)\"]\n");
    for line in [
        "git $x",
        "git \"$x\" origin",
        "git $(echo push)",
        "git pus?",
        "git {push,origin}",
        "git -C x $y",
        "echo push | xargs git",
        "xargs -I{} git {} origin",
        "find . -exec git {} \\;",
        "g() { git \"$@\"; }; g push",
        "rm $FLAGS x",
        "rm *",
        "rm {-rf,x}",
        "xargs rm",
        "git -c alias.p=$x p",
    ] {
        assert_eq!(effect(&book, folder.path(), line), Some(RuleEffect::Ask), "{line:?}");
    }
    for line in [
        "alias g=git; g push",
        "git -c alias.p=push p",
        "git config alias.p push",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
        "/usr/lib/git-core/git-push",
        "git-push origin",
        "$(git --exec-path)/git-push",
        "just --command git push",
        "xargs git push",
        "git push $x",
        "rm -rf $x",
    ] {
        assert!(effect(&book, folder.path(), line) >= Some(RuleEffect::Ask), "{line:?}");
    }
}

#[test]
fn what_a_launcher_starts_counts_as_much_as_without_it() {
    let mut wrong: Vec<String> = judged_launchers()
        .into_iter()
        .map(|line| line.replace("CMD", "rm -rf build"))
        .filter(|line| assess(line).risk < engine::Risk::High)
        .collect();
    let is_low = |line: &String| assess(line).risk == engine::Risk::Low;
    wrong.extend(launchers().into_iter().map(|(_, line)| line.replace("CMD", "rm -rf build")).filter(is_low));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every option may have a value, and every launcher may start another: were each tried with each, this
/// would not end.
#[test]
fn launchers_in_launchers_are_looked_through_up_to_a_bound() {
    for line in [
        "nohup -a ".repeat(2_000),
        "env -S 'nohup -a x' ".repeat(500),
        "sudo -u sudo -u ".repeat(1_000) + "git push",
        "parallel -a 'watch -n 1 ls' ".repeat(300),
        format!("python -c '{}'", "os.system(\"git push\") ".repeat(2_000)),
    ] {
        assert!(assess(&line).risk >= engine::Risk::Medium);
        let (folder, book) = rules("deny = [\"shell(git push:*)\"]\n");
        assert!(effect(&book, folder.path(), &line).is_some());
    }
}
