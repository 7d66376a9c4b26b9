//! The slowest tests, from the report that nextest writes.

use std::fs;

use xtask::command;

const COUNT: usize = 10;

/// Nothing where there is no report: the tests were run without nextest, or not at all.
pub fn print() {
    let report = command::target_folder().map(|folder| folder.join("nextest/ci/junit.xml"));
    let Some(text) = report.ok().and_then(|path| fs::read_to_string(path).ok()) else { return };
    for (seconds, name) in slowest(&text) {
        println!("{seconds:>7.1} s  {name}");
    }
}

/// Seconds and name, the slowest first.
fn slowest(report: &str) -> Vec<(f64, String)> {
    let cases = report.split("<testcase").skip(1).filter_map(|case| {
        let tag = case.split('>').next()?;
        let seconds = attribute(tag, "time")?.parse().ok()?;
        Some((seconds, format!("{} {}", attribute(tag, "classname")?, attribute(tag, "name")?)))
    });
    let mut cases: Vec<(f64, String)> = cases.collect();
    cases.sort_by(|one, other| other.0.total_cmp(&one.0));
    cases.truncate(COUNT);
    cases
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    // With a blank before it: `name` is also the end of `classname`.
    let tag = tag.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest);
    tag?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_by_the_name_of_their_program() {
        let report = r#"<testsuite name="wire::it">
            <testcase name="a::quick" classname="wire::it" timestamp="x" time="0.012"/>
            <testcase name="a::slow" classname="wire::it" timestamp="x" time="7.5"><system-out/></testcase>
        </testsuite>"#;
        let found = slowest(report);
        assert_eq!(found, [(7.5, "wire::it a::slow".to_owned()), (0.012, "wire::it a::quick".to_owned())]);
    }
}
