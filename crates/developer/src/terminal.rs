//! What a command prints for programs, and what it says to people.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{ErrorKind, Write},
};

use super::BoxError;

/// To people, on standard error.
pub fn say(text: &str) {
    // Nothing to do if standard error is gone.
    let _ = writeln!(std::io::stderr(), "charge-once: {}", harmless(text));
}

/// To standard output. A closed output is not an error.
pub fn print(text: &str) -> Result<(), BoxError> {
    match writeln!(std::io::stdout(), "{}", harmless(text)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A text that can't take over the terminal of who reads it: it may hold what clients, servers and
/// receivers sent. Control characters, and those that turn the direction of writing, are escaped as
/// JSON escapes them, so that JSON stays the same document.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
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
    use super::harmless;

    #[test]
    fn what_would_change_the_terminal_is_escaped_as_json_does_and_the_rest_is_as_it_was() {
        for (text, shown) in [
            (
                "plain, na\u{ef}ve\n\ttext \u{1f600}",
                "plain, na\u{ef}ve\n\ttext \u{1f600}",
            ),
            ("\u{1b}[2J\r\u{7}\0", r"\u001b[2J\u000d\u0007\u0000"),
            ("\u{9b}31m\u{7f}", r"\u009b31m\u007f"),
            ("a\u{202e}b\u{2066}", r"a\u202eb\u2066"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }
}
