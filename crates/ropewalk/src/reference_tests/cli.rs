//! `cli.md`: every command and flag, rendered from the definitions that the program parses with.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use super::check_page;
use crate::cli::Cli;

const HEAD: &str = "\
# Commands

Every command of `ropewalk` with its options, as `--help` of each says them. Made from the program's own definitions
(`crates/ropewalk/src/reference_tests/cli.rs`).

These options work with every command:

";

fn page() -> String {
    let mut cli = <Cli as CommandFactory>::command();
    cli.build();
    let mut page = HEAD.to_owned();
    write_arguments(&mut page, cli.get_arguments().filter(|argument| argument.is_global_set()));
    for command in cli.get_subcommands() {
        write_command(&mut page, command, "ropewalk");
    }
    page
}

fn write_command(page: &mut String, command: &Command, parents: &str) {
    let path = format!("{parents} {}", command.get_name());
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    write!(page, "\n## {path}\n\n").unwrap();
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        writeln!(page, "{}\n", about.to_string().trim()).unwrap();
    }
    let usage = command.clone().render_usage().to_string();
    writeln!(page, "```\n{}\n```", usage.trim_start_matches("Usage: ").trim()).unwrap();
    let own = |argument: &&Arg| !argument.is_global_set() && argument.get_id() != "help";
    if command.get_arguments().any(|argument| own(&argument) && !argument.is_hide_set()) {
        page.push('\n');
        write_arguments(page, command.get_arguments().filter(own));
    }
    for inner in command.get_subcommands() {
        write_command(page, inner, &path);
    }
}

fn write_arguments<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    page.push_str("| option | meaning |\n|---|---|\n");
    for argument in arguments.filter(|argument| !argument.is_hide_set()) {
        let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let values = argument.get_possible_values();
        let values: Vec<&str> =
            values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
        if !values.is_empty() && argument.get_action().takes_values() {
            write!(meaning, " (one of {})", values.join(", ")).unwrap();
        }
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            write!(meaning, " (default: {})", defaults.join(" ")).unwrap();
        }
        if let Some(variable) = argument.get_env() {
            write!(meaning, " (variable: `{}`)", variable.to_string_lossy()).unwrap();
        }
        let meaning = meaning.replace('\n', " ").replace('|', "\\|");
        writeln!(page, "| `{}` | {} |", name_of(argument).replace('|', "\\|"), meaning.trim()).unwrap();
    }
}

/// As it is typed: `-C, --cwd DIR`.
fn name_of(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flag = [short, long].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let values: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    if !argument.get_action().takes_values() {
        return flag;
    }
    let values = values.join(" ");
    if flag.is_empty() { values } else { format!("{flag} {values}") }
}

#[test]
fn the_reference_has_every_command_and_flag() {
    check_page("cli.md", &page());
}
