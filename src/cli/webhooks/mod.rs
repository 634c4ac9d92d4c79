//! `charge-once webhooks`: events for a receiver that is being developed.

mod feed;
mod listen;

use super::BoxError;

/// What is done with webhooks.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Forwards the account's events to a URL as signed webhooks, from now on until Ctrl-C.
    Listen(listen::Arguments),
}

pub(super) fn run(command: Command) -> Result<(), BoxError> {
    match command {
        Command::Listen(arguments) => listen::run(&arguments),
    }
}
