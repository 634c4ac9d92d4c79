//! Delivers events to webhook endpoints, on every replica, for as long as the process runs.
//!
//! Promise: at least once. A delivery is claimed in one short transaction, sent without one, and
//! marked in another. If a process dies in between, its claim expires, and another process sends
//! the event again. The worker uses a connection of its own, so no request waits for a receiver.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    time::Duration,
};

use sqlx::{Connection, PgConnection};
use tokio::{
    sync::watch,
    task::{self, JoinError, JoinSet},
    time::MissedTickBehavior,
};
use uuid::Uuid;

use super::webhook_sender::Sender;
use crate::{
    api::events::EventView,
    config::{Config, Webhooks},
    database::Database,
    domain::{
        ids::{AccountId, WebhookDeliveryId, WebhookEndpointId},
        webhook_delivery::{Attempt, Pauses},
        webhook_endpoint::Secret,
    },
    store::{
        self,
        webhook_deliveries::{Busy, Claimed, Next},
    },
};

/// Attempts that one replica makes at once. They hold no connection to the database, only memory.
const SENDS_MAX: usize = 64;

/// The part of them that may go to one endpoint, so that a silent endpoint leaves room for others.
const SENDS_PER_ENDPOINT_MAX: usize = 4;

/// The part of them that may belong to one account, so that an account with many silent endpoints
/// leaves room for others. Four such accounts take all places, until their attempts time out.
const SENDS_PER_ACCOUNT_MAX: usize = 16;

/// A claim lives this many times as long as an attempt may take. A living process loses its claim
/// only if marking takes twice as long as sending.
const LEASE_TIMEOUTS: u32 = 3;

/// Delivers until `stopping`, and then finishes the running attempts.
pub async fn run(
    database: Database,
    sender: Sender,
    config: &Config,
    mut stopping: watch::Receiver<bool>,
) {
    let mut worker = Worker {
        database,
        sender,
        webhooks: config.webhooks,
        deadline: config.timeouts.database_deadline,
        sends: JoinSet::new(),
        sending: HashMap::new(),
        ended: VecDeque::new(),
    };
    while let Err(error) = worker.deliver(&mut stopping).await {
        tracing::warn!(%error, "the delivery of webhooks waits for the database");
        let stopped = stopping.wait_for(|stopping| *stopping);
        if tokio::time::timeout(config.webhooks.poll_interval, stopped)
            .await
            .is_ok()
        {
            return;
        }
    }
}

struct Worker {
    database: Database,
    sender: Sender,
    webhooks: Webhooks,
    deadline: Duration,
    sends: JoinSet<Ended>,
    // By task, not in the task's result: a task that panics has no result, and its place must be
    // freed.
    sending: HashMap<task::Id, (AccountId, WebhookEndpointId)>,
    // Kept when a connection is lost: marking late is better than sending again.
    ended: VecDeque<Ended>,
}

/// An attempt that has ended and must be marked.
struct Ended {
    account_id: AccountId,
    id: WebhookDeliveryId,
    claim: Uuid,
    attempt: Option<Attempt>,
    next: Next,
}

impl Worker {
    /// Works on one connection until it fails, or until everything is done after `stopping`.
    async fn deliver(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), sqlx::Error> {
        let mut connection = self.within_deadline(self.database.connect_aside()).await?;
        let mut ticks = tokio::time::interval(self.webhooks.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = false;
        loop {
            stopped = stopped || *stopping.borrow();
            while let Some(ended) = self.ended.front() {
                self.within_deadline(finish(&mut connection, ended)).await?;
                self.ended.pop_front();
            }
            if stopped && self.sends.is_empty() {
                return self.within_deadline(connection.close()).await;
            }
            if !stopped && self.sends.len() < SENDS_MAX && self.claim(&mut connection).await? {
                // More may be due, but attempts that have ended are marked first.
                while let Some(ended) = self.sends.try_join_next_with_id() {
                    self.collect(ended);
                }
                continue;
            }
            tokio::select! {
                Some(ended) = self.sends.join_next_with_id() => self.collect(ended),
                _ = ticks.tick() => {}
                _ = stopping.wait_for(|stopping| *stopping), if !stopped => stopped = true,
            }
        }
    }

    /// A socket that died silently must not stop deliveries forever.
    async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        tokio::time::timeout(self.deadline, work)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Claims the delivery that has been due for the longest, and starts its attempt. `false` if
    /// nothing is due.
    async fn claim(&mut self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let claim = Uuid::new_v4();
        let lease = self.webhooks.timeout * LEASE_TIMEOUTS;
        let busy = self.busy();
        let claimed = claim_next(connection, claim, lease, &busy);
        let Some((claimed, message)) = self.within_deadline(claimed).await? else {
            return Ok(false);
        };
        let (account_id, id, endpoint_id) = (claimed.account_id, claimed.id, claimed.endpoint_id);
        let Some(message) = message else {
            self.ended.push_back(Ended {
                account_id,
                id,
                claim,
                // A deleted endpoint needs no reason: its deliveries are not listed.
                attempt: claimed
                    .disabled
                    .then(|| Attempt::at_disabled_endpoint(claimed.at.timestamp())),
                next: Next::Failed,
            });
            return Ok(true);
        };
        let (sender, pauses) = (self.sender.clone(), self.webhooks.pauses);
        let sending = self.sends.spawn(async move {
            let (attempt, next) = attempt(&sender, &pauses, claimed, message).await;
            Ended {
                account_id,
                id,
                claim,
                attempt: Some(attempt),
                next,
            }
        });
        self.sending.insert(sending.id(), (account_id, endpoint_id));
        Ok(true)
    }

    /// The endpoints and accounts that have all their places on this replica.
    fn busy(&self) -> Busy {
        let sending = self.sending.values();
        let accounts = sending.clone().map(|(account, _)| account.0);
        let endpoints = sending.map(|(_, endpoint)| endpoint.0);
        Busy {
            accounts: at_least(SENDS_PER_ACCOUNT_MAX, accounts),
            endpoints: at_least(SENDS_PER_ENDPOINT_MAX, endpoints),
        }
    }

    fn collect(&mut self, ended: Result<(task::Id, Ended), JoinError>) {
        let id = match ended {
            Ok((id, ended)) => {
                self.ended.push_back(ended);
                id
            }
            Err(error) => {
                tracing::error!(%error, "an attempt to deliver a webhook broke off");
                error.id()
            }
        };
        self.sending.remove(&id);
    }
}

/// The ids that occur at least `times` times.
fn at_least(times: usize, ids: impl Iterator<Item = Uuid>) -> Vec<Uuid> {
    let mut counts = HashMap::<Uuid, usize>::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    counts.retain(|_, count| *count >= times);
    counts.into_keys().collect()
}

/// The contents of an attempt.
struct Message {
    secret: Secret,
    body: Vec<u8>,
}

/// One short transaction: the claim, and the contents of the attempt; nothing if the endpoint is
/// gone or disabled.
async fn claim_next(
    connection: &mut PgConnection,
    claim: Uuid,
    lease: Duration,
    busy: &Busy,
) -> Result<Option<(Claimed, Option<Message>)>, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let claimed = store::webhook_deliveries::claim(&mut tx, claim, lease, busy).await?;
    let Some(mut claimed) = claimed else {
        tx.rollback().await?;
        return Ok(None);
    };
    let mut message = None;
    if !claimed.disabled
        && let Some(secret) = claimed.secret.take()
    {
        let event = store::events::find(&mut tx, claimed.account_id, claimed.event_id).await?;
        let mut event = event.ok_or(sqlx::Error::RowNotFound)?;
        // As it was when the event was written, so that every attempt sends the same bytes.
        event.pending_webhooks = claimed.event_deliveries;
        let body = serde_json::to_vec(&EventView::from(event))
            .map_err(|error| sqlx::Error::Encode(error.into()))?;
        message = Some(Message { secret, body });
    }
    tx.commit().await?;
    Ok(Some((claimed, message)))
}

/// Sends, and decides the delivery's next state.
async fn attempt(
    sender: &Sender,
    pauses: &Pauses,
    claimed: Claimed,
    Message { secret, body }: Message,
) -> (Attempt, Next) {
    let t = claimed.at.timestamp();
    let attempt = sender.send(&claimed.url, &secret, t, body).await;
    let attempts = usize::try_from(claimed.attempts).unwrap_or_default() + 1;
    let next = if attempt.succeeded() {
        Next::Succeeded
    } else {
        match pauses.after(attempts) {
            Some(pause) => Next::Again(rand::random_range(pause)),
            None => Next::Failed,
        }
    };
    let (delivery, endpoint) = (claimed.id, claimed.endpoint_id);
    let (status, error) = (attempt.response_status, attempt.error.as_deref());
    match next {
        Next::Succeeded => tracing::debug!(%delivery, %endpoint, "delivered a webhook"),
        Next::Again(pause) => {
            tracing::debug!(%delivery, %endpoint, status, error, ?pause, "a webhook was not taken");
        }
        Next::Failed => {
            tracing::warn!(%delivery, %endpoint, status, error, "gave a webhook up");
        }
    }
    (attempt, next)
}

/// One short transaction, which stores how the attempt ended.
async fn finish(connection: &mut PgConnection, ended: &Ended) -> Result<(), sqlx::Error> {
    let Ended {
        account_id,
        id,
        claim,
        attempt,
        next,
    } = ended;
    let mut tx = connection.begin().await?;
    let finish = store::webhook_deliveries::finish(
        &mut tx,
        *account_id,
        *id,
        *claim,
        attempt.as_ref(),
        next,
    );
    if !finish.await? {
        tracing::warn!(delivery = %id, "an attempt ended after its claim; another one counts");
    }
    tx.commit().await
}
