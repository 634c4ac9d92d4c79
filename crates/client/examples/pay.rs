//! A shop that charges a customer once, whatever happens to it, to the network or to the service.
//!
//! With the service running (`make run`):
//!
//! ```sh
//! cargo run --package charge-once-client --example pay
//! ```
//!
//! Kill it wherever you like and run it again. The folder `payments-in-progress` remembers.

use std::error::Error as StdError;

use charge_once_client::{Client, Error, FileKeyStore, NewCharge, Resumed};

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let client = Client::builder(
        variable("CHARGE_ONCE_URL", "http://127.0.0.1:8080"),
        variable("CHARGE_ONCE_API_KEY", "sk_test_ChargeOnceDevelopmentKey00"),
    )
    .key_store(FileKeyStore::open(variable(
        "PAYMENTS",
        "payments-in-progress",
    ))?)
    .on_retry(|retry| println!("{}; again in {:?}", retry.failure, retry.pause))
    .build()?;

    // First what an earlier run left unfinished, under the keys it had then.
    for resumed in client.resume().await? {
        match resumed {
            Resumed::Sent { operation, outcome } => match outcome {
                Ok(reply) => println!("finished {}: HTTP {}", operation.key(), reply.status),
                Err(error) => println!("{}: {error}", operation.key()),
            },
            Resumed::NotSent { operation, reason } => {
                println!("a person must look at {}: {reason}", operation.key());
            }
            Resumed::Corrupt { place, reason } => {
                println!("a person must look at {place}: {reason}");
            }
        }
    }

    // The key is in the request from here on, before anything is sent.
    let payment = client.create_charge(&NewCharge {
        source: Some("tok_visa".to_owned()),
        description: Some("A mug".to_owned()),
        ..NewCharge::new(2000, "usd")
    })?;
    match payment.send().await {
        Ok(charge) => println!("charged: {}", charge.id),
        Err(Error::Declined(refusal)) => println!("declined: {}", refusal.message),
        // The one answer that must not be taken for a no.
        Err(Error::GaveUp(gave_up)) => println!("not known yet; run me again: {gave_up}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
