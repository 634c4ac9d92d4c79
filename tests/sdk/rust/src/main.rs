//! Drives charge-once with async-stripe: `tests/sdk/run rust`.
//!
//! This SDK parses replies more strictly than the others: a member that it requires and that is
//! missing, or has another type, is an error here.

use std::{error::Error, pin::pin};

use futures_util::TryStreamExt as _;
use stripe::{
    Client, ClientBuilder, IdempotencyKey, RequestStrategy, StripeError, StripeRequest as _,
};
use stripe_core::{
    charge::{CaptureCharge, CreateCharge, ListCharge, RetrieveCharge, UpdateCharge},
    refund::{CreateRefund, ListRefund, RetrieveRefund},
};
use stripe_types::Currency;

type BoxError = Box<dyn Error + Send + Sync>;

fn under(key: &str) -> Result<RequestStrategy, BoxError> {
    Ok(RequestStrategy::Idempotent(IdempotencyKey::new(key)?))
}

fn charge(customer: &str) -> CreateCharge {
    CreateCharge::new()
        .amount(2000)
        .currency(Currency::USD)
        .source("tok_visa")
        .customer(customer)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("CHARGE_ONCE_URL")?;
    let api_key = std::env::var("CHARGE_ONCE_API_KEY")?;
    // A run on an old database must not reuse the keys of an earlier run.
    let run = std::process::id();
    // The SDK makes a key for a POST without one.
    let client = ClientBuilder::new(api_key)
        .url(url)
        .request_strategy(RequestStrategy::ExponentialBackoff(3))
        .build()?;

    charges(&client, run).await?;
    println!("  ok                a charge is created once, retrieved, updated and listed");
    pages(&client, run).await?;
    println!("  ok                a list is paged");
    refunds(&client, run).await?;
    println!("  ok                a charge is captured, refunded, and its refunds are listed");
    errors(&client, run).await?;
    println!("  ok                errors have the status and code of the contract");
    Ok(())
}

async fn charges(client: &Client, run: u32) -> Result<(), BoxError> {
    let (customer, key) = (format!("rust-{run}"), format!("rust-{run}"));
    let first = charge(&customer)
        .customize()
        .request_strategy(under(&key)?)
        .send(client)
        .await?;
    let again = charge(&customer)
        .customize()
        .request_strategy(under(&key)?)
        .send(client)
        .await?;
    assert_eq!(first.id, again.id);
    assert_eq!(
        (first.amount, first.paid, first.captured),
        (2000, true, true)
    );

    let found = RetrieveCharge::new(first.id.clone()).send(client).await?;
    assert_eq!(found.id, first.id);
    let updated = UpdateCharge::new(first.id.clone())
        .description("changed")
        .send(client)
        .await?;
    assert_eq!(updated.description.as_deref(), Some("changed"));
    let listed = ListCharge::new().customer(customer).send(client).await?;
    assert_eq!(
        listed.data.len(),
        1,
        "one charge, however often it was sent"
    );
    Ok(())
}

async fn pages(client: &Client, run: u32) -> Result<(), BoxError> {
    let customer = format!("rust-pages-{run}");
    let mut newest_first = Vec::new();
    for _ in 0..5 {
        newest_first.insert(0, charge(&customer).send(client).await?.id);
    }
    let list = ListCharge::new().customer(customer).limit(2).paginate();
    let mut pages = pin!(list.stream(client));
    let mut found = Vec::new();
    while let Some(charge) = pages.try_next().await? {
        found.push(charge.id);
    }
    assert_eq!(found, newest_first);
    Ok(())
}

async fn refunds(client: &Client, run: u32) -> Result<(), BoxError> {
    let promised = charge(&format!("rust-refunds-{run}"))
        .capture(false)
        .send(client)
        .await?;
    assert!(!promised.captured);
    let captured = CaptureCharge::new(promised.id.clone()).send(client).await?;
    assert_eq!(captured.amount_captured, 2000);

    let refund = CreateRefund::new()
        .charge(captured.id.as_str())
        .amount(500)
        .send(client)
        .await?;
    assert_eq!(refund.amount, 500);
    let found = RetrieveRefund::new(refund.id.clone()).send(client).await?;
    assert_eq!(found.id, refund.id);
    let listed = ListRefund::new()
        .charge(captured.id.as_str())
        .send(client)
        .await?;
    assert_eq!(listed.data.len(), 1);
    // Expanded: the charge inside a refund, and the refunds inside a charge.
    let charge = RetrieveCharge::new(captured.id)
        .expand(["refunds".to_owned()])
        .send(client)
        .await?;
    assert_eq!(charge.amount_refunded, 500);
    assert_eq!(charge.refunds.map(|refunds| refunds.data.len()), Some(1));
    Ok(())
}

async fn errors(client: &Client, run: u32) -> Result<(), BoxError> {
    let declined = charge(&format!("rust-errors-{run}"))
        .source("tok_chargeDeclinedInsufficientFunds")
        .send(client)
        .await;
    assert_error(declined, 402, "insufficient_funds");
    let missing = RetrieveCharge::new("ch_nobody").send(client).await;
    assert_error(missing, 404, "resource_missing");

    let key = format!("rust-reused-{run}");
    for (amount, is_first) in [(2000, true), (2100, false)] {
        let reply = charge("rust-reused")
            .amount(amount)
            .customize()
            .request_strategy(under(&key)?)
            .send(client)
            .await;
        if is_first {
            reply?;
        } else {
            assert_error(reply, 400, "idempotency_key_reused");
        }
    }
    Ok(())
}

/// This SDK has no name for some codes, but the text of its error contains them.
fn assert_error<T>(reply: Result<T, StripeError>, status: u16, word: &str) {
    match reply {
        Err(StripeError::Stripe(error, got)) => {
            assert_eq!(got, status, "{error:?}");
            let text = format!("{error:?}");
            assert!(text.contains(word), "no {word} in {text}");
        }
        Err(other) => panic!("not the API's error: {other}"),
        Ok(_) => panic!("{word} was expected"),
    }
}
