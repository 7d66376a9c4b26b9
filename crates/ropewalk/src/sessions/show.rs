//! `sessions show`: prints a session for reading.

use std::sync::Arc;

use engine::Registry;
use wire::session_export_writer::DocumentFormat;

use super::{export, find};
use crate::cli::ShowOptions;
use crate::cli_error::CliError;
use crate::output;

pub async fn run(registry: &Arc<Registry>, options: &ShowOptions) -> Result<(), CliError> {
    let row = find::one(registry, &options.id).await?;
    if options.json {
        export::put(registry, row, DocumentFormat::Json { pretty: false }, false).await?;
        return output::put("\n");
    }
    export::put(registry, row, DocumentFormat::Plain { full: options.full }, true).await
}
