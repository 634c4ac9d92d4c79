//! The command line: `serve` and the commands beside it, one file each. Commands that are clients
//! of a running service are in `crates/developer`.
//!
//! Promise: what a command prints for programs goes to standard output, and what it says to people
//! goes to standard error. A command that needs a server's database never makes one.

mod account;
pub mod api_key;
mod aside;
mod audit;
mod check;
mod healthcheck;
mod help;
mod keys;
mod migrate;
mod named;
mod operations;
mod processor;
mod serve;
mod server_check;
mod session;
mod shards;
mod sweep;
mod webhooks;

use std::process::ExitCode;

use charge_once_developer::audit::AuditArguments;
pub use charge_once_developer::{BoxError, print, print_document, say};
use charge_once_developer::{completions, faults, pay, report, seed, trigger};
use charge_once_service::{
    request_log::report::FindingKind,
    settings::{
        address::{listen, reachable},
        markdown_tables, with_variables,
    },
};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{config::VARIABLES, domain::money::Currency, http::openapi};

/// A payments API in which a retried request never charges twice.
#[derive(Debug, Parser)]
#[command(name = "charge-once", version = crate::VERSION)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

/// One command with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves the API (the default).
    Serve,
    /// Does the work beside requests for servers with BACKGROUND=off: sweeps, webhooks, and what
    /// clients never retry.
    Work,
    /// Serves the card processor's simulator, with its own database; see docs/processor.md.
    Processor,
    /// Migrates the database schema.
    Migrate(migrate::MigrateArguments),
    /// Removes expired idempotency keys once, and prints how many there were.
    Sweep(sweep::SweepArguments),
    /// Checks everything that must always hold, in the rows of all accounts, and prints what does
    /// not.
    ///
    /// The exit code is 0 if everything holds, 1 if something does not, and 2 if that is not known.
    /// EVENT_RETENTION must be as the servers have it, because older events are not missed.
    /// With --server, it checks the settings of the PostgreSQL server instead.
    Check(check::CheckArguments),
    /// Shows what is known of an idempotency key, and lists those in flight.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Shows what each database keeps and has to do, by its largest accounts, and which moves would
    /// even that out.
    ///
    /// What an account has to do is counted in events of the last hour, or at the pace of its
    /// newest 1000. Numbers of rows are estimates of PostgreSQL's statistics. The exit code is 1 if
    /// a database can't be looked at.
    Shards(shards::ShardsArguments),
    /// Moves accounts between databases.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Makes, lists and revokes API keys.
    #[command(subcommand)]
    ApiKey(api_key::ApiKeyCommand),
    /// Lists and resolves operations that a card processor has not answered.
    #[command(subcommand)]
    Operations(operations::OperationsCommand),
    /// Prints the OpenAPI document.
    Openapi,
    /// Prints the tables of environment variables in Markdown.
    ConfigTable,
    /// Prints what a shell needs to complete commands and options.
    Completions(completions::CompletionsArguments),
    /// Asks the server at BIND_ADDRESS whether it is ready; exit code 0 if it is.
    Healthcheck(healthcheck::HealthcheckArguments),
    /// Charges a test card through a running service; killed and run again with --store, once.
    Pay(pay::PayArguments),
    /// Forwards events to a URL while you develop, and sends webhooks again that failed.
    #[command(subcommand)]
    Webhooks(webhooks::WebhooksCommand),
    /// Makes what an event of this type needs, through a running service.
    Trigger(trigger::TriggerArguments),
    /// Fills an account with the data of a shop, through a running service; run again, it charges
    /// nothing again.
    Seed(seed::SeedArguments),
    /// Plans faults for the programs that use a test account.
    #[command(subcommand)]
    Faults(faults::FaultsCommand),
    /// Tells what is wrong with the client that uses a test account.
    Report(report::ReportArguments),
    /// Runs a program against a sandbox that loses its replies, and tells whether it charges twice.
    ///
    /// The exit code is that of `charge-once report`: 1 after a critical finding or a warning, 0
    /// after neither, and 2 if there is no report, or it leaves out older requests. The program
    /// finds the sandbox by CHARGE_ONCE_URL, CHARGE_ONCE_API_KEY, STRIPE_API_KEY,
    /// STRIPE_SECRET_KEY, STRIPE_API_BASE, STRIPE_API_HOST, STRIPE_API_PORT and
    /// STRIPE_API_PROTOCOL; see docs/audit.md.
    Audit(AuditArguments),
}

/// The types of findings, by their names.
fn finding_kinds() -> Vec<&'static str> {
    let kinds = FindingKind::ALL.iter();
    kinds.map(|kind| kind.as_str()).collect()
}

/// Reads the command line; a mistake in it, and `--help`, end the process.
pub fn parse() -> Command {
    let program = with_variables(CommandLine::command(), VARIABLES, help::reads);
    let matches = program.get_matches();
    CommandLine::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.exit())
        .command
        .unwrap_or(Command::Serve)
}

/// Runs a command to its end.
pub fn run(command: Command) -> Result<ExitCode, BoxError> {
    match command {
        Command::Serve => serve::run(),
        Command::Work => serve::work(),
        Command::Processor => processor::run(),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Keys(command) => keys::run(command),
        Command::Shards(arguments) => shards::run(&arguments),
        Command::Account(command) => account::run(&command),
        Command::ApiKey(command) => api_key::run(command),
        Command::Operations(command) => operations::run(command),
        Command::Openapi => print_document(&openapi::document().to_pretty_json()?),
        Command::ConfigTable => print_document(markdown_tables(VARIABLES).trim_end()),
        Command::Healthcheck(arguments) => healthcheck::run(&arguments),
        Command::Webhooks(command) => webhooks::run(command),
        Command::Trigger(arguments) => trigger::run(&arguments),
        Command::Seed(arguments) => seed::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, CommandLine::command()),
        Command::Faults(command) => faults::run(&command),
        // These have more exit codes than success and failure.
        Command::Check(arguments) => return Ok(check::run(&arguments)),
        Command::Report(arguments) => return Ok(report::run(&arguments, &finding_kinds())),
        Command::Audit(arguments) => return Ok(audit::run(&arguments)),
        Command::Pay(arguments) => {
            return pay::run(&arguments, |code| {
                Currency::parse(code).map(Currency::decimals)
            });
        }
    }?;
    Ok(ExitCode::SUCCESS)
}
