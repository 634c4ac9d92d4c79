//! The transaction of a batch.
//!
//! Promise: no member is answered with an outcome that is not committed; each has its own, or runs
//! alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout, timeout_at},
};
use tracing::Span;

use super::{
    Shared, claims,
    decide::Rows,
    member::{Ended, Member},
    prepare::{Answers, Preparation, Prepared, Unprepared},
};
use crate::{
    Failure, GuardedConnection, Outcome, RunAgain,
    in_flight::Progress,
    reply::{is_rolled_back, sqlstate},
    trace::{self, Instrument, trace_span},
};

/// How long ROLLBACK may take before the connection is given up: one second, because the next batch
/// waits.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(1);

/// How long the connection of the last batch may idle and is used again. One that died silently
/// would cost a batch its time.
const IDLE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Batch<R: Rows> {
    pub(super) shared: Arc<Shared<R>>,
    /// That of the batch before.
    pub(super) connection: Option<Clean>,
    /// Held while the batch is prepared. `None`: it waited too long for its turn.
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

/// A connection of batches. The pool no longer looks after it.
struct Detached {
    connection: PgConnection,
    opened: Instant,
}

/// A connection on which no transaction is open.
pub(super) struct Clean {
    detached: Detached,
    since: Instant,
}

impl From<Detached> for Clean {
    fn from(detached: Detached) -> Self {
        let since = Instant::now();
        Self { detached, since }
    }
}

impl Clean {
    /// Whether it may serve one more batch. `max_lifetime` is the pool's limit on the age of
    /// connections, which holds for those of batches too: what follows a failover, or a rotated
    /// password, is for new ones.
    fn is_fresh(&self, max_lifetime: Option<Duration>) -> bool {
        let is_old = max_lifetime.is_some_and(|limit| self.detached.opened.elapsed() >= limit);
        self.since.elapsed() < IDLE_MAX && !is_old
    }
}

impl<R: Rows> Batch<R> {
    /// Runs the batch. Returns the connection if it is clean.
    pub(super) async fn run(self, members: Vec<Member<R>>) -> Option<Clean> {
        let (requests, began) = (members.len(), Instant::now());
        let shared = Arc::clone(&self.shared);
        let mut committed = false;
        let span = batch_span(&members);
        let running = self.run_until_end(members, &mut committed);
        let connection = running.instrument(span.clone()).await;
        trace::end(span, committed.then_some("committed"));
        let took = began.elapsed();
        shared.observer.ended_batch(requests, took, committed);
        connection
    }

    async fn run_until_end(
        mut self,
        members: Vec<Member<R>>,
        committed: &mut bool,
    ) -> Option<Clean> {
        let began = Instant::now();
        let committed_by = began + self.shared.idempotency.settings.database_deadline;
        let prepared_by = began + self.shared.prepare_limit;
        let beginning = self.begin().instrument(trace_span!("begin"));
        // The members wait together, so a batch has less time than a request alone. What fails or
        // is late before COMMIT was not executed, and its members run alone.
        let begun = timeout_at(prepared_by, beginning).await;
        let (mut detached, now) = match begun {
            Ok(Ok(begun)) => begun,
            // Dropped, the members run alone, and find out themselves what is wrong.
            Ok(Err(error)) => {
                let cause = Failure::from(error).cause;
                tracing::debug!(%cause, "no batch can begin; its requests run alone");
                return None;
            }
            Err(_) => return None,
        };
        let preparation = Preparation {
            idempotency: &self.shared.idempotency,
            shared: &self.shared,
            tx: &mut detached.connection,
            now,
            began,
        };
        let preparing = preparation.run(members);
        let Prepared { answers, names } = match timeout_at(prepared_by, preparing).await {
            // Every member has left: nothing is to be kept.
            Ok(Ok(prepared)) if prepared.answers.is_empty() => {
                *committed = true;
                return rolled_back(detached).await;
            }
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) if is_of_its_members(&error) => {
                let cause = Failure::from(error).cause;
                tracing::debug!(%cause, "a batch failed; its requests run alone");
                return rolled_back(detached).await;
            }
            Ok(Err(error)) => {
                let cause = Failure::from(error).cause;
                tracing::warn!(%cause, "a batch failed; its requests run alone");
                return None;
            }
            // Dropped in the middle of a statement, the connection is in doubt. PostgreSQL rolls
            // back when it closes.
            Err(_) => return None,
        };
        // Before the next batch has its turn: it may want rows that are locked until COMMIT.
        let hold = self.shared.held_rows.hold(names);
        self.turn = None;
        let committing = claims::commit(&mut detached.connection);
        let committing = trace::step(trace_span!("commit"), committing, how_committed);
        let unknown = match timeout_at(committed_by, committing).await {
            // Only now is anything answered: an answer before COMMIT could be lost with a crash.
            Ok(Ok(())) => {
                *committed = true;
                drop(hold);
                conclude(answers);
                return Some(detached.into());
            }
            Ok(Err(error)) if is_rolled_back(&error) => {
                // They need not wait for the rollback to run alone.
                drop(answers);
                return rolled_back(detached).await;
            }
            // Whether it is committed is unknown. The members must not run again: if it is, that
            // would be for a second time. They are told 503, and their retries find out.
            Ok(Err(error)) => Failure::of_commit(error),
            Err(_) => Failure::deadline(true),
        };
        for (member, _) in answers {
            member.conclude(Outcome::Failed(unknown.clone()));
        }
        None
    }

    /// Begins a transaction: on the connection of the last batch, or on a new one where that is old
    /// or dead. The pool makes it, so that it is set up like those of requests that run alone.
    async fn begin(&mut self) -> Result<(Detached, DateTime<Utc>), sqlx::Error> {
        let pool = self.shared.idempotency.pool.pool();
        if let Some(mut last) = self.connection.take()
            && last.is_fresh(pool.options().get_max_lifetime())
            && let Ok(now) = claims::begin(&mut last.detached.connection).await
        {
            return Ok((last.detached, now));
        }
        let mut detached = Detached {
            connection: pool.acquire().await?.detach(),
            opened: Instant::now(),
        };
        let connection = &mut detached.connection;
        // Shorter than what the batch has: what it leaves behind when it is given up holds keys.
        claims::set_up(connection, self.shared.prepare_limit / 10 * 9).await?;
        let now = claims::begin(connection).await?;
        Ok((detached, now))
    }
}

/// Runs one request as a batch, on a connection of the pool. `Ok`: the member has its answer, or
/// was told that it is undecided. A failure that may pass if it runs again has left nothing, so the
/// request may run alone. Every other failure is its answer.
///
/// Every `?` drops the connection guard with its doubt, as where a request runs alone.
pub(super) async fn run_one<R: Rows>(
    shared: &Shared<R>,
    member: Member<R>,
    until: Instant,
) -> Result<(), Failure> {
    let (account, to_claim) = (member.request.account_id, member.lease().is_none());
    let acquiring = shared.idempotency.pool.acquire_to(account, to_claim);
    let acquired = timeout_at(until, acquiring).await;
    let connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
    let deadline = Instant::now() + shared.idempotency.settings.database_deadline;
    let committing = AtomicBool::new(false);
    let running = run_one_on(connection, shared, member, &committing);
    let began = Instant::now();
    let ended = timeout_at(deadline.min(until), running)
        .await
        .unwrap_or_else(|_| Err(Failure::deadline(committing.load(Ordering::Relaxed))));
    let took = began.elapsed();
    shared.observer.ended_batch(1, took, ended.is_ok());
    ended
}

async fn run_one_on<R: Rows>(
    mut connection: GuardedConnection,
    shared: &Shared<R>,
    member: Member<R>,
    committing: &AtomicBool,
) -> Result<(), Failure> {
    let began = Instant::now();
    let begun = claims::begin(&mut connection).instrument(trace_span!("begin"));
    let now = begun.await.map_err(Failure::of_begin)?;
    let preparation = Preparation {
        idempotency: &shared.idempotency,
        shared,
        tx: &mut connection,
        now,
        began,
    };
    let prepared = preparation.run(vec![member]).await;
    let answers = match prepared.map_err(Failure::from) {
        Ok(prepared) if !prepared.answers.is_empty() => prepared.answers,
        prepared => {
            let is_rolled_back = claims::rollback(&mut connection).await.is_ok();
            let failure = prepared.err();
            let is_of_session = failure
                .as_ref()
                .is_some_and(|failure| failure.run_again == RunAgain::InAnotherSession);
            if is_rolled_back && !is_of_session {
                connection.release();
            }
            return failure.map_or(Ok(()), Err);
        }
    };
    committing.store(true, Ordering::Relaxed);
    let committed = trace::step(
        trace_span!("commit"),
        claims::commit(&mut connection),
        how_committed,
    );
    committed.await.map_err(Failure::of_commit)?;
    connection.release();
    conclude(answers);
    Ok(())
}

/// Tells members what is committed.
fn conclude<R>(answers: Answers<R>) {
    for (member, ended) in answers {
        if matches!(ended, Ended::Begun(_)) {
            member.leadership.advance(Progress::Recorded);
        }
        member.end(ended);
    }
}

fn how_committed(committed: &Result<(), sqlx::Error>) -> Option<&'static str> {
    committed.is_ok().then_some("committed")
}

/// The span of a batch. It belongs to many traces, so it begins one of its own. Its members are
/// linked to it, and it to them.
fn batch_span<R>(members: &[Member<R>]) -> Span {
    let requests = members.len();
    let span = trace_span!("batch", "idempotency.requests" = requests);
    if !span.is_disabled() {
        for Member { span: waiting, .. } in members {
            waiting.record("idempotency.requests", requests);
            waiting.follows_from(&span);
            span.follows_from(waiting);
        }
    }
    span
}

/// Ends a transaction that wrote nothing to keep. The connection is good if that is acknowledged.
async fn rolled_back(mut detached: Detached) -> Option<Clean> {
    let ended = timeout(ROLLBACK_LIMIT, claims::rollback(&mut detached.connection)).await;
    matches!(ended, Ok(Ok(()))).then(|| detached.into())
}

/// Whether it says something about a request, and nothing about the session: a key or a row that is
/// held, a row that is refused, a deadlock.
fn is_of_its_members(unprepared: &Unprepared) -> bool {
    match unprepared {
        Unprepared::SeenChangesLost | Unprepared::LeaseEnded => true,
        // A row is not as it was read, or is not written for another reason.
        Unprepared::Database(sqlx::Error::RowNotFound) => true,
        // Or an account moves to another database.
        Unprepared::Database(error) => sqlstate(error).is_some_and(|code| {
            matches!(&*code, "55P03" | "57C01") || code.starts_with("23") || code.starts_with("40")
        }),
    }
}
