//! The expiry date of a card, as people type it.

/// The last year of a card.
pub const LAST_YEAR: i64 = 2099;

/// How many years from now two digits may mean. What would be later, such as 95 in 2026, means a
/// year of the century before.
const TWO_DIGITS_AHEAD: i64 = 50;

/// Which part of an expiry date can't be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryMistake {
    /// It is none of the twelve, or it has passed this year.
    Month,
    /// It has passed, or no card is valid for so long.
    Year,
}

/// The year of a card that is good through the month `month` of `year`, with all of its digits.
/// `this_year` and `this_month` are now: a card is good through the last day of its month.
pub fn year_of_card(
    year: i64,
    month: i64,
    (this_year, this_month): (i64, i64),
) -> Result<i16, ExpiryMistake> {
    if !(1..=12).contains(&month) {
        return Err(ExpiryMistake::Month);
    }
    let year = match year {
        0..=99 if 2000 + year > this_year + TWO_DIGITS_AHEAD => 1900 + year,
        0..=99 => 2000 + year,
        year => year,
    };
    if !(this_year..=LAST_YEAR).contains(&year) {
        return Err(ExpiryMistake::Year);
    }
    if year == this_year && month < this_month {
        return Err(ExpiryMistake::Month);
    }
    i16::try_from(year).map_err(|_| ExpiryMistake::Year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_people_type_it_and_refused_when_it_has_passed() {
        let november = (2026, 11);
        for (month, year, expected) in [
            (11, 2026, Ok(2026)),
            (12, 2099, Ok(2099)),
            (5, 27, Ok(2027)),
            (12, 76, Ok(2076)),
            (1, 77, Err(ExpiryMistake::Year)),
            (12, 95, Err(ExpiryMistake::Year)),
            (12, 5, Err(ExpiryMistake::Year)),
            (12, 0, Err(ExpiryMistake::Year)),
            (12, 2025, Err(ExpiryMistake::Year)),
            (12, 207, Err(ExpiryMistake::Year)),
            (12, 2100, Err(ExpiryMistake::Year)),
            (12, -1, Err(ExpiryMistake::Year)),
            (12, i64::MAX, Err(ExpiryMistake::Year)),
            (10, 2026, Err(ExpiryMistake::Month)),
            (10, 26, Err(ExpiryMistake::Month)),
            (0, 2030, Err(ExpiryMistake::Month)),
            (13, 2030, Err(ExpiryMistake::Month)),
        ] {
            let read = year_of_card(year, month, november);
            assert_eq!(read, expected, "{month}/{year}");
        }
        // The month after the last day that the card is good.
        let december = year_of_card(2026, 11, (2026, 12));
        assert_eq!(december, Err(ExpiryMistake::Month));
    }
}
