//! Log lines on standard error, beside the export of traces.

use std::io::{self, Write};

use crate::settings::one_line;
use tokio::runtime::Handle;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, LevelFilter, filter_fn},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{Export, Service, TraceSettings, TracesError};

/// What is logged, and how.
#[derive(Debug, Clone)]
pub struct Log {
    /// Which lines are written: a valid filter, in the syntax of [`EnvFilter`].
    pub filter: String,
    /// Whether each line is a JSON object.
    pub json: bool,
}

/// What log lines may show.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Whether a line may be written, and a span be shown in lines, whatever the filter says.
    pub may_be_logged: fn(&Metadata<'_>) -> bool,
    /// Whether lines show a span although it is none of theirs, while traces are exported.
    pub is_shown_with_traces: fn(&Metadata<'_>) -> bool,
}

/// Starts logging to standard error, and the export of traces if they are asked for. Call it once.
/// `runtime` is where requests to the collector run. Fails as [`Export::prepare`].
pub fn start(
    log: &Log,
    shown: Shown,
    traces: Option<(&TraceSettings, Service)>,
    runtime: &Handle,
) -> Result<Option<Export>, TracesError> {
    let chosen = EnvFilter::new(&log.filter);
    let may_be_logged = filter_fn(shown.may_be_logged);
    let Some((settings, service)) = traces else {
        // For both at once, so that what is in no line costs nothing.
        tracing_subscriber::registry()
            .with(chosen)
            .with(may_be_logged)
            .with(lines(log))
            .init();
        return Ok(None);
    };
    let export = Export::prepare(settings, service, runtime)?;
    let logged = chosen.and(may_be_logged);
    let also = filter_fn(shown.is_shown_with_traces).with_max_level_hint(LevelFilter::DEBUG);
    tracing_subscriber::registry()
        .with(lines(log).with_filter(logged.or(also)))
        .with(export.layer())
        .init();
    Ok(Some(export))
}

fn lines<S>(log: &Log) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // The library would escape some control characters, and no line break.
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Lines(io::stderr()));
    if log.json {
        Box::new(lines.json().flatten_event(true).with_current_span(false))
    } else {
        Box::new(lines)
    }
}

/// Writes each event, which comes whole and with the end of its line, as one line. What it is about
/// may hold what clients, the processor and receivers sent.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut parts = line.split('\u{1b}');
        let mut shown = one_line(parts.next().unwrap_or_default()).into_owned();
        for part in parts {
            shown.push_str(if is_color(part) { "\u{1b}" } else { "\\u001b" });
            shown.push_str(&one_line(part));
        }
        shown.push('\n');
        // In one piece: standard error has no buffer.
        self.0.write_all(shown.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether an escape character before `text` begins one of the library's colors. It may let others
/// pass, in the values of fields.
fn is_color(text: &str) -> bool {
    let rest = text.strip_prefix('[').unwrap_or_default();
    let digits = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
    digits.starts_with('m')
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[test]
    fn an_event_is_one_line_and_keeps_its_colors() -> io::Result<()> {
        let mut written = Vec::new();
        Lines(&mut written)
            .write_all("\u{1b}[2ma\u{1b}[0m b\nERROR forged\r\u{202e}\n".as_bytes())?;
        let shown = "\u{1b}[2ma\u{1b}[0m b\\u000aERROR forged\\u000d\\u202e\n";
        assert_eq!(String::from_utf8_lossy(&written), shown);
        Ok(())
    }

    #[test]
    fn a_value_does_not_change_the_terminal() -> io::Result<()> {
        #[derive(Clone, Default)]
        struct SharedLine(Arc<Mutex<Vec<u8>>>);
        impl Write for SharedLine {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                shared.extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let written = SharedLine::default();
        let to = written.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || Lines(to.clone()));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let (value, message) = ("\u{1b}[2Ja\nb", "c\u{1b}]0;d");
            tracing::info!(%value, "{message}");
        });
        let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = String::from_utf8_lossy(&bytes);
        assert!(shown.contains("\\u001b[2Ja\\u000ab"), "{shown:?}");
        assert!(
            !shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}]"),
            "{shown:?}"
        );
        assert_eq!(shown.matches('\n').count(), 1, "{shown:?}");
        Ok(())
    }
}
