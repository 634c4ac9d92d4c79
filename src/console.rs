//! What the pages of the console are made of; `crates/console` shows them.
//!
//! Promise: the console exists only with `CONSOLE=true`. Each answer is about the account that is
//! asked for, but for the last check.

mod object_pages;
mod request_pages;
mod search;
mod webhook_pages;

use std::{
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
    Account, Answer, Attempted, CardGroup, Console, Delivery, Found, FoundDeliveries,
    FoundRequests, InFlight, Kind, LastCheck, Listed, Minute, Object, Refusal, Server, Story,
    TestCard, WantedDeliveries, WantedRequests, WebhookEndpoint, routes,
};
use charge_once_postgres::api_keys::names_of_accounts;
use charge_once_service::{edge::read_body, request_log};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use self::{request_pages::minute, search::look_up};
use crate::{
    domain::{
        api_key::is_of_test_mode,
        ids::*,
        money::{Currency, Money},
        test_cards::{self, Authentication, Decision, TEST_CARDS},
    },
    http::{
        App, Apps, allow,
        error::HttpError,
        openapi::answer,
        request::{authenticate, before_work},
    },
    idempotency::{FailureKind, IdempotencyKey, Inspected, Steps, WorkflowName},
    store,
};

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
        let (name, charge) = (group(card), answer(card));
        let says = match card.authentication == Authentication::Never {
            true => charge,
            false => format!("an intent asks its holder, a charge gets {charge}"),
        };
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

impl Server for AccountPages {
    fn account_of<'a>(&'a self, api_key: &'a str, client: Option<IpAddr>) -> Answer<'a, Account> {
        Box::pin(async move {
            let app = self.any()?;
            let account = authenticate(app, api_key, client).await?;
            let faults = app.faults.as_ref();
            Ok(Account {
                id: account.id.0,
                is_test: is_of_test_mode(api_key),
                may_lose_replies: faults.is_some_and(|faults| faults.act_on(account)),
            })
        })
    }

    fn name_of(&self, account: Uuid) -> Answer<'_, String> {
        Box::pin(async move {
            let home = self.of(AccountId(account)).await?;
            let naming = home.read(AccountId(account), move |connection| {
                Box::pin(async move { names_of_accounts(connection, &[account]).await })
            });
            Ok(naming.await?.remove(&account).unwrap_or_default())
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
        wanted: &'a WantedRequests,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<FoundRequests>> {
        Box::pin(self.searched_requests(AccountId(account), wanted, before, limit))
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
        Box::pin(self.story_of(AccountId(account), key, requests_max))
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
        Box::pin(self.listed_objects(AccountId(account), kind, after, limit))
    }

    fn object<'a>(&'a self, account: Uuid, kind: Kind, id: &'a str) -> Answer<'a, Option<Object>> {
        Box::pin(self.shown_object(AccountId(account), kind, id))
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
        Box::pin(self.retried_delivery(AccountId(account), id))
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
