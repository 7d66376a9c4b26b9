//! The REST routes: sessions, their events as a stream, permissions, commands, costs.
//!
//! Every route reaches sessions through the caller's own principal, so another principal's session looks as if it did not
//! exist. Nothing is kept between two requests but what makes it cheap to resume a stream: the log is the truth here as
//! everywhere.

mod about;
mod commands;
mod events;
mod frame_checkpoints;
mod permissions;
mod request_params;
mod rest_context;
mod runs;
mod sessions;
mod subscriber;
mod zeph;

use std::sync::Arc;

use axum::{Extension, Router};

use super::HttpState;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .merge(sessions::routes())
        .merge(events::routes())
        .merge(permissions::routes())
        .merge(commands::routes())
        .merge(runs::routes())
        .merge(about::routes())
        .merge(zeph::routes())
        .layer(Extension(Arc::new(events::EventStreams::default())))
}
