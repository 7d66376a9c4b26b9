//! The hub's audit: who did what, when, and from which address. Never the content of messages.

use std::net::IpAddr;

use engine::Timestamp;
use store::sql::{Db, DbError, SqlValue, Statement};

/// An entry to be written. `what` is a kind of thing and what happened to it, as in `share.used`. `about` names a session, a machine, or the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub person: Option<String>,
    pub what: &'static str,
    pub about: Option<String>,
    pub address: Option<IpAddr>,
}

impl AuditEntry {
    pub fn new(what: &'static str, person: Option<&str>) -> Self {
        Self { person: person.map(str::to_owned), what, about: None, address: None }
    }

    pub fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }

    pub fn from(self, address: Option<IpAddr>) -> Self {
        Self { address, ..self }
    }

    /// To be run in the same transaction as the change that it records.
    pub fn statement(self, at: Timestamp, node: Option<&str>) -> Statement {
        Statement::new(
            "INSERT INTO hub_audit (at, node, person, what, about, address) VALUES ($1, $2, $3, $4, $5, $6)",
            [
                SqlValue::Int(at.0),
                node.into(),
                self.person.into(),
                self.what.into(),
                self.about.into(),
                self.address.map(|address| address.to_string()).into(),
            ],
        )
    }
}

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditRow {
    pub at: i64,
    pub node: Option<String>,
    pub person: Option<String>,
    pub what: String,
    pub about: Option<String>,
    pub address: Option<String>,
}

/// The newest entries, the oldest of them first.
pub async fn read(db: &dyn Db, count_max: u64) -> Result<Vec<AuditRow>, DbError> {
    let newest = Statement::new(
        "SELECT at, node, person, what, about, address FROM hub_audit ORDER BY at DESC LIMIT $1",
        [count_max.into()],
    );
    let found = db.run(vec![newest], Vec::new()).await?;
    let mut lines = Vec::new();
    for row in found.iter().flat_map(|found| &found.rows) {
        let text = |column| row.maybe_text(column).map(|text| text.map(|text| text.to_string()));
        lines.push(AuditRow {
            at: row.int(0)?,
            node: text(1)?,
            person: text(2)?,
            what: row.text(3)?.to_string(),
            about: text(4)?,
            address: text(5)?,
        });
    }
    lines.reverse();
    Ok(lines)
}
