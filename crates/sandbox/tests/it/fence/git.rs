//! Repositories behind a fence: commits work, and nothing that git runs can be changed.

use std::fs;
use std::os::unix::fs::symlink;

use sandbox::{DenialReason, Mode};

use crate::fence::workspace::{Workspace, run_in};

#[tokio::test]
async fn commits_work_inside() {
    let space = Workspace::new();
    space.git();
    let line = "echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm one && git log --oneline | wc -l
        && git checkout -qb two && git status --short && git gc -q";
    let outcome = run_in(&space, Mode::WorkspaceWrite, &line.replace('\n', " ")).await;
    assert_eq!(
        (outcome.ended.code, outcome.stdout.trim(), outcome.violations),
        (Some(0), "1", vec![]),
        "{}",
        outcome.stderr
    );
    space.assert_clean_but(&[".git", "a"]);
    assert!(
        !space.root().join(".git/commondir").exists() && !space.root().join(".git/config.worktree").exists()
    );
}

#[tokio::test]
async fn hooks_elsewhere_are_protected_too() {
    let space = Workspace::new();
    space.git();
    fs::remove_dir_all(space.root().join(".git/hooks")).unwrap();
    fs::create_dir(space.root().join("real")).unwrap();
    symlink("../real", space.root().join(".git/hooks")).unwrap();
    let config = space.root().join(".git/config");
    let text = fs::read_to_string(&config).unwrap()
        + "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../more.cfg\n";
    fs::write(&config, text).unwrap();
    fs::write(space.root().join("more.cfg"), "").unwrap();
    fs::create_dir(space.root().join("tools")).unwrap();
    for line in [
        "echo evil > .git/hooks/pre-commit",
        "rm .git/hooks && mkdir .git/hooks",
        "mv real other",
        "mkdir -p tools/hooks/x",
        "mv tools other",
        "echo evil >> more.cfg",
    ] {
        let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
        assert_ne!(outcome.ended.code, Some(0), "{line}");
        assert_eq!(outcome.violations[0].reason, Some(DenialReason::Protected), "{line}");
    }
    assert_eq!(run_in(&space, Mode::WorkspaceWrite, "echo fine > tools/other").await.ended.code, Some(0));
    space.assert_clean_but(&[".git", "real", "tools", "more.cfg"]);
    assert_eq!(fs::read_dir(space.root().join("tools")).unwrap().count(), 1);
}

#[tokio::test]
async fn hooks_of_repositories_around_and_below_are_protected_too() {
    let around = Workspace::new();
    around.git();
    let space = around.inner("sub");
    let nested = space.inner("app");
    nested.git();
    let add = |of: &Workspace, text: &str| {
        let config = of.root().join(".git/config");
        fs::write(&config, fs::read_to_string(&config).unwrap() + text).unwrap();
    };
    add(&around, "[core]\n\thooksPath = sub/hooks\n[include]\n\tpath = ../sub/around.cfg\n");
    add(&nested, "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../more.cfg\n");
    fs::create_dir_all(space.root().join("hooks")).unwrap();
    fs::create_dir_all(space.root().join("tree")).unwrap();
    fs::write(space.root().join("tree/.git"), "gitdir: ../app/.git\n").unwrap();
    for file in ["around.cfg", "app/more.cfg"] {
        fs::write(space.root().join(file), "").unwrap();
    }
    for line in [
        "echo evil > hooks/pre-commit",
        "mv hooks other",
        "echo evil >> around.cfg",
        "mkdir -p app/.githooks/x",
        "echo evil >> app/more.cfg",
        "mv app other",
        "mkdir -p tree/.githooks/x",
    ] {
        let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
        assert_ne!(outcome.ended.code, Some(0), "{line}");
        assert_eq!(outcome.violations[0].reason, Some(DenialReason::Protected), "{line}");
    }
    let free = "echo fine > app/a && echo fine > tree/a && mkdir -p githooks && echo a > .git-a";
    assert_eq!(run_in(&space, Mode::WorkspaceWrite, free).await.ended.code, Some(0));
    for (folder, left) in [("app", 3), ("tree", 2), ("hooks", 0)] {
        let count = fs::read_dir(space.root().join(folder)).unwrap().count();
        assert_eq!(count, left, "no name stays taken: {folder}");
    }
}

/// A link to hooks that are not there yet, and one that leads in a circle.
#[tokio::test]
async fn hooks_behind_a_link_that_leads_to_nothing_are_protected_too() {
    let space = Workspace::new();
    space.git();
    let hooks = space.root().join(".git/hooks");
    fs::remove_dir(&hooks).unwrap();
    symlink("../real", &hooks).unwrap();
    symlink(".vscode", space.root().join(".vscode")).unwrap();
    let outcome = run_in(&space, Mode::WorkspaceWrite, "mkdir -p real/x").await;
    assert_ne!(outcome.ended.code, Some(0));
    assert_eq!(outcome.violations[0].reason, Some(DenialReason::Protected));
    assert_eq!(run_in(&space, Mode::WorkspaceWrite, "echo fine > a").await.ended.code, Some(0));
    space.assert_clean_but(&[".git", ".vscode", "a"]);
}

/// The working tree of a session is often a linked one, and the settings are those of the repository elsewhere.
#[tokio::test]
async fn hooks_of_a_linked_working_tree_are_protected_too() {
    let folder = Workspace::new();
    let (main, tree) = (folder.inner("main"), folder.inner("tree"));
    main.git();
    let git = main.root().join(".git");
    fs::write(git.join("config"), "[core]\n\thooksPath = .githooks\n").unwrap();
    fs::create_dir_all(git.join("worktrees/tree")).unwrap();
    fs::write(git.join("worktrees/tree/commondir"), "../..\n").unwrap();
    fs::write(tree.root().join(".git"), "gitdir: ../main/.git/worktrees/tree\n").unwrap();
    let outcome = run_in(&tree, Mode::WorkspaceWrite, "mkdir -p .githooks/x").await;
    assert_ne!(outcome.ended.code, Some(0));
    assert_eq!(outcome.violations[0].reason, Some(DenialReason::Protected));
    assert!(!tree.root().join(".githooks").exists());
}

#[tokio::test]
async fn submodules_and_worktrees_are_protected_too() {
    let space = Workspace::new();
    space.git();
    let git = space.root().join(".git");
    for module in ["modules/a", "modules/deep/b", "modules/a/modules/c"] {
        fs::create_dir_all(git.join(module).join("hooks")).unwrap();
        fs::write(git.join(module).join("HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(git.join(module).join("config"), "").unwrap();
    }
    fs::create_dir_all(git.join("worktrees/w")).unwrap();
    fs::write(git.join("worktrees/w/commondir"), "../..").unwrap();
    for line in [
        "echo evil > .git/modules/a/hooks/x",
        "echo evil > .git/modules/deep/b/config",
        "echo evil > .git/modules/a/modules/c/config",
        "mv .git/modules/deep .git/modules/d",
        "mv .git/modules .git/m",
        "echo /evil > .git/worktrees/w/commondir",
        "mv .git/worktrees .git/w",
    ] {
        let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
        assert_eq!(
            outcome.violations.first().map(|seen| seen.reason),
            Some(Some(DenialReason::Protected)),
            "{line}"
        );
        assert_ne!(outcome.ended.code, Some(0), "{line}");
    }
    assert_eq!(
        run_in(&space, Mode::WorkspaceWrite, "echo x > .git/modules/deep/b/index").await.ended.code,
        Some(0)
    );
}
