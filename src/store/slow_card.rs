//! The wait of `tok_slow`, which writes nothing.

use sqlx::PgConnection;

/// Waits two seconds inside the transaction: long enough to type a second request. No longer than
/// two thirds of the session's `statement_timeout`, which would end a longer wait. Takes no lock.
pub async fn wait(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        SELECT pg_sleep(least(
                   2, nullif(extract(epoch FROM current_setting('statement_timeout')::interval), 0) * 2 / 3))
        "
    )
    .execute(tx)
    .await?;
    Ok(())
}
