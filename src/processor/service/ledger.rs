//! The books: which operation was executed under which key, and the sums for each charge.
//!
//! Promise: an operation's line in the ledger is its own idempotency record, and it commits with
//! the sums that it changes. "Not executed" is said only where COMMIT was never sent, or where
//! Postgres said that it rolled back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::types::PgInterval,
    types::{
        Json,
        chrono::{DateTime, Utc},
    },
};
use tokio::runtime::Handle;
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    database::{Database, GuardedConnection, ReadError},
    domain::test_cards::{self, Decision, Decline, PROCESSING_ERROR},
    processor::{Answer, Instruction},
};

/// How many lines, and charges, a listing shows at most.
const LISTED_MAX: i64 = 1000;

/// What an instruction under a key came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Booked {
    /// The definite answer: now, or long ago.
    Answered(Answer),
    /// The key is another instruction's.
    AnotherInstruction,
    /// Another process on the same database was faster and has it now.
    InProgress,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Certainly not executed.
    NotExecuted(String),
    /// COMMIT was sent, and what became of it isn't known.
    Unknown(String),
}

/// The processor's database. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    database: Database,
    runtime: Handle,
    /// How long a key is remembered.
    window: PgInterval,
    deadline: Duration,
}

/// A line of the ledger, as it is listed.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    id: i64,
    key: Option<Uuid>,
    verb: String,
    charge: String,
    amount: i64,
    status: &'static str,
    code: Option<String>,
    decline_code: Option<String>,
    executed_at: DateTime<Utc>,
}

/// A charge's sums, as they are listed.
#[derive(Debug, Serialize)]
pub(super) struct Sums {
    charge: String,
    authorised: i64,
    captured: i64,
    released: i64,
    refunded: i64,
}

/// Both.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    operations: Vec<Line>,
    charges: Vec<Sums>,
}

impl Ledger {
    pub(super) fn new(
        database: Database,
        window: Duration,
        deadline: Duration,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self {
            database,
            runtime: Handle::current(),
            window: PgInterval::try_from(window)?,
            deadline,
        })
    }

    /// The answer that `key` has, and whether it is `instruction`'s, without executing anything.
    pub(super) async fn find(
        &self,
        key: Uuid,
        instruction: Option<Instruction>,
    ) -> Result<Option<Booked>, ReadError> {
        let window = self.window;
        self.database
            .read(move |connection| {
                Box::pin(async move { remembered(connection, key, &window).await })
            })
            .await
            .map(|found| found.map(|found| found.compared_with(instruction.as_ref())))
    }

    /// Executes `instruction` under `key`, or answers what an earlier send came to. Runs to its end
    /// even where nobody waits for it.
    pub(super) async fn execute(
        &self,
        key: Uuid,
        instruction: Instruction,
    ) -> Result<Booked, Trouble> {
        let committing = Arc::new(AtomicBool::new(false));
        let (pool, window, flag) = (
            self.database.pool().clone(),
            self.window,
            committing.clone(),
        );
        let attempt = async move { attempt(&pool, key, &instruction, &window, &flag).await };
        let task = self
            .runtime
            .spawn(tokio::time::timeout(self.deadline, attempt).in_current_span());
        let cause = match task.await {
            Ok(Ok(Ok(booked))) => return Ok(booked),
            Ok(Ok(Err(error))) if is_rolled_back(&error) => {
                return Err(Trouble::NotExecuted(error.to_string()));
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "the database deadline is over".to_owned(),
            Err(_) => "the operation panicked, or was cut off".to_owned(),
        };
        // Without a COMMIT, whatever happened is rolled back when the connection ends.
        Err(if committing.load(Ordering::SeqCst) {
            Trouble::Unknown(cause)
        } else {
            Trouble::NotExecuted(cause)
        })
    }

    /// Whether the database is in reach and its schema current.
    pub(super) async fn is_ready(&self) -> bool {
        matches!(self.database.schema_is_current().await, Ok(true))
    }

    /// The newest lines, of one charge or of all, and the sums.
    pub(super) async fn list(&self, charge: Option<String>) -> Result<Listing, ReadError> {
        self.database
            .read(move |connection| {
                Box::pin(async move {
                    let charge = charge.as_deref();
                    Ok(Listing {
                        operations: list_lines(connection, charge).await?,
                        charges: list_sums(connection, charge).await?,
                    })
                })
            })
            .await
    }
}

/// Postgres answers COMMIT with an error of class 23 or 40 only after it has rolled back.
fn is_rolled_back(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|database| database.code())
        .is_some_and(|code| code.starts_with("23") || code.starts_with("40"))
}

/// One transaction: the sums, the line, COMMIT. Every `?` drops the connection guard with its doubt:
/// the connection is closed, and Postgres rolls back.
async fn attempt(
    pool: &PgPool,
    key: Uuid,
    instruction: &Instruction,
    window: &PgInterval,
    committing: &AtomicBool,
) -> Result<Booked, sqlx::Error> {
    let mut connection = GuardedConnection::acquire(pool).await?;
    let mut tx = connection.begin().await?;
    if let Some(found) = remembered(&mut tx, key, window).await? {
        tx.rollback().await?;
        connection.release();
        return Ok(found.compared_with(Some(instruction)));
    }
    forget(&mut tx, key, window).await?;
    let answer = carry_out(&mut tx, instruction).await?;
    if !write_line(&mut tx, key, instruction, answer).await? {
        // Another process has executed this key since `remembered` looked. Its line stands, and
        // what was done here is undone.
        tx.rollback().await?;
        connection.release();
        return Ok(Booked::InProgress);
    }
    committing.store(true, Ordering::SeqCst);
    tx.commit().await?;
    connection.release();
    Ok(Booked::Answered(answer))
}

/// Decides, and changes the sums. Where the rules are a condition on the sums, one conditional
/// statement both checks and changes them, so that two at once can't both pass.
async fn carry_out(
    tx: &mut PgConnection,
    instruction: &Instruction,
) -> Result<Answer, sqlx::Error> {
    let is_done = match instruction {
        Instruction::Authorise {
            charge,
            amount,
            card,
            capture,
            ..
        } => {
            if let Some(decline) = decline_of(card) {
                return Ok(Answer::Declined(decline));
            }
            authorise(tx, charge, *amount, *capture).await?;
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

/// The card's own decline. A card that this processor doesn't know is refused by its rules.
fn decline_of(card: &str) -> Option<Decline> {
    match test_cards::by_token(card).map(|card| card.decision) {
        Some(Decision::Approve | Decision::ApproveSlowly | Decision::Outage) => None,
        Some(Decision::Decline(decline)) => Some(decline),
        None => Some(PROCESSING_ERROR),
    }
}

/// What is kept of an operation.
struct Remembered {
    instruction: Instruction,
    answer: Answer,
}

impl Remembered {
    fn compared_with(self, instruction: Option<&Instruction>) -> Booked {
        if instruction.is_some_and(|instruction| *instruction != self.instruction) {
            Booked::AnotherInstruction
        } else {
            Booked::Answered(self.answer)
        }
    }
}

/// The operation under `key`, if the key is within its window.
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

/// Takes a key that is past its window from its operation. By the same `now()` as [`remembered`]:
/// between two clocks a key could be neither remembered nor forgotten.
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

/// Writes the line. `false`: another process has committed one under this key.
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

/// Promises money, and takes it at once where `capture` says so. Another authorisation of the same
/// charge is not refused: a processor doesn't know that its client meant only one.
async fn authorise(
    tx: &mut PgConnection,
    charge: &str,
    amount: i64,
    capture: bool,
) -> Result<(), sqlx::Error> {
    let captured = if capture { amount } else { 0 };
    sqlx::query!(
        r#"
        INSERT INTO processor.charges AS kept (charge, authorised, captured)
        VALUES ($1, $2, $3)
        ON CONFLICT (charge) DO UPDATE
           SET authorised = kept.authorised + EXCLUDED.authorised,
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

/// Takes promised money and releases the rest, which is why there is no second time.
async fn capture_once(
    tx: &mut PgConnection,
    charge: &str,
    amount: i64,
) -> Result<bool, sqlx::Error> {
    let updated = sqlx::query!(
        r#"
        UPDATE processor.charges
           SET captured = captured + $2, released = authorised - captured - $2
         WHERE charge = $1 AND captured + released + $2 <= authorised
        "#,
        charge,
        amount,
    )
    .execute(tx)
    .await?;
    Ok(updated.rows_affected() == 1)
}

/// Gives captured money back in parts, or releases the whole of what was only promised.
async fn refund(tx: &mut PgConnection, charge: &str, amount: i64) -> Result<bool, sqlx::Error> {
    let updated = sqlx::query!(
        r#"
        UPDATE processor.charges
           SET refunded = refunded + CASE WHEN captured > 0 THEN $2 ELSE 0 END,
               released = released + CASE WHEN captured > 0 THEN 0 ELSE $2 END
         WHERE charge = $1
           AND (captured > 0 AND refunded + $2 <= captured
                OR captured = 0 AND released + $2 = authorised)
        "#,
        charge,
        amount,
    )
    .execute(tx)
    .await?;
    Ok(updated.rows_affected() == 1)
}

async fn list_lines(
    connection: &mut PgConnection,
    charge: Option<&str>,
) -> Result<Vec<Line>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT id, key, verb, charge, amount, code, decline_code, executed_at
          FROM processor.operations
         WHERE $1::text IS NULL OR charge = $1
         ORDER BY id DESC
         LIMIT $2
        "#,
        charge,
        LISTED_MAX,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Line {
            id: row.id,
            key: row.key,
            verb: row.verb,
            charge: row.charge,
            amount: row.amount,
            status: if row.code.is_none() {
                "done"
            } else {
                "declined"
            },
            code: row.code,
            decline_code: row.decline_code,
            executed_at: row.executed_at,
        })
        .collect())
}

async fn list_sums(
    connection: &mut PgConnection,
    charge: Option<&str>,
) -> Result<Vec<Sums>, sqlx::Error> {
    sqlx::query_as!(
        Sums,
        r#"
        SELECT charge, authorised, captured, released, refunded
          FROM processor.charges
         WHERE $1::text IS NULL OR charge = $1
         ORDER BY charge DESC
         LIMIT $2
        "#,
        charge,
        LISTED_MAX,
    )
    .fetch_all(connection)
    .await
}
