//! Environment variables for options. Clap reads them; this adds what clap does not do.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, builder::Resettable};

use crate::paths;

/// Treats an empty variable as unset: that is how an environment file unsets one.
pub(super) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if paths::variable(name).is_none() => argument.env(Resettable::Reset),
        _ => argument,
    });
    command.mut_subcommands(without_empty)
}

/// Names the variable in an error about a value that came from one: clap names the option, which nobody typed.
pub(super) fn name_variable(command: &Command, mut error: clap::Error) -> clap::Error {
    let variable = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (Some(ContextValue::String(option)), Some(ContextValue::String(value))) => {
            source(command, option, value)
        }
        _ => None,
    };
    if let Some(variable) = variable {
        let tip = format!("the value comes from the variable {variable}");
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
