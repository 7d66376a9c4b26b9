//! What a wish means before anybody is asked: what a shell command does and how risky that is, what
//! the person's rules say of it, and which parts of a text are secrets.
//!
//! Nothing here enforces anything: the kernel does, through the sandbox. This decides what is asked.

#[doc(hidden)]
pub mod fuzz;
mod launch;
mod redact;
mod regular;
mod risk;
mod rules;
pub mod shell;

pub use redact::{REDACTED, Secrets, is_secret_name, known_secrets};
pub use regular::open_regular;
pub use risk::{
    Assessment, Deed, Scope, Want, Workplace, assess_command, assess_deed, assess_path, covers,
    scope_of_always, with_git_settings, with_steered_programs,
};
pub use rules::{
    Changed, ListedRule, OutsideCommand, RuleChange, RuleDamage, RuleError, RulePaths, RuleSource, Rulebook,
    TrustedServer, Where, assess_outside, imagined, lock_folder, outside_digest, trusted_file,
};
