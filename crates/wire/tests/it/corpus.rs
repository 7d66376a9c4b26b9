//! Every seed of the fuzzers, and whatever they found, as an ordinary test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

fn check(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds in {}", folder.display());
}

#[test]
fn frames() {
    check("frames", wire::fuzz::frames);
}

#[test]
fn acp() {
    check("acp", wire::fuzz::acp);
}

#[test]
fn record() {
    check("record", wire::fuzz::record);
}
