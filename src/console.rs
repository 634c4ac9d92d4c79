//! What the pages of the console are made of; `crates/console` shows them.
//!
//! Promise: the console exists only with `CONSOLE=true`. Each answer is about the account that is
//! asked for.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use actix_web::{
    ResponseError,
    http::header::HeaderMap,
    web::{Bytes, Data, Payload, ServiceConfig},
};
pub use charge_once_console::PlaygroundError;
use charge_once_console::{
    Account, Answer, Console, Delivery, Happened, InFlight, Kind, Line, Listed, Logged, Object,
    Refusal, Server, Story, WebhookEndpoint, routes,
};
use charge_once_edge::read_body;
use charge_once_pages::{Cursor, Page};
use charge_once_request_log::{self as request_log, COUNTED_MAX, LoggedRequest, count_replays};
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    database::PgConnection,
    domain::{
        ids::{
            AccountId, ChargeId, CheckoutId, CustomerId, EventId, OrderId, PaymentIntentId,
            PaymentMethodId, RefundId, RequestId, SetupIntentId, WebhookDeliveryId,
            WebhookEndpointId,
        },
        money::Money,
        test_cards::TEST_CARDS,
    },
    http::{
        App, Apps, allow,
        error::HttpError,
        request::{authenticate, before_work},
    },
    idempotency::{FailureKind, IdempotencyKey},
    store::{
        self,
        key_story::{self, KeyStory},
    },
    webhooks::{self, Slice, deliveries, endpoints, events},
    wire::{
        charges::ChargeView,
        checkouts::CheckoutView,
        customers::AnyCustomerView,
        events::key_of_client,
        orders::OrderView,
        payment_intents::PaymentIntentView,
        payment_methods::PaymentMethodView,
        refunds::RefundView,
        setup_intents::SetupIntentView,
        webhook_endpoints::{ENDPOINTS_MAX, WebhookEndpointView},
    },
};

/// The pages of a server. Cheap to clone.
#[derive(Clone)]
pub struct Pages {
    console: Data<Console>,
    server: Data<dyn Server>,
}

impl Pages {
    /// Of the server that listens on `address` and takes requests to `host`.
    pub fn of(apps: Apps, address: SocketAddr, host: &str) -> Result<Self, PlaygroundError> {
        let tokens = TEST_CARDS.iter().flat_map(|card| card.tokens);
        let server: Arc<dyn Server> = Arc::new(AccountPages(apps));
        Ok(Self {
            console: Data::new(Console::new(address, host, tokens.copied().collect())?),
            server: server.into(),
        })
    }

    /// Adds their routes.
    pub fn routes(&self, services: &mut ServiceConfig) {
        services
            .app_data(self.console.clone())
            .app_data(self.server.clone());
        routes(services, allow);
    }
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Self {
        Self {
            status: error.status_code(),
            message: error.message().to_owned(),
        }
    }
}

/// An account's pages are made of what its own database has.
struct AccountPages(Apps);

impl AccountPages {
    async fn of(&self, account: AccountId) -> Result<&App, Refusal> {
        let home = match &*self.0 {
            [_] => Some(0),
            [first, ..] => first.api_keys.home_of(account).await?,
            [] => None,
        };
        let app = home.and_then(|home| self.0.get(home));
        let gone = || HttpError::failed(FailureKind::Unavailable);
        Ok(app.ok_or_else(gone)?)
    }

    /// For what is the same in all of them.
    fn any(&self) -> Result<&App, Refusal> {
        let first = self.0.first();
        Ok(first.ok_or_else(|| HttpError::failed(FailureKind::Internal))?)
    }
}

impl Server for AccountPages {
    fn account_of<'a>(&'a self, api_key: &'a str, client: Option<IpAddr>) -> Answer<'a, Account> {
        Box::pin(async move {
            let app = self.any()?;
            let account = authenticate(app, api_key, client).await?;
            let faults = app.faults.as_ref();
            Ok(Account {
                id: account.id.0,
                may_lose_replies: faults.is_some_and(|faults| faults.act_on(account)),
            })
        })
    }

    fn read_body<'a>(
        &'a self,
        headers: &'a HeaderMap,
        payload: Payload,
        limit: usize,
    ) -> Answer<'a, Bytes> {
        Box::pin(async move {
            let body = read_body(headers, payload, limit, before_work(self.any()?)).await;
            Ok(body.map_err(HttpError::from)?)
        })
    }

    fn requests<'a>(
        &'a self,
        account: Uuid,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<Vec<Logged>>> {
        let account = AccountId(account);
        Box::pin(async move {
            let Some(below) = below(before, |id| Some(RequestId::parse(id)?.0)) else {
                return Ok(None);
            };
            let requests = self
                .of(account)
                .await?
                .snapshot(account, move |connection| {
                    Box::pin(async move {
                        let limit = rows(limit);
                        let log = request_log::list(connection, account.0, below, limit).await?;
                        let keys = log.iter().filter_map(|one| one.idempotency_key.clone());
                        let keys: HashSet<_> = keys.collect();
                        let keys: Vec<_> = keys.into_iter().collect();
                        let replays = count_replays(connection, account.0, &keys).await?;
                        let requests = log.into_iter().map(|one| {
                            let key = one.idempotency_key.as_ref();
                            let count = key.and_then(|key| replays.get(key)).copied();
                            logged(one, count.unwrap_or(0))
                        });
                        Ok(requests.collect())
                    })
                });
            Ok(Some(requests.await?))
        })
    }

    fn story(&self, account: Uuid, key: IdempotencyKey, requests_max: usize) -> Answer<'_, Story> {
        let text = key.as_str().to_owned();
        Box::pin(async move {
            let account = AccountId(account);
            let app = self.of(account).await?;
            let found = app.idempotency.inspect(account.0, key).await;
            let found = found.map_err(HttpError::failed_without_key)?;
            let first = found.request();
            let reading = app.snapshot(account, move |connection| {
                Box::pin(async move {
                    let executed = first.as_ref().map(|first| &*first.request_id);
                    let max = rows(requests_max);
                    key_story::read(connection, account, &text, executed, max).await
                })
            });
            let KeyStory { requests, events } = reading.await?;
            Ok(Story {
                found,
                requests: requests.into_iter().map(|one| logged(one, 0)).collect(),
                events: events.into_iter().map(happened).collect(),
            })
        })
    }

    fn in_flight(&self, account: Uuid, keys_max: usize) -> Answer<'_, InFlight> {
        Box::pin(async move {
            let app = self.of(AccountId(account)).await?;
            let mut here = app.idempotency.in_flight_here(account);
            for (_, request) in &mut here {
                let id = RequestId::parse(&request.request_id);
                request.created_at = request.created_at.or(id.map(RequestId::made_at));
            }
            let leased = app.idempotency.leased_keys(account, keys_max).await;
            Ok((here, leased.map_err(HttpError::failed_without_key)?))
        })
    }

    fn objects<'a>(
        &'a self,
        account: Uuid,
        kind: Kind,
        after: Option<&'a str>,
        limit: i64,
    ) -> Answer<'a, Option<Listed>> {
        let account = AccountId(account);
        Box::pin(async move {
            let cursor = match after {
                None => Cursor::Start,
                Some(id) => match parse(kind, id) {
                    Some(id) => Cursor::StartingAfter(id),
                    None => return Ok(None),
                },
            };
            let page = Page {
                limit,
                cursor,
                created_from: None,
                created_before: None,
            };
            let listed = self.of(account).await?.read(account, move |connection| {
                Box::pin(async move { list(connection, account, kind, &page).await })
            });
            Ok(listed.await?)
        })
    }

    fn object<'a>(&'a self, account: Uuid, kind: Kind, id: &'a str) -> Answer<'a, Option<Object>> {
        let (account, name) = (AccountId(account), id.to_owned());
        Box::pin(async move {
            let Some(id) = parse(kind, id) else {
                return Ok(None);
            };
            let found = self
                .of(account)
                .await?
                .snapshot(account, move |connection| {
                    Box::pin(async move {
                        let Some(json) = find(&mut *connection, account, kind, id).await? else {
                            return Ok(None);
                        };
                        let of = parent(kind);
                        let events =
                            events::list_of_object(connection, account.0, id, &name, of).await?;
                        let events = events.into_iter().map(happened).collect();
                        Ok(Some(Object { json, events }))
                    })
                });
            Ok(found.await?)
        })
    }

    fn deliveries<'a>(
        &'a self,
        account: Uuid,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<Vec<Delivery>>> {
        let account = AccountId(account);
        Box::pin(async move {
            let Some(below) = below(before, |id| Some(WebhookDeliveryId::parse(id)?.0)) else {
                return Ok(None);
            };
            let reading = self.of(account).await?.read(account, move |connection| {
                let limit = rows(limit);
                Box::pin(deliveries::list_of_account(
                    connection, account.0, below, limit,
                ))
            });
            Ok(Some(reading.await?.into_iter().map(delivery).collect()))
        })
    }

    fn webhook_endpoints(&self, account: Uuid) -> Answer<'_, Vec<WebhookEndpoint>> {
        let account = AccountId(account);
        Box::pin(async move {
            let reading = self.of(account).await?.read(account, move |connection| {
                let all = Slice::newest(ENDPOINTS_MAX);
                Box::pin(async move { endpoints::list(connection, account.0, &all).await })
            });
            let found = reading.await?.unwrap_or_default();
            Ok(found.iter().map(webhook_endpoint).collect())
        })
    }

    fn retry_delivery<'a>(&'a self, account: Uuid, id: &'a str) -> Answer<'a, Option<bool>> {
        let account = AccountId(account);
        Box::pin(async move {
            let Some(id) = WebhookDeliveryId::parse(id) else {
                return Ok(None);
            };
            let app = self.of(account).await?;
            let retrying = app.write(account, move |tx| {
                Box::pin(webhooks::retry_now(tx, account.0, id.0))
            });
            let is_due = retrying.await?;
            if is_due == Some(true) {
                app.wake_webhooks.notify_one();
            }
            Ok(is_due)
        })
    }
}

/// What the id of a list's first row is below. `None`: `before` is no id.
fn below(before: Option<&str>, parse: impl Fn(&str) -> Option<Uuid>) -> Option<Uuid> {
    before.map_or(Some(Uuid::max()), parse)
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn parse(kind: Kind, id: &str) -> Option<Uuid> {
    Some(match kind {
        Kind::Charges => ChargeId::parse(id)?.0,
        Kind::PaymentIntents => PaymentIntentId::parse(id)?.0,
        Kind::Customers => CustomerId::parse(id)?.0,
        Kind::PaymentMethods => PaymentMethodId::parse(id)?.0,
        Kind::SetupIntents => SetupIntentId::parse(id)?.0,
        Kind::Orders => OrderId::parse(id)?.0,
        Kind::Refunds => RefundId::parse(id)?.0,
        Kind::Checkouts => CheckoutId::parse(id)?.0,
    })
}

/// The member of other objects' events that names such an object.
fn parent(kind: Kind) -> &'static str {
    match kind {
        Kind::Charges | Kind::Orders | Kind::Refunds | Kind::Checkouts => "charge",
        Kind::PaymentIntents => "payment_intent",
        Kind::Customers => "customer",
        Kind::PaymentMethods | Kind::SetupIntents => "payment_method",
    }
}

async fn list(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    page: &Page,
) -> Result<Option<Listed>, sqlx::Error> {
    macro_rules! all {
        ($store:ident, $line:expr) => {{
            let found = store::$store::list(connection, account, page, Default::default()).await?;
            found.map(|found| Listed {
                lines: found.data.iter().map($line).collect(),
                has_more: found.has_more,
            })
        }};
    }
    Ok(match kind {
        Kind::Charges => all!(charges, |one| {
            let state = match one.amount_refunded {
                1.. => "refunded",
                _ => one.status.as_str(),
            };
            line(one.id, one.created_at, one.amount, state)
        }),
        Kind::PaymentIntents => all!(payment_intents, |one| {
            let (amount, state) = (one.terms.amount, one.status.as_str());
            line(one.id, one.created_at, amount, state)
        }),
        Kind::Customers => all!(customers, |one| {
            let about = one.details.email.clone().unwrap_or_default();
            line_about(one.id, one.created_at, about, "exists")
        }),
        // They are listed by customer, and here through their customers' events.
        Kind::PaymentMethods => None,
        Kind::SetupIntents => all!(setup_intents, |one| {
            let about = one.terms.usage.as_str().to_owned();
            line_about(one.id, one.created_at, about, one.status.as_str())
        }),
        Kind::Orders => {
            all!(orders, |one| line(
                one.id,
                one.created_at,
                one.amount,
                one.status.as_str()
            ))
        }
        Kind::Refunds => {
            all!(refunds, |one| line(
                one.id,
                one.created_at,
                one.amount,
                one.status.as_str()
            ))
        }
        Kind::Checkouts => {
            all!(checkouts, |one| line(
                one.id,
                one.created_at,
                one.amount,
                one.status.as_str()
            ))
        }
    })
}

fn line(id: impl ToString, created_at: DateTime<Utc>, amount: Money, state: &'static str) -> Line {
    let about = format!("{} {}", amount.minor_units, amount.currency);
    line_about(id, created_at, about, state)
}

fn line_about(
    id: impl ToString,
    created_at: DateTime<Utc>,
    about: String,
    state: &'static str,
) -> Line {
    Line {
        id: id.to_string(),
        created_at,
        about,
        state,
    }
}

/// An object as the API shows it.
async fn find(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    id: Uuid,
) -> Result<Option<Vec<u8>>, sqlx::Error> {
    macro_rules! shown {
        ($store:ident, $id:ident, $view:ident) => {{
            let found = store::$store::find(connection, account, $id(id)).await?;
            found.map(|object| json(&$view::from(&object)))
        }};
    }
    Ok(match kind {
        Kind::Charges => shown!(charges, ChargeId, ChargeView),
        Kind::PaymentIntents => shown!(payment_intents, PaymentIntentId, PaymentIntentView),
        Kind::Customers => shown!(customers, CustomerId, AnyCustomerView),
        Kind::PaymentMethods => shown!(payment_methods, PaymentMethodId, PaymentMethodView),
        Kind::SetupIntents => shown!(setup_intents, SetupIntentId, SetupIntentView),
        Kind::Orders => shown!(orders, OrderId, OrderView),
        Kind::Refunds => shown!(refunds, RefundId, RefundView),
        Kind::Checkouts => store::checkouts::find(connection, account, CheckoutId(id))
            .await?
            .map(|run| json(&CheckoutView::from(&run.checkout))),
    })
}

fn json(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).unwrap_or_default()
}

/// Replays beyond the number that is counted are not counted.
fn logged(request: LoggedRequest, replays: i64) -> Logged {
    let id = RequestId(request.id);
    let more = if replays >= COUNTED_MAX { "+" } else { "" };
    Logged {
        id: id.to_string(),
        came_at: id.made_at(),
        method: request.method,
        path: request.path.unwrap_or(request.route),
        idempotency_key: request.idempotency_key,
        status: request.status,
        outcome: request.outcome.as_str(),
        duration: request.duration,
        replays: format!("{replays}{more}"),
    }
}

fn happened(event: events::Happened) -> Happened {
    Happened {
        id: EventId(event.id).to_string(),
        event_type: event.event_type,
        object_id: event.object_id,
        idempotency_key: key_of_client(event.idempotency_key),
        created_at: event.created_at,
    }
}

fn webhook_endpoint(endpoint: &webhooks::Endpoint) -> WebhookEndpoint {
    let view = WebhookEndpointView::from(endpoint);
    WebhookEndpoint {
        id: view.id,
        url: view.url,
        enabled_events: view.enabled_events,
        never_sent: view.never_sent,
        status: view.status,
    }
}

fn delivery(delivery: webhooks::Delivery) -> Delivery {
    Delivery {
        id: WebhookDeliveryId(delivery.id).to_string(),
        created_at: delivery.created_at,
        event_type: delivery.event_type,
        event: EventId(delivery.event_id).to_string(),
        endpoint: WebhookEndpointId(delivery.endpoint_id).to_string(),
        status: delivery.status.as_str(),
        attempts: delivery.attempts.len(),
        last_answer: delivery.attempts.last().map(ToString::to_string),
        next_attempt_at: delivery.next_attempt_at,
    }
}
