//! What the pages of the console are made of; `crates/console` shows them.
//!
//! Promise: the console exists only with `CONSOLE=true`. Each answer is about the account that is
//! asked for, but for the last check.

mod webhook_pages;

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    ResponseError,
    http::header::HeaderMap,
    web::{Bytes, Data, Payload, ServiceConfig},
};
pub use charge_once_console::PlaygroundError;
use charge_once_console::{
    Account, Answer, Attempted, CardGroup, Console, Delivery, Found, FoundDeliveries, Happened,
    InFlight, Kind, LastCheck, Listed, Logged, Minute, Object, Refusal, Searched, Server, Story,
    TestCard, Wanted, WantedDeliveries, WantedOutcome, WebhookEndpoint, routes,
};
use charge_once_postgres::api_keys::names_of_accounts;
use charge_once_service::edge::read_body;
use charge_once_service::request_log::{
    self as request_log, COUNTED_MAX, DURATION_BOUNDS, LoggedOutcome, LoggedRequest, RequestFilter,
    count_replays,
};
use charge_once_strict_params::{
    Expansion,
    pages::{Cursor, NamePage, Page},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    database::PgConnection,
    domain::{
        api_key::is_of_test_mode,
        checkout::Checkout,
        customer::CustomersWith,
        ids::*,
        inventory::sku,
        money::{Currency, Money},
        test_cards::{self, Authentication, Decision, TEST_CARDS},
    },
    http::{
        App, Apps, allow,
        error::HttpError,
        openapi::answer,
        request::{authenticate, before_work},
    },
    idempotency::{
        FailureKind, IdempotencyKey, Inspected, Steps, WantedKeys, WorkflowName, list_leased_keys,
    },
    store::{
        self,
        key_story::{self, KeyStory},
    },
    webhooks::{
        self, Slice,
        deliveries::{self, DeliveryFilter},
        endpoints, events,
    },
    wire::{
        charges::ChargeView,
        checkouts::CheckoutView,
        customers::AnyCustomerView,
        dialect::Dialect,
        events::{EventView, key_of_client},
        inventory::InventoryView,
        orders::OrderView,
        payment_intents::PaymentIntentView,
        payment_methods::PaymentMethodView,
        refunds::RefundView,
        setup_intents::SetupIntentView,
        webhook_endpoints::WebhookEndpointView,
    },
    work::expansions::{Audience, Shown},
};

/// Deliveries of a story, an event or an endpoint that are shown.
const STORY_DELIVERIES_MAX: i64 = 200;

/// Customers with one e-mail address that a search finds.
const CUSTOMERS_MAX: i64 = 10;

/// The pages of a server. Cheap to clone.
#[derive(Clone)]
pub struct Pages {
    console: Data<Console>,
    server: Data<dyn Server>,
}

impl Pages {
    /// Of the server that listens on `address`, takes requests to `host`, and is reached by others
    /// at `public_url`.
    pub fn of(
        apps: Apps,
        address: SocketAddr,
        host: &str,
        public_url: &str,
    ) -> Result<Self, PlaygroundError> {
        let console = Console::new(address, host, public_url, card_groups())?;
        let server: Arc<dyn Server> = Arc::new(AccountPages(apps));
        Ok(Self {
            console: Data::new(console),
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

/// The test cards, by what they do.
fn card_groups() -> Vec<CardGroup> {
    let group = |card: &test_cards::TestCard| match (card.authentication, card.decision) {
        (Authentication::Never, Decision::Approve) => "Charged",
        (Authentication::Never, Decision::Decline(_)) => "Declined",
        (Authentication::Never, Decision::ApproveSlowly | Decision::Outage) => "Slow, or down",
        (_, _) => "Holder authenticates, for a payment intent",
    };
    let mut groups = Vec::<CardGroup>::new();
    for card in TEST_CARDS {
        let (name, says) = (group(card), answer(card));
        let choice = TestCard {
            source: card.token(),
            says,
        };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.cards.push(choice),
            None => groups.push(CardGroup {
                name,
                cards: vec![choice],
            }),
        }
    }
    groups
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Self {
        Self(error.status_code())
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

/// The inventory, which is known by names and not by ids.
impl AccountPages {
    async fn levels(
        &self,
        account: AccountId,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Option<Listed>, Refusal> {
        let cursor = match after {
            None => Cursor::Start,
            // No level has a name that is no sku.
            Some(name) if sku(name.as_bytes()).is_none() => return Ok(None),
            Some(name) => Cursor::StartingAfter(name.to_owned()),
        };
        let page = NamePage { limit, cursor };
        let reading = self.of(account).await?.read(account, move |connection| {
            Box::pin(async move { store::inventory::list(connection, account, &page).await })
        });
        let found = reading.await?;
        let views: Vec<_> = found.data.iter().map(InventoryView::from).collect();
        Ok(Some(listed(&views, found.has_more)))
    }

    async fn level(&self, account: AccountId, name: &str) -> Result<Option<Object>, Refusal> {
        let Some(name) = sku(name.as_bytes()).map(str::to_owned) else {
            return Ok(None);
        };
        let found = self.of(account).await?.read(account, move |connection| {
            Box::pin(async move { store::inventory::find(connection, account, &name).await })
        });
        Ok(found.await?.map(|inventory| Object {
            json: json(&InventoryView::from(&inventory)),
            events: Vec::new(),
            deliveries: Vec::new(),
        }))
    }
}

impl Server for AccountPages {
    fn account_of<'a>(&'a self, api_key: &'a str, client: Option<IpAddr>) -> Answer<'a, Account> {
        Box::pin(async move {
            let app = self.any()?;
            let account = authenticate(app, api_key, client).await?;
            let (faults, id) = (app.faults.as_ref(), account.id.0);
            let naming = self
                .of(account.id)
                .await?
                .read(account.id, move |connection| {
                    Box::pin(async move { names_of_accounts(connection, &[id]).await })
                });
            Ok(Account {
                id,
                name: naming.await?.remove(&id).unwrap_or_default(),
                is_test: is_of_test_mode(api_key),
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
        wanted: &'a Wanted,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<Searched>> {
        let account = AccountId(account);
        Box::pin(async move {
            let Some(below) = below::<RequestId>(before) else {
                return Ok(None);
            };
            let (app, filter) = (self.of(account).await?, filter(wanted));
            let found = app.snapshot(account, move |connection| {
                Box::pin(search(connection, account, filter, below, limit))
            });
            Ok(Some(found.await?))
        })
    }

    fn minutes(&self, account: Uuid, since: DateTime<Utc>) -> Answer<'_, Vec<Minute>> {
        Box::pin(async move {
            let from = since.timestamp().div_euclid(60);
            let app = self.of(AccountId(account)).await?;
            let reading = app.read(AccountId(account), move |connection| {
                Box::pin(request_log::minutes_since(connection, account, from))
            });
            Ok(reading.await?.into_iter().map(minute).collect())
        })
    }

    fn last_check(&self, account: Uuid) -> Answer<'_, Option<LastCheck>> {
        let account = AccountId(account);
        Box::pin(async move {
            let reading = self.of(account).await?.read(account, |connection| {
                Box::pin(store::last_check::find(connection))
            });
            let found = reading.await?.map(|check| {
                let since = Duration::try_from_secs_f64(check.finished_at).unwrap_or_default();
                LastCheck {
                    violations: check.violations,
                    ended_at: DateTime::UNIX_EPOCH + since,
                }
            });
            Ok(found)
        })
    }

    fn look_up<'a>(&'a self, account: Uuid, name: &'a str) -> Answer<'a, Vec<Found>> {
        let account = AccountId(account);
        Box::pin(async move {
            let app = self.of(account).await?;
            let mut is_key = false;
            if let Ok(key) = IdempotencyKey::parse(name.as_bytes()) {
                let found = app.idempotency.inspect(account.0, key).await;
                let found = found.map_err(HttpError::failed_without_key)?;
                is_key = !matches!(found, Inspected::Nothing);
            }
            let name = name.to_owned();
            let found = app.snapshot(account, move |connection| {
                Box::pin(async move { look_up(connection, account, name, is_key).await })
            });
            Ok(found.await?)
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
            let wanted = matches!(found, Inspected::InFlight(_)).then(|| WantedKeys {
                account_id: Some(account.0),
                key: Some(text.clone()),
                in_doubt: false,
            });
            let reading = app.snapshot(account, move |connection| {
                Box::pin(async move {
                    let leased = match wanted {
                        Some(wanted) => list_leased_keys(&mut *connection, &wanted, 1).await?.pop(),
                        None => None,
                    };
                    let executed = first.as_ref().map(|first| &*first.request_id);
                    let max = rows(requests_max);
                    let story =
                        key_story::read(&mut *connection, account, &text, executed, max).await?;
                    let events: Vec<_> = story.events.iter().map(|event| event.id).collect();
                    let deliveries = deliveries_of(connection, account, &events).await?;
                    Ok((leased, story, deliveries))
                })
            });
            let (leased, KeyStory { requests, events }, deliveries) = reading.await?;
            Ok(Story {
                found,
                leased,
                requests: requests.into_iter().map(|one| logged(one, 0)).collect(),
                events: events.into_iter().map(happened).collect(),
                deliveries,
            })
        })
    }

    fn workflow<'a>(
        &'a self,
        account: Uuid,
        name: WorkflowName,
        after: Option<IdempotencyKey>,
        limit: usize,
    ) -> Answer<'a, Option<Steps>> {
        Box::pin(async move {
            let app = self.of(AccountId(account)).await?;
            let found = app.idempotency.workflow(account, name, after, limit).await;
            Ok(found.map_err(HttpError::failed_without_key)?)
        })
    }

    fn number(&self, member: &str, value: i64, currency: Option<&str>) -> Option<String> {
        let is_amount =
            member == "amount" || member.starts_with("amount_") || member.ends_with("_amount");
        let currency = currency.filter(|_| is_amount);
        let amount = Money {
            minor_units: value,
            currency: currency.and_then(Currency::of_stored)?,
        };
        Some(amount.to_string())
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
            if kind == Kind::Inventory {
                return self.levels(account, after, limit).await;
            }
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
            if kind == Kind::Inventory {
                return self.level(account, &name).await;
            }
            let Some(id) = parse(kind, id) else {
                return Ok(None);
            };
            let app = self.of(account).await?;
            let found = app.snapshot(account, move |connection| {
                Box::pin(async move { read_object(connection, account, kind, id, &name).await })
            });
            Ok(found.await?)
        })
    }

    fn deliveries<'a>(
        &'a self,
        account: Uuid,
        wanted: &'a WantedDeliveries,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<FoundDeliveries>> {
        Box::pin(self.searched_deliveries(AccountId(account), wanted, before, limit))
    }

    fn delivery<'a>(
        &'a self,
        account: Uuid,
        id: &'a str,
    ) -> Answer<'a, Option<(Delivery, Vec<Attempted>)>> {
        Box::pin(self.attempted_delivery(AccountId(account), id))
    }

    fn webhook_endpoints(&self, account: Uuid) -> Answer<'_, Vec<WebhookEndpoint>> {
        Box::pin(self.tallied_endpoints(AccountId(account)))
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

    fn retry_failed<'a>(
        &'a self,
        account: Uuid,
        endpoint: &'a str,
        made: Range<Option<DateTime<Utc>>>,
        limit: usize,
    ) -> Answer<'a, Option<u64>> {
        Box::pin(self.retried_deliveries(AccountId(account), endpoint, made, limit))
    }
}

/// What the id of a list's first row is below. `None`: `before` is no id.
fn below<Id: ObjectId>(before: Option<&str>) -> Option<Uuid> {
    before.map_or(Some(Uuid::max()), uuid::<Id>)
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn uuid<Id: ObjectId>(id: &str) -> Option<Uuid> {
    Id::parse(id).map(Id::uuid)
}

fn parse(kind: Kind, id: &str) -> Option<Uuid> {
    match kind {
        Kind::Charges => uuid::<ChargeId>(id),
        Kind::PaymentIntents => uuid::<PaymentIntentId>(id),
        Kind::Customers => uuid::<CustomerId>(id),
        Kind::PaymentMethods => uuid::<PaymentMethodId>(id),
        Kind::SetupIntents => uuid::<SetupIntentId>(id),
        Kind::Orders => uuid::<OrderId>(id),
        Kind::Refunds => uuid::<RefundId>(id),
        Kind::Checkouts => uuid::<CheckoutId>(id),
        Kind::Events => uuid::<EventId>(id),
        Kind::WebhookEndpoints => uuid::<WebhookEndpointId>(id),
        Kind::Inventory => None,
    }
}

/// The member of other objects' events that names such an object.
fn parent(kind: Kind) -> &'static str {
    match kind {
        Kind::Charges
        | Kind::Orders
        | Kind::Refunds
        | Kind::Checkouts
        | Kind::Inventory
        | Kind::Events
        | Kind::WebhookEndpoints => "charge",
        Kind::PaymentIntents => "payment_intent",
        Kind::Customers => "customer",
        Kind::PaymentMethods | Kind::SetupIntents => "payment_method",
    }
}

fn filter(wanted: &Wanted) -> RequestFilter {
    let named = |name: &str| name.parse().into_iter().collect();
    let outcomes = match wanted.outcome {
        Some(WantedOutcome::Any) => None,
        Some(WantedOutcome::One(name)) => Some(named(name)),
        None => {
            let all = LoggedOutcome::ALL.iter().copied();
            Some(all.filter(|one| *one != LoggedOutcome::Read).collect())
        }
    };
    RequestFilter {
        outcomes,
        status: wanted.status,
        path: wanted.path.clone(),
        idempotency_key: wanted.key.clone(),
        resource_id: wanted.object.clone(),
    }
}

/// Requests of the log, with the replays of their keys.
async fn search(
    connection: &mut PgConnection,
    account: AccountId,
    filter: RequestFilter,
    below: Uuid,
    limit: usize,
) -> Result<Searched, sqlx::Error> {
    let log = request_log::list(&mut *connection, account.0, &filter, below, rows(limit)).await?;
    let ended_at = match log.len() < limit {
        true => request_log::searched_to(&mut *connection, account.0, below).await?,
        false => None,
    };
    let keys = log.iter().filter_map(|one| one.idempotency_key.clone());
    let keys: Vec<_> = keys.collect::<HashSet<_>>().into_iter().collect();
    let replays = count_replays(&mut *connection, account.0, &keys).await?;
    let payments = payments(connection, account, &log).await?;
    let requests = log.into_iter().map(|one| {
        let key = one.idempotency_key.as_ref();
        let count = key.and_then(|key| replays.get(key)).copied();
        logged(one, count.unwrap_or(0))
    });
    Ok(Searched {
        requests: requests.collect(),
        ended_at: ended_at.map(|id| RequestId(id).to_string()),
        payments,
    })
}

/// What has this name, each found by an index. `is_key`: a key is recorded or in flight.
async fn look_up(
    connection: &mut PgConnection,
    account: AccountId,
    name: String,
    is_key: bool,
) -> Result<Vec<Found>, sqlx::Error> {
    let mut found = Vec::new();
    let logged = request_log::list_of_key(&mut *connection, account.0, &name, 1).await?;
    if is_key || !logged.is_empty() {
        found.push(Found::Key(name.clone()));
    }
    let mut kinds = Kind::ALL.iter();
    if let Some((kind, id)) = kinds.find_map(|kind| Some((*kind, parse(*kind, &name)?)))
        && find(&mut *connection, account, kind, id).await?.is_some()
    {
        found.push(Found::Object(kind, name.clone()));
    }
    if let Some(id) = uuid::<RequestId>(&name) {
        let (all, behind) = (RequestFilter::default(), next(id));
        let first = request_log::list(&mut *connection, account.0, &all, behind, 1).await?;
        let request = first.into_iter().find(|request| request.id == id);
        found.extend(request.map(|request| match request.idempotency_key {
            Some(key) => Found::Key(key),
            None => Found::Request {
                before: RequestId(behind).to_string(),
            },
        }));
    }
    if let Some(id) = uuid::<WebhookDeliveryId>(&name)
        && deliveries::find(&mut *connection, account.0, id)
            .await?
            .is_some()
    {
        found.push(Found::Delivery(name.clone()));
    }
    let orders = store::orders::named(&mut *connection, &[(account, name.clone())]).await?;
    let orders = orders.into_iter().map(|(_, order)| order.id.to_string());
    found.extend(orders.map(|id| Found::Object(Kind::Orders, id)));
    if name.contains('@') {
        let page = Page {
            limit: CUSTOMERS_MAX,
            cursor: Cursor::Start,
            created_from: None,
            created_before: None,
        };
        let asked = Some(CustomersWith::email(name));
        let customers = store::customers::list(connection, account, &page, asked).await?;
        let ids = customers.data.iter().map(|one| one.id.to_string());
        found.extend(ids.map(|id| Found::Object(Kind::Customers, id)));
    }
    Ok(found)
}

/// The id behind this one.
fn next(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}

/// The deliveries of events that happened one after the other, the oldest first: among the last
/// ones of the account when the last of these events happened. A delivery's id begins with the
/// millisecond of its event's.
async fn deliveries_of(
    connection: &mut PgConnection,
    account: AccountId,
    events: &[Uuid],
) -> Result<Vec<Delivery>, sqlx::Error> {
    let Some(last) = events.iter().max() else {
        return Ok(Vec::new());
    };
    // Greater than each id of this millisecond.
    let below = Uuid::from_u128(last.as_u128() | (u128::MAX >> 48));
    let (all, max) = (DeliveryFilter::default(), STORY_DELIVERIES_MAX);
    let mut found = deliveries::search(connection, account.0, all, below, max).await?;
    found.retain(|delivery| events.contains(&delivery.event_id));
    found.reverse();
    Ok(found.into_iter().map(delivery).collect())
}

/// An object with what happened to it, and what was sent of that.
async fn read_object(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    id: Uuid,
    name: &str,
) -> Result<Option<Object>, sqlx::Error> {
    let Some((json, key)) = find(&mut *connection, account, kind, id).await? else {
        return Ok(None);
    };
    let events = match (kind, key) {
        (Kind::Events | Kind::WebhookEndpoints, _) => Vec::new(),
        // Its steps are other objects' events.
        (_, Some(key)) => events::list_of_key(&mut *connection, account.0, id, &key).await?,
        (_, None) => {
            let of = parent(kind);
            events::list_of_object(&mut *connection, account.0, id, name, of).await?
        }
    };
    let deliveries = if kind == Kind::Events {
        deliveries_of(connection, account, &[id]).await?
    } else if kind == Kind::WebhookEndpoints {
        let newest = Slice::newest(STORY_DELIVERIES_MAX);
        let found = deliveries::list(connection, account.0, id, &newest).await?;
        found.into_iter().map(delivery).collect()
    } else {
        Vec::new()
    };
    Ok(Some(Object {
        json,
        events: events.into_iter().map(happened).collect(),
        deliveries,
    }))
}

async fn list(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    page: &Page,
) -> Result<Option<Listed>, sqlx::Error> {
    // `all!(refunds)` reads the page of `store::refunds`, and shows each.
    macro_rules! all {
        ($store:ident) => {{
            let found = store::$store::list(&mut *connection, account, page, Default::default());
            let found = found.await?;
            let views = views(connection, account, &found.data).await?;
            Some(listed(&views, found.has_more))
        }};
    }
    Ok(match kind {
        Kind::Charges => all!(charges),
        Kind::PaymentIntents => all!(payment_intents),
        Kind::Customers => all!(customers),
        Kind::Events => {
            let slice = Slice {
                below: page.below(),
                ..Slice::newest(page.rows())
            };
            let found = page.cut(events::list(connection, account.0, &slice, None).await?);
            let views: Vec<_> = found.data.into_iter().map(EventView::from).collect();
            Some(listed(&views, found.has_more))
        }
        // Payment methods are listed by customer, and here through their customers' events;
        // endpoints with their deliveries, and levels of the inventory by name.
        Kind::PaymentMethods | Kind::WebhookEndpoints | Kind::Inventory => None,
        Kind::SetupIntents => all!(setup_intents),
        Kind::Orders => all!(orders),
        Kind::Refunds => all!(refunds),
        Kind::Checkouts => {
            let found =
                store::checkouts::list(connection, account, page, Default::default()).await?;
            let views: Vec<_> = found.data.iter().map(with_card).collect();
            Some(listed(&views, found.has_more))
        }
    })
}

/// A checkout, which has no place for its card.
fn with_card(checkout: &Checkout) -> Value {
    let mut view = json!(CheckoutView::from(checkout));
    if let Some(members) = view.as_object_mut() {
        let card = checkout.card.test_card;
        let card = json!({"brand": card.brand, "last4": card.last4});
        members.insert("card".to_owned(), card);
    }
    view
}

fn listed(views: &[impl Serialize], has_more: bool) -> Listed {
    Listed {
        objects: views.iter().map(json).collect(),
        has_more,
    }
}

/// The charges and payment intents that requests are about, by their ids.
async fn payments(
    connection: &mut PgConnection,
    account: AccountId,
    log: &[LoggedRequest],
) -> Result<HashMap<String, Vec<u8>>, sqlx::Error> {
    let about = log.iter().filter_map(|one| one.resource_id.as_deref());
    let mut shown = HashMap::new();
    // `show!(charges, ChargeId)` shows those of `store::charges`.
    macro_rules! show {
        ($store:ident, $id:ident) => {
            let ids: Vec<_> = about.clone().filter_map($id::parse).collect();
            if !ids.is_empty() {
                let found = store::$store::find_all(&mut *connection, account, &ids).await?;
                let found: Vec<_> = found.into_values().collect();
                let views = views(&mut *connection, account, &found).await?;
                shown.extend(views.iter().map(|view| (view.id.clone(), json(view))));
            }
        };
    }
    show!(charges, ChargeId);
    show!(payment_intents, PaymentIntentId);
    Ok(shown)
}

/// What a list shows of objects. What has their cards is whole.
async fn views<T: Shown>(
    connection: &mut PgConnection,
    account: AccountId,
    objects: &[T],
) -> Result<Vec<T::View>, sqlx::Error> {
    let audience = Audience {
        account,
        dialect: Dialect::Ietf,
    };
    let expand = Expansion(["charge", "payment_method"].map(str::to_owned).to_vec());
    T::views(connection, audience, objects, &expand).await
}

/// An object as the API shows it. Of one that takes several steps, the key of its request too.
async fn find(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    id: Uuid,
) -> Result<Option<(Vec<u8>, Option<String>)>, sqlx::Error> {
    // `shown!(orders, OrderId, OrderView)` finds the order in `store::orders`, and makes its view.
    macro_rules! shown {
        ($store:ident, $id:ident, $view:ident) => {{
            let found = store::$store::find(connection, account, $id(id)).await?;
            found.map(|object| (json(&$view::from(&object)), None))
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
        Kind::Checkouts => {
            let found = store::checkouts::find(connection, account, CheckoutId(id)).await?;
            found.map(|checkout| {
                let view = json(&CheckoutView::from(&checkout));
                (view, Some(checkout.asked_by.idempotency_key))
            })
        }
        Kind::Events => {
            let found = events::find(connection, account.0, id).await?;
            found.map(|event| (json(&EventView::from(event)), None))
        }
        Kind::WebhookEndpoints => {
            let found = endpoints::find(connection, account.0, id).await?;
            found.map(|endpoint| (json(&WebhookEndpointView::from(&endpoint)), None))
        }
        Kind::Inventory => None,
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
        resource_id: request.resource_id,
        replays: format!("{replays}{more}"),
    }
}

fn minute(counted: request_log::Minute) -> Minute {
    let ended = |outcome: &LoggedOutcome| (outcome.as_str(), counted.ended(*outcome));
    let bounds = DURATION_BOUNDS.map(|bound| Some(Duration::from_micros(bound)));
    let bounds = bounds.into_iter().chain([None]);
    Minute {
        at: DateTime::from_timestamp(counted.minute * 60, 0).unwrap_or_default(),
        ended: LoggedOutcome::ALL.iter().map(ended).collect(),
        took: bounds.zip(counted.durations).collect(),
        second_effects: counted.second_effects,
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
