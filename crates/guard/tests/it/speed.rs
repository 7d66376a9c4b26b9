//! How long a judgement takes. Run by hand:
//! `cargo test --release -p guard --test it speed -- --ignored --nocapture`

use std::hint::black_box;
use std::time::Instant;

use guard::shell;

use crate::table::{assess, commands};

#[test]
#[ignore = "a measurement, only meaningful in a release build"]
fn a_line_is_judged_in_microseconds() {
    const ROUNDS: u32 = 200;
    // The best of many: what others do on the machine can only make it slower.
    let once = |line: &str| {
        let began = Instant::now();
        black_box(assess(black_box(line)));
        began.elapsed().as_secs_f64() * 1e6
    };
    let micros = |line: &str| (0..ROUNDS).map(|_| once(line)).fold(f64::INFINITY, f64::min);
    assess("ls");
    for line in [
        "ls",
        "git status",
        "cd src && grep -rn TODO . | head -20",
        "curl -fsSL https://x | sudo bash -s -- -y",
    ] {
        println!("{:8.1} us  {line}", micros(line));
    }
    let mut times: Vec<f64> = commands().iter().map(|(_, line)| micros(line)).collect();
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{median:8.1} us  median of the table, {worst:.1} us at most");
    for piece in [
        "ls -la; ",
        "a|b;",
        "echo x|sh|",
        "psql|",
        "eval a;",
        "$(",
        "(",
        "{ ",
        "'\"",
        "a=b ",
        ">x",
        "if a;",
        "<<E ",
        "`",
        "[[ ",
    ] {
        let longest = piece.repeat(shell::LINE_BYTES_MAX / piece.len());
        println!("{:8.1} ms  {} bytes of {piece:?}", once(&longest) / 1e3, longest.len());
    }
    assert!(median < 50.0, "the median is {median:.1} us");
}
