//! Files with one secret of the server's own, such as a token or a key: made once, read by nobody else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A larger file is none of ours.
const FILE_BYTES_MAX: u64 = 4096;

/// Makes the file and its folder. It appears whole or not at all, so that whoever starts at the same moment never reads
/// half of it; and only one of them makes it: another's is as good as ours.
pub fn create_secret_file(path: &Path, secret: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let unfinished = folder.join(format!(".secret.{}", uuid::Uuid::new_v4()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(format!("{secret}\n").as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&unfinished, path));
    fs::remove_file(&unfinished)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| File::open(folder)?.sync_all()),
    }
}

/// Reads the one line of such a file. A file that other users may read is refused: its secret may be known to them.
pub fn read_secret_file(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is not a single line of text"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "other users may read it; run chmod 600 on it, or delete it to generate a new one",
        ));
    }
    Ok(fs::read_to_string(path)?.trim().to_owned())
}
