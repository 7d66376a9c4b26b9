//! What the tests of several crates share. Never part of the product.

mod script;

pub use script::{Line, Script, call, fail, say, think};
