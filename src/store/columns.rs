//! Many rows in one statement: their columns as arrays.

use chrono::{DateTime, Utc};

/// One column of `rows`, in their order.
pub(super) fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// When rows were written: the time of their transaction. Fails unless it was `expected` of them.
pub(super) fn all_written(
    written: &[DateTime<Utc>],
    expected: usize,
) -> Result<DateTime<Utc>, sqlx::Error> {
    match written.first() {
        Some(at) if written.len() == expected => Ok(*at),
        Some(_) | None => Err(sqlx::Error::RowNotFound),
    }
}
