//! What is kept of the requests with one key, beside its record.

use std::collections::HashSet;

use charge_once_service::request_log::{LoggedRequest, list_of_key};
use sqlx::PgConnection;

use crate::{
    domain::ids::{AccountId, RequestId},
    webhooks::events::{self, Happened},
};

/// The requests with a key, and what they changed.
pub struct KeyStory {
    /// The last ones that the log has, the oldest first.
    pub requests: Vec<LoggedRequest>,
    /// The oldest first.
    pub events: Vec<Happened>,
}

/// Whether a request has a record under a key, finished or not. Takes no lock.
pub async fn has_begun(
    connection: &mut PgConnection,
    account: AccountId,
    key: &str,
) -> Result<bool, sqlx::Error> {
    let record = sqlx::query!(
        "SELECT key FROM idempotency_keys WHERE account_id = $1 AND key = $2",
        account.0,
        key,
    );
    Ok(record.fetch_optional(connection).await?.is_some())
}

/// Those of these keys that were given up, by their records, which may be sealed. Takes no lock.
pub async fn given_up(
    connection: &mut PgConnection,
    account: AccountId,
    keys: &[String],
) -> Result<HashSet<String>, sqlx::Error> {
    let given_up = sqlx::query_scalar!(
        r#"
        SELECT asked.key AS "key!"
          FROM unnest($2::text[]) AS asked (key)
         -- As `sealed_key` computes it.
         CROSS JOIN LATERAL (
               SELECT ',sealed.' || encode(sha256(($1::uuid::text || ':' || asked.key)::bytea), 'hex')
               ) AS sealed (key)
          JOIN idempotency_keys AS record
            ON record.account_id = $1 AND record.key IN (asked.key, sealed.key)
               -- In place of a fingerprint.
               AND record.fingerprint = decode(repeat('00', 32), 'hex')
        "#,
        account.0,
        keys,
    );
    Ok(given_up.fetch_all(connection).await?.into_iter().collect())
}

/// The accounts that have a record under a key, or a request with it in the log, or of which it is
/// remembered: an operator asks who does not know whose key it is. At most 100; closed accounts are
/// left out. Takes no lock.
pub async fn find_accounts(
    connection: &mut PgConnection,
    key: &str,
) -> Result<Vec<AccountId>, sqlx::Error> {
    let accounts = sqlx::query_scalar!(
        "
        SELECT accounts.id
          FROM accounts
         -- As `sealed_key` computes it.
         CROSS JOIN LATERAL (
               SELECT ',sealed.' || encode(sha256((accounts.id::text || ':' || $1)::bytea), 'hex')
               ) AS sealed (key)
          -- With a limit, each is looked up: a join of the tables may read all records.
         CROSS JOIN LATERAL (
               (SELECT 1
                  FROM idempotency_keys
                 WHERE account_id = accounts.id AND key IN ($1, sealed.key)
                 LIMIT 1)
                UNION ALL
               (SELECT 1
                  FROM request_log
                 WHERE account_id = accounts.id AND idempotency_key IN ($1, sealed.key)
                 LIMIT 1)
                UNION ALL
               (SELECT 1
                  FROM idempotency_tombstones
                 WHERE id = idempotency_tombstone_id(accounts.id, $1)
                 LIMIT 1)
                LIMIT 1) AS used
         WHERE accounts.closed_at IS NULL
         ORDER BY accounts.id
         LIMIT 100
        ",
        key,
    );
    let found = accounts.fetch_all(connection).await?;
    Ok(found.into_iter().map(AccountId).collect())
}

/// Reads the story of a key: at most `requests_max` requests, and the events of the one that
/// executed. That is `executed`, a `req_…`, or the first one that is left of the log. The key is
/// looked for as it is, and as the hash that stands for it where its reply is sealed. Takes no
/// lock.
pub async fn read(
    connection: &mut PgConnection,
    account: AccountId,
    keys: &[String; 2],
    executed: Option<&str>,
    requests_max: i64,
) -> Result<KeyStory, sqlx::Error> {
    let mut requests = Vec::new();
    for key in keys {
        requests.extend(list_of_key(connection, account.0, key, requests_max).await?);
    }
    requests.sort_by_key(|request| request.id);
    let began = executed
        .and_then(RequestId::parse)
        .or_else(|| requests.first().map(|first| RequestId(first.id)));
    let mut events = Vec::new();
    if let Some(id) = began {
        for key in keys {
            events.extend(events::list_of_key(connection, account.0, id.0, key).await?);
        }
    }
    Ok(KeyStory { requests, events })
}
