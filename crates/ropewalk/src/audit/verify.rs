//! `audit verify` and `audit seal`.

use std::path::Path;
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use store::audit::{Broken, Cut, Key, KeyError, Report, Torn, VerifyError};

use super::Failed;
use crate::cli::{AuditAcknowledgeOptions, AuditSealOptions, AuditVerifyOptions};
use crate::sessions::export::write_file;
use crate::trouble::Trouble;
use crate::{paths, terminal};

const ALTERED: u8 = 1;
const CUT: u8 = 2;

pub fn verify(options: &AuditVerifyOptions) -> Result<ExitCode, Failed> {
    let folder = paths::audit()?;
    let key = match load_key(&folder) {
        Err(Failed::Key(KeyError::Missing(_))) if !folder.exists() && options.anchor.is_none() => {
            return nothing_yet(options.json);
        }
        loaded => loaded?,
    };
    let anchor = options.anchor.as_deref().map(read_anchor).transpose()?;
    let report = match store::audit::verify(&folder, &key, anchor.as_deref()) {
        Err(error @ VerifyError::Anchor(_)) => {
            return Err(Trouble::usage("this anchor proves nothing")
                .because(chain_of(&error))
                .fix("a file that was written by `ropewalk audit seal` with the same key")
                .into());
        }
        Err(error) => {
            return Err(Trouble::failed("the audit cannot be read").because(chain_of(&error)).into());
        }
        Ok(report) => report,
    };
    // The store may be beyond reading, which says nothing of the audit.
    let behind = super::behind().unwrap_or_default();
    if options.json {
        let mut found = as_json(&report);
        found["store_behind"] = json!(behind);
        terminal::put_json(&found)?;
    } else {
        for line in &behind {
            terminal::say(&format!(
                "{} {}",
                terminal::stderr_paint().warn("note:"),
                terminal::one_line(line)
            ));
        }
        tell(&report)?;
    }
    Ok(exit_code(&report))
}

/// Writes into the chain that it is known why it was cut. What is missing at this moment is told in the
/// chain first.
pub fn acknowledge(options: &AuditAcknowledgeOptions) -> Result<ExitCode, Failed> {
    let folder = paths::audit()?;
    let key = load_key(&folder)?;
    let unread = |error: VerifyError| Trouble::failed("the audit cannot be read").because(chain_of(&error));
    let report = store::audit::verify(&folder, &key, None).map_err(unread)?;
    if report.broken.is_some() || report.is_whole() {
        tell(&report)?;
        return Ok(exit_code(&report));
    }
    store::audit::acknowledge(&folder, &key, SystemClock.now(), &options.reason)
        .map_err(|error| Trouble::failed("the audit cannot be written").because(error))?;
    let report = store::audit::verify(&folder, &key, None).map_err(unread)?;
    tell(&report)?;
    Ok(exit_code(&report))
}

/// Writes down the head of a chain that is whole; of another it would prove nothing.
pub fn seal(options: &AuditSealOptions) -> Result<ExitCode, Failed> {
    let folder = paths::audit()?;
    let key = load_key(&folder)?;
    let report = store::audit::verify(&folder, &key, None)
        .map_err(|error| Trouble::failed("the audit cannot be read").because(chain_of(&error)))?;
    if !report.is_whole() {
        tell(&report)?;
        return Ok(exit_code(&report));
    }
    let text = store::audit::seal(&key, &report.head);
    match &options.output {
        None => terminal::put(&text)?,
        Some(path) => {
            write_file(path, text.as_bytes()).map_err(|error| {
                Trouble::failed(format!("{} cannot be written", path.display())).because(error)
            })?;
            terminal::say(&format!("sealed {} rows in {}", report.rows, path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load_key(folder: &Path) -> Result<Key, Failed> {
    Key::load(&paths::audit_key()?, folder).map_err(Failed::Key)
}

fn read_anchor(path: &Path) -> Result<Vec<u8>, Trouble> {
    std::fs::read(path)
        .map_err(|error| Trouble::failed(format!("{} cannot be read", path.display())).because(error))
}

fn nothing_yet(as_json: bool) -> Result<ExitCode, Failed> {
    if as_json {
        terminal::put_json(&as_json_text(&Report::default(), true))?;
    } else {
        terminal::say("Nothing has been audited yet.");
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(report: &Report) -> ExitCode {
    match (&report.broken, report.cut.is_empty()) {
        (Some(_), _) => ExitCode::from(ALTERED),
        (None, false) => ExitCode::from(CUT),
        (None, true) => ExitCode::SUCCESS,
    }
}

fn tell(report: &Report) -> Result<(), Trouble> {
    let paint = terminal::stderr_paint();
    for Torn { file, bytes, sealed } in &report.torn {
        let then = if *sealed { "it was put aside" } else { "the next start puts it aside" };
        let text = format!("a row of {file} was cut off after {bytes} bytes by a crash; {then}");
        terminal::say(&format!("{} {}", paint.warn("note:"), terminal::one_line(&text)));
    }
    for cut in &report.acknowledged {
        let text = format!("{}; this was acknowledged", cut_text(cut));
        terminal::say(&format!("{} {}", paint.warn("note:"), terminal::one_line(&text)));
    }
    for cut in &report.cut {
        terminal::say(&format!("{} {}", paint.bad("error:"), terminal::one_line(&cut_text(cut))));
    }
    if !report.cut.is_empty() {
        let fix = "compare with a backup; if you know why, ropewalk audit acknowledge REASON";
        terminal::say(&format!("{} {fix}", paint.quiet("try:")));
    }
    if let Some(Broken { file, line, what }) = &report.broken {
        let place = if *line > 0 { format!("{file}:{line}") } else { file.clone() };
        terminal::say(&format!("{} {place}: {what}", paint.bad("error:")));
        terminal::say(&format!("{} {} rows before it are genuine", paint.quiet("because:"), report.rows));
    }
    if report.is_whole() {
        let files = if report.files == 1 { "1 file".to_owned() } else { format!("{} files", report.files) };
        terminal::put(&format!("The audit is whole: {} rows in {files}.\n", report.rows))?;
    }
    Ok(())
}

fn cut_text(Cut { witness, expected_rows, found_rows }: &Cut) -> String {
    if *expected_rows == 0 && *found_rows == 0 {
        return format!("the record was removed and begun anew with the key of the one before: {witness}");
    }
    format!("the record was cut: {witness} tells of {expected_rows} rows, and there were {found_rows}")
}

fn as_json(report: &Report) -> Value {
    as_json_text(report, report.is_whole())
}

fn as_json_text(report: &Report, ok: bool) -> Value {
    let cut = |cut: &Cut| json!({ "witness": cut.witness, "expected_rows": cut.expected_rows, "found_rows": cut.found_rows });
    let torn = |torn: &Torn| json!({ "file": torn.file, "bytes": torn.bytes, "sealed": torn.sealed });
    let broken = |broken: &Broken| json!({ "file": broken.file, "line": broken.line, "what": broken.what });
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
