//! `charge-once webhooks`: events for a receiver that is being developed, and webhooks that failed.

mod retry;

use charge_once_developer::listen;

use super::BoxError;
use crate::workers::webhooks::sender_settings;

/// What is done with webhooks.
#[derive(Debug, clap::Subcommand)]
pub enum WebhooksCommand {
    /// Forwards the account's events to a URL as signed webhooks, from now on until Ctrl-C.
    Listen(listen::ListenArguments),
    /// Sends webhooks again that failed. It works on the server's database.
    Retry(retry::RetryArguments),
}

pub(super) fn run(command: WebhooksCommand) -> Result<(), BoxError> {
    match command {
        WebhooksCommand::Listen(arguments) => listen::run(&arguments, sender_settings()),
        WebhooksCommand::Retry(arguments) => retry::run(&arguments),
    }
}
