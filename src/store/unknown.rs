//! Values that this release doesn't know.

/// The error of a `column` whose value this release doesn't know: a newer one may have written it.
pub(super) fn unknown(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "the row has a value that this release doesn't know".into(),
    }
}

/// The value with this name in `column`.
pub(super) fn named<T>(
    column: &str,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, sqlx::Error> {
    parse(name).ok_or_else(|| unknown(column))
}

/// As [`named`]; `None` where the column is NULL.
pub(super) fn named_if_any<T>(
    column: &str,
    name: Option<&str>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, sqlx::Error> {
    name.map(|name| named(column, name, parse)).transpose()
}
