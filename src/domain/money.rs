//! Amounts and currencies.

use std::fmt;

/// The largest amount of a charge or an order, in minor units: eight digits, as card networks
/// accept them.
pub const AMOUNT_MAX: i64 = 99_999_999;

/// An ISO 4217 currency that people pay with: three lower-case letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Currency(iso_currency::Currency);

impl Currency {
    /// Reads a code in any case. `None` for unknown codes and for those that nobody's card is
    /// charged in: funds, metals, test codes and superseded currencies.
    pub fn parse(code: &str) -> Option<Self> {
        if code.len() != 3 || !code.is_ascii() {
            return None;
        }
        let currency = iso_currency::Currency::from_code(&code.to_ascii_uppercase())?;
        let is_money =
            !currency.is_fund() && !currency.is_special() && currency.is_superseded().is_none();
        is_money.then_some(Self(currency))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.code().to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_that_people_pay_with_are_known_in_any_case() {
        for code in ["usd", "USD", "eUr", "jpy", "chf"] {
            let currency = Currency::parse(code).map(|currency| currency.to_string());
            assert_eq!(currency, Some(code.to_lowercase()));
        }
    }

    #[test]
    fn funds_metals_test_codes_superseded_and_unknown_ones_are_refused() {
        for code in [
            "xau", "xxx", "xts", "che", "uyi", "zzz", "", "us", "usdx", "€€", "dem",
        ] {
            assert_eq!(Currency::parse(code), None, "{code}");
        }
    }
}
