//! Add-on: a client gives a key up, so that no request with it is executed later.
//!
//! Promise: of a request and of the one that gives up its key, one wins, by the unique index. What
//! was executed is told, and nothing is undone.

use std::{sync::Arc, time::Duration};

use sqlx::{PgConnection, postgres::types::PgInterval, types::Json};

use crate::{
    Failure, Record, Rejection, Reply, Request,
    claim::{self, Found},
    fingerprint::{NO_FINGERPRINT, OF_ANY_REQUEST},
    inspect::leases_of,
    reply::status,
};

/// What became of a key that was to be given up.
#[derive(Debug)]
pub enum Abandoned {
    /// No request with it is executed any more: the reply is its outcome. Or it was given up
    /// before.
    Now(Arc<Record>),
    /// A request with it ended before, with this outcome.
    Completed(Arc<Record>),
    /// A request with it is at work, in several transactions.
    Unfinished {
        /// It may have been executed, and its answer is not known.
        in_doubt: bool,
        /// How long until a reconciler continues it.
        continued_in: Option<Duration>,
    },
}

/// Gives a key up for `retention`: each request that comes with it, whatever it asks for, gets
/// `reply`. `request` is the one that gives up, with the key that it gives up; its fingerprint is
/// not kept. Runs in the caller's transaction, and waits for a request with the key that is in its
/// own, as for any locked row.
pub async fn abandon(
    tx: &mut PgConnection,
    request: &Request,
    reply: Reply,
    retention: Duration,
) -> Result<Abandoned, Rejection> {
    let retention = PgInterval::try_from(retention).map_err(Failure::internal)?;
    // A record that has expired is as none: it is overwritten under its row's lock.
    let written = sqlx::query!(
        r#"
        INSERT INTO idempotency_keys AS record
               (account_id, key, fingerprint_version, fingerprint, method, path, request_id, label,
                created_at, expires_at, status, headers, body)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now(), now() + $9::interval, $10, $11, $12)
        ON CONFLICT (account_id, key) DO UPDATE
           SET fingerprint_version = $3, fingerprint = $4, method = $5, path = $6, request_id = $7,
               label = $8, created_at = now(), expires_at = now() + $9::interval, status = $10,
               headers = $11, body = $12, resource_id = NULL
         WHERE record.status IS NOT NULL AND record.expires_at <= now()
        "#,
        request.account_id,
        request.key.as_str(),
        OF_ANY_REQUEST,
        NO_FINGERPRINT.as_slice(),
        request.method,
        request.path,
        request.request_id,
        request.label,
        retention,
        status(&reply),
        Json(&reply.headers) as _,
        &reply.body,
    );
    let is_written = written.execute(&mut *tx).await?.rows_affected() == 1;
    match claim::read(tx, request).await? {
        Some(Found::Completed(record)) if is_written || record.is_of_any_request() => {
            Ok(Abandoned::Now(record))
        }
        Some(Found::Completed(record)) => Ok(Abandoned::Completed(record)),
        Some(Found::Unfinished(_)) => {
            let keys = [request.key.as_str().to_owned()];
            let leases = leases_of(tx, request.account_id, &keys).await?;
            let lease = leases.first();
            Ok(Abandoned::Unfinished {
                in_doubt: lease.is_some_and(|lease| lease.in_doubt),
                continued_in: lease.map(|lease| lease.continued_in),
            })
        }
        // The conflict locks the row until the end of this transaction.
        Some(Found::Expired) | None => {
            Err(Failure::internal("the record of the key is gone while it is locked").into())
        }
    }
}
