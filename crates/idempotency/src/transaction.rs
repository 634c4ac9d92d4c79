//! The transaction that claims a key: claim, work, save, COMMIT, and again where that may help.
//!
//! Promise: the work's rows and the saved outcome commit together or not at all, and a connection
//! whose state is in doubt never goes back to the pool.

use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sqlx::{PgConnection, Postgres, Transaction};
use tokio::time::{Instant, timeout_at};

use crate::{
    Command, Expired, Failure, GuardedConnection, Idempotency, Outcome, Record, Rejection, Reply,
    Request, RunAgain, Verdict,
    claim::{self, Claim, ROW_LOCK_PAUSE, ROW_LOCK_WAIT},
    in_flight::{Leadership, Progress},
    jittered,
    recall::Claimed,
    reply::{self, sqlstate},
    trace::{self, trace_span},
};

/// How often a whole transaction may run: once, and twice more where its record vanished between
/// two statements, or where it was a deadlock's victim or a serialization failure. Turns of waiting
/// for a locked row are not counted, but bounded by [`ROW_LOCK_WAIT`].
const ATTEMPTS_MAX: u32 = 3;

/// What is done in the transaction that claims a key: a [`Command`], or its first transaction.
pub(crate) trait Work: Sync {
    /// What is left to do after a COMMIT without an outcome.
    type Pending: Send;

    /// Works on a key that is this transaction's own. `began` is no later than its `now()`.
    /// The answer is saved. The connection comes back, unless the work fails.
    fn work(
        &self,
        tx: &mut GuardedConnection,
        request: &Request,
        began: Instant,
    ) -> impl Future<Output = Result<Verdict<Reply, Self::Pending>, Rejection>> + Send;
}

/// A command is one transaction: nothing is left to do after it.
impl<C: Command> Work for C {
    type Pending = Infallible;

    async fn work(
        &self,
        tx: &mut GuardedConnection,
        _: &Request,
        _: Instant,
    ) -> Result<Verdict<Reply, Infallible>, Rejection> {
        self.execute(tx).await.map(Verdict::Answered)
    }
}

impl Idempotency {
    /// Runs the transaction that claims the key, again where that may help, under the database
    /// deadline and not beyond `until`. Pending: it is committed without an outcome, and the key is
    /// in flight until this is done.
    pub(crate) async fn lead<W: Work>(
        &self,
        request: &Request,
        work: &W,
        leadership: &Leadership,
        until: Instant,
    ) -> Verdict<Outcome, W::Pending> {
        let committing = AtomicBool::new(false);
        let failed = |failure| Verdict::Answered(Outcome::Failed(failure));
        // The wait for the first connection is bounded by the pool and comes before the deadline.
        let acquiring = self.pool.acquire_to_claim(request.account_id);
        let mut connection = match timeout_at(until, acquiring).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return failed(error.into()),
            Err(_) => return failed(sqlx::Error::PoolTimedOut.into()),
        };
        let attempts = async {
            let mut attempts_left = ATTEMPTS_MAX - 1;
            let locked_until = Instant::now() + ROW_LOCK_WAIT;
            loop {
                leadership.advance(Progress::Claiming);
                let ended = self.attempt(connection, request, work, leadership, &committing);
                let held_up = match ended.await {
                    Ok(Some(outcome)) => {
                        // A committed row without a reply has the key: its owner is known.
                        if let Verdict::Pending(_) | Verdict::Answered(Outcome::Unfinished) =
                            outcome
                        {
                            leadership.advance(Progress::Recorded);
                        }
                        return outcome;
                    }
                    Ok(None) if attempts_left == 0 => {
                        return Verdict::Answered(Outcome::IN_USE);
                    }
                    Ok(None) => None,
                    Err(failure) => match failure.run_again {
                        RunAgain::AtOnce if attempts_left > 0 => None,
                        RunAgain::InAnotherSession if attempts_left > 0 => {
                            self.pool.close_idle();
                            None
                        }
                        RunAgain::WhenUnlocked if Instant::now() < locked_until => Some(failure),
                        RunAgain::AtOnce
                        | RunAgain::InAnotherSession
                        | RunAgain::WhenUnlocked
                        | RunAgain::Never => return failed(failure),
                    },
                };
                // A COMMIT that is to run again was answered: it has rolled back.
                committing.store(false, Ordering::Relaxed);
                match &held_up {
                    Some(_) => tokio::time::sleep(jittered(ROW_LOCK_PAUSE)).await,
                    None => attempts_left -= 1,
                }
                connection = match self.pool.acquire_to_claim(request.account_id).await {
                    Ok(connection) => connection,
                    // What kept it waiting is the row.
                    Err(error) => return failed(held_up.unwrap_or_else(|| error.into())),
                };
            }
        };
        let deadline = Instant::now() + self.settings.database_deadline;
        timeout_at(deadline.min(until), attempts)
            .await
            .unwrap_or_else(|_| failed(Failure::deadline(committing.load(Ordering::Relaxed))))
    }

    /// One transaction: claim, work, save, COMMIT. `None`: the record vanished, so begin afresh.
    ///
    /// Every `?` drops the connection guard with its doubt: the connection is closed, and Postgres
    /// rolls back at the latest when it notices.
    async fn attempt<W: Work>(
        &self,
        mut connection: GuardedConnection,
        request: &Request,
        work: &W,
        leadership: &Leadership,
        committing: &AtomicBool,
    ) -> Result<Option<Verdict<Outcome, W::Pending>>, Failure> {
        let began = Instant::now();
        // The claim comes before the work. A duplicate that arrives from here on, at any replica,
        // waits for this transaction at the unique index.
        let (mut tx, claimed) = self.claim(&mut connection, request).await?;
        // Not this transaction's: nothing is done, and the record answers, if there is one. COMMIT
        // comes before the answer, because a failover could still lose what was read.
        let Claim::Mine(expired) = claimed else {
            committing.store(claimed.is_read(), Ordering::Relaxed);
            claimed.end(tx).await?;
            let claimed = claimed.release(connection).await?;
            return Ok(answer(request, claimed)?.map(Verdict::Answered));
        };

        // A refusal must undo the work and keep the key. Without the savepoint, ROLLBACK would free
        // the key, and a retry might succeed after its client was refused.
        let expired = self.look_back(&mut tx, claim::START_WORK, (request, expired));
        let expired = expired.await?;
        leadership.advance(Progress::Executing);
        // From here on the connection is the transaction, because a handler may own it for a while.
        // Without a COMMIT it is closed, which rolls back.
        std::mem::forget(tx);
        let working = async {
            match expired {
                Some(expired) => Err(Rejection::Refused(expired.answer)),
                None => work.work(&mut connection, request, began).await,
            }
        };
        let worked = match trace::step(trace_span!("work"), working, how_work_ended).await {
            Ok(worked) => worked,
            // A definite no is an outcome: it is stored below, as a success is.
            Err(Rejection::Refused(reply)) => {
                sqlx::raw_sql(claim::UNDO_WORK)
                    .execute(&mut *connection)
                    .await?;
                Verdict::Answered(reply)
            }
            // A failure says nothing about the request. ROLLBACK frees the key for the retry.
            Err(Rejection::Failed(failure)) => {
                if failure.run_again == RunAgain::WhenUnlocked {
                    self.pool.observer.gave_up_a_row();
                }
                // The failure stands whether or not the ROLLBACK is answered; only an answered one
                // gives the connection back, and only where it may be of use.
                let is_rolled_back = connection.roll_back().await.is_ok();
                if is_rolled_back && failure.run_again != RunAgain::InAnotherSession {
                    connection.release();
                }
                return Err(failure);
            }
        };
        connection.is_as_begun()?;
        // The reply is saved before COMMIT. In a transaction of its own, a crash between the two
        // would leave a charge whose retry finds no reply.
        let outcome = match worked {
            Verdict::Answered(reply) => {
                let (account_id, key) = (request.account_id, &request.stored_key());
                let sealed = request.sealed(&reply)?;
                let saved = reply::save(&mut connection, account_id, key, (reply, sealed));
                Verdict::Answered(Outcome::Stored {
                    record: Arc::new(saved.await?),
                    replayed: false,
                    taken_over: false,
                })
            }
            Verdict::Pending(pending) => Verdict::Pending(pending),
        };

        // From here on, a timeout doesn't know whether the transaction is committed: 503, and the
        // retry finds out.
        committing.store(true, Ordering::Relaxed);
        let how = |committed: &Result<_, _>| committed.is_ok().then_some("committed");
        let committed = trace::step(trace_span!("commit"), connection.commit_work(), how).await;
        committed?;
        connection.release();
        Ok(Some(outcome))
    }

    /// Runs `first`, and tells whether a claimed key has expired, so that its request is refused.
    pub(crate) async fn look_back(
        &self,
        tx: &mut PgConnection,
        first: &'static str,
        claimed: Claimed<'_>,
    ) -> Result<Option<Expired>, Failure> {
        let Some(recall) = &self.recall else {
            if !first.is_empty() {
                sqlx::raw_sql(first).execute(tx).await?;
            }
            return Ok(None);
        };
        let found = recall.look(tx, first, vec![claimed]).await;
        let found = found.map_err(|error| match sqlstate(&error) {
            // Not the rows that the work needs.
            Some(code) if code == "55P03" => Failure::unavailable("a table of keys is locked"),
            _ => error.into(),
        })?;
        Ok(found.into_iter().flatten().next())
    }

    async fn claim<'c>(
        &self,
        connection: &'c mut GuardedConnection,
        request: &Request,
    ) -> Result<(Transaction<'c, Postgres>, Claim), Failure> {
        // At most half of the pool waits long for keys. If all of it did, a few busy keys would
        // stop every other request.
        let patient = self.pool.admit.wait_for_key();
        let begin = match patient {
            Some(_) => claim::BEGIN,
            None => claim::BEGIN_BRIEFLY,
        };
        let claiming = async {
            let mut tx = connection.open(begin).await?;
            let claiming = Instant::now();
            let retention = request.retention(self.retention);
            let claimed = claim::claim(&mut tx, request, retention).await?;
            let is_held = matches!(claimed, Claim::HeldElsewhere);
            self.pool.observer.claimed(claiming.elapsed(), is_held);
            Ok((tx, claimed))
        };
        let how = |claimed: &Result<(_, Claim), Failure>| {
            claimed.as_ref().ok().map(|(_, claimed)| claimed.name())
        };
        trace::step(trace_span!("claim"), claiming, how).await
    }
}

/// What the span of the work says; `None`: it failed.
fn how_work_ended<P>(worked: &Result<Verdict<Reply, P>, Rejection>) -> Option<&'static str> {
    match worked {
        Ok(Verdict::Answered(_)) => Some("replied"),
        Ok(Verdict::Pending(_)) => Some("pending"),
        Err(Rejection::Refused(_)) => Some("refused"),
        Err(Rejection::Failed(_)) => None,
    }
}

/// What a key says that is not this transaction's. `None`: nothing any more.
fn answer(request: &Request, claimed: Claim) -> Result<Option<Outcome>, Failure> {
    Ok(Some(match claimed {
        Claim::Completed(record) => compare(request, record)?,
        Claim::Unfinished(record) if record.is_of(request)? => Outcome::Unfinished,
        Claim::Unfinished(_) => Outcome::Reused,
        Claim::HeldElsewhere => Outcome::IN_USE,
        Claim::Mine(_) | Claim::Vanished => return Ok(None),
    }))
}

/// A completed record answers only its own request.
pub(crate) fn compare(request: &Request, record: Arc<Record>) -> Result<Outcome, Failure> {
    match record.is_of(request)? {
        true => request.replay(record),
        false => Ok(Outcome::Reused),
    }
}
