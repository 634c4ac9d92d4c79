//! The table `manual_resolutions`.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::{ids::AccountId, operation::Resolution};

/// Stores a person's resolution of an operation, with the operation as it is, beside earlier ones:
/// the last one counts. Fails if the operation has an answer already, except for a declined refund
/// that the person says was made elsewhere. Locks nothing.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    operation_id: Uuid,
    resolution: Resolution,
    resolved_by: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        INSERT INTO manual_resolutions
               (account_id, operation_id, resolution, resolved_by, operation)
        SELECT account_id, id, $3, $4, to_jsonb(operations)
          FROM operations
         WHERE account_id = $1 AND id = $2
           AND (completed_at IS NULL
                OR ($3 = 'done' AND verb = 'create_refund' AND outcome = 'declined'))
        RETURNING operation_id
        ",
        account_id.0,
        operation_id,
        resolution.as_str(),
        resolved_by,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}
