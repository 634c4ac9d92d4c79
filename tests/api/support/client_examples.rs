//! The examples of `docs/client.md`, as it shows them.

use std::path::Path;

use charge_once_client::{Client, Error, FileKeyStore, NewCharge, NewCheckout, Order, Payment};

/// As `docs/client.md` shows it.
pub async fn buy_a_mug(url: &str, api_key: &str, folder: &Path) -> Result<(), Error> {
    let client = Client::builder(url, api_key)
        .key_store(FileKeyStore::open(folder)?)
        .build()?;
    // First what an earlier process left unfinished.
    let _reports = client.resume().await?;
    // The key is made here.
    let payment = client.create_charge(&NewCharge::new(2000, "usd"))?;
    match payment.send().await {
        Ok(charge) => println!("charged: {}", charge.id),
        Err(Error::Declined(refusal)) => println!("declined: {}", refusal.message),
        // Never to be shown as "failed".
        Err(Error::GaveUp(unknown)) => println!("not known yet: {unknown}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Continues a checkout of which only the name is known.
pub async fn go_on(client: &Client, name: &str) -> Result<Option<Order>, Error> {
    let steps = client.workflow(name).await?;
    let opened = steps.iter().find(|step| step.key == format!("{name}/open"));
    // Nothing is recorded now. That is no "no": it may still arrive.
    let Some(order) = opened.and_then(|step| step.resource.as_ref()) else {
        return Ok(None);
    };
    // Under the key that this step has in any process: where it was paid already, this is a retry.
    let payment = client
        .pay_order(order, &Payment::default())?
        .with_key(format!("{name}/pay"))?
        .with_workflow(name)?;
    payment.send().await.map(Some)
}

/// Sells what is in a cart, once, and says what to tell the customer.
pub async fn sell(client: &Client, cart: &NewCheckout, key: &str) -> Result<String, Error> {
    match client.create_checkout(cart)?.with_key(key)?.send().await {
        Ok(checkout) => Ok(format!("It is yours: {}", checkout.id)),
        // Nothing is left of it. Another attempt is another checkout, under a key of its own.
        Err(Error::Declined(refusal)) => Ok(format!("Another card, please: {}", refusal.message)),
        Err(Error::Invalid(refusal)) if refusal.code == "out_of_stock" => {
            Ok(format!("Fewer, please: {}", refusal.message))
        }
        // It goes on where it stopped: under this key, or by a worker of the service's.
        Err(Error::GaveUp(_)) => Ok("We are still at it.".to_owned()),
        Err(error) => Err(error),
    }
}
