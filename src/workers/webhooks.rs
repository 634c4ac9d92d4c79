//! What this program adds to the delivery of webhooks: the event as clients see it, metrics, log
//! lines and spans, and the faults that test accounts plan.

use std::time::Duration;

use charge_once_strict_params::card_numbers::holds_card_number;
use futures_util::future::BoxFuture;
use sqlx::error::BoxDynError;
use tracing::{Span, field::Empty};

use crate::{
    config::Config,
    database::Database,
    domain::{
        fault_plan::{FaultPlan, PlannedFault, targets_of_event},
        ids::{AccountId, EventId, WebhookDeliveryId, WebhookEndpointId},
    },
    idempotency::acknowledged,
    store::{fault_plans, test_accounts},
    telemetry::{
        metrics::Metrics,
        traces::{self, TARGET},
    },
    webhooks::{Attempt, Claimed, DeliveryFault, Event, Interference, Observer, Pauses, Settings},
    wire::events::EventView,
};

/// The event as `GET /events/{id}` shows it, but for the version, which is the endpoint's if it has
/// one.
pub fn body(event: &Event) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&EventView::from(event.clone()))
}

/// What receivers see of the sender, with defaults for the rest.
pub fn sender_settings() -> Settings {
    Settings {
        user_agent: concat!("charge-once/", env!("CARGO_PKG_VERSION")),
        // The name that Stripe's libraries look for.
        signature_header: "stripe-signature",
        standard_id: |event| EventId(event.id).to_string(),
        traceparent: traces::traceparent,
        commit: |tx| Box::pin(acknowledged(tx.commit())),
        ..Settings::default()
    }
}

/// As the configuration says.
pub fn worker_settings(config: &Config) -> Settings {
    let values = &config.values;
    Settings {
        allow_private: values.webhook_allow_private,
        timeout: values.webhook_timeout,
        pauses: Pauses {
            min: values.webhook_retry_min,
            max: values.webhook_retry_max,
        },
        poll_interval: values.webhook_poll_interval,
        database_deadline: values.database_deadline,
        // Only the console shows them.
        keeps_replies: values.console.then_some(|reply| !holds_card_number(reply)),
        ..sender_settings()
    }
}

/// Counts attempts, writes lines about them, and makes them a part of the trace in which the event
/// was written.
impl Observer for Metrics {
    fn begins(&self, delivery: &Claimed) -> Span {
        if let Some(lag) = delivery.lag() {
            self.webhook_lag.record(lag);
        }
        let span = tracing::info_span!(
            target: TARGET,
            "send webhook",
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = "POST",
            http.request.resend_count = delivery.attempts,
            http.response.status_code = Empty,
            charge_once.request_id = delivery.event.request_id,
            charge_once.account = %AccountId(delivery.account_id),
            charge_once.delivery = %WebhookDeliveryId(delivery.id),
            charge_once.endpoint = %WebhookEndpointId(delivery.endpoint_id),
        );
        if let Some(traceparent) = &delivery.traceparent {
            traces::continue_trace(&span, traceparent);
        }
        span
    }

    fn ended(&self, delivery: &Claimed, attempt: &Attempt, again: Option<Duration>) {
        let (status, error) = (attempt.response_status, attempt.error.as_deref());
        let endpoint = WebhookEndpointId(delivery.endpoint_id);
        let delivery = WebhookDeliveryId(delivery.id);
        if attempt.is_refused {
            // Without the host: it belongs to the account, and names may be secret.
            tracing::warn!(
                %delivery,
                %endpoint,
                "a webhook was not sent: its host has a private, local or reserved address, which only \
                 WEBHOOK_ALLOW_PRIVATE=true allows"
            );
        }
        let attempts = match again {
            _ if attempt.succeeded() => {
                tracing::debug!(%delivery, %endpoint, "delivered a webhook");
                &self.webhook_succeeded
            }
            Some(pause) => {
                tracing::debug!(%delivery, %endpoint, status, error, ?pause, "a webhook was not taken");
                &self.webhook_retried
            }
            None => {
                tracing::warn!(%delivery, %endpoint, status, error, "gave a webhook up");
                &self.webhook_failed
            }
        };
        attempts.increment(1);
        let ms = u64::try_from(attempt.duration_ms).unwrap_or_default();
        self.webhook_seconds.record(Duration::from_millis(ms));
    }
}

/// Has the fault plans of a database act on the webhooks of test accounts, and on those of
/// `dev_account`.
pub struct WebhookFaults {
    /// The database that has the plans.
    pub database: Database,
    /// The account of DEV_API_KEY.
    pub dev_account: Option<AccountId>,
}

impl WebhookFaults {
    /// The plan that acts on the delivery, which is counted. Nothing is locked where there is none.
    async fn plan(&self, delivery: &Claimed) -> Result<Option<FaultPlan>, BoxDynError> {
        let account = AccountId(delivery.account_id);
        let targets = targets_of_event(&delivery.event.event_type);
        let database = self.database.of(account.0);
        let list = database.read(move |tx| Box::pin(fault_plans::list(tx, account)));
        let plans = list.await?;
        if !plans.iter().any(|plan| targets.contains(&plan.target)) {
            return Ok(None);
        }
        // DEV_API_KEY may have been another account's when the plan was made.
        let is_test = database.read(move |tx| Box::pin(test_accounts::is_one(tx, account)));
        if self.dev_account != Some(account) && !is_test.await? {
            return Ok(None);
        }
        let counted = database.write(move |tx| {
            Box::pin(async move { fault_plans::count(tx, account, &targets).await })
        });
        Ok(counted.await?)
    }
}

impl Interference for WebhookFaults {
    fn fault<'a>(&'a self, delivery: &'a Claimed) -> BoxFuture<'a, Option<DeliveryFault>> {
        Box::pin(async {
            let id = WebhookDeliveryId(delivery.id);
            let plan = self.plan(delivery).await.unwrap_or_else(|error| {
                tracing::warn!(%error, delivery = %id, "no fault plan can act");
                None
            })?;
            tracing::info!(delivery = %id, fault = plan.fault.as_str(), "a planned fault acts");
            let pause = Duration::from_secs(plan.seconds.unsigned_abs());
            match plan.fault {
                PlannedFault::WebhookTwice => Some(DeliveryFault::Twice),
                PlannedFault::WebhookLate | PlannedFault::WebhookOutOfOrder => {
                    Some(DeliveryFault::Late(pause))
                }
                PlannedFault::WebhookLost => Some(DeliveryFault::Lost),
                // No plan about events has one of these.
                PlannedFault::ReplyLost
                | PlannedFault::RequestLost
                | PlannedFault::Delay
                | PlannedFault::InternalError
                | PlannedFault::Unavailable
                | PlannedFault::RateLimited
                | PlannedFault::InUse => None,
            }
        })
    }
}
