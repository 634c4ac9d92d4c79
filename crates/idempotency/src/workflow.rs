//! Requests that belong together: their client names a workflow, and can read how far it came.
//!
//! Promise: a request is linked by the transaction that claims its key, so the list of a workflow
//! has every outcome that its client was told, or would have been. Like a look at one key, it
//! describes one moment: what isn't in it may still arrive.

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{
    Failure, Idempotency, IdempotencyKey, KnownOutcome, KnownRequest, acknowledged::commit,
    inspect::leases_of, seal::SEALED,
};

/// Everything that is read of a workflow is of one moment.
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// The client's name for requests that belong together. It is written like a key and, like a key,
/// must not reach a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowName(IdempotencyKey);

/// A header value, or a name in a look-up, that names no workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "The name of a workflow is 1 to 255 bytes of visible ASCII without spaces, quotes, backslashes \
     and commas, bare or as one quoted string without parameters."
)]
pub struct WorkflowNameError;

impl WorkflowName {
    /// Reads a header value in the form of a key ([`IdempotencyKey::parse`]).
    pub fn parse(value: &[u8]) -> Result<Self, WorkflowNameError> {
        IdempotencyKey::parse_form(value)
            .map(Self)
            .map_err(|_| WorkflowNameError)
    }

    /// The name without quotes.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// What a request of the workflow is labeled with:
    /// [`Request::label`](crate::Request::label).
    pub fn to_label(&self) -> String {
        self.as_str().to_owned()
    }
}

/// One request of a workflow.
#[derive(Debug)]
pub struct Step {
    /// Its key.
    pub key: String,
    /// What was asked for.
    pub request: KnownRequest,
}

/// A part of a workflow.
#[derive(Debug)]
pub struct Steps {
    /// In the order of their first use; what isn't in the database yet comes last.
    pub steps: Vec<Step>,
    /// Whether more come after these.
    pub has_more: bool,
}

impl Idempotency {
    /// At most `limit` requests of a workflow: the first ones, or those that come after the key
    /// `after`. `None`: that is no key of the workflow.
    ///
    /// A request in another process shows itself once something of it is committed.
    pub async fn workflow(
        &self,
        account_id: Uuid,
        name: WorkflowName,
        after: Option<IdempotencyKey>,
        limit: usize,
    ) -> Result<Option<Steps>, Failure> {
        // Before the database is read: what commits in between is in both, and never in neither.
        let mut in_flight = self.requests_in_flight(account_id);
        in_flight.retain(|request| request.label.as_deref() == Some(name.as_str()));
        let in_flight = in_flight.iter().map(|request| Step {
            key: request.stored_key(),
            request: KnownRequest::of(request),
        });
        let (this, in_flight) = (self.clone(), in_flight.collect());
        self.look(async move {
            let mut connection = this.pool.acquire(account_id).await?;
            let mut tx = connection.begin_with(BEGIN_SNAPSHOT).await?;
            let name = name.as_str();
            let after = after.as_ref().map(IdempotencyKey::as_str);
            let steps = read(&mut tx, account_id, name, after, limit, in_flight).await?;
            commit(tx).await?;
            connection.release();
            Ok(steps)
        })
        .await
    }
}

/// Reads committed steps, and puts those that are only `in_flight` behind the last of them.
async fn read(
    tx: &mut PgConnection,
    account_id: Uuid,
    name: &str,
    after: Option<&str>,
    limit: usize,
    mut in_flight: Vec<Step>,
) -> Result<Option<Steps>, sqlx::Error> {
    // A retry of what is recorded is in flight for a moment, too, whatever workflow it names.
    let recorded = recorded(tx, account_id, &in_flight).await?;
    in_flight.retain(|step| !recorded.contains(&step.key));

    let here = after.and_then(|key| in_flight.iter().position(|step| step.key == key));
    let mut steps = match (after, here) {
        (None, _) => committed(tx, account_id, name, None, limit).await?,
        (Some(_), Some(place)) => {
            in_flight.drain(..=place);
            Vec::new()
        }
        (Some(key), None) => match first_use(tx, account_id, name, key).await? {
            Some(at) => committed(tx, account_id, name, Some((at, key)), limit).await?,
            None => return Ok(None),
        },
    };
    // A request that is only in flight has no place yet. A page that starts after it would miss
    // what is recorded until then. So these requests begin on a page that has room for all of them,
    // or is empty.
    let fits = steps.is_empty() || steps.len() + in_flight.len() <= limit;
    let has_more = if steps.len() <= limit && fits {
        steps.extend(in_flight);
        steps.len() > limit
    } else {
        steps.len() > limit || !in_flight.is_empty()
    };
    steps.truncate(limit);
    Ok(Some(Steps { steps, has_more }))
}

/// Which of these keys have a record that counts.
async fn recorded(
    tx: &mut PgConnection,
    account_id: Uuid,
    steps: &[Step],
) -> Result<Vec<String>, sqlx::Error> {
    let keys: Vec<_> = steps.iter().map(|step| step.key.clone()).collect();
    if keys.is_empty() {
        return Ok(keys);
    }
    sqlx::query_scalar!(
        "
        SELECT key
          FROM idempotency_keys
         WHERE account_id = $1 AND key = ANY ($2) AND (status IS NULL OR expires_at > now())
        ",
        account_id,
        &keys,
    )
    .fetch_all(tx)
    .await
}

/// Where a key stands in its workflow. It still stands there when its record has expired, so that
/// the pages of a workflow that is aging lead on.
async fn first_use(
    tx: &mut PgConnection,
    account_id: Uuid,
    name: &str,
    key: &str,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        "
        SELECT created_at
          FROM idempotency_keys
         WHERE account_id = $1 AND label = $2 AND key = $3
        ",
        account_id,
        name,
        key,
    )
    .fetch_optional(tx)
    .await
}

/// Committed steps after a place, and one more than `limit` if there are more. Without an outcome
/// are those with an effect outside the database.
async fn committed(
    tx: &mut PgConnection,
    account_id: Uuid,
    name: &str,
    after: Option<(DateTime<Utc>, &str)>,
    limit: usize,
) -> Result<Vec<Step>, sqlx::Error> {
    let (created_at, key) = after.unzip();
    let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let found = sqlx::query!(
        "
        SELECT key, request_id, method, path, fingerprint, label, created_at, expires_at, status,
               resource_id
          FROM idempotency_keys
         WHERE account_id = $1 AND label = $2 AND (status IS NULL OR expires_at > now())
           AND (created_at, key) > (coalesce($3, '-infinity'::timestamptz), coalesce($4, ''))
         ORDER BY created_at, key
         LIMIT $5
        ",
        account_id,
        name,
        created_at,
        key,
        rows,
    )
    .fetch_all(&mut *tx)
    .await?;
    let steps = found.into_iter().map(|found| Step {
        request: KnownRequest {
            method: found.method,
            path: found.path,
            request_id: found.request_id,
            fingerprint: found.fingerprint,
            label: found.label,
            resource_id: found.resource_id,
            created_at: Some(found.created_at),
            outcome: found.status.map(|status| KnownOutcome {
                status: status.unsigned_abs(),
                expires_at: found.expires_at,
                is_sealed: found.key.starts_with(SEALED),
            }),
            in_doubt: false,
        },
        key: found.key,
    });
    let mut steps: Vec<_> = steps.collect();
    let unfinished = steps.iter().filter(|step| step.request.outcome.is_none());
    let unfinished: Vec<_> = unfinished.map(|step| step.key.clone()).collect();
    if !unfinished.is_empty() {
        let leases = leases_of(tx, account_id, &unfinished).await?;
        for step in &mut steps {
            let mut leases = leases.iter();
            step.request.in_doubt = leases.any(|lease| lease.in_doubt && lease.key == step.key);
        }
    }
    Ok(steps)
}
