//! The table `webhook_endpoints`: where an account wants its events sent.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{Secret, Slice, slice::in_order_of};

/// Stands for every type of event, those to come included.
pub const EVERY_EVENT: &str = "*";

/// A webhook endpoint that is to be made.
#[derive(Debug, Clone)]
pub struct NewEndpoint {
    /// Where to send events, 1 to 2,048 characters that [`check_url`](crate::check_url) accepts.
    pub url: String,
    /// [`EVERY_EVENT`], or types of events: 1 to 100.
    pub enabled_events: Vec<String>,
    /// The version of the API that events are written in for it; `None`: that of the event. It
    /// never changes, or attempts would send other bytes.
    pub api_version: Option<String>,
    /// Whether the headers of Standard Webhooks are sent too.
    pub standard_webhooks: bool,
    /// For people.
    pub description: Option<String>,
    /// The account's own names.
    pub metadata: BTreeMap<String, String>,
}

/// A webhook endpoint. Its secret is read where something is signed, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Which one.
    pub id: Uuid,
    /// Where events are sent.
    pub url: String,
    /// [`EVERY_EVENT`], or types of events.
    pub enabled_events: Vec<String>,
    /// The version of the API that events are written in for it; `None`: that of the event.
    pub api_version: Option<String>,
    /// Whether the headers of Standard Webhooks are sent too.
    pub standard_webhooks: bool,
    /// For people.
    pub description: Option<String>,
    /// The account's own names.
    pub metadata: BTreeMap<String, String>,
    /// Whether nothing is sent there for now.
    pub disabled: bool,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

struct EndpointRow {
    id: Uuid,
    api_version: Option<String>,
    created_at: DateTime<Utc>,
    description: Option<String>,
    disabled: bool,
    enabled_events: Vec<String>,
    metadata: Json<Metadata>,
    standard_webhooks: bool,
    url: String,
}

/// The name that the statements have for it.
type Metadata = BTreeMap<String, String>;

impl From<EndpointRow> for Endpoint {
    fn from(row: EndpointRow) -> Self {
        Self {
            id: row.id,
            url: row.url,
            enabled_events: row.enabled_events,
            api_version: row.api_version,
            standard_webhooks: row.standard_webhooks,
            description: row.description,
            metadata: row.metadata.0,
            disabled: row.disabled,
            created_at: row.created_at,
        }
    }
}

/// `query_as!` with the columns of [`EndpointRow`] between the two parts of a statement:
/// `endpoint_rows!("SELECT", "FROM webhook_endpoints WHERE id = $1", id)` is
/// `query_as!(EndpointRow, "SELECT" + "id, api_version, …" + "FROM webhook_endpoints …", id)`. The
/// secret is not among them: it is read to be signed with, and for nothing else.
macro_rules! endpoint_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            EndpointRow,
            $before
                + r#"
                  id, api_version, created_at, description, disabled, enabled_events,
                  metadata AS "metadata: Json<Metadata>", standard_webhooks, url
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// How many endpoints the account has. Takes no lock. A limit on them needs one, that of the
/// account's row for example, taken in a statement before: an older snapshot can miss rows.
pub async fn count(connection: &mut PgConnection, account_id: Uuid) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "count!"
          FROM webhook_endpoints
         WHERE account_id = $1 AND deleted_at IS NULL
        "#,
        account_id,
    )
    .fetch_one(connection)
    .await
}

/// Writes an endpoint. Locks nothing that exists.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
    new: &NewEndpoint,
    secret: &Secret,
) -> sqlx::Result<Endpoint> {
    endpoint_rows!(
        "
        INSERT INTO webhook_endpoints
               (account_id, id, url, enabled_events, description, metadata, secret, api_version,
                standard_webhooks)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        RETURNING",
        "",
        account_id,
        id,
        new.url,
        &new.enabled_events,
        new.description,
        Json(&new.metadata) as _,
        secret.reveal(),
        new.api_version,
        new.standard_webhooks,
    )
    .fetch_one(tx)
    .await
    .map(Endpoint::from)
}

/// One endpoint of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
) -> sqlx::Result<Option<Endpoint>> {
    endpoint_rows!(
        "SELECT",
        "FROM webhook_endpoints WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL",
        account_id,
        id,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Endpoint::from))
}

/// One endpoint of the account. No other transaction changes or deletes it until this one ends;
/// events are written meanwhile.
pub async fn lock(
    tx: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
) -> sqlx::Result<Option<Endpoint>> {
    endpoint_rows!(
        "SELECT",
        "
          FROM webhook_endpoints
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
           FOR NO KEY UPDATE",
        account_id,
        id,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(Endpoint::from))
}

/// Writes what a client may change of an endpoint, as it is in `endpoint`. The caller holds its
/// lock, so that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: Uuid,
    endpoint: &Endpoint,
) -> sqlx::Result<Endpoint> {
    endpoint_rows!(
        "
        UPDATE webhook_endpoints
           SET url = $3, enabled_events = $4, description = $5, metadata = $6, disabled = $7,
               standard_webhooks = $8
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id,
        endpoint.id,
        endpoint.url,
        &endpoint.enabled_events,
        endpoint.description,
        Json(&endpoint.metadata) as _,
        endpoint.disabled,
        endpoint.standard_webhooks,
    )
    .fetch_one(tx)
    .await
    .map(Endpoint::from)
}

/// Marks an endpoint as deleted and erases its secret. `false`: the account has none with this id.
/// Locks its row, but not against events that are being written. A worker cancels afterwards what
/// is pending for it.
pub async fn delete(tx: &mut PgConnection, account_id: Uuid, id: Uuid) -> sqlx::Result<bool> {
    let deleted = sqlx::query!(
        "
        UPDATE webhook_endpoints
           SET deleted_at = now(), secret = NULL
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
        ",
        account_id,
        id,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected() == 1)
}

/// The account's endpoints. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: Uuid,
    slice: &Slice,
) -> sqlx::Result<Vec<Endpoint>> {
    let rows = in_order_of!(
        slice,
        connection,
        [endpoint_rows, "SELECT"],
        [
            "
                  FROM webhook_endpoints
                 WHERE account_id = $1
                   AND deleted_at IS NULL
                   AND id < $2
                   AND id > $3
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                 ORDER BY id ",
            " LIMIT $6"
        ],
        account_id,
        slice.below,
        slice.above,
        slice.created_from,
        slice.created_before,
        slice.rows,
    )?;
    Ok(rows.into_iter().map(Endpoint::from).collect())
}
