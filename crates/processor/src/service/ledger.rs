//! The ledger: which operation was executed with which key, and the totals of each charge.
//!
//! Promise: an operation's entry in the ledger is its own idempotency record, and commits together
//! with the totals that it changes. "Not executed" means that COMMIT was never sent, or that
//! Postgres reported a rollback.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use charge_once_idempotency::{Connections, NO_ACCOUNT};
use chrono::{DateTime, Utc};
use sqlx::{
    Connection, PgConnection, error::DatabaseError, postgres::types::PgInterval, types::Json,
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};
use tracing::Instrument;
use uuid::Uuid;

use super::listing::{self, Listing};
use crate::{
    Answer, Instruction,
    test_cards::{self, Decision, Decline, PROCESSING_ERROR},
};

/// The outcome of an instruction with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerOutcome {
    /// The definite answer, from this attempt or an earlier one.
    Answered(Answer),
    /// The key belongs to another instruction.
    AnotherInstruction,
    /// Another process on the same database executed the key first.
    InProgress,
    /// The key is not known, and this attempt came after its time.
    Late,
    /// This attempt was certainly not executed.
    NotExecuted,
    /// COMMIT was sent, and its outcome isn't known.
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Unfinished {
    /// The database refused it, or can't be reached.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// No answer in time.
    #[error("the database deadline is over")]
    Deadline,
    /// A defect, or the end of the process.
    #[error("the operation panicked, or was cut off")]
    CutOff,
}

impl Unfinished {
    /// The outcome of an attempt that ended so. Without a COMMIT, everything is rolled back when
    /// the connection ends. Postgres answers COMMIT with an error of class 23 or 40 only after it
    /// has rolled back.
    fn outcome(&self, committing: &AtomicBool) -> LedgerOutcome {
        let code = match self {
            Self::Database(error) => error.as_database_error().and_then(DatabaseError::code),
            Self::Deadline | Self::CutOff => None,
        };
        let is_rolled_back =
            code.is_some_and(|code| code.starts_with("23") || code.starts_with("40"));
        match committing.load(Ordering::SeqCst) && !is_rolled_back {
            true => LedgerOutcome::Unknown,
            false => LedgerOutcome::NotExecuted,
        }
    }
}

/// The processor's database. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pool: Connections,
    runtime: Handle,
    /// How long a key is remembered.
    window: PgInterval,
    deadline: Duration,
    /// Authorizations that share a transaction: as a real processor, this one must not be what
    /// limits its clients.
    waiting: mpsc::Sender<Waiting>,
}

/// An authorization that waits for its transaction.
struct Waiting {
    key: Uuid,
    instruction: Instruction,
    not_after: DateTime<Utc>,
    /// `None`: it is to run alone.
    told: oneshot::Sender<Option<LedgerOutcome>>,
}

/// Authorizations that may wait; one more runs alone.
const WAITING_MAX: usize = 1024;

/// Authorizations in one transaction.
const GROUP_MAX: usize = 64;

impl Ledger {
    pub(super) fn new(
        pool: Connections,
        window: Duration,
        deadline: Duration,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        let (waiting, arriving) = mpsc::channel(WAITING_MAX);
        tokio::spawn(authorize_groups(pool.clone(), deadline, arriving));
        Ok(Self {
            pool,
            runtime: Handle::current(),
            window: PgInterval::try_from(window)?,
            deadline,
            waiting,
        })
    }

    /// Authorizes in one transaction with others. `None`: it is to run alone, because it is another
    /// instruction, its key has an entry, it came too late, or too many wait.
    async fn authorize(
        &self,
        key: Uuid,
        instruction: &Instruction,
        not_after: DateTime<Utc>,
    ) -> Option<LedgerOutcome> {
        let is_late = Utc::now() > not_after;
        answer_of_card(instruction).filter(|_| !is_late)?;
        let (told, outcome) = oneshot::channel();
        let waiting = Waiting {
            key,
            instruction: instruction.clone(),
            not_after,
            told,
        };
        self.waiting.try_send(waiting).ok()?;
        // The task that answers ends with the process.
        outcome.await.unwrap_or(Some(LedgerOutcome::Unknown))
    }

    /// The answer of `key`, and whether it belongs to `instruction`. Executes nothing.
    pub(super) async fn find(
        &self,
        key: Uuid,
        instruction: Option<Instruction>,
    ) -> Result<Option<LedgerOutcome>, Unfinished> {
        let (pool, window) = (self.pool.clone(), self.window);
        let finding = async move {
            let mut connection = pool.acquire(NO_ACCOUNT).await?;
            let found = remembered(&mut connection, key, instruction.as_ref(), &window).await?;
            connection.release();
            Ok(found)
        };
        self.finish(finding).await
    }

    /// Executes `instruction` with `key`, or returns the outcome of an earlier attempt, also after
    /// `not_after`. Runs to its end even if the client has disconnected.
    pub(super) async fn execute(
        &self,
        key: Uuid,
        instruction: Instruction,
        not_after: DateTime<Utc>,
    ) -> LedgerOutcome {
        if let Some(outcome) = self.authorize(key, &instruction, not_after).await {
            return outcome;
        }
        let committing = Arc::new(AtomicBool::new(false));
        let (pool, window, flag) = (self.pool.clone(), self.window, committing.clone());
        let attempt =
            async move { attempt(&pool, key, &instruction, not_after, &window, &flag).await };
        self.finish(attempt).await.unwrap_or_else(|error| {
            let outcome = error.outcome(&committing);
            tracing::error!(%error, ?outcome, "an attempt failed");
            outcome
        })
    }

    pub(super) async fn list(&self, charge: Option<String>) -> Result<Listing, Unfinished> {
        let pool = self.pool.clone();
        let listing = async move {
            let mut connection = pool.acquire(NO_ACCOUNT).await?;
            let listing = listing::list(&mut connection, charge.as_deref()).await?;
            connection.release();
            Ok(listing)
        };
        self.finish(listing).await
    }

    /// Runs work within the deadline, in a task that a disconnect can't cancel, and on the runtime
    /// of the pooled connections: they end with the runtime that made them.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = sqlx::Result<T>> + Send + 'static,
    ) -> Result<T, Unfinished> {
        let limited = tokio::time::timeout(self.deadline, work);
        match self.runtime.spawn(limited.in_current_span()).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Unfinished::Deadline),
            Err(_) => Err(Unfinished::CutOff),
        }
    }
}

/// Authorizes what waits, as many at a time as have come during the transaction before.
async fn authorize_groups(
    pool: Connections,
    deadline: Duration,
    mut arriving: mpsc::Receiver<Waiting>,
) {
    let mut group = Vec::new();
    while arriving.recv_many(&mut group, GROUP_MAX).await > 0 {
        let now = Utc::now();
        // Alone, they have the answers of their keys, if these are known.
        for late in group.extract_if(.., |waiting| waiting.not_after < now) {
            let _ = late.told.send(None);
        }
        if group.is_empty() {
            continue;
        }
        let committing = AtomicBool::new(false);
        let authorizing = authorize_group(&pool, &group, &committing);
        let ended = match tokio::time::timeout(deadline, authorizing).await {
            Ok(ended) => ended.map_err(Unfinished::from),
            Err(_) => Err(Unfinished::Deadline),
        };
        let mut ended = ended.map_err(|error| {
            let (outcome, requests) = (error.outcome(&committing), group.len());
            tracing::warn!(%error, ?outcome, requests, "a group of authorizations failed");
            match (error, outcome) {
                // One of them may be to blame, so each is tried alone.
                (Unfinished::Database(_), LedgerOutcome::NotExecuted) => None,
                // They have waited for the database already.
                (_, outcome) => Some(outcome),
            }
        });
        for waiting in group.drain(..) {
            let outcome = match &mut ended {
                // Of two with one key, one wrote it.
                Ok(new) => answer_of_card(&waiting.instruction)
                    .filter(|_| new.remove(&waiting.key))
                    .map(LedgerOutcome::Answered),
                Err(outcome) => *outcome,
            };
            // Without a receiver, the client has gone.
            let _ = waiting.told.send(outcome);
        }
    }
}

async fn authorize_group(
    pool: &Connections,
    group: &[Waiting],
    committing: &AtomicBool,
) -> sqlx::Result<HashSet<Uuid>> {
    let asked: Vec<_> = group
        .iter()
        .map(|one| (one.key, &one.instruction))
        .collect();
    let mut connection = pool.acquire(NO_ACCOUNT).await?;
    let mut tx = connection.begin().await?;
    let written = authorize(&mut tx, &asked).await?;
    committing.store(true, Ordering::SeqCst);
    tx.commit().await?;
    connection.release();
    Ok(written)
}

/// One transaction: the totals, the entry, COMMIT. Every `?` drops the connection guard, which
/// closes the connection, and Postgres rolls back.
async fn attempt(
    pool: &Connections,
    key: Uuid,
    instruction: &Instruction,
    not_after: DateTime<Utc>,
    window: &PgInterval,
    committing: &AtomicBool,
) -> sqlx::Result<LedgerOutcome> {
    let mut connection = pool.acquire(NO_ACCOUNT).await?;
    let mut tx = connection.begin().await?;
    let found = remembered(&mut tx, key, Some(instruction), window).await?;
    let late = || (Utc::now() > not_after).then_some(LedgerOutcome::Late);
    if let Some(outcome) = found.or_else(late) {
        tx.rollback().await?;
        connection.release();
        return Ok(outcome);
    }
    forget(&mut tx, key, window).await?;
    let (answer, is_written) = match answer_of_card(instruction) {
        Some(answer) => {
            let written = authorize(&mut tx, &[(key, instruction)]).await?;
            (answer, written.contains(&key))
        }
        None => {
            let answer = carry_out(&mut tx, instruction).await?;
            (answer, write_line(&mut tx, key, instruction, answer).await?)
        }
    };
    if !is_written {
        // Another process has executed this key since `remembered` looked. Its entry counts, and
        // this transaction rolls back.
        tx.rollback().await?;
        connection.release();
        return Ok(LedgerOutcome::InProgress);
    }
    committing.store(true, Ordering::SeqCst);
    tx.commit().await?;
    connection.release();
    Ok(LedgerOutcome::Answered(answer))
}

/// Decides about money that was authorized, and changes the totals. A rule about totals is checked
/// and applied by one conditional statement, so that two concurrent instructions can't both pass.
async fn carry_out(tx: &mut PgConnection, instruction: &Instruction) -> sqlx::Result<Answer> {
    let is_done = match instruction {
        // Its card has decided about it.
        Instruction::Authorize { .. } => true,
        Instruction::Capture { charge, amount } => capture_once(tx, charge, *amount).await?,
        Instruction::Refund { charge, amount, .. } => refund(tx, charge, *amount).await?,
    };
    Ok(if is_done {
        Answer::Done
    } else {
        Answer::Declined(PROCESSING_ERROR)
    })
}

/// The card's answer to an authorization. The rules refuse a card that this processor doesn't know.
fn answer_of_card(instruction: &Instruction) -> Option<Answer> {
    let Instruction::Authorize { card, .. } = instruction else {
        return None;
    };
    let decline = match test_cards::by_token(card).map(|card| card.decision) {
        Some(Decision::Approve | Decision::ApproveSlowly | Decision::Outage) => None,
        Some(Decision::Decline(decline)) => Some(decline),
        None => Some(PROCESSING_ERROR),
    };
    Some(decline.map_or(Answer::Done, Answer::Declined))
}

/// The answer of `key`, if it is within its window, and whether it belongs to `instruction`.
async fn remembered(
    connection: &mut PgConnection,
    key: Uuid,
    instruction: Option<&Instruction>,
    window: &PgInterval,
) -> sqlx::Result<Option<LedgerOutcome>> {
    let found = sqlx::query!(
        r#"
        SELECT instruction AS "instruction: Json<Instruction>", code, decline_code
          FROM processor.operations
         WHERE key = $1 AND executed_at > now() - $2::interval
        "#,
        key,
        window,
    )
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|found| {
        if instruction.is_some_and(|asked| *asked != found.instruction.0) {
            return LedgerOutcome::AnotherInstruction;
        }
        LedgerOutcome::Answered(match found.code {
            None => Answer::Done,
            Some(code) => Answer::Declined(Decline::named(&code, found.decline_code.as_deref())),
        })
    }))
}

/// Removes a key that is past its window from its operation. It uses the `now()` of [`remembered`]:
/// with two clocks, a key could be neither remembered nor forgotten.
async fn forget(tx: &mut PgConnection, key: Uuid, window: &PgInterval) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        UPDATE processor.operations SET key = NULL
         WHERE key = $1 AND executed_at <= now() - $2::interval
        "#,
        key,
        window,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Inserts the entry. `false` if another process has committed one with this key.
async fn write_line(
    tx: &mut PgConnection,
    key: Uuid,
    instruction: &Instruction,
    answer: Answer,
) -> sqlx::Result<bool> {
    let decline = match answer {
        Answer::Done => None,
        Answer::Declined(decline) => Some(decline),
    };
    let written = sqlx::query!(
        r#"
        INSERT INTO processor.operations (key, instruction, code, decline_code)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (key) DO NOTHING
        "#,
        key,
        Json(instruction) as _,
        decline.map(|decline| decline.code.as_str()),
        decline.and_then(|decline| decline.decline_code),
    )
    .execute(tx)
    .await?;
    Ok(written.rows_affected() == 1)
}

/// Inserts the entries of authorizations, and changes the totals with them. Returns the keys that
/// had no entry. Another authorization of the same charge is not refused: a processor doesn't know
/// that its client meant only one.
async fn authorize(
    connection: &mut PgConnection,
    asked: &[(Uuid, &Instruction)],
) -> sqlx::Result<HashSet<Uuid>> {
    let (mut keys, mut instructions) = (Vec::new(), Vec::new());
    let (mut codes, mut reasons) = (Vec::new(), Vec::new());
    for (key, instruction) in asked {
        let decline = match answer_of_card(instruction) {
            Some(Answer::Declined(decline)) => Some(decline),
            Some(Answer::Done) | None => None,
        };
        keys.push(*key);
        instructions.push(Json(instruction));
        codes.push(decline.map(|decline| decline.code.as_str()));
        reasons.push(decline.and_then(|decline| decline.decline_code));
    }
    let written = sqlx::query_scalar!(
        r#"
        WITH entry AS (
            INSERT INTO processor.operations (key, instruction, code, decline_code)
            SELECT key, instruction, code, decline_code
              FROM UNNEST($1::uuid[], $2::jsonb[], $3::text[], $4::text[])
                   AS asked (key, instruction, code, decline_code)
            ON CONFLICT (key) DO NOTHING
            RETURNING key, code, charge, amount, (instruction ->> 'capture')::bool AS capture),
        totals AS (
            INSERT INTO processor.charges AS kept (charge, authorized, captured)
            SELECT charge, sum(amount), sum(CASE WHEN capture THEN amount ELSE 0 END)
              FROM entry
             WHERE code IS NULL
             GROUP BY charge
             ORDER BY charge
            ON CONFLICT (charge) DO UPDATE
               SET authorized = kept.authorized + EXCLUDED.authorized,
                   captured = kept.captured + EXCLUDED.captured)
        SELECT key AS "key!" FROM entry
        "#,
        &keys,
        &instructions as _,
        &codes as _,
        &reasons as _,
    )
    .fetch_all(connection)
    .await?;
    Ok(written.into_iter().collect())
}

/// Captures authorized money and releases the rest, so there is no second capture.
async fn capture_once(tx: &mut PgConnection, charge: &str, amount: i64) -> sqlx::Result<bool> {
    let updated = sqlx::query!(
        r#"
        UPDATE processor.charges
           SET captured = captured + $2, released = authorized - captured - $2
         WHERE charge = $1 AND captured + released + $2 <= authorized
        "#,
        charge,
        amount,
    )
    .execute(tx)
    .await?;
    Ok(updated.rows_affected() == 1)
}

/// Refunds captured money in parts, or releases the whole authorized amount.
async fn refund(tx: &mut PgConnection, charge: &str, amount: i64) -> sqlx::Result<bool> {
    let updated = sqlx::query!(
        r#"
        UPDATE processor.charges
           SET refunded = refunded + CASE WHEN captured > 0 THEN $2 ELSE 0 END,
               released = released + CASE WHEN captured > 0 THEN 0 ELSE $2 END
         WHERE charge = $1
           AND (captured > 0 AND refunded + $2 <= captured
                OR captured = 0 AND released + $2 = authorized)
        "#,
        charge,
        amount,
    )
    .execute(tx)
    .await?;
    Ok(updated.rows_affected() == 1)
}

#[cfg(test)]
mod tests;
