//! Opening regular files of the state directory safely: whatever else is at the path neither misleads nor blocks the reader.
//!
//! **Invariant:** a file counts as missing only if nothing at all has its name. A link to a missing target, for example on a
//! disk that is not mounted, is an error: the target may contain a denial.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Whether something is at this path.
pub fn is_there(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The nearest existing parent explains it: a folder without the file, or a dangling link.
    let nearest = path.ancestors().find_map(|name| Some((name, fs::symlink_metadata(name).ok()?)));
    match nearest {
        Some((name, found)) if found.is_symlink() && fs::metadata(name).is_err() => {
            let at = if name == path { "it".to_owned() } else { name.display().to_string() };
            let text = format!("{at} is a broken link; repair the link, or remove it");
            Err(io::Error::other(text))
        }
        _ => Ok(false),
    }
}

/// Opens the file if it exists. Anything but a regular file, such as a pipe, is refused and never waited
/// for.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    if !is_there(path)? {
        return Ok(None);
    }
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file; move it aside"));
    }
    Ok(Some(file))
}

/// All of a file that must be there.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path)?.ok_or(io::ErrorKind::NotFound)?;
    { file }.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_name_that_nothing_has_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("nowhere/deep", at("folder")).unwrap();
        assert_eq!(read_regular(&at("link")).unwrap(), b"text");
        assert!(open_regular(&at("missing")).unwrap().is_none());
        assert!(open_regular(&at("missing/file")).unwrap().is_none());
        assert!(open_regular(&at("dangling")).is_err());
        assert!(open_regular(&at("folder/file")).is_err());
        assert!(open_regular(&at("file/below")).is_err());
        assert!(open_regular(folder.path()).is_err());
    }
}
