//! What the pages about requests are made of: the log, its counts, and the story of a key.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use charge_once_console::{
    FoundRequests, Logged, Minute, Refusal, Story, WantedOutcome, WantedRequests,
};
use charge_once_service::request_log::{
    self, COUNTED_MAX, DURATION_BOUNDS, LoggedOutcome, LoggedRequest, RequestFilter, count_replays,
};
use chrono::DateTime;
use uuid::Uuid;

use super::{
    AccountPages, below,
    object_pages::{happened, json, views},
    rows,
    webhook_pages::deliveries_of,
};
use crate::{
    database::PgConnection,
    domain::ids::*,
    http::error::HttpError,
    idempotency::{IdempotencyKey, Inspected, WantedKeys, list_leased_keys, sealed_key},
    store::{
        self,
        key_story::{self, KeyStory},
    },
};

impl AccountPages {
    pub(super) async fn searched_requests(
        &self,
        account: AccountId,
        wanted: &WantedRequests,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Option<FoundRequests>, Refusal> {
        let Some(below) = below::<RequestId>(before) else {
            return Ok(None);
        };
        let (app, filter) = (self.of(account).await?, filter(wanted));
        let found = app.snapshot(account, move |connection| {
            Box::pin(search(connection, account, filter, below, limit))
        });
        Ok(Some(found.await?))
    }

    pub(super) async fn story_of(
        &self,
        account: AccountId,
        key: IdempotencyKey,
        requests_max: usize,
    ) -> Result<Story, Refusal> {
        let text = key.as_str().to_owned();
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
                let keys = [sealed_key(account.0, &text), text];
                let story =
                    key_story::read(&mut *connection, account, &keys, executed, max).await?;
                let events: Vec<_> = story.events.iter().map(|event| event.id).collect();
                let deliveries = deliveries_of(connection, account, &events).await?;
                Ok((leased, story, deliveries))
            })
        });
        let (leased, KeyStory { requests, events }, deliveries) = reading.await?;
        let is_given_up = found.status() == Some("abandoned");
        let requests = requests.into_iter();
        let requests = requests.map(|one| logged(one, 0, is_given_up));
        Ok(Story {
            found,
            leased,
            requests: requests.collect(),
            events: events.into_iter().map(happened).collect(),
            deliveries,
        })
    }
}

fn filter(wanted: &WantedRequests) -> RequestFilter {
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
) -> Result<FoundRequests, sqlx::Error> {
    let log = request_log::list(&mut *connection, account.0, &filter, below, rows(limit)).await?;
    let ended_at = match log.len() < limit {
        true => request_log::searched_to(&mut *connection, account.0, below).await?,
        false => None,
    };
    let keys = log.iter().filter_map(|one| one.idempotency_key.clone());
    let keys: Vec<_> = keys.collect::<HashSet<_>>().into_iter().collect();
    let replays = count_replays(&mut *connection, account.0, &keys).await?;
    let given_up = key_story::given_up(&mut *connection, account, &keys).await?;
    let payments = payments(connection, account, &log).await?;
    let requests = log.into_iter().map(|one| {
        let key = one.idempotency_key.as_ref();
        let count = key.and_then(|key| replays.get(key)).copied();
        let is_given_up = key.is_some_and(|key| given_up.contains(key));
        logged(one, count.unwrap_or(0), is_given_up)
    });
    Ok(FoundRequests {
        requests: requests.collect(),
        ended_at: ended_at.map(|id| RequestId(id).to_string()),
        payments,
    })
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

/// Replays beyond the number that is counted are not counted.
fn logged(request: LoggedRequest, replays: i64, is_given_up: bool) -> Logged {
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
        is_given_up,
        replays: format!("{replays}{more}"),
    }
}

pub(super) fn minute(counted: request_log::Minute) -> Minute {
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
