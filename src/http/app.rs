//! What every handler works with.

use std::{ops::Deref, sync::Arc, time::Duration};

use actix_web::web::Data;
use charge_once_postgres::api_keys::hold_account;
use charge_once_service::connections::Hosts;
use charge_once_service::edge::KnownRoutes;
use charge_once_service::openapi::served::ServedDocument;
use charge_once_service::request_log::RequestLog;
use charge_once_service::supervisor::Failing;
use charge_once_strict_params::Expansion;
use tokio::sync::{Notify, watch};

use super::{
    api_keys::ApiKeys,
    error::HttpError,
    faults::{Fault, Faults},
    retention::KeyedRoutes,
};
use crate::{
    commands::{Origin, Rows, Rules},
    config::Values,
    database::{Database, PgConnection, Readiness, Reading, Writing},
    domain::{fault_plan::targets_of_request, ids::AccountId},
    idempotency::{Batches, FailureKind, Idempotency, Outcome, ReplayCache, Request, Seal},
    store::fault_plans,
    wire::error::ApiError,
    work::{CheckoutPhases, NetworkPhases, RunVerb, SlowLane},
};

/// What handlers work with: one for each database. A handler gets the one of the database in which
/// the account of its request lives, and the first one for a request without an account.
pub type Apps = Arc<[Data<App>]>;

/// What handlers work with. Cheap to clone; one for all worker threads.
#[derive(Clone)]
pub struct App {
    /// Which of the service's databases it works with, counted from 0.
    pub number: usize,
    /// The one way to write, but for a DELETE without a key.
    pub idempotency: Idempotency,
    /// The way to run verbs that are functions over rows, many in one transaction.
    pub batches: Batches<Rows>,
    /// Stored replies in memory, if there is room for any.
    pub replay_cache: Option<ReplayCache>,
    /// The way to read, and to delete without a key.
    pub database: Database,
    /// For `tok_slow`, where the processor is simulated in this process.
    pub slow_lane: SlowLane,
    /// The way to ask a card processor across a network, if there is one.
    pub phases: Option<NetworkPhases>,
    /// The name of that processor.
    pub processor: Option<Arc<str>>,
    /// The way to run several commands as one.
    pub checkouts: CheckoutPhases,
    /// Wakes this replica's delivery of webhooks, after each COMMIT that may have written an event.
    pub wake_webhooks: Arc<Notify>,
    /// Where requests are logged, for the console and for reports on clients.
    pub request_log: Option<RequestLog>,
    /// What the databases have in common; its members are read as the `App`'s own.
    pub shared: Arc<Shared>,
}

/// What all databases of a process have in common.
pub struct Shared {
    /// Finds the account of an API key, and limits how often it may call.
    pub api_keys: ApiKeys,
    /// By which names clients may call this server.
    pub hosts: Hosts,
    /// What is known of all databases, by their names, for probes.
    pub readiness: Vec<(Arc<str>, Readiness)>,
    /// What the addresses of pages begin with, without a slash at its end.
    pub public_url: Arc<str>,
    /// The routes of the API, without those for tests.
    pub known_routes: &'static KnownRoutes,
    /// How long the keys of each route are kept, and which replies show secrets.
    pub keyed_routes: KeyedRoutes,
    /// What clients may rely on when they retry.
    pub policy: ServedDocument,
    /// What seals stored replies, if any are.
    pub seal: Option<Seal>,
    /// Faults on demand, where they are allowed.
    pub faults: Option<Faults>,
    /// For probes: what does not work beside requests.
    pub failing_workers: Failing,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
    /// What the process was started with.
    pub values: Values,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl App {
    /// Runs a verb at most once: in one transaction with others, or in phases where it may ask a
    /// card processor across a network. Its parameters are `weight` bytes, and the reply shows
    /// whole what `expand` names.
    pub async fn run_rules<V: Rules>(
        &self,
        (request, origin): (Request, Origin),
        verb: Result<V, ApiError>,
        (weight, expand): (usize, Expansion),
    ) -> Outcome {
        let command = RunVerb {
            origin,
            verb,
            weight,
            expand,
            slow_lane: self.slow_lane.clone(),
            processor: self.processor.clone(),
            public_url: Some(Arc::clone(&self.public_url)),
        };
        match &self.phases {
            Some(phases) => phases.run(request, command).await,
            None => self.batches.run(request, command).await,
        }
    }

    /// Reads with several statements, which all see the same moment; otherwise as [`App::read`].
    pub async fn snapshot<T, F>(&self, account: AccountId, read: F) -> Result<T, HttpError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        let found = self.database.of(account.0).snapshot(read).await;
        found.map_err(HttpError::failed_without_key)
    }

    /// Reads for an account on a pooled connection; a failure is logged here and opaque to the
    /// client.
    pub async fn read<T, F>(&self, account: AccountId, read: F) -> Result<T, HttpError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        let found = self.database.of(account.0).read(read).await;
        found.map_err(HttpError::failed_without_key)
    }

    /// The fault of the plan that acts on a request to this route, which is counted. Requests to
    /// `/test` are left alone.
    pub(super) async fn planned_fault(
        &self,
        id: AccountId,
        method: &str,
        route: &str,
    ) -> Result<Option<Fault>, HttpError> {
        if route.starts_with("/test/") {
            return Ok(None);
        }
        let targets = targets_of_request(method, route);
        let plans = self.read(id, move |connection| {
            Box::pin(fault_plans::list(connection, id))
        });
        let plans = plans.await?;
        if !plans.iter().any(|plan| targets.contains(&plan.target)) {
            return Ok(None);
        }
        let counted = self.write(id, move |tx| {
            Box::pin(async move { fault_plans::count(tx, id, &targets).await })
        });
        Ok(counted.await?.and_then(|plan| {
            let kind = plan.fault.as_str().parse().ok()?;
            Some(Fault::new(
                kind,
                Duration::from_secs(plan.seconds.unsigned_abs()),
            ))
        }))
    }

    /// New work would keep a stopping replica from ever being done; another one takes it.
    pub(super) fn refuse_new_work_when_stopping(&self) -> Result<(), HttpError> {
        if *self.stopping.borrow() {
            return Err(HttpError::failed(FailureKind::Unavailable));
        }
        Ok(())
    }

    /// Writes what needs no idempotency key, because repeating it does nothing more.
    pub async fn write<T, F>(&self, account: AccountId, write: F) -> Result<T, HttpError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Writing<'c, T> + Send + 'static,
    {
        self.refuse_new_work_when_stopping()?;
        let several = self.readiness.len() > 1;
        let database = self.database.of(account.0);
        let written = database.write(move |tx| {
            Box::pin(async move {
                if several {
                    hold_account(&mut *tx, account.0).await?;
                }
                write(tx).await
            })
        });
        let written = written.await;
        written.map_err(HttpError::failed_without_key)
    }
}
