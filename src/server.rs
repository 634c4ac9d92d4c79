//! The server: limits, layers, and a graceful end.
//!
//! Promise: from the moment it is asked to stop, `/readyz` answers 503, and all waits for
//! duplicates end. Requests that are executing finish within the drain limit.

use std::{
    future::Future,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    App as ActixApp,
    dev::{Server, ServerHandle},
    middleware::from_fn,
    web,
};
use charge_once_postgres::api_keys::find_account;
use charge_once_service::connections::{self as connections, Files, Hosts, connections_per_worker};
use charge_once_service::openapi::served::ServedDocument;
use charge_once_service::request_log::{self as request_log, Writing};
use charge_once_service::supervisor::Supervisor;
use futures_util::future::{BoxFuture, join_all};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tracing_actix_web::TracingLogger;

use crate::{
    commands::Rows,
    config::{Config, Values},
    console::Pages,
    database::{Database, ReadError, Readiness, Shards},
    http::{
        self, App, Apps, Shared,
        api_keys::ApiKeys,
        faults::Faults,
        middleware::{allowed_host, outermost},
        openapi,
        policy::policy,
        retention::KeyedRoutes,
        shards::{Homes, at_home},
    },
    idempotency::{
        BatchSettings, Batches, COMPLETION_RESERVE, ExternalEffect, Idempotency, LeaseSettings,
        Memory, Phases, ReplayCache, Settings, SharedPhases,
    },
    processor::{HttpProcessor, HttpProcessorError},
    store::{self, operations::Waiting},
    telemetry::{
        RequestSpan,
        metrics::Metrics,
        requests::Routes,
        scrape::{ScrapedDatabase, render},
        traces,
    },
    webhooks::{SENDS_MAX, TlsError, Worker},
    work::{CheckoutPhases, CheckoutSteps, NetworkPhases, ProcessorEffect, SlowLane, expired_key},
    workers::{
        self,
        webhooks::{WebhookFaults, body, worker_settings},
    },
};

/// How long replies may take that are written when the drain limit is reached.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// The kinds of requests in phases, which metrics tell apart.
const PHASE_KINDS: [&str; 2] = [ProcessorEffect::<HttpProcessor>::KIND, CheckoutSteps::KIND];

/// The server could not be set up, or stopped with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The retention, the memory or the pool's size can't be used.
    #[error("IDEMPOTENCY_TTL, KEY_MEMORY or POOL_CONNECTIONS can't be used: {0}")]
    Settings(#[source] sqlx::error::BoxDynError),
    /// The TLS library refuses its default protocol versions: a defect.
    #[error("webhooks can't be sent: {0}")]
    Webhooks(#[from] TlsError),
    /// The account that faults act on can't be found.
    #[error("the account of DEV_API_KEY can't be looked up, for FAULTS: {0}")]
    Faults(#[source] ReadError),
    /// The client of the card processor can't be made.
    #[error("PROCESSOR_URL can't be used: {0}")]
    Processor(#[source] HttpProcessorError),
    /// The listener failed.
    #[error("the server ended: {0}")]
    Io(#[from] std::io::Error),
}

/// Where a server listens.
#[derive(Debug)]
pub struct Listeners {
    /// For clients.
    pub api: TcpListener,
    /// For Prometheus. Without it, nothing is counted.
    pub metrics: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(api: TcpListener) -> Self {
        Self { api, metrics: None }
    }
}

/// Serves on the listeners until `stop` resolves and the requests in flight have finished. Workers
/// run beside the requests, unless the configuration leaves them to other processes.
pub async fn serve(
    Listeners { api, metrics }: Listeners,
    databases: Shards,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = api.local_addr()?;
    let mut process = Process::start(databases.clone(), metrics, config, address).await?;
    process.open_late(databases, config.refused_keys(), config);
    process.log_requests(config);
    if config.values.background {
        process.work(config)?;
    }
    let apps = process.apps();
    let server = http_server(api, &apps, process.metrics.clone(), config)?;
    let handle = server.handle();
    let mut server = tokio::spawn(server);

    tokio::select! {
        ended = &mut server => {
            ended.map_err(std::io::Error::other)??;
            return Ok(());
        }
        () = stop => {}
    }
    let drained = process.drain(config.values.drain_timeout).await;
    let ended = last_moment(drained);
    let closing = async {
        handle.stop(true).await;
        server.await
    };
    match timeout_at(ended, closing).await {
        Ok(closed) => closed.map_err(std::io::Error::other)??,
        Err(_) => tracing::warn!("connections were open at the drain limit"),
    }
    process.end(drained, ended).await;
    Ok(())
}

/// Does the work of servers beside requests until `stop` resolves, for servers that leave it to
/// other processes.
pub async fn work(
    metrics: Option<TcpListener>,
    databases: Shards,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = config.values.bind_address;
    let mut process = Process::start(databases.clone(), metrics, config, address).await?;
    process.open_late(databases, &[], config);
    process.work(config)?;
    stop.await;
    let drained = process.drain(config.values.drain_timeout).await;
    process.end(drained, last_moment(drained)).await;
    Ok(())
}

/// The drain limit, or [`LAST_REPLIES`] from now if that is later. systemd and Kubernetes kill a
/// process that takes much longer.
fn last_moment(drained: Instant) -> Instant {
    drained.max(Instant::now() + LAST_REPLIES)
}

/// What a process has, whether it serves or only works beside those that do.
struct Process {
    sites: Vec<Site>,
    metrics: Metrics,
    scraped: Option<ServerHandle>,
    supervisor: Supervisor,
    stopping: watch::Sender<bool>,
}

/// One database: what its requests work with, and what works beside them.
struct Site {
    app: App,
    request_log: Option<Writing>,
    webhooks: Option<JoinHandle<()>>,
    /// The sweep and the reconcilers.
    others: Vec<JoinHandle<()>>,
}

impl Process {
    async fn start(
        shards: Shards,
        scraped: Option<TcpListener>,
        config: &Config,
        address: SocketAddr,
    ) -> Result<Self, ServeError> {
        // Counts only where metrics can be asked for.
        let metrics = match scraped {
            None => Metrics::off(),
            Some(_) => Metrics::on(&PHASE_KINDS).map_err(std::io::Error::other)?,
        };
        let (stopping, is_stopping) = watch::channel(false);
        let counted = metrics.clone();
        let supervisor = Supervisor::new(is_stopping, move |worker| counted.worker_failed(worker));
        let apps = apps(&shards, config, &metrics, address, &supervisor, &stopping).await?;
        let scraped =
            scraped.map(|listener| serve_metrics(listener, &apps, &metrics, &supervisor, config));
        let sites = apps.into_iter().map(|app| Site {
            app,
            request_log: None,
            webhooks: None,
            others: Vec::new(),
        });
        Ok(Self {
            sites: sites.collect(),
            metrics,
            scraped: scraped.transpose()?,
            supervisor,
            stopping,
        })
    }

    /// Databases that were down at the start are served later. This ends when all are: it is no
    /// worker that the supervisor would begin again.
    fn open_late(&self, databases: Shards, refused_keys: &'static [&'static str], config: &Config) {
        let stopping = self.stopping.subscribe();
        let memory = config.values.key_memory;
        let opening = workers::late_shards::run(databases, refused_keys, memory, stopping);
        tokio::spawn(opening);
    }

    /// Logs requests from now on, each in the database of its account.
    fn log_requests(&mut self, config: &Config) {
        let deadline = config.values.database_deadline;
        let supervisor = &self.supervisor;
        let is_read = config.values.console || config.values.faults;
        for site in self.sites.iter_mut().filter(|_| is_read) {
            let pool = site.app.database.pool().clone();
            let (log, writing) = request_log::start(pool, deadline, |worker| {
                supervisor.spawn("request_log", move || worker.clone().run())
            });
            site.app.request_log = Some(log);
            site.request_log = Some(writing);
        }
    }

    fn work(&mut self, config: &Config) -> Result<(), TlsError> {
        let (metrics, supervisor) = (&self.metrics, &self.supervisor);
        for site in &mut self.sites {
            site.others = reconcilers(&site.app, supervisor);
            site.webhooks = Some(deliver(&site.app, metrics, supervisor, config)?);
            site.others
                .push(sweep(&site.app, config, metrics, supervisor));
        }
        Ok(())
    }

    fn apps(&self) -> Apps {
        let apps = self.sites.iter();
        apps.map(|site| web::Data::new(site.app.clone())).collect()
    }

    /// Waits until no request executes, for `limit` at most. Returns when that is.
    async fn drain(&self, limit: Duration) -> Instant {
        tracing::info!("stopping: finishing what is in flight");
        self.stopping.send_replace(true);
        let drained = Instant::now() + limit;
        let each = self.sites.iter();
        join_all(each.map(|site| drain(&site.app.idempotency, drained))).await;
        drained
    }

    /// Ends all of it by `drained` or `ended`.
    async fn end(self, drained: Instant, ended: Instant) {
        let sites = self.sites.into_iter();
        join_all(sites.map(|site| site.end(drained, ended))).await;
        if let Some(scraped) = self.scraped {
            scraped.stop(false).await;
        }
    }
}

impl Site {
    async fn end(self, drained: Instant, ended: Instant) {
        // The webhook worker has been finishing since the requests began to drain.
        if let Some(mut webhooks) = self.webhooks
            && timeout_at(drained, &mut webhooks).await.is_err()
        {
            tracing::warn!("still sending webhooks at the drain limit; they will be sent again");
            webhooks.abort();
        }
        if let Some(request_log) = self.request_log {
            request_log.end(ended).await;
        }
        if timeout_at(ended, join_all(self.others)).await.is_err() {
            tracing::warn!(
                "still sweeping or recovering at the drain limit; another process goes on with it"
            );
        }
    }
}

async fn apps(
    shards: &Shards,
    config: &Config,
    metrics: &Metrics,
    address: SocketAddr,
    supervisor: &Supervisor,
    stopping: &watch::Sender<bool>,
) -> Result<Vec<App>, ServeError> {
    let observer = Arc::new(metrics.clone());
    let admitting = |database: Database| database.admitting(config.in_progress, observer.clone());
    let databases: Vec<_> = shards.databases().into_iter().map(admitting).collect();
    let names = shards.iter().map(|shard| Arc::clone(&shard.name));
    let readiness = databases.iter().cloned().map(Readiness::of);
    let dev_api_key = config.dev_api_key.as_deref().map(Arc::from);
    let stand_in = dev_api_key.filter(|_| config.values.any_test_key);
    let mut document = openapi::usual();
    let shared = Arc::new(Shared {
        api_keys: ApiKeys::of(databases.clone(), config.values.rate_limit, stand_in),
        hosts: Hosts::of(address, &config.allowed_hosts),
        readiness: names.zip(readiness).collect(),
        public_url: config.public_url(address).into(),
        known_routes: http::known_routes(),
        keyed_routes: KeyedRoutes::of(&config.values, &mut document),
        policy: ServedDocument::of(&policy(&config.values, &mut document))?,
        seal: config.seal.clone(),
        faults: faults(&databases, config).await?,
        failing_workers: supervisor.failing(),
        stopping: stopping.subscribe(),
        values: config.values.clone(),
    });
    let mut apps = Vec::new();
    for (number, database) in databases.into_iter().enumerate() {
        apps.push(app(number, database, Arc::clone(&shared), config, metrics).await?);
    }
    Ok(apps)
}

/// At most one effect per key, in this database, with the times of the configuration.
pub(crate) fn idempotency(
    database: &Database,
    config: &Config,
) -> Result<Idempotency, sqlx::error::BoxDynError> {
    let settings = Settings {
        retention: config.values.idempotency_ttl,
        database_deadline: config.values.database_deadline,
    };
    let idempotency = Idempotency::new(database.connections().clone(), settings)?;
    match memory(&config.values) {
        Some(memory) => idempotency.remembering(memory),
        None => Ok(idempotency),
    }
}

/// What is known of keys whose outcomes have expired.
fn memory(values: &Values) -> Option<Memory> {
    let memory = Memory {
        keep: values.key_memory,
        by_time_in_key: values.refuse_old_keys,
        answer: expired_key,
    };
    (memory.keep.is_some() || memory.by_time_in_key).then_some(memory)
}

async fn app(
    number: usize,
    database: Database,
    shared: Arc<Shared>,
    config: &Config,
    metrics: &Metrics,
) -> Result<App, ServeError> {
    let observer = Arc::new(metrics.clone());
    let idempotency = idempotency(&database, config).map_err(ServeError::Settings)?;
    // Verbs that are functions over rows share transactions, or are batches of one.
    let batch_settings = BatchSettings {
        connections: config.batch_connections(),
        ..BatchSettings::default()
    };
    let batches = Batches::observed(&idempotency, batch_settings, observer.clone());
    let phases = phases(&idempotency, &batches, config, observer.clone())?;
    if phases.is_none() {
        tell_of_unfinished_operations(&database).await;
    }
    let slow_lane = SlowLane::new(config.values.pool_connections);
    let processor = config.processor.as_ref();
    let processor: Option<Arc<str>> = processor.map(|of| of.name.as_str().into());
    let steps = CheckoutSteps {
        idempotency: idempotency.clone(),
        database: database.clone(),
        slow_lane: slow_lane.clone(),
        processor: processor.clone(),
        network: phases.clone(),
        step_wait: config.values.pool_wait + config.values.database_deadline,
    };
    let checkouts =
        checkouts(&idempotency, steps, config, observer.clone()).map_err(ServeError::Settings)?;
    Ok(App {
        number,
        batches,
        replay_cache: config
            .values
            .replay_cache
            .map(|bytes| ReplayCache::new(&idempotency, bytes).observed_by(observer)),
        idempotency,
        slow_lane,
        phases,
        processor,
        checkouts,
        wake_webhooks: Arc::default(),
        request_log: None,
        shared,
        database,
    })
}

/// Serves `/metrics`, and reads what it tells of the databases.
fn serve_metrics(
    listener: TcpListener,
    apps: &[App],
    metrics: &Metrics,
    supervisor: &Supervisor,
    config: &Config,
) -> std::io::Result<ServerHandle> {
    let of_database = |app: &App| {
        let batches = app.batches.clone();
        ScrapedDatabase {
            idempotency: app.idempotency.clone(),
            batch_waiting: Box::new(move || batches.waiting()),
            replay_cache: app.replay_cache.clone(),
            database: app.database.clone(),
        }
    };
    let scraped: Vec<_> = apps.iter().map(of_database).collect();
    let databases: Vec<_> = apps.iter().map(|app| app.database.clone()).collect();
    let (counted, deadline) = (metrics.clone(), config.values.database_deadline);
    if let Some(stopping) = apps.first().map(|app| app.stopping.clone()) {
        supervisor.spawn("database_metrics", move || {
            let (databases, metrics) = (databases.clone(), counted.clone());
            workers::database_metrics::run(databases, metrics, deadline, stopping.clone())
        });
    }
    let metrics = metrics.clone();
    let server = charge_once_service::prometheus::server(
        listener,
        move || render(&metrics, &scraped),
        &config.allowed_hosts,
        config.connections,
        config.values.drain_timeout,
    )?;
    let handle = server.handle();
    tokio::spawn(server);
    Ok(handle)
}

/// Waits until no request executes, or until `limit`. The listener stays open meanwhile, so that
/// `/readyz` can answer 503. A request finishes even if its client has disconnected.
async fn drain(idempotency: &Idempotency, limit: Instant) {
    idempotency.end_waits();
    let drained = timeout_at(limit, idempotency.drained());
    if drained.await.is_err() {
        tracing::warn!(
            "requests still execute at the drain limit; they are rolled back, or continued later"
        );
    }
}

/// Without PROCESSOR_URL, no process continues the operations that began with it, and their objects
/// stay busy.
async fn tell_of_unfinished_operations(database: &Database) {
    let waiting =
        database.snapshot(|connection| Box::pin(store::operations::list_waiting(connection)));
    let count = |all: Waiting| all.unfinished.len() + all.refused.len();
    match waiting.await.map(count) {
        Ok(0) => {}
        Ok(operations) => tracing::error!(
            operations,
            "operations wait for a processor's answer: set PROCESSOR_URL again, or see \
             `charge-once operations list`"
        ),
        Err(error) => tracing::warn!(%error, "unfinished operations can't be counted"),
    }
}

/// For a card processor across a network, if there is one.
fn phases(
    idempotency: &Idempotency,
    batches: &Batches<Rows>,
    config: &Config,
    observer: Arc<Metrics>,
) -> Result<Option<NetworkPhases>, ServeError> {
    let Some(processor) = &config.processor else {
        return Ok(None);
    };
    let timeout = config.values.processor_timeout;
    let effect = ProcessorEffect {
        processor: HttpProcessor::new(&processor.url, timeout, traces::traceparent)
            .map_err(ServeError::Processor)?,
        name: processor.name.clone(),
        send_again_within: processor.send_again_within,
        resolved_by: None,
    };
    let settings = LeaseSettings {
        lease: config.values.lease,
        call_limit: timeout,
    };
    let phases = Phases::new(idempotency.clone(), effect, settings);
    let phases = phases.map_err(ServeError::Settings)?.observed_by(observer);
    Ok(Some(SharedPhases::new(phases, batches.clone())))
}

/// Faults on demand, where they are allowed: for test accounts, and for the account of DEV_API_KEY.
async fn faults(databases: &[Database], config: &Config) -> Result<Option<Faults>, ServeError> {
    if !config.values.faults {
        return Ok(None);
    }
    tracing::warn!("FAULTS is on: clients with test accounts or DEV_API_KEY may ask for faults");
    let Some(key) = &config.dev_api_key else {
        return Ok(Some(Faults::new(None)));
    };
    let mut account = None;
    // One that is down at the start is asked for it at the next one.
    for database in databases.iter().filter(|database| database.is_checked()) {
        let key = key.clone();
        let found = database
            .read(move |connection| Box::pin(async move { find_account(connection, &key).await }));
        account = account.or(found.await.map_err(ServeError::Faults)?);
    }
    Ok(Some(Faults::new(account.map(Into::into))))
}

/// A run of a checkout may last as long as its lease, less the time to store its end.
fn checkouts(
    idempotency: &Idempotency,
    steps: CheckoutSteps,
    config: &Config,
    observer: Arc<Metrics>,
) -> Result<CheckoutPhases, sqlx::error::BoxDynError> {
    let settings = LeaseSettings {
        lease: config.values.lease,
        call_limit: config.values.lease - config.values.database_deadline - COMPLETION_RESERVE,
    };
    Ok(Phases::new(idempotency.clone(), steps, settings)?.observed_by(observer))
}

/// The workers that continue for clients that never retry.
fn reconcilers(app: &App, supervisor: &Supervisor) -> Vec<JoinHandle<()>> {
    let processor = app.phases.iter();
    let processor = processor
        .map(|shared| supervisor.spawn("processor_reconciler", reconciling(app, &shared.phases)));
    let checkouts = supervisor.spawn("checkout_reconciler", reconciling(app, &app.checkouts));
    processor.chain([checkouts]).collect()
}

fn reconciling<E: ExternalEffect>(
    app: &App,
    phases: &Phases<E>,
) -> impl Fn() -> BoxFuture<'static, ()> + Send + 'static {
    let (phases, stopping) = (phases.clone(), app.stopping.clone());
    let (database, wake) = (app.database.clone(), Arc::clone(&app.wake_webhooks));
    move || {
        let (phases, wake) = (phases.clone(), Arc::clone(&wake));
        let reconciling = phases.reconcile(move || wake.notify_one(), stopping.clone());
        Box::pin(when_checked(
            database.clone(),
            stopping.clone(),
            reconciling,
        ))
    }
}

/// Works on a database once it has passed the checks of a start.
async fn when_checked(
    database: Database,
    mut stopping: watch::Receiver<bool>,
    work: impl Future<Output = ()>,
) {
    let is_checked = tokio::select! {
        biased;
        () = database.checked() => true,
        _ = stopping.wait_for(|stopping| *stopping) => false,
    };
    if is_checked {
        work.await;
    }
}

fn deliver(
    app: &App,
    metrics: &Metrics,
    supervisor: &Supervisor,
    config: &Config,
) -> Result<JoinHandle<()>, TlsError> {
    let pool = app.database.pool().clone();
    let mut worker = Worker::new(pool, worker_settings(config), body)?
        .observed_by(Arc::new(metrics.clone()))
        .woken_by(Arc::clone(&app.wake_webhooks));
    if let Some(faults) = &app.faults {
        worker = worker.interfered_by(Arc::new(WebhookFaults {
            database: app.database.clone(),
            dev_account: faults.dev_account,
        }));
    }
    let (database, stopping) = (app.database.clone(), app.stopping.clone());
    Ok(supervisor.spawn("webhooks", move || {
        let delivering = worker.clone().run(stopping.clone());
        when_checked(database.clone(), stopping.clone(), delivering)
    }))
}

fn sweep(app: &App, config: &Config, metrics: &Metrics, supervisor: &Supervisor) -> JoinHandle<()> {
    let (database, config) = (app.database.clone(), config.clone());
    let (metrics, stopping) = (metrics.clone(), app.stopping.clone());
    supervisor.spawn("expiry_sweep", move || {
        let (database, stopping) = (database.clone(), stopping.clone());
        let sweeping = workers::expiry_sweep::run(
            database.clone(),
            config.clone(),
            metrics.clone(),
            stopping.clone(),
        );
        when_checked(database, stopping, sweeping)
    })
}

/// Sets up the HTTP server with its limits and layers, the outermost layer last.
fn http_server(
    listener: TcpListener,
    apps: &Apps,
    metrics: Metrics,
    config: &Config,
) -> std::io::Result<Server> {
    let files = Files {
        workers: config.values.workers,
        shared: config.database_connections(),
        background: match config.values.background {
            // Each database has a worker of its own.
            true => SENDS_MAX * apps.len(),
            false => 0,
        },
        per_request: u32::from(config.processor.is_some()),
    };
    let settings = connections::ServerSettings {
        timeouts: config.connections,
        workers: config.values.workers,
        connections_per_worker: connections_per_worker(&files),
        drain_timeout: config.values.drain_timeout,
    };
    let (with_faults, counted) = (config.values.faults, metrics.clone());
    let address = listener.local_addr()?;
    let console = config.values.console.then(|| {
        let (host, public_url) = (config.own_host(), config.public_url(address));
        Pages::of(Arc::clone(apps), address, &host, &public_url)
    });
    let console = console.transpose().map_err(std::io::Error::other)?;
    let apps = Arc::clone(apps);
    let document = web::Data::from(openapi::served(&config.values)?);
    let app = move || {
        ActixApp::new()
            .configure(|services| {
                // The one for requests without an account.
                if let Some(first) = apps.first() {
                    services.app_data(first.clone());
                }
            })
            .app_data(Rc::new(Homes::of(&apps)))
            .app_data(Routes::new(metrics.clone()))
            .app_data(document.clone())
            .wrap(from_fn(at_home))
            .wrap(from_fn(allowed_host))
            .wrap(TracingLogger::<RequestSpan>::new())
            .wrap(from_fn(outermost))
            .configure(|services| {
                if let Some(console) = &console {
                    console.routes(services);
                }
            })
            .configure(move |config| http::routes(config, with_faults))
    };
    connections::server(listener, app, settings, move |failure| {
        counted.connection_failed(failure);
    })
}
