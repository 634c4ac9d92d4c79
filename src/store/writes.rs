//! What the files of most tables write: new rows, changed ones, and those that are forgotten, all
//! of a table in one statement.
//!
//! `$row` is the struct that the table's file reads, and its `of` makes one of an object. As JSON
//! it has a member for each column. A statement names those that it writes: what the table has
//! beside them, a newer release's columns among them, stays as it is.

use serde::Serialize;

/// Makes `insert_all` of a table, which writes `$columns`.
macro_rules! inserts_rows {
    (
        $(#[$about:meta])*
        $row:ident of $object:ident in $table:tt: $columns:tt $(, $conflict:tt)? $(,)?
    ) => {
        #[doc = concat!("Writes new rows of `", $table, "`, all of them or none.")]
        $(#[$about])*
        pub async fn insert_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, &$object)],
        ) -> Result<(), sqlx::Error> {
            let new = column(rows, |row| $row::of(row.0, row.1));
            let written = sqlx::query!(
                "INSERT INTO " + $table + " (" + $columns + ")
                 SELECT " + $columns + "
                   FROM json_populate_recordset(NULL::" + $table + ", $1::text::json)
                " $(+ $conflict)?,
                json(&new)?,
            )
            .execute(tx)
            .await?;
            all_written(written.rows_affected(), rows.len())
        }
    };
}

/// Makes `update_all` of a table, which writes `$columns` as the `new` row has them, and in each
/// `$column` its `$value`, made of the `new` row and the `old` one.
macro_rules! updates_rows {
    (
        $(#[$about:meta])*
        $row:ident of $object:ident in $table:tt: $columns:tt $(, $column:tt = $value:tt)* $(,)?
    ) => {
        #[doc = concat!("Writes what may change of rows of `", $table, "`, each if it still has")]
        /// the version that was read. Fails if one has another: its lock was forgotten. Locks
        /// them.
        $(#[$about])*
        pub async fn update_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, &$object, i64)],
        ) -> Result<(), sqlx::Error> {
            let changed = rows.iter().map(|row| json(&$row::of(row.0, row.1)));
            let written = sqlx::query!(
                "UPDATE " + $table + " AS old
                    SET (" + $columns $(+ ", " + $column)* + ")
                      = (SELECT " + $columns $(+ ", " + $value)* + "
                           FROM json_populate_record(NULL::" + $table + ", changed.row::json)
                                AS new)
                   FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[])
                        AS changed (account_id, id, based_on, row)
                  WHERE old.account_id = changed.account_id AND old.id = changed.id
                    AND old.version = changed.based_on",
                &column(rows, |row| row.0.0),
                &column(rows, |row| row.1.id.0),
                &column(rows, |row| row.2),
                &changed.collect::<Result<Vec<_>, _>>()?,
            )
            .execute(tx)
            .await?;
            all_written(written.rows_affected(), rows.len())
        }
    };
}

/// Makes `delete_all` of a table, which deletes rows whose status is `$status`.
macro_rules! deletes_rows {
    ($id:ident in $table:tt: $status:tt) => {
        #[doc = concat!("Forgets ", $status, " rows of `", $table, "`, which the processor was")]
        #[doc = concat!("never asked for. Fails if one isn't ", $status, ". Locks them.")]
        pub async fn delete_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, $id)],
        ) -> Result<(), sqlx::Error> {
            let deleted = sqlx::query!(
                "DELETE FROM "
                    + $table
                    + " AS old
                  USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
                  WHERE old.account_id = gone.account_id AND old.id = gone.id
                    AND old.status = '"
                    + $status
                    + "'",
                &column(rows, |row| row.0.0),
                &column(rows, |row| row.1.0),
            )
            .execute(tx)
            .await?;
            all_written(deleted.rows_affected(), rows.len())
        }
    };
}

pub(super) use {deletes_rows, inserts_rows, updates_rows};

/// What a statement gets as JSON.
pub(super) fn json(rows: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(error.into()))
}
