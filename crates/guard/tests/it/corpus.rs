//! Every seed of the fuzzers, and whatever they found, as an ordinary test.

use std::path::Path;

#[test]
fn shell() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/shell");
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        guard::fuzz::shell(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds in {}", folder.display());
}
