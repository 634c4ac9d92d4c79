//! After the last fault: everything is back to normal by itself, and nothing has leaked.

use std::{sync::Arc, time::Duration};

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use sqlx::{PgPool, Row};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use crate::{
    history::{History, SharedKey, lock},
    load::Load,
    nemesis::{self, Sessions},
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

/// How many charges are abandoned after the last fault.
const ABANDONED: u32 = 5;

/// Nothing is left in flight, though no client retries: the replicas alone end what they began.
///
/// With a processor, its answers to some charges are lost first, so that there is something to end.
pub(crate) async fn replicas_end_it(world: &World, load: &Arc<Load>, pool: &PgPool, seed: u64) {
    let history = &load.history;
    let mut abandoned = Vec::new();
    if world.profile.has_processor {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        // For all of them: what others still ask would use up so many.
        nemesis::set_fault(world, "drop_after", u32::MAX).await;
        for _ in 0..ABANDONED {
            abandoned.extend(load.abandon(&mut random).await);
        }
        nemesis::reset_faults(world).await;
        if abandoned.iter().all(|(_, is_answered)| *is_answered) {
            let what = "the processor's answers were lost, and every charge has an answer";
            history.violate("G8", what.to_owned());
        }
    }
    nothing_is_left(pool, history, "without a retry").await;
}

/// Drives every request without an answer to one, and waits until nothing is in flight.
pub(crate) async fn everything_ends(load: &Arc<Load>, pool: &PgPool, history: &History, seed: u64) {
    let mut clients = JoinSet::new();
    for (number, key) in (0..).zip(history.keys()) {
        for variant in sent_and_open(&key) {
            let (load, key) = (Arc::clone(load), Arc::clone(&key));
            clients.spawn(async move {
                let mut random = ChaCha12Rng::seed_from_u64(seed ^ number);
                load.drive(&key, variant, &mut random, false).await;
            });
        }
    }
    let driving = timeout(RECOVERY_LIMIT, clients.join_all());
    if driving.await.is_err() {
        let keys = history.keys().into_iter();
        history.violate_at(
            "G8",
            format!("not every request has an answer {RECOVERY_LIMIT:?} after the last fault"),
            keys.filter(|key| !sent_and_open(key).is_empty()).collect(),
        );
    }
    nothing_is_left(pool, history, "after retries").await;
}

/// The requests of a key that were sent and have no answer. A rival may never have been sent.
fn sent_and_open(key: &SharedKey) -> Vec<usize> {
    let key = lock(key);
    let mut open = key.open_variants();
    open.retain(|variant| key.attempts.iter().any(|one| one.variant == *variant));
    open
}

/// Waits until none of the leftovers is there.
async fn nothing_is_left(pool: &PgPool, history: &History, when: &str) {
    let until = Instant::now() + RECOVERY_LIMIT;
    for (what, query) in LEFTOVERS {
        loop {
            let counted = sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await;
            match counted {
                Ok(0) => break,
                _ if Instant::now() < until => sleep(Duration::from_millis(200)).await,
                left => {
                    let what = format!("{what} {when}, after {RECOVERY_LIMIT:?}: {left:?}");
                    history.violate("G8", what);
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
    sessions_are_free(world, history).await;
    worst
}

/// No session waits, and there are no more than the pools may have.
async fn sessions_are_free(world: &World, history: &History) {
    let until = Instant::now() + RECOVERY_LIMIT;
    loop {
        // One look can meet the sweep at its work.
        match nemesis::sessions(world).await {
            Some(Sessions {
                idle: 0,
                waiting: 0,
                ..
            }) => break,
            _ if Instant::now() < until => sleep(Duration::from_millis(200)).await,
            sessions => {
                history.violate(
                    "G8",
                    format!("sessions after {RECOVERY_LIMIT:?}: {sessions:?}"),
                );
                break;
            }
        }
    }
    sessions_are_bounded(world, history, 1).await;
}

/// The replicas have no more sessions than their pools may have.
///
/// `factor` allows for sessions whose replica is gone: PostgreSQL sees that at their next statement.
pub(crate) async fn sessions_are_bounded(world: &World, history: &History, factor: usize) {
    let most = factor * world.replicas.len() * (POOL_CONNECTIONS + OTHER_CONNECTIONS);
    let Some(sessions) = nemesis::sessions(world).await else {
        return;
    };
    if usize::try_from(sessions.all).is_ok_and(|all| all > most) {
        history.violate(
            "G9",
            format!("{} sessions, of at most {most}", sessions.all),
        );
    }
}

/// What every replica uses now.
pub(crate) async fn usage(world: &World, history: &History) {
    for replica in &world.replicas {
        let Some(usage) = replica.process.usage().await else {
            continue;
        };
        history.uses(usage);
        if usage.resident_mib > RESIDENT_MAX_MIB || usage.descriptors > DESCRIPTORS_MAX {
            let name = &replica.process.name;
            history.violate("G9", format!("{name} uses {usage:?}"));
        }
    }
}

/// No replica ended but by a fault, and none panicked.
pub(crate) fn processes_lived(world: &World, history: &History) {
    for process in world.replicas.iter().map(|replica| &replica.process) {
        for end in process.unexpected_ends() {
            history.violate("G8", format!("{} ended: {end}", process.name));
        }
        let panics = process.panics();
        if panics > 0 {
            let what = format!("{} panicked, says its log", process.name);
            history.violate("G8", what);
        }
    }
}

/// Every event that an account wanted has a delivery and was received with a valid signature, and
/// nothing else was received.
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
    let mut strangers = world.received.events();
    for row in wanted.fetch_all(pool).await? {
        let (account, id, kind): (Uuid, Uuid, String) = (row.get(0), row.get(1), row.get(2));
        let status: Option<String> = row.get(3);
        let event = crate::ids::public("evt", id);
        let number = accounts.iter().position(|known| *known == account);
        let received = number.is_some_and(|number| strangers.remove(&(number, event.clone())));
        match status.as_deref() {
            Some("succeeded") if received => {}
            status => {
                let what = format!("{kind} {event} is {status:?}, received: {received}");
                history.violate("G7", what);
            }
        }
    }
    for (account, event) in strangers {
        let what = format!("account {account} received {event}, which is no event that it wanted");
        history.violate("G7", what);
    }
    Ok(())
}
