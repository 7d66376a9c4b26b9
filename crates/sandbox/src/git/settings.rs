//! Git's settings files, read as git reads them, with the files that they include.
//!
//! This parser decides what a settings file makes git run, so it must not miss a line that git sees: a comment ends with its
//! line whatever stands before the line end, and an escape means what git takes it for.
//!
//! **Invariant:** a file that was not read completely is listed in [`GitSettings::unread`], never left out silently.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::user_home_folders::account_homes;

/// All settings files of a repository together; git's own are a few hundred bytes.
pub(super) const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// All settings of a repository together.
const SETTINGS_MAX: usize = 20_000;
/// How many unread files are listed; one is enough to know that something was not read.
const UNREAD_MAX: usize = 16;
/// How deep settings that include others are read: as deep as git does, which fails beyond.
const INCLUDES_MAX: usize = 10;
/// How many files one settings file may bring along.
const FILES_MAX: usize = 100;

/// One setting. What stands in quotes after the section's name is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitSetting {
    /// The file in which it stands.
    pub(super) file: PathBuf,
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: OsString,
    /// By how many files that file was included.
    pub(super) depth: usize,
    /// The value has a tab outside of quotes, which some versions of git take for a space.
    tabbed: bool,
}

/// The content of a settings file and the files that it includes.
#[derive(Debug, Default)]
pub(super) struct GitSettings {
    pub(super) list: Vec<GitSetting>,
    /// Files that were not read to their end, and why.
    pub(super) unread: Vec<(PathBuf, &'static str)>,
    /// Each file is read once, by whatever name.
    read: BTreeSet<PathBuf>,
    bytes: u64,
}

impl GitSettings {
    /// Reads files in their order. A missing file has no settings. Touches the disk.
    pub(super) fn read(files: &[PathBuf]) -> Self {
        let mut settings = Self::default();
        let mut level: Vec<PathBuf> = files.to_vec();
        // Level by level, so a file that is included twice is read where it is nearest.
        for depth in 0..=INCLUDES_MAX {
            let next = level.iter().flat_map(|file| settings.file(file, depth)).collect();
            level = next;
        }
        let deeper = level.into_iter().filter(|file| !settings.read.contains(file) && file.exists());
        let deeper: Vec<_> = deeper.map(|file| (file, "it is included too deeply")).collect();
        settings.unread.extend(deeper);
        settings
    }

    pub(super) fn all<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a GitSetting> {
        self.list.iter().filter(move |setting| setting.section == section && setting.key == key)
    }

    /// Reads one file and returns the files that it includes.
    fn file(&mut self, file: &Path, depth: usize) -> Vec<PathBuf> {
        let real = file.canonicalize().unwrap_or_else(|_| file.into());
        if self.unread.len() >= UNREAD_MAX || self.read.contains(&real) {
            return Vec::new();
        }
        if self.read.len() >= FILES_MAX {
            self.unread.push((file.into(), "too many files are included"));
            return Vec::new();
        }
        self.read.insert(real);
        let bytes = match read_file(file, CONFIG_BYTES_MAX - self.bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Vec::new(),
            Err(why) => {
                self.unread.push((file.into(), why));
                return Vec::new();
            }
        };
        self.bytes += bytes.len() as u64;
        let begin = self.list.len();
        if !parse(&bytes, (file, depth), &mut self.list) {
            self.unread.push((file.into(), "it is not written as git writes it, or too long"));
        }
        let included: Vec<_> = self.list[begin..].iter().filter(|setting| setting.includes()).collect();
        let unsure = |setting: &&GitSetting| setting.value.as_bytes().starts_with(b"%(") || setting.tabbed;
        if included.iter().any(unsure) {
            self.unread.push((file.into(), "which file it includes depends on the version of git"));
        }
        let paths = included.into_iter().flat_map(|setting| setting.paths(&setting.homes()));
        paths.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl GitSetting {
    /// Whether it names a file of further settings, under whatever condition.
    pub(super) fn includes(&self) -> bool {
        matches!(self.section.as_str(), "include" | "includeif") && self.key == "path"
    }

    /// The path that it names, from the folder of its file. More than one if there are several homes.
    pub(super) fn paths(&self, homes: &[PathBuf]) -> Vec<PathBuf> {
        self.paths_from(self.file.parent().unwrap_or(Path::new("/")), homes)
    }

    pub(super) fn paths_from(&self, base: &Path, homes: &[PathBuf]) -> Vec<PathBuf> {
        let value = self.value.as_bytes();
        let value = value.strip_prefix(b":(optional)").unwrap_or(value);
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        if value.is_empty() {
            return Vec::new();
        }
        let Some(home) = value.strip_prefix(b"~") else { return vec![base.join(path(value))] };
        let Some(slash) = home.iter().position(|byte| *byte == b'/') else { return Vec::new() };
        let rest: PathBuf = path(&home[slash..]).components().skip(1).collect();
        homes.iter().map(|home| home.join(&rest)).collect()
    }

    /// Every folder that git may take for the home, which depends on a variable: the account's, and any that is
    /// around the file.
    fn homes(&self) -> Vec<PathBuf> {
        let around = self.file.ancestors().skip(1).map(Path::to_owned);
        let mut homes: Vec<PathBuf> = account_homes().into_iter().chain(around).collect();
        homes.sort();
        homes.dedup();
        homes
    }
}

/// Reads a regular file. `None`: it does not exist. The error is why an existing file cannot be read.
pub(super) fn read_file(file: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, &'static str> {
    let Some((open, length)) = open_file(file)? else { return Ok(None) };
    if length > bytes_max {
        return Err("it is too large");
    }
    let mut bytes = Vec::new();
    let read = open.take(bytes_max + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 <= bytes_max => Ok(Some(bytes)),
        Ok(_) => Err("it is too large"),
        Err(_) => Err("it cannot be read"),
    }
}

/// Opens a regular file and returns its length. Never blocks on anything else, such as a pipe.
pub(super) fn open_file(file: &Path) -> Result<Option<(File, u64)>, &'static str> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let open = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        Ok(open) => open,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(_) => return Err("it cannot be opened"),
    };
    let data = open.metadata().map_err(|_| "it cannot be read")?;
    if data.is_file() { Ok(Some((open, data.len()))) } else { Err("it is not a regular file") }
}

/// Adds the settings of a text. False: parsing stopped before the end, because git does not accept the rest.
fn parse(bytes: &[u8], (file, depth): (&Path, usize), found: &mut Vec<GitSetting>) -> bool {
    let mut text = ConfigText { rest: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) };
    let mut section = String::new();
    let mut whole = || -> Option<()> {
        while !text.rest.is_empty() {
            if found.len() >= SETTINGS_MAX {
                return None;
            }
            match text.next() {
                b'#' | b';' => text.end_line(),
                b'[' => section = text.section()?,
                c if is_space(c) => {}
                c if c.is_ascii_alphabetic() => {
                    let key = text.key(c);
                    // Without a value it is a switch, which names nothing.
                    if let Some((value, tabbed)) = text.value()? {
                        let value = OsString::from_vec(value);
                        let (file, section) = (file.into(), section.clone());
                        found.push(GitSetting { file, section, key, value, depth, tabbed });
                    }
                }
                _ => return None,
            }
        }
        Some(())
    };
    whole().is_some()
}

struct ConfigText<'a> {
    rest: &'a [u8],
}

impl ConfigText<'_> {
    /// The next byte, with one kind of line end; the end of the file is one too.
    fn next(&mut self) -> u8 {
        let taken = if self.rest.starts_with(b"\r\n") { 2 } else { 1 };
        let byte = self.rest.get(taken - 1).copied().unwrap_or(b'\n');
        self.rest = self.rest.get(taken..).unwrap_or_default();
        byte
    }

    fn end_line(&mut self) {
        while self.next() != b'\n' {}
    }

    /// The name of a section, behind its bracket: in small letters, up to a dot, a space or a quote.
    fn section(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next() {
                b']' => break,
                c @ (b' ' | b'\t' | b'\r') => {
                    self.subsection(c)?;
                    break;
                }
                c if is_key(c) || c == b'.' => name.push(char::from(c.to_ascii_lowercase())),
                _ => return None,
            }
        }
        let end = name.find('.').unwrap_or(name.len());
        name.truncate(end);
        Some(name)
    }

    /// What stands in quotes in the header of a section, up to the bracket.
    fn subsection(&mut self, first: u8) -> Option<()> {
        let mut c = first;
        while c != b'\n' && is_space(c) {
            c = self.next();
        }
        if c != b'"' {
            return None;
        }
        loop {
            match self.next() {
                b'\n' => return None,
                b'"' => break,
                b'\\' if self.next() == b'\n' => return None,
                _ => {}
            }
        }
        (self.next() == b']').then_some(())
    }

    fn key(&mut self, first: u8) -> String {
        let mut key = String::from(char::from(first.to_ascii_lowercase()));
        while let Some(c) = self.rest.first().copied().filter(|c| is_key(*c)) {
            key.push(char::from(c.to_ascii_lowercase()));
            self.rest = &self.rest[1..];
        }
        key
    }

    /// The value of a key up to the end of its last line, and whether it has a tab outside of quotes; `Some(None)` if
    /// it has none.
    fn value(&mut self) -> Option<Option<(Vec<u8>, bool)>> {
        let mut c = self.next();
        while matches!(c, b' ' | b'\t') {
            c = self.next();
        }
        match c {
            b'\n' => return Some(None),
            b'=' => {}
            _ => return None,
        }
        let (mut value, mut kept, mut quoted, mut tabbed) = (Vec::new(), 0, false, false);
        loop {
            match self.next() {
                b'\n' if quoted => return None,
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.end_line();
                    break;
                }
                b'"' => {
                    quoted = !quoted;
                    kept = value.len();
                    continue;
                }
                b'\\' => match self.next() {
                    // Spaces before it count.
                    b'\n' => {
                        kept = value.len();
                        continue;
                    }
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    c @ (b'\\' | b'"') => value.push(c),
                    _ => return None,
                },
                c if is_space(c) && !quoted => {
                    if !value.is_empty() {
                        value.push(c);
                        tabbed |= c == b'\t';
                    }
                    continue;
                }
                c => value.push(c),
            }
            kept = value.len();
        }
        // Spaces at the end count only in quotes.
        value.truncate(kept);
        Some(Some((value, tabbed)))
    }
}

fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &[u8]) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        let whole = parse(text, (Path::new("/w/.git/config"), 0), &mut found);
        let shown = |setting: &GitSetting| {
            format!("{}.{}={}", setting.section, setting.key, setting.value.to_string_lossy())
        };
        (found.iter().map(shown).collect(), whole)
    }

    #[test]
    fn a_text_is_taken_as_git_takes_it() {
        for (text, expected, whole) in [
            ("[A \"b]\\\"\"]\r\n\tC-d = e  f ; g\r\n", &["a.c-d=e  f"][..], true),
            ("[a.b]c=d\\\n e\nf\ng = \"  h#\" i \n", &["a.c=d e", "a.g=  h# i"], true),
            ("# x \\\n[a]b=\"c\\td\\\\\"\n;\\\n[e]f=g", &["a.b=c\td\\", "e.f=g"], true),
            ("[a]b = c \\\n", &["a.b=c "], true),
            ("[a]b=c\n1=2\n[d]e=f\n", &["a.b=c"], false),
            ("[a]b=\"c\n", &[], false),
            ("[a]b=\\q\n", &[], false),
            ("[a b]\n", &[], false),
        ] {
            assert_eq!(
                values(text.as_bytes()),
                (expected.iter().map(|text| (*text).into()).collect(), whole),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_to_an_end(text in "[\\[\\]a-c.= \t\r\n\"#;\\\\]{0,60}") {
            values(text.as_bytes());
        }
    }
}
