//! Rules when the process has no file descriptors left. A file of its own, because the limit is one of
//! the whole process.

use engine::{PermissionRules, RuleEffect};
use guard::{RulePaths, Rulebook, hypothetical_request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn without_descriptors_everything_is_asked_and_afterwards_the_rules_count_again() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().canonicalize().unwrap();
    let user = work.join("permissions.toml");
    std::fs::write(&user, "allow = [\"shell(ls)\"]\ndeny = [\"shell(git push:*)\"]\n").unwrap();
    let book = Rulebook::new(RulePaths { user, ..RulePaths::default() });
    let said = |line: &str| {
        book.find(&work, &hypothetical_request("shell", line, &work, None)).map(|hit| hit.effect)
    };

    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
    let without = (said("git push"), said("ls"), PermissionRules::damage(&book));
    setrlimit(Resource::Nofile, before).unwrap();

    assert_eq!((without.0, without.1), (Some(RuleEffect::Ask), Some(RuleEffect::Ask)));
    let reason = without.2.unwrap();
    assert!(reason.contains("permissions.toml: it cannot be read"), "{reason}");
    // Looks at the files again without waiting for the second to pass.
    drop(book.sources(&work));
    assert_eq!(said("git push"), Some(RuleEffect::Deny), "the file is read without having changed");
    assert_eq!(said("ls"), Some(RuleEffect::Allow));
    assert_eq!(PermissionRules::damage(&book), None);
}
