//! Doors that speak HTTP.

pub mod metrics;
