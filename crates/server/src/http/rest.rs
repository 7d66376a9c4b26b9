//! The REST routes: sessions, their events as a stream, permissions, commands, costs.
//!
//! Every route reaches sessions through the caller's own principal, so another principal's session looks as if it did not
//! exist. Nothing is kept between two requests but what makes it cheap to resume a stream: the log is the truth here as
//! everywhere.

mod event_streams;
mod frame_checkpoints;
mod permissions;
mod request_params;
mod rest_context;
mod run_summaries;
mod server_info;
mod sessions;
mod slash_commands;
mod subscriber;
mod zeph;

use std::sync::Arc;

use axum::{Extension, Router};

use super::HttpState;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .merge(sessions::routes())
        .merge(event_streams::routes())
        .merge(permissions::routes())
        .merge(slash_commands::routes())
        .merge(run_summaries::routes())
        .merge(server_info::routes())
        .merge(zeph::routes())
        .layer(Extension(Arc::new(event_streams::EventStreams::default())))
}
