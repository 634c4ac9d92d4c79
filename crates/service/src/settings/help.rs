//! The variables that each command reads, in its `--help`.

use clap::Command;

use super::{Variable, help_text};

/// Adds the variables of each command to its help, and to that of the commands below it.
///
/// `reads(command, variable)` says whether a command reads a variable. The program is named by its
/// name, a command by its own, and one below it by both, such as `keys list`.
#[must_use]
pub fn with_variables(
    program: Command,
    variables: &[Variable],
    reads: fn(&str, &str) -> bool,
) -> Command {
    let with = |path: &str, command: Command| {
        let is_read = |name: &str| reads(path, name);
        if variables.iter().any(|variable| is_read(variable.name)) {
            command.after_help(help_text(variables, is_read))
        } else {
            command
        }
    };
    let name = program.get_name().to_owned();
    with(&name, program).mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        with(&name, command).mut_subcommands(|below| {
            let path = format!("{name} {}", below.get_name());
            with(&path, below)
        })
    })
}
