//! Compressing old files of the chain. They stay part of it: verification reads them too.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use engine::Timestamp;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::chain_files::{self, ARCHIVE};
use super::chain_head::sync_folder;

const DAY_MS: i64 = 86_400_000;

/// Compresses every file that is older than this number of days, oldest first, and never `newest`. The
/// caller holds the chain's lock. Returns the compressed files.
pub(super) fn archive(
    folder: &Path,
    newest: &str,
    now: Timestamp,
    retention_days: u32,
) -> io::Result<Vec<String>> {
    let oldest_kept = chain_files::name_of(Timestamp(
        now.0.saturating_sub(i64::from(retention_days).saturating_mul(DAY_MS)),
    ));
    let mut done = Vec::new();
    for segment in chain_files::all(folder)? {
        if segment.archived {
            continue;
        }
        // The archive is the chain's beginning without a gap.
        if segment.name >= oldest_kept || segment.name.as_str() >= newest {
            break;
        }
        compress(folder, &segment.path, &segment.name)?;
        done.push(segment.name);
    }
    Ok(done)
}

/// The compressed file is complete before the other one is removed. If the process is killed in between,
/// both exist, and the next run does it again.
fn compress(folder: &Path, path: &Path, name: &str) -> io::Result<()> {
    let archive = folder.join(ARCHIVE);
    DirBuilder::new().recursive(true).mode(0o700).create(&archive)?;
    let unfinished = archive.join(format!("{name}.part"));
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&unfinished, archive.join(format!("{name}.gz")))?;
    sync_folder(&archive)?;
    fs::remove_file(path)?;
    sync_folder(folder)
}
