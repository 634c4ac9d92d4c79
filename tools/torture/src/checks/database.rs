//! What the database says, beside what the clients were told.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool, Row};
use uuid::Uuid;

use super::{given_up, intents, objects, records, remembered, rows, windows_that_overlap};
use crate::{
    client::Account,
    history::{History, KeyHistory, Verdict, lock},
    load::CONTENDED,
    profile::Profile,
    requests::{INITIAL_STOCK, SCARCE, STOCKED},
    shards::Home,
};

/// How far back the looks go while the load goes on. The one at the end sees everything.
const RECENT: TimeDelta = TimeDelta::seconds(30);

/// Queries that must find nothing at any moment. Each shows what is wrong in its first column, and
/// what that is about in its second: keys, tags and ids, with a prefix before a UUID.
const ALWAYS: [(&str, &str, &str); 15] = [
    (
        "G1",
        "an execution made the same change twice",
        // The deletion of a customer detaches all of its methods.
        "SELECT concat_ws(' ', request_id, type, count(*)), ARRAY[idempotency_key] FROM events
          GROUP BY account_id, idempotency_key, request_id, type,
                   CASE type WHEN 'payment_method.detached' THEN object ->> 'id' END
         HAVING count(*) > 1",
    ),
    (
        "G7",
        "what happens once is told twice",
        "SELECT concat_ws(' ', type, object ->> 'id', count(*)), ARRAY[object ->> 'id'] FROM events
          WHERE type IN ('charge.succeeded', 'charge.failed', 'charge.captured', 'refund.created',
                         'payment_intent.created', 'payment_intent.amount_capturable_updated',
                         'payment_intent.succeeded', 'payment_intent.canceled',
                         'setup_intent.created', 'setup_intent.succeeded', 'setup_intent.canceled',
                         'customer.created', 'customer.deleted', 'payment_method.attached',
                         'payment_method.detached')
          GROUP BY account_id, type, object ->> 'id' HAVING count(*) > 1",
    ),
    (
        "G1",
        "an intent has several charges that took money",
        "SELECT payment_intent_id::text, ARRAY['pi ' || payment_intent_id] || array_agg('ch ' || id)
           FROM charges WHERE status IN ('succeeded', 'pending') AND payment_intent_id IS NOT NULL
          GROUP BY account_id, payment_intent_id HAVING count(*) > 1",
    ),
    (
        "G5",
        "an intent's money is not that of its charge",
        "SELECT concat_ws(' ', intent.id, intent.status, intent.amount, intent.amount_capturable,
                          intent.amount_received, charge.id, charge.amount, charge.amount_captured,
                          charge.amount_refunded),
                ARRAY['pi ' || intent.id, 'ch ' || charge.id]
           FROM payment_intents AS intent
           LEFT JOIN charges AS charge ON charge.account_id = intent.account_id
                AND charge.payment_intent_id = intent.id AND charge.status = 'succeeded'
          WHERE CASE intent.status
                WHEN 'succeeded'
                THEN (intent.charge_id, intent.amount, intent.amount_received, false)
                     IS DISTINCT FROM
                     (charge.id, charge.amount, charge.amount_captured, charge.released)
                WHEN 'requires_capture'
                -- Across a network, a cancellation has released the charge before the answer.
                THEN (intent.charge_id, intent.amount, intent.amount_capturable, 0::bigint,
                      EXISTS (SELECT FROM refunds
                               WHERE refunds.account_id = charge.account_id
                                 AND refunds.charge_id = charge.id AND refunds.status = 'pending'))
                     IS DISTINCT FROM
                     (charge.id, charge.amount, charge.amount, charge.amount_captured,
                      charge.released)
                WHEN 'canceled' THEN charge.id IS NOT NULL AND NOT charge.released
                ELSE charge.id IS NOT NULL END",
    ),
    (
        "G5",
        "a method belongs to a customer that was deleted",
        "SELECT method.id::text, ARRAY['pm ' || method.id, 'cus ' || customer.id]
           FROM payment_methods AS method JOIN customers AS customer
             ON customer.account_id = method.account_id AND customer.id = method.customer_id
          WHERE customer.deleted_at IS NOT NULL",
    ),
    (
        "G5",
        "a charge's refunds are not what it says",
        "SELECT concat_ws(' ', charge.id, charge.amount_refunded, sum(refund.amount)),
                ARRAY['ch ' || charge.id]
           FROM charges AS charge
           LEFT JOIN refunds AS refund ON refund.account_id = charge.account_id
                AND refund.charge_id = charge.id AND refund.status <> 'failed'
          GROUP BY charge.account_id, charge.id
         HAVING charge.amount_refunded <> coalesce(sum(refund.amount), 0)",
    ),
    (
        "G5",
        "a charge has more captured than promised, or more refunded than captured",
        "SELECT concat_ws(' ', id, amount, amount_captured, amount_refunded), ARRAY['ch ' || id]
           FROM charges
          WHERE amount_captured > amount
             OR amount_refunded > CASE WHEN released THEN amount ELSE amount_captured END",
    ),
    (
        "G5",
        "an order is not paid by a charge of its total",
        "SELECT orders.id::text, ARRAY['or ' || orders.id, 'ch ' || charge.id]
           FROM orders JOIN charges AS charge
             ON charge.account_id = orders.account_id AND charge.id = orders.charge_id
          WHERE charge.amount <> orders.amount OR charge.status <> 'succeeded'
             OR charge.order_id IS DISTINCT FROM orders.id",
    ),
    (
        "G1",
        "an order has several charges that took money",
        "SELECT order_id::text, ARRAY['or ' || order_id] || array_agg('ch ' || id)
           FROM charges WHERE status = 'succeeded' AND order_id IS NOT NULL
          GROUP BY account_id, order_id HAVING count(*) > 1",
    ),
    (
        "G5",
        "an inventory level is negative",
        "SELECT concat_ws(' ', sku, quantity), ARRAY[sku] FROM inventory WHERE quantity < 0",
    ),
    (
        "G7",
        "the events of a charge are out of order",
        "SELECT concat_ws(' ', id, object ->> 'id'), ARRAY[object ->> 'id'] FROM (
            SELECT id, object, (object ->> 'amount_refunded')::bigint AS refunded,
                   lag((object ->> 'amount_refunded')::bigint)
                       OVER (PARTITION BY account_id, object ->> 'id' ORDER BY id) AS before
              FROM events WHERE type LIKE 'charge.%') AS event
          WHERE refunded < before",
    ),
    (
        "G7",
        "an event is out of order: before its object was created, or a refund before the payment",
        "SELECT concat_ws(' ', type, id), ARRAY[object] FROM (
            SELECT type, id::text, object ->> 'id' AS object,
                   min(id::text) FILTER (WHERE type IN ('charge.succeeded', 'charge.failed',
                                                        'order.created', 'refund.created',
                                                        'payment_intent.created',
                                                        'setup_intent.created',
                                                        'customer.created'))
                       OVER one_object AS created,
                   min(id::text) FILTER (WHERE type = 'order.paid') OVER one_object AS paid
              FROM events
            WINDOW one_object AS (PARTITION BY account_id, object ->> 'id')) AS event
          WHERE id < created OR (type = 'order.refunded' AND id < paid)",
    ),
    (
        "G7",
        "there are more or fewer events about new objects than objects",
        "SELECT concat_ws(' ', noun, objects, events), ARRAY[]::text[] FROM (
            SELECT 'charges' AS noun,
                   (SELECT count(*) FROM charges WHERE status <> 'pending') AS objects,
                   (SELECT count(*) FROM events
                     WHERE type IN ('charge.succeeded', 'charge.failed')) AS events
            UNION ALL
            SELECT 'orders', (SELECT count(*) FROM orders),
                   (SELECT count(*) FROM events WHERE type = 'order.created')
            UNION ALL
            SELECT 'refunds', (SELECT count(*) FROM refunds WHERE status = 'succeeded'),
                   (SELECT count(*) FROM events WHERE type = 'refund.created')
            UNION ALL
            SELECT 'checkouts', (SELECT count(*) FROM checkouts WHERE status <> 'in_progress'),
                   (SELECT count(*) FROM events WHERE type LIKE 'checkout.%')
            UNION ALL
            SELECT 'customers', (SELECT count(*) FROM customers),
                   (SELECT count(*) FROM events WHERE type = 'customer.created')
            UNION ALL
            SELECT 'methods of customers',
                   (SELECT count(*) FROM payment_methods
                     WHERE customer_id IS NOT NULL OR detached_at IS NOT NULL),
                   (SELECT count(*) FROM events WHERE type = 'payment_method.attached')
            UNION ALL
            SELECT 'setup intents', (SELECT count(*) FROM setup_intents),
                   (SELECT count(*) FROM events WHERE type = 'setup_intent.created')
            UNION ALL
            -- Across a network, a new one is told of when the processor has answered.
            SELECT 'payment intents',
                   (SELECT count(*) FROM payment_intents AS intent
                     WHERE NOT EXISTS (SELECT FROM operations
                                        WHERE operations.account_id = intent.account_id
                                          AND operations.payment_intent_id = intent.id
                                          AND verb = 'create_intent' AND completed_at IS NULL)),
                   (SELECT count(*) FROM events WHERE type = 'payment_intent.created')
            UNION ALL
            SELECT 'declines of intents',
                   (SELECT count(*) FROM charges
                     WHERE status = 'failed' AND payment_intent_id IS NOT NULL),
                   (SELECT count(DISTINCT object #>> '{last_payment_error,charge}') FROM events
                     WHERE type = 'payment_intent.payment_failed')) AS counts
          WHERE objects <> events",
    ),
    (
        "G8",
        "an operation is neither completed nor in flight",
        "SELECT operation.id::text, ARRAY[operation.idempotency_key]
           FROM operations AS operation
           LEFT JOIN idempotency_leases AS lease ON lease.account_id = operation.account_id
                AND lease.operation = operation.id
          WHERE operation.completed_at IS NULL AND lease.operation IS NULL",
    ),
    (
        "G3",
        "an object exists that no request asked for",
        "SELECT concat('charge ', id), ARRAY['ch ' || id] FROM charges
          WHERE NOT metadata ? 'torture' AND order_id IS NULL
         UNION ALL
         SELECT concat('customer ', id), ARRAY['cus ' || id] FROM customers
          WHERE NOT metadata ? 'torture'
         UNION ALL
         SELECT concat('payment intent ', id), ARRAY['pi ' || id] FROM payment_intents
          WHERE NOT metadata ? 'torture'
         UNION ALL
         SELECT concat('setup intent ', id), ARRAY['seti ' || id] FROM setup_intents
          WHERE NOT metadata ? 'torture'
         UNION ALL
         SELECT concat('order ', id), ARRAY['or ' || id] FROM orders
          WHERE NOT metadata ? 'torture'
            AND NOT EXISTS (SELECT FROM checkouts WHERE checkouts.account_id = orders.account_id
                               AND checkouts.order_id = orders.id)
         UNION ALL
         SELECT concat('checkout ', id), ARRAY['co ' || id] FROM checkouts WHERE NOT metadata ? 'torture'",
    ),
];

/// How long before its claim a transaction may have begun. An event has the time of that beginning:
/// a claim that waited until the sweep had deleted an expired record is stamped with a time before
/// the deletion, and perhaps before the expiry.
const BEGUN_BEFORE: Duration = Duration::from_secs(1);

/// Checks that hold at any moment, in one snapshot. An error: the database can't be asked.
pub(crate) async fn at_any_moment(
    pool: &PgPool,
    history: &History,
    accounts: &[Uuid],
    profile: &Profile,
) -> Result<(), sqlx::Error> {
    let mut snapshot = pool
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        .await?;
    for (rule, what, query) in ALWAYS {
        // A clock that is wrong gives ids that are out of order.
        if what.contains("out of order") && profile.clock_offset.is_some() {
            continue;
        }
        for row in sqlx::query(query).fetch_all(&mut *snapshot).await? {
            let names: Vec<String> = row.get(1);
            let what = format!("{what}: {}", row.get::<String, _>(0));
            history.violate_of_row(rule, what, &names);
        }
    }
    let overlapping = sqlx::query(
        "WITH execution AS (
            SELECT account_id, idempotency_key, request_id, min(created_at) AS at
              FROM events
             -- A deletion has no key.
             WHERE idempotency_key <> '' GROUP BY account_id, idempotency_key, request_id),
         pair AS (
            SELECT *, lag(at) OVER one_key AS before, lag(request_id) OVER one_key AS first
              FROM execution
            WINDOW one_key AS (PARTITION BY account_id, idempotency_key ORDER BY at))
         SELECT concat_ws(' ', idempotency_key, first, before, request_id, at), idempotency_key
           FROM pair WHERE at < before + $1",
    );
    let overlapping = overlapping.bind(profile.window().saturating_sub(BEGUN_BEFORE));
    for row in overlapping.fetch_all(&mut *snapshot).await? {
        let what = format!("two executions in one window: {}", row.get::<String, _>(0));
        history.violate_about("G1", what, row.get(1));
    }
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT now()")
        .fetch_one(&mut *snapshot)
        .await?;
    intents::declines_are_there(&mut snapshot, history, now).await?;
    let recently = now - RECENT;
    rows::are_what_was_asked_for(&mut snapshot, history, accounts, Some(recently)).await?;
    intents::no_detached_method_pays(&mut snapshot, history, Some(recently)).await?;
    if !profile.expires() {
        let from = Some(recently);
        records::are_what_was_answered(&mut snapshot, history, accounts, from, now).await?;
    }
    let claims = claims(&mut snapshot).await?;
    snapshot.rollback().await?;
    // In phases a claim may be committed and released again, and an expired key is claimed again.
    if !profile.has_processor && !profile.expires() {
        for key in history.keys() {
            let is_true = {
                let key = lock(&key);
                let account = accounts.get(key.account).copied().unwrap_or_default();
                let claimed = claims.get(&(account, key.key.clone())).copied();
                reuse_is_true(&key, claimed, now)
            };
            if !is_true {
                let what = "the key was said to be another request's before it was".to_owned();
                history.violate_at("G4", what, vec![key]);
            }
        }
    }
    Ok(())
}

/// A key is another request's only once that request has claimed it.
fn reuse_is_true(key: &KeyHistory, claimed: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    !key.attempts.iter().any(|attempt| {
        let is_reused = matches!(attempt.verdict, Verdict::Reused);
        is_reused && attempt.ended < now && claimed.is_none_or(|claimed| claimed > attempt.ended)
    })
}

/// The accounts' ids, each in its own database.
pub(crate) async fn account_ids(
    homes: &[Home],
    accounts: &[Account],
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut ids = Vec::new();
    for (number, account) in accounts.iter().enumerate() {
        for home in homes.iter().filter(|home| home.history.is_about(number)) {
            let query = sqlx::query_scalar("SELECT id FROM accounts WHERE name = $1");
            ids.push(query.bind(&account.name).fetch_one(&home.pool).await?);
        }
    }
    Ok(ids)
}

/// Compares the histories with the database, once no request is in flight.
pub(crate) async fn at_the_end(
    pool: &PgPool,
    history: &History,
    accounts: &[Uuid],
    profile: &Profile,
) -> Result<(), sqlx::Error> {
    let executions = executions(pool).await?;
    let retention = TimeDelta::from_std(profile.retention).unwrap_or(TimeDelta::MAX);
    let mut known_keys = HashSet::new();
    for key in history.keys() {
        let mut found = Vec::new();
        {
            let key = lock(&key);
            let Some(account) = accounts.get(key.account) else {
                continue;
            };
            known_keys.insert((*account, key.key.clone()));
            found.extend(windows_that_overlap(&key, retention));
            for (request, _, stored) in key.answers() {
                // A repetition that changes nothing leaves no event.
                let is_repetition = request.is_repeatable && profile.forgets();
                let has_event = stored.status < 300 || stored.status == 402;
                let has_event = has_event && request.verb.leaves_an_event() && !is_repetition;
                let execution = (*account, key.key.clone(), stored.execution.clone());
                if has_event && !executions.contains(&execution) {
                    let what = format!("{} was acknowledged and left nothing", stored.execution);
                    found.push(("G2", what));
                }
            }
        }
        for (rule, what) in found {
            history.violate_at(rule, what, vec![Arc::clone(&key)]);
        }
    }
    for (account, key, request) in &executions {
        if !known_keys.contains(&(*account, key.clone())) {
            history.violate("G3", format!("{request} used the key {key} of {account}"));
        }
    }
    {
        let mut session = pool.acquire().await?;
        rows::are_what_was_asked_for(&mut session, history, accounts, None).await?;
        rows::are_there(&mut session, history, accounts).await?;
        rows::payments_are_of_the_cards(&mut session, history, accounts).await?;
        intents::are_as_told(&mut session, history).await?;
        intents::no_detached_method_pays(&mut session, history, None).await?;
        given_up::keys_are_as_told(&mut session, history, accounts, profile).await?;
        remembered::keys_are_as_told(&mut session, history, accounts, profile).await?;
        if !profile.expires() {
            let now = Utc::now();
            records::are_what_was_answered(&mut session, history, accounts, None, now).await?;
        }
    }
    // A clock that is wrong gives ids that are out of order, so no event is known to be the newest.
    if profile.clock_offset.is_none() {
        objects::newest_events(pool, history).await?;
    }
    objects::levels(pool, history, accounts).await?;
    stock(pool, history).await
}

/// What is left of the stocked items is what there was, less what completed checkouts took.
async fn stock(pool: &PgPool, history: &History) -> Result<(), sqlx::Error> {
    let query = "SELECT inventory.account_id, inventory.sku, inventory.quantity,
                        coalesce(sum((item ->> 'quantity')::bigint), 0)::bigint
                   FROM inventory
                   LEFT JOIN (checkouts CROSS JOIN LATERAL jsonb_array_elements(items) AS item)
                     ON checkouts.account_id = inventory.account_id
                    AND checkouts.status = 'completed' AND item ->> 'sku' = inventory.sku
                  GROUP BY inventory.account_id, inventory.sku, inventory.quantity";
    for row in sqlx::query(query).fetch_all(pool).await? {
        let (account, sku): (Uuid, String) = (row.get(0), row.get(1));
        let (left, taken): (i64, i64) = (row.get(2), row.get(3));
        let at_first = match &*sku {
            sku if sku == SCARCE.0 => SCARCE.1,
            sku if STOCKED.contains(&sku) => INITIAL_STOCK,
            _ => continue,
        };
        if left + taken != at_first {
            let what = format!("{account} has {left} of {sku} left, and {taken} were taken");
            history.violate_about("G5", what, &sku);
        }
    }
    Ok(())
}

/// Account, key and request of everything that left an event under a key of a client's.
async fn executions(pool: &PgPool) -> Result<HashSet<(Uuid, String, String)>, sqlx::Error> {
    // A deletion has no key, and the page of an authentication one that no header can name.
    let query = "SELECT DISTINCT account_id, idempotency_key, request_id FROM events
                  WHERE idempotency_key <> '' AND NOT starts_with(idempotency_key, ',')";
    let rows = sqlx::query(query).fetch_all(pool).await?;
    let executions = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    Ok(executions.collect())
}

async fn claims(
    snapshot: &mut PgConnection,
) -> Result<HashMap<(Uuid, String), DateTime<Utc>>, sqlx::Error> {
    let query = "SELECT account_id, key, created_at FROM idempotency_keys
                  WHERE starts_with(key, $1)";
    let claims = sqlx::query(query).bind(CONTENDED);
    let rows = claims.fetch_all(snapshot).await?;
    let claims = rows
        .iter()
        .map(|row| ((row.get(0), row.get(1)), row.get(2)));
    Ok(claims.collect())
}
