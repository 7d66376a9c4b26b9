//! `sessions show`: what was said and done, to read.

use engine::Registry;
use wire::transcript::Transcript;
use wire::{archive, plain};

use super::{all_events, find};
use crate::cli::ShowOptions;
use crate::terminal;
use crate::trouble::Trouble;

pub async fn run(registry: &Registry, options: &ShowOptions) -> Result<(), Trouble> {
    let row = find::one(registry, &options.id).await?;
    let events = all_events(registry, &row).await?;
    if options.json {
        return terminal::put_json(&archive::encode(&row, &events, registry.clock().now()));
    }
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    terminal::put(&plain::render(&row, &transcript, options.full))
}
