//! An amount of money as a person writes it.

/// Reads an amount as people write it, `20.00`, in minor units: exactly, or not at all. Digits,
/// and after one point at most `decimals`; no sign and no separators.
pub fn minor_units(amount: &str, decimals: usize) -> Result<i64, AmountError> {
    let (major, minor) = match amount.split_once('.') {
        Some((_, "")) => return Err(AmountError::NoNumber),
        Some(parts) => parts,
        None => (amount, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if major.is_empty() || !digits(major) || !digits(minor) {
        return Err(AmountError::NoNumber);
    }
    if minor.len() > decimals {
        return Err(AmountError::TooManyDecimals { decimals });
    }
    format!("{major}{minor:0<decimals$}")
        .parse()
        .map_err(|_| AmountError::TooLarge)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly_with_the_decimals_of_their_currency() {
        let no_number = Err(AmountError::NoNumber);
        let too_many = |decimals| Err(AmountError::TooManyDecimals { decimals });
        for (decimals, text, read) in [
            (2, "20.00", Ok(2000)),
            (2, "20", Ok(2000)),
            (2, "20.1", Ok(2010)),
            (2, "0.07", Ok(7)),
            (2, "00020.00", Ok(2000)),
            // As a binary fraction this is 1.09999…
            (2, "1.10", Ok(110)),
            (2, "90071992547409.93", Ok(9_007_199_254_740_993)),
            (2, "20.000", too_many(2)),
            (2, "0.001", too_many(2)),
            (0, "2000", Ok(2000)),
            (0, "2000.0", too_many(0)),
            (3, "1.234", Ok(1234)),
            (3, "1.2", Ok(1200)),
            (3, "1", Ok(1000)),
            (3, "1.2345", too_many(3)),
            (2, "", no_number),
            (2, ".", no_number),
            (2, ".50", no_number),
            (2, "20.", no_number),
            (2, "-20.00", no_number),
            (2, "+20.00", no_number),
            (2, "20,00", no_number),
            (2, "2,000.00", no_number),
            (2, "2e3", no_number),
            (2, "20.0.0", no_number),
            (2, " 20.00", no_number),
            (2, "٢٠", no_number),
            (2, "92233720368547758.08", Err(AmountError::TooLarge)),
        ] {
            assert_eq!(minor_units(text, decimals), read, "{text}, {decimals}");
        }
    }
}
