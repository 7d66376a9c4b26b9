//! The REST surface: sessions, their events as a stream, permissions, commands, costs.
//!
//! Every route reaches sessions through the caller's own principal, so another's session is one that
//! does not exist. Nothing is kept between two requests but what makes streams cheap to come back to:
//! the log is the truth here as everywhere.

mod about;
mod commands;
mod events;
mod marks;
mod reach;
mod runs;
mod sessions;
mod subscriber;
mod tools;
mod words;
mod zeph;

use std::sync::Arc;

use axum::{Extension, Router};

use super::Doors;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new()
        .merge(sessions::routes())
        .merge(events::routes())
        .merge(tools::routes())
        .merge(commands::routes())
        .merge(runs::routes())
        .merge(about::routes())
        .merge(zeph::routes())
        .layer(Extension(Arc::new(events::Streams::default())))
}
