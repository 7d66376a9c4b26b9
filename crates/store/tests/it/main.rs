//! The stores from outside, on files, on PostgreSQL and with processes that are killed. One program for all of these
//! tests: what they share is compiled and linked once.

mod bus;
mod conformance;
mod damage;
mod files;
mod killed;
mod locked;
mod narrowed;
mod ownership;
mod pieces;
mod postgres;
mod postgres_store;
mod saved;
mod sql;
mod sql_store;
mod unusable;
