#![doc = include_str!("../README.md")]

#[cfg(feature = "api-keys")]
pub mod api_keys;
#[cfg(feature = "database")]
pub mod database;
#[cfg(feature = "embedded")]
pub mod embedded;

/// Whether PostgreSQL answered with one of these codes.
#[cfg(any(feature = "database", feature = "embedded"))]
fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| codes.contains(&&*code))
}
