//! Measures the HTTP door and prints the result as JSON.
//!
//! `doors --product PROGRAM --scratch DIR [--quick] [--rounds N]`
//!
//! The product and the reference take turns within every round, and each number is a median over the
//! rounds. What is a goal and whether it is met is not decided here.

use anyhow::Context;
use ropewalk_bench::doors::served::Served;
use ropewalk_bench::doors::{self, Broadcast, reference, socket};
use ropewalk_bench::rounds::Options;
use ropewalk_bench::stats::Samples;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const READERS: [usize; 3] = [1, 50, 500];
/// What all readers together are told, in chunks: more readers, shorter turns.
const CHUNKS_TOLD_FULL: u64 = 4_000_000;
const CHUNKS_TOLD_QUICK: u64 = 500_000;
/// A turn is no longer than this, however few read it.
const CHUNKS_MAX: u64 = 200_000;
/// One chunk of the offline model as an update of its own.
const CHUNK_FRAME_BYTES: usize = 290;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Runtime::new()?;
    if let [role, address] = arguments.as_slice()
        && role == reference::ROLE
    {
        return runtime.block_on(reference::serve(address.parse()?));
    }
    let options = Options::parse(arguments.into_iter(), "--product", [3, 7])?;
    let report = measure(&runtime, &options)?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    std::fs::remove_dir_all(&options.scratch).context("removing what the measurement left")
}

/// All rounds with one number of readers.
#[derive(Default)]
struct Crowd {
    product: Side,
    same: Side,
    single: Side,
    frames: Samples,
}

#[derive(Default)]
struct Side {
    events_per_s: Samples,
    peak_kb: Samples,
}

impl Side {
    fn push(&mut self, told: u64, broadcast: &Broadcast) {
        self.events_per_s.push(told as f64 / broadcast.seconds);
        self.peak_kb.push(broadcast.peak_kb as f64);
    }

    fn report(&self) -> Value {
        json!({"events_per_s": self.events_per_s.median(), "peak_kb": self.peak_kb.median()})
    }
}

fn measure(runtime: &Runtime, options: &Options) -> anyhow::Result<Value> {
    let told = if options.quick { CHUNKS_TOLD_QUICK } else { CHUNKS_TOLD_FULL };
    let mut crowds = Vec::new();
    for readers in READERS {
        let chunks = (told / readers as u64).min(CHUNKS_MAX);
        let mut crowd = Crowd::default();
        for round in 0..options.rounds {
            eprintln!("{readers} readers, round {} of {}", round + 1, options.rounds);
            let told = chunks * readers as u64;
            let home = options.scratch.join("product");
            let product = runtime.block_on(doors::product(&options.program, &home, readers, chunks))?;
            let same = runtime.block_on(doors::broadcast(readers, &product.frames))?;
            let single = vec![CHUNK_FRAME_BYTES; usize::try_from(chunks)?];
            let single = runtime.block_on(doors::broadcast(readers, &single))?;
            crowd.frames.push(product.frames.len() as f64);
            crowd.product.push(told, &product);
            crowd.same.push(told, &same);
            crowd.single.push(told, &single);
        }
        crowds.push(json!({
            "readers": readers, "chunks": chunks, "frames": crowd.frames.median(),
            "product": crowd.product.report(), "same": crowd.same.report(), "single": crowd.single.report(),
        }));
    }
    let home = options.scratch.join("product");
    let served = runtime.block_on(Served::start(&options.program, &home))?;
    let turns = socket::turns_us(&served, if options.quick { 200 } else { 1000 })?;
    Ok(json!({
        "quick": options.quick, "rounds": options.rounds, "crowds": crowds,
        "socket_turn_us": {"p50": turns.median(), "p99": turns.percentile(99.0)},
    }))
}
