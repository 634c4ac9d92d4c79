//! `charge-once pay`: the client library from the command line.
//!
//! Promise: killed at any moment and run again with the same arguments and store, it has charged
//! once. Its exit code says whether that is known.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use charge_once_client::{
    Charge, Client, Error, FileKeyStore, KeyStoreError, NewCharge, Reply, Request, Resumed,
};

use super::{
    BoxError,
    amount::minor_units,
    print_document, say,
    service::{AFTER_HELP, Service},
};

const STORE_AND_CODES: &str = "\
With --store, the request and its key are on disk before they are sent. A run begins with what
earlier runs left unfinished, each under its own key. If that was the same charge, it is this one,
and nothing new is charged. One folder is for one account.

Exit codes:
  0  charged; the charge is on standard output
  1  it could not start; nothing was sent
  2  refused: the request can't be done as it is
  3  declined by the card's issuer
  4  not known, or not sent: run it again with the same store, or with the same --key
  5  something in the store needs a person: it is too old to be sent again, or can't be read";

const NOT_STARTED: u8 = 1;
const REFUSED: u8 = 2;
const DECLINED: u8 = 3;
const UNKNOWN: u8 = 4;
const NEEDS_A_PERSON: u8 = 5;

/// What to charge, and how to ask for it.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{STORE_AND_CODES}"))]
pub struct PayArguments {
    /// In major units: 20.00, or 2000 in a currency without decimals.
    #[arg(long)]
    amount: String,
    /// ISO 4217 code.
    #[arg(long)]
    currency: String,
    /// A test token.
    #[arg(long, default_value = "tok_visa")]
    source: String,
    #[command(flatten)]
    service: Service,
    /// The idempotency key, if the payment already has a name, such as an order's number.
    #[arg(long)]
    key: Option<String>,
    /// A folder that stores unfinished payments for the next run.
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// How long to try; at most an hour.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    deadline: Duration,
}

/// Runs it to its exit code. `decimals` says how many a currency in use has, by its code.
pub fn run(
    arguments: &PayArguments,
    decimals: impl Fn(&str) -> Option<usize>,
) -> Result<ExitCode, BoxError> {
    let code = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(pay(arguments, decimals(&arguments.currency)));
    Ok(code.unwrap_or_else(|error| failed(&error)).into())
}

async fn pay(arguments: &PayArguments, decimals: Option<usize>) -> Result<u8, Error> {
    let Some(decimals) = decimals else {
        say("--currency must be the ISO 4217 code of a currency in use, such as usd");
        return Ok(REFUSED);
    };
    let amount = match minor_units(&arguments.amount, decimals) {
        Ok(amount) => amount,
        Err(error) => {
            say(&format!("--amount: {error}"));
            return Ok(REFUSED);
        }
    };
    let client = client(arguments)?;
    let mut request = client.create_charge(&NewCharge {
        source: Some(arguments.source.clone()),
        ..NewCharge::new(amount, arguments.currency.clone())
    })?;
    if let Some(key) = &arguments.key {
        request = request.with_key(key.clone())?;
    }
    match finish_earlier_runs(&client, &request, arguments.key.is_some()).await? {
        Earlier::Nothing => {}
        Earlier::ThisCharge(outcome) => return Ok(show(outcome)),
        Earlier::InTheWay(code) => {
            say("nothing new was charged");
            return Ok(code);
        }
    }
    // After a kill, this key still finds the outcome.
    say(&format!("charging under the key {}", request.key()));
    Ok(show(request.send_for_reply().await))
}

fn client(arguments: &PayArguments) -> Result<Client, Error> {
    let builder = arguments.service.builder(arguments.deadline)?;
    let mut builder = builder.on_retry(|retry| {
        let (failure, pause) = (&retry.failure, retry.pause.as_millis());
        say(&format!("{failure}; again with the same key in {pause} ms"));
    });
    if let Some(folder) = &arguments.store {
        builder = builder.key_store(FileKeyStore::open(folder)?);
    }
    builder.build()
}

enum Earlier {
    Nothing,
    /// The same charge was unfinished, and this is its outcome.
    ThisCharge(Result<Reply, Error>),
    /// It isn't known whether something was charged, so nothing new is charged.
    InTheWay(u8),
}

async fn finish_earlier_runs(
    client: &Client,
    request: &Request<Charge>,
    key_is_given: bool,
) -> Result<Earlier, Error> {
    let (mut earlier, mut needs_a_person) = (Earlier::Nothing, false);
    for resumed in client.resume().await? {
        match resumed {
            Resumed::Corrupt { place, reason } => {
                say(&format!(
                    "{place} can't be read ({reason}); it may hold a charge: look for it, then \
                     remove the file"
                ));
                needs_a_person = true;
            }
            Resumed::NotSent { operation, reason } => {
                say(&format!(
                    "{} {}{} under the key {} was not sent again: {reason}; look up what became \
                     of it, then remove it from the store",
                    operation.method(),
                    operation.server(),
                    operation.path(),
                    operation.key()
                ));
                needs_a_person = true;
            }
            Resumed::Sent { operation, outcome } => {
                say(&match &outcome {
                    Ok(reply) => format!("finished {}: HTTP {}", operation.key(), reply.status),
                    Err(error) => format!("resumed {}: {error}", operation.key()),
                });
                let is_this = operation.asks_the_same_as(request.operation())
                    && (!key_is_given || operation.key() == request.key());
                let is_unknown = matches!(&outcome, Err(error) if !error.is_outcome());
                // The outcome of this charge must be reported now: the store has removed it.
                if is_this && !matches!(earlier, Earlier::ThisCharge(_)) {
                    earlier = Earlier::ThisCharge(outcome);
                } else if is_unknown && matches!(earlier, Earlier::Nothing) {
                    earlier = Earlier::InTheWay(UNKNOWN);
                }
            }
        }
    }
    if needs_a_person && !matches!(earlier, Earlier::ThisCharge(_)) {
        earlier = Earlier::InTheWay(NEEDS_A_PERSON);
    }
    Ok(earlier)
}

fn show(outcome: Result<Reply, Error>) -> u8 {
    match outcome {
        Ok(reply) => {
            // The charge is made, whether or not its reader is still there.
            let _ = print_document(&String::from_utf8_lossy(&reply.body));
            0
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> u8 {
    say(&error.to_string());
    match error {
        Error::Declined(_) => DECLINED,
        Error::Invalid(_)
        | Error::Unauthenticated(_)
        | Error::KeyReused(_)
        | Error::Abandoned
        | Error::Unusable(_)
        | Error::Store(KeyStoreError::OtherRequest) => REFUSED,
        // `Unreadable` is for callers that read the charge. Here it means that the charge was made.
        Error::GaveUp(_) | Error::Unreadable { .. } => UNKNOWN,
        Error::Expired(_) | Error::Store(KeyStoreError::Corrupt { .. }) => NEEDS_A_PERSON,
        Error::Store(KeyStoreError::Io { .. }) => NOT_STARTED,
    }
}
