//! Cards, and the ways people write them.

#![allow(clippy::unwrap_used, reason = "for tests, which fail by panicking")]

/// A test card of each issuer and kind, of 14 digits or more.
pub(super) const TEST_CARDS: [&str; 32] = [
    "4242424242424242",
    "5555555555554444",
    "378282246310005",
    "4000000000000002",
    "4000000000009995",
    "4000000000009987",
    "4000000000009979",
    "4000000000000069",
    "4000000000000127",
    "4000000000000119",
    "4100000000000019",
    "30569309025904",
    "3566002020360505",
    "6011111111111117",
    "6200000000000005",
    "3600000000000008",
    "3566000000000000007",
    "62000000000000125",
    "620000000000012349",
    "6221260000001234567",
    "8171999927660000",
    "8171999900000000021",
    "2200000000000004",
    "2204123400000056788",
    "6759649826438453",
    "6799990100000000019",
    "501800000000007",
    "6521000000000122",
    "6073849700004947",
    "9792030394440796",
    "6362970000457013",
    "5066991111111118",
];

/// What separates the groups of a number: of each kind, the plain form first.
pub(super) const SEPARATORS: [&str; 22] = [
    " ", "\u{a0}", "\u{2000}", "\u{2003}", "\u{2007}", "\u{2009}", "\u{200a}", "\u{202f}",
    "\u{205f}", "\u{3000}", "-", "\u{2010}", "\u{2011}", "\u{2012}", "\u{2013}", "\u{2014}",
    "\u{2212}", "\u{fe63}", "\u{ff0d}", ".", "\u{b7}", "\u{ff0e}",
];

/// `digits` in groups as they are printed on the card.
pub(super) fn printed(digits: &str, separator: &str) -> String {
    let sizes: &[usize] = match digits.len() {
        12 | 13 => &[4, 4, 4, 1],
        14 => &[4, 6, 4],
        15 => &[4, 6, 5],
        _ => &[4, 4, 4, 4, 3],
    };
    grouped(digits, sizes, separator)
}

/// `digits` in groups of the given sizes, the last repeating as needed.
pub(super) fn grouped(digits: &str, sizes: &[usize], separator: &str) -> String {
    let mut groups = Vec::new();
    let mut rest = digits;
    let mut sizes = sizes.iter().copied().peekable();
    let mut size = 1;
    while !rest.is_empty() {
        size = sizes.next().unwrap_or(size);
        let (group, after) = rest.split_at(size.min(rest.len()));
        groups.push(group);
        rest = after;
    }
    groups.join(separator)
}

pub(super) fn fullwidth(text: &str) -> String {
    let wide = |digit: u32| char::from_u32(u32::from('\u{ff10}') + digit).unwrap();
    text.chars()
        .map(|character| character.to_digit(10).map_or(character, wide))
        .collect()
}

/// The ways people write a card number, alone and in a sentence.
pub(super) fn spellings(card: &str) -> Vec<String> {
    let mut numbers = vec![card.to_owned()];
    numbers.extend(SEPARATORS.map(|separator| printed(card, separator)));
    let wide: Vec<_> = numbers.iter().map(|number| fullwidth(number)).collect();
    numbers.extend(wide);
    numbers
        .iter()
        .flat_map(|number| {
            [
                number.clone(),
                format!("card {number} please"),
                format!("(card:{number}),"),
                format!("\n{number}\t"),
                format!("4: {number}; cvc: 123"),
                format!("{number}-a"),
                format!("See {number}."),
                format!("\u{201c}{number}\u{201d}"),
                format!("12 34  {number}  56"),
                format!("{number} 12/30"),
                format!("12/30 {number}"),
                format!("{number}/12/30"),
                format!("{number}\u{2007}12/2030 123"),
                format!("2026-11-21 {number}"),
                format!("8f14e45f-ceea-467f-9575-2a3d4c5b6e7f {number}"),
                format!("{number} 8f14e45f-ceea-467f-9575-2a3d4c5b6e7f"),
            ]
        })
        .collect()
}
