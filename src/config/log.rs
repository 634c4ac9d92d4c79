//! What is logged, and how.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::source::Source;

/// What is logged, and how.
#[derive(Debug, Clone)]
pub struct Log {
    /// `RUST_LOG`, which is a valid filter.
    pub filter: String,
    /// Whether each line is a JSON object: `LOG_FORMAT`, or whether standard error is no terminal.
    pub json: bool,
}

impl Log {
    pub(super) fn read(source: &Source<'_>) -> Option<Self> {
        let filter = source.value("RUST_LOG");
        let filter = match EnvFilter::try_new(&filter) {
            Ok(_) => Some(filter),
            Err(_) => source.bad("RUST_LOG", "a filter such as info or charge_once=debug"),
        };
        let json = match source.value("LOG_FORMAT").trim() {
            "json" => Some(true),
            "pretty" => Some(false),
            "" => Some(!std::io::stderr().is_terminal()),
            _ => source.bad("LOG_FORMAT", "pretty or json"),
        };
        Some(Self {
            filter: filter?,
            json: json?,
        })
    }
}
