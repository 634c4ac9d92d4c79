//! Splits text into groups of digits, as people write long numbers.

/// Characters in each group of an IBAN.
const IBAN_GROUP_CHARS: usize = 4;

/// What stands between the groups of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Space,
    Dash,
    Dot,
}

pub(super) fn separator(character: char) -> Option<Separator> {
    match character {
        // No-break, of all widths, narrow no-break, mathematical, ideographic.
        ' ' | '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
            Some(Separator::Space)
        }
        // From hyphen to bar, minus, and the small and fullwidth forms.
        '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => {
            Some(Separator::Dash)
        }
        // Middle dot, fullwidth full stop.
        '.' | '\u{b7}' | '\u{ff0e}' => Some(Separator::Dot),
        _ => None,
    }
}

/// A digit as ASCII. Fullwidth digits come from Japanese and Chinese keyboards.
pub(super) fn digit(character: char) -> Option<char> {
    match character {
        '0'..='9' => Some(character),
        '\u{ff10}'..='\u{ff19}' => {
            char::from_digit(u32::from(character) - u32::from('\u{ff10}'), 10)
        }
        _ => None,
    }
}

/// Contiguous digits.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// As they are written.
    pub(super) text: &'a str,
    /// How many.
    pub(super) count: usize,
    /// What separates it from the next group of its run.
    pub(super) joint: Option<Separator>,
    /// Whether it touches a letter or `_`.
    pub(super) in_word: bool,
    /// Whether it is the end of an expiry date or of an identifier beside a number. The end of a
    /// group of four is not: before digits, that is an IBAN's.
    pub(super) is_apart: bool,
}

/// What stands before a run.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Before {
    /// Letters, digits of other scripts and `_`, directly before it.
    pub(super) word_chars: usize,
    /// A slash or a dash.
    pub(super) joins: bool,
}

/// The groups that `text` begins with, as far as one separator stands between each two, and what
/// follows them.
pub(super) fn leading_run(text: &str, before: Before) -> (Vec<Group<'_>>, &str) {
    let mut run = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|character| digit(character).is_none());
        let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
        let mut group = Group {
            text: digits,
            count: digits.chars().count(),
            joint: None,
            in_word: false,
            is_apart: false,
        };
        if group.count == 0 {
            return (run, rest);
        }
        if run.is_empty() {
            let word_chars = before.word_chars;
            group.in_word = word_chars > 0;
            group.is_apart =
                before.joins || group.in_word && word_chars + group.count != IBAN_GROUP_CHARS;
        }
        let mut ahead = after.chars();
        let next = ahead.next();
        group.joint = next.and_then(separator);
        if group.joint.is_some() && ahead.clone().next().and_then(digit).is_some() {
            run.push(group);
            rest = ahead.as_str();
            continue;
        }
        let touches = next.is_some_and(is_word);
        run.push(Group {
            joint: None,
            in_word: group.in_word || touches,
            is_apart: group.is_apart || touches || matches!(next, Some('/' | '-')),
            ..group
        });
        return (run, after);
    }
}

pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
