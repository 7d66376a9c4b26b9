//! Whether what is stored is damaged: the sessions and the audit.

use std::error::Error;

use store::audit::{Key, KeyError};
use store::{Depth, Examined};

use super::Finding;
use crate::backup::Places;
use crate::paths;
use crate::session_store::SessionStore;

/// Lines of damage that are said one by one.
const LINES_MAX: usize = 8;

pub(super) fn findings(deep: bool) -> Vec<Finding> {
    vec![
        Finding {
            name: "sessions",
            outcome: sessions(deep),
            fix: "ropewalk backup FILE keeps it as it is; ropewalk sessions salvage saves what can be read",
            optional: false,
        },
        Finding {
            name: "other files",
            outcome: files(),
            fix: "repair or remove what is named; until then no backup can be made",
            optional: false,
        },
        Finding {
            name: "audit",
            outcome: audit(deep),
            fix: "ropewalk audit verify says where; ropewalk restore FILE brings back a backup",
            optional: false,
        },
    ]
}

fn sessions(deep: bool) -> Result<String, String> {
    let path = match SessionStore::chosen().map_err(|trouble| trouble.text())? {
        SessionStore::File(path) => path,
        SessionStore::Postgres(address) => {
            return Ok(format!("on {}; its own tools look for damage (pg_amcheck)", address.shown));
        }
    };
    let depth = if deep { Depth::Deep } else { Depth::Quick };
    let Some(Examined { layout, sessions, events, mut damage }) = store::examine(&path, depth)? else {
        return Ok("none yet".to_owned());
    };
    // An audit that cannot be read is told of in its own line.
    damage.extend(crate::audit::behind().unwrap_or_default());
    if damage.is_empty() {
        return Ok(format!("layout {layout}, {sessions} sessions, {events} events read, no damage found"));
    }
    let more = damage.len().saturating_sub(LINES_MAX);
    let mut lines: Vec<String> = damage.into_iter().take(LINES_MAX).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Err(format!("{} is damaged: {}", path.display(), lines.join("; ")))
}

/// What a backup would have in it besides the sessions.
fn files() -> Result<String, String> {
    let files =
        Places::usual().map_err(|trouble| trouble.text())?.files().map_err(|trouble| trouble.text())?;
    Ok(format!("{} readable", files.len()))
}

/// The key is looked at always, the whole chain only if that is wanted: writers wait meanwhile.
fn audit(deep: bool) -> Result<String, String> {
    let folder = paths::audit().map_err(|trouble| trouble.text())?;
    let path = paths::audit_key().map_err(|trouble| trouble.text())?;
    let key = match Key::load(&path, &folder) {
        Err(KeyError::Missing(_)) if !folder.exists() => return Ok("none yet".to_owned()),
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            return Err(format!("{error}{cause}"));
        }
        Ok(key) => key,
    };
    if !deep {
        std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        return Ok("readable; --store --deep verifies it".to_owned());
    }
    let report = store::audit::verify(&folder, &key, None).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    })?;
    match (&report.broken, report.cut.first()) {
        (Some(broken), _) => Err(format!("{}, line {}: {}", broken.file, broken.line, broken.what)),
        (None, Some(cut)) => {
            Err(format!("{} of {} rows are there, says {}", cut.found_rows, cut.expected_rows, cut.witness))
        }
        (None, None) => Ok(format!("{} rows, all genuine", report.rows)),
    }
}
