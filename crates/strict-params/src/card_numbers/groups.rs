//! Splits text into groups of digits, as people write long numbers.

const IBAN_GROUP_CHARS: usize = 4;

/// Most characters between two groups of a number. A longer row of one character counts as two.
const JOINT_CHARS_MAX: usize = 3;

/// The zeros of all scripts, each of which nine other digits follow (Unicode 16, category Nd). Each
/// of the mathematical alphabets has its own.
#[rustfmt::skip]
const ZEROS: [char; 74] = [
    '\u{660}', '\u{6f0}', '\u{7c0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}',
    '\u{be6}', '\u{c66}', '\u{ce6}', '\u{d66}', '\u{de6}', '\u{e50}', '\u{ed0}', '\u{f20}',
    '\u{1040}', '\u{1090}', '\u{17e0}', '\u{1810}', '\u{1946}', '\u{19d0}', '\u{1a80}', '\u{1a90}',
    '\u{1b50}', '\u{1bb0}', '\u{1c40}', '\u{1c50}', '\u{a620}', '\u{a8d0}', '\u{a900}', '\u{a9d0}',
    '\u{a9f0}', '\u{aa50}', '\u{abf0}', '\u{ff10}', '\u{104a0}', '\u{10d30}', '\u{10d40}',
    '\u{11066}', '\u{110f0}', '\u{11136}', '\u{111d0}', '\u{112f0}', '\u{11450}', '\u{114d0}',
    '\u{11650}', '\u{116c0}', '\u{116d0}', '\u{116da}', '\u{11730}', '\u{118e0}', '\u{11950}',
    '\u{11bf0}', '\u{11c50}', '\u{11d50}', '\u{11da0}', '\u{11f50}', '\u{16a60}',
    '\u{16ac0}', '\u{16b50}', '\u{16d70}', '\u{1ccf0}', '\u{1d7ce}', '\u{1d7d8}', '\u{1d7e2}',
    '\u{1d7ec}', '\u{1d7f6}', '\u{1e140}', '\u{1e2f0}', '\u{1e4f0}', '\u{1e5f1}', '\u{1e950}',
    '\u{1fbf0}',
];

/// What stands between the groups of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Space,
    Dash,
    Dot,
    Comma,
    LowLine,
    Break,
}

pub(super) fn separator(character: char) -> Option<Separator> {
    match character {
        // From hyphen to bar, minus, and the small and fullwidth forms.
        '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => {
            Some(Separator::Dash)
        }
        // Middle dot, fullwidth full stop.
        '.' | '\u{b7}' | '\u{ff0e}' => Some(Separator::Dot),
        // Arabic, ideographic, fullwidth.
        ',' | '\u{60c}' | '\u{3001}' | '\u{ff0c}' => Some(Separator::Comma),
        '_' | '\u{ff3f}' => Some(Separator::LowLine),
        '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(Separator::Break),
        // No-break, of all widths, narrow no-break, mathematical, ideographic.
        character if character.is_whitespace() => Some(Separator::Space),
        _ => None,
    }
}

/// Whether a character has no width: what a copy brings along, or what hides a number from a
/// search. Format characters, fillers, variation selectors, marks that stand on other characters,
/// the empty Braille pattern, and controls that are no white space.
fn is_invisible(character: char) -> bool {
    match character {
        '\u{ad}'
        | '\u{300}'..='\u{36f}'
        | '\u{483}'..='\u{489}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{20d0}'..='\u{20ff}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => character.is_control() && !character.is_whitespace(),
    }
}

/// The text without its invisible characters, if it has any. Those beside a letter stay: a number
/// that one of them parts from a word is not in the word.
pub(super) fn without_invisible(text: &str) -> Option<String> {
    if text.is_ascii() && !text.bytes().any(|byte| is_invisible(char::from(byte))) {
        return None;
    }
    let mut visible = String::with_capacity(text.len());
    let mut rest = text;
    let mut has_any = false;
    while let Some(at) = rest.find(is_invisible) {
        has_any = true;
        let (before, from) = rest.split_at(at);
        visible.push_str(before);
        let after = from.trim_start_matches(is_invisible);
        let touches =
            visible.ends_with(char::is_alphabetic) || after.starts_with(char::is_alphabetic);
        if touches {
            visible.push('\u{200b}');
        }
        rest = after;
    }
    visible.push_str(rest);
    has_any.then_some(visible)
}

/// A digit as ASCII.
pub(super) fn digit(character: char) -> Option<char> {
    if character.is_ascii() {
        return character.is_ascii_digit().then_some(character);
    }
    let value = ZEROS.iter().find_map(|zero| {
        let value = u32::from(character).checked_sub(u32::from(*zero))?;
        (value < 10).then_some(value)
    });
    value.and_then(|value| char::from_digit(value, 10))
}

/// What stands between two groups: equal joints look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joint([Option<Separator>; JOINT_CHARS_MAX]);

impl Joint {
    pub(super) const DOT: Self = Self([Some(Separator::Dot), None, None]);
    const DASH: Self = Self([Some(Separator::Dash), None, None]);
    const SPACE: Self = Self([Some(Separator::Space), None, None]);

    /// The joint that `text` begins with, and the digit and all else behind it.
    fn leading(text: &str) -> Option<(Self, &str)> {
        let mut joint = [None; JOINT_CHARS_MAX];
        let mut count = 0;
        let mut characters = text.chars();
        loop {
            let rest = characters.as_str();
            let character = characters.next()?;
            if digit(character).is_some() {
                return (count > 0).then_some((Self(joint), rest));
            }
            let next = Some(separator(character)?);
            let repeats = count >= 2 && joint.iter().take(count).all(|earlier| *earlier == next);
            if !repeats {
                *joint.get_mut(count)? = next;
                count += 1;
            }
        }
    }

    /// Whether it binds closer than others: a dash or a dot.
    pub(super) fn is_tight(self) -> bool {
        self == Self::DASH || self == Self::DOT
    }

    /// Whether it is one character that is printed between the groups of numbers.
    pub(super) fn is_plain(self) -> bool {
        self.is_tight() || self == Self::SPACE
    }

    /// Whether it touches its groups as a letter does.
    pub(super) fn is_of_a_word(self) -> bool {
        self.0.contains(&Some(Separator::LowLine))
    }
}

/// Contiguous digits.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// As they are written.
    pub(super) text: &'a str,
    pub(super) count: usize,
    /// What stands between it and the next group of its run.
    pub(super) joint: Option<Joint>,
    /// Whether it touches a letter or `_`, beside its joints.
    pub(super) in_word: bool,
    /// Whether `_` joins it to a neighbor: it is no number by itself.
    pub(super) is_part: bool,
    /// Whether it is the end of an expiry date or of an identifier beside a number. The end of a
    /// group of four is not: before digits, that is an IBAN's.
    pub(super) is_apart: bool,
}

impl Group<'_> {
    fn is_joined_to_a_word(&self) -> bool {
        self.joint.is_some_and(Joint::is_of_a_word)
    }

    pub(super) fn digits(&self) -> impl Iterator<Item = char> {
        self.text.chars().filter_map(digit)
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Before {
    /// Letters, digits of other scripts and `_`, directly before it.
    pub(super) word_chars: usize,
    /// A slash or a dash.
    pub(super) joins: bool,
}

/// The groups that `text` begins with, as far as a joint stands between each two, and what follows
/// them.
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
            is_part: run.last().is_some_and(Group::is_joined_to_a_word),
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
        if let Some((joint, behind)) = Joint::leading(after) {
            group.joint = Some(joint);
            group.is_part |= joint.is_of_a_word();
            run.push(group);
            rest = behind;
            continue;
        }
        let next = after.chars().next();
        let touches = next.is_some_and(is_word);
        run.push(Group {
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
