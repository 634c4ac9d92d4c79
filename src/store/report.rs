//! What the report on an account's client reads: the log of its requests, what they made, and the
//! webhooks about that. Bounded: the newest 20,000 requests before one, and 5,000 deliveries.

use std::time::Duration;

use charge_once_service::request_log::{
    self as request_log, LoggedOutcome, LoggedRequest, RequestFilter,
    report::{Effect, Redelivered, Tested, began, is_to_be_retried},
};
use percent_encoding::percent_decode_str;

use super::rows::*;

/// Requests of one report.
pub const REQUESTS_MAX: i64 = request_log::SEARCHED_MAX;

/// Reads what came of the requests before the one with the id `below`. `sealed_key` makes of an
/// account and a key the hash that may stand in place of the key. Takes no lock.
pub async fn read(
    connection: &mut PgConnection,
    account_id: AccountId,
    below: Uuid,
    sealed_key: fn(Uuid, &str) -> String,
) -> Result<Tested, sqlx::Error> {
    let filter = RequestFilter::default();
    let account = account_id.0;
    let listed = request_log::list(connection, account, &filter, below, REQUESTS_MAX);
    let mut requests = listed.await?;
    requests.reverse();
    let Some(oldest) = requests.first().map(|request| request.id) else {
        return Ok(Tested::default());
    };
    let mut tested = Tested {
        given_up: given_up(&requests, |key| match key.starts_with(",sealed.") {
            true => key.to_owned(),
            false => sealed_key(account, key),
        }),
        requests,
        ..Tested::default()
    };
    webhooks(&mut *connection, account_id, oldest, &mut tested).await?;
    let keys = keys_in_question(&tested);
    if !keys.is_empty() {
        tested.effects = effects(connection, account_id, &keys).await?;
    }
    Ok(tested)
}

/// Keys of requests that may have made something, since the first one that was to be sent again or
/// the first webhook that came twice. Before that, the client knew what it had made.
fn keys_in_question(tested: &Tested) -> Vec<String> {
    let twice = tested.redelivered.iter().filter_map(|one| one.at.first());
    let twice = twice.min();
    let is_open = |request: &LoggedRequest| {
        is_to_be_retried(request) || twice.is_some_and(|at| began(request) >= *at)
    };
    // A replay, a refusal and a read make nothing.
    let may_have_made = |request: &&LoggedRequest| {
        let is_executed = request.outcome == LoggedOutcome::Executed;
        request.fingerprint.is_some() && (is_executed || is_to_be_retried(request))
    };
    let requests = tested.requests.iter();
    let open = requests.skip_while(|request| !is_open(request));
    let keys = open.filter(may_have_made);
    keys.filter_map(|request| request.idempotency_key.clone())
        .collect()
}

/// The keys that were given up, with the first request that was told what became of each. Where
/// replies are sealed, the hash of a key may stand in a path, and in place of the key of a request.
fn given_up(requests: &[LoggedRequest], hash: impl Fn(&str) -> String) -> HashMap<String, Uuid> {
    let mut by_hash = HashMap::new();
    for request in requests.iter().filter(|one| one.status == Some(200)) {
        let path = request.path.as_deref().unwrap_or_default();
        let named = path
            .strip_suffix("/abandon")
            .filter(|_| request.method == "POST");
        if let Some((_, key)) = named.and_then(|path| path.split_once("/idempotency-keys/")) {
            let key = percent_decode_str(key).decode_utf8_lossy();
            by_hash.entry(hash(&key)).or_insert(request.id);
        }
    }
    if by_hash.is_empty() {
        return HashMap::new();
    }
    let keys = requests
        .iter()
        .filter_map(|one| one.idempotency_key.as_ref());
    let given_up = keys.filter_map(|key| Some((key.clone(), *by_hash.get(&hash(key))?)));
    given_up.collect()
}

/// What the requests with these keys made, by key, as their records say. A refund's subject is its
/// charge and its amount; that of a charge or of an intent is its amount with the client's own
/// names, if it has any.
async fn effects(
    connection: &mut PgConnection,
    account_id: AccountId,
    keys: &[String],
) -> Result<HashMap<String, Effect>, sqlx::Error> {
    let made = sqlx::query!(
        r#"
        SELECT key, resource_id AS "object!"
          FROM idempotency_keys
         WHERE account_id = $1 AND key = ANY($2) AND status < 300 AND resource_id IS NOT NULL
        "#,
        account_id.0,
        keys,
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<_> = made.iter().filter_map(|row| id_of(&row.object)).collect();
    let subjects = sqlx::query!(
        r#"
        SELECT id AS "id!", concat_ws(' ', 'refund', charge_id, amount) AS "subject!"
          FROM refunds
         WHERE account_id = $1 AND id = ANY($2)
        UNION ALL
        SELECT id, concat_ws(' ', 'charge', amount, currency, metadata)
          FROM charges
         WHERE account_id = $1 AND id = ANY($2) AND metadata <> '{}'
        UNION ALL
        SELECT id, concat_ws(' ', 'intent', amount, currency, metadata)
          FROM payment_intents
         WHERE account_id = $1 AND id = ANY($2) AND metadata <> '{}'
        "#,
        account_id.0,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    let subjects: HashMap<_, _> = subjects
        .into_iter()
        .map(|row| (row.id, row.subject))
        .collect();
    let effects = made.into_iter().map(|row| {
        let subject = id_of(&row.object).and_then(|id| subjects.get(&id).cloned());
        let object = row.object;
        (row.key, Effect { object, subject })
    });
    Ok(effects.collect())
}

/// The id of a charge, a refund or a payment intent.
fn id_of(object: &str) -> Option<Uuid> {
    let charge = ChargeId::parse(object).map(|id| id.0);
    let refund = || RefundId::parse(object).map(|id| id.0);
    let intent = || PaymentIntentId::parse(object).map(|id| id.0);
    charge.or_else(refund).or_else(intent)
}

/// Adds which requests a webhook told of, and which webhooks came more than once, of the newest
/// deliveries since the event with the id `oldest`.
async fn webhooks(
    connection: &mut PgConnection,
    account_id: AccountId,
    oldest: Uuid,
    tested: &mut Tested,
) -> Result<(), sqlx::Error> {
    let sent = sqlx::query!(
        r#"
        SELECT event.id, event.idempotency_key,
               (SELECT array_agg((attempt ->> 'at')::bigint ORDER BY (attempt ->> 'at')::bigint)
                  FROM jsonb_array_elements(delivery.attempts) AS attempt
                 WHERE (attempt ->> 'response_status')::int < 300
                   AND attempt ->> 'error' IS NULL) AS "taken: Vec<i64>"
          FROM (SELECT event_id, attempts
                  FROM webhook_deliveries
                 WHERE account_id = $1 AND event_id >= $2
                 ORDER BY event_id DESC
                 LIMIT 5000) AS delivery
         CROSS JOIN LATERAL (
               SELECT id, idempotency_key
                 FROM events
                WHERE account_id = $1 AND id = delivery.event_id
                LIMIT 1) AS event
         WHERE jsonb_array_length(delivery.attempts) > 0
        "#,
        account_id.0,
        oldest,
    )
    .fetch_all(connection)
    .await?;
    for row in sent {
        let Some(taken) = row.taken else { continue };
        if taken.len() > 1 {
            let at = taken
                .iter()
                .map(|at| Duration::from_secs(at.unsigned_abs()));
            tested.redelivered.push(Redelivered {
                event: row.id,
                key: row.idempotency_key.clone(),
                at: at.collect(),
            });
        }
        tested.told.insert(row.idempotency_key);
    }
    Ok(())
}
