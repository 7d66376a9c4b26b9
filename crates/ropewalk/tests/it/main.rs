//! The real binary, and what comes in by its doors. One program for all of these tests: what they share is compiled and
//! linked once.

mod agents;
mod audit;
mod backup;
mod bernstein;
mod bridge;
mod chat;
mod cli;
mod consent;
mod doors;
mod ended;
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
