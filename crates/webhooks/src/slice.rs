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

/// Reads a slice of a list: `$rows!` is given the order, as SQL, and after it what else it takes.
/// The two orders are two statements: each walks an index and stops.
macro_rules! in_order_of {
    ($slice:expr, $rows:ident $(, $more:tt)*) => {
        match $slice.newest_first {
            true => $rows!("DESC" $(, $more)*),
            false => $rows!("ASC" $(, $more)*),
        }
    };
}
pub(crate) use in_order_of;
