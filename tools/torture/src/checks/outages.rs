//! While one database is down, the accounts of the others notice nothing.
//!
//! Promise: a number that is judged is compared with one of the same requests of the same clients
//! at the same replicas, moments before. No other fault is made meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    client::Account,
    history::{Attempt, SharedKey, Verdict, lock},
    load::Load,
    proxy::NetworkFault,
    world::World,
};

/// How long the requests are measured before, at least.
const UNDISTURBED: Duration = Duration::from_secs(4);

/// How long a database is down, at least: longer than a server believes what it knows of an API
/// key, so that each key is looked up once more meanwhile.
const DOWN: Duration = Duration::from_secs(7);

/// How long its accounts may wait for it to be back.
const BACK_LIMIT: Duration = Duration::from_secs(30);

/// Requests that tell a 99th percentile.
const ENOUGH: usize = 300;

/// How many times longer it may take on a busy machine to have so many.
const LONGER_MAX: u32 = 3;

/// Clients of each account.
const CLIENTS: usize = 3;

/// Pause of a client between two charges: a steady load that leaves the machine some time.
const PAUSE: Duration = Duration::from_millis(20);

/// How many times slower the 99th percentile may be.
const SLOWER_MAX: u32 = 3;

/// What it may be slower besides. Other processes of the machine make a request wait for a few
/// tenths of a second now and then. What waits for a database that is down waits longer: the
/// shortest limit is `POOL_WAIT`, a second.
const SLOWER_BY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
enum Way {
    /// It has ended, and connections to it are refused.
    Ended,
    /// It is stopped: connections stay open, and nothing answers.
    Silent,
}

struct Times {
    count: usize,
    p99: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self {
            count: times.len(),
            p99: p99(&times).unwrap_or(Duration::MAX),
        }
    }
}

/// The 99th percentile of sorted times.
pub(super) fn p99(times: &[Duration]) -> Option<Duration> {
    times.iter().rev().nth(times.len() / 100).copied()
}

/// Takes one database after the other down, if there are several.
pub(crate) async fn of_each(world: &World, load: &Arc<Load>, seed: u64) -> Vec<String> {
    let mut outages = Vec::new();
    if world.shards.is_empty() {
        return outages;
    }
    for database in 0..world.clusters().len() {
        let clients = Clients {
            world,
            load,
            database,
            seed: seed ^ database as u64,
        };
        // Of two databases, one ends and the other one is silent.
        let way = match seed.wrapping_add(database as u64) % 2 {
            0 => Way::Ended,
            _ => Way::Silent,
        };
        outages.push(clients.outage(way).await);
    }
    outages
}

/// The clients of all accounts while one database is taken down.
struct Clients<'a> {
    world: &'a World,
    load: &'a Arc<Load>,
    /// The one that is taken down.
    database: usize,
    seed: u64,
}

impl Clients<'_> {
    /// Returns what the accounts of other databases noticed.
    async fn outage(&self, way: Way) -> String {
        let (shard, history) = (self.world.name_of(self.database), &self.load.history);
        let new_keys = self.new_keys().await;
        let new_keys = history.checked("no API key was made", new_keys);
        let before = Times::of(self.ask("before", UNDISTURBED).await);
        let (meanwhile, ()) = tokio::join!(self.ask("during", DOWN), async {
            if !self.take_down(way).await {
                history.violate("error", format!("the shard {shard} was not taken down"));
            }
            self.use_new_keys(&new_keys.unwrap_or_default()).await;
        });
        let meanwhile = Times::of(meanwhile);
        self.bring_up().await;
        let limit = before.p99.saturating_mul(SLOWER_MAX);
        let limit = limit.saturating_add(SLOWER_BY);
        let how = match way {
            Way::Ended => "ended",
            Way::Silent => "silent",
        };
        let outage = format!(
            "of {shard}, {how}: 99 % of the others' {} requests within {} ms, and of {} before within {} ms",
            meanwhile.count,
            meanwhile.p99.as_millis(),
            before.count,
            before.p99.as_millis()
        );
        if meanwhile.p99 > limit {
            history.violate("G8", format!("other accounts became slow: outage {outage}"));
        }
        outage
    }

    /// Keys that no replica has seen, of the accounts that should notice nothing.
    async fn new_keys(&self) -> anyhow::Result<Vec<Account>> {
        let mut keys = Vec::new();
        for (number, account) in self.world.accounts.iter().enumerate() {
            if self.world.moves.home_of(number) != self.database {
                keys.push(self.world.another_key(account).await?);
            }
        }
        Ok(keys)
    }

    async fn use_new_keys(&self, keys: &[Account]) {
        for account in keys {
            for replica in 0..self.load.client.replicas() {
                self.read(account, replica, "with a new API key, during")
                    .await;
            }
        }
    }

    /// A steady load of all accounts. Returns how long requests of those took that live elsewhere.
    async fn ask(&self, when: &str, long: Duration) -> Vec<Duration> {
        let began = Instant::now();
        let times = Mutex::new(Vec::new());
        let is_over = || {
            let took = began.elapsed();
            took > long && lock(&times).len() >= ENOUGH || took > long * LONGER_MAX
        };
        let accounts = 0..self.world.accounts.len();
        let (judged, others): (Vec<_>, Vec<_>) = accounts
            .flat_map(|account| (0..CLIENTS).map(move |client| (account, client)))
            .partition(|(account, _)| self.world.moves.home_of(*account) != self.database);
        let judged = judged.into_iter().map(async |(account, client)| {
            let mut random = self.random_of(client);
            for number in (0..).take_while(|_| !is_over()) {
                let name = format!("{when}-{account}-{client}-{number}");
                let replica = self.replica(client + number);
                let took = self.charge(account, &name, replica, when, &mut random);
                let took = took.await;
                lock(&times).extend(took);
                sleep(PAUSE).await;
            }
        });
        let others = others.into_iter();
        let others = others.map(|(account, client)| self.fail(account, client, when));
        tokio::select! {
            _ = join_all(judged) => {}
            // Their requests break off with the others' end.
            _ = join_all(others) => {}
        }
        times.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// A charge of an account that should notice nothing, the same at another replica, which has it
    /// from the database, and a list. Returns how long each took.
    async fn charge(
        &self,
        account: usize,
        name: &str,
        replica: usize,
        when: &str,
        random: &mut ChaCha12Rng,
    ) -> Vec<Duration> {
        let mut times = Vec::new();
        let Some(key) = self.new_charge(account, name, random) else {
            return times;
        };
        for replica in [replica, self.replica(replica + 1)] {
            let began = Instant::now();
            self.load.drive_once_at(replica, &key, random).await;
            times.push(began.elapsed());
        }
        self.have_answers(&key, when);
        if let Some(account) = self.world.accounts.get(account) {
            let began = Instant::now();
            self.read(account, replica, when).await;
            times.push(began.elapsed());
        }
        times
    }

    /// Charges of an account whose database is down. They have no answer, but use what they can.
    async fn fail(&self, account: usize, client: usize, when: &str) {
        let mut random = self.random_of(client);
        for number in 0_usize.. {
            let name = format!("{when}-{account}-{client}-{number}");
            if let Some(key) = self.new_charge(account, &name, &mut random) {
                let replica = self.replica(client + number);
                self.load.drive_once_at(replica, &key, &mut random).await;
            }
            sleep(PAUSE).await;
        }
    }

    fn random_of(&self, client: usize) -> ChaCha12Rng {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        random.set_stream(client as u64);
        random
    }

    fn replica(&self, number: usize) -> usize {
        number % self.load.client.replicas()
    }

    fn new_charge(
        &self,
        account: usize,
        name: &str,
        random: &mut ChaCha12Rng,
    ) -> Option<SharedKey> {
        let tag = format!("{:x}-outage-{}-{name}", self.seed, self.database);
        self.load.quick_charge(account, &tag, random)
    }

    fn have_answers(&self, key: &SharedKey, when: &str) {
        let why = |one: &Attempt| match &one.verdict {
            Verdict::Unknown(why) => Some(why.clone()),
            Verdict::Stored(_) | Verdict::Reused | Verdict::Malformed(_) => None,
        };
        let failed = lock(key).attempts.iter().find_map(why);
        if let Some(why) = failed {
            let (what, keys) = (self.noticed(when, &why), vec![Arc::clone(key)]);
            self.load.history.violate_at("G8", what, keys);
        }
    }

    async fn read(&self, account: &Account, replica: usize, when: &str) {
        let list = self.load.client.get(account, "/charges?limit=3", replica);
        if list.await.is_none() {
            let what = self.noticed(when, "a list has no answer");
            self.load.history.violate("G8", what);
        }
    }

    fn noticed(&self, when: &str, what: &str) -> String {
        let shard = self.world.name_of(self.database);
        format!("a request of another account, {when} an outage of the shard {shard}: {what}")
    }

    /// `false`: it wasn't.
    async fn take_down(&self, way: Way) -> bool {
        let Some(cluster) = self.world.clusters().get(self.database).copied() else {
            return false;
        };
        match way {
            Way::Silent => cluster.signal_all(Signal::SIGSTOP),
            Way::Ended => {
                for network in self.world.networks_to(self.database) {
                    network.inject(NetworkFault::Unreachable);
                }
                cluster.take_down().await
            }
        }
    }

    /// Waits until the database's accounts are served again by each replica.
    async fn bring_up(&self) {
        let history = &self.load.history;
        history.checked("a shard was not brought up", self.world.heal_shards().await);
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        let accounts = 0..self.world.accounts.len();
        let back = accounts.filter(|account| self.world.moves.home_of(*account) == self.database);
        for account in back {
            for replica in 0..self.load.client.replicas() {
                let name = format!("back-{account}-{replica}-{}", random.random::<u32>());
                let Some(key) = self.new_charge(account, &name, &mut random) else {
                    continue;
                };
                let driving = self.load.drive_at(replica, &key, &mut random);
                if timeout(BACK_LIMIT, driving).await.is_err() {
                    let what = format!("an account is not served {BACK_LIMIT:?} after an outage");
                    history.violate_at("G8", what, vec![key]);
                }
            }
        }
    }
}
