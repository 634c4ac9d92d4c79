//! Many rows in one statement: their columns as arrays.

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
