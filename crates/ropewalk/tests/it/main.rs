//! Tests of the real binary through all of its doors. They are one program, so that shared code is compiled and linked
//! once.

mod agents;
mod audit;
mod backup;
mod bernstein;
mod bridge;
mod chat;
mod cli;
mod command_output;
mod consent;
mod doors;
mod guards;
mod hub_export;
mod hubs;
mod mcp;
mod metrics;
mod models;
mod permissions;
mod postgres_sessions;
mod secrets;
mod seeds;
mod serve;
mod state_files;
mod store;
mod traces;
mod work_folder;
