//! The tables of the relay: mirrors and their views, machines, nodes, mail between nodes, and the audit.
//!
//! Times are milliseconds since 1970. A mirror's log is in the tables of `store::sql::log`, under the session's id;
//! relayed frames are there under another id ([`frames_log`]).

use engine::SessionId;
use store::sql::{SqlValue, Statement, log};

use crate::authenticator::PersonId;

/// The name of this layout.
pub const LAYOUT: &str = "relay";

pub const STEPS: [&str; 2] = [TABLES, BRANCHES];

/// What a mirror is a copy of, and its branches.
///
/// `mark` is of the event at `mark_seq`; `process` wrote last and was last heard of at `process_at`. A session that was
/// branched names its newest branch (`kept_as`, up to `kept_upto`), and a branch names its session (`branch_of`).
const BRANCHES: &str = "ALTER TABLE mirrors ADD COLUMN mark_seq BIGINT;
    ALTER TABLE mirrors ADD COLUMN mark TEXT;
    ALTER TABLE mirrors ADD COLUMN lineage TEXT;
    ALTER TABLE mirrors ADD COLUMN process TEXT;
    ALTER TABLE mirrors ADD COLUMN process_at BIGINT;
    ALTER TABLE mirrors ADD COLUMN kept_as TEXT;
    ALTER TABLE mirrors ADD COLUMN kept_upto BIGINT;
    ALTER TABLE mirrors ADD COLUMN branch_of TEXT;
    ALTER TABLE mirrors ADD COLUMN branched_at BIGINT;
    CREATE INDEX mirrors_by_branch ON mirrors (branch_of)";

const TABLES: &str = "CREATE TABLE mirrors (
        session TEXT PRIMARY KEY,
        person TEXT NOT NULL,
        machine TEXT,
        sealed BIGINT NOT NULL,
        model TEXT NOT NULL,
        sandbox TEXT NOT NULL,
        approval TEXT NOT NULL,
        cwd TEXT NOT NULL,
        cost_usd TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        heard_at BIGINT NOT NULL,
        changed_at BIGINT NOT NULL,
        detached BIGINT NOT NULL,
        node TEXT,
        epoch BIGINT NOT NULL,
        state TEXT,
        asks TEXT,
        card TEXT,
        view_number BIGINT NOT NULL,
        view_upto BIGINT,
        view_bytes BIGINT NOT NULL,
        snapshot BIGINT NOT NULL,
        snapshot_before BIGINT NOT NULL
    );
    CREATE INDEX mirrors_by_person ON mirrors (person, changed_at);
    CREATE INDEX mirrors_by_machine ON mirrors (machine);
    CREATE TABLE views (
        session TEXT NOT NULL,
        number BIGINT NOT NULL,
        continues BIGINT,
        upto BIGINT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (session, number)
    );
    CREATE TABLE watchers (
        session TEXT NOT NULL,
        node TEXT NOT NULL,
        until BIGINT NOT NULL,
        PRIMARY KEY (session, node)
    );
    CREATE INDEX watchers_by_node ON watchers (node);
    CREATE TABLE machines (
        id TEXT PRIMARY KEY,
        person TEXT NOT NULL,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        sealed BIGINT NOT NULL,
        keys TEXT,
        node TEXT,
        epoch BIGINT NOT NULL,
        seen_at BIGINT NOT NULL,
        created_at BIGINT NOT NULL
    );
    CREATE INDEX machines_by_person ON machines (person);
    CREATE TABLE nodes (
        id TEXT PRIMARY KEY,
        seen_at BIGINT NOT NULL
    );
    CREATE TABLE mail (
        number SERIAL_KEY,
        node TEXT NOT NULL,
        at BIGINT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX mail_by_node ON mail (node);
    CREATE TABLE IF NOT EXISTS hub_audit (
        at BIGINT NOT NULL,
        node TEXT,
        person TEXT,
        what TEXT NOT NULL,
        about TEXT,
        address TEXT
    );
    CREATE INDEX IF NOT EXISTS hub_audit_by_time ON hub_audit (at)";

/// The log of a session whose bridge sends frames instead of a mirror.
pub fn frames_log(session: &SessionId) -> String {
    // No session id has a slash in it.
    format!("frames/{session}")
}

/// Deletes a mirror with everything that was stored of it and the links to it: the next person who registers the id may
/// be another one.
pub fn forget(session: &SessionId) -> Vec<Statement> {
    let mut work = log::delete(session.as_str());
    work.extend(log::delete(&frames_log(session)));
    work.push(Statement::new(
        "DELETE FROM browsers WHERE share IN (SELECT id FROM shares WHERE session = $1)",
        [session.as_str().into()],
    ));
    for table in ["shares", "views", "watchers", "mirrors"] {
        work.push(Statement::new(
            format!("DELETE FROM {table} WHERE session = $1"),
            [session.as_str().into()],
        ));
    }
    work
}

/// Deletes what was mirrored, and fences off the bridge that mirrors it at the moment.
pub fn reset_mirror(session: &SessionId) -> Vec<Statement> {
    let id: SqlValue = session.as_str().into();
    vec![
        Statement::new("UPDATE logs SET head = 0, epoch = epoch + 1 WHERE id = $1", [id.clone()]),
        Statement::new("DELETE FROM log_entries WHERE log = $1", [id.clone()]),
        Statement::new("DELETE FROM views WHERE session = $1", [id.clone()]),
        Statement::new("DELETE FROM mirrors WHERE session = $1", [id]),
    ]
}

/// Deletes all mirrors and machines of a person.
pub fn forget_person(person: &PersonId) -> Vec<Statement> {
    forget_where("person", person.0.as_ref().into())
}

/// Deletes a machine and all of its mirrors.
pub fn forget_machine(machine: &str) -> Vec<Statement> {
    forget_where("machine", machine.into())
}

fn forget_where(column: &str, value: SqlValue) -> Vec<Statement> {
    let sessions = format!("SELECT session FROM mirrors WHERE {column} = $1");
    let frames = format!("SELECT 'frames/' || session FROM mirrors WHERE {column} = $1");
    let delete = |from: &str| Statement::new(format!("DELETE FROM {from}"), [value.clone()]);
    let of_machines = if column == "machine" { "id" } else { column };
    vec![
        delete(&format!("log_entries WHERE log IN ({sessions})")),
        delete(&format!("log_entries WHERE log IN ({frames})")),
        delete(&format!("logs WHERE id IN ({sessions})")),
        delete(&format!("logs WHERE id IN ({frames})")),
        delete(&format!("views WHERE session IN ({sessions})")),
        delete(&format!("watchers WHERE session IN ({sessions})")),
        delete(&format!("browsers WHERE share IN (SELECT id FROM shares WHERE session IN ({sessions}))")),
        delete(&format!("shares WHERE session IN ({sessions})")),
        delete(&format!("mirrors WHERE {column} = $1")),
        delete(&format!("machines WHERE {of_machines} = $1")),
    ]
}
