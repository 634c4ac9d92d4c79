//! What the files of most tables read and write.
//!
//! A row is read as JSON, with a member for each column, and is the entity: serde names the columns
//! that are called otherwise. Columns that an entity doesn't have, those of a newer release among
//! them, are not looked at, and no statement writes them.
//!
//! `sqlx::query!` wants literals and not constants, so these are macros.

use serde::Serialize;

/// What the files of the tables name, and these macros there.
pub(super) use {
    crate::domain::ids::*,
    charge_once_strict_params::pages::{Listed, Page},
    sqlx::{PgConnection, types::Json},
    std::collections::HashMap,
    uuid::Uuid,
};

/// An entity that was read, with the account that it belongs to.
pub(super) struct Found<N> {
    pub(super) account_id: Uuid,
    pub(super) row: Json<N>,
}

impl<N> Found<N> {
    pub(super) fn owned(self) -> (AccountId, N) {
        (AccountId(self.account_id), self.row.0)
    }
}

/// An entity as the row that is written of it.
#[derive(Serialize)]
struct WrittenRow<'a, N> {
    account_id: AccountId,
    #[serde(flatten)]
    entity: &'a N,
}

/// What a statement gets as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// An entity as a statement gets it.
pub(super) fn row(account_id: AccountId, entity: &impl Serialize) -> Result<String, sqlx::Error> {
    json(&WrittenRow { account_id, entity })
}

/// Entities as a statement gets them.
pub(super) fn rows<N: Serialize>(entities: &[(AccountId, &N)]) -> Result<String, sqlx::Error> {
    let row = |(account_id, entity): &(AccountId, _)| WrittenRow {
        account_id: *account_id,
        entity: *entity,
    };
    json(&entities.iter().map(row).collect::<Vec<WrittenRow<'_, N>>>())
}

/// Makes the functions of a table that are named: of its rows, which `$row` reads as JSON, and of
/// the columns that are written. An example is the table of charges:
///
/// ```text
/// table! {
///     Charge by ChargeId in "charges" as "to_json(charges)";
///     find();                             // one row of an account
///     find_all();                         // those of an account that some ids name
///     lock_all();                         // those of any accounts, and locks them
///     read as look_all("");               // the same, with SQL that narrows them down, or locks
///     insert_all("account_id, id, …");    // these columns; then, maybe, `ON CONFLICT …`
///     update_all("status, …", "captured" = "old.captured OR new.captured");
///     delete_all("pending");              // those with this status
/// }
/// ```
macro_rules! table {
    (
        $object:ident by $id:ident in $table:tt as $row:tt;
        $($(#[$about:meta])* $function:ident $(as $name:ident)? ($($given:tt)*);)+
    ) => {$(
        table! {
            @$function $($name)? $object by $id in $table as $row; ($($given)*)
            $(#[$about])*
        }
    )+};
    (@find $object:ident by $id:ident in $table:tt as $row:tt; () $(#[$about:meta])*) => {
        #[doc = concat!("One row of `", $table, "` that is the account's. Takes no lock.")]
        $(#[$about])*
        pub async fn find(
            connection: &mut PgConnection,
            account_id: AccountId,
            id: $id,
        ) -> Result<Option<$object>, sqlx::Error> {
            let found: Option<Json<$object>> = sqlx::query_scalar!(
                "SELECT " + $row + r#" AS "row!: Json<_>"
                   FROM "# + $table + "
                  WHERE account_id = $1 AND id = $2",
                account_id.0,
                id.0,
            )
            .fetch_optional(connection)
            .await?;
            Ok(found.map(|row| row.0))
        }
    };
    (@find_all $object:ident by $id:ident in $table:tt as $row:tt; () $(#[$about:meta])*) => {
        #[doc = concat!("Those rows of `", $table, "` that `ids` name and that are the account's.")]
        /// Takes no lock.
        $(#[$about])*
        pub async fn find_all(
            connection: &mut PgConnection,
            account_id: AccountId,
            ids: &[$id],
        ) -> Result<HashMap<$id, $object>, sqlx::Error> {
            let found: Vec<Json<$object>> = sqlx::query_scalar!(
                "SELECT " + $row + r#" AS "row!: Json<_>"
                   FROM "# + $table + "
                  WHERE account_id = $1 AND id = ANY($2)",
                account_id.0,
                &rows::column(ids, |id| id.0),
            )
            .fetch_all(connection)
            .await?;
            let objects = found.into_iter().map(|row| row.0);
            Ok(objects.map(|object| (object.id, object)).collect())
        }
    };
    (@lock_all $object:ident by $id:ident in $table:tt as $row:tt; () $(#[$about:meta])*) => {
        table! {
            @read lock_all $object by $id in $table as $row;
            ("ORDER BY account_id, id FOR NO KEY UPDATE OF " + $table)
            #[doc = concat!("Reads and locks rows of `", $table, "`, in the order of their accounts and ids.")]
            /// One that is not there is no error. No other transaction changes them until this one
            /// ends.
            $(#[$about])*
        }
    };
    (
        @read $name:ident $object:ident by $id:ident in $table:tt as $row:tt;
        ($filter:tt $(+ $more:tt)*) $(#[$about:meta])*
    ) => {
        $(#[$about])*
        pub async fn $name(
            tx: &mut PgConnection,
            ids: &[(AccountId, $id)],
        ) -> Result<Vec<(AccountId, $object)>, sqlx::Error> {
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let found: Vec<rows::Found<$object>> = sqlx::query_as!(
                rows::Found,
                "SELECT account_id, " + $row + r#" AS "row!: _"
                   FROM "# + $table + "
                   JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
                  USING (account_id, id) " + $filter $(+ $more)*,
                &rows::column(ids, |row| row.0.0),
                &rows::column(ids, |row| row.1.0),
            )
            .fetch_all(tx)
            .await?;
            Ok(found.into_iter().map(rows::Found::owned).collect())
        }
    };
    (
        @insert_all $object:ident by $id:ident in $table:tt as $row:tt;
        ($columns:tt $(, $conflict:literal)? $(,)?) $(#[$about:meta])*
    ) => {
        #[doc = concat!("Writes new rows of `", $table, "`, all of them or none.")]
        $(#[$about])*
        pub async fn insert_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, &$object)],
        ) -> Result<(), sqlx::Error> {
            if rows.is_empty() {
                return Ok(());
            }
            let written = sqlx::query!(
                "INSERT INTO " + $table + " (" + $columns + ")
                 SELECT " + $columns + "
                   FROM json_populate_recordset(NULL::" + $table + ", $1::text::json)
                " $(+ $conflict)?,
                rows::rows(rows)?,
            )
            .execute(tx)
            .await?;
            rows::all_written(written.rows_affected(), rows.len())
        }
    };
    // Writes `$columns` as the `new` row has them, and in each `$column` its `$value`, made of the
    // `new` row and the `old` one.
    (
        @update_all $object:ident by $id:ident in $table:tt as $row:tt;
        ($columns:tt $(, $column:literal = $value:literal)* $(,)?) $(#[$about:meta])*
    ) => {
        #[doc = concat!("Writes what may change of rows of `", $table, "`, each if it still has")]
        /// the version that was read. Fails if one has another: its lock was forgotten. Locks
        /// them.
        $(#[$about])*
        pub async fn update_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, &$object, i64)],
        ) -> Result<(), sqlx::Error> {
            if rows.is_empty() {
                return Ok(());
            }
            let changed = rows.iter().map(|row| rows::row(row.0, row.1));
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
                &rows::column(rows, |row| row.0.0),
                &rows::column(rows, |row| row.1.id.0),
                &rows::column(rows, |row| row.2),
                &changed.collect::<Result<Vec<_>, _>>()?,
            )
            .execute(tx)
            .await?;
            rows::all_written(written.rows_affected(), rows.len())
        }
    };
    (
        @delete_all $object:ident by $id:ident in $table:tt as $row:tt;
        ($status:tt) $(#[$about:meta])*
    ) => {
        #[doc = concat!("Forgets ", $status, " rows of `", $table, "`, which the processor was")]
        #[doc = concat!("never asked for. Fails if one isn't ", $status, ". Locks them.")]
        $(#[$about])*
        pub async fn delete_all(
            tx: &mut PgConnection,
            rows: &[(AccountId, $id)],
        ) -> Result<(), sqlx::Error> {
            if rows.is_empty() {
                return Ok(());
            }
            let deleted = sqlx::query!(
                "DELETE FROM "
                    + $table
                    + " AS old
                  USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
                  WHERE old.account_id = gone.account_id AND old.id = gone.id
                    AND old.status = $3",
                &rows::column(rows, |row| row.0.0),
                &rows::column(rows, |row| row.1.0),
                $status,
            )
            .execute(tx)
            .await?;
            rows::all_written(deleted.rows_affected(), rows.len())
        }
    };
}

/// One page of an account's list: `$list` is its statement but for a filter, its order and its end.
/// The match says which filter it has; its values are `$7` and so on. For example,
/// `match email { None => ""; Some(email) => "AND email = $7", email; }` makes four statements.
///
/// Each filter and each order is a statement of its own, which walks an index of its own and stops.
/// With a filter as a parameter that may be NULL, PostgreSQL's plan for any values would walk the
/// primary key through everything that doesn't match.
macro_rules! page {
    (
        $connection:ident, $account_id:ident, $page:ident, $list:tt,
        match $by:tt { $($given:pat => $filter:tt $(, $value:expr)*;)+ }
    ) => {
        match $by {
            $($given => if $page.is_turned() {
                page!(@"ASC" $connection, $account_id, $page, $list, $filter $(, $value)*)
            } else {
                page!(@"DESC" $connection, $account_id, $page, $list, $filter $(, $value)*)
            })+
        }
    };
    (
        @$order:tt $connection:ident, $account_id:ident, $page:ident, $list:tt, $filter:tt
        $(, $value:expr)*
    ) => {
        sqlx::query_scalar!(
            $list + " " + $filter + " ORDER BY id " + $order + " LIMIT $6",
            $account_id.0,
            $page.below(),
            $page.above(),
            $page.created_from,
            $page.created_before,
            $page.rows(),
            $($value),*
        )
        .fetch_all(&mut *$connection)
        .await?
    };
}

/// The page that these rows are.
pub(super) fn listed<N>(page: &Page, rows: Vec<Json<N>>) -> Listed<N> {
    page.cut(rows.into_iter().map(|row| row.0).collect())
}

pub(super) use {page, table};

/// One column of `rows`, in their order.
pub(super) fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// Fails unless as many rows were written as were to be.
pub(super) fn all_written(written: u64, expected: usize) -> Result<(), sqlx::Error> {
    match u64::try_from(expected) {
        Ok(expected) if written == expected => Ok(()),
        Ok(_) | Err(_) => Err(sqlx::Error::RowNotFound),
    }
}
