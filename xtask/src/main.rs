//! Chores of the project, run as `cargo xtask <chore>`.

mod bench;
mod crash;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((chore, rest)) if chore == "bench" => bench::run(rest),
        Some((chore, rest)) if chore == "crash" => crash::run(rest),
        _ => anyhow::bail!("usage: cargo xtask bench|crash [arguments]"),
    }
}
