//! The table `fault_plans`.

use super::rows::{Json, json, *};
use crate::domain::fault_plan::{FaultPlan, PLANS_MAX};

/// The account's plans, the oldest first. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
) -> Result<Vec<FaultPlan>, sqlx::Error> {
    let plans: Vec<Json<FaultPlan>> = sqlx::query_scalar!(
        r#"
        SELECT to_json(fault_plans) AS "row!: Json<_>"
          FROM fault_plans
         WHERE account_id = $1
         ORDER BY id
        "#,
        account_id.0,
    )
    .fetch_all(connection)
    .await?;
    Ok(plans.into_iter().map(|row| row.0).collect())
}

/// Writes a plan, and returns it as it is written; `None` if the account has as many as it may. Two
/// that race may make one too many, which does no harm. Locks nothing that exists.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    plan: &FaultPlan,
) -> Result<Option<FaultPlan>, sqlx::Error> {
    let written: Option<Json<FaultPlan>> = sqlx::query_scalar!(
        r#"
        INSERT INTO fault_plans (account_id, id, target, fault, seconds, first, every, percent, seed,
               acts_at_most)
        SELECT $1, id, target, fault, seconds, first, every, percent, seed, acts_at_most
          FROM json_populate_record(NULL::fault_plans, $2::text::json)
         WHERE (SELECT count(*) FROM fault_plans WHERE account_id = $1) < $3
        RETURNING to_json(fault_plans) AS "row!: Json<_>"
        "#,
        account_id.0,
        json(plan)?,
        PLANS_MAX,
    )
    .fetch_optional(tx)
    .await?;
    Ok(written.map(|row| row.0))
}

/// Deletes a plan; `false` if there is none. Locks it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: FaultPlanId,
) -> Result<bool, sqlx::Error> {
    let deleted = sqlx::query!(
        "DELETE FROM fault_plans WHERE account_id = $1 AND id = $2",
        account_id.0,
        id.0,
    );
    Ok(deleted.execute(tx).await?.rows_affected() > 0)
}

/// Counts one request or delivery for each plan of these targets, and returns the oldest one that
/// acts on it, whose `acted` grows too. Locks these plans, in the order of their ids, so that
/// those who count wait for each other.
pub async fn count(
    tx: &mut PgConnection,
    account_id: AccountId,
    targets: &[String],
) -> Result<Option<FaultPlan>, sqlx::Error> {
    let counted: Vec<Json<FaultPlan>> = sqlx::query_scalar!(
        r#"
        WITH locked AS MATERIALIZED (
            SELECT id
              FROM fault_plans
             WHERE account_id = $1 AND target = ANY($2) AND acted < acts_at_most
             ORDER BY id
               FOR UPDATE
        )
        UPDATE fault_plans
           SET matched = matched + 1
          FROM locked
         WHERE account_id = $1 AND fault_plans.id = locked.id
        RETURNING to_json(fault_plans) AS "row!: Json<_>"
        "#,
        account_id.0,
        targets,
    )
    .fetch_all(&mut *tx)
    .await?;
    let acting = counted.into_iter().map(|row| row.0).filter(FaultPlan::acts);
    let Some(plan) = acting.min_by_key(|plan| plan.id) else {
        return Ok(None);
    };
    sqlx::query!(
        "UPDATE fault_plans SET acted = acted + 1 WHERE account_id = $1 AND id = $2",
        account_id.0,
        plan.id.0,
    )
    .execute(tx)
    .await?;
    Ok(Some(plan))
}
