//! Markdown tables that are also readable as text.

use std::path::Path;

use anyhow::Context;

/// A table with a head, whose first column holds names and whose other columns hold numbers.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<T: ToString>(head: &[T]) -> Self {
        let head = head.iter().map(T::to_string).collect();
        Self { rows: vec![head] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table with its columns aligned, ending with a line break.
    pub(crate) fn to_markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                text.push_str(&match column {
                    0 => format!("| {cell:<width$} |"),
                    _ => format!(" {cell:>width$} |"),
                });
            }
            text.push('\n');
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    text.push_str(&match column {
                        0 => format!("|{}|", "-".repeat(width + 2)),
                        _ => format!("{}:|", "-".repeat(width + 1)),
                    });
                }
                text.push('\n');
            }
        }
        text
    }
}

/// Writes a report where it is kept, and prints it.
pub(crate) fn write_report(output: &Path, report: &str) -> anyhow::Result<()> {
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(output, report)
        .with_context(|| format!("{} can't be written", output.display()))?;
    println!("{report}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_a_short_row_is_filled_up() {
        let mut table = Table::new(&["case", "µs"]);
        table.row(vec!["create".to_owned(), "1,234".to_owned()]);
        table.row(vec!["get".to_owned()]);
        let expected = "\
| case   |    µs |
|--------|------:|
| create | 1,234 |
| get    |       |
";
        assert_eq!(table.to_markdown(), expected);
    }
}
