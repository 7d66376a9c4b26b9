//! What a wish means before anybody is asked: what a shell command does and how risky that is, what
//! the person's rules say of it, and which parts of a text are secrets.
//!
//! Nothing here enforces anything: the kernel does, through the sandbox. This decides what is asked.

mod redact;

pub use redact::{REDACTED, Secrets, is_secret_name, known_secrets};
