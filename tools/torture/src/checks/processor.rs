//! What the processor's ledger says, beside ours.

use std::collections::{HashMap, HashSet};

use sqlx::{PgPool, Row};
use uuid::Uuid;

use crate::{history::History, ids};

/// The processor's own word for a second effect: a charge that was authorized twice, or one that we
/// have given up, so that its request made another one.
pub(crate) async fn double_charges(
    ours: &PgPool,
    processors: &PgPool,
    history: &History,
) -> Result<(), sqlx::Error> {
    let query = "SELECT charge FROM processor.operations
                  WHERE verb = 'authorize' AND code IS NULL GROUP BY charge HAVING count(*) > 1";
    for row in sqlx::query(query).fetch_all(processors).await? {
        let charge: String = row.get(0);
        let what = format!("the processor authorized {charge} twice");
        history.violate_about("G1", what, &charge);
    }
    // The processor first: our row is committed before it is asked, and stays.
    let query = "SELECT charge FROM processor.charges";
    let theirs: Vec<String> = sqlx::query_scalar(query).fetch_all(processors).await?;
    let query = "SELECT id FROM charges";
    let ours: Vec<Uuid> = sqlx::query_scalar(query).fetch_all(ours).await?;
    let ours: HashSet<String> = ours.iter().map(|id| ids::public("ch", *id)).collect();
    for charge in theirs {
        if !ours.contains(&charge) {
            let what = format!("the processor authorized {charge}, which we have given up");
            history.violate_about("G1", what, &charge);
        }
    }
    Ok(())
}

/// The processor's sums and ours, charge by charge. Ids differ in their spelling only.
pub(crate) async fn ledgers(
    ours: &PgPool,
    processors: &PgPool,
    history: &History,
) -> Result<(), sqlx::Error> {
    let query = "SELECT object ->> 'id', max((object ->> 'amount')::bigint) FROM events
                  WHERE type = 'charge.succeeded' GROUP BY 1";
    let rows = sqlx::query(query).fetch_all(ours).await?;
    let authorized: HashMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let query = "SELECT DISTINCT ON (object ->> 'id') object ->> 'id',
                        (object ->> 'amount_captured')::bigint,
                        (object ->> 'amount_refunded')::bigint
                   FROM events WHERE type LIKE 'charge.%' AND type <> 'charge.failed'
                  ORDER BY object ->> 'id', id DESC";
    let rows = sqlx::query(query).fetch_all(ours).await?;
    let mut sums: HashMap<String, [i64; 3]> = HashMap::new();
    for row in &rows {
        let id: String = row.get(0);
        if let Some(amount) = authorized.get(&id) {
            sums.insert(id, [*amount, row.get(1), row.get(2)]);
        }
    }
    let query = "SELECT charge, authorized, captured, released, refunded FROM processor.charges";
    for row in sqlx::query(query).fetch_all(processors).await? {
        let id: String = row.get(0);
        let (captured, released): (i64, i64) = (row.get(2), row.get(3));
        // Releasing a whole authorization is a refund here.
        let refunded = if captured == 0 { released } else { row.get(4) };
        let theirs = [row.get(1), captured, refunded];
        match sums.remove(&id) {
            Some(ours) if ours == theirs => {}
            ours => {
                let what = format!("{id}: the processor has {theirs:?}, and we have {ours:?}");
                history.violate_about("G5", what, &id);
            }
        }
    }
    for (id, ours) in sums {
        let what = format!("{id}: the processor has nothing, and we have {ours:?}");
        history.violate_about("G5", what, &id);
    }
    Ok(())
}
