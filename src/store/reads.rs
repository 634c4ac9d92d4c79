//! What the files of most tables read: rows by their ids, and pages of a list.
//!
//! `sqlx::query_as!` wants literals and not constants, so these are macros. `$rows` is the macro of
//! the table's file that puts its columns between two parts of a statement.

/// Makes `find` of a table, and `find_all` where it is named.
macro_rules! reads_by_id {
    ($rows:ident, $table:tt, $id:ident => $object:ident; find;) => {
        #[doc = concat!("One row of `", $table, "` that is the account's. Takes no lock.")]
        pub async fn find(
            connection: &mut PgConnection,
            account_id: AccountId,
            id: $id,
        ) -> Result<Option<$object>, sqlx::Error> {
            $rows!(
                "SELECT",
                "FROM " + $table + " WHERE account_id = $1 AND id = $2",
                account_id.0,
                id.0,
            )
            .fetch_optional(connection)
            .await?
            .map($object::try_from)
            .transpose()
        }
    };
    ($rows:ident, $table:tt, $id:ident => $object:ident; find; find_all;) => {
        reads_by_id!($rows, $table, $id => $object; find;);

        #[doc = concat!("Those rows of `", $table, "` that `ids` name and that are the account's.")]
        /// Takes no lock.
        pub async fn find_all(
            connection: &mut PgConnection,
            account_id: AccountId,
            ids: &[$id],
        ) -> Result<HashMap<$id, $object>, sqlx::Error> {
            let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
            let rows = $rows!(
                "SELECT",
                "FROM " + $table + " WHERE account_id = $1 AND id = ANY($2)",
                account_id.0,
                &ids,
            )
            .fetch_all(connection)
            .await?;
            rows.into_iter()
                .map(|row| $object::try_from(row).map(|object| (object.id, object)))
                .collect()
        }
    };
}

/// Makes a function that reads rows of a table, of whatever accounts, in one statement. `$filter`
/// is SQL that narrows them down, or locks them.
macro_rules! reads_all {
    (
        $(#[$about:meta])*
        $name:ident: $rows:ident, $table:tt, $id:ident => $object:ident;
        $filter:tt $(+ $more:tt)*
    ) => {
        $(#[$about])*
        pub async fn $name(
            tx: &mut PgConnection,
            ids: &[(AccountId, $id)],
        ) -> Result<Vec<(AccountId, $object)>, sqlx::Error> {
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let rows = $rows!(
                "SELECT",
                "FROM "
                    + $table
                    + " JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
                       USING (account_id, id) "
                    + $filter $(+ $more)*,
                &column(ids, |row| row.0.0),
                &column(ids, |row| row.1.0),
            )
            .fetch_all(tx)
            .await?;
            let rows = rows.into_iter().map(|row| {
                let account = AccountId(row.account_id);
                Ok((account, $object::try_from(row)?))
            });
            rows.collect()
        }
    };
}

/// Makes `lock_all` of a table: the rows that verbs read.
macro_rules! locks_by_id {
    ($rows:ident, $table:tt, $id:ident => $object:ident) => {
        reads_all! {
            #[doc = concat!("Reads and locks rows of `", $table, "`, in the order of their accounts and ids.")]
            /// One that is not there is no error. No other transaction changes them until this one
            /// ends.
            lock_all: $rows, $table, $id => $object;
            "ORDER BY account_id, id FOR NO KEY UPDATE OF " + $table
        }
    };
}

/// The rows of one page of an account's list, and of one more if there are more. `$filter` is SQL
/// that narrows the list down; its values are `$7` and so on.
///
/// Each filter and each order is a statement of its own, which walks an index of its own and stops.
/// With a filter as a parameter that may be NULL, PostgreSQL's plan for any values would walk the
/// primary key through everything that doesn't match.
macro_rules! page_rows {
    (
        $rows:ident, $table:tt, ($connection:ident, $account_id:ident, $page:ident),
        $filter:tt $(, $value:expr)* $(,)?
    ) => {{
        macro_rules! in_order {
            ($order:tt) => {
                $rows!(
                    "SELECT",
                    "
                      FROM "
                        + $table
                        + "
                     WHERE account_id = $1
                       AND id < $2
                       AND id > $3
                       AND ($4::timestamptz IS NULL OR created_at >= $4)
                       AND ($5::timestamptz IS NULL OR created_at < $5)
                       "
                        + $filter
                        + " ORDER BY id "
                        + $order
                        + " LIMIT $6",
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
        charge_once_pages::in_order_of!($page, in_order)
    }};
}

pub(super) use {locks_by_id, page_rows, reads_all, reads_by_id};
