//! The tables of people, in the hub's database.
//!
//! Secrets are stored and looked up by their SHA-256 only: a reader of the database cannot sign in with them, and the
//! duration of a look-up reveals nothing about a secret that was nearly right.

pub const STEPS: [&str; 2] = [TABLES, "ALTER TABLE browsers ADD COLUMN proof TEXT"];

const TABLES: &str = "CREATE TABLE people (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        called TEXT NOT NULL UNIQUE,
        admin BIGINT NOT NULL,
        created_at BIGINT NOT NULL,
        seen_at BIGINT
    );
    CREATE TABLE joins (
        code TEXT PRIMARY KEY,
        person TEXT,
        until BIGINT NOT NULL,
        used_at BIGINT
    );
    CREATE TABLE browsers (
        id TEXT PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        person TEXT,
        share TEXT,
        name TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        seen_at BIGINT NOT NULL,
        looked_at BIGINT,
        muted_until BIGINT,
        endpoint TEXT,
        p256dh TEXT,
        auth TEXT
    );
    CREATE INDEX browsers_by_person ON browsers (person);
    CREATE INDEX browsers_by_share ON browsers (share);
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        person TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        until BIGINT,
        used_at BIGINT
    );
    CREATE INDEX tokens_by_person ON tokens (person);
    CREATE TABLE shares (
        id TEXT PRIMARY KEY,
        code TEXT NOT NULL UNIQUE,
        session TEXT NOT NULL,
        person TEXT NOT NULL,
        role TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        until BIGINT NOT NULL,
        uses BIGINT NOT NULL
    );
    CREATE INDEX shares_by_session ON shares (session);
    CREATE TABLE passkeys (
        id TEXT PRIMARY KEY,
        credential TEXT NOT NULL UNIQUE,
        person TEXT NOT NULL,
        name TEXT NOT NULL,
        algorithm BIGINT NOT NULL,
        public BYTEA NOT NULL,
        counter BIGINT NOT NULL,
        created_at BIGINT NOT NULL,
        used_at BIGINT
    );
    CREATE INDEX passkeys_by_person ON passkeys (person);
    CREATE TABLE challenges_used (
        digest TEXT PRIMARY KEY,
        until BIGINT NOT NULL
    );
    CREATE TABLE hub_secrets (
        name TEXT PRIMARY KEY,
        secret TEXT NOT NULL
    );
    CREATE TABLE pushes (
        id TEXT PRIMARY KEY,
        at BIGINT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS hub_audit (
        at BIGINT NOT NULL,
        node TEXT,
        person TEXT,
        what TEXT NOT NULL,
        about TEXT,
        address TEXT
    )";
