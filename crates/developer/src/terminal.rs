//! What a command prints for programs, and what it says to people.

use std::io::{ErrorKind, Write};

use charge_once_service::settings::one_line;

use super::BoxError;

/// To people, on standard error. A text of several lines, such as an error with its list, is
/// indented from the second on, so that none of them can pass as a line of another command.
pub fn say(text: &str) {
    let mut lines = text.lines().map(one_line);
    let mut said = format!("charge-once: {}", lines.next().unwrap_or_default());
    for line in lines {
        let indent = if line.starts_with(' ') { "" } else { "  " };
        said = format!("{said}\n{indent}{line}");
    }
    // Nothing to do if standard error is gone.
    let _ = writeln!(std::io::stderr(), "{said}");
}

/// One line to standard output, whatever `text` holds. A closed output is not an error.
pub fn print(text: &str) -> Result<(), BoxError> {
    write(&one_line(text))
}

/// A document to standard output, line by line: what this program wrote itself, or a whole reply.
pub fn print_document(text: &str) -> Result<(), BoxError> {
    let lines: Vec<_> = text.split('\n').map(one_line).collect();
    write(&lines.join("\n"))
}

/// Rows as lines, their cells one below the other.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> impl Iterator<Item = String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(move |row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    rows.iter().map(move |row| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    })
}

fn write(shown: &str) -> Result<(), BoxError> {
    match writeln!(std::io::stdout(), "{shown}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
