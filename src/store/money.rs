//! Money in a row: an amount in minor units, and a currency's code.

use super::unknown::unknown;
use crate::domain::money::{Currency, Money};

/// Reads the two columns. Fails on a currency that this release doesn't know.
pub(super) fn money(minor_units: i64, currency: &str) -> Result<Money, sqlx::Error> {
    Ok(Money {
        minor_units,
        currency: Currency::of_stored(currency).ok_or_else(|| unknown("currency"))?,
    })
}
