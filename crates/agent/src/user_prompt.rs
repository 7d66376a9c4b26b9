//! Turns the content blocks of a prompt into what the model is given.
//!
//! Nothing here fails the turn: if a block cannot be used, the model is told what it is and why its content
//! is missing, the person is warned, and the turn continues. Text from files is put into `<resource>` blocks
//! and escaped, so that it cannot pass for something else.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::{Content, ResourceLink};
use sandbox::{DenialReason, FileError, PathAccess, UnusableReason};
use serde::Deserialize;

use crate::linked_pages;
use crate::model::Image;
use crate::summary_without_model::{cut, one_line};
use crate::tools::list;
use crate::workspace::{READ, Workspace};

/// As base64, as it is sent.
const IMAGE_BYTES_MAX: usize = 20 << 20;
const IMAGE_TYPES: [&str; 5] = ["image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"];
/// The media type of diagnostics that Zed sends.
const DIAGNOSTICS: &str = "application/vnd.zed.diagnostics+json";
/// Further ones are only counted.
const DIAGNOSTICS_MAX: usize = 1_000;
const LINK_BYTES_MAX: u64 = 1 << 20;
/// For each field of the note about a skipped block.
const SKIPPED_CHARS_MAX: usize = 1_000;
const LINK_TIMEOUT: Duration = Duration::from_secs(10);
/// Folder names whose contents are never put into a prompt, wherever they are.
const BLOCKED: [&str; 6] = ["proc", "sys", "dev", ".ssh", ".gnupg", ".aws"];

/// A prompt as the model gets it, and warnings for the person about what was skipped.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) images: Vec<Image>,
    pub(crate) warnings: Vec<String>,
    /// What the person typed, without attachments.
    pub(crate) typed: String,
}

impl Prompt {
    pub(crate) fn text(text: String) -> Self {
        let typed = text.lines().next().unwrap_or_default().to_owned();
        Self { text, typed, ..Self::default() }
    }
}

pub(crate) async fn render(content: &[Content], workspace: &Workspace) -> Prompt {
    let mut prompt = Prompt::default();
    let mut parts: Vec<String> = Vec::new();
    for block in content {
        if matches!(block, Content::Link(link) if linked_pages::is_web_link(&link.uri)) {
            // It is fetched once, when its turn starts, and is in the log.
            continue;
        }
        if let Content::Text(text) = block {
            prompt.typed.push_str(text);
            prompt.typed.push('\n');
        }
        match render_block(block, workspace).await {
            Ok(PromptPart::Text(text)) => parts.push(text),
            Ok(PromptPart::Image(image)) => prompt.images.push(image),
            Err(unread) => {
                prompt.warnings.push(unread.warning());
                parts.push(unread.placeholder());
            }
        }
    }
    prompt.text = parts.join("\n");
    prompt
}

enum PromptPart {
    Text(String),
    Image(Image),
}

/// A block of a prompt that cannot be given to the model.
#[derive(Default)]
pub(crate) struct SkippedBlock<'a> {
    pub(crate) uri: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    /// A media type, or what it is called.
    pub(crate) kind: Option<&'a str>,
    pub(crate) reason: String,
}

impl SkippedBlock<'_> {
    /// For the person.
    fn warning(&self) -> String {
        let what = match (self.uri, self.kind) {
            (Some(uri), _) => one_line(uri),
            (None, Some(kind)) if kind.starts_with("audio/") => format!("audio ({})", one_line(kind)),
            (None, _) => "an image".to_owned(),
        };
        format!("{what} was left out: {}", self.reason)
    }

    /// For the model.
    pub(crate) fn placeholder(&self) -> String {
        let fields =
            [("uri", self.uri), ("name", self.name), ("kind", self.kind), ("unread", Some(&self.reason))];
        let field = |(name, value): (&str, Option<&str>)| {
            let value = cut(&one_line(value?), SKIPPED_CHARS_MAX);
            Some(format!(" {name}=\"{}\"", escaped(&value)))
        };
        format!("<resource{}/>", fields.into_iter().filter_map(field).collect::<String>())
    }
}

async fn render_block<'a>(block: &'a Content, workspace: &Workspace) -> Result<PromptPart, SkippedBlock<'a>> {
    match block {
        Content::Text(text) => Ok(PromptPart::Text(text.to_string())),
        Content::Image { mime, data, uri } => image(mime, data)
            .map(PromptPart::Image)
            .map_err(|reason| SkippedBlock { uri: uri.as_deref(), kind: Some(mime), name: None, reason }),
        Content::Audio { mime, .. } => Err(SkippedBlock {
            kind: Some(mime),
            reason: "the model does not support audio".into(),
            ..SkippedBlock::default()
        }),
        Content::Link(link) => {
            let read = read_link(link, workspace.clone()).await;
            read.map(PromptPart::Text).map_err(|reason| SkippedBlock {
                uri: Some(&link.uri),
                name: Some(&*link.name),
                kind: link.mime.as_deref(),
                reason,
            })
        }
        Content::Resource { mime: Some(mime), text, .. } if mime.as_ref() == DIAGNOSTICS => {
            Ok(PromptPart::Text(diagnostics(text)))
        }
        Content::Resource { uri, text, .. } => {
            Ok(PromptPart::Text(format!("<resource name=\"{}\">{}</resource>", escaped(uri), escaped(text))))
        }
        Content::Binary { uri, mime, .. } => {
            let reason = "it is not text".to_owned();
            Err(SkippedBlock { uri: Some(uri), name: None, kind: mime.as_deref(), reason })
        }
    }
}

fn image(mime: &Arc<str>, data: &Arc<str>) -> Result<Image, String> {
    if !IMAGE_TYPES.contains(&mime.to_ascii_lowercase().as_str()) {
        return Err(format!("{mime} is not one of jpeg, png, gif and webp"));
    }
    if data.len() > IMAGE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", IMAGE_BYTES_MAX >> 20));
    }
    Ok(Image { mime: Arc::clone(mime), data: Arc::clone(data) })
}

#[derive(Deserialize)]
struct Diagnostic {
    path: Option<String>,
    row: Option<u64>,
    severity: Option<String>,
    message: Option<String>,
}

/// One line per diagnostic. If the JSON cannot be parsed, nothing is given.
fn diagnostics(json: &str) -> String {
    let found: Vec<Diagnostic> = serde_json::from_str(json).unwrap_or_default();
    let mut text = "<diagnostics>\n".to_owned();
    for Diagnostic { path, row, severity, message } in found.iter().take(DIAGNOSTICS_MAX) {
        let shown = |text: &Option<String>, without: &str| escaped(text.as_deref().unwrap_or(without));
        let row = row.map_or_else(|| "?".to_owned(), |row| row.to_string());
        let severity = shown(severity, "error").to_uppercase();
        let line = format!("{}:{row}: [{severity}] {}", shown(path, "unknown"), shown(message, ""));
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    if let Some(more @ 1..) = found.len().checked_sub(DIAGNOSTICS_MAX) {
        text.push_str(&format!("[{more} more]\n"));
    }
    text + "</diagnostics>"
}

async fn read_link(link: &ResourceLink, workspace: Workspace) -> Result<String, String> {
    let path = file_path(&link.uri)?;
    let reading = tokio::task::spawn_blocking(move || read_path(&path, &workspace));
    let found = match tokio::time::timeout(LINK_TIMEOUT, reading).await {
        Ok(Ok(outcome)) => outcome?,
        Ok(Err(_)) => return Err("it could not be read".into()),
        Err(_) => return Err("reading it took too long".into()),
    };
    let (kind, text) = match found {
        LinkTarget::File(text) => ("", text),
        LinkTarget::Folder(names) => (" kind=\"folder\"", names),
    };
    Ok(format!("<resource uri=\"{}\"{kind}>{}</resource>", escaped(&link.uri), escaped(&text)))
}

/// The target of a `file://` link.
enum LinkTarget {
    File(String),
    /// The names in it.
    Folder(String),
}

fn read_path(path: &Path, workspace: &Workspace) -> Result<LinkTarget, String> {
    const NEVER: &str = "files there are never given to a model";
    let spot = workspace.find(path, PathAccess::Read).map_err(|error| match error {
        FileError::Refused { reason: DenialReason::Hidden, .. } => NEVER,
        FileError::Refused { .. } | FileError::Unusable { .. } => "it is outside the workspace or not there",
    })?;
    let blocked = |part: Component<'_>| BLOCKED.iter().any(|name| part.as_os_str() == *name);
    if spot.real().components().any(blocked) {
        return Err(NEVER.into());
    }
    if let Some(rule) = workspace.denied_by(READ, spot.real()) {
        return Err(format!("the rule {rule} denies reading it"));
    }
    let unusable = |error| match error {
        FileError::Unusable { reason: UnusableReason::Special, .. } => "it is not a file".to_owned(),
        FileError::Unusable { reason, .. } => reason.to_string(),
        FileError::Refused { reason, .. } => reason.to_string(),
    };
    let files = workspace.files().map_err(unusable)?;
    let file = match files.open_file(&spot) {
        Err(FileError::Unusable { reason: UnusableReason::Folder, .. }) => {
            if let Some(rule) = workspace.denied_by(list::NAME, spot.real()) {
                return Err(format!("the rule {rule} denies listing it"));
            }
            return list::listing(files, &spot).map(LinkTarget::Folder).map_err(unusable);
        }
        opened => opened.map_err(unusable)?,
    };
    let mut bytes = Vec::new();
    file.take(LINK_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LINK_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", LINK_BYTES_MAX >> 20));
    }
    if bytes.contains(&0) {
        return Err("it is not text".into());
    }
    String::from_utf8(bytes).map(LinkTarget::File).map_err(|_| "it is not text".into())
}

/// The path of a `file://` address on this machine.
fn file_path(uri: &str) -> Result<PathBuf, String> {
    let Some(rest) = uri.strip_prefix("file://") else {
        return Err("only file://, http:// and https:// links are read".into());
    };
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("it is on another machine".into());
    }
    let path = path.split(['#', '?']).next().unwrap_or(path);
    let bytes = percent_decoded(path).ok_or("its address is malformed")?;
    String::from_utf8(bytes).map(PathBuf::from).map_err(|_| "its address is malformed".into())
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    (!bytes.contains(&0)).then_some(bytes)
}

pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn link(uri: String) -> Content {
        Content::Link(ResourceLink::new(uri, "n"))
    }

    /// Renders blocks in a folder with a few files; the folder is shown as `DIR`.
    async fn check(blocks: impl FnOnce(&str) -> Vec<Content>, expected: Expect) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let work = base.join("work");
        std::fs::create_dir_all(work.join(".ssh")).unwrap();
        std::fs::write(work.join("a b.txt"), "x < </resource>\n").unwrap();
        std::fs::write(work.join(".ssh/id"), "key").unwrap();
        std::fs::write(work.join("binary"), [1, 0, 2]).unwrap();
        std::fs::write(work.join("big"), vec![b'x'; (1 << 20) + 1]).unwrap();
        std::fs::write(base.join("outside"), "o").unwrap();
        std::os::unix::fs::symlink(base.join("outside"), work.join("link")).unwrap();
        let shown = work.to_string_lossy().into_owned();
        let workspace = Workspace::open(work, &[], None, &crate::agent::ToolAccess::default());
        let prompt = render(&blocks(&shown), &workspace).await;
        let images: String = prompt.images.iter().map(|image| format!("image {}\n", image.mime)).collect();
        let warnings: String = prompt.warnings.iter().map(|warning| format!("! {warning}\n")).collect();
        expected.assert_eq(&format!("{}\n{images}{warnings}", prompt.text).replace(&shown, "DIR"));
    }

    #[tokio::test]
    async fn texts_are_joined_and_resources_cannot_break_out() {
        let resource =
            Content::Resource { uri: "a\"b".into(), mime: None, text: "</resource> & more".into() };
        check(
            |dir| {
                vec![
                    Content::text("one"),
                    Content::text("two"),
                    resource,
                    link(format!("file://{dir}/a%20b.txt")),
                ]
            },
            expect![[r#"
                one
                two
                <resource name="a&quot;b">&lt;/resource&gt; &amp; more</resource>
                <resource uri="file://DIR/a%20b.txt">x &lt; &lt;/resource&gt;
                </resource>
            "#]],
        )
        .await;
    }

    #[tokio::test]
    async fn images_of_known_kinds_are_kept_and_the_rest_is_said_to_be_left_out() {
        let image =
            |mime: &str, size| Content::Image { mime: mime.into(), data: "A".repeat(size).into(), uri: None };
        check(
            |_| {
                vec![
                    image("image/png", 4),
                    image("image/bmp", 4),
                    image("image/gif", IMAGE_BYTES_MAX + 1),
                    Content::Audio { mime: "audio/wav".into(), data: "A".into() },
                    Content::Binary { uri: "file:///x".into(), mime: None, data: "A".into() },
                ]
            },
            expect![[r#"
                <resource kind="image/bmp" unread="image/bmp is not one of jpeg, png, gif and webp"/>
                <resource kind="image/gif" unread="it is larger than 20 MiB"/>
                <resource kind="audio/wav" unread="the model does not support audio"/>
                <resource uri="file:///x" unread="it is not text"/>
                image image/png
                ! an image was left out: image/bmp is not one of jpeg, png, gif and webp
                ! an image was left out: it is larger than 20 MiB
                ! audio (audio/wav) was left out: the model does not support audio
                ! file:///x was left out: it is not text
            "#]],
        )
        .await;
    }

    #[tokio::test]
    async fn what_an_editor_knows_to_be_wrong_is_a_line_each() {
        let known = |text: &str| Content::Resource {
            uri: "zed://diagnostics".into(),
            mime: Some(DIAGNOSTICS.into()),
            text: text.into(),
        };
        let some =
            r#"[{"path":"a<b.rs","row":3,"severity":"warning","message":"unused\n</diagnostics>","x":1},{}]"#;
        check(
            |_| vec![known(some), known("not json"), known(r#"[{"row":"x"}]"#)],
            expect![[r#"
                <diagnostics>
                a&lt;b.rs:3: [WARNING] unused &lt;/diagnostics&gt;
                unknown:?: [ERROR]
                </diagnostics>
                <diagnostics>
                </diagnostics>
                <diagnostics>
                </diagnostics>
            "#]],
        )
        .await;
    }

    #[tokio::test]
    async fn links_that_lead_elsewhere_are_left_out() {
        check(
            |dir| {
                let inside = |name: &str| link(format!("file://{dir}/{name}"));
                let mut links: Vec<_> =
                    ["../outside", "link", ".ssh/id", ".ssh", "binary", "big", "none"].map(inside).into();
                links.extend(
                    ["http://127.0.0.1/x", "ftp://a/\"/><b", "file://host/x", "file:///%zz"]
                        .map(|u| link(u.into())),
                );
                links
            },
            expect![[r#"
                <resource uri="file://DIR/../outside" name="n" unread="it is outside the workspace or not there"/>
                <resource uri="file://DIR/link" name="n" unread="it is outside the workspace or not there"/>
                <resource uri="file://DIR/.ssh/id" name="n" unread="files there are never given to a model"/>
                <resource uri="file://DIR/.ssh" name="n" unread="files there are never given to a model"/>
                <resource uri="file://DIR/binary" name="n" unread="it is not text"/>
                <resource uri="file://DIR/big" name="n" unread="it is larger than 1 MiB"/>
                <resource uri="file://DIR/none" name="n" unread="No such file or directory (os error 2)"/>
                <resource uri="ftp://a/&quot;/&gt;&lt;b" name="n" unread="only file://, http:// and https:// links are read"/>
                <resource uri="file://host/x" name="n" unread="it is on another machine"/>
                <resource uri="file:///%zz" name="n" unread="its address is malformed"/>
                ! file://DIR/../outside was left out: it is outside the workspace or not there
                ! file://DIR/link was left out: it is outside the workspace or not there
                ! file://DIR/.ssh/id was left out: files there are never given to a model
                ! file://DIR/.ssh was left out: files there are never given to a model
                ! file://DIR/binary was left out: it is not text
                ! file://DIR/big was left out: it is larger than 1 MiB
                ! file://DIR/none was left out: No such file or directory (os error 2)
                ! ftp://a/"/><b was left out: only file://, http:// and https:// links are read
                ! file://host/x was left out: it is on another machine
                ! file:///%zz was left out: its address is malformed
            "#]],
        )
        .await;
    }

    /// A folder is what the `list` tool would show of it.
    #[tokio::test]
    async fn a_folder_is_given_as_its_names() {
        check(
            |dir| vec![link(format!("file://{dir}/")), link(format!("file://{dir}/.."))],
            expect![[r#"
                <resource uri="file://DIR/" kind="folder">.ssh/
                a b.txt
                big
                binary
                link
                </resource>
                <resource uri="file://DIR/.." name="n" unread="it is outside the workspace or not there"/>
                ! file://DIR/.. was left out: it is outside the workspace or not there
            "#]],
        )
        .await;
    }

    /// What a rule denies to the tools is not read for a prompt either, and the model is told so.
    #[tokio::test]
    async fn a_rule_that_denies_holds_for_links_too() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().canonicalize().unwrap().join("work");
        std::fs::create_dir_all(work.join("closed")).unwrap();
        std::fs::create_dir_all(work.join("secret")).unwrap();
        std::fs::write(work.join("secret/key"), "k").unwrap();
        let user = dir.path().join("permissions.toml");
        std::fs::write(&user, "deny = [\"list(closed/)\", \"read(secret/)\"]\n").unwrap();
        let rules = Arc::new(guard::Rulebook::new(guard::RulePaths { user, ..Default::default() }));
        let workspace = Workspace::open(work.clone(), &[], None, &crate::agent::ToolAccess::default());
        let links =
            ["closed", "secret", "secret/key"].map(|name| link(format!("file://{}/{name}", work.display())));
        let prompt = render(&links, &workspace.with_rules(Some(&rules))).await;
        expect![[r#"
            <resource uri="file://DIR/closed" name="n" unread="the rule list(closed/) denies listing it"/>
            <resource uri="file://DIR/secret" name="n" unread="the rule read(secret/) denies reading it"/>
            <resource uri="file://DIR/secret/key" name="n" unread="the rule read(secret/) denies reading it"/>"#]]
        .assert_eq(&prompt.text.replace(&work.display().to_string(), "DIR"));
        assert_eq!(prompt.warnings.len(), 3);
    }
}
