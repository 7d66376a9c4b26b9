//! The byte shapes from outside. One program for all of these tests: what they share is compiled and linked once.

mod acp_limits;
mod acp_updates;
mod bodies;
mod corpus;
mod older_updates;
mod plain_errors;
mod portable;
mod power_cut;
mod record;
mod rest_stream;
mod sessions;
mod sub_agents;
mod upstream_shown;
