//! The ledger as a person sees it: its newest entries, and the totals of charges.

use serde::Serialize;
use sqlx::{
    PgConnection,
    types::chrono::{DateTime, Utc},
};
use uuid::Uuid;

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

impl Listing {
    pub(super) async fn read(
        connection: &mut PgConnection,
        charge: Option<&str>,
    ) -> sqlx::Result<Self> {
        Ok(Self {
            operations: list_lines(connection, charge).await?,
            charges: list_sums(connection, charge).await?,
        })
    }
}

async fn list_lines(
    connection: &mut PgConnection,
    charge: Option<&str>,
) -> sqlx::Result<Vec<Line>> {
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

async fn list_sums(connection: &mut PgConnection, charge: Option<&str>) -> sqlx::Result<Vec<Sums>> {
    sqlx::query_as!(
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
    .await
}
