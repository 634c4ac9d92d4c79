//! The tables that have rows of an account, and what becomes of each.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::MoveError;

/// Followed from the first copy on. Their primary keys begin with `account_id`, which is what lets
/// PostgreSQL filter updates and deletions by it.
pub(super) const PUBLISHED: [&str; 19] = [
    "charges",
    "checkout_steps",
    "checkouts",
    "customers",
    "events",
    "idempotency_keys",
    TOMBSTONES,
    "inventory",
    "manual_resolutions",
    "operations",
    "orders",
    "payment_intents",
    "payment_methods",
    "refunds",
    "request_counts",
    "request_log",
    "setup_intents",
    "webhook_deliveries",
    "webhook_replies",
];

/// Taken with the switch: what makes a database the account's home, and what workers look for.
/// While one home has these, the other one's workers find nothing to do. In an order in which none
/// refers to a later one.
pub(super) const HELD: [&str; 5] = [
    "accounts",
    "api_keys",
    "fault_plans",
    "idempotency_leases",
    "webhook_endpoints",
];

/// Those of them that stay at the old home until the new one is open.
pub(super) const IDENTITY: [&str; 2] = ["accounts", "api_keys"];

/// Of one database alone.
const LEFT_ALONE: [&str; 1] = ["moving"];

/// It has no column for the account: the first half of its ids is of the account.
const TOMBSTONES: &str = "idempotency_tombstones";

/// Rows that one statement deletes.
const BATCH_ROWS: i64 = 1000;

/// Parts that rows are compared in. Rows of a part that differs are compared one by one.
const PARTS: i32 = 4096;

/// Parts whose rows are compared at a time: no more than this share of them is in memory.
const PARTS_AT_ONCE: usize = 128;

/// Whether rows of the table may come late or be missing, as a log's may.
pub(super) fn is_log(table: &str) -> bool {
    matches!(table, "request_log" | "request_counts")
}

/// Whether retention removes old rows of the table, which a move doesn't stop.
pub(super) fn loses_old_rows(table: &str) -> bool {
    matches!(
        table,
        "events" | "operations" | "webhook_deliveries" | "webhook_replies"
    )
}

/// Which rows of a table are the account's. PostgreSQL wants constants in the filter of a
/// publication.
pub(super) async fn filter(
    connection: &mut PgConnection,
    table: &str,
    account: Uuid,
) -> Result<String, MoveError> {
    Ok(match table {
        "accounts" => format!("id = '{account}'"),
        TOMBSTONES => {
            let first = "SELECT (encode(substring(sha256(uuid_send($1)) FOR 8), 'hex') || repeat('0', 16))::uuid";
            let first: Uuid = sqlx::query_scalar(first)
                .bind(account)
                .fetch_one(connection)
                .await?;
            let last = Uuid::from_u128(first.as_u128() | u128::from(u64::MAX));
            format!("id >= '{first}' AND id <= '{last}'")
        }
        _ => format!("account_id = '{account}'"),
    })
}

/// The columns of all these tables, as text, to compare those of two databases.
pub(super) async fn columns(connection: &mut PgConnection) -> Result<Vec<String>, MoveError> {
    let columns = sqlx::query_scalar(
        "SELECT concat_ws(' ', table_schema, table_name, column_name, udt_name, is_nullable)
           FROM information_schema.columns
          WHERE table_schema = current_schema() AND table_name = ANY ($1)
          ORDER BY table_name, column_name COLLATE \"C\"",
    );
    let tables = [&PUBLISHED[..], &HELD].concat();
    Ok(columns.bind(tables).fetch_all(connection).await?)
}

/// Tables with rows of accounts of which this release doesn't know what becomes of them.
pub async fn unknown(connection: &mut PgConnection) -> Result<Vec<String>, MoveError> {
    let unknown = sqlx::query_scalar(
        "SELECT relname::text
           FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
          WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
            AND attname = 'account_id' AND NOT attisdropped AND relname <> ALL ($1::text[])
          ORDER BY relname",
    );
    let known = [&PUBLISHED[..], &HELD, &LEFT_ALONE].concat();
    Ok(unknown.bind(known).fetch_all(connection).await?)
}

/// How many rows of the account each published table has.
pub(super) async fn counts(
    connection: &mut PgConnection,
    account: Uuid,
) -> Result<Vec<(String, i64)>, MoveError> {
    let mut counts = Vec::new();
    for table in PUBLISHED {
        let filter = filter(connection, table, account).await?;
        let count = AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE {filter}"));
        let count = sqlx::query_scalar(count)
            .fetch_one(&mut *connection)
            .await?;
        counts.push((table.to_owned(), count));
    }
    Ok(counts)
}

/// Deletes the account's rows of each published table, in batches that commit one by one. No key to
/// another table is looked at: all of them go.
pub(super) async fn delete_all(
    connection: &mut PgConnection,
    account: Uuid,
) -> Result<u64, MoveError> {
    let mut deleted = 0;
    for table in PUBLISHED {
        let filter = filter(connection, table, account).await?;
        let delete = format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {filter} LIMIT {BATCH_ROWS}))"
        );
        loop {
            let mut tx = connection.begin().await?;
            let replica = "SET LOCAL session_replication_role = replica";
            sqlx::raw_sql(replica).execute(&mut *tx).await?;
            let delete = sqlx::raw_sql(AssertSqlSafe(delete.clone()));
            let rows = delete.execute(&mut *tx).await?.rows_affected();
            tx.commit().await?;
            if rows == 0 {
                break;
            }
            deleted += rows;
        }
    }
    Ok(deleted)
}

/// The database knows of no move of the account any more.
pub(super) async fn delete_state(
    connection: &mut PgConnection,
    account: Uuid,
) -> Result<(), MoveError> {
    let delete = sqlx::query("DELETE FROM moving WHERE account_id = $1");
    delete.bind(account).execute(connection).await?;
    Ok(())
}

/// A query of the account's rows in a table: `part`, `id` and `hash`. Two homes may have made a
/// webhook ready on their own, so whether it is doesn't count.
async fn hashed(
    connection: &mut PgConnection,
    table: &str,
    account: Uuid,
) -> Result<String, MoveError> {
    let (id, row): (String, String) = sqlx::query_as(
        "SELECT string_agg(format('%I::text', attname), ', ' ORDER BY attname) FILTER (WHERE attnum = ANY (indkey)),
                string_agg(format('%I', attname), ', ' ORDER BY attname) FILTER (WHERE attname <> 'ready')
           FROM pg_attribute JOIN pg_index ON indrelid = attrelid AND indisprimary
          WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped",
    )
    .bind(table)
    .fetch_one(&mut *connection)
    .await?;
    let filter = filter(connection, table, account).await?;
    Ok(format!(
        "SELECT (hashtext(id) & {}) AS part, id, hash, age FROM (
             SELECT concat_ws('/', {id}) AS id, hashtextextended(ROW({row})::text, 0) AS hash, age(xmin) AS age
               FROM {table} WHERE {filter}) AS hashed",
        PARTS - 1
    ))
}

/// How many of a table's rows are not at the new home as they are at the old one, although nothing
/// was written there since the switch. That all rows were there was counted at the switch.
pub(super) async fn differing(
    [source, target]: [&mut PgConnection; 2],
    table: &str,
    account: Uuid,
) -> Result<usize, MoveError> {
    let query = hashed(source, table, account).await?;
    let sums =
        format!("SELECT part, sum(hash)::text, count(*) FROM ({query}) AS parts GROUP BY part");
    let of_parts = async |connection: &mut PgConnection| {
        let sums = sqlx::query_as::<_, (i32, String, i64)>(AssertSqlSafe(sums.clone()));
        let sums = sums.fetch_all(connection).await?.into_iter();
        Ok::<HashMap<_, _>, sqlx::Error>(
            sums.map(|(part, sum, rows)| (part, (sum, rows))).collect(),
        )
    };
    // One after the other: each of them keeps a core busy.
    let ours = of_parts(&mut *source).await?;
    let theirs = of_parts(&mut *target).await?;
    let unequal = ours
        .iter()
        .filter(|(part, sum)| theirs.get(part) != Some(sum));
    let unequal: Vec<i32> = unequal.map(|(part, _)| *part).collect();
    let switch = "SELECT switched_by::xid::text FROM moving WHERE account_id = $1";
    let switch = sqlx::query_scalar(switch).bind(account);
    let switch: String = switch.fetch_one(&mut *target).await?;
    // Ages grow with each transaction, so both are of one statement.
    let rows = format!(
        "SELECT id, hash, age > age('{switch}'::xid) FROM ({query}) AS rows WHERE part = ANY ($1)"
    );
    let mut differing = 0;
    for parts in unequal.chunks(PARTS_AT_ONCE) {
        let theirs =
            sqlx::query_as::<_, (String, i64, bool)>(AssertSqlSafe(rows.clone())).bind(parts);
        let mut theirs = theirs.fetch(&mut *target);
        let mut untouched = HashMap::new();
        while let Some((id, hash, is_older)) = theirs.try_next().await? {
            if is_older {
                untouched.insert(id, hash);
            }
        }
        drop(theirs);
        let ours =
            sqlx::query_as::<_, (String, i64, bool)>(AssertSqlSafe(rows.clone())).bind(parts);
        let mut ours = ours.fetch(&mut *source);
        while let Some((id, hash, _)) = ours.try_next().await? {
            differing += usize::from(untouched.get(&id).is_some_and(|theirs| *theirs != hash));
        }
    }
    Ok(differing)
}
