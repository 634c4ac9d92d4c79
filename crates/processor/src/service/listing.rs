//! The ledger as a person sees it: its newest entries, and the totals of charges.

use serde::Serialize;
use sqlx::{
    PgConnection,
    types::chrono::{DateTime, Utc},
};
use uuid::Uuid;

/// How many entries, and charges, a listing shows at most.
const LISTED_MAX: i64 = 1000;

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

#[derive(Debug, Serialize)]
pub(super) struct Sums {
    charge: String,
    authorized: i64,
    captured: i64,
    released: i64,
    refunded: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    operations: Vec<Line>,
    charges: Vec<Sums>,
}

/// The newest entries, of one charge or of all, and the totals.
pub(super) async fn list(
    connection: &mut PgConnection,
    charge: Option<&str>,
) -> sqlx::Result<Listing> {
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
    .fetch_all(&mut *connection)
    .await?;
    let charges = sqlx::query_as!(
        Sums,
        r#"
        SELECT charge, authorized, captured, released, refunded
          FROM processor.charges
         WHERE $1::text IS NULL OR charge = $1
         ORDER BY charge DESC
         LIMIT $2
        "#,
        charge,
        LISTED_MAX,
    )
    .fetch_all(connection)
    .await?;
    let lines = rows.into_iter().map(|row| Line {
        id: row.id,
        key: row.key,
        verb: row.verb,
        charge: row.charge,
        amount: row.amount,
        status: match row.code {
            None => "done",
            Some(_) => "declined",
        },
        code: row.code,
        decline_code: row.decline_code,
        executed_at: row.executed_at,
    });
    Ok(Listing {
        operations: lines.collect(),
        charges,
    })
}
