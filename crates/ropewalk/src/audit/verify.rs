//! `audit verify` and `audit seal`.

use std::path::Path;
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use store::audit::{AuditKey, AuditKeyError, BrokenRow, MissingRows, TornRow, VerifyError, VerifyReport};

use super::AuditCommandError;
use crate::cli::{AuditAcknowledgeOptions, AuditSealOptions, AuditVerifyOptions};
use crate::cli_error::CliError;
use crate::sessions::export::write_file;
use crate::{output, paths};

const ALTERED: u8 = 1;
const CUT: u8 = 2;

pub fn verify(options: &AuditVerifyOptions) -> Result<ExitCode, AuditCommandError> {
    let folder = paths::audit()?;
    let key = match load_key(&folder) {
        Err(AuditCommandError::Key(AuditKeyError::Missing(_)))
            if !folder.exists() && options.anchor.is_none() =>
        {
            return nothing_yet(options.json);
        }
        loaded => loaded?,
    };
    let anchor = options.anchor.as_deref().map(read_anchor).transpose()?;
    let report = match store::audit::verify(&folder, &key, anchor.as_deref()) {
        Err(error @ VerifyError::Anchor(_)) => {
            return Err(CliError::usage("invalid seal")
                .because(chain_of(&error))
                .fix("use a file from `ropewalk audit seal` with the same key")
                .into());
        }
        Err(error) => {
            return Err(CliError::failed("could not read the audit log").because(chain_of(&error)).into());
        }
        Ok(report) => report,
    };
    // The store may be unreadable, which does not affect the audit.
    let behind = super::store_behind_audit().unwrap_or_default();
    if options.json {
        let mut found = as_json(&report);
        found["store_behind"] = json!(behind);
        output::put_json(&found)?;
    } else {
        for line in &behind {
            output::say(&format!("{} {}", output::stderr_paint().warn("note:"), output::one_line(line)));
        }
        print_report(&report)?;
    }
    Ok(exit_code(&report))
}

/// Writes the reason for missing rows into the log, after a row about what is missing.
pub fn acknowledge(options: &AuditAcknowledgeOptions) -> Result<ExitCode, AuditCommandError> {
    let folder = paths::audit()?;
    let key = load_key(&folder)?;
    let unread =
        |error: VerifyError| CliError::failed("could not read the audit log").because(chain_of(&error));
    let report = store::audit::verify(&folder, &key, None).map_err(unread)?;
    if report.broken.is_some() || report.is_whole() {
        print_report(&report)?;
        return Ok(exit_code(&report));
    }
    store::audit::acknowledge(&folder, &key, SystemClock.now(), &options.reason)
        .map_err(|error| CliError::failed("could not write the audit log").because(error))?;
    let report = store::audit::verify(&folder, &key, None).map_err(unread)?;
    print_report(&report)?;
    Ok(exit_code(&report))
}

/// Writes a seal of the log's end, if the log is intact; otherwise a seal would prove nothing.
pub fn seal(options: &AuditSealOptions) -> Result<ExitCode, AuditCommandError> {
    let folder = paths::audit()?;
    let key = load_key(&folder)?;
    let report = store::audit::verify(&folder, &key, None)
        .map_err(|error| CliError::failed("could not read the audit log").because(chain_of(&error)))?;
    if !report.is_whole() {
        print_report(&report)?;
        return Ok(exit_code(&report));
    }
    let text = store::audit::seal(&key, &report.head);
    match &options.output {
        None => output::put(&text)?,
        Some(path) => {
            write_file(path, text.as_bytes()).map_err(|error| {
                CliError::failed(format!("could not write {}", path.display())).because(error)
            })?;
            output::say(&format!("sealed {} rows in {}", report.rows, path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load_key(folder: &Path) -> Result<AuditKey, AuditCommandError> {
    AuditKey::load(&paths::audit_key()?, folder).map_err(AuditCommandError::Key)
}

fn read_anchor(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path)
        .map_err(|error| CliError::failed(format!("could not read {}", path.display())).because(error))
}

fn nothing_yet(as_json: bool) -> Result<ExitCode, AuditCommandError> {
    if as_json {
        output::put_json(&as_json_text(&VerifyReport::default(), true))?;
    } else {
        output::say("Nothing has been audited yet.");
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(report: &VerifyReport) -> ExitCode {
    match (&report.broken, report.cut.is_empty()) {
        (Some(_), _) => ExitCode::from(ALTERED),
        (None, false) => ExitCode::from(CUT),
        (None, true) => ExitCode::SUCCESS,
    }
}

fn print_report(report: &VerifyReport) -> Result<(), CliError> {
    let paint = output::stderr_paint();
    for TornRow { file, bytes, sealed } in &report.torn {
        let then = if *sealed { "it was moved aside" } else { "the next start moves it aside" };
        let text = format!("a row in {file} was cut off after {bytes} bytes by a crash; {then}");
        output::say(&format!("{} {}", paint.warn("note:"), output::one_line(&text)));
    }
    for cut in &report.acknowledged {
        let text = format!("{}; acknowledged", cut_text(cut));
        output::say(&format!("{} {}", paint.warn("note:"), output::one_line(&text)));
    }
    for cut in &report.cut {
        output::say(&format!("{} {}", paint.bad("error:"), output::one_line(&cut_text(cut))));
    }
    if !report.cut.is_empty() {
        let fix = "compare with a backup; if you know the reason, run ropewalk audit acknowledge REASON";
        output::say(&format!("{} {fix}", paint.quiet("try:")));
    }
    if let Some(BrokenRow { file, line, what }) = &report.broken {
        let place = if *line > 0 { format!("{file}:{line}") } else { file.clone() };
        output::say(&format!("{} {place}: {what}", paint.bad("error:")));
        output::say(&format!("{} the {} rows before it are genuine", paint.quiet("because:"), report.rows));
    }
    if report.is_whole() {
        let files = if report.files == 1 { "1 file".to_owned() } else { format!("{} files", report.files) };
        output::put(&format!("The audit log is intact: {} rows in {files}.\n", report.rows))?;
    }
    Ok(())
}

fn cut_text(MissingRows { witness, expected_rows, found_rows }: &MissingRows) -> String {
    if *expected_rows == 0 && *found_rows == 0 {
        return format!("the log was deleted and restarted with the same key: {witness}");
    }
    format!("rows are missing: {witness} shows {expected_rows} rows, but the log had {found_rows}")
}

fn as_json(report: &VerifyReport) -> Value {
    as_json_text(report, report.is_whole())
}

fn as_json_text(report: &VerifyReport, ok: bool) -> Value {
    let cut = |cut: &MissingRows| json!({ "witness": cut.witness, "expected_rows": cut.expected_rows, "found_rows": cut.found_rows });
    let torn = |torn: &TornRow| json!({ "file": torn.file, "bytes": torn.bytes, "sealed": torn.sealed });
    let broken =
        |broken: &BrokenRow| json!({ "file": broken.file, "line": broken.line, "what": broken.what });
    json!({
        "ok": ok,
        "rows": report.rows,
        "files": report.files,
        "hmac": report.head.hmac,
        "broken": report.broken.as_ref().map(broken),
        "cut": report.cut.iter().map(cut).collect::<Vec<_>>(),
        "acknowledged": report.acknowledged.iter().map(cut).collect::<Vec<_>>(),
        "torn": report.torn.iter().map(torn).collect::<Vec<_>>(),
    })
}

/// An error and what caused it.
fn chain_of(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain_of(source)),
        None => error.to_string(),
    }
}
