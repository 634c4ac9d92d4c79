//! The table `last_check`: one row, which servers show among their metrics.

use sqlx::PgConnection;

/// What the last check found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastCheck {
    /// Violations that it printed.
    pub violations: i32,
    /// When it ended, in unix seconds.
    pub finished_at: f64,
}

/// Replaces the result of an earlier check. Locks the row.
pub async fn save(connection: &mut PgConnection, violations: i32) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        INSERT INTO last_check (violations, finished_at) VALUES ($1, now())
        ON CONFLICT (is_last) DO UPDATE
           SET violations = excluded.violations, finished_at = excluded.finished_at
        ",
        violations,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The last check's result, if there was one.
pub async fn find(connection: &mut PgConnection) -> Result<Option<LastCheck>, sqlx::Error> {
    sqlx::query_as!(
        LastCheck,
        r#"
        SELECT violations, extract(epoch FROM finished_at)::float8 AS "finished_at!" FROM last_check
        "#,
    )
    .fetch_optional(connection)
    .await
}
