//! The wait of `tok_slow`, which writes nothing.

use sqlx::PgConnection;

/// Waits two seconds inside the transaction: long enough to type a second request, and well inside
/// the statement's time limit. Takes no lock.
pub async fn wait(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_sleep(2)").execute(tx).await?;
    Ok(())
}
