//! A scripted model provider for benches, other agents and trying things out by hand.
//!
//! `mock-provider (--script FILE.json [--repeat] | --rules FILE.json) [--port N]` says its address on
//! standard output and answers until it is ended. `testkit/src/mock_provider/script.rs` says what a script looks
//! like, `answer_rules.rs` beside it what rules are. `GET /requests` gives all that it was asked.

use std::process::ExitCode;

use testkit::mock_provider::{Mock, Rules, read_script};

const USAGE: &str = "usage: mock-provider (--script FILE.json [--repeat] | --rules FILE.json) [--port N]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mock-provider: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let (mut port, mut script, mut rules, mut repeat) = (0, None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--port" => port = value()?.parse().map_err(|_| USAGE)?,
            "--script" => script = Some(value()?),
            "--rules" => rules = Some(value()?),
            "--repeat" => repeat = true,
            _ => return Err(USAGE.into()),
        }
    }
    let file = script.as_ref().or(rules.as_ref()).ok_or(USAGE)?;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
    let rules = rules.is_some().then(|| Rules::read(&text)).transpose()?;
    let answers = if rules.is_none() { read_script(&text)? } else { Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
    runtime.block_on(async {
        let mock = match rules {
            Some(rules) => Mock::follow(port, rules).await,
            None => Mock::listen(port, answers, repeat).await,
        };
        println!("listening on http://{}", mock.address());
        std::future::pending::<()>().await;
    });
    Ok(())
}
