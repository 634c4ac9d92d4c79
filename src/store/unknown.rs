//! Values that this release doesn't know.

/// The error of a `column` whose value this release doesn't know: a newer one may have written it.
pub(super) fn unknown(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "the row has a value that this release doesn't know".into(),
    }
}
