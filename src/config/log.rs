//! What is logged, and how.

use std::io::IsTerminal;

use super::{
    source::Source,
    variables::{LOG_FORMAT, RUST_LOG},
};

/// What is logged, and how.
#[derive(Debug, Clone)]
pub struct Log {
    /// `RUST_LOG`, which is a valid filter.
    pub filter: String,
    /// Whether each line is a JSON object: `LOG_FORMAT`, or whether standard error is no terminal.
    pub json: bool,
}

impl Log {
    pub(super) fn read(source: &Source<'_>) -> Self {
        let filter = source.read(&RUST_LOG);
        let json = source.optional(&LOG_FORMAT);
        Self {
            filter,
            json: json.unwrap_or_else(|| !std::io::stderr().is_terminal()),
        }
    }
}
