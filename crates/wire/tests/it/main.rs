//! Tests of the wire formats from outside. One program for all of them, so that shared code is compiled and
//! linked once.

mod acp_limits;
mod acp_updates;
mod agent_content_changes;
mod bodies;
mod corpus;
mod event_json;
mod older_updates;
mod plain_errors;
mod power_cut;
mod record;
mod rest_stream;
mod sessions;
mod sub_agents;
