//! Accounts and the API keys that speak for them. Keys are stored as hashes only.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::{account::Account, ids::AccountId};

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

/// The account that an unrevoked key speaks for, unless it is a test account that has ended. Takes
/// no lock.
pub async fn find_account(
    connection: &mut PgConnection,
    hash: &[u8; 32],
) -> Result<Option<Account>, sqlx::Error> {
    let mut found = find_accounts(connection, &[*hash]).await?;
    Ok(found.remove(hash))
}

/// The accounts that unrevoked keys speak for, of those with one of `hashes`. Test accounts that
/// have ended, by the database's clock, are none. Takes no lock.
pub async fn find_accounts(
    connection: &mut PgConnection,
    hashes: &[[u8; 32]],
) -> Result<HashMap<[u8; 32], Account>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT key.hash AS "hash: [u8; 32]", account.id,
               (account.test_until IS NOT NULL) AS "is_test!"
          FROM api_keys AS key
          JOIN accounts AS account ON account.id = key.account_id
         WHERE key.hash = ANY($1) AND key.revoked_at IS NULL
           AND (account.test_until IS NULL OR account.test_until > now())
        "#,
        hashes as _,
    )
    .fetch_all(connection)
    .await?;
    let found = rows.into_iter().map(|row| {
        let account = Account {
            id: AccountId(row.id),
            is_test: row.is_test,
        };
        (row.hash, account)
    });
    Ok(found.collect())
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

/// The names of these accounts, by their ids. Takes no lock.
pub async fn names_of_accounts(
    connection: &mut PgConnection,
    accounts: &[Uuid],
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT id, name FROM accounts WHERE id = ANY ($1)",
        accounts
    );
    let found = rows.fetch_all(connection).await?.into_iter();
    Ok(found.map(|row| (row.id, row.name)).collect())
}

/// The next accounts behind `after` that are not closed, in the order of their ids, at most 100.
/// Takes no lock.
pub async fn list_accounts(
    connection: &mut PgConnection,
    after: Uuid,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT id FROM accounts WHERE id > $1 AND closed_at IS NULL ORDER BY id LIMIT 100",
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

/// Makes a key the one of DEV_API_KEY: adds it, or takes up the account's own again. `false`: it is
/// another account's, or a person revoked it. Locks its row.
pub async fn take_up_dev_key(
    connection: &mut PgConnection,
    hash: &[u8],
    account_id: Uuid,
    last4: &str,
) -> Result<bool, sqlx::Error> {
    let taken_up = sqlx::query!(
        r#"
        INSERT INTO api_keys (hash, account_id, last4, from_dev_api_key)
        VALUES ($1, $2, $3, true)
        ON CONFLICT (hash) DO UPDATE
           SET from_dev_api_key = true, revoked_at = NULL
         WHERE api_keys.account_id = EXCLUDED.account_id
           AND (api_keys.from_dev_api_key OR api_keys.revoked_at IS NULL)
        "#,
        hash,
        account_id,
        last4,
    )
    .execute(connection)
    .await?;
    Ok(taken_up.rows_affected() == 1)
}

/// Revokes the account's keys that came from DEV_API_KEY, but the `current` one. `public` came from
/// there even if no mark says so. Returns how many. Locks their rows.
pub async fn revoke_former_dev_keys(
    connection: &mut PgConnection,
    account_id: Uuid,
    current: &[u8],
    public: &[u8],
) -> Result<u64, sqlx::Error> {
    let revoked = sqlx::query!(
        r#"
        UPDATE api_keys SET revoked_at = now(), from_dev_api_key = true
         WHERE account_id = $1 AND hash <> $2 AND revoked_at IS NULL
           AND (from_dev_api_key OR hash = $3)
        "#,
        account_id,
        current,
        public,
    )
    .execute(connection)
    .await?;
    Ok(revoked.rows_affected())
}

/// All keys, oldest first, but those of closed test accounts. Takes no lock.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<ApiKey>, sqlx::Error> {
    sqlx::query_as!(
        ApiKey,
        r#"
        SELECT accounts.name AS account, api_keys.last4, api_keys.created_at, api_keys.revoked_at
          FROM api_keys
          JOIN accounts ON accounts.id = api_keys.account_id
         WHERE accounts.closed_at IS NULL
         ORDER BY api_keys.created_at, api_keys.hash
        "#,
    )
    .fetch_all(connection)
    .await
}

/// Revokes a key for good: one, too, that the next value of `DEV_API_KEY` had revoked until it is
/// set again. `false`: there is none, or it was revoked before. Locks its row.
pub async fn revoke(connection: &mut PgConnection, hash: &[u8]) -> Result<bool, sqlx::Error> {
    let revoked = sqlx::query!(
        r#"
        UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), from_dev_api_key = false
         WHERE hash = $1 AND (revoked_at IS NULL OR from_dev_api_key)
        "#,
        hash,
    )
    .execute(connection)
    .await?;
    Ok(revoked.rows_affected() == 1)
}
