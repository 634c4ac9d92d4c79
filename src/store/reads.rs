//! What the files of most tables read: rows by their ids, and pages of a list.
//!
//! `sqlx::query_as!` wants literals and not constants, so these are macros. `$rows` is the macro of
//! the table's file that puts its columns between two parts of a statement.

/// Makes `find` and `lock` of a table, and `find_all` where it is named.
macro_rules! reads_by_id {
    ($rows:ident, $table:tt, $id:ident => $object:ident; $(#[$about:meta])* lock;) => {
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

        /// Reads and locks it, so that no other transaction changes it until this one ends. Others
        /// may go on naming it.
        ///
        $(#[$about])*
        pub async fn lock(
            tx: &mut PgConnection,
            account_id: AccountId,
            id: $id,
        ) -> Result<Option<$object>, sqlx::Error> {
            $rows!(
                "SELECT",
                "FROM " + $table + " WHERE account_id = $1 AND id = $2 FOR NO KEY UPDATE",
                account_id.0,
                id.0,
            )
            .fetch_optional(tx)
            .await?
            .map($object::try_from)
            .transpose()
        }
    };
    (
        $rows:ident, $table:tt, $id:ident => $object:ident;
        $(#[$about:meta])* lock;
        find_all;
    ) => {
        reads_by_id!($rows, $table, $id => $object; $(#[$about])* lock;);

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

pub(super) use {page_rows, reads_by_id};
