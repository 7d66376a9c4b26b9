//! `docs/reference`: one page each for the commands, settings, HTTP routes, events and metrics, made from what the
//! program runs with.
//!
//! Every page is compared by a test, which fails with the command that writes all of them anew ([`RENEW`]). What the
//! program's own definitions do not say, above all a sentence for people, is in a table here; a test compares each
//! table with the definitions, in both directions.

mod cli;
mod config;
mod events;
mod http;
mod metrics;
mod openapi;

use expect_test::expect_file;

/// Writes every page.
const RENEW: &str = "UPDATE_EXPECT=1 cargo nextest run -p ropewalk reference";

/// Compares a file in `docs/reference` with what it should be.
fn check_page(name: &str, text: &str) {
    // Test runners show this only if the comparison fails.
    println!("docs/reference/{name} is made from the program and is not current; write it with `{RENEW}`");
    expect_file![format!("../../../docs/reference/{name}")].assert_eq(text);
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
