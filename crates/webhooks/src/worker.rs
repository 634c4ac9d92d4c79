//! Delivers events to webhook endpoints, on every replica, for as long as the process runs.
//!
//! Promise: at least once. Deliveries are claimed in one short transaction, sent without one, and
//! marked in another. If a process dies in between, its claims expire, and another process sends
//! the events again. The worker has a thread, a runtime and a connection of its own, so no request
//! waits for a receiver, and no receiver can keep requests from running.

mod steps;

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use sqlx::{Connection, PgConnection, PgPool};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::{self, JoinError, JoinSet},
    time::Instant,
};
use tracing::{Instrument, Span};
use uuid::Uuid;

use crate::{
    Attempt, Claimed, DeliveryFault, Event, Interference, Message, Observer, Sender, Settings,
    TlsError, Turn, observer::Unobserved, queue::Ended, turns::Turns,
};

/// What is sent for an event. Every attempt must send the same bytes.
pub type Body = fn(&Event) -> serde_json::Result<Vec<u8>>;

/// A claim lives this many times as long as an attempt may take. A living process loses its claim
/// only if marking takes twice as long as sending; with an [`Interference`], if it takes as long.
const LEASE_TIMEOUTS: u32 = 3;

/// Endpoints that are looked for in one statement: ten milliseconds or so.
const ENDPOINTS_AT_ONCE: i32 = 1000;

/// For so long for each of its statements, a COMMIT begins no look after another one: looks take a
/// share of a core that doesn't grow with the number of commits, and an event still waits less than
/// a person notices.
const WAKE_PAUSE: Duration = Duration::from_millis(25);

/// What an account sees of an attempt that was answered with 410.
const GONE: &str = "the receiver is gone: nothing more is sent to this URL";

/// Delivers webhooks. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    pool: PgPool,
    settings: Settings,
    body: Body,
    observer: Arc<dyn Observer>,
    interference: Option<Arc<dyn Interference>>,
    sender: Sender,
    wake: Arc<Notify>,
}

impl Worker {
    /// A worker that has one connection beside `pool`, made as those of the pool are, and sends
    /// `body` of each event. Fails if the TLS library refuses its default protocol versions: a
    /// defect.
    pub fn new(pool: PgPool, settings: Settings, body: Body) -> Result<Self, TlsError> {
        Ok(Self {
            pool,
            body,
            observer: Arc::new(Unobserved),
            interference: None,
            sender: Sender::new(&settings)?,
            settings,
            wake: Arc::default(),
        })
    }

    /// The same worker, whose attempts `observer` is told of.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The same worker, with the faults of `interference`.
    #[must_use]
    pub fn interfered_by(self, interference: Arc<dyn Interference>) -> Self {
        Self {
            interference: Some(interference),
            ..self
        }
    }

    /// The same worker, woken by `wake`. Notify it after each COMMIT in this process that may have
    /// written an event. However many there are, the worker looks once, and not more often than 40
    /// times a second.
    #[must_use]
    pub fn woken_by(self, wake: Arc<Notify>) -> Self {
        Self { wake, ..self }
    }

    /// Delivers on a thread of its own, until the attempts have finished that were running at
    /// `stopping`, or the thread fails. Dropping the future breaks off what is being sent, as a
    /// crash would.
    pub async fn run(self, stopping: watch::Receiver<bool>) {
        let (has_ended, ended) = oneshot::channel::<()>();
        let (_running, dropped) = oneshot::channel();
        let span = Span::current();
        let delivering = std::thread::Builder::new()
            .name("webhooks".to_owned())
            .spawn(move || {
                let _has_ended = has_ended;
                self.work(stopping, dropped, span)
            });
        match delivering {
            // An error means that the thread panicked, which is an end too.
            Ok(_) => drop(ended.await),
            Err(error) => tracing::error!(%error, "the system gives no thread for webhooks"),
        }
    }

    fn work(self, stopping: watch::Receiver<bool>, dropped: oneshot::Receiver<()>, span: Span) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "webhooks have no runtime"),
        };
        let mut delivery = Delivering {
            next_look: Instant::now() + self.settings.poll_interval,
            next_wake: Instant::now(),
            worker: self,
            sends: JoinSet::new(),
            sending: HashMap::new(),
            ended: Vec::new(),
            turns: Turns::default(),
            chores: Chores::default(),
        };
        let delivering = async {
            tokio::select! {
                () = delivery.run(stopping) => {}
                _ = dropped => {}
            }
        };
        runtime.block_on(delivering.instrument(span));
        drop(delivery);
        // A name that is still being resolved is not waited for.
        runtime.shutdown_background();
    }
}

struct Delivering {
    worker: Worker,
    sends: JoinSet<Ended>,
    // By task, not in the task's result: a task that panics has no result, and its place must be
    // freed.
    sending: HashMap<task::Id, (Uuid, Uuid)>,
    // Kept when a connection is lost: marking late is better than sending again.
    ended: Vec<Ended>,
    turns: Turns,
    chores: Chores,
    next_look: Instant,
    /// When a COMMIT in this process may begin a look again.
    next_wake: Instant,
}

/// What is to be done besides sending. Each is done in steps, and sending goes on between them.
#[derive(Debug, Default)]
struct Chores {
    /// Deliveries may have become due.
    make_ready: bool,
    /// Endpoints may have been deleted.
    cancel: bool,
    /// There may be endpoints with something ready that are not known, in the order of account and
    /// endpoint after this one.
    look: Option<Position>,
    /// Statements of the look that is under way, or of the last one.
    look_steps: u32,
    /// The look comes from the middle, and goes on at the beginning.
    wraps: bool,
    /// Before the first endpoint that there was no room for. The next look begins there, so that
    /// each of them has its turn.
    no_room: Position,
}

/// Behind an endpoint, or at the beginning.
type Position = Option<(Uuid, Uuid)>;

impl Chores {
    /// Begins all that are not under way. A look that began again each time would never come to
    /// the end where it takes longer than the pause between two.
    fn begin(&mut self) {
        self.make_ready = true;
        self.cancel = true;
        self.look();
    }

    /// Begins a look, unless one is under way.
    fn look(&mut self) {
        if self.look.is_none() {
            let from = self.no_room.take();
            self.wraps = from.is_some();
            self.look = Some(from);
            self.look_steps = 0;
        }
    }

    /// Goes on with the look. A COMMIT begins the next one after this pause, which is that of one
    /// look: the pauses of looks that are over don't add up.
    fn step_of_look(&mut self) -> Duration {
        self.look_steps = self.look_steps.saturating_add(1);
        WAKE_PAUSE * self.look_steps
    }
}

impl Delivering {
    async fn run(&mut self, mut stopping: watch::Receiver<bool>) {
        while let Err(error) = self.deliver(&mut stopping).await {
            // Without the line of PostgreSQL's own source, which sqlx adds.
            let told = error.as_database_error().map(|error| error.message());
            let error = told.map_or_else(|| error.to_string(), str::to_owned);
            tracing::warn!(error, "the delivery of webhooks waits for the database");
            let stopped = stopping.wait_for(|stopping| *stopping);
            if tokio::time::timeout(self.worker.settings.poll_interval, stopped)
                .await
                .is_ok()
            {
                return;
            }
        }
    }

    /// Works on one connection until it fails, or until everything is done after `stopping`.
    async fn deliver(&mut self, stopping: &mut watch::Receiver<bool>) -> sqlx::Result<()> {
        let options = self.worker.pool.connect_options();
        let connecting = PgConnection::connect_with(&options);
        let mut connection = self.within_deadline(connecting).await?;
        loop {
            let stopped = *stopping.borrow();
            if stopped {
                self.mark_and_begin(&mut connection, Vec::new()).await?;
                if self.sends.is_empty() {
                    return self.within_deadline(connection.close()).await;
                }
            } else {
                if Instant::now() >= self.next_look {
                    self.next_look = Instant::now() + self.worker.settings.poll_interval;
                    self.chores.begin();
                }
                self.do_chores(&mut connection).await?;
                let turns = self.turns.deal();
                let has_begun = self.mark_and_begin(&mut connection, turns).await?;
                if has_begun || self.has_chores() {
                    // There may be more, but attempts that have ended are marked with it.
                    while let Some(ended) = self.sends.try_join_next_with_id() {
                        self.collect(ended);
                    }
                    continue;
                }
            }
            tokio::select! {
                Some(ended) = self.sends.join_next_with_id() => self.collect(ended),
                () = tokio::time::sleep_until(self.next_look), if !stopped => {}
                () = woken(&self.worker.wake, self.next_wake), if !stopped => self.chores.look(),
                _ = stopping.wait_for(|stopping| *stopping), if !stopped => {}
            }
            // What ended together is marked together.
            while let Some(ended) = self.sends.try_join_next_with_id() {
                self.collect(ended);
            }
        }
    }

    /// A socket that died silently must not stop deliveries forever.
    async fn within_deadline<T>(
        &self,
        work: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        tokio::time::timeout(self.worker.settings.database_deadline, work)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    fn has_chores(&self) -> bool {
        self.chores.make_ready || self.chores.cancel || self.chores.look.is_some()
    }

    async fn do_chores(&mut self, connection: &mut PgConnection) -> sqlx::Result<()> {
        if self.chores.make_ready {
            let rows = self.within_deadline(steps::make_ready(connection)).await?;
            self.chores.make_ready = steps::is_full(rows);
            if rows > 0 {
                self.chores.look();
            }
        }
        if self.chores.cancel {
            let is_done = self.within_deadline(steps::cancel(connection)).await?;
            self.chores.cancel = !is_done;
        }
        if let Some(after) = self.chores.look {
            self.next_wake = Instant::now() + self.chores.step_of_look();
            let found = self
                .within_deadline(steps::look(connection, after, ENDPOINTS_AT_ONCE))
                .await?;
            self.chores.cancel |= found.iter().any(|endpoint| endpoint.is_deleted);
            let mut before = after;
            for endpoint in &found {
                let (account, id) = (endpoint.account_id, endpoint.endpoint_id);
                if !endpoint.is_deleted && !self.turns.add(account, id) {
                    self.chores.no_room = self.chores.no_room.or(before);
                }
                before = Some((account, id));
            }
            let is_last = i32::try_from(found.len()).is_ok_and(|found| found < ENDPOINTS_AT_ONCE);
            self.chores.look = match found.last() {
                Some(last) if !is_last => Some(Some((last.account_id, last.endpoint_id))),
                Some(_) | None => std::mem::take(&mut self.chores.wraps).then_some(None),
            };
        }
        Ok(())
    }

    /// Stores how attempts ended, and begins as many as these turns allow. `true` if any began.
    async fn mark_and_begin(
        &mut self,
        connection: &mut PgConnection,
        turns: Vec<Turn>,
    ) -> sqlx::Result<bool> {
        if self.ended.is_empty() && turns.is_empty() {
            return Ok(false);
        }
        let claim = Uuid::new_v4();
        let lease = self.worker.settings.timeout * LEASE_TIMEOUTS;
        let marked = steps::mark_and_claim(
            connection,
            &self.ended,
            claim,
            lease,
            &turns,
            self.worker.body,
            self.worker.settings.commit,
        );
        let claimed = self.within_deadline(marked).await;
        self.settle(&turns, claimed.as_deref().unwrap_or_default());
        let claimed = claimed?;
        let has_begun = !claimed.is_empty();
        if self.turns.is_empty() && (has_begun || !self.ended.is_empty()) {
            // What came meanwhile is found at once, and not at the next look. Where nothing was
            // done, what is ready may be locked, and looking again would find the same.
            self.chores.look();
        }
        self.ended.clear();
        for (claimed, body) in claimed {
            if let Some(body) = body {
                self.begin(claim, claimed, body);
            } else if claimed.is_due {
                let (why, again) = match claimed.is_disabled {
                    true => ("the endpoint is disabled", None),
                    // A release that can write it may come.
                    false => (
                        "the event can't be written",
                        self.worker.pause(&claimed, None),
                    ),
                };
                self.ended.push(Ended {
                    account_id: claimed.account_id,
                    id: claimed.id,
                    endpoint: (claimed.endpoint_id, claimed.url),
                    claim,
                    attempt: Some(Attempt::not_sent(claimed.at.timestamp(), why)),
                    again,
                });
            }
        }
        Ok(has_begun)
    }

    /// Frees the places that were dealt and are not used: there was nothing for them, or what there
    /// was is not sent. More than there are places can be left unsent at once.
    fn settle(&mut self, turns: &[Turn], claimed: &[(Claimed, Option<Vec<u8>>)]) {
        let mut counts = HashMap::<_, (usize, usize)>::new();
        for (one, body) in claimed {
            let of = (one.account_id, one.endpoint_id);
            let (all, unsent) = counts.entry(of).or_default();
            *all += 1;
            *unsent += usize::from(body.is_none());
        }
        for turn in turns {
            let of = (turn.account_id, turn.endpoint_id);
            let (all, unsent) = counts.get(&of).copied().unwrap_or_default();
            self.turns.claimed(turn, all.min(turn.places));
            for _ in 0..unsent.min(turn.places) {
                self.turns.end(turn.account_id, turn.endpoint_id, None);
            }
        }
    }

    fn begin(&mut self, claim: Uuid, delivery: Claimed, body: Vec<u8>) {
        let of = (delivery.account_id, delivery.endpoint_id);
        let worker = self.worker.clone();
        let sending = self.sends.spawn(async move {
            let (attempt, again) = worker.attempt(&delivery, body).await;
            Ended {
                account_id: delivery.account_id,
                id: delivery.id,
                endpoint: (delivery.endpoint_id, delivery.url),
                claim,
                attempt,
                again,
            }
        });
        self.sending.insert(sending.id(), of);
    }

    fn collect(&mut self, ended: Result<(task::Id, Ended), JoinError>) {
        let (id, ended) = match ended {
            Ok((id, ended)) => (id, Some(ended)),
            Err(error) => {
                tracing::error!(%error, "an attempt to deliver a webhook broke off");
                (error.id(), None)
            }
        };
        if let Some((account, endpoint)) = self.sending.remove(&id) {
            let attempt = ended.as_ref().and_then(|ended| ended.attempt.as_ref());
            self.turns.end(account, endpoint, attempt);
        }
        self.ended.extend(ended);
    }
}

impl Worker {
    /// Sends, unless a fault prevents it, and decides whether it is sent again, and after which
    /// pause.
    async fn attempt(
        &self,
        delivery: &Claimed,
        body: Vec<u8>,
    ) -> (Option<Attempt>, Option<Duration>) {
        let once_more = match self.fault(delivery).await {
            Some(DeliveryFault::Late(pause)) => return (None, Some(pause)),
            Some(DeliveryFault::Lost) => {
                return (Some(Attempt::lost(delivery.at.timestamp())), None);
            }
            Some(DeliveryFault::Twice) => Some(Duration::ZERO),
            None => None,
        };
        let span = self.observer.begins(delivery);
        let sent = self.send(delivery, body, once_more).instrument(span);
        let (attempt, again) = sent.await;
        (Some(attempt), again)
    }

    /// The fault that acts on this attempt. Only a first attempt can have one.
    async fn fault(&self, delivery: &Claimed) -> Option<DeliveryFault> {
        let interference = self.interference.as_ref().filter(|_| delivery.is_first)?;
        let asked = interference.fault(delivery);
        let told = tokio::time::timeout(self.settings.timeout, asked).await;
        told.unwrap_or_default()
    }

    /// Makes an attempt. One that succeeds is followed by another after `once_more`.
    async fn send(
        &self,
        delivery: &Claimed,
        body: Vec<u8>,
        once_more: Option<Duration>,
    ) -> (Attempt, Option<Duration>) {
        let standard_id = delivery
            .standard_webhooks
            .then(|| (self.settings.standard_id)(&delivery.event));
        let message = Message {
            url: &delivery.url,
            secret: &delivery.secret,
            at: delivery.at.timestamp(),
            standard_id: standard_id.as_deref(),
            object_version: delivery.event.object_version,
            body,
        };
        let mut attempt = self.sender.send(message).await;
        if attempt.is_gone() {
            attempt.error = Some(GONE.to_owned());
        }
        let again = if attempt.succeeded() {
            once_more
        } else {
            let again = self.pause(delivery, attempt.retry_after);
            again.filter(|_| !attempt.is_gone())
        };
        let span = Span::current();
        if let Some(status) = attempt.response_status {
            span.record("http.response.status_code", status);
        }
        if !attempt.succeeded() {
            span.record("otel.status_code", "ERROR");
        }
        self.observer.ended(delivery, &attempt, again);
        (attempt, again)
    }

    /// The pause after an attempt that fails, where the receiver may have asked for one; `None`
    /// where that is the last.
    fn pause(&self, delivery: &Claimed, asked: Option<Duration>) -> Option<Duration> {
        let attempts = usize::try_from(delivery.attempts).unwrap_or_default() + 1;
        let pauses = self.settings.pauses;
        let planned = rand::random_range(pauses.after(attempts)?);
        let age = (delivery.at - delivery.event.created_at).to_std();
        Some(pauses.as_asked(planned, asked, age.unwrap_or_default()))
    }
}

/// Resolves when something may have been committed, but not before `earliest`. However much it was,
/// that is one notification.
async fn woken(wake: &Notify, earliest: Instant) {
    // A sleep until a time that is over is not ready at once, and the caller may drop it before it
    // is.
    if Instant::now() < earliest {
        tokio::time::sleep_until(earliest).await;
    }
    wake.notified().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_waits_for_the_pause_of_one_look_however_many_there_were() {
        let mut chores = Chores::default();
        for _ in 0..1_000 {
            chores.look();
            assert_eq!(chores.step_of_look(), WAKE_PAUSE);
            assert_eq!(chores.step_of_look(), WAKE_PAUSE * 2);
            chores.look = None;
        }
    }
}
