//! The program: parses the command line, runs one command, and says how that ended.

use std::process::ExitCode;

use charge_once::{cli, database::plain};

fn main() -> ExitCode {
    cli::run(cli::parse()).unwrap_or_else(|error| {
        cli::say(&match error.downcast_ref() {
            Some(error) => plain(error),
            None => error.to_string(),
        });
        ExitCode::FAILURE
    })
}
