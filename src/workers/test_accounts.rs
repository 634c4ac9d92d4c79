//! Removes what test accounts leave behind.
//!
//! Promise: a test account that ended loses all of its rows, in batches that commit one by one, and is then
//! closed. Only an account with `test_until` is ever touched, and none with a key in flight.
//!
//! The row of the account is locked in each batch, so replicas never work on one account at the same time.
//! What is left to do is what is left in the tables: after a crash, the next batch goes on.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::retention::in_time;
use crate::{
    idempotency,
    store::test_accounts::{self, Table},
};

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Accounts that have nothing left, and are closed.
    pub accounts: u64,
    /// Rows; those of `checkout_steps` are not counted.
    pub rows: u64,
}

/// Removes batches until `until`, or until nothing is left to do. Each has a deadline, and is followed by a
/// rest of so many times what it took. After an error the connection is in doubt.
pub async fn close_ended(
    connection: &mut PgConnection,
    deadline: Duration,
    rest: u32,
    until: Instant,
) -> Result<Closed, sqlx::Error> {
    let mut closed = Closed::default();
    while Instant::now() < until {
        let began = Instant::now();
        match in_time(deadline, remove_batch(connection)).await? {
            Batch::NothingToDo => break,
            Batch::Removed(rows) => closed.rows += rows,
            Batch::Closed => closed.accounts += 1,
        }
        sleep(began.elapsed() * rest).await;
    }
    Ok(closed)
}

enum Batch {
    /// No account is to be closed, or other replicas work on all of them.
    NothingToDo,
    /// So many rows of an account went.
    Removed(u64),
    /// An account had nothing left.
    Closed,
}

/// One transaction.
async fn remove_batch(connection: &mut PgConnection) -> Result<Batch, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let Some(account) = test_accounts::lock_ended(&mut tx).await? else {
        tx.rollback().await?;
        return Ok(Batch::NothingToDo);
    };
    let mut rows = idempotency::forget(&mut tx, account.0, None).await?.rows;
    for table in Table::IN_ORDER {
        if rows > 0 {
            break;
        }
        rows = test_accounts::delete_batch(&mut tx, account, table).await?;
    }
    if rows == 0 {
        test_accounts::close(&mut tx, account).await?;
    }
    tx.commit().await?;
    Ok(match rows {
        0 => Batch::Closed,
        rows => Batch::Removed(rows),
    })
}
