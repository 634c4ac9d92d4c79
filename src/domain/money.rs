//! Amounts and currencies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest amount of a charge or an order, in minor units: eight digits, as card networks
/// accept them.
pub const AMOUNT_MAX: i64 = 99_999_999;

/// An amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// In the smallest unit of the currency: 2000 is 20.00 dollars, and 2000 yen.
    #[serde(rename = "amount")]
    pub minor_units: i64,
    /// The currency.
    pub currency: Currency,
}

/// As people write it: $1,234.50, or CHF 1,234.50.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = self.currency.decimals();
        let sign = if self.minor_units < 0 { "-" } else { "" };
        let units = self.minor_units.unsigned_abs();
        let mut digits = format!("{units:0>width$}", width = decimals + 1);
        let whole = digits.len() - decimals;
        if decimals > 0 {
            digits.insert(whole, '.');
        }
        for place in (1..whole).rev().filter(|at| (whole - at).is_multiple_of(3)) {
            digits.insert(place, ',');
        }
        let code = self.currency.0.code();
        match SYMBOLS.iter().find(|(of, _)| *of == code) {
            Some((_, symbol)) => write!(f, "{sign}{symbol}{digits}"),
            None => write!(f, "{sign}{code}\u{a0}{digits}"),
        }
    }
}

/// The symbols by which people who read English tell currencies apart, as CLDR lists them. Any
/// other currency is written with its code.
const SYMBOLS: [(&str, &str); 16] = [
    ("AUD", "A$"),
    ("BRL", "R$"),
    ("CAD", "CA$"),
    ("CNY", "CN¥"),
    ("EUR", "€"),
    ("GBP", "£"),
    ("HKD", "HK$"),
    ("ILS", "₪"),
    ("INR", "₹"),
    ("JPY", "¥"),
    ("KRW", "₩"),
    ("MXN", "MX$"),
    ("NZD", "NZ$"),
    ("TWD", "NT$"),
    ("USD", "$"),
    ("VND", "₫"),
];

/// An ISO 4217 currency, shown as three lower-case letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency(iso_currency::Currency);

impl Currency {
    /// Reads the code of a currency that cards are charged in, in any case. `None` for unknown
    /// codes, funds, metals, test codes and superseded currencies.
    pub fn parse(code: &str) -> Option<Self> {
        let Self(currency) = Self::of_stored(code)?;
        // ISO 4217 lists VES beside VED for the bolívar, and the crate takes it for superseded.
        let is_in_use =
            currency == iso_currency::Currency::VES || currency.is_superseded().is_none();
        let is_money = !currency.is_fund() && !currency.is_special() && is_in_use;
        is_money.then_some(Self(currency))
    }

    /// Reads the code of any currency. What was charged in a currency stays readable after that
    /// currency is superseded.
    pub fn of_stored(code: &str) -> Option<Self> {
        if code.len() != 3 || !code.is_ascii() {
            return None;
        }
        iso_currency::Currency::from_code(&code.to_ascii_uppercase()).map(Self)
    }

    /// Digits of its minor unit: 2 for dollars, and 0 for yen.
    pub fn decimals(self) -> usize {
        usize::from(self.0.exponent().unwrap_or(0))
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.to_string()
    }
}

impl TryFrom<String> for Currency {
    type Error = String;

    fn try_from(code: String) -> Result<Self, String> {
        Self::of_stored(&code).ok_or_else(|| format!("{code} is no currency"))
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
        for code in ["usd", "USD", "eUr", "jpy", "chf", "ves", "ved"] {
            let currency = Currency::parse(code).map(|currency| currency.to_string());
            assert_eq!(currency, Some(code.to_lowercase()));
        }
    }

    #[test]
    fn funds_metals_test_codes_superseded_and_unknown_ones_are_refused() {
        for code in [
            "xau", "xxx", "xts", "che", "uyi", "zzz", "", "us", "usdx", "€€", "dem", "vef",
        ] {
            assert_eq!(Currency::parse(code), None, "{code}");
        }
    }

    #[test]
    fn an_amount_has_the_symbol_and_the_decimals_of_its_currency() {
        for (minor_units, currency, expected) in [
            (2000, "usd", "$20.00"),
            (123_450, "usd", "$1,234.50"),
            (5, "eur", "€0.05"),
            (-5, "eur", "-€0.05"),
            (-100_000, "cad", "-CA$1,000.00"),
            (999, "jpy", "¥999"),
            (1_234_567, "jpy", "¥1,234,567"),
            (1, "kwd", "KWD\u{a0}0.001"),
            (1_234_567, "kwd", "KWD\u{a0}1,234.567"),
            (99_999_999, "chf", "CHF\u{a0}999,999.99"),
        ] {
            let currency = Currency::parse(currency).unwrap();
            let amount = Money {
                minor_units,
                currency,
            };
            assert_eq!(amount.to_string(), expected);
        }
    }
}
