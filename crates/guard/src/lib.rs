//! Judges an action before anybody is asked about it: what a shell command does and how risky that is, what
//! the person's permission rules say about a request, and which parts of a text are secrets.
//!
//! Nothing here enforces anything. The kernel does that, through the sandbox crate. This crate only decides what a
//! person is asked.

#[doc(hidden)]
pub mod fuzz;
mod program_launchers;
mod regular_file;
mod risk;
mod rules;
mod secret_redactor;
pub mod shell;

pub use regular_file::open_regular;
pub use risk::{
    Assessment, CommandScope, FileAccess, ProposedAction, Workplace, assess_action, assess_command,
    assess_path, covers, scope_of_always, with_git_settings, with_steered_programs,
};
pub use rules::{
    ListedRule, RuleChange, RuleDamage, RuleEditResult, RuleError, RuleLocation, RulePaths, RuleSource,
    Rulebook, TrustedServer, UnsandboxedCommand, assess_unsandboxed, editor_terminal_digest,
    hypothetical_request, lock_folder, trusted_file,
};
pub use secret_redactor::{REDACTED, SecretRedactor, is_secret_name, known_secrets};
