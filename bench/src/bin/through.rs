//! Measures agents with and without the server between: `through --plan FILE --scratch DIR`.
//!
//! The plan is JSON: `{"rounds": 3, "updates": 2000, "stream": 20000, "sessions": 100, "subjects": [{"name":
//! "goose", "scripted": false, "direct": ["..."], "through": ["..."], "updates": 2000, "text_bytes": 60000}]}`.
//! Both ways take turns within a round. The report is JSON on standard output; what is a goal is decided elsewhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ropewalk_bench::stats::Samples;
use ropewalk_bench::through::Way;
use serde_json::{Value, json};

const WAYS: [&str; 2] = ["direct", "through"];
const TURNS: usize = 100;
/// What the scripted agent says of itself: see `prompt.rs`.
const CHUNK_BYTES: u64 = 100;

fn main() -> anyhow::Result<()> {
    let (mut plan, mut scratch) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let (Some(flag), Some(value)) = (arguments.next(), arguments.next()) {
        match flag.as_str() {
            "--plan" => plan = Some(value),
            "--scratch" => scratch = Some(PathBuf::from(value)),
            _ => bail!("through does not know the argument {flag}"),
        }
    }
    let plan: Value = serde_json::from_slice(&std::fs::read(plan.context("--plan is missing")?)?)?;
    let scratch = scratch.context("--scratch is missing")?;
    let mut report = json!({"rounds": plan["rounds"], "subjects": {}});
    for subject in plan["subjects"].as_array().context("a plan has subjects")? {
        let name = subject["name"].as_str().context("a subject has a name")?;
        eprintln!("{name}");
        report["subjects"][name] = measured(&plan, subject, &scratch).with_context(|| name.to_owned())?;
    }
    println!("{report}");
    Ok(())
}

fn measured(plan: &Value, subject: &Value, scratch: &Path) -> anyhow::Result<Value> {
    let number = |value: &Value| value.as_u64().with_context(|| format!("a number is needed, not {value}"));
    let name = subject["name"].as_str().unwrap_or_default();
    let mut found: [Found; 2] = Default::default();
    for round in 0..number(&plan["rounds"])? {
        for (way, found) in WAYS.iter().zip(&mut found) {
            let command: Vec<String> = serde_json::from_value(subject[way].clone())?;
            let home = scratch.join(name).join(format!("{way}-{round}"));
            if home.exists() {
                std::fs::remove_dir_all(&home)?;
            }
            std::fs::create_dir_all(&home)?;
            let way = Way { command: &command, home: &home };
            // A turn of a real agent is as many updates as it says.
            let turns = if subject["scripted"] == true { TURNS } else { TURNS / 10 };
            found.turns_us.extend(way.turns_us(turns)?);
            if subject["scripted"] == true {
                let stream = number(&plan["stream"])?;
                found.latency_us.extend(way.latency_us(number(&plan["updates"])?)?);
                let bytes = usize::try_from(stream * CHUNK_BYTES)?;
                found.updates_per_s.push(way.updates_per_s(&format!("stream {stream}"), stream, bytes)?);
            } else {
                let bytes = usize::try_from(number(&subject["text_bytes"])?)?;
                found.updates_per_s.push(way.updates_per_s("go on", number(&subject["updates"])?, bytes)?);
            }
            let sessions = usize::try_from(number(&plan["sessions"])?)?;
            let sessions = if subject["scripted"] == true { sessions } else { 0 };
            let [one, own, many] = way.memory_kb(sessions)?;
            found.one_kb.push(one as f64);
            found.own_kb.push(own as f64);
            if sessions > 0 {
                found.session_kb.push(many.saturating_sub(one) as f64 / sessions as f64);
            }
        }
    }
    let [direct, through] = found.map(|found| found.report());
    Ok(json!({"direct": direct, "through": through}))
}

/// All samples of one way.
#[derive(Default)]
struct Found {
    turns_us: Samples,
    latency_us: Samples,
    updates_per_s: Samples,
    one_kb: Samples,
    own_kb: Samples,
    session_kb: Samples,
}

impl Found {
    fn report(&self) -> Value {
        let median = |samples: &Samples| (!samples.is_empty()).then(|| samples.median());
        let p99 = |samples: &Samples| (!samples.is_empty()).then(|| samples.percentile(99.0));
        json!({
            "turn_p50_us": median(&self.turns_us),
            "turn_p99_us": p99(&self.turns_us),
            "latency_p50_us": median(&self.latency_us),
            "latency_p99_us": p99(&self.latency_us),
            "updates_per_s": median(&self.updates_per_s),
            "memory_kb": median(&self.one_kb),
            "own_kb": median(&self.own_kb),
            "session_kb": median(&self.session_kb),
        })
    }
}
