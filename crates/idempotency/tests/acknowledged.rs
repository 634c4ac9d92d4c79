//! A program without a subscriber of tracing hears the warning of a COMMIT. It is alone in this
//! file: what was logged first in a process counts.

use charge_once_idempotency::acknowledged;

/// As sqlx hands on what PostgreSQL says.
fn warn() {
    tracing::warn!(target: "sqlx::postgres::notice", "the standby lacks it");
}

#[tokio::test]
async fn a_warning_that_no_subscriber_took_hides_no_later_one() {
    assert!(acknowledged(async { Ok(()) }).await.is_ok());
    warn();
    let warned = acknowledged(async {
        warn();
        Ok(())
    });
    assert!(warned.await.is_err());
}
