//! Tests of the chain: attacks, crashes, and several writers.

mod attacks;
mod crashes;

use std::fs;
use std::path::{Path, PathBuf};

use engine::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::chain_writer::{ChainWriter, DELETED, RowCondition, RowDraft, SESSION};
use super::key::AuditKey;
use super::row::AuditEntry;
use super::verify::{VerifyReport, verify};

const DAY_MS: i64 = 86_400_000;
const START: Timestamp = Timestamp(1_790_000_000_000);

/// A folder with a chain in it.
struct TestChain {
    home: TempDir,
    key: AuditKey,
}

impl TestChain {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, key: AuditKey::of(&[b'7'; 64]) }
    }

    /// A chain of so many rows, so many a day.
    fn with_rows(rows: u64, per_day: u64) -> Self {
        let world = Self::new();
        let mut chain = world.chain();
        for first in (1..=rows).step_by(usize::try_from(per_day).unwrap()) {
            let now = after_days(i64::try_from((first - 1) / per_day).unwrap());
            let last = (first + per_day - 1).min(rows);
            // The chain's own first row is one of them.
            let drafts: Vec<_> = (first.max(2)..=last).map(|seq| at(seq, "one")).collect();
            chain.append(now, &drafts).unwrap();
        }
        world
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join("audit")
    }

    fn chain(&self) -> ChainWriter {
        ChainWriter::open(&self.folder(), self.key.clone(), 90).unwrap()
    }

    fn file(&self, day: i64) -> PathBuf {
        self.folder().join(super::chain_files::name_of(after_days(day)))
    }

    fn verify(&self) -> VerifyReport {
        verify(&self.folder(), &self.key, None).unwrap()
    }

    #[track_caller]
    fn check_whole(&self, rows: u64) {
        let report = self.verify();
        assert!(report.is_whole() && report.rows == rows, "{report:?}");
    }

    #[track_caller]
    fn check_broken(&self, file: &Path, line: u64) {
        let broken = self.verify().broken.expect("a broken row");
        assert_eq!((broken.file, broken.line), (shown(file), line));
    }

    fn positions(&self, session: &str) -> Vec<u64> {
        let mut found = Vec::new();
        super::rows(&self.folder(), |placed| {
            let row = placed.row.unwrap();
            if row.resource_id == session {
                found.extend(row.details["seq"].as_u64());
            }
            true
        })
        .unwrap();
        found
    }
}

fn shown(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

fn after_days(days: i64) -> Timestamp {
    Timestamp(START.0 + days * DAY_MS)
}

fn entry(event_type: &'static str, session: &str, details: Value) -> AuditEntry {
    let Value::Object(details) = details else { panic!("details are an object") };
    AuditEntry {
        at: START,
        event_type,
        actor: "agent".into(),
        resource_type: SESSION,
        resource_id: session.into(),
        details,
    }
}

/// A row about the event at this position.
fn at(seq: u64, session: &str) -> RowDraft {
    let details = json!({
        "call": "3b1c3d0e-1f9a-4e0b-8f1d-0e6f2f7f3a11", "elapsed_ms": seq * 3, "outcome": "done", "preset": "auto",
        "sandbox": "workspace-write", "seq": seq, "title": "Run printf 'ü \"quoted\"\n'", "tool": "shell", "turn": 4,
    });
    RowDraft { entry: entry("tool.call", session, details), when: RowCondition::At(seq) }
}

fn first(session: &str) -> RowDraft {
    RowDraft { entry: entry("session.created", session, json!({ "seq": 0 })), when: RowCondition::First }
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

fn write_lines(file: &Path, lines: &[String]) {
    fs::write(file, lines.iter().flat_map(|line| [line, "\n"]).collect::<String>()).unwrap();
}
