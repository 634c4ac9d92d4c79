//! After the last fault: everything is back to normal by itself, and nothing has leaked.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use futures_util::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use sqlx::{AssertSqlSafe, PgPool, Row};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use uuid::Uuid;

use super::outages;
use crate::{
    client::http,
    history::{History, SharedKey, lock},
    load::Load,
    nemesis::{self, Sessions},
    replica::Process,
    requests::{SLOW, VISA, Verb},
    shards::Home,
    world::{OTHER_CONNECTIONS, POOL_CONNECTIONS, WANTED_EVENTS, World},
};

/// How long everything together may take to be back to normal after the last fault.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// How long with a standby, which copies or rewinds a database first: no COMMIT ends before that.
const RECOVERY_LIMIT_WITH_STANDBY: Duration = Duration::from_secs(60);

/// A replica's memory in MiB, of which the program needs about 60.
const RESIDENT_MAX_MIB: u64 = 400;

/// A replica's file descriptors: its listeners, its pool, and the clients' connections.
const DESCRIPTORS_MAX: usize = 400;

/// The 99th percentile of a charge's time without faults and load, on a busy machine with two
/// cores.
const PROBE_LIMIT: Duration = Duration::from_millis(1500);

/// Charges that are made to measure it.
const PROBES: u64 = 100;

/// Requests that are sent to each replica at once.
const BURST: usize = POOL_CONNECTIONS;

/// How long a replica may be busy with what it has already answered.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// What must be nothing once every request has ended: the names of what is left.
const LEFTOVERS: [(&str, &str); 6] = [
    (
        "keys in flight",
        "SELECT key FROM idempotency_keys WHERE status IS NULL",
    ),
    ("leases", "SELECT key FROM idempotency_leases"),
    (
        "unfinished operations",
        "SELECT idempotency_key FROM operations WHERE completed_at IS NULL",
    ),
    (
        "pending charges and refunds, and intents that are processed",
        "SELECT 'ch ' || id FROM charges WHERE status = 'pending'
         UNION ALL
         SELECT 're ' || id FROM refunds WHERE status = 'pending'
         UNION ALL
         SELECT 'pi ' || id FROM payment_intents WHERE status = 'processing'",
    ),
    (
        "checkouts in progress",
        "SELECT idempotency_key FROM checkouts WHERE status = 'in_progress'",
    ),
    (
        "pending deliveries",
        "SELECT event.idempotency_key
           FROM webhook_deliveries AS delivery
           JOIN events AS event
             ON event.account_id = delivery.account_id AND event.id = delivery.event_id
          WHERE delivery.status = 'pending'",
    ),
];

/// How many charges are abandoned after the last fault.
const ABANDONED: u32 = 5;

pub(crate) struct Recovered {
    /// From the last fault until everything was back to normal: the longest of several times.
    pub(crate) after: Duration,
    /// The 99th percentile of a charge's time then.
    pub(crate) probe: Duration,
    /// What accounts noticed of those of other databases.
    pub(crate) outages: Vec<String>,
}

/// Everything is back to normal within [`RECOVERY_LIMIT`] of the last fault. With a processor, it
/// is so again when the answers to some charges were lost, which is one more fault. Then charges
/// are fast, and requests at once leave nothing behind.
pub(crate) async fn recover(
    world: &World,
    load: &Arc<Load>,
    homes: &[Home],
    seed: u64,
) -> Recovered {
    let history = &load.history;
    nemesis::reset_faults(world).await;
    let mut after = settle(world, load, homes, seed).await;
    if world.profile.has_processor {
        lose_answers(world, load, seed).await;
        after = after.max(settle(world, load, homes, seed).await);
    }
    let outages = outages::of_each(world, load, seed).await;
    if !outages.is_empty() {
        after = after.max(settle(world, load, homes, seed).await);
    }

    let probe = probe(load, seed).await;
    burst(load, seed).await;
    let settled = Instant::now() + SETTLE_LIMIT;
    nothing_is_left(homes, history, "after the probe", settled).await;
    replicas_are_idle(world, history, "after the probe", settled).await;
    if !sessions_are_bounded(world, history, 1).await {
        history.violate("error", "the sessions could not be counted".to_owned());
    }
    Recovered {
        after,
        probe,
        outages,
    }
}

/// Within [`RECOVERY_LIMIT`] of the last fault, all steps together: replicas are ready, what they
/// began has ended without a retry, every request has an answer, no session holds a lock, and no
/// request a connection. Returns how long it took.
async fn settle(world: &World, load: &Arc<Load>, homes: &[Home], seed: u64) -> Duration {
    let (history, last_fault) = (&load.history, Instant::now());
    let until = last_fault
        + match world.profile.standby {
            Some(_) => RECOVERY_LIMIT_WITH_STANDBY,
            None => RECOVERY_LIMIT,
        };
    if !world.are_ready(until).await {
        let what = "not every replica is ready in time after the last fault".to_owned();
        history.violate("G8", what);
    }
    // No client retries: the replicas alone end what they began.
    nothing_is_left(homes, history, "in time without a retry", until).await;
    everything_ends(load, history, seed, until).await;
    nothing_is_left(homes, history, "in time after retries", until).await;
    sessions_are_free(world, history, until).await;
    replicas_are_idle(world, history, "after the last fault", until).await;
    last_fault.elapsed()
}

/// The last fault: the processor's answers to some charges are lost, so that there is something to
/// end.
async fn lose_answers(world: &World, load: &Arc<Load>, seed: u64) {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut abandoned = Vec::new();
    // For all of them: what others still ask would use up so many.
    nemesis::set_fault(world, "drop_after", u32::MAX).await;
    for _ in 0..ABANDONED {
        abandoned.extend(load.abandon(&mut random).await);
    }
    nemesis::reset_faults(world).await;
    if abandoned.iter().all(|is_answered| *is_answered) {
        let what = "the processor's answers were lost, and every charge has an answer";
        load.history.violate("G8", what.to_owned());
    }
}

/// Drives every request without an answer to one.
async fn everything_ends(load: &Arc<Load>, history: &History, seed: u64, until: Instant) {
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
    // What is late all the same is driven on for a while: the checks at the end compare its answer.
    let given_up = until.max(Instant::now() + SETTLE_LIMIT);
    let is_driven = timeout_at(given_up, clients.join_all()).await.is_ok();
    if !is_driven || Instant::now() > until {
        let keys = history.keys().into_iter();
        history.violate_at(
            "G8",
            "not every request has an answer in time after the last fault".to_owned(),
            keys.filter(|key| !sent_and_open(key).is_empty()).collect(),
        );
    }
}

/// The requests of a key that were sent and have no answer. A rival may never have been sent.
fn sent_and_open(key: &SharedKey) -> Vec<usize> {
    let key = lock(key);
    let mut open = key.open_variants();
    open.retain(|variant| key.attempts.iter().any(|one| one.variant == *variant));
    open
}

/// Waits until none of the leftovers is there.
async fn nothing_is_left(homes: &[Home], history: &History, when: &str, until: Instant) {
    let all = homes.iter();
    for (Home { pool, .. }, (what, query)) in all.flat_map(|home| LEFTOVERS.map(|one| (home, one)))
    {
        loop {
            let counted = format!("SELECT count(*) FROM ({query}) AS leftover");
            let counted = sqlx::query_scalar::<_, i64>(AssertSqlSafe(counted));
            match counted.fetch_one(pool).await {
                Ok(0) => break,
                _ if Instant::now() < until => sleep(Duration::from_millis(200)).await,
                left => {
                    let names = sqlx::query_scalar::<_, String>(query).fetch_all(pool).await;
                    let what = format!("{what} {when}: {left:?}");
                    history.violate_of_row("G8", what, &names.unwrap_or_default());
                    break;
                }
            }
        }
    }
}

/// Charges one after the other, without faults and without load. Returns the 99th percentile.
async fn probe(load: &Arc<Load>, seed: u64) -> Duration {
    let history = &load.history;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut times = Vec::new();
    for number in 0..PROBES {
        let tag = format!("{seed:x}-probe-{number}");
        let Some(key) = load.quick_charge(0, &tag, &mut random) else {
            continue;
        };
        let began = Instant::now();
        let driven = load.drive(&key, 0, &mut random, false);
        if timeout(RECOVERY_LIMIT, driven).await.is_err() {
            let what = "a charge without faults and load has no answer".to_owned();
            history.violate_at("G8", what, vec![key]);
            break;
        }
        times.push(began.elapsed());
    }
    times.sort();
    let worst = outages::p99(&times).unwrap_or_default();
    if worst > PROBE_LIMIT {
        let what = format!("the 99th percentile of a charge is {worst:?}");
        history.violate("G8", what);
    }
    worst
}

/// Requests at every replica at once, as many as its pool has connections: charges, which share
/// transactions, and levels, which have one each.
async fn burst(load: &Arc<Load>, seed: u64) {
    let history = &load.history;
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ 1);
    let mut keys = Vec::new();
    for replica in 0..load.client.replicas() {
        for number in 0..BURST {
            let tag = format!("{seed:x}-burst-{replica}-{number}");
            let verb = match number % 2 {
                0 => Verb::CreateCharge,
                _ => Verb::SetInventory,
            };
            if let Some(mut request) = verb.request(&mut random, &tag, None) {
                request.replace_card(SLOW, VISA);
                let key = history.add(number / 2 % load.accounts.len(), tag, vec![request]);
                keys.push((replica, key));
            }
        }
    }
    let driving = keys.iter().map(|(replica, key)| {
        let mut random = ChaCha12Rng::seed_from_u64(random.random());
        async move { load.drive_at(*replica, key, &mut random).await }
    });
    if timeout(RECOVERY_LIMIT, join_all(driving)).await.is_err() {
        let what = "of requests at once without faults, not every one has an answer".to_owned();
        let keys = keys.into_iter().map(|(_, key)| key);
        let open = keys.filter(|key| !lock(key).open_variants().is_empty());
        history.violate_at("G8", what, open.collect());
    }
}

const METRICS_LIMIT: Duration = Duration::from_secs(2);

/// What a replica works on, by its own word.
#[derive(Debug, Clone, Copy)]
struct Busy {
    keys_in_flight: u64,
    /// Open connections of its pool.
    connections: u64,
    /// Those of them that no request has.
    idle: u64,
}

impl Busy {
    async fn read(address: SocketAddr) -> anyhow::Result<Self> {
        let reply = http(METRICS_LIMIT)?
            .get(format!("http://{address}/metrics"))
            .send();
        let body = reply.await?.error_for_status()?.bytes().await?;
        let text = String::from_utf8_lossy(&body);
        let gauge = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let line = lines.find(|(known, _)| *known == name);
            let (_, value) = line.with_context(|| format!("there is no {name}"))?;
            let value = value.trim().parse();
            value.with_context(|| format!("{name} is no count"))
        };
        Ok(Self {
            keys_in_flight: gauge("charge_once_idempotency_keys_in_flight")?,
            connections: gauge("charge_once_pool_connections")?,
            idle: gauge("charge_once_pool_connections_idle")?,
        })
    }
}

/// No replica works on a key or has a connection of its pool in use.
async fn replicas_are_idle(world: &World, history: &History, when: &str, until: Instant) {
    let workers = world.workers.iter().map(|worker| &worker.process);
    let workers = workers.map(|process| (process.address, process));
    let replicas = world.replicas.iter();
    let replicas = replicas.map(|replica| (replica.metrics, &replica.process));
    for (metrics, Process { name, .. }) in replicas.chain(workers) {
        loop {
            // One look can meet a request for `/readyz`, or a worker.
            match Busy::read(metrics).await {
                Ok(busy) if busy.keys_in_flight == 0 && busy.idle == busy.connections => break,
                _ if Instant::now() < until => sleep(Duration::from_millis(200)).await,
                busy => {
                    history.violate("G8", format!("{name} is not idle {when}: {busy:?}"));
                    break;
                }
            }
        }
    }
}

/// No session waits, and none idles inside a transaction.
async fn sessions_are_free(world: &World, history: &History, until: Instant) {
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
                let what = format!("sessions too long after the last fault: {sessions:?}");
                history.violate("G8", what);
                break;
            }
        }
    }
}

/// The replicas have no more sessions than their pools may have. `false`: not counted.
///
/// `factor` allows for those whose replica is gone: PostgreSQL sees that at their next statement.
pub(crate) async fn sessions_are_bounded(world: &World, history: &History, factor: usize) -> bool {
    let processes = world.clusters().len() * world.replicas.len() + world.workers.len();
    let most = factor * processes * (POOL_CONNECTIONS + OTHER_CONNECTIONS);
    let Some(sessions) = nemesis::sessions(world).await else {
        return false;
    };
    if usize::try_from(sessions.all).is_ok_and(|all| all > most) {
        let what = format!("{} sessions, of at most {most}", sessions.all);
        history.violate("G9", what);
    }
    true
}

/// What every replica uses now. `false`: that of one could not be read, as of one that doesn't run.
pub(crate) async fn usage(world: &World, history: &History) -> bool {
    let mut are_all_read = true;
    for process in world.processes() {
        let Some(usage) = process.usage().await else {
            are_all_read = false;
            continue;
        };
        history.uses(usage);
        if usage.resident_mib > RESIDENT_MAX_MIB || usage.descriptors > DESCRIPTORS_MAX {
            let name = &process.name;
            history.violate("G9", format!("{name} uses {usage:?}"));
        }
    }
    are_all_read
}

/// What a start says that gives up on a database. Faults of several databases overlap, so one may
/// be away for longer than a start waits, or go between two of its looks. A supervisor starts such
/// a process again.
const GIVES_UP: [&str; 2] = [
    "the database doesn't answer: ",
    "the database accepts connections but said nothing",
];

/// No replica ended but by a fault, and none panicked.
pub(crate) fn processes_lived(world: &World, history: &History) {
    for process in world.processes() {
        for end in process.unexpected_ends() {
            if !world.shards.is_empty() && GIVES_UP.iter().any(|why| end.contains(why)) {
                history.tell("a start gave up on a database".to_owned(), None);
                continue;
            }
            history.violate("G8", format!("{} ended: {end}", process.name));
        }
        if process.panics() > 0 {
            let what = format!("{} panicked, says its log", process.name);
            history.violate("G8", what);
        }
    }
}

/// Every event that an account of this database wanted has a delivery and was received with a valid
/// signature, and nothing else was received.
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
    let query = "SELECT event.account_id, event.id, event.type, delivery.status,
                        event.idempotency_key
                   FROM events AS event
                   LEFT JOIN webhook_deliveries AS delivery
                     ON delivery.account_id = event.account_id AND delivery.event_id = event.id
                  WHERE event.type = ANY ($1)";
    let wanted = sqlx::query(query).bind(WANTED_EVENTS.map(str::to_owned));
    let mut strangers = world.received.events();
    strangers.retain(|(account, _)| history.is_about(*account));
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
                history.violate_about("G7", what, row.get(4));
            }
        }
    }
    for (account, event) in strangers {
        let what = format!("account {account} received {event}, which is no event that it wanted");
        history.violate("G7", what);
    }
    Ok(())
}
