//! The ledger: which operation was executed with which key, and the totals of each charge.
//!
//! Promise: an operation's entry in the ledger is its own idempotency record, and commits together
//! with the totals that it changes. "Not executed" means that COMMIT was never sent, or that
//! Postgres reported a rollback.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use charge_once_idempotency::{Connections, NO_ACCOUNT};
use sqlx::{Connection, PgConnection, postgres::types::PgInterval, types::Json};
use tokio::runtime::Handle;
use tracing::Instrument;
use uuid::Uuid;

use super::listing::Listing;
use crate::{
    Answer, Instruction,
    test_cards::{self, Decision, Decline, PROCESSING_ERROR},
};

/// The outcome of an instruction with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LedgerOutcome {
    /// The definite answer, from this attempt or an earlier one.
    Answered(Answer),
    /// The key belongs to another instruction.
    AnotherInstruction,
    /// Another process on the same database executed the key first.
    InProgress,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum LedgerError {
    /// Certainly not executed.
    NotExecuted(String),
    /// COMMIT was sent, and its outcome isn't known.
    Unknown(String),
}

/// Why work in the database did not end well.
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

/// The processor's database. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pool: Connections,
    runtime: Handle,
    /// How long a key is remembered.
    window: PgInterval,
    deadline: Duration,
}

impl Ledger {
    pub(super) fn new(
        pool: Connections,
        window: Duration,
        deadline: Duration,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self {
            pool,
            runtime: Handle::current(),
            window: PgInterval::try_from(window)?,
            deadline,
        })
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
            let found = remembered(&mut connection, key, &window).await?;
            connection.release();
            Ok(found)
        };
        let found = self.finish(finding).await?;
        Ok(found.map(|found| found.compared_with(instruction.as_ref())))
    }

    /// Executes `instruction` with `key`, or returns the outcome of an earlier attempt. Runs to its
    /// end even if the client has disconnected.
    pub(super) async fn execute(
        &self,
        key: Uuid,
        instruction: Instruction,
    ) -> Result<LedgerOutcome, LedgerError> {
        let committing = Arc::new(AtomicBool::new(false));
        let (pool, window, flag) = (self.pool.clone(), self.window, committing.clone());
        let attempt = async move { attempt(&pool, key, &instruction, &window, &flag).await };
        let error = match self.finish(attempt).await {
            Ok(booked) => return Ok(booked),
            Err(error) => error,
        };
        let is_rolled_back = matches!(&error, Unfinished::Database(error) if is_rolled_back(error));
        // Without a COMMIT, everything is rolled back when the connection ends.
        Err(if committing.load(Ordering::SeqCst) && !is_rolled_back {
            LedgerError::Unknown(error.to_string())
        } else {
            LedgerError::NotExecuted(error.to_string())
        })
    }

    /// The newest entries, of one charge or of all, and the totals.
    pub(super) async fn list(&self, charge: Option<String>) -> Result<Listing, Unfinished> {
        let pool = self.pool.clone();
        let listing = async move {
            let mut connection = pool.acquire(NO_ACCOUNT).await?;
            let listing = Listing::read(&mut connection, charge.as_deref()).await?;
            connection.release();
            Ok(listing)
        };
        self.finish(listing).await
    }

    /// Runs work within the deadline, in a task that a disconnect can't cancel, and on the runtime
    /// of the pooled connections: they end with the runtime that made them.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    ) -> Result<T, Unfinished> {
        let limited = tokio::time::timeout(self.deadline, work);
        match self.runtime.spawn(limited.in_current_span()).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Unfinished::Deadline),
            Err(_) => Err(Unfinished::CutOff),
        }
    }
}

/// Postgres answers COMMIT with an error of class 23 or 40 only after it has rolled back.
fn is_rolled_back(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|database| database.code())
        .is_some_and(|code| code.starts_with("23") || code.starts_with("40"))
}

/// One transaction: the totals, the entry, COMMIT. Every `?` drops the connection guard, which
/// closes the connection, and Postgres rolls back.
async fn attempt(
    pool: &Connections,
    key: Uuid,
    instruction: &Instruction,
    window: &PgInterval,
    committing: &AtomicBool,
) -> Result<LedgerOutcome, sqlx::Error> {
    let mut connection = pool.acquire(NO_ACCOUNT).await?;
    let mut tx = connection.begin().await?;
    if let Some(found) = remembered(&mut tx, key, window).await? {
        tx.rollback().await?;
        connection.release();
        return Ok(found.compared_with(Some(instruction)));
    }
    forget(&mut tx, key, window).await?;
    let answer = carry_out(&mut tx, instruction).await?;
    if !write_line(&mut tx, key, instruction, answer).await? {
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

/// Decides, and changes the totals. A rule about totals is checked and applied by one conditional
/// statement, so that two concurrent instructions can't both pass.
async fn carry_out(
    tx: &mut PgConnection,
    instruction: &Instruction,
) -> Result<Answer, sqlx::Error> {
    let is_done = match instruction {
        Instruction::Authorize {
            charge,
            amount,
            card,
            capture,
            ..
        } => {
            if let Some(decline) = decline_of(card) {
                return Ok(Answer::Declined(decline));
            }
            authorize(tx, charge, *amount, *capture).await?;
            true
        }
        Instruction::Capture { charge, amount } => capture_once(tx, charge, *amount).await?,
        Instruction::Refund { charge, amount, .. } => refund(tx, charge, *amount).await?,
    };
    Ok(if is_done {
        Answer::Done
    } else {
        Answer::Declined(PROCESSING_ERROR)
    })
}

/// The card's decline. The rules refuse a card that this processor doesn't know.
fn decline_of(card: &str) -> Option<Decline> {
    match test_cards::by_token(card).map(|card| card.decision) {
        Some(Decision::Approve | Decision::ApproveSlowly | Decision::Outage) => None,
        Some(Decision::Decline(decline)) => Some(decline),
        None => Some(PROCESSING_ERROR),
    }
}

/// The stored part of an operation.
struct Remembered {
    instruction: Instruction,
    answer: Answer,
}

impl Remembered {
    fn compared_with(self, instruction: Option<&Instruction>) -> LedgerOutcome {
        if instruction.is_some_and(|instruction| *instruction != self.instruction) {
            LedgerOutcome::AnotherInstruction
        } else {
            LedgerOutcome::Answered(self.answer)
        }
    }
}

/// The operation of `key`, if the key is within its window.
async fn remembered(
    connection: &mut PgConnection,
    key: Uuid,
    window: &PgInterval,
) -> Result<Option<Remembered>, sqlx::Error> {
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
    Ok(found.map(|found| Remembered {
        instruction: found.instruction.0,
        answer: match found.code {
            None => Answer::Done,
            Some(code) => Answer::Declined(Decline::named(&code, found.decline_code.as_deref())),
        },
    }))
}

/// Removes a key that is past its window from its operation. It uses the `now()` of [`remembered`]:
/// with two clocks, a key could be neither remembered nor forgotten.
async fn forget(tx: &mut PgConnection, key: Uuid, window: &PgInterval) -> Result<(), sqlx::Error> {
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
) -> Result<bool, sqlx::Error> {
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

/// Authorizes an amount, and captures it at once if `capture` is true. Another authorization of the
/// same charge is not refused: a processor doesn't know that its client meant only one.
async fn authorize(
    tx: &mut PgConnection,
    charge: &str,
    amount: i64,
    capture: bool,
) -> Result<(), sqlx::Error> {
    let captured = if capture { amount } else { 0 };
    sqlx::query!(
        r#"
        INSERT INTO processor.charges AS kept (charge, authorized, captured)
        VALUES ($1, $2, $3)
        ON CONFLICT (charge) DO UPDATE
           SET authorized = kept.authorized + EXCLUDED.authorized,
               captured = kept.captured + EXCLUDED.captured
        "#,
        charge,
        amount,
        captured,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Captures authorized money and releases the rest, so there is no second capture.
async fn capture_once(
    tx: &mut PgConnection,
    charge: &str,
    amount: i64,
) -> Result<bool, sqlx::Error> {
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
async fn refund(tx: &mut PgConnection, charge: &str, amount: i64) -> Result<bool, sqlx::Error> {
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
