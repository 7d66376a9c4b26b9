//! A PostgreSQL and a NATS server until standard input ends; says where they are as a line of JSON.
//!
//! For what is measured from outside the workspace: `cargo xtask bench hub`.

use std::io::Read;

use serde_json::json;
use testkit::nats::Server;
use testkit::postgres::Cluster;

fn main() -> std::io::Result<()> {
    let (cluster, nats) = (Cluster::start(), Server::start());
    // One database for each thing that is measured.
    let databases: Vec<String> = (0..8).map(|_| cluster.database()).collect();
    println!("{}", json!({ "databases": databases, "nats": nats.url() }));
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
