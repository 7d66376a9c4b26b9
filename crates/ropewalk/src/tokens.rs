//! The tokens of the HTTP door: where they come from, and the files they are kept in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use access::{Client, Digest, Keys, create_secret_file, random, url_safe};

use crate::cli::HttpOptions;
use crate::config::ClientEntry;
use crate::trouble::Trouble;
use crate::{paths, secrets};

/// Where a token may be set, the first that is there counts. The others' names are honoured because
/// their users have them set.
const VARIABLES: [&str; 4] =
    ["ROPEWALK_SERVER_TOKEN", "FERRET_SERVER_TOKEN", "OTTER_SERVER_TOKEN", "ZEPH_ACP_AUTH_TOKEN"];

/// Names that mean something here or to others.
const RESERVED: [&str; 3] = ["local", "default", "acp-local"];

/// A file of this kind is one line.
const FILE_BYTES_MAX: u64 = 4096;
const TOKEN_CHARS_MIN: usize = 16;

/// The token that opens everything, and where it came from.
pub enum Master {
    /// Nobody is asked for one.
    None,
    /// It was given to us here.
    Given(Digest, &'static str),
    /// We made it; it stands in this file.
    Kept(Digest, PathBuf),
}

impl Master {
    pub fn find(options: &HttpOptions) -> Result<Self, Trouble> {
        if options.no_auth {
            return Ok(Self::None);
        }
        if let Some(token) = &options.auth_token {
            return Ok(Self::Given(checked(token, "--auth-token")?, "--auth-token"));
        }
        for name in VARIABLES {
            if let Some(value) = paths::variable_even_empty(name) {
                return Ok(Self::Given(checked(&value.to_string_lossy(), name)?, name));
            }
        }
        let path = paths::state()?.join("http.token");
        let token = kept(&path)?;
        Ok(Self::Kept(checked(&token, &path.display().to_string())?, path))
    }

    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::None => None,
            Self::Given(digest, _) | Self::Kept(digest, _) => Some(*digest),
        }
    }

    pub fn keys(&self, clients: Vec<Client>) -> Keys {
        match self.digest() {
            None => Keys::None,
            Some(master) => Keys::Tokens { master, clients },
        }
    }
}

/// The token that has this digest, if this person has it: in a variable, or in the file it is kept in.
pub fn matching(digest: &Digest) -> Result<Option<String>, Trouble> {
    let set = VARIABLES.into_iter().filter_map(paths::variable).filter_map(|value| value.into_string().ok());
    let kept = read(&paths::state()?.join("http.token")).ok();
    Ok(set.chain(kept).find(|token| Digest::of(token).is(digest)))
}

fn checked(token: &str, place: &str) -> Result<Digest, Trouble> {
    digest(token).map_err(|why| {
        Trouble::usage(format!("the token in {place} {why}"))
            .fix("set it to 16 or more letters and digits, or leave it out: then one is made")
    })
}

/// An empty token would be opened by an empty header, and what no header can carry opens nothing.
fn digest(token: &str) -> Result<Digest, &'static str> {
    if token.trim().is_empty() {
        return Err("is empty");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has spaces or characters that no header can carry");
    }
    if token.len() < TOKEN_CHARS_MIN {
        return Err("is so short that it can be guessed");
    }
    // Whoever reads a log, an export or a session must not get in with it.
    secrets::also(token);
    Ok(Digest::of(token))
}

/// The clients of the settings file, if all of them can be told apart.
pub fn clients(entries: &[ClientEntry], master: &Master) -> Result<Vec<Client>, Trouble> {
    let wrong = |what: String| {
        Trouble::usage(what)
            .fix("mend the [[clients]] in the settings file: each has an id and a token of its own")
    };
    let mut clients: Vec<Client> = Vec::new();
    for entry in entries {
        let id = entry.id.as_str();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > 64 || !id.bytes().all(plain) {
            return Err(wrong(format!(
                "{id:?} is no id for a client: 1 to 64 letters, digits, '-', '_' and '.'"
            )));
        }
        if RESERVED.contains(&id) {
            return Err(wrong(format!("a client cannot be called {id:?}")));
        }
        let digest = match (&entry.token_sha256, &entry.token) {
            (Some(hex), None) => Digest::parse(hex).ok_or_else(|| {
                wrong(format!("the token_sha256 of client {id:?} is not 64 hexadecimal digits"))
            })?,
            (None, Some(token)) => {
                digest(token).map_err(|why| wrong(format!("the token of client {id:?} {why}")))?
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong(format!("client {id:?} needs either token_sha256 or token")));
            }
        };
        if digest.is(&Digest::of("")) {
            return Err(wrong(format!("the token of client {id:?} is empty")));
        }
        if clients.iter().any(|client| *client.id == *id) {
            return Err(wrong(format!("there are two clients {id:?}")));
        }
        let taken = clients.iter().any(|client| client.digest.is(&digest));
        if taken || master.digest().is_some_and(|master| master.is(&digest)) {
            return Err(wrong(format!("the token of client {id:?} is somebody else's too")));
        }
        clients.push(Client { id: id.into(), digest });
    }
    Ok(clients)
}

/// What signs things that clients carry for us, the same after every restart.
pub fn secret() -> Result<[u8; 32], Trouble> {
    Ok(Digest::of(&kept(&paths::state()?.join("http.secret"))?).bytes())
}

/// The random line in this file, which is made if it is not there.
fn kept(path: &Path) -> Result<String, Trouble> {
    let unusable = |error: io::Error| {
        Trouble::failed(format!("{} cannot be used", path.display()))
            .because(error)
            .fix("check that you may write there, or choose another folder with ROPEWALK_HOME")
    };
    let line = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = random().and_then(|token| create_secret_file(path, &url_safe(&token)));
            made.map_err(unusable)?;
            read(path).map_err(unusable)?
        }
        read => read.map_err(unusable)?,
    };
    match line.is_empty() {
        true => Err(unusable(io::Error::other("it is empty; remove it, and another is made"))),
        false => Ok(line),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is not one line of text"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read it; remove it, and another is made, or chmod 600"));
    }
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, token: &str) -> ClientEntry {
        ClientEntry { id: id.into(), token_sha256: Some(Digest::of(token).hex()), token: None }
    }

    fn refused(entries: &[ClientEntry]) -> String {
        let master = Master::Given(Digest::of("master-token"), "--auth-token");
        clients(entries, &master).map(|_| ()).unwrap_err().text()
    }

    #[test]
    fn a_token_of_the_door_is_a_secret() {
        digest("plainwordsasatokenofthistest").unwrap();
        assert_eq!(secrets::without("a plainwordsasatokenofthistest b"), "a [REDACTED] b");
        assert_eq!(secrets::without("cGxhaW53b3Jkc2FzYXRva2Vub2Z0aGlzdGVzdA=="), "[REDACTED]");
    }

    #[test]
    fn clients_that_cannot_be_told_apart_are_refused() {
        let plain = ClientEntry {
            id: "b".into(),
            token_sha256: None,
            token: Some("another-token-of-this-test".into()),
        };
        let both = ClientEntry { token_sha256: Some(Digest::of("x").hex()), ..plain.clone() };
        let bad = ClientEntry { id: "c".into(), token_sha256: Some("12".into()), token: None };
        assert_eq!(clients(&[entry("a", "one"), plain.clone()], &Master::None).unwrap().len(), 2);
        for (entries, said) in [
            (vec![entry("local", "one")], "cannot be called"),
            (vec![entry("acp-local", "one")], "cannot be called"),
            (vec![entry("default", "one")], "cannot be called"),
            (vec![entry("", "one")], "no id"),
            (vec![entry("a b", "one")], "no id"),
            (vec![entry("a", "one"), entry("a", "two")], "two clients"),
            (vec![entry("a", "one"), entry("b", "one")], "somebody else's"),
            (vec![entry("a", "master-token")], "somebody else's"),
            (vec![entry("a", "")], "empty"),
            (vec![ClientEntry { token: Some("  ".into()), ..plain.clone() }], "empty"),
            (vec![ClientEntry { token: None, ..plain }], "needs either"),
            (vec![both], "needs either"),
            (vec![bad], "64 hexadecimal"),
        ] {
            let text = refused(&entries);
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        for bad in ["", " ", "\t\n", "a b", "tökén", "a\nb", "fifteen-letters"] {
            assert!(checked(bad, "here").is_err(), "{bad:?}");
        }
        assert!(checked("master-secret-of-this-test", "here").is_ok());
    }

    #[test]
    fn a_kept_token_stays_the_same_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/http.token");
        let first = kept(&path).unwrap();
        assert_eq!(first.len(), 43);
        assert_eq!(kept(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let loose = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(&path, loose).unwrap();
        assert!(kept(&path).unwrap_err().text().contains("others may read it"));
    }
}
