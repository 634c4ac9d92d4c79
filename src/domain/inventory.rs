//! How much there is of each stock-keeping unit, and which order gets it.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::{
    order::{ITEM_TEXT_MAX_CHARS, Item},
    prelude::*,
};

/// Highest level that can be set.
pub const LEVEL_MAX: i64 = 1_000_000_000;

/// The stock-keeping unit that a path names; `None` for bytes that no item of an order could have.
pub fn sku(segment: &[u8]) -> Option<&str> {
    let text = str::from_utf8(segment).ok()?;
    let is_sku = (1..=ITEM_TEXT_MAX_CHARS).contains(&text.chars().count());
    (is_sku && !text.contains('\0')).then_some(text)
}

/// The first line that can't be served in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfStock {
    /// Which line, counted from 0.
    pub item: usize,
}

/// What all `items` together take from each level, sorted by sku, or the first line for which there
/// isn't enough after the lines before it. `level` says what is left of a sku: nothing of one that
/// was never set. A line without a sku takes nothing.
pub fn allocate(
    level: impl Fn(&str) -> i64,
    items: &[Item],
) -> Result<Vec<(String, i64)>, OutOfStock> {
    let mut taken = BTreeMap::<&str, i64>::new();
    for (index, item) in items.iter().enumerate() {
        let Some(sku) = item.sku.as_deref() else {
            continue;
        };
        let in_all = taken.entry(sku).or_default();
        // At most 100 lines of 10^4: no overflow.
        *in_all += item.quantity;
        if *in_all > level(sku) {
            return Err(OutOfStock { item: index });
        }
    }
    let owned = |(sku, quantity): (&str, i64)| (sku.to_owned(), quantity);
    Ok(taken.into_iter().map(owned).collect())
}

/// How much there is of one stock-keeping unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The client's stock-keeping unit.
    pub sku: String,
    /// What is left to sell, 0 to [`LEVEL_MAX`].
    pub quantity: i64,
    /// When it was last set or taken from, by the database's clock.
    pub updated_at: DateTime<Utc>,
    /// How often it was changed, and once for its creation.
    pub version: i64,
}

impl Inventory {
    /// The level with another quantity. A transaction that waited for its lock may have begun
    /// before the one that held it, so its time is not always the later one.
    #[must_use]
    pub fn with(self, quantity: i64, now: DateTime<Utc>) -> Self {
        let later = self.updated_at + TimeDelta::microseconds(1);
        Self {
            quantity,
            updated_at: later.max(now),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn item(sku: Option<&str>, quantity: i64) -> Item {
        Item {
            description: None,
            quantity,
            sku: sku.map(str::to_owned),
            unit_amount: 1,
        }
    }

    #[test]
    fn lines_of_one_sku_are_taken_together_and_the_first_that_lacks_is_named() {
        let level = |sku: &str| {
            let levels = BTreeMap::from([("cup", 1), ("mug", 5), ("pan", 0)]);
            levels.get(sku).copied().unwrap_or_default()
        };
        let (mug, cup) = (Some("mug"), Some("cup"));
        type Lines<'a> = &'a [(Option<&'a str>, i64)];
        let cases: [(Lines<'_>, Result<&str, usize>); 9] = [
            (&[], Ok("")),
            (&[(mug, 5)], Ok("mug 5")),
            (&[(mug, 6)], Err(0)),
            (&[(mug, 2), (cup, 1), (mug, 3)], Ok("cup 1, mug 5")),
            (&[(mug, 2), (cup, 1), (mug, 4)], Err(2)),
            (&[(mug, 5), (cup, 2), (mug, 1)], Err(1)),
            // Set to nothing, and never set.
            (&[(mug, 1), (Some("pan"), 1)], Err(1)),
            (&[(mug, 1), (Some("Mug"), 1)], Err(1)),
            // Nothing is counted where there is nothing to count by.
            (&[(None, 10_000), (mug, 5)], Ok("mug 5")),
        ];
        for (lines, expected) in cases {
            let items: Vec<_> = lines.iter().map(|(sku, n)| item(*sku, *n)).collect();
            let taken = allocate(level, &items).map_err(|lacks| lacks.item);
            let taken = taken.map(|taken| {
                let taken: Vec<_> = taken.iter().map(|(sku, n)| format!("{sku} {n}")).collect();
                taken.join(", ")
            });
            let taken = taken.as_deref().map_err(|item| *item);
            assert_eq!(taken, expected, "{lines:?}");
        }
    }

    proptest! {
        /// Whatever is asked for: all of it and no more is taken, or the lines before the one that
        /// is named could be served and the ones up to it couldn't.
        #[test]
        fn an_allocation_is_whole_or_names_the_line_that_breaks_it(
            left in vec(0..20_i64, 3),
            lines in vec((0..4_usize, 1..10_i64), 0..12),
        ) {
            const SKUS: [&str; 4] = ["a", "b", "c", "never set"];
            let levels: BTreeMap<_, _> =
                SKUS.iter().map(|sku| (*sku).to_owned()).zip(left).collect();
            let items: Vec<_> = lines
                .iter()
                .map(|(sku, quantity)| item(SKUS.get(*sku).copied(), *quantity))
                .collect();
            let level = |sku: &str| levels.get(sku).copied().unwrap_or_default();
            match allocate(level, &items) {
                Ok(taken) => {
                    prop_assert!(taken.is_sorted_by(|one, next| one.0 < next.0));
                    let asked: i64 = items.iter().map(|item| item.quantity).sum();
                    prop_assert_eq!(taken.iter().map(|(_, n)| n).sum::<i64>(), asked);
                    prop_assert!(taken.iter().all(|(sku, n)| levels.get(sku) >= Some(n)));
                }
                Err(OutOfStock { item }) => {
                    let (before, _) = items.split_at(item);
                    prop_assert!(allocate(level, before).is_ok());
                    let (up_to, _) = items.split_at(item + 1);
                    prop_assert_eq!(allocate(level, up_to), Err(OutOfStock { item }));
                }
            }
        }
    }

    #[test]
    fn a_sku_is_what_an_item_could_have() {
        let longest = "é".repeat(255);
        for text in ["m", "a b", "/", "%2F", "..", &longest] {
            assert_eq!(sku(text.as_bytes()), Some(text));
        }
        let too_long = "é".repeat(256);
        for bytes in [&b""[..], b"\xff", b"mug\0", too_long.as_bytes()] {
            assert_eq!(sku(bytes), None, "{bytes:?}");
        }
    }
}
