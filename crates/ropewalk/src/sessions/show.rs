//! `sessions show`: prints a session for reading.

use std::sync::Arc;

use engine::Registry;
use wire::document::DocumentFormat;

use super::{export, find};
use crate::cli::ShowOptions;
use crate::cli_error::CliError;
use crate::terminal;

pub async fn run(registry: &Arc<Registry>, options: &ShowOptions) -> Result<(), CliError> {
    let row = find::one(registry, &options.id).await?;
    if options.json {
        export::put(registry, row, DocumentFormat::Json { pretty: false }, false).await?;
        return terminal::put("\n");
    }
    export::put(registry, row, DocumentFormat::Plain { full: options.full }, true).await
}
