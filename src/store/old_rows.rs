//! Rows that are kept for a time and then removed, in batches.

use std::time::Duration;

use charge_once_service::request_log::old_requests;
use charge_once_strict_params::pages::id_after;
use chrono::Utc;
use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval};
use uuid::Uuid;

use crate::domain::ids::AccountId;

/// Rows that one batch looks at. The statements have the number a second time, so that their plans
/// are made for it.
pub(super) const BATCH_ROWS: usize = 500;

/// How old a row must be.
#[derive(Debug)]
pub struct Age {
    /// By the database's clock.
    pub kept: PgInterval,
    /// Greater than the id of every row that is so old: the part of an account's rows to look at.
    pub below: Uuid,
}

impl Age {
    /// Older than `kept`. Fails on a time that Postgres can't represent.
    pub fn above(kept: Duration) -> Result<Self, BoxDynError> {
        Ok(Self {
            below: id_after(Utc::now() - kept),
            kept: PgInterval::try_from(kept)?,
        })
    }
}

/// The oldest rows of one account, locked.
#[derive(Debug)]
pub struct OldRows {
    /// Those that may go now.
    pub ready: Vec<Uuid>,
    /// Where the next batch begins; `None` if there is none.
    pub next: Option<Uuid>,
}

impl OldRows {
    /// Of the request log, from behind `after`. They are locked, but for what another replica has.
    pub async fn of_request_log(
        tx: &mut PgConnection,
        account: AccountId,
        after: Uuid,
        age: &Age,
    ) -> Result<Self, sqlx::Error> {
        let found = old_requests(tx, account.0, after, age.below, &age.kept).await?;
        Ok(Self::of(found.into_iter().map(|id| (id, true)).collect()))
    }

    /// From ids in their order, and whether each is ready.
    pub fn of(found: Vec<(Uuid, bool)>) -> Self {
        let is_whole = found.len() == BATCH_ROWS;
        let last = found.last().map(|(id, _)| *id);
        let ready = found.into_iter().filter(|(_, is_ready)| *is_ready);
        Self {
            ready: ready.map(|(id, _)| id).collect(),
            next: last.filter(|_| is_whole),
        }
    }
}
