//! Which part of a list is read.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The rows of a list that are read: by their ids, which are in the order of creation, and by when
/// they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Ids are less than this.
    pub below: Uuid,
    /// Ids are greater than this.
    pub above: Uuid,
    /// Written at this moment or after.
    pub created_from: Option<DateTime<Utc>>,
    /// Written before this moment.
    pub created_before: Option<DateTime<Utc>>,
    /// Whether the newest of these rows are read, the newest first, or the oldest, the oldest
    /// first.
    pub newest_first: bool,
    /// How many rows are read at most.
    pub rows: i64,
}

impl Slice {
    /// The newest rows of a list, at most so many.
    pub fn newest(rows: i64) -> Self {
        Self {
            below: Uuid::max(),
            above: Uuid::nil(),
            created_from: None,
            created_before: None,
            newest_first: true,
            rows,
        }
    }
}

/// Reads a slice of a list with one of two statements, as each walks an index in its order and
/// stops. The order stands between the parts of the statement:
/// `in_order_of!(slice, tx, [query_as, Row], ["SELECT … ORDER BY id ", " LIMIT $1"], 9)` is
/// `query_as!(Row, "SELECT … ORDER BY id " + "DESC" + " LIMIT $1", 9).fetch_all(tx).await`, and the
/// same with `"ASC"` where the oldest rows are read.
macro_rules! in_order_of {
    (
        $slice:expr, $connection:expr, [$($rows:ident)::+ $(, $leading:tt)*],
        [$first:tt $(, $part:tt)+], $($argument:expr),+ $(,)?
    ) => {
        match $slice.newest_first {
            true => {
                let rows = $($rows)::+!($($leading,)* $first $(+ "DESC" + $part)+, $($argument),+);
                rows.fetch_all($connection).await
            }
            false => {
                let rows = $($rows)::+!($($leading,)* $first $(+ "ASC" + $part)+, $($argument),+);
                rows.fetch_all($connection).await
            }
        }
    };
}
pub(crate) use in_order_of;
