//! Checks whether stored data is damaged: sessions, other files and the audit log.

use std::error::Error;

use store::audit::{AuditKey, AuditKeyError};
use store::{ExamineDepth, ExamineReport};

use super::Finding;
use crate::backup::StatePaths;
use crate::paths;
use crate::session_store::SessionStore;

/// Maximum number of damage lines to show.
const LINES_MAX: usize = 8;

pub(super) fn findings(deep: bool) -> Vec<Finding> {
    vec![
        Finding {
            name: "sessions",
            outcome: sessions(deep),
            fix: "back it up with ropewalk backup FILE, then recover what is readable with ropewalk sessions salvage",
            optional: false,
        },
        Finding {
            name: "other files",
            outcome: files(),
            fix: "repair or delete the file; until then, backups fail",
            optional: false,
        },
        Finding {
            name: "audit",
            outcome: audit(deep),
            fix: "run ropewalk audit verify for details, or restore a backup with ropewalk restore FILE",
            optional: false,
        },
    ]
}

fn sessions(deep: bool) -> Result<String, String> {
    let path = match SessionStore::chosen().map_err(|error| error.text())? {
        SessionStore::File(path) => path,
        SessionStore::Postgres(address) => {
            return Ok(format!("in {}; check it with PostgreSQL's own tools (pg_amcheck)", address.shown));
        }
    };
    let depth = if deep { ExamineDepth::Deep } else { ExamineDepth::Quick };
    let Some(ExamineReport { layout, sessions, events, mut damage }) = store::examine(&path, depth)? else {
        return Ok("none yet".to_owned());
    };
    // An unreadable audit log has its own line.
    damage.extend(crate::audit::store_behind_audit().unwrap_or_default());
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

/// The files of a backup besides the sessions.
fn files() -> Result<String, String> {
    let files = StatePaths::usual().map_err(|error| error.text())?.files().map_err(|error| error.text())?;
    Ok(format!("{} readable", files.len()))
}

/// Always checks the key; verifies the whole log only with `deep`, because writers wait meanwhile.
fn audit(deep: bool) -> Result<String, String> {
    let folder = paths::audit().map_err(|error| error.text())?;
    let path = paths::audit_key().map_err(|error| error.text())?;
    let key = match AuditKey::load(&path, &folder) {
        Err(AuditKeyError::Missing(_)) if !folder.exists() => return Ok("none yet".to_owned()),
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            return Err(format!("{error}{cause}"));
        }
        Ok(key) => key,
    };
    if !deep {
        std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        return Ok("readable; verify it with --store --deep".to_owned());
    }
    let report = store::audit::verify(&folder, &key, None).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    })?;
    match (&report.broken, report.cut.first()) {
        (Some(broken), _) => Err(format!("{}, line {}: {}", broken.file, broken.line, broken.what)),
        (None, Some(cut)) => Err(format!(
            "only {} of {} rows are left, according to {}",
            cut.found_rows, cut.expected_rows, cut.witness
        )),
        (None, None) => Ok(format!("{} rows, all genuine", report.rows)),
    }
}
