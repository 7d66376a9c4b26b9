//! The stores from outside, on files, on PostgreSQL and with processes that are killed. One program for all of these
//! tests: what they share is compiled and linked once.

mod backup_and_salvage;
mod bus;
mod conformance;
mod damage;
mod files;
mod imports_in_pieces;
mod killed_process;
mod lock_holder;
mod lost_settings;
mod ownership;
mod postgres;
mod postgres_store;
mod sql;
mod sql_store;
mod unusable_file;
