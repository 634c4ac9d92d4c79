//! After the last fault: everything is back to normal by itself, and nothing has leaked.

use std::{sync::Arc, time::Duration};

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use sqlx::{PgPool, Row};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    history::{History, lock},
    load::Load,
    nemesis,
    replica::Usage,
    requests::Verb,
    world::{OTHER_CONNECTIONS, POOL_CONNECTIONS, WANTED_EVENTS, World},
};

/// How long everything may take to be back to normal.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// A replica's memory in MiB, of which the program needs about 60.
const RESIDENT_MAX_MIB: u64 = 400;

/// A replica's file descriptors: its listeners, its pool, and the clients' connections.
const DESCRIPTORS_MAX: usize = 400;

/// The 99th percentile of a charge's time without faults and load, on a busy machine with two
/// cores.
const PROBE_LIMIT: Duration = Duration::from_millis(1500);

/// Charges that are made to measure it.
const PROBES: u64 = 100;

/// What must be nothing once every request has ended.
const LEFTOVERS: [(&str, &str); 6] = [
    (
        "keys in flight",
        "SELECT count(*) FROM idempotency_keys WHERE status IS NULL",
    ),
    ("leases", "SELECT count(*) FROM idempotency_leases"),
    (
        "unfinished operations",
        "SELECT count(*) FROM operations WHERE completed_at IS NULL",
    ),
    (
        "pending charges and refunds",
        "SELECT (SELECT count(*) FROM charges WHERE status = 'pending')
              + (SELECT count(*) FROM refunds WHERE status = 'pending')",
    ),
    (
        "checkouts in progress",
        "SELECT count(*) FROM checkouts WHERE status = 'in_progress'",
    ),
    (
        "pending deliveries",
        "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'",
    ),
];

/// Drives every request without an answer to one, and waits until nothing is in flight.
pub(crate) async fn everything_ends(load: &Arc<Load>, pool: &PgPool, history: &History, seed: u64) {
    let until = Instant::now() + RECOVERY_LIMIT;
    let mut clients = JoinSet::new();
    for (number, key) in (0..).zip(history.keys()) {
        let open = lock(&key).open_variants();
        // A client that never retries leaves its request to a worker, for as long as that may take.
        let was_sent = !lock(&key).attempts.is_empty();
        for variant in open {
            // A rival that was never sent isn't open.
            let is_sent = lock(&key).attempts.iter().any(|one| one.variant == variant);
            if !was_sent || !is_sent {
                continue;
            }
            let (load, key) = (Arc::clone(load), Arc::clone(&key));
            clients.spawn(async move {
                let mut random = ChaCha12Rng::seed_from_u64(seed ^ number);
                load.drive(&key, variant, &mut random, false).await;
            });
        }
    }
    if tokio::time::timeout_at(until, clients.join_all())
        .await
        .is_err()
    {
        let what =
            format!("not every request has an answer {RECOVERY_LIMIT:?} after the last fault");
        let open = history.keys().into_iter().find(|key| {
            let key = lock(key);
            let open = key.open_variants();
            key.attempts.iter().any(|one| open.contains(&one.variant))
        });
        let example = open.map(|key| lock(&key).describe());
        history.violate("G8", format!("{what}\n{}", example.unwrap_or_default()));
    }
    for (what, query) in LEFTOVERS {
        loop {
            let counted = sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await;
            match counted {
                Ok(0) => break,
                _ if Instant::now() < until => sleep(Duration::from_millis(200)).await,
                left => {
                    history.violate("G8", format!("{what} after {RECOVERY_LIMIT:?}: {left:?}"));
                    break;
                }
            }
        }
    }
}

/// Latency, sessions and locks, without faults and without load. Returns the 99th percentile.
pub(crate) async fn is_back_to_normal(world: &World, load: &Arc<Load>, seed: u64) -> Duration {
    let history = &load.history;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut times = Vec::new();
    for number in 0..PROBES {
        let tag = format!("{seed:x}-probe-{number}");
        let Some(mut request) = Verb::CreateCharge.request(&mut random, &tag, None) else {
            continue;
        };
        request.wait = None;
        request.body = request.body.replace("tok_slow", "tok_visa");
        let key = history.add(0, format!("key-{tag}"), request);
        let began = Instant::now();
        let driven = load.drive(&key, 0, &mut random, false);
        if tokio::time::timeout(RECOVERY_LIMIT, driven).await.is_err() {
            history.violate(
                "G8",
                "a charge without faults and load has no answer".to_owned(),
            );
            break;
        }
        times.push(began.elapsed());
    }
    times.sort();
    let worst = times.iter().rev().nth(times.len() / 100).copied();
    let worst = worst.unwrap_or_default();
    if worst > PROBE_LIMIT {
        history.violate(
            "G8",
            format!("the 99th percentile of a charge is {worst:?}"),
        );
    }
    let sessions_max = world.replicas.len() * (POOL_CONNECTIONS + OTHER_CONNECTIONS);
    match nemesis::sessions(world).await {
        None => history.violate(
            "G8",
            "PostgreSQL can't be asked for its sessions".to_owned(),
        ),
        Some((sessions, idle, waiting)) => {
            if usize::try_from(sessions).is_ok_and(|sessions| sessions > sessions_max) {
                history.violate(
                    "G9",
                    format!("{sessions} sessions, of at most {sessions_max}"),
                );
            }
            if idle > 0 {
                history.violate("G8", format!("{idle} sessions idle inside a transaction"));
            }
            if waiting > 0 {
                history.violate("G8", format!("{waiting} locks are waited for"));
            }
        }
    }
    worst
}

/// Memory and file descriptors of every replica. Returns the most of each.
pub(crate) async fn usage(world: &World, history: &History) -> Usage {
    let mut most = Usage::default();
    for replica in &world.replicas {
        let Some(usage) = replica.process.usage().await else {
            continue;
        };
        most.resident_mib = most.resident_mib.max(usage.resident_mib);
        most.descriptors = most.descriptors.max(usage.descriptors);
        if usage.resident_mib > RESIDENT_MAX_MIB || usage.descriptors > DESCRIPTORS_MAX {
            let name = &replica.process.name;
            history.violate("G9", format!("{name} uses {usage:?}"));
        }
    }
    most
}

/// Every event that an account wanted has a delivery, and was received with a valid signature.
pub(crate) async fn deliveries(
    world: &World,
    pool: &PgPool,
    accounts: &[Uuid],
    history: &History,
) -> Result<(), sqlx::Error> {
    let bad = world.received.bad_signatures();
    if bad > 0 {
        history.violate("G7", format!("{bad} deliveries had no valid signature"));
    }
    let query = "SELECT event.account_id, event.id, event.type, delivery.status
                   FROM events AS event
                   LEFT JOIN webhook_deliveries AS delivery
                     ON delivery.account_id = event.account_id AND delivery.event_id = event.id
                  WHERE event.type = ANY ($1)";
    let wanted = sqlx::query(query).bind(WANTED_EVENTS.map(str::to_owned));
    for row in wanted.fetch_all(pool).await? {
        let (account, id, kind): (Uuid, Uuid, String) = (row.get(0), row.get(1), row.get(2));
        let status: Option<String> = row.get(3);
        let event = crate::ids::public("evt", id);
        let number = accounts.iter().position(|known| *known == account);
        let received = number.is_some_and(|number| world.received.has(number, &event));
        match status.as_deref() {
            Some("succeeded") if received => {}
            status => {
                let what = format!("{kind} {event} is {status:?}, received: {received}");
                history.violate("G7", what);
            }
        }
    }
    Ok(())
}
