//! The SQL of API keys. What takes a key stores its hash.

use std::{collections::HashMap, fmt};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::api_keys::{
    accounts::ensure_account,
    shape::{KeyHash, KeyShape, hash, last4},
};

/// An account that a key speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Of the table `accounts`.
    pub id: Uuid,
    /// Whether it was made for a test, and ends by itself.
    pub is_test: bool,
    /// Which database has it, of those that [`ApiKeys`](crate::api_keys::ApiKeys) looks in: 0 is
    /// the first.
    pub database: usize,
    /// Whether it stays there.
    pub stay: Stay,
}

/// Whether an account stays in its database, of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stay {
    /// It does.
    #[default]
    Settled,
    /// It may be somewhere else at any moment, so the database is asked for each request.
    Moving,
    /// It may be somewhere else already.
    Leaving,
}

/// An API key as it is listed: its text is a line for people, and its JSON is for programs.
#[derive(Debug, Serialize)]
pub struct ListedKey {
    /// The name of the account that it speaks for.
    pub account: String,
    /// The key's last four characters.
    pub last4: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

impl fmt::Display for ListedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "…{}  {}  made {}  ",
            self.last4, self.account, self.created_at
        )?;
        match self.revoked_at {
            None => f.write_str("active"),
            Some(at) => write!(f, "revoked {at:.0}"),
        }
    }
}

/// The account that an unrevoked key speaks for, unless it is a test account that has ended. Takes
/// no lock.
pub async fn find_account(
    connection: &mut PgConnection,
    key: &str,
) -> Result<Option<Account>, sqlx::Error> {
    let found = find_accounts(connection, &[hash(key)]).await?;
    Ok(found.into_values().next())
}

/// The accounts that unrevoked keys speak for, of those with one of `hashes`. Test accounts that
/// have ended, by the database's clock, are none. Takes no lock.
pub async fn find_accounts(
    connection: &mut PgConnection,
    hashes: &[KeyHash],
) -> Result<HashMap<KeyHash, Account>, sqlx::Error> {
    let query = sqlx::query!(
        r#"
        SELECT key.hash AS "hash: [u8; 32]", account.id,
               (account.test_until IS NOT NULL) AS "is_test!"
          FROM api_keys AS key
          JOIN accounts AS account ON account.id = key.account_id
         WHERE key.hash = ANY($1) AND key.revoked_at IS NULL
           AND (account.test_until IS NULL OR account.test_until > now())
        "#,
        hashes as _,
    );
    let rows = query.fetch_all(connection).await?;
    let found = rows.into_iter().map(|row| {
        let account = Account {
            id: row.id,
            is_test: row.is_test,
            database: 0,
            stay: Stay::Settled,
        };
        (row.hash, account)
    });
    Ok(found.collect())
}

/// Makes a key for the account `name`, and the account if there is none, in a transaction of its
/// own. Returns the key: it can't be shown again.
pub async fn create_key(
    connection: &mut PgConnection,
    name: &str,
    shape: KeyShape,
) -> Result<String, sqlx::Error> {
    let key = shape.new_key();
    let mut tx = connection.begin().await?;
    let account = ensure_account(&mut tx, name).await?;
    // A random key is new.
    insert_key(&mut tx, account, &key).await?;
    tx.commit().await?;
    Ok(key)
}

/// Adds a key. `false`: it exists already, perhaps revoked, perhaps another account's. Locks
/// nothing that exists but the account, against its deletion.
pub async fn insert_key(
    connection: &mut PgConnection,
    account_id: Uuid,
    key: &str,
) -> Result<bool, sqlx::Error> {
    let hash = hash(key);
    let query = sqlx::query!(
        r#"
        INSERT INTO api_keys (hash, account_id, last4)
        VALUES ($1, $2, $3)
        ON CONFLICT (hash) DO NOTHING
        "#,
        hash.as_slice(),
        account_id,
        last4(key),
    );
    let inserted = query.execute(connection).await?;
    Ok(inserted.rows_affected() == 1)
}

/// Makes sure that `key`, and no other one of the variable that it comes from, is valid for the
/// account `name`, in a transaction of its own. Returns how many were revoked; `None`: the key is
/// another account's, or a person revoked it, and nothing was done. `public` came from there even
/// if no mark says so. Locks their rows.
pub async fn take_up_dev_key(
    connection: &mut PgConnection,
    name: &str,
    key: &str,
    public: &str,
) -> Result<Option<u64>, sqlx::Error> {
    let (current, public) = (hash(key), hash(public));
    let mut tx = connection.begin().await?;
    let account_id = ensure_account(&mut tx, name).await?;
    let query = sqlx::query!(
        r#"
        INSERT INTO api_keys (hash, account_id, last4, from_dev_api_key)
        VALUES ($1, $2, $3, true)
        ON CONFLICT (hash) DO UPDATE
           SET from_dev_api_key = true, revoked_at = NULL
         WHERE api_keys.account_id = EXCLUDED.account_id
           AND (api_keys.from_dev_api_key OR api_keys.revoked_at IS NULL)
        "#,
        current.as_slice(),
        account_id,
        last4(key),
    );
    let taken_up = query.execute(&mut *tx).await?;
    if taken_up.rows_affected() == 0 {
        tx.rollback().await?;
        return Ok(None);
    }
    let query = sqlx::query!(
        r#"
        UPDATE api_keys SET revoked_at = now(), from_dev_api_key = true
         WHERE account_id = $1 AND hash <> $2 AND revoked_at IS NULL
           AND (from_dev_api_key OR hash = $3)
        "#,
        account_id,
        current.as_slice(),
        public.as_slice(),
    );
    let revoked = query.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Some(revoked.rows_affected()))
}

/// All keys, oldest first, but those of closed test accounts. Takes no lock.
pub async fn list_keys(connection: &mut PgConnection) -> Result<Vec<ListedKey>, sqlx::Error> {
    let query = sqlx::query_as!(
        ListedKey,
        r#"
        SELECT accounts.name AS account, api_keys.last4, api_keys.created_at, api_keys.revoked_at
          FROM api_keys
          JOIN accounts ON accounts.id = api_keys.account_id
         WHERE accounts.closed_at IS NULL
         ORDER BY api_keys.created_at, api_keys.hash
        "#,
    );
    query.fetch_all(connection).await
}

/// Revokes a key for good: one, too, that [`take_up_dev_key`] had revoked until it is taken up
/// again. `false`: there is none, or it was revoked before. Locks its row.
pub async fn revoke_key(connection: &mut PgConnection, key: &str) -> Result<bool, sqlx::Error> {
    let hash = hash(key);
    let query = sqlx::query!(
        r#"
        UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), from_dev_api_key = false
         WHERE hash = $1 AND (revoked_at IS NULL OR from_dev_api_key)
        "#,
        hash.as_slice(),
    );
    let revoked = query.execute(connection).await?;
    Ok(revoked.rows_affected() == 1)
}
