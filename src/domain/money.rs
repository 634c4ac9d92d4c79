//! Amounts and currencies.

use std::fmt;

/// The largest amount of a charge or an order, in minor units: eight digits, as card networks
/// accept them.
pub const AMOUNT_MAX: i64 = 99_999_999;

/// An amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money {
    /// In the smallest unit of the currency: 2000 is 20.00 dollars, and 2000 yen.
    pub minor_units: i64,
    /// The currency.
    pub currency: Currency,
}

/// An ISO 4217 currency, shown as three lower-case letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// Reads an amount as people write it, `20.00`, in minor units: exactly, or not at all. Digits,
    /// and after one point at most as many as the currency has; no sign and no separators.
    pub fn minor_units(self, amount: &str) -> Result<i64, AmountError> {
        let (major, minor) = match amount.split_once('.') {
            Some((_, "")) => return Err(AmountError::NoNumber),
            Some(parts) => parts,
            None => (amount, ""),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if major.is_empty() || !digits(major) || !digits(minor) {
            return Err(AmountError::NoNumber);
        }
        let decimals = usize::from(self.0.exponent().unwrap_or(0));
        if minor.len() > decimals {
            return Err(AmountError::TooManyDecimals { decimals });
        }
        format!("{major}{minor:0<decimals$}")
            .parse()
            .map_err(|_| AmountError::TooLarge)
    }
}

/// Why text is no amount of a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Something else than digits with at most one point between them.
    #[error("an amount is written like 20.00, with digits and one point")]
    NoNumber,
    /// More digits after the point than the currency has.
    #[error("this currency has at most {decimals} digits after the point")]
    TooManyDecimals {
        /// How many it has.
        decimals: usize,
    },
    /// More than 64 bits hold.
    #[error("the amount is too large")]
    TooLarge,
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
    fn amounts_are_read_exactly_with_the_decimals_of_their_currency() {
        let no_number = Err(AmountError::NoNumber);
        let too_many = |decimals| Err(AmountError::TooManyDecimals { decimals });
        for (code, text, minor_units) in [
            ("usd", "20.00", Ok(2000)),
            ("usd", "20", Ok(2000)),
            ("usd", "20.1", Ok(2010)),
            ("usd", "0.07", Ok(7)),
            ("usd", "00020.00", Ok(2000)),
            // As a binary fraction this is 1.09999…
            ("usd", "1.10", Ok(110)),
            ("usd", "90071992547409.93", Ok(9_007_199_254_740_993)),
            ("usd", "20.000", too_many(2)),
            ("usd", "0.001", too_many(2)),
            ("jpy", "2000", Ok(2000)),
            ("jpy", "2000.0", too_many(0)),
            ("kwd", "1.234", Ok(1234)),
            ("kwd", "1.2", Ok(1200)),
            ("kwd", "1", Ok(1000)),
            ("kwd", "1.2345", too_many(3)),
            ("usd", "", no_number),
            ("usd", ".", no_number),
            ("usd", ".50", no_number),
            ("usd", "20.", no_number),
            ("usd", "-20.00", no_number),
            ("usd", "+20.00", no_number),
            ("usd", "20,00", no_number),
            ("usd", "2,000.00", no_number),
            ("usd", "2e3", no_number),
            ("usd", "20.0.0", no_number),
            ("usd", " 20.00", no_number),
            ("usd", "٢٠", no_number),
            ("usd", "92233720368547758.08", Err(AmountError::TooLarge)),
        ] {
            let currency = Currency::parse(code);
            let read = currency.map(|currency| currency.minor_units(text));
            assert_eq!(read, Some(minor_units), "{text} {code}");
        }
    }
}
