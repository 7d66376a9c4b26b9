//! `sessions show`: what was said and done, to read.

use std::sync::Arc;

use engine::Registry;
use wire::document::Form;

use super::{export, find};
use crate::cli::ShowOptions;
use crate::terminal;
use crate::trouble::Trouble;

pub async fn run(registry: &Arc<Registry>, options: &ShowOptions) -> Result<(), Trouble> {
    let row = find::one(registry, &options.id).await?;
    if options.json {
        export::put(registry, row, Form::Json { pretty: false }, false).await?;
        return terminal::put("\n");
    }
    export::put(registry, row, Form::Plain { full: options.full }, true).await
}
