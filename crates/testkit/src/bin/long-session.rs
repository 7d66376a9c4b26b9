//! A long session for benches: `long-session EVENTS [TURNS]` writes one that `ropewalk sessions import` reads.

use std::process::ExitCode;
use std::sync::Arc;

use engine::{Principal, Seq, SessionId, SessionRow, Timestamp};
use testkit::long_log;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let (Some(Ok(events)), turns) = (numbers.next(), numbers.next().and_then(Result::ok)) else {
        eprintln!("usage: long-session EVENTS [TURNS]");
        return ExitCode::FAILURE;
    };
    let log = long_log(events, turns);
    let row = SessionRow {
        id: SessionId::random(),
        owner: Principal::local(),
        cwd: "/".into(),
        roots: Vec::new(),
        parent: None,
        source: "import".into(),
        title: Some(format!("A session of {} events", log.len()).into()),
        created_at: Timestamp(1_600_000_000_000),
        updated_at: log.last().map_or(Timestamp(1_600_000_000_000), |last| last.at),
        busy: false,
        last_seq: log.last().map_or(Seq::START, |last| last.seq),
    };
    let exported_at = row.updated_at;
    let events: Vec<_> = log.into_iter().map(Arc::new).collect();
    println!("{}", wire::session_archive::encode(&row, &events, exported_at));
    ExitCode::SUCCESS
}
