//! Every byte shape.

pub mod record;
