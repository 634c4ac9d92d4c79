//! Accounts and the API keys that speak for them. Keys are stored as hashes only.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

/// An API key as it is listed.
#[derive(Debug)]
pub struct ApiKey {
    /// The account it speaks for.
    pub account: String,
    /// The key's last four characters.
    pub last4: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// What is stored of an API key.
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The account that an unrevoked key speaks for. Takes no lock.
pub async fn find_account(
    connection: &mut PgConnection,
    hash: &[u8],
) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT account_id FROM api_keys WHERE hash = $1 AND revoked_at IS NULL",
        hash,
    )
    .fetch_optional(connection)
    .await
}

/// The accounts that unrevoked keys speak for, of those with one of `hashes`. Takes no lock.
pub async fn find_accounts(
    connection: &mut PgConnection,
    hashes: &[[u8; 32]],
) -> Result<HashMap<[u8; 32], Uuid>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT hash AS "hash: [u8; 32]", account_id
          FROM api_keys
         WHERE hash = ANY($1) AND revoked_at IS NULL
        "#,
        hashes as _,
    )
    .fetch_all(connection)
    .await?;
    let rows = rows.into_iter();
    Ok(rows.map(|row| (row.hash, row.account_id)).collect())
}

/// Adds an account, unless there is one with this name. Locks nothing that exists: charges in
/// flight hold their account's row.
pub async fn insert_account(
    connection: &mut PgConnection,
    new_id: Uuid,
    name: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO accounts (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        new_id,
        name,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The account with this name. Takes no lock.
pub async fn find_account_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Uuid, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM accounts WHERE name = $1", name)
        .fetch_one(connection)
        .await
}

/// The next accounts behind `after`, in the order of their ids, at most 100. Takes no lock.
pub async fn list_accounts(
    connection: &mut PgConnection,
    after: Uuid,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT id FROM accounts WHERE id > $1 ORDER BY id LIMIT 100",
        after,
    )
    .fetch_all(connection)
    .await
}

/// Adds a key. `false`: it exists already, perhaps revoked, perhaps another account's. Locks
/// nothing that exists but the account, against its deletion.
pub async fn insert(
    connection: &mut PgConnection,
    hash: &[u8],
    account_id: Uuid,
    last4: &str,
) -> Result<bool, sqlx::Error> {
    let inserted = sqlx::query!(
        r#"
        INSERT INTO api_keys (hash, account_id, last4)
        VALUES ($1, $2, $3)
        ON CONFLICT (hash) DO NOTHING
        "#,
        hash,
        account_id,
        last4,
    )
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

/// All keys, oldest first. Takes no lock.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<ApiKey>, sqlx::Error> {
    sqlx::query_as!(
        ApiKey,
        r#"
        SELECT accounts.name AS account, api_keys.last4, api_keys.created_at, api_keys.revoked_at
          FROM api_keys
          JOIN accounts ON accounts.id = api_keys.account_id
         ORDER BY api_keys.created_at, api_keys.hash
        "#,
    )
    .fetch_all(connection)
    .await
}

/// Revokes a key. `false`: there is none, or it was revoked before. Locks its row.
pub async fn revoke(connection: &mut PgConnection, hash: &[u8]) -> Result<bool, sqlx::Error> {
    let revoked = sqlx::query!(
        "UPDATE api_keys SET revoked_at = now() WHERE hash = $1 AND revoked_at IS NULL",
        hash,
    )
    .execute(connection)
    .await?;
    Ok(revoked.rows_affected() == 1)
}
