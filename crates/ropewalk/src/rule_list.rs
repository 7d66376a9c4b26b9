//! The stored permission rules, as our own clients list and forget them.

use std::path::PathBuf;

use app::RuleStore;
use guard::{RuleLocation, RuleSource, Rulebook};
use wire::native::RuleView;

/// Separates a rule from its folder in an id; neither can contain it.
const BETWEEN: char = '\n';

pub struct RuleList {
    pub book: Rulebook,
    /// Rules of the project in this folder are listed too.
    pub folder: PathBuf,
}

impl RuleStore for RuleList {
    fn list(&self) -> Vec<RuleView> {
        self.book.sources(&self.folder).iter().flat_map(views).collect()
    }

    fn forget(&self, id: &str) -> Result<(), String> {
        if !self.list().iter().any(|rule| rule.forgettable && rule.id == id) {
            return Err("this rule does not exist or cannot be removed here; reload the list".into());
        }
        let (rule, folder) = id.split_once(BETWEEN).unwrap_or((id, ""));
        let place =
            if folder.is_empty() { RuleLocation::Everywhere } else { RuleLocation::Folder(folder.into()) };
        let changed = self.book.remove(&place, rule).map_err(|error| error.to_string())?;
        if changed.unchanged {
            return Err("this rule no longer exists; it may have been removed elsewhere".into());
        }
        Ok(())
    }
}

fn views(source: &RuleSource) -> Vec<RuleView> {
    let place = match source.name {
        "user" => "your rules",
        "project" => "this project's rules",
        "zeph" => "zeph's answers",
        "chimera" => "chimera's rules",
        _ => "answers that are not saved",
    };
    let view = |rule: &guard::ListedRule| {
        let folder = rule.folder.as_deref().map(|folder| folder.display().to_string());
        let within = folder.as_deref().map(|folder| format!(", in {folder}")).unwrap_or_default();
        let ignored = if rule.ignored { ", no effect" } else { "" };
        RuleView {
            id: format!("{}{BETWEEN}{}", rule.rule, folder.unwrap_or_default()),
            rule: rule.rule.to_string(),
            effect: rule.effect.as_str().to_owned(),
            source: format!("{place}{within}{ignored}"),
            forgettable: source.name == "user",
        }
    };
    source.rules.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use engine::RuleEffect;
    use guard::RulePaths;

    use super::*;

    #[test]
    fn a_rule_is_shown_and_forgotten_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let paths =
            RulePaths { user: folder.path().join("rules.toml"), zeph: None, chimera: None, home: None };
        let work = folder.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let book = Rulebook::new(paths);
        book.add(&RuleLocation::Everywhere, RuleEffect::Allow, "bash(ls)").unwrap();
        book.add(&RuleLocation::Folder(work.clone()), RuleEffect::Deny, "bash(ls)").unwrap();
        let shelf = RuleList { book, folder: work };
        let rules = shelf.list();
        assert_eq!(rules.iter().map(|rule| rule.effect.as_str()).collect::<Vec<_>>(), ["allow", "deny"]);
        assert!(rules.iter().all(|rule| rule.forgettable));
        shelf.forget(&rules[1].id).unwrap();
        assert_eq!(shelf.list(), &rules[..1]);
        assert!(shelf.forget(&rules[1].id).is_err(), "once");
    }
}
