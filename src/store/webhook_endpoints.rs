//! The table `webhook_endpoints`.

use charge_once_pages::{Listed, Page, in_order_of};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::domain::{
    ids::{AccountId, WebhookEndpointId},
    metadata::Metadata,
    webhook_endpoint::{NewWebhookEndpoint, WebhookEndpoint},
};
use crate::webhooks::Secret;

struct Row {
    id: Uuid,
    created_at: DateTime<Utc>,
    description: Option<String>,
    disabled: bool,
    enabled_events: Vec<String>,
    metadata: Json<Metadata>,
    url: String,
}

impl From<Row> for WebhookEndpoint {
    fn from(row: Row) -> Self {
        Self {
            id: WebhookEndpointId(row.id),
            url: row.url,
            enabled_events: row.enabled_events,
            description: row.description,
            metadata: row.metadata.0,
            disabled: row.disabled,
            created_at: row.created_at,
        }
    }
}

/// `query_as!` with the columns of [`Row`] between the two parts of a statement. The secret is not
/// among them: it is read to be signed with, and for nothing else.
macro_rules! endpoint_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            $before
                + r#"
                  id, created_at, description, disabled, enabled_events,
                  metadata AS "metadata: Json<Metadata>", url
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Makes creations of endpoints in one account take turns, until the transaction ends. Locks the
/// account, but not against charges, which only need it to stay.
pub async fn lock_creation(
    tx: &mut PgConnection,
    account_id: AccountId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE",
        account_id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// How many endpoints the account has. Takes no lock. Call it after [`lock_creation`], in its own
/// statement; an older snapshot can miss rows.
pub async fn count(
    connection: &mut PgConnection,
    account_id: AccountId,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "count!"
          FROM webhook_endpoints
         WHERE account_id = $1 AND deleted_at IS NULL
        "#,
        account_id.0,
    )
    .fetch_one(connection)
    .await
}

/// Writes an endpoint. Locks nothing that exists but the account, against its deletion.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: WebhookEndpointId,
    new: &NewWebhookEndpoint,
    secret: &Secret,
) -> Result<WebhookEndpoint, sqlx::Error> {
    endpoint_rows!(
        "
        INSERT INTO webhook_endpoints
               (account_id, id, url, enabled_events, description, metadata, secret)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        RETURNING",
        "",
        account_id.0,
        id.0,
        new.url,
        &new.enabled_events,
        new.description,
        Json(&new.metadata) as _,
        secret.reveal(),
    )
    .fetch_one(tx)
    .await
    .map(WebhookEndpoint::from)
}

/// One endpoint of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: WebhookEndpointId,
) -> Result<Option<WebhookEndpoint>, sqlx::Error> {
    endpoint_rows!(
        "SELECT",
        "FROM webhook_endpoints WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL",
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(WebhookEndpoint::from))
}

/// One endpoint of the account. No other transaction changes or deletes it until this one ends;
/// events are written meanwhile.
pub async fn lock(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: WebhookEndpointId,
) -> Result<Option<WebhookEndpoint>, sqlx::Error> {
    endpoint_rows!(
        "SELECT",
        "
          FROM webhook_endpoints
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
           FOR NO KEY UPDATE",
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(WebhookEndpoint::from))
}

/// Writes what a client may change of an endpoint, as it is in `endpoint`. The caller holds its
/// lock, so that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    endpoint: &WebhookEndpoint,
) -> Result<WebhookEndpoint, sqlx::Error> {
    endpoint_rows!(
        "
        UPDATE webhook_endpoints
           SET url = $3, enabled_events = $4, description = $5, metadata = $6, disabled = $7
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        endpoint.id.0,
        endpoint.url,
        &endpoint.enabled_events,
        endpoint.description,
        Json(&endpoint.metadata) as _,
        endpoint.disabled,
    )
    .fetch_one(tx)
    .await
    .map(WebhookEndpoint::from)
}

/// Marks an endpoint as deleted and erases its secret. `false`: the account has none with this id.
/// Locks its row, but not against events that are being written. A worker cancels afterwards what
/// is pending for it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: WebhookEndpointId,
) -> Result<bool, sqlx::Error> {
    let deleted = sqlx::query!(
        "
        UPDATE webhook_endpoints
           SET deleted_at = now(), secret = NULL
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
        ",
        account_id.0,
        id.0,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected() == 1)
}

/// One page of the account's endpoints; `None` if its cursor names none of them. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
) -> Result<Option<Listed<WebhookEndpoint>>, sqlx::Error> {
    if let Some(&cursor) = page.cursor.key()
        && find(&mut *connection, account_id, WebhookEndpointId(cursor))
            .await?
            .is_none()
    {
        return Ok(None);
    }
    macro_rules! rows {
        ($order:tt) => {
            endpoint_rows!(
                "SELECT",
                "
                  FROM webhook_endpoints
                 WHERE account_id = $1
                   AND deleted_at IS NULL
                   AND id < $2
                   AND id > $3
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                 ORDER BY id "
                    + $order
                    + " LIMIT $6",
                account_id.0,
                page.below(),
                page.above(),
                page.created_from,
                page.created_before,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        };
    }
    let rows = in_order_of!(page, rows);
    let endpoints = rows.into_iter().map(WebhookEndpoint::from).collect();
    Ok(Some(page.cut(endpoints)))
}
