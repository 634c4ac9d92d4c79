//! What the database holds of the keys that a violation is about.

use std::fmt::Write;

use crate::{
    cluster::DATABASE,
    history::{Violation, lock},
    report::{SHOWN_KEYS_MAX, SHOWN_MAX},
    world::World,
};

/// The rows of the keys that the first violations are about, as text for the report.
pub(crate) async fn rows(world: &World, violations: &[Violation]) -> Vec<String> {
    let clusters = world.clusters();
    let pools: Vec<_> = clusters.iter().map(|one| one.pool(DATABASE)).collect();
    let mut all = Vec::new();
    for violation in violations.iter().take(SHOWN_MAX) {
        let mut text = String::new();
        for key in violation.keys.iter().take(SHOWN_KEYS_MAX) {
            let (account, name) = {
                let key = lock(key);
                let account = world.accounts.get(key.account);
                (account.map(|account| account.name.clone()), key.key.clone())
            };
            for (pool, query) in pools
                .iter()
                .flat_map(|pool| EVIDENCE.map(|query| (pool, query)))
            {
                let rows = sqlx::query_scalar::<_, String>(query);
                let rows = rows.bind(&account).bind(&name).fetch_all(pool).await;
                for row in rows.unwrap_or_default() {
                    let _ = writeln!(text, "  row: {row}");
                }
            }
        }
        all.push(text);
    }
    all
}

/// What the database holds of a key: its record, its lease, its operations and its events.
const EVIDENCE: [&str; 4] = [
    "SELECT to_jsonb(record)::text FROM idempotency_keys AS record
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(lease)::text FROM idempotency_leases AS lease
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(operation)::text FROM operations AS operation
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2",
    "SELECT to_jsonb(event)::text FROM events AS event
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2
      ORDER BY id",
];
