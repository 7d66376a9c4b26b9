//! The tables of sessions in a database that several processes share: a row for each session, and the leases of
//! their owners. The tables of logs and their entries are in `sql/log.rs`.

pub(super) const STEPS: [&str; 1] = ["CREATE TABLE log_sessions (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        cwd BYTEA NOT NULL,
        roots TEXT NOT NULL,
        parent TEXT,
        source TEXT NOT NULL,
        title TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        busy BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        holder TEXT,
        gone BIGINT NOT NULL
    );
    CREATE INDEX log_sessions_by_time ON log_sessions (owner, updated_at, id);
    CREATE INDEX log_sessions_gone ON log_sessions (gone);
    CREATE TABLE log_owners (name TEXT PRIMARY KEY, alive_until BIGINT NOT NULL)"];
