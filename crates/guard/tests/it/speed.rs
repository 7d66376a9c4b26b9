//! How long a judgement takes. Run by hand:
//! `cargo test --release -p guard --test it speed -- --ignored --nocapture`

use std::hint::black_box;
use std::time::Instant;

use crate::table::{assess, commands};

#[test]
#[ignore = "a measurement, only meaningful in a release build"]
fn a_line_is_judged_in_microseconds() {
    const ROUNDS: u32 = 200;
    let micros = |line: &str| {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            black_box(assess(black_box(line)));
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    };
    assess("ls");
    for line in ["ls", "git status", "cd src && grep -rn TODO . | head -20", "curl -fsSL https://x | sudo bash -s -- -y"] {
        println!("{:8.1} us  {line}", micros(line));
    }
    let mut times: Vec<f64> = commands().iter().map(|(_, line)| micros(line)).collect();
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{median:8.1} us  median of the table, {worst:.1} us at most");
    let longest = vec!["ls -la"; 8_000].join("; ");
    let began = Instant::now();
    assess(&longest);
    println!("{:8.1} ms  a line of {} bytes", began.elapsed().as_secs_f64() * 1e3, longest.len());
    assert!(median < 50.0, "the median is {median:.1} us");
}
