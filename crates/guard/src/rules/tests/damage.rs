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
                .find(&world.work(), &imagined("shell", "ls", &world.work(), None))
                .is_some_and(|hit| hit.source.contains(file.rsplit('/').next().unwrap_or_default()))
        );
    }
    for (file, text) in [
        ("home/permissions.toml", ""),
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
