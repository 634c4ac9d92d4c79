//! Everything under test: PostgreSQL, the replicas, the processor, and the networks between them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use charge_once_client::transport::http_client_builder;
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};

use crate::{
    checks::homes,
    client::{Account, Client},
    cluster::{Cluster, DATABASE, PROCESSOR_DATABASE, url_at},
    moves::Moves,
    profile::Profile,
    proxy::{NetworkFault, Proxy, Target},
    replica::{Launch, Process, lasting_address},
    requests::{INITIAL_STOCK, SCARCE, SOLD_OUT, STOCKED},
    shards::{self, Shard, Worker},
    webhooks::Received,
};

/// The replica whose requests run by themselves, each one in a transaction of its own.
pub(crate) const UNBATCHED: usize = 1;

/// A replica whose requests share transactions.
pub(crate) const BATCHING: usize = 0;

/// The size of a replica's pool: small, so that it can run out.
pub(crate) const POOL_CONNECTIONS: usize = 8;

/// Sessions of a replica outside its pool: the sweep, the webhooks', the reconcilers', the batches'
/// and the metrics' own.
pub(crate) const OTHER_CONNECTIONS: usize = 9;

/// Where the pages of authentications are, by the replies' word.
pub(crate) const PUBLIC_URL: &str = "https://pay.test";

/// How long a holder has: little more than the limits of a transaction, a call and its completion.
pub(crate) const LEASE: Duration = Duration::from_secs(11);

/// Which events the accounts want: those that tell of new objects.
pub(crate) const WANTED_EVENTS: [&str; 10] = [
    "charge.succeeded",
    "charge.failed",
    "refund.created",
    "order.created",
    "checkout.completed",
    "checkout.canceled",
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    "customer.deleted",
];

pub(crate) struct Replica {
    pub(crate) process: Process,
    /// Where it tells what it works on.
    pub(crate) metrics: SocketAddr,
    /// Between the clients and it.
    pub(crate) clients: Proxy,
    /// Between it and PostgreSQL.
    pub(crate) database: Proxy,
    /// Between it and the other databases.
    pub(crate) shards: Vec<Proxy>,
    /// Between it and the processor.
    pub(crate) processor: Option<Proxy>,
}

pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) cluster: Cluster,
    /// The databases beside the first one.
    pub(crate) shards: Vec<Shard>,
    pub(crate) replicas: Vec<Replica>,
    /// What works beside them where there are several databases, one for each.
    pub(crate) workers: Vec<Worker>,
    pub(crate) processor: Option<Process>,
    pub(crate) accounts: Vec<Account>,
    pub(crate) moves: Moves,
    pub(crate) received: Arc<Received>,
    /// The program, and how its commands reach the database.
    pub(crate) commands: (PathBuf, Vec<(String, String)>),
}

impl World {
    /// Starts everything, with two accounts that have stock and want events. Where there are
    /// several databases, each has one of the accounts. Every second replica runs the program
    /// `before`, if there is one.
    pub(crate) async fn start(
        program: &Path,
        before: Option<&Path>,
        profile: Profile,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let parameters = profile.server_parameters();
        let mut cluster = Cluster::start(&folder.join("postgres"), parameters).await?;
        if let Some(standby) = profile.standby {
            cluster.pair_up(standby).await?;
        }
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)?;
        let shards = Shard::start_all(&profile, folder).await?;
        let mut direct = vec![("DATABASE_URL".to_owned(), cluster.url(DATABASE))];
        direct.extend(shards::direct(&shards));
        // On a busy machine, a PostgreSQL that has just started takes seconds to connect.
        let patient = variables(&[("POOL_WAIT", "20s"), ("REQUEST_TIMEOUT", "30s")]);
        let patient = [&direct[..], &patient].concat();
        run(program, &["migrate"], &patient).await?;
        if !shards.is_empty() {
            homes::note_executions(&cluster).await?;
        }
        for shard in &shards {
            homes::note_executions(&shard.cluster).await?;
        }
        let mut accounts = Vec::new();
        for (number, name) in ["alice", "bob"].into_iter().enumerate() {
            let mut create = vec!["api-key", "create", "--account", name];
            create.extend(shards::home(&shards, number));
            let output = run(program, &create, &patient).await?;
            let api_key = output.lines().next().context("an API key")?.to_owned();
            let name = name.to_owned();
            accounts.push(Account { name, api_key });
        }
        let processor = match profile.has_processor {
            true => Some(start_processor(program, cluster.url(PROCESSOR_DATABASE), &logs).await?),
            false => None,
        };
        let mut replicas = Vec::new();
        for number in 0..profile.replicas {
            let processor = processor.as_ref().map(|processor| processor.address);
            let older = before.filter(|_| number % 2 == 1);
            let replica = start_replica(
                older.unwrap_or(program),
                &profile,
                number,
                &cluster,
                &shards,
                processor,
                &logs,
            );
            replicas.push(replica.await?);
        }
        let workers = Worker::start_all(&cluster, &shards, &replicas, &logs).await?;
        let clusters = std::iter::once(&cluster).chain(shards.iter().map(|shard| &shard.cluster));
        let sockets = clusters.map(|cluster| cluster.socket.clone()).collect();
        let log = logs.join("moves.log");
        let moves = Moves::prepared(sockets, &shards, accounts.len(), log).await?;
        let world = Self {
            profile,
            cluster,
            shards,
            replicas,
            workers,
            processor,
            accounts,
            moves,
            received: Arc::default(),
            commands: (program.to_owned(), direct),
        };
        world.prepare_accounts().await?;
        Ok(world)
    }

    /// What `charge-once check` finds wrong, by line: an invariant, or a row that contradicts it.
    pub(crate) async fn wrong(&self) -> anyhow::Result<Vec<String>> {
        let (program, variables) = &self.commands;
        let output = command(program, &["check"], variables).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        let told = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(Vec::new()),
            Some(1) => {
                let wrong = told.lines().filter(|line| !line.starts_with("ok "));
                Ok(wrong.map(str::to_owned).collect())
            }
            _ => bail!("`charge-once check` could not tell: {said}"),
        }
    }

    /// A client whose requests go through the networks.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let addresses = self.replicas.iter().map(|one| one.clients.address);
        Client::new(addresses.collect())
    }

    async fn prepare_accounts(&self) -> anyhow::Result<()> {
        let receiver = self.received.listen().await?;
        let address = self.replicas.first().context("a replica")?.process.address;
        for (number, account) in self.accounts.iter().enumerate() {
            let wanted = json!({
                "url": format!("http://{receiver}/{number}"), "enabled_events": WANTED_EVENTS,
            });
            let endpoint = send(Method::POST, address, account, "/webhook_endpoints", wanted);
            let endpoint = endpoint.await?;
            let secret = endpoint.get("secret").and_then(Value::as_str);
            let secret = secret.context("the endpoint's secret")?;
            self.received.add_secret(secret.to_owned());
            let levels = STOCKED.map(|sku| (sku, INITIAL_STOCK));
            for (sku, quantity) in levels.into_iter().chain([SCARCE, (SOLD_OUT, 0)]) {
                let body = json!({ "quantity": quantity });
                let path = format!("/inventory/{sku}");
                send(Method::PUT, address, account, &path, body).await?;
            }
        }
        Ok(())
    }

    /// Ends every fault: networks forward, stopped processes continue, ended ones start again. If
    /// one can't, the others do all the same.
    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        self.cluster.signal_all(Signal::SIGCONT);
        let mut healed = match &self.cluster.pair {
            Some(pair) => pair.heal().await,
            None => Ok(()),
        };
        if let Some(processor) = &self.processor {
            processor.signal(Signal::SIGCONT).await;
            healed = healed.and(processor.restart().await);
        }
        for replica in &self.replicas {
            replica.clients.inject(NetworkFault::None);
            replica.database.inject(NetworkFault::None);
            if let Some(processor) = &replica.processor {
                processor.inject(NetworkFault::None);
            }
            replica.process.signal(Signal::SIGCONT).await;
            healed = healed.and(replica.process.restart().await);
        }
        healed.and(self.heal_shards().await)
    }

    /// Waits until every replica is ready. `false`: one isn't, in time.
    pub(crate) async fn are_ready(&self, until: Instant) -> bool {
        for process in self.processes() {
            while !process.is_ready().await {
                if Instant::now() > until || process.restart().await.is_err() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        true
    }
}

async fn start_processor(
    program: &Path,
    database_url: String,
    logs: &Path,
) -> anyhow::Result<Process> {
    let address = lasting_address()?;
    let launch = Launch {
        program: program.to_owned(),
        arguments: vec!["processor".to_owned()],
        variables: variables(&[
            ("PROCESSOR_BIND_ADDRESS", &address.to_string()),
            ("PROCESSOR_DATABASE_URL", &database_url),
            ("RUST_LOG", "warn"),
        ]),
        log: logs.join("processor.log"),
    };
    Process::start("the processor", address, launch).await
}

async fn start_replica(
    program: &Path,
    profile: &Profile,
    number: usize,
    cluster: &Cluster,
    shards: &[Shard],
    processor: Option<SocketAddr>,
    logs: &Path,
) -> anyhow::Result<Replica> {
    let database = Proxy::start(Target::Unix(cluster.socket.clone())).await?;
    let networks = shards::networks(shards).await?;
    let processor = match processor {
        Some(address) => Some((Proxy::start(Target::Tcp(address)).await?, address)),
        None => None,
    };
    let (address, metrics) = (lasting_address()?, lasting_address()?);
    let url = url_at(database.address);
    let retention = format!("{}s", profile.retention.as_secs());
    let sweep_interval = format!("{}ms", profile.sweep_interval().as_millis());
    let pool = POOL_CONNECTIONS.to_string();
    let mut settings = variables(&[
        ("BIND_ADDRESS", &address.to_string()),
        ("METRICS_ADDRESS", &metrics.to_string()),
        ("DATABASE_URL", &url),
        ("MIGRATE_ON_START", "false"),
        // What replies name is one address, and clients ask any replica for its path.
        ("PUBLIC_URL", PUBLIC_URL),
        ("RATE_LIMIT", "0"),
        ("WORKERS", "1"),
        ("POOL_CONNECTIONS", &pool),
        // Requests in batches and alone meet under a key, and replays from memory and from rows.
        ("BATCH", if number == UNBATCHED { "off" } else { "on" }),
        (
            "REPLAY_CACHE",
            if number == UNBATCHED { "0" } else { "32MiB" },
        ),
        ("IDEMPOTENCY_TTL", &retention),
        ("ALLOW_SHORT_TTL", "true"),
        ("EXPIRY_SWEEP_INTERVAL", &sweep_interval),
        // A short ladder, so that a lease is over soon. The slow card takes 2 seconds.
        ("STATEMENT_TIMEOUT", "2500ms"),
        ("DATABASE_DEADLINE", "3s"),
        ("IDLE_IN_TRANSACTION_TIMEOUT", "4s"),
        ("REQUEST_TIMEOUT", "6s"),
        ("PROCESSOR_TIMEOUT", "2500ms"),
        ("IDEMPOTENCY_LEASE", &format!("{}s", LEASE.as_secs())),
        ("WEBHOOK_ALLOW_PRIVATE", "true"),
        ("WEBHOOK_TIMEOUT", "2s"),
        ("WEBHOOK_RETRY_MIN", "500ms"),
        ("WEBHOOK_RETRY_MAX", "4s"),
        ("WEBHOOK_POLL_INTERVAL", "200ms"),
        ("DRAIN_TIMEOUT", "15s"),
        ("LOG_FORMAT", "json"),
        ("RUST_LOG", "warn"),
    ]);
    settings.extend(shards::behind(shards, &networks));
    if let Some(memory) = profile.memory {
        settings.extend(variables(&[(
            "KEY_MEMORY",
            &format!("{}s", memory.as_secs()),
        )]));
    }
    if let Some((proxy, address)) = &processor {
        // All replicas ask one processor, each through a network of its own.
        settings.extend(variables(&[
            ("PROCESSOR_URL", &format!("http://{}", proxy.address)),
            ("PROCESSOR_NAME", &format!("http://{address}")),
        ]));
    }
    let is_last = number + 1 == profile.replicas;
    if let Some(ahead) = profile.clock_offset.filter(|_| is_last) {
        settings.extend(variables(&[
            // The program `faketime` would stand between us and the process that we signal.
            ("LD_PRELOAD", &libfaketime()?.display().to_string()),
            ("FAKETIME", &format!("+{}s", ahead.as_secs())),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]));
    }
    let name = format!("replica-{number}");
    let launch = Launch {
        program: program.to_owned(),
        arguments: Vec::new(),
        variables: settings,
        log: logs.join(format!("{name}.log")),
    };
    Ok(Replica {
        clients: Proxy::start(Target::Tcp(address)).await?,
        process: Process::start(&name, address, launch).await?,
        metrics,
        database,
        shards: networks,
        processor: processor.map(|(proxy, _)| proxy),
    })
}

/// The library that gives a process another clock.
fn libfaketime() -> anyhow::Result<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib")?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries
        .find(|library| library.exists())
        .context("libfaketime is not installed; on Debian, install the package faketime")
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let pairs = pairs.iter().copied().chain([("PATH", &*path)]);
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Runs a command of the program to its end, and returns what it prints.
pub(crate) async fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(String, String)],
) -> anyhow::Result<String> {
    let output = command(program, arguments, variables).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?} failed: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command of the program to its end, however it ends.
async fn command(
    program: &Path,
    arguments: &[&str],
    variables: &[(String, String)],
) -> anyhow::Result<Output> {
    Command::new(program)
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| format!("{} can't be started", program.display()))
}

async fn send(
    method: Method,
    address: SocketAddr,
    account: &Account,
    path: &str,
    body: Value,
) -> anyhow::Result<Value> {
    let reply = http_client_builder()?
        .build()?
        .request(method, format!("http://{address}{path}"))
        .bearer_auth(&account.api_key)
        .header("idempotency-key", format!("set-up-{path}"))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    let status = reply.status();
    let body = reply.bytes().await?;
    let said = String::from_utf8_lossy(&body);
    ensure!(status.is_success(), "{path}: {status}: {said}");
    Ok(serde_json::from_slice(&body)?)
}
