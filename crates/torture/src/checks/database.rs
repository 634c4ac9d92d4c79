//! What the database says, beside what the clients were told.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    sync::Arc,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};
use uuid::Uuid;

use super::windows_that_overlap;
use crate::{
    client::Account,
    cluster::DATABASE,
    history::{History, KeyHistory, Verdict, Violation, lock},
    ids,
    load::CONTENDED,
    profile::Profile,
    report::{SHOWN_KEYS_MAX, SHOWN_MAX},
    requests::{INITIAL_STOCK, SCARCE, STOCKED},
    world::World,
};

/// Queries that must find nothing at any moment. Each shows what is wrong in its first column.
const ALWAYS: [(&str, &str, &str); 10] = [
    (
        "G1",
        "an execution made the same change twice",
        "SELECT concat_ws(' ', request_id, type, count(*)) FROM events
          GROUP BY account_id, idempotency_key, request_id, type HAVING count(*) > 1",
    ),
    (
        "G5",
        "a charge's refunds are not what it says",
        "SELECT concat_ws(' ', charge.id, charge.amount_refunded, sum(refund.amount))
           FROM charges AS charge
           LEFT JOIN refunds AS refund ON refund.account_id = charge.account_id
                AND refund.charge_id = charge.id AND refund.status <> 'failed'
          GROUP BY charge.account_id, charge.id
         HAVING charge.amount_refunded <> coalesce(sum(refund.amount), 0)",
    ),
    (
        "G5",
        "a charge has more captured than promised, or more refunded than captured",
        "SELECT concat_ws(' ', id, amount, amount_captured, amount_refunded) FROM charges
          WHERE amount_captured > amount
             OR amount_refunded > CASE WHEN released THEN amount ELSE amount_captured END",
    ),
    (
        "G5",
        "an order is not paid by a charge of its total",
        "SELECT orders.id::text FROM orders JOIN charges AS charge
             ON charge.account_id = orders.account_id AND charge.id = orders.charge_id
          WHERE charge.amount <> orders.amount OR charge.status <> 'succeeded'
             OR charge.order_id IS DISTINCT FROM orders.id",
    ),
    (
        "G1",
        "an order has several charges that took money",
        "SELECT order_id::text FROM charges WHERE status = 'succeeded' AND order_id IS NOT NULL
          GROUP BY account_id, order_id HAVING count(*) > 1",
    ),
    (
        "G5",
        "an inventory level is negative",
        "SELECT concat_ws(' ', sku, quantity) FROM inventory WHERE quantity < 0",
    ),
    (
        "G7",
        "the events of a charge are out of order",
        "SELECT concat_ws(' ', id, object ->> 'id') FROM (
            SELECT id, object, (object ->> 'amount_refunded')::bigint AS refunded,
                   lag((object ->> 'amount_refunded')::bigint)
                       OVER (PARTITION BY account_id, object ->> 'id' ORDER BY id) AS before
              FROM events WHERE type LIKE 'charge.%') AS event
          WHERE refunded < before",
    ),
    (
        "G7",
        "there are more or fewer events about new objects than objects",
        "SELECT concat_ws(' ', noun, objects, events) FROM (
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
                   (SELECT count(*) FROM events WHERE type LIKE 'checkout.%')) AS counts
          WHERE objects <> events",
    ),
    (
        "G8",
        "an operation is neither completed nor in flight",
        "SELECT operation.id::text FROM operations AS operation
           LEFT JOIN idempotency_leases AS lease ON lease.account_id = operation.account_id
                AND lease.operation = operation.id
          WHERE operation.completed_at IS NULL AND lease.operation IS NULL",
    ),
    (
        "G3",
        "an object exists that no request asked for",
        "SELECT concat('charge ', id) FROM charges
          WHERE NOT metadata ? 'torture' AND order_id IS NULL
         UNION ALL
         SELECT concat('order ', id) FROM orders
          WHERE NOT metadata ? 'torture'
            AND NOT EXISTS (SELECT FROM checkouts WHERE checkouts.account_id = orders.account_id
                               AND checkouts.order_id = orders.id)
         UNION ALL
         SELECT concat('checkout ', id) FROM checkouts WHERE NOT metadata ? 'torture'",
    ),
];

/// Checks that hold at any moment, in one snapshot. An error means that the database can't be asked.
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
            history.violate(rule, format!("{what}: {}", row.get::<String, _>(0)));
        }
    }
    let overlapping = sqlx::query(
        "WITH execution AS (
            SELECT account_id, idempotency_key, request_id, min(created_at) AS at
              FROM events GROUP BY account_id, idempotency_key, request_id),
         pair AS (
            SELECT *, lag(at) OVER one_key AS before, lag(request_id) OVER one_key AS first
              FROM execution
            WINDOW one_key AS (PARTITION BY account_id, idempotency_key ORDER BY at))
         SELECT concat_ws(' ', idempotency_key, first, before, request_id, at)
           FROM pair WHERE at < before + $1",
    );
    let overlapping = overlapping.bind(profile.retention);
    for row in overlapping.fetch_all(&mut *snapshot).await? {
        let what = format!("two executions in one window: {}", row.get::<String, _>(0));
        history.violate("G1", what);
    }
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT now()")
        .fetch_one(&mut *snapshot)
        .await?;
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

/// The rows of the keys that the first violations are about, as text for the report.
pub(crate) async fn evidence(world: &World, violations: &[Violation]) -> Vec<String> {
    let pool = world.cluster.pool(DATABASE);
    let mut all = Vec::new();
    for violation in violations.iter().take(SHOWN_MAX) {
        let mut text = String::new();
        for key in violation.keys.iter().take(SHOWN_KEYS_MAX) {
            let (account, name) = {
                let key = lock(key);
                let account = world.accounts.get(key.account);
                (account.map(|account| account.name.clone()), key.key.clone())
            };
            for query in EVIDENCE {
                let rows = sqlx::query_scalar::<_, String>(query);
                let rows = rows.bind(&account).bind(&name).fetch_all(&pool).await;
                for row in rows.unwrap_or_default() {
                    let _ = writeln!(text, "  row: {row}");
                }
            }
        }
        all.push(text);
    }
    all
}

/// What the database holds of a key: its record, its lease, its operations and its events.
const EVIDENCE: [&str; 4] = [
    "SELECT to_jsonb(record)::text FROM idempotency_keys AS record
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(lease)::text FROM idempotency_leases AS lease
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(operation)::text FROM operations AS operation
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2",
    "SELECT to_jsonb(event)::text FROM events AS event
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2
      ORDER BY id",
];

/// The processor's own word for a second effect: a charge that was authorized twice, or one that we
/// have given up, so that its request made another one.
pub(crate) async fn double_charges(
    ours: &PgPool,
    processors: &PgPool,
    history: &History,
) -> Result<(), sqlx::Error> {
    let query = "SELECT charge FROM processor.operations
                  WHERE verb = 'authorize' AND code IS NULL GROUP BY charge HAVING count(*) > 1";
    for row in sqlx::query(query).fetch_all(processors).await? {
        let charge: String = row.get(0);
        let what = format!("the processor authorized {charge} twice");
        history.violate_about("G1", what, &charge);
    }
    // The processor first: our row is committed before it is asked, and stays.
    let query = "SELECT charge FROM processor.charges";
    let theirs: Vec<String> = sqlx::query_scalar(query).fetch_all(processors).await?;
    let query = "SELECT id FROM charges";
    let ours: Vec<Uuid> = sqlx::query_scalar(query).fetch_all(ours).await?;
    let ours: HashSet<String> = ours.iter().map(|id| ids::public("ch", *id)).collect();
    for charge in theirs {
        if !ours.contains(&charge) {
            let what = format!("the processor authorized {charge}, which we have given up");
            history.violate_about("G1", what, &charge);
        }
    }
    Ok(())
}

/// The accounts' ids in the database.
pub(crate) async fn account_ids(
    pool: &PgPool,
    accounts: &[Account],
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut ids = Vec::new();
    for account in accounts {
        let query = sqlx::query_scalar("SELECT id FROM accounts WHERE name = $1");
        ids.push(query.bind(&account.name).fetch_one(pool).await?);
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
    let mut known_tags = HashSet::new();
    for key in history.keys() {
        let mut found = Vec::new();
        {
            let key = lock(&key);
            let Some(account) = accounts.get(key.account) else {
                continue;
            };
            known_keys.insert((*account, key.key.clone()));
            for request in &key.variants {
                known_tags.insert((*account, request.tag.clone()));
            }
            found.extend(windows_that_overlap(&key, retention));
            for (variant, _, stored) in key.answers() {
                // A level leaves no event, and neither does a repetition that changes nothing.
                let is_repeatable = key
                    .variants
                    .get(variant)
                    .is_some_and(|one| one.is_repeatable);
                let has_event = stored.status < 300 || stored.status == 402;
                let has_event = has_event && !(is_repeatable && profile.expires());
                let kind = stored.body.get("object");
                let is_level = kind.is_some_and(|kind| kind == "inventory");
                let execution = (*account, key.key.clone(), stored.execution.clone());
                if has_event && !is_level && !executions.contains(&execution) {
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
    tags(pool, history, &known_tags).await?;
    // A clock that is wrong gives ids that are out of order, so no event is known to be the newest.
    if profile.clock_offset.is_none() {
        newest_events(pool, history).await?;
    }
    levels(pool, history, accounts).await?;
    stock(pool, history).await
}

/// What an object's newest event says of it, and what its row says. Ids differ in their spelling.
const OBJECTS: [(&str, &str, &str); 4] = [
    (
        "ch",
        "SELECT object ->> 'id', concat_ws(' ', object ->> 'status', object ->> 'amount_captured',
                                           object ->> 'amount_refunded'), type, id, account_id
           FROM events WHERE type LIKE 'charge.%'",
        "SELECT id, concat_ws(' ', status, amount_captured, amount_refunded) FROM charges
          WHERE status <> 'pending'",
    ),
    (
        "or",
        "SELECT object ->> 'id', object ->> 'status', type, id, account_id
           FROM events WHERE type LIKE 'order.%'",
        "SELECT id, status FROM orders",
    ),
    (
        "re",
        "SELECT object ->> 'id', object ->> 'status', type, id, account_id
           FROM events WHERE type LIKE 'refund.%'",
        "SELECT id, status FROM refunds WHERE status <> 'pending'",
    ),
    (
        "co",
        "SELECT object ->> 'id', object ->> 'status', type, id, account_id
           FROM events WHERE type LIKE 'checkout.%'",
        "SELECT id, status FROM checkouts WHERE status <> 'in_progress'",
    ),
];

/// Every object is as its newest event shows it: nothing changed without an event, and no event tells
/// of a change that isn't there.
async fn newest_events(pool: &PgPool, history: &History) -> Result<(), sqlx::Error> {
    for (prefix, events, rows) in OBJECTS {
        let events = format!(
            "SELECT DISTINCT ON (event.object_id) object_id, state
               FROM ({events}) AS event (object_id, state, type, id, account_id)
              ORDER BY object_id, id DESC"
        );
        let events = sqlx::query(AssertSqlSafe(events)).fetch_all(pool).await?;
        let mut told: HashMap<String, String> =
            events.iter().map(|row| (row.get(0), row.get(1))).collect();
        for row in sqlx::query(rows).fetch_all(pool).await? {
            let id = ids::public(prefix, row.get(0));
            let is: String = row.get(1);
            match told.remove(&id) {
                Some(told) if told == is => {}
                told => {
                    let what = format!("{id} is {is}, and its newest event says {told:?}");
                    history.violate_about("G7", what, &id);
                }
            }
        }
        for (id, told) in told {
            let what = format!("an event says that {id} is {told}, and it is not there");
            history.violate_about("G3", what, &id);
        }
    }
    Ok(())
}

/// A level is what one of the last acknowledged requests has set it to.
async fn levels(pool: &PgPool, history: &History, accounts: &[Uuid]) -> Result<(), sqlx::Error> {
    let mut writes: HashMap<(Uuid, String), Vec<LevelWrite>> = HashMap::new();
    for key in history.keys() {
        let key = lock(&key);
        let account = accounts.get(key.account).copied().unwrap_or_default();
        for (sku, write) in LevelWrite::all(&key) {
            writes.entry((account, sku)).or_default().push(write);
        }
    }
    let query = "SELECT account_id, sku, quantity FROM inventory";
    for row in sqlx::query(query).fetch_all(pool).await? {
        let (account, sku, left): (Uuid, String, i64) = (row.get(0), row.get(1), row.get(2));
        let Some(of_sku) = writes.get(&(account, sku.clone())) else {
            continue;
        };
        let is_last = |write: &&LevelWrite| {
            let overwrites = |other: &LevelWrite| other.began > write.ended;
            !of_sku.iter().any(overwrites)
        };
        let mut last = of_sku.iter().filter(is_last);
        if !last.any(|write| write.quantity == left) {
            let what = format!("{account} has {left} of {sku}, which no last request has set");
            history.violate("G2", what);
        }
    }
    Ok(())
}

/// One execution that set a level, and the time within which it happened.
struct LevelWrite {
    quantity: i64,
    began: DateTime<Utc>,
    ended: DateTime<Utc>,
}

impl LevelWrite {
    /// What a key's executions have set, by sku. Of several answers from one execution, the first one
    /// says when it was over.
    fn all(key: &KeyHistory) -> Vec<(String, Self)> {
        let Some(first) = key.attempts.first() else {
            return Vec::new();
        };
        let mut executions = HashMap::new();
        for (_, attempt, stored) in key.answers() {
            let text = |name: &str| stored.body.get(name).and_then(Value::as_str);
            let quantity = stored.body.get("quantity").and_then(Value::as_i64);
            if let (Some("inventory"), Some(sku), Some(quantity)) =
                (text("object"), text("sku"), quantity)
            {
                let write = Self {
                    quantity,
                    began: first.began,
                    ended: attempt.ended,
                };
                let execution = executions.entry(&stored.execution);
                let (_, known) = execution.or_insert((sku.to_owned(), write));
                known.ended = known.ended.min(attempt.ended);
            }
        }
        executions.into_values().collect()
    }
}

/// Every object's tag is one of its own account's.
async fn tags(
    pool: &PgPool,
    history: &History,
    known: &HashSet<(Uuid, String)>,
) -> Result<(), sqlx::Error> {
    let query = "SELECT account_id, metadata ->> 'torture' FROM charges WHERE metadata ? 'torture'
                 UNION ALL
                 SELECT account_id, metadata ->> 'torture' FROM orders WHERE metadata ? 'torture'
                 UNION ALL
                 SELECT account_id, metadata ->> 'torture' FROM refunds WHERE metadata ? 'torture'
                 UNION ALL
                 SELECT account_id, metadata ->> 'torture' FROM checkouts WHERE metadata ? 'torture'";
    for row in sqlx::query(query).fetch_all(pool).await? {
        let (account, tag): (Uuid, String) = (row.get(0), row.get(1));
        if !known.contains(&(account, tag.clone())) {
            let what =
                format!("{account} has an object of the request {tag}, which is not its own");
            history.violate_about("G6", what, &tag);
        }
    }
    Ok(())
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
            history.violate("G5", what);
        }
    }
    Ok(())
}

/// Account, key and request of everything that left an event.
async fn executions(pool: &PgPool) -> Result<HashSet<(Uuid, String, String)>, sqlx::Error> {
    let query = "SELECT DISTINCT account_id, idempotency_key, request_id FROM events";
    let rows = sqlx::query(query).fetch_all(pool).await?;
    let executions = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    Ok(executions.collect())
}

/// When the contended keys were claimed.
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

/// The processor's sums and ours, charge by charge. Ids differ in their spelling only.
pub(crate) async fn ledgers(
    ours: &PgPool,
    processors: &PgPool,
    history: &History,
) -> Result<(), sqlx::Error> {
    let query = "SELECT object ->> 'id', max((object ->> 'amount')::bigint) FROM events
                  WHERE type = 'charge.succeeded' GROUP BY 1";
    let rows = sqlx::query(query).fetch_all(ours).await?;
    let authorized: HashMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let query = "SELECT DISTINCT ON (object ->> 'id') object ->> 'id',
                        (object ->> 'amount_captured')::bigint,
                        (object ->> 'amount_refunded')::bigint
                   FROM events WHERE type LIKE 'charge.%' AND type <> 'charge.failed'
                  ORDER BY object ->> 'id', id DESC";
    let rows = sqlx::query(query).fetch_all(ours).await?;
    let mut sums: HashMap<String, [i64; 3]> = HashMap::new();
    for row in &rows {
        let id: String = row.get(0);
        if let Some(amount) = authorized.get(&id) {
            sums.insert(id, [*amount, row.get(1), row.get(2)]);
        }
    }
    let query = "SELECT charge, authorized, captured, released, refunded FROM processor.charges";
    for row in sqlx::query(query).fetch_all(processors).await? {
        let id: String = row.get(0);
        let (captured, released): (i64, i64) = (row.get(2), row.get(3));
        // Releasing a whole authorization is a refund here.
        let refunded = if captured == 0 { released } else { row.get(4) };
        let theirs = [row.get(1), captured, refunded];
        match sums.remove(&id) {
            Some(ours) if ours == theirs => {}
            ours => {
                let what = format!("{id}: the processor has {theirs:?}, and we have {ours:?}");
                history.violate_about("G5", what, &id);
            }
        }
    }
    for (id, ours) in sums {
        let what = format!("{id}: the processor has nothing, and we have {ours:?}");
        history.violate_about("G5", what, &id);
    }
    Ok(())
}
