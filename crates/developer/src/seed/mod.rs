//! `charge-once seed`: fills an account with data, through a running service.
//!
//! Promise: each entry is created once, however often the command is run, and wherever an earlier
//! run was stopped. An entry's idempotency keys are computed from the seed's name and from what the
//! entry says, so the service answers a second run from its records. Once the service may have
//! forgotten the first keys, the command refuses: the order that each first run opens has a
//! `client_order_id`, which is never forgotten.

mod payments;
mod plan;
mod shop;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    time::Duration,
};

use charge_once_client::{
    Capture, Charge, Checkout, Client, Error, NewCharge, NewCheckout, NewItem, NewOrder, NewRefund,
    Order, Payment, Refund, Request,
};
use chrono::Utc;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use self::plan::{
    Level, OrderStatus, Plan, PlannedCharge, PlannedCheckout, PlannedItem, PlannedOrder,
};
use super::{
    BoxError, print, say,
    service::{self, AFTER_HELP, Service},
};

const DEADLINE: Duration = Duration::from_secs(60);

/// How long the first one is tried: where there is no service, it says so soon.
const FIRST_DEADLINE: Duration = Duration::from_secs(5);

/// Longest name of a seed: it is a part of ids that the service limits.
const NAME_MAX_CHARS: usize = 64;

/// How long the first keys must still be known for another run to begin: longer than any run.
const REMAINING_SECONDS_MIN: i64 = 600;

/// Progress is told each time that so many entries are done.
const PROGRESS_ENTRIES: usize = 25;

/// Bytes of a digest in an idempotency key.
const DIGEST_BYTES: usize = 16;

/// What to create, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct SeedArguments {
    #[command(flatten)]
    service: Service,
    /// The name of this data: letters, digits, dots, dashes and underscores, at most 64. The same
    /// name again creates nothing twice, and another name makes other data.
    #[arg(long, value_name = "NAME", default_value = "shop", value_parser = name)]
    seed: String,
    /// How many orders the made-up shop has; checkouts and charges come with them.
    #[arg(
        long,
        default_value_t = 36,
        value_parser = clap::value_parser!(u16).range(1..=1000),
        conflicts_with = "file"
    )]
    orders: u16,
    /// Your own data in place of the made-up shop, as JSON; docs/testing.md has the format.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if text.is_empty() || text.len() > NAME_MAX_CHARS || !text.chars().all(is_plain) {
        return Err(format!(
            "it must have 1 to {NAME_MAX_CHARS} letters, digits, dots, dashes and underscores"
        ));
    }
    Ok(text.to_owned())
}

/// Runs it to its end.
pub fn run(arguments: &SeedArguments) -> Result<(), BoxError> {
    let plan = match &arguments.file {
        Some(path) => Plan::read(path)?,
        None => shop::shop(&arguments.seed, usize::from(arguments.orders)),
    };
    service::block_on(seed(arguments, &plan), || {
        Err("stopped; run it again with the same arguments, and it goes on".into())
    })
}

async fn seed(arguments: &SeedArguments, plan: &Plan) -> Result<(), BoxError> {
    let service = &arguments.service;
    let mut seeder = Seeder {
        client: service.client(DEADLINE)?,
        service,
        seed: &arguments.seed,
        entries: HashMap::new(),
        total: plan.len(),
        done: 0,
        requests: 0,
        replays: 0,
        refusals: 0,
        tally: BTreeMap::new(),
    };
    seeder.begin().await?;
    seeder
        .each("inventory", &plan.inventory, Seeder::level)
        .await?;
    seeder.each("orders", &plan.orders, Seeder::order).await?;
    seeder
        .each("checkouts", &plan.checkouts, Seeder::checkout)
        .await?;
    seeder
        .each("charges", &plan.charges, Seeder::charge)
        .await?;
    seeder
        .each("customers", &plan.customers, Seeder::customer)
        .await?;
    seeder
        .each("payment_intents", &plan.payment_intents, Seeder::payment)
        .await?;
    seeder.report()
}

struct Seeder<'a> {
    client: Client,
    service: &'a Service,
    seed: &'a str,
    /// How often each entry occurred so far, by its digest.
    entries: HashMap<String, u32>,
    total: usize,
    done: usize,
    requests: u64,
    /// Answered by what an earlier run did.
    replays: u64,
    /// Declined, or out of stock.
    refusals: u64,
    /// How many entries ended how.
    tally: BTreeMap<&'static str, u64>,
}

impl Seeder<'_> {
    /// Opens the order that says when this seed was first used. Refuses if its key is not known
    /// any more, or not for long enough: what was created then would be created again.
    async fn begin(&self) -> Result<(), BoxError> {
        let explain = |error| self.service.explain(error);
        let key = format!("seed-{}", self.seed);
        let mark = NewOrder {
            currency: "usd".to_owned(),
            items: vec![NewItem {
                sku: None,
                description: Some("Marks that this account was seeded. Nothing to pay.".to_owned()),
                quantity: 1,
                unit_amount: 1,
            }],
            client_order_id: Some(key.clone()),
            ..NewOrder::default()
        };
        let client = self.service.client(FIRST_DEADLINE)?;
        let request = client.create_order(&mark);
        let request = request.and_then(|request| request.with_key(&key));
        let sent = request.map_err(explain)?.send_for_reply().await;
        let reply = sent.map_err(|error| {
            if let Error::Invalid(refusal) | Error::KeyReused(refusal) = &error {
                return BoxError::from(format!(
                    "--seed: another order or request of yours is named {key}; choose another \
                     name ({refusal})"
                ));
            }
            explain(error)
        })?;
        let known_for = if reply.replayed {
            let known = client.look_up_key(&key).await.map_err(explain)?;
            known.expires.map_or(0, |at| at - Utc::now().timestamp())
        } else {
            i64::MAX
        };
        // 201 says that this key made the order. 200: another key did, which is forgotten.
        if reply.status != 201 || known_for < REMAINING_SECONDS_MIN {
            return Err(format!(
                "the seed {0:?} was used before, and the service forgets the keys of that run: \
                 using it again could charge again. Choose another name: --seed {0}-2",
                self.seed
            )
            .into());
        }
        Ok(())
    }

    /// The keys of an entry: a digest of what it says, counted where entries are equal.
    fn keys(&mut self, of: &str, entry: &impl Serialize) -> Result<String, Error> {
        let entry = serde_json::to_vec(entry)
            .map_err(|error| Error::Unusable(format!("an entry can't be written: {error}")))?;
        let mut hash = Sha256::new();
        hash.update(of.as_bytes());
        hash.update([0]);
        hash.update(entry);
        let digest = hex::encode(hash.finalize().get(..DIGEST_BYTES).unwrap_or_default());
        let count = self.entries.entry(digest.clone()).or_default();
        *count += 1;
        Ok(format!("seed-{}-{digest}-{count}", self.seed))
    }

    /// Sends under `key`, and counts.
    async fn send<T: DeserializeOwned>(
        &mut self,
        request: Request<T>,
        key: String,
    ) -> Result<T, Error> {
        let request = request.with_key(key)?;
        let sent = request.send_for_reply().await;
        self.requests += 1;
        let is_refused = matches!(sent, Err(Error::Declined(_) | Error::Invalid(_)));
        self.refusals += u64::from(is_refused);
        let reply = sent?;
        self.replays += u64::from(reply.replayed);
        reply.object()
    }

    async fn level(&mut self, level: &Level) -> Result<&'static str, Error> {
        let key = self.keys("inventory", level)?;
        let request = self.client.set_inventory(&level.sku, level.quantity)?;
        self.send(request, key).await?;
        Ok("inventory levels")
    }

    async fn order(&mut self, order: &PlannedOrder) -> Result<&'static str, Error> {
        let key = self.keys("order", order)?;
        let request = self.client.create_order(&NewOrder {
            currency: order.currency.clone(),
            items: items(&order.items),
            customer: order.customer.clone(),
            client_order_id: order.client_order_id.clone(),
            metadata: order.metadata.clone(),
        })?;
        let made: Order = self.send(request, key.clone()).await?;
        match order.status {
            OrderStatus::Open => Ok("orders, open"),
            OrderStatus::Canceled => {
                let request = self.client.cancel_order(&made.id)?;
                self.send(request, format!("{key}-cancel")).await?;
                Ok("orders, canceled")
            }
            OrderStatus::Paid => {
                let source = order.source.clone();
                let request = self.client.pay_order(&made.id, &Payment { source })?;
                let paid: Order = match self.send(request, format!("{key}-pay")).await {
                    Err(Error::Declined(_)) => return Ok("orders, open after a decline"),
                    paid => paid?,
                };
                let charge = paid.charge.unwrap_or_default();
                self.refunds(&charge, &order.refunds, &key).await?;
                Ok(if order.refunds.is_empty() {
                    "orders, paid"
                } else {
                    "orders, paid and refunded"
                })
            }
        }
    }

    async fn checkout(&mut self, checkout: &PlannedCheckout) -> Result<&'static str, Error> {
        let key = self.keys("checkout", checkout)?;
        let request = self.client.create_checkout(&NewCheckout {
            currency: checkout.currency.clone(),
            items: items(&checkout.items),
            source: checkout.source.clone(),
            customer: checkout.customer.clone(),
            metadata: checkout.metadata.clone(),
        })?;
        match self.send::<Checkout>(request, key).await {
            Ok(_) => Ok("checkouts, completed"),
            Err(Error::Declined(_)) => Ok("checkouts, declined"),
            Err(Error::Invalid(refusal)) if refusal.code == "out_of_stock" => {
                Ok("checkouts, out of stock")
            }
            Err(error) => Err(error),
        }
    }

    async fn charge(&mut self, charge: &PlannedCharge) -> Result<&'static str, Error> {
        let key = self.keys("charge", charge)?;
        let request = self.client.create_charge(&NewCharge {
            amount: charge.amount,
            currency: charge.currency.clone(),
            source: charge.source.clone(),
            capture: charge.capture,
            customer: charge.customer.clone(),
            description: charge.description.clone(),
            statement_descriptor: charge.statement_descriptor.clone(),
            receipt_email: charge.receipt_email.clone(),
            metadata: charge.metadata.clone(),
        })?;
        let made: Charge = match self.send(request, key.clone()).await {
            Err(Error::Declined(_)) => return Ok("charges, declined"),
            made => made?,
        };
        if let Some(amount) = charge.capture_amount {
            let amount = Some(amount);
            let request = self.client.capture_charge(&made.id, &Capture { amount })?;
            self.send(request, format!("{key}-capture")).await?;
        }
        self.refunds(&made.id, &charge.refunds, &key).await?;
        let is_promise = charge.capture == Some(false) && charge.capture_amount.is_none();
        Ok(match (is_promise, charge.refunds.is_empty()) {
            (true, true) => "charges, authorized",
            (true, false) => "charges, released",
            (false, true) => "charges, captured",
            (false, false) => "charges, refunded",
        })
    }

    async fn refunds(&mut self, charge: &str, amounts: &[i64], key: &str) -> Result<(), Error> {
        for (index, amount) in amounts.iter().enumerate() {
            let request = self.client.create_refund(&NewRefund {
                charge: charge.to_owned(),
                amount: Some(*amount),
                reason: Some("requested_by_customer".to_owned()),
                ..NewRefund::default()
            })?;
            let _: Refund = self.send(request, format!("{key}-refund-{index}")).await?;
        }
        Ok(())
    }

    /// Creates the entries of a section. An error names the entry.
    async fn each<T>(
        &mut self,
        section: &str,
        entries: &[T],
        create: impl AsyncFn(&mut Self, &T) -> Result<&'static str, Error>,
    ) -> Result<(), BoxError> {
        for (index, entry) in entries.iter().enumerate() {
            let state = create(self, entry).await.map_err(|error| {
                let is_refused = matches!(error, Error::Invalid(_) | Error::Unusable(_));
                let remedy = if is_refused {
                    "correct it, and run the command again: what is created already stays as it is"
                } else {
                    "run the command again with the same arguments, and it goes on"
                };
                let error = self.service.explain(error);
                format!("{section}[{index}]: {error}; {remedy}")
            })?;
            self.count(state);
        }
        Ok(())
    }

    /// Counts an entry that is done, and tells the progress.
    fn count(&mut self, state: &'static str) {
        *self.tally.entry(state).or_default() += 1;
        self.done += 1;
        if self.done.is_multiple_of(PROGRESS_ENTRIES) || self.done == self.total {
            say(&format!("{} of {} entries", self.done, self.total));
        }
    }

    fn report(&self) -> Result<(), BoxError> {
        for (state, count) in &self.tally {
            print(&format!("{count:>6}  {state}"))?;
        }
        let Self {
            requests,
            replays,
            refusals,
            ..
        } = self;
        let done = requests - replays - refusals;
        print(&format!(
            "{requests} requests: {done} done now, {replays} done by an earlier run, {refusals} \
             refused as planned"
        ))
    }
}

fn items(planned: &[PlannedItem]) -> Vec<NewItem> {
    let item = |item: &PlannedItem| NewItem {
        sku: item.sku.clone(),
        description: item.description.clone(),
        quantity: item.quantity,
        unit_amount: item.unit_amount,
    };
    planned.iter().map(item).collect()
}
