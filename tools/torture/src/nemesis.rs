//! The faults, one after the other, driven by the seed.
//!
//! Promise: each fault ends, and [`World::heal`] ends all of them.

use std::{ops::RangeInclusive, sync::Mutex, time::Duration};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use rand::{
    RngExt, SeedableRng,
    seq::{IndexedRandom, SliceRandom},
};
use rand_chacha::ChaCha12Rng;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    client::http,
    cluster::{Cluster, DATABASE},
    failover, history, moves,
    proxy::{NetworkFault, Proxy},
    replica::Process,
    world::{LEASE, Replica, World},
};

mod shards;

/// A deck of faults. The first deal has each kind once, in an order by chance. Later ones have each
/// kind as often as it says here. A run that ends before the first deal lacks some kinds.
const DECK: [(Kind, usize); 20] = [
    (Kind::KillReplica, 3),
    (Kind::RollingRestart, 1),
    (Kind::StopReplica, 2),
    (Kind::LateHolder, 2),
    (Kind::RefusedTakeover, 2),
    (Kind::StopPostgres, 1),
    (Kind::RestartPostgres, 1),
    (Kind::EndSessions, 3),
    (Kind::ClientNetwork, 3),
    (Kind::DatabaseNetwork, 4),
    (Kind::LostCommits, 4),
    (Kind::LockRows, 2),
    (Kind::LockTable, 1),
    (Kind::LockMemory, 2),
    (Kind::FullDisk, 1),
    (Kind::NoConnections, 1),
    (Kind::ProcessorNetwork, 3),
    (Kind::ProcessorFaults, 3),
    (Kind::Partition, 2),
    (Kind::LateRefusals, 4),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    KillReplica,
    RollingRestart,
    StopReplica,
    LateHolder,
    RefusedTakeover,
    StopPostgres,
    RestartPostgres,
    EndSessions,
    ClientNetwork,
    DatabaseNetwork,
    LostCommits,
    LockRows,
    LockTable,
    LockMemory,
    FullDisk,
    NoConnections,
    ProcessorNetwork,
    ProcessorFaults,
    Partition,
    LateRefusals,
    FailOver,
    LoseStandby,
}

pub(crate) struct FaultMade {
    pub(crate) name: String,
    pub(crate) began: DateTime<Utc>,
    pub(crate) ended: DateTime<Utc>,
}

pub(crate) type Faults = Vec<FaultMade>;

/// Faults of networks and sessions, which may meet any other fault.
const OVERLAPPING: [(Kind, usize); 7] = [
    (Kind::ClientNetwork, 2),
    (Kind::DatabaseNetwork, 2),
    (Kind::LostCommits, 4),
    (Kind::LockMemory, 4),
    (Kind::EndSessions, 1),
    (Kind::ProcessorNetwork, 1),
    (Kind::Partition, 3),
];

/// Faults of a PostgreSQL with a standby. They may meet any other fault.
const FAILOVERS: [(Kind, usize); 2] = [(Kind::FailOver, 3), (Kind::LoseStandby, 2)];

/// Makes faults until it is dropped: those of the whole deck one after the other, and beside them
/// those that may overlap, and those of shards, whose accounts move.
pub(crate) async fn rage(world: &World, random: &mut ChaCha12Rng, faults: &Mutex<Faults>) {
    let mut second = ChaCha12Rng::from_rng(random);
    let third = world
        .cluster
        .pair
        .as_ref()
        .map(|_| ChaCha12Rng::from_rng(random));
    let failing_over = async {
        if let Some(mut third) = third {
            deal(world, &FAILOVERS, 1_000..=4_000, &mut third, faults).await;
        }
    };
    let mut fourth = ChaCha12Rng::from_rng(random);
    let mut fifth = ChaCha12Rng::from_rng(&mut fourth);
    tokio::join!(
        failing_over,
        deal(world, &DECK, 200..=900, random, faults),
        deal(world, &OVERLAPPING, 1_000..=4_000, &mut second, faults),
        shards::rage(world, &mut fourth, faults),
        moves::rage(world, &mut fifth),
    );
}

/// Deals a deck again and again, with a pause in milliseconds between two faults.
async fn deal(
    world: &World,
    kinds: &[(Kind, usize)],
    between: RangeInclusive<u64>,
    random: &mut ChaCha12Rng,
    faults: &Mutex<Faults>,
) {
    // One of each kind first, and then as often as the deck has it.
    let mut deck: Vec<_> = kinds.iter().map(|(kind, _)| *kind).collect();
    loop {
        deck.shuffle(random);
        for kind in &deck {
            // A fault that can't be made in this profile takes no time.
            let is_allowed = world.moves.faults.read().await;
            let began = Utc::now();
            let made = strike(world, *kind, random).await;
            drop(is_allowed);
            if let Some(name) = made {
                let ended = Utc::now();
                history::lock(faults).push(FaultMade { name, began, ended });
                pause(random, *between.start(), *between.end()).await;
            }
        }
        let whole = kinds
            .iter()
            .flat_map(|(kind, count)| [*kind].repeat(*count));
        deck = whole.collect();
    }
}

/// Makes one fault and ends it. `None`: it can't be made here, was not made, or nothing met it.
async fn strike(world: &World, kind: Kind, random: &mut ChaCha12Rng) -> Option<String> {
    let replica = world.replicas.choose(random)?;
    let cluster = *world.clusters().choose(random)?;
    match kind {
        Kind::KillReplica => {
            let is_killed = kill(&replica.process, 800, random).await?;
            is_killed.then(|| "kill -9 of a replica".to_owned())
        }
        Kind::RollingRestart => {
            for replica in &world.replicas {
                replica.process.replace().await.ok()?;
                world
                    .are_ready(Instant::now() + Duration::from_secs(10))
                    .await;
            }
            Some("rolling restart".to_owned())
        }
        Kind::StopReplica => {
            let is_stopped = stop_for_a_while(&replica.process, random).await;
            is_stopped.then(|| "SIGSTOP of a replica".to_owned())
        }
        Kind::LateHolder => late_holder(world, replica, random).await,
        Kind::RefusedTakeover => refused_takeover(world, replica, random).await,
        Kind::StopPostgres => {
            let is_stopped = cluster.signal_all(Signal::SIGSTOP);
            pause(random, 200, 4_000).await;
            cluster.signal_all(Signal::SIGCONT);
            is_stopped.then(|| "SIGSTOP of PostgreSQL".to_owned())
        }
        Kind::RestartPostgres => {
            let is_stopped = cluster.stop_immediately();
            pause(random, 1_000, 3_000).await;
            is_stopped.then(|| "immediate restart of PostgreSQL".to_owned())
        }
        Kind::EndSessions => {
            let ended = end_sessions(cluster, random).await;
            (ended > 0).then(|| "pg_terminate_backend".to_owned())
        }
        Kind::ClientNetwork => {
            let fault = network_fault(random);
            inject("clients' network", vec![&replica.clients], fault, random).await
        }
        Kind::DatabaseNetwork => {
            let fault = network_fault(random);
            let networks: Vec<_> = replica.databases().collect();
            let network = *networks.choose(random)?;
            inject("database's network", vec![network], fault, random).await
        }
        Kind::LostCommits => {
            let fault = match random.random_ratio(1, 2) {
                true => NetworkFault::LosesAnswersToCommit,
                false => NetworkFault::LosesCommits,
            };
            // All of them, because a COMMIT passes on each for a moment only.
            let networks = world.networks_to_databases();
            inject("database's network", networks, fault, random).await
        }
        Kind::LockRows => {
            lock(cluster, &ROWS, random).await?;
            Some("locked rows".to_owned())
        }
        Kind::LockTable => {
            lock(cluster, &TABLES, random).await?;
            Some("locked table".to_owned())
        }
        Kind::LockMemory => {
            world.profile.memory?;
            lock(cluster, &[MEMORY], random).await?;
            Some("locked memory of keys".to_owned())
        }
        Kind::FullDisk => {
            let ballast = cluster.fill_disk().await.ok()?;
            pause(random, 500, 2_500).await;
            drop(ballast);
            Some("full disk".to_owned())
        }
        Kind::NoConnections => {
            let taken = take_connections(cluster, random).await;
            (taken > 0).then(|| "connection limit".to_owned())
        }
        Kind::ProcessorNetwork => processor_network(world, replica, random).await,
        Kind::ProcessorFaults => processor_faults(world, random).await,
        Kind::Partition => partition(world, replica, random).await,
        Kind::LateRefusals => late_refusals(world, replica, random).await,
        Kind::FailOver => failover::fail_over(world, random).await,
        Kind::LoseStandby => failover::lose_standby(world, random).await,
    }
}

pub(crate) async fn pause(random: &mut ChaCha12Rng, from: u64, to: u64) {
    sleep(Duration::from_millis(random.random_range(from..=to))).await;
}

fn network_fault(random: &mut ChaCha12Rng) -> NetworkFault {
    match random.random_range(0..6) {
        0 => NetworkFault::Delayed(Duration::from_millis(random.random_range(20..400))),
        1 => NetworkFault::Stalled,
        2 => NetworkFault::Cut,
        3 => NetworkFault::HalfClosed,
        4 => NetworkFault::Unreachable,
        _ => NetworkFault::LosesAnswers,
    }
}

fn name_of(fault: NetworkFault) -> &'static str {
    match fault {
        NetworkFault::None => "none",
        NetworkFault::Delayed(_) => "delayed",
        NetworkFault::Stalled => "stalled",
        NetworkFault::Cut => "cut",
        NetworkFault::Unreachable => "unreachable",
        NetworkFault::HalfClosed => "half-closed",
        NetworkFault::LosesAnswers => "answers lost",
        NetworkFault::LosesAnswersToCommit => "answers to COMMIT lost",
        NetworkFault::LosesCommits => "COMMIT lost",
    }
}

/// Gives networks a fault for a while. `None`: no byte met it.
async fn inject(
    which: &str,
    networks: Vec<&Proxy>,
    fault: NetworkFault,
    random: &mut ChaCha12Rng,
) -> Option<String> {
    let met = || networks.iter().map(|network| network.met()).sum::<u64>();
    let all = |fault| networks.iter().for_each(|network| network.inject(fault));
    let before = met();
    all(fault);
    pause(random, 100, 2_500).await;
    let is_met = met() > before;
    // What was silent stays silent until it is cut.
    all(NetworkFault::Cut);
    pause(random, 0, 50).await;
    all(NetworkFault::None);
    is_met.then(|| format!("{which}: {}", name_of(fault)))
}

/// `kill -9` of a process, and a new start after a pause of at most so many milliseconds.
/// `Some(false)`: it had ended before.
async fn kill(process: &Process, longest: u64, random: &mut ChaCha12Rng) -> Option<bool> {
    let is_killed = process.kill().await;
    pause(random, 0, longest).await;
    process.restart().await.ok()?;
    Some(is_killed)
}

/// SIGSTOP of a process for a while, sometimes longer than a lease. `false`: it doesn't run.
async fn stop_for_a_while(process: &Process, random: &mut ChaCha12Rng) -> bool {
    let is_stopped = process.signal(Signal::SIGSTOP).await;
    match random.random_ratio(1, 5) {
        true => pause(random, 11_000, 13_000).await,
        false => pause(random, 200, 3_000).await,
    }
    process.signal(Signal::SIGCONT).await;
    is_stopped
}

/// Ends some sessions of the replicas, in the middle of whatever they do. Returns how many.
async fn end_sessions(cluster: &Cluster, random: &mut ChaCha12Rng) -> u64 {
    let mut ended = 0;
    let Some(mut session) = session(cluster).await else {
        return ended;
    };
    for _ in 0..random.random_range(1..6) {
        let end = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE datname = $1 AND application_name <> 'torture' AND random() < $2",
        );
        let end = end.bind(DATABASE).bind(random.random_range(0.1..0.6));
        match end.execute(&mut session).await {
            Ok(signaled) => ended += signaled.rows_affected(),
            Err(_) => break,
        }
        pause(random, 5, 120).await;
    }
    ended
}

/// Recent rows, as a report or a person's transaction locks them.
const ROWS: [&str; 6] = [
    "SELECT FROM charges ORDER BY id DESC LIMIT 30 FOR UPDATE",
    "SELECT FROM orders ORDER BY id DESC LIMIT 30 FOR UPDATE",
    "SELECT FROM inventory FOR UPDATE",
    "SELECT FROM payment_intents ORDER BY id DESC LIMIT 30 FOR UPDATE",
    "SELECT FROM payment_methods ORDER BY id DESC LIMIT 30 FOR UPDATE",
    "SELECT FROM idempotency_keys ORDER BY created_at DESC LIMIT 50 FOR UPDATE",
];

/// Whole tables, as a careless migration locks them.
const TABLES: [&str; 5] = [
    "LOCK TABLE charges IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE events IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE orders IN SHARE MODE",
    "LOCK TABLE payment_intents IN ACCESS EXCLUSIVE MODE",
];

/// Another sweep's memory of keys that live, of which nothing comes. The next sweep waits for it
/// with their records deleted, and requests with these keys wait for the sweep.
const MEMORY: &str = "INSERT INTO idempotency_tombstones (id, request, expired_at)
                      SELECT DISTINCT idempotency_tombstone_id(account_id, key), 0, now()
                        FROM idempotency_keys
                      ON CONFLICT (id) DO UPDATE SET request = excluded.request";

async fn lock(cluster: &Cluster, locks: &[&'static str], random: &mut ChaCha12Rng) -> Option<()> {
    let mut session = session(cluster).await?;
    let mut tx = session.begin().await.ok()?;
    let lock = *locks.choose(random)?;
    let lock = sqlx::query(lock).execute(&mut *tx);
    timeout(Duration::from_secs(2), lock).await.ok()?.ok()?;
    pause(random, 100, 1_800).await;
    tx.rollback().await.ok()
}

/// Takes every connection that PostgreSQL has left, ends the replicas' own, so that they need new
/// ones, and takes those that this frees. Returns how many it took.
async fn take_connections(cluster: &Cluster, random: &mut ChaCha12Rng) -> usize {
    let Some(mut first) = session(cluster).await else {
        return 0;
    };
    let mut taken = Vec::new();
    for _ in 0..3 {
        while let Ok(session) = cluster.connect("postgres").await {
            taken.push(session);
        }
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = $1 AND application_name <> 'torture'";
        let _ = sqlx::query(end).bind(DATABASE).execute(&mut first).await;
    }
    while let Ok(session) = cluster.connect("postgres").await {
        taken.push(session);
    }
    let count = taken.len();
    pause(random, 200, 2_000).await;
    for session in taken {
        let _ = session.close().await;
    }
    count
}

pub(crate) async fn session(cluster: &Cluster) -> Option<PgConnection> {
    let connecting = cluster.connect(DATABASE);
    timeout(Duration::from_secs(2), connecting).await.ok()?.ok()
}

async fn processor_network(
    world: &World,
    replica: &Replica,
    random: &mut ChaCha12Rng,
) -> Option<String> {
    let processor = world.processor.as_ref()?;
    match random.random_range(0..4) {
        0 => {
            let is_stopped = processor.signal(Signal::SIGSTOP).await;
            pause(random, 200, 3_000).await;
            processor.signal(Signal::SIGCONT).await;
            is_stopped.then(|| "SIGSTOP of the processor".to_owned())
        }
        1 => {
            let is_killed = kill(processor, 1_000, random).await?;
            is_killed.then(|| "kill -9 of the processor".to_owned())
        }
        _ => {
            let fault = network_fault(random);
            let networks = vec![replica.processor.as_ref()?];
            inject("processor's network", networks, fault, random).await
        }
    }
}

/// A holder that sleeps while its lease runs out, with "not executed" waiting for it. Another
/// replica takes its operations over, has them executed, and doesn't learn of it. Then the holder
/// wakes up.
async fn late_holder(world: &World, replica: &Replica, random: &mut ChaCha12Rng) -> Option<String> {
    let network = replica.processor.as_ref()?;
    // Slow, so that many calls are on their way at the same time.
    network.inject(NetworkFault::Delayed(Duration::from_millis(400)));
    pause(random, 500, 700).await;
    let is_refused = set_fault(world, "refuse", 12).await.is_some();
    pause(random, 100, 300).await;
    let is_stopped = replica.process.signal(Signal::SIGSTOP).await;
    network.inject(NetworkFault::None);
    sleep(LEASE - Duration::from_millis(500)).await;
    let is_dropped = set_fault(world, "drop_after", 30).await.is_some();
    pause(random, 1_000, 2_500).await;
    replica.process.signal(Signal::SIGCONT).await;
    let is_made = is_refused && is_stopped && is_dropped;
    is_made.then(|| "holder late for its lease".to_owned())
}

/// A holder that ends with its calls on their way, so that no replica learns that they are
/// executed. Another one takes its operations over when the lease runs out, and is told "not
/// executed" of its own call.
async fn refused_takeover(
    world: &World,
    replica: &Replica,
    random: &mut ChaCha12Rng,
) -> Option<String> {
    let network = replica.processor.as_ref()?;
    network.inject(NetworkFault::Delayed(Duration::from_millis(400)));
    pause(random, 500, 700).await;
    // The proxy delivers what it has read, although its sender is gone.
    let is_killed = replica.process.kill().await;
    let killed = Instant::now();
    sleep(Duration::from_millis(500)).await;
    network.inject(NetworkFault::None);
    replica.process.restart().await.ok()?;
    // Its leases were taken in the last half second of its life.
    sleep_until(killed + LEASE - Duration::from_millis(600)).await;
    let mut is_refused = false;
    for _ in 0..random.random_range(5..10) {
        is_refused |= set_fault(world, "refuse", 20).await.is_some();
        pause(random, 150, 300).await;
    }
    let is_made = is_killed && is_refused;
    is_made.then(|| "refused takeover of a dead holder's operations".to_owned())
}

/// One replica can't connect to the processor, and the way of the others is long: what is certainly
/// not executed by the one is on its way from another.
async fn partition(world: &World, replica: &Replica, random: &mut ChaCha12Rng) -> Option<String> {
    let cut_off = replica.processor.as_ref()?;
    let replicas = world.replicas.iter();
    let networks: Vec<_> = replicas.filter_map(|one| one.processor.as_ref()).collect();
    for network in &networks {
        let delay = Duration::from_millis(random.random_range(100..600));
        network.inject(NetworkFault::Delayed(delay));
    }
    let before = cut_off.met();
    cut_off.inject(NetworkFault::Unreachable);
    pause(random, 1_500, 3_000).await;
    let is_met = cut_off.met() > before;
    for network in &networks {
        network.inject(NetworkFault::None);
    }
    is_met.then(|| "one replica cut off from the processor".to_owned())
}

/// The way between one replica and the processor is long, and the processor refuses a request now
/// and then: until the replica learns that nothing was executed, another one may have had it
/// executed.
async fn late_refusals(
    world: &World,
    replica: &Replica,
    random: &mut ChaCha12Rng,
) -> Option<String> {
    let network = replica.processor.as_ref()?;
    let delay = Duration::from_millis(random.random_range(200..800));
    network.inject(NetworkFault::Delayed(delay));
    let mut is_refused = false;
    for _ in 0..random.random_range(6..14) {
        let count = random.random_range(1..4);
        is_refused |= set_fault(world, "refuse", count).await.is_some();
        pause(random, 100, 400).await;
    }
    network.inject(NetworkFault::None);
    is_refused.then(|| "late refusals of the processor".to_owned())
}

async fn processor_faults(world: &World, random: &mut ChaCha12Rng) -> Option<String> {
    let fault = *[
        "refuse",
        "error_before",
        "drop_before",
        "error_after",
        "drop_after",
    ]
    .choose(random)?;
    set_fault(world, fault, random.random_range(1..8)).await?;
    // The next attempt at what was executed is told that nothing was.
    if fault.ends_with("_after") || random.random_ratio(1, 2) {
        set_fault(world, "refuse", random.random_range(10..60)).await?;
    }
    pause(random, 100, 500).await;
    Some(format!("processor: {fault}"))
}

pub(crate) async fn reset_faults(world: &World) -> Option<()> {
    let request = ask_for_faults(world, Method::DELETE)?;
    request.send().await.ok().map(drop)
}

pub(crate) async fn set_fault(world: &World, fault: &str, count: u32) -> Option<()> {
    let request = ask_for_faults(world, Method::POST)?
        .header("content-type", "application/json")
        .body(json!({"fault": fault, "count": count}).to_string());
    request.send().await.ok().map(drop)
}

fn ask_for_faults(world: &World, method: Method) -> Option<RequestBuilder> {
    let address = world.processor.as_ref()?.address;
    let client = http(Duration::from_secs(2)).ok()?;
    Some(client.request(method, format!("http://{address}/faults")))
}

/// The sessions of the processes under test.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) all: i64,
    /// Idle inside a transaction for more than a second.
    pub(crate) idle: i64,
    /// Locks that are waited for.
    pub(crate) waiting: i64,
}

/// What PostgreSQL says about the sessions, of all databases. `None`: one can't be asked.
pub(crate) async fn sessions(world: &World) -> Option<Sessions> {
    let mut sessions = Sessions::default();
    for cluster in world.clusters() {
        let mut session = session(cluster).await?;
        // PostgreSQL keeps a session whose COMMIT waits for the standby, though its client is gone.
        let counted = sqlx::query(
            "SELECT count(*) FILTER (WHERE wait_event IS DISTINCT FROM 'SyncRep'),
                count(*) FILTER (WHERE state LIKE 'idle in transaction%'
                                   AND state_change < now() - interval '1 second'),
                (SELECT count(*) FROM pg_locks WHERE NOT granted)
           FROM pg_stat_activity WHERE datname = $1 AND application_name <> 'torture'",
        );
        let row = counted.bind(DATABASE).fetch_one(&mut session).await.ok()?;
        sessions.all += row.get::<i64, _>(0);
        sessions.idle += row.get::<i64, _>(1);
        sessions.waiting += row.get::<i64, _>(2);
    }
    Some(sessions)
}
