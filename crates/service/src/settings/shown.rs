//! Texts from elsewhere, as a person reads them in a terminal or in a log.

use std::{borrow::Cow, fmt::Write};

/// A text that stays on its line, and can't take over the terminal of who reads it: it may hold
/// what clients, servers and receivers sent. Line breaks, control characters, and those that turn
/// the direction of writing, are escaped as JSON escapes them, so that JSON stays the same
/// document.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| match letter {
        '\t' => false,
        // Line and paragraph separators, and what turns the direction.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
            true
        }
        letter => letter.is_control(),
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for letter in text.chars() {
        if is_harmful(letter) {
            // Writing to a String can't fail. All of them have four digits at most.
            let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn what_would_change_the_terminal_is_escaped_as_json_does_and_the_rest_is_as_it_was() {
        for (text, shown) in [
            (
                "plain, na\u{ef}ve\ttext \u{1f600}",
                "plain, na\u{ef}ve\ttext \u{1f600}",
            ),
            ("a\nforged line\r\u{85}", r"a\u000aforged line\u000d\u0085"),
            ("\u{1b}[2J\u{7}\0", r"\u001b[2J\u0007\u0000"),
            ("\u{9b}31m\u{7f}", r"\u009b31m\u007f"),
            (
                "a\u{202e}b\u{2066}\u{200f}\u{2028}",
                r"a\u202eb\u2066\u200f\u2028",
            ),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }
}
