//! Rules that cannot be read, or not as a whole: everything is asked, and what could be read denies.

use super::*;

const RULES: &str =
    "allow = [\"shell(ls)\", \"shell(make:*)\"]\ndeny = [\"shell(git push:*)\", \"read(.env)\"]\n";

fn damage(world: &World) -> Vec<(String, String)> {
    let book = world.book();
    drop(book.sources(&world.work()));
    let root = format!("{}/", world.path("").display());
    let shown = |found: RuleDamage| {
        (found.path.display().to_string().replace(root.trim_end_matches('/'), ""), found.reason)
    };
    book.damage().into_iter().map(shown).collect()
}

/// Reliability 9: a truncated file ran what it denied.
#[test]
fn a_file_cut_off_anywhere_asks_or_denies_and_never_lets_a_denied_command_through() {
    for cut in 1..RULES.len() {
        let text = &RULES[..cut];
        let world = World::with(text);
        let whole = toml_edit::Document::parse(text).is_ok();
        let push = world.says("shell", "git push origin");
        let readable = text.contains("git push:*)\"");
        match (whole, readable) {
            (_, true) => assert_eq!(push, "deny", "{text}"),
            (false, false) => assert_eq!(push, "ask", "{text}"),
            // Cut between two lists it is a file without that list, and nobody can know.
            (true, false) => assert!(matches!(push, "-" | "ask"), "{text}"),
        }
        if !whole {
            assert_eq!(world.says("shell", "ls"), "ask", "what it allowed is asked: {text}");
            assert_eq!(damage(&world).len(), 1, "{text}");
        }
    }
    let world = World::with(RULES);
    assert_eq!((world.says("shell", "ls"), damage(&world)), ("exactly", vec![]));
}

#[test]
fn every_source_that_cannot_be_read_makes_everything_asked() {
    for (file, text) in [
        ("home/permissions.toml", "deny = ["),
        ("home/permissions.toml", "deny = 5"),
        ("home/permissions.toml", "deny = [5]"),
        ("home/permissions.toml", "deny = [\"a b(c)\"]"),
        ("home/permissions.toml", "denied = [\"shell(rm:*)\"]"),
        ("home/permissions.toml", "[deny]\nx = 1"),
        ("home/permissions.toml", "[[project]]\ndeny = [\"shell\"]"),
        ("home/permissions.toml", "[[projects]]\npath = \"/w\"\ndeny = [\"shell\"]"),
        ("home/permissions.toml", "\u{0}\u{0}\u{0}\u{0}"),
        ("home/permissions.toml", ""),
        ("home/work/.ropewalk/permissions.toml", ""),
        ("home/chimera.json", ""),
        ("home/work/.ropewalk/permissions.toml", "deny = [\"shell(rm"),
        ("home/zeph.toml", "[tools.bash\n"),
        ("home/chimera.json", "{\"rules\": [{\"tool\": \"bash\""),
        ("home/chimera.json", "[]"),
        ("home/chimera.json", "{\"rules\": 1}"),
    ] {
        let world = World::with("allow = [\"shell(ls)\"]\n");
        world.write(file, text);
        assert_eq!(world.says("shell", "ls"), "ask", "{file}: {text}");
        assert_eq!(world.says("read", "x"), "ask", "{file}: {text}");
        let found = damage(&world);
        assert_eq!(found.len(), 1, "{file}: {text}");
        assert_eq!(found[0].0, format!("/{file}"), "{text}");
        assert!(
            world
                .book()
                .find(&world.work(), &hypothetical_request("shell", "ls", &world.work(), None))
                .is_some_and(|hit| hit.source.contains(file.rsplit('/').next().unwrap_or_default()))
        );
    }
    for (file, text) in [
        ("home/permissions.toml", "# no rules\n"),
        ("home/permissions.toml", "\n"),
        ("home/permissions.toml", "other = 1\nallow = [5, \"a b\"]"),
        ("home/work/.ropewalk/permissions.toml", "allow = [\"shell\"]"),
        ("home/zeph.toml", ""),
        ("home/chimera.json", "{}"),
    ] {
        let world = World::new();
        world.write(file, text);
        assert_eq!((world.says("shell", "ls"), damage(&world)), ("-", vec![]), "{file}: {text}");
    }
}

#[test]
fn only_a_file_that_does_not_exist_is_missing() {
    let world = World::new();
    let path = world.path("home/permissions.toml");
    assert_eq!((world.says("shell", "ls"), damage(&world)), ("-", vec![]));
    std::os::unix::fs::symlink(world.path("home/elsewhere"), &path).unwrap();
    assert_eq!(world.says("shell", "ls"), "ask", "a link that leads nowhere");
    assert_eq!(damage(&world)[0].1, "it is a link to a file that does not exist");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    assert_eq!(world.says("shell", "ls"), "ask", "a link to itself");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(world.says("shell", "ls"), "ask", "a folder");
    fs::remove_dir(&path).unwrap();
    let below = RulePaths { user: world.path("home/work/src/x/permissions.toml"), ..RulePaths::default() };
    fs::write(world.path("home/work/src/x"), "").unwrap();
    assert_eq!(
        said(&Rulebook::new(below), &world.work(), "shell", "ls"),
        "ask",
        "a file in place of a folder"
    );
    assert_eq!(world.says("shell", "ls"), "-");
}

/// An answer that makes the file anew would hide that its rules are gone.
#[test]
fn an_empty_file_is_not_written_over_and_none_is_left_empty() {
    let world = World::with("");
    let refused = answer(&world.book(), &world.work(), "shell", "ls", true).unwrap_err();
    assert!(refused.contains("it is empty (0 bytes)") && refused.contains("remove the file"), "{refused}");
    assert!(world.book().add(&RuleLocation::Everywhere, RuleEffect::Deny, "shell(rm:*)").is_err());
    assert_eq!((world.user_file(), world.says("shell", "ls")), (String::new(), "ask"));
    fs::remove_file(world.path("home/permissions.toml")).unwrap();
    world.book().add(&RuleLocation::Everywhere, RuleEffect::Deny, "shell(rm:*)").unwrap();
    world.book().remove(&RuleLocation::Everywhere, "shell(rm:*)").unwrap();
    assert!(!world.user_file().is_empty());
    assert_eq!((world.says("shell", "ls"), damage(&world)), ("-", vec![]));
}

/// Without it, a rule of an earlier version would become consent again that was taken back.
#[test]
fn an_empty_file_of_consent_trusts_nothing_and_is_not_written_over() {
    let world = World::with("allow = ['mcp_server(e\\: npx a)']\n");
    world.write("home/trusted_servers.toml", "");
    let (trusted, warnings) = world.book().trusted();
    assert!(trusted.is_empty() && warnings[0].contains("it is empty (0 bytes)"), "{warnings:?}");
    assert_eq!(world.book().carry_over(&world.work(), "e", "sha256:1", "e: npx a"), None);
    assert!(world.book().trust(&world.work(), "e", "sha256:1").is_err());
    let path = world.path("home/trusted_servers.toml");
    fs::remove_file(&path).unwrap();
    assert!(world.book().trust(&world.work(), "e", "sha256:1").unwrap());
    assert_eq!(world.book().untrust("e", None).unwrap().len(), 1);
    assert!(fs::read_to_string(&path).unwrap().starts_with("# What you have allowed"), "none is left empty");
    assert!(world.book().trusted().1.is_empty());
}
