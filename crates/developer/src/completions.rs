//! What a shell needs to complete commands and options.

use clap_complete::Shell;

use super::{BoxError, print_document};

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArguments {
    /// The shell that reads it.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of `program`.
pub fn run(arguments: &CompletionsArguments, mut program: clap::Command) -> Result<(), BoxError> {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    print_document(String::from_utf8(script)?.trim_end())
}
