//! Statistics of measurements, in whole numbers.

/// The value at a rank of a sorted list, by the nearest rank: 500 is the median, 990 the 99th
/// percentile. 0 for an empty list.
pub(crate) fn at_permille(sorted: &[u32], permille: usize) -> u32 {
    let rank = (sorted.len() * permille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The median; of an even number, the mean of the two in the middle. 0 for an empty list.
pub(crate) fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    match values.len() % 2 {
        1 => at(middle),
        _ => at(middle.saturating_sub(1)).midpoint(at(middle)),
    }
}

/// The least and the greatest value: what the median of rounds does not show.
pub(crate) fn spread(values: &[u64]) -> (u64, u64) {
    let least = values.iter().copied().min().unwrap_or(0);
    (least, values.iter().copied().max().unwrap_or(0))
}

/// How many hundredths of `of` are `value`: 150 is one and a half times as much. `None` where there
/// is nothing to compare with.
pub(crate) fn hundredths(value: u64, of: u64) -> Option<u64> {
    (value * 100 + of / 2).checked_div(of)
}

/// `1.07×`, or a dash where there is nothing to compare with.
pub(crate) fn ratio(value: u64, of: u64) -> String {
    let times = |all: u64| format!("{}.{:02}×", all / 100, all % 100);
    hundredths(value, of).map_or_else(|| "–".to_owned(), times)
}

pub(crate) fn per_second(count: u64, took: std::time::Duration) -> u64 {
    let micros = took.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds as milliseconds with two decimals.
pub(crate) fn milliseconds(micros: u64) -> String {
    let hundredths = (micros + 5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<u32> = (1..=100).collect();
        let cases = [(500, 50), (990, 99), (1000, 100), (1, 1), (0, 1)];
        for (permille, expected) in cases {
            assert_eq!(at_permille(&hundred, permille), expected, "{permille}");
        }
        assert_eq!(at_permille(&[7], 990), 7);
        assert_eq!(at_permille(&[1, 2, 3], 500), 2);
        assert_eq!(at_permille(&[], 500), 0);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        let cases = [
            (vec![], 0),
            (vec![4], 4),
            (vec![9, 1], 5),
            (vec![3, 1, 2], 2),
            (vec![40, 10, 30, 20], 25),
        ];
        for (values, expected) in cases {
            assert_eq!(median(values.clone()), expected, "{values:?}");
        }
        assert_eq!(spread(&[3, 1, 2]), (1, 3));
        assert_eq!(spread(&[]), (0, 0));
    }

    #[test]
    fn ratios_and_numbers_read_as_people_write_them() {
        assert_eq!(ratio(107, 100), "1.07×");
        assert_eq!(ratio(1, 3), "0.33×");
        assert_eq!(ratio(2, 3), "0.67×");
        assert_eq!(ratio(5, 0), "–");
        assert_eq!(milliseconds(1_234), "1.23");
        assert_eq!(milliseconds(1_235), "1.24");
        assert_eq!(milliseconds(60), "0.06");
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(12_345_678), "12,345,678");
        assert_eq!(per_second(500, Duration::from_millis(250)), 2_000);
        assert_eq!(per_second(500, Duration::ZERO), 500_000_000);
    }
}
