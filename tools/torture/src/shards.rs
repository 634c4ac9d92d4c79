//! A service with several databases: where each account lives, what works beside the servers, and
//! what the checks of one database look at.
//!
//! Promise: an account's requests are judged by its own database. With one database, nothing of
//! this changes anything.

use std::path::Path;

use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use crate::{
    client::Account,
    cluster::{Cluster, DATABASE, url_at},
    history::History,
    profile::Profile,
    proxy::{NetworkFault, Proxy, Target},
    replica::{Launch, Process, lasting_address},
    world::{Replica, World, run},
};

/// What the program calls the database of `DATABASE_URL`.
const FIRST: &str = "main";

/// A database beside the first one.
pub(crate) struct Shard {
    pub(crate) name: &'static str,
    pub(crate) cluster: Cluster,
}

impl Shard {
    pub(crate) async fn start_all(profile: &Profile, folder: &Path) -> anyhow::Result<Vec<Self>> {
        let mut shards = Vec::new();
        for name in profile.shards {
            let folder = folder.join(format!("postgres-{name}"));
            let cluster = Cluster::start(&folder, profile.server_parameters()).await?;
            shards.push(Self { name, cluster });
        }
        Ok(shards)
    }
}

/// Where commands find the shards: no network is in the way.
pub(crate) fn direct(shards: &[Shard]) -> Option<(String, String)> {
    shard_urls(shards.iter().map(|shard| {
        let Shard { name, cluster } = shard;
        format!("{name}={}", cluster.url(DATABASE))
    }))
}

pub(crate) async fn networks(shards: &[Shard]) -> anyhow::Result<Vec<Proxy>> {
    let mut networks = Vec::new();
    for shard in shards {
        networks.push(Proxy::start(Target::Unix(shard.cluster.socket.clone())).await?);
    }
    Ok(networks)
}

/// What a server is told of the shards: where they are, and that others work beside requests.
pub(crate) fn behind(shards: &[Shard], networks: &[Proxy]) -> Vec<(String, String)> {
    let both = shards.iter().zip(networks);
    let urls = shard_urls(
        both.map(|(shard, network)| format!("{}={}", shard.name, url_at(network.address))),
    );
    let others_work = urls.as_ref().map(|_| ("BACKGROUND", "off"));
    let others_work = others_work.map(|(name, value)| (name.to_owned(), value.to_owned()));
    urls.into_iter().chain(others_work).collect()
}

pub(crate) fn shard_urls(urls: impl Iterator<Item = String>) -> Option<(String, String)> {
    let urls: Vec<String> = urls.collect();
    (!urls.is_empty()).then(|| ("SHARD_URLS".to_owned(), urls.join(",")))
}

/// Where the account of this number lives at first, as arguments of `api-key create`.
pub(crate) fn home(shards: &[Shard], account: usize) -> Vec<&'static str> {
    let names: Vec<&str> = std::iter::once(FIRST)
        .chain(shards.iter().map(|shard| shard.name))
        .collect();
    match names.get(account % names.len()) {
        Some(name) if !shards.is_empty() => vec!["--shard", name],
        _ => Vec::new(),
    }
}

/// `charge-once work` of one database, with the network between the two.
pub(crate) struct Worker {
    pub(crate) process: Process,
    pub(crate) database: Proxy,
}

impl Worker {
    /// One for each database, if there are several: like a server, with its own database only.
    pub(crate) async fn start_all(
        first: &Cluster,
        shards: &[Shard],
        replicas: &[Replica],
        logs: &Path,
    ) -> anyhow::Result<Vec<Self>> {
        let mut workers = Vec::new();
        let Some(server) = replicas.first().filter(|_| !shards.is_empty()) else {
            return Ok(workers);
        };
        let others = shards.iter().map(|shard| (shard.name, &shard.cluster));
        for (name, cluster) in std::iter::once((FIRST, first)).chain(others) {
            let database = Proxy::start(Target::Unix(cluster.socket.clone())).await?;
            let metrics = lasting_address()?;
            let mut launch = Launch {
                arguments: vec!["work".to_owned()],
                log: logs.join(format!("work-{name}.log")),
                ..server.process.launch.clone()
            };
            let is_others = |name: &str| {
                [
                    "SHARD_URLS",
                    "BACKGROUND",
                    "DATABASE_URL",
                    "METRICS_ADDRESS",
                ]
                .contains(&name)
            };
            launch.variables.retain(|(name, _)| !is_others(name));
            launch.variables.extend([
                ("DATABASE_URL".to_owned(), url_at(database.address)),
                ("METRICS_ADDRESS".to_owned(), metrics.to_string()),
            ]);
            let process = Process::start(&format!("work of {name}"), metrics, launch).await?;
            workers.push(Self { process, database });
        }
        Ok(workers)
    }
}

/// A database, and what the clients know of the accounts that live in it.
pub(crate) struct Home {
    /// The shard's name, where there are several.
    pub(crate) name: Option<&'static str>,
    pub(crate) pool: PgPool,
    pub(crate) history: History,
}

impl World {
    /// All databases, the first one first.
    pub(crate) fn clusters(&self) -> Vec<&Cluster> {
        let others = self.shards.iter().map(|shard| &shard.cluster);
        std::iter::once(&self.cluster).chain(others).collect()
    }

    pub(crate) fn name_of(&self, database: usize) -> &'static str {
        let shard = database.checked_sub(1).and_then(|at| self.shards.get(at));
        shard.map_or(FIRST, |shard| shard.name)
    }

    /// All databases for the checks, each with the history of the accounts that live there now.
    pub(crate) fn homes(&self, history: &History) -> Vec<Home> {
        let clusters = self.clusters();
        let are_several = clusters.len() > 1;
        let homes = clusters.iter().enumerate().map(|(number, cluster)| {
            let accounts = 0..self.accounts.len();
            let lives_here = |account: &usize| self.moves.home_of(*account) == number;
            Home {
                name: are_several.then(|| self.name_of(number)),
                pool: cluster.pool(DATABASE),
                history: history.of_accounts(accounts.filter(lives_here).collect()),
            }
        });
        homes.collect()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        let workers = self.workers.iter().map(|worker| &worker.process);
        let replicas = self.replicas.iter().map(|replica| &replica.process);
        replicas.chain(workers)
    }

    pub(crate) fn networks_to(&self, database: usize) -> Vec<&Proxy> {
        let replicas = self.replicas.iter().filter_map(|replica| {
            let mut networks = replica.databases();
            networks.nth(database)
        });
        let worker = self.workers.get(database).map(|worker| &worker.database);
        let moves = self.moves.networks.get(database);
        replicas.chain(worker).chain(moves).collect()
    }

    pub(crate) fn networks_to_databases(&self) -> Vec<&Proxy> {
        let databases = 0..self.clusters().len();
        databases
            .flat_map(|database| self.networks_to(database))
            .collect()
    }

    pub(crate) async fn another_key(&self, account: &Account) -> anyhow::Result<Account> {
        let (program, variables) = &self.commands;
        let create = ["api-key", "create", "--account", &account.name];
        let printed = run(program, &create, variables).await?;
        Ok(Account {
            name: account.name.clone(),
            api_key: printed.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// Ends the faults of shards and of what works beside the servers.
    pub(crate) async fn heal_shards(&self) -> anyhow::Result<()> {
        for cluster in self.clusters() {
            cluster.signal_all(Signal::SIGCONT);
            cluster.bring_up();
        }
        for network in self.networks_to_databases() {
            network.inject(NetworkFault::None);
        }
        let mut healed = Ok(());
        for worker in &self.workers {
            worker.process.signal(Signal::SIGCONT).await;
            healed = healed.and(worker.process.restart().await);
        }
        healed
    }
}

impl Replica {
    /// Its networks to the databases, in their order.
    pub(crate) fn databases(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.database).chain(&self.shards)
    }
}

impl Home {
    /// No account that lives elsewhere has a row here.
    pub(crate) async fn is_no_other_account_s(&self, accounts: &[Uuid]) -> Result<(), sqlx::Error> {
        let Some(name) = self.name else {
            return Ok(());
        };
        let numbered = accounts.iter().enumerate();
        let own = numbered.filter(|(number, _)| self.history.is_about(*number));
        let own: Vec<Uuid> = own.map(|(_, id)| *id).collect();
        let owned = "SELECT table_name::text FROM information_schema.columns
                      WHERE table_schema = current_schema() AND column_name = 'account_id'";
        let owned: Vec<String> = sqlx::query_scalar(owned).fetch_all(&self.pool).await?;
        let owned = owned.iter().map(|table| (&**table, "account_id"));
        for (table, column) in owned.chain([("accounts", "id")]) {
            let strangers =
                format!("SELECT DISTINCT {column} FROM {table} WHERE {column} <> ALL ($1)");
            let strangers = sqlx::query_scalar::<_, Uuid>(AssertSqlSafe(strangers)).bind(&own);
            for stranger in strangers.fetch_all(&self.pool).await? {
                let what = format!(
                    "{table} of the shard {name} has rows of {stranger}, which lives elsewhere"
                );
                self.history.violate("G6", what);
            }
        }
        Ok(())
    }
}
