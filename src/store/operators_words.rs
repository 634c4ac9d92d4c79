//! The table `operators_words`.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::{ids::AccountId, operation::Word};

/// Stores a manual resolution of an operation, and the operation as it is. Fails if the operation
/// has an answer already, except for a declined refund that the person made elsewhere. Locks
/// nothing.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    operation_id: Uuid,
    word: Word,
    said_by: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        INSERT INTO operators_words (account_id, operation_id, word, said_by, operation)
        SELECT account_id, id, $3, $4, to_jsonb(operations)
          FROM operations
         WHERE account_id = $1 AND id = $2
           AND (settled_at IS NULL OR ($3 = 'done' AND verb = 'create_refund' AND outcome = 'declined'))
        RETURNING operation_id
        ",
        account_id.0,
        operation_id,
        word.as_str(),
        said_by,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}
