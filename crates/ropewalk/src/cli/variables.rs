//! Variables that stand for options: clap reads them, and here is what it does not do by itself.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, builder::Resettable};

use crate::paths;

/// An empty variable counts as none: that is how one is unset in a file of variables.
pub(super) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if paths::variable(name).is_none() => argument.env(Resettable::Reset),
        _ => argument,
    });
    command.mut_subcommands(without_empty)
}

/// A value that came from a variable is told with the variable's name: nobody typed the option that clap names.
pub(super) fn named(command: &Command, mut error: clap::Error) -> clap::Error {
    let variable = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (Some(ContextValue::String(option)), Some(ContextValue::String(value))) => {
            source(command, option, value)
        }
        _ => None,
    };
    if let Some(variable) = variable {
        let tip = format!("the value is that of the variable {variable}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn source(command: &Command, option: &str, value: &str) -> Option<String> {
    let of_this = |argument: &clap::Arg| {
        let name = argument.get_env().filter(|_| argument.to_string() == option)?;
        paths::variable(name).filter(|said| said == value).map(|_| name.to_string_lossy().into_owned())
    };
    let below = || command.get_subcommands().find_map(|command| source(command, option, value));
    command.get_arguments().find_map(of_this).or_else(below)
}
