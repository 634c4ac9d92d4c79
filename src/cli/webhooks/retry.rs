//! `charge-once webhooks retry`: sends webhooks again, as "Retry now" in the console does.
//!
//! Promise: it makes deliveries due and sends nothing itself, so a server's workers send them with
//! their limits and signatures. What has been delivered is not sent again.

use std::collections::BTreeMap;

use chrono::Utc;

use crate::{
    cli::{
        BoxError,
        api_key::DEV_ACCOUNT,
        print, say,
        session::{self, OnlyShard},
    },
    config::Config,
    database::Database,
    domain::ids::{AccountId, WebhookDeliveryId, WebhookEndpointId},
    webhooks::{self, Delivery, DeliveryStatus, Slice, deliveries, endpoints},
};

/// Deliveries that are read at a time.
const PAGE_ROWS: i64 = 100;

/// Deliveries that one run makes due: some minutes of a server's work.
const RETRIED_MAX: u64 = 10_000;

/// Which deliveries to send again.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["deliveries", "endpoint"]))]
pub struct RetryArguments {
    /// Deliveries, by the ids that the console and GET /webhook_endpoints/{id}/deliveries show;
    /// at most 100.
    #[arg(value_name = "DELIVERY", num_args = 1..=100, value_parser = delivery_id)]
    deliveries: Vec<WebhookDeliveryId>,
    /// All deliveries to this endpoint that have failed.
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint_id)]
    endpoint: Option<WebhookEndpointId>,
    /// With --endpoint: also those that wait for their next attempt.
    #[arg(long, requires = "endpoint", conflicts_with = "deliveries")]
    pending: bool,
    /// With --endpoint: prints what would be sent, and changes nothing.
    #[arg(long, requires = "endpoint", conflicts_with = "deliveries")]
    dry_run: bool,
    /// The account that they belong to: its name, or its id.
    #[arg(long, value_name = "NAME", default_value = DEV_ACCOUNT)]
    account: String,
}

fn delivery_id(text: &str) -> Result<WebhookDeliveryId, &'static str> {
    WebhookDeliveryId::parse(text).ok_or("it must be the id of a delivery, whd_…")
}

fn endpoint_id(text: &str) -> Result<WebhookEndpointId, &'static str> {
    WebhookEndpointId::parse(text).ok_or("it must be the id of a webhook endpoint, we_…")
}

pub(super) fn run(arguments: &RetryArguments) -> Result<(), BoxError> {
    let config = Config::from_env()?;
    session::for_account(
        &config,
        &arguments.account,
        &OnlyShard::default(),
        async |database, account| match arguments.endpoint {
            Some(endpoint) => retry_endpoint(database, account, endpoint, arguments).await,
            None => retry_each(database, account, arguments).await,
        },
    )
}

/// Those that were named. All are tried, and the command fails if one of them isn't sent again.
async fn retry_each(
    database: &Database,
    account: AccountId,
    arguments: &RetryArguments,
) -> Result<(), BoxError> {
    let mut left = 0;
    for &id in &arguments.deliveries {
        let outcome = match make_due(database, account, id).await? {
            Some(true) => "due now",
            Some(false) => {
                left += 1;
                "left as it is: it was delivered, it is being sent now, or its endpoint is deleted"
            }
            None => {
                left += 1;
                "not found: the account has no such delivery, or it is older than events are kept"
            }
        };
        print(&format!("{id}  {outcome}"))?;
    }
    if left > 0 {
        let all = arguments.deliveries.len();
        return Err(format!("{left} of {all} will not be sent again").into());
    }
    say("a running server sends them within seconds");
    Ok(())
}

/// Those to an endpoint that have failed, and, if asked for, those that wait. Prints how many there
/// are of each type of event, and in all.
async fn retry_endpoint(
    database: &Database,
    account: AccountId,
    endpoint: WebhookEndpointId,
    &RetryArguments {
        pending, dry_run, ..
    }: &RetryArguments,
) -> Result<(), BoxError> {
    let finding = database
        .read(move |connection| Box::pin(endpoints::find(connection, account.0, endpoint.0)));
    let found = finding.await?.ok_or_else(|| {
        format!("--endpoint: the account has no webhook endpoint {endpoint}; set --account?")
    })?;
    if found.disabled {
        return Err(format!(
            "--endpoint: {endpoint} is disabled, and what is sent there fails at once. Enable it \
             first: POST /webhook_endpoints/{endpoint} with disabled=false"
        )
        .into());
    }
    let (mut retried, mut slice) = (0, Slice::newest(PAGE_ROWS));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    while retried < RETRIED_MAX {
        let reading = database.read(move |connection| {
            let (account, endpoint) = (account.0, endpoint.0);
            Box::pin(async move { deliveries::list(connection, account, endpoint, &slice).await })
        });
        let listed = reading.await?;
        let Some(last) = listed.last() else { break };
        slice.below = last.id;
        for delivery in listed.iter().filter(|one| is_wanted(one, pending)) {
            let id = WebhookDeliveryId(delivery.id);
            if dry_run || make_due(database, account, id).await? == Some(true) {
                retried += 1;
                *counts.entry(delivery.event_type.clone()).or_default() += 1;
            }
        }
    }
    if retried == 0 {
        say("nothing to send again: no delivery to this endpoint has failed");
        return Ok(());
    }
    for (event_type, count) in counts {
        print(&format!("{count:>6}  {event_type}"))?;
    }
    let what = if dry_run { "would be due" } else { "due now" };
    print(&format!("{retried:>6}  {what}"))?;
    match (dry_run, retried) {
        (true, _) => say("nothing was changed"),
        (false, RETRIED_MAX..) => say("there may be more: run it again"),
        (false, _) => say("a running server sends them within seconds"),
    }
    Ok(())
}

fn is_wanted(delivery: &Delivery, with_pending: bool) -> bool {
    match delivery.status {
        DeliveryStatus::Failed => true,
        // What is due already needs no help.
        DeliveryStatus::Pending => {
            with_pending && delivery.next_attempt_at.is_some_and(|at| at > Utc::now())
        }
        DeliveryStatus::Succeeded => false,
    }
}

async fn make_due(
    database: &Database,
    account: AccountId,
    id: WebhookDeliveryId,
) -> Result<Option<bool>, BoxError> {
    let making = database.write(move |tx| Box::pin(webhooks::retry_now(tx, account.0, id.0)));
    Ok(making.await?)
}
