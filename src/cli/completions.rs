//! `charge-once completions`: what a shell needs to complete commands and options.

use clap_complete::Shell;

use super::BoxError;

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell that reads it.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, mut program: clap::Command) -> Result<(), BoxError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "charge-once", &mut script);
    super::print(String::from_utf8(script)?.trim_end())
}
