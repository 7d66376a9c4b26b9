//! Defaults from files for Codex: `~/.codex/config.toml`, and `.codex/config.toml` of the folder, which takes precedence.
//! Everything that is set for Ropewalk itself goes first. These files can make it stricter but never looser: a file for
//! another program, or from the author of a project, must not remove protection. The hub URL is read only from the file in
//! the home folder, because the bridge's token is sent there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{APPROVAL, approval_spec, full_name};
use sandbox::Mode;
use toml_edit::{DocumentMut, Item};

use super::setting_source::{ResolvedSetting, SettingSource};
use crate::paths;

pub const FILE: &str = ".codex/config.toml";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodexDefaults {
    /// Used if the model is available.
    pub model: Option<ResolvedSetting<String>>,
    /// From the home's file. A project's is read for each session, like its own settings.
    pub sandbox: Option<ResolvedSetting<Mode>>,
    pub approval: Option<ResolvedSetting<Arc<str>>>,
    pub remote_url: Option<ResolvedSetting<String>>,
    pub replay_window: Option<ResolvedSetting<u64>>,
    /// A file with a bridge token, which is ignored.
    pub token_file: Option<PathBuf>,
    /// What is ignored, and why.
    pub warnings: Vec<String>,
}

/// The content of one file.
#[derive(Debug, Default)]
struct CodexFile {
    model: Option<String>,
    sandbox: Option<Mode>,
    approval: Option<Arc<str>>,
    remote_url: Option<String>,
    replay_window: Option<u64>,
    has_token: bool,
    too_loose: Vec<String>,
}

impl CodexDefaults {
    /// `folder` is the one that the program was started in.
    pub fn find(home: Option<PathBuf>, folder: Option<PathBuf>) -> Self {
        let mut defaults = Self::default();
        let home = home.map(|home| home.join(FILE));
        let project = folder.map(|folder| folder.join(FILE)).filter(|path| Some(path) != home.as_ref());
        if let Some(path) = home
            && let Some(said) = defaults.read(&path)
        {
            defaults.sandbox = said.sandbox.map(|mode| at(mode, &path));
            defaults.model = said.model.clone().map(|model| at(model, &path));
            defaults.remote_url = said.remote_url.clone().map(|url| at(url, &path));
            defaults.replay_window = said.replay_window.map(|events| at(events, &path));
            defaults.take(said, &path);
        }
        if let Some(path) = project
            && let Some(said) = defaults.read(&path)
        {
            for (is_said, key, whose) in [
                (said.remote_url.is_some(), "bridge.remote_url", "your hub"),
                (said.model.is_some(), "model", "your model"),
            ] {
                if is_said {
                    let path = path.display();
                    let warning = format!("ignoring {key} in {path}: a project cannot choose {whose}");
                    defaults.warnings.push(warning);
                }
            }
            defaults.take(said, &path);
        }
        defaults
    }

    /// Applies what either file may set. The later one takes precedence, but cannot be looser than the earlier one.
    fn take(&mut self, said: CodexFile, path: &Path) {
        let known = self.approval.as_ref().and_then(|known| rank(&known.value));
        if let Some(approval) =
            said.approval.filter(|said| known.is_none_or(|known| rank(said) < Some(known)))
        {
            self.approval = Some(at(approval, path));
        }
        if said.has_token {
            self.token_file.get_or_insert_with(|| path.to_owned());
            let warning = "ignoring the token in {}, because such files get copied and shared; set ROPEWALK_BRIDGE_TOKEN instead";
            self.warnings.push(warning.replace("{}", &path.display().to_string()));
        }
        for words in said.too_loose {
            let path = path.display();
            self.warnings
                .push(format!("ignoring {words} in {path}: such files can only make Ropewalk stricter"));
        }
    }

    /// A file that cannot be read causes a warning and is ignored.
    fn read(&mut self, path: &Path) -> Option<CodexFile> {
        let said = super::text(path).and_then(|text| text.as_deref().map(parse).transpose());
        said.unwrap_or_else(|reason| {
            self.warnings.push(format!("ignoring {}: {reason}", path.display()));
            None
        })
    }
}

/// The sandbox mode that this file of a project sets, if any and if it can be read.
pub fn project_mode(folder: &Path) -> Option<Mode> {
    let path = folder.join(FILE);
    // The file in the home folder does not belong to a project.
    if paths::home().is_some_and(|home| home == folder) {
        return None;
    }
    match super::text(&path).and_then(|text| text.as_deref().map(parse).transpose()) {
        Ok(said) => said?.sandbox,
        Err(reason) => {
            tracing::warn!(path = %path.display(), reason, "ignoring the file");
            None
        }
    }
}

fn at<T>(value: T, path: &Path) -> ResolvedSetting<T> {
    ResolvedSetting::new(value, SettingSource::File(path.to_owned()))
}

/// Keys that Ropewalk does not know are ignored: the file is for another program.
fn parse(text: &str) -> Result<CodexFile, String> {
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let words = |key: &str| document.get(key).and_then(Item::as_str);
    let mut said = CodexFile { model: words("model").map(str::to_owned), ..CodexFile::default() };
    if let Some(word) = words("sandbox_mode") {
        match word.parse::<Mode>() {
            Ok(mode) if mode <= Mode::default() => said.sandbox = Some(mode),
            Ok(_) => said.too_loose.push(format!("sandbox_mode = {word:?}")),
            Err(error) => return Err(error.to_string()),
        }
    }
    if let Some(word) = words("approval_policy") {
        match approval(word) {
            Some(approval) => said.approval = Some(approval),
            None => said.too_loose.push(format!("approval_policy = {word:?}")),
        }
    }
    if let Some(bridge) = document.get("bridge").and_then(Item::as_table_like) {
        said.remote_url = bridge.get("remote_url").and_then(Item::as_str).map(str::to_owned);
        if let Some(window) = bridge.get("replay_window") {
            let number = window.as_integer().and_then(|number| u64::try_from(number).ok());
            said.replay_window = Some(number.ok_or("bridge.replay_window must be a number of events")?);
        }
        said.has_token = ["auth_token", "bridge_token", "token"].iter().any(|key| bridge.get(key).is_some());
    }
    Ok(said)
}

/// Our preset for their word, unless it is looser than the default.
fn approval(word: &str) -> Option<Arc<str>> {
    let named: Arc<str> = match word {
        "untrusted" => "suggest".into(),
        "on-request" | "on-failure" => "auto".into(),
        other => full_name(APPROVAL, other.into()),
    };
    (rank(&named)? <= rank("auto")?).then_some(named)
}

/// How loose a preset is.
fn rank(preset: &str) -> Option<usize> {
    approval_spec().choices.iter().position(|choice| *choice.value == *preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(home: &str, project: &str) -> CodexDefaults {
        let folder = tempfile::tempdir().unwrap();
        let (at_home, at_work) = (folder.path().join("home"), folder.path().join("work"));
        for (place, text) in [(&at_home, home), (&at_work, project)] {
            std::fs::create_dir_all(place.join(".codex")).unwrap();
            std::fs::write(place.join(FILE), text).unwrap();
        }
        CodexDefaults::find(Some(at_home), Some(at_work))
    }

    fn value<T: Clone>(setting: &Option<ResolvedSetting<T>>) -> Option<T> {
        setting.as_ref().map(|setting| setting.value.clone())
    }

    #[test]
    fn the_projects_words_win_where_they_may_be_said() {
        let found = find(
            "model = \"one\"\nsandbox_mode = \"read-only\"\napproval_policy = \"on-request\"\n[tui]\nx = 1\n",
            "model = \"two\"\napproval_policy = \"untrusted\"\n",
        );
        assert_eq!(value(&found.model).as_deref(), Some("one"));
        assert_eq!(value(&found.sandbox), Some(Mode::ReadOnly));
        assert_eq!(value(&found.approval).as_deref(), Some("suggest"));
        assert!(
            found.warnings.len() == 1 && found.warnings[0].starts_with("ignoring model in "),
            "{:?}",
            found.warnings
        );
    }

    #[test]
    fn a_project_lets_no_more_pass_than_the_home() {
        let found = find("approval_policy = \"untrusted\"\n", "approval_policy = \"on-request\"\n");
        assert_eq!(value(&found.approval).as_deref(), Some("suggest"));
    }

    #[test]
    fn neither_file_takes_protection_away() {
        let loose = "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\n";
        let found = find(loose, loose);
        assert_eq!((found.sandbox, found.approval), (None, None));
        assert_eq!(found.warnings.len(), 4, "{:?}", found.warnings);
    }

    #[test]
    fn only_the_homes_file_says_where_a_bridge_leads_and_neither_gives_a_token() {
        let file = |url: &str| {
            format!("[bridge]\nremote_url = {url:?}\nreplay_window = {}\nauth_token = \"hush\"\n", url.len())
        };
        let found = find(&file("https://mine.example"), &file("https://theirs.example"));
        assert_eq!(value(&found.remote_url).as_deref(), Some("https://mine.example"));
        assert_eq!(found.replay_window.map(|window| window.value), Some(20), "a project's file has no say");
        let told = found.warnings.join("\n");
        assert_eq!(told.matches("ignoring the token in ").count(), 2, "both files are named: {told}");
        assert!(told.contains("a project cannot choose") && !told.contains("hush"), "{told}");
    }

    #[test]
    fn a_malformed_file_is_told_of_and_left_alone() {
        assert!(
            find("[bridge]\nreplay_window = \"many\"\n", "").warnings.concat().contains("a number of events")
        );
        let found = find("model = ", "model = \"two\"\nsandbox_mode = \"wide\"\n");
        assert_eq!((value(&found.model), found.warnings.len()), (None, 2));
    }
}
