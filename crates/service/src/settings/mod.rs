//! This module declares each environment variable once. The value, the error message, `--help` and
//! the tables for the documentation come from that line.
//!
//! ```rust
//! use std::{net::SocketAddr, time::Duration};
//!
//! use charge_once_service::settings::{
//!     ConfigErrors, Source, markdown_tables,
//!     values::{address, duration, number},
//!     variables,
//! };
//!
//! // `NAME: type = "default", how it is read, "what it is";`. Without a default, it may be unset.
//! // A variable with `as` or `maybe` is also a member of the struct.
//! variables! {
//!     /// What the server listens on, and with how many threads.
//!     struct Values;
//!
//!     "The server":
//!     BIND_ADDRESS as bind_address: SocketAddr = "127.0.0.1:8080", address,
//!         "Address and port to listen on.";
//!     WORKERS maybe workers: usize, |text| number(text, 1..=512),
//!         "Worker threads. Unset: one for each core.";
//!
//!     "Time limits":
//!     STATEMENT_TIMEOUT: Duration = "3s", duration, "Longest time for a statement.";
//!     REQUEST_TIMEOUT: Duration = "8s", duration, "Longest time for a request.";
//! }
//!
//! fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Values, ConfigErrors> {
//!     let source = Source::new(&lookup);
//!     let (statement, request) = (source.read(&STATEMENT_TIMEOUT), source.read(&REQUEST_TIMEOUT));
//!     source.ascends(&[(STATEMENT_TIMEOUT.name, statement), (REQUEST_TIMEOUT.name, request)]);
//!     let values = Values::read(&source);
//!     source.finish(values)
//! }
//!
//! let values = read(|_| None).unwrap();
//! assert_eq!((values.bind_address.port(), values.workers), (8080, None));
//! let errors = read(|name| (name != "WORKERS").then(|| "2s".to_owned())).err().unwrap();
//! let told = "2 settings can't be used:
//!   REQUEST_TIMEOUT must be longer than STATEMENT_TIMEOUT, which is 2s
//!   BIND_ADDRESS must be an IP address or localhost, and a port, such as \
//!     127.0.0.1:8080 or localhost:8080";
//! assert_eq!(errors.to_string(), told);
//! let tables = markdown_tables(VARIABLES);
//! assert!(tables.starts_with("## The server\n\n| variable |"));
//! assert!(tables.contains("| `WORKERS` | (unset) | Worker threads."));
//! ```
//!
//! All errors are told at once, and never repeat a value: it may be a secret. An empty value counts
//! as unset.
//!
//! Your lookup is `std::env::var(name).ok()`. Before it, give the names of all set variables to
//! `Source::check_names`, which refuses misspelled ones. `with_variables` adds variables to the
//! `--help` of clap.

pub mod address;
mod names;
mod shown;
mod source;
pub mod values;

use std::fmt::Write;

use clap::Command;

pub use self::shown::one_line;
pub use self::source::{ConfigError, ConfigErrors, Source};
pub use crate::variables;

/// One environment variable, for people.
#[derive(Debug)]
pub struct Variable {
    /// What it is about, as its neighbors are: a heading.
    pub topic: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The value it has when it is unset or empty; `None` if that is a state of its own.
    pub default: Option<&'static str>,
    /// What it is, its unit, and why one would change it.
    pub about: &'static str,
}

/// A variable that has a default.
#[derive(Debug, Clone, Copy)]
pub struct Setting<T> {
    /// Its name.
    pub name: &'static str,
    /// The text that it has when it is unset or empty.
    pub default: &'static str,
    /// The value of a text, or what the text must be.
    pub parse: fn(&str) -> Result<T, String>,
}

/// A variable that may be unset.
#[derive(Debug, Clone, Copy)]
pub struct Optional<T> {
    /// Its name.
    pub name: &'static str,
    /// The value of a text, or what the text must be.
    pub parse: fn(&str) -> Result<T, String>,
}

/// `"Topic":`, and then the variables of this topic, each as
/// `NAME: type = "default", function of its value, "what it is";`. One without a default may be
/// unset. `WORKERS: usize = "2", workers, "Worker threads.";` makes
/// `const WORKERS: Setting<usize> = Setting { name: "WORKERS", default: "2", parse: workers };`
/// and a [`Variable`] in `VARIABLES`. Without a default, the constant is an [`Optional`].
///
/// `struct Name;` before the first topic makes a struct of those that are declared as
/// `NAME as member`, or `NAME maybe member` without a default, with `fn read(source: &Source)`.
#[macro_export]
macro_rules! variables {
    (
        $(#[$of_struct:meta])* $seen:vis struct $struct:ident;
        $($topic:literal:
            $($name:ident $(as $member:ident)? $(maybe $option:ident)?: $type:ty
                $(= $default:literal)?, $parse:expr, $about:literal;)+
        )+
    ) => {
        $crate::settings::variables! {
            $($topic: $($name: $type $(= $default)?, $parse, $about;)+)+
        }

        $(#[$of_struct])*
        #[derive(Debug, Clone)]
        $seen struct $struct {
            $($(
                $(#[doc = concat!("`", stringify!($name), "`: ", $about)] pub $member: $type,)?
                $(#[doc = concat!("`", stringify!($name), "`: ", $about)] pub $option: Option<$type>,)?
            )+)+
        }

        impl $struct {
            /// Reads them. What is wrong is recorded in `source`.
            $seen fn read(source: &$crate::settings::Source<'_>) -> Self {
                Self { $($(
                    $($member: source.read(&$name),)?
                    $($option: source.optional(&$name),)?
                )+)+ }
            }
        }
    };
    ($($topic:literal:
        $($name:ident: $type:ty $(= $default:literal)?, $parse:expr, $about:literal;)+
    )+) => {
        $($($crate::settings::variables! { @const $name: $type, $parse $(, $default)? })+)+

        /// Every variable that is read.
        pub const VARIABLES: &[$crate::settings::Variable] = &[$($(
            $crate::settings::Variable {
                topic: $topic,
                name: stringify!($name),
                default: $crate::settings::variables!(@default $($default)?),
                about: $about,
            },
        )+)+];
    };
    (@const $name:ident: $type:ty, $parse:expr, $default:literal) => {
        pub(crate) const $name: $crate::settings::Setting<$type> = $crate::settings::Setting {
            name: stringify!($name),
            default: $default,
            parse: $parse,
        };
    };
    (@const $name:ident: $type:ty, $parse:expr) => {
        pub(crate) const $name: $crate::settings::Optional<$type> = $crate::settings::Optional {
            name: stringify!($name),
            parse: $parse,
        };
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
}

/// The tables for the documentation, in Markdown: one below the heading of each topic.
pub fn markdown_tables(variables: &[Variable]) -> String {
    let mut text = String::new();
    for of_topic in variables.chunk_by(|one, next| one.topic == next.topic) {
        let topic = of_topic.first().map_or("", |first| first.topic);
        let gap = if text.is_empty() { "" } else { "\n" };
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "{gap}## {topic}\n\n| variable | default | what it is |\n|---|---|---|\n"
        );
        for variable in of_topic {
            let Variable { name, about, .. } = variable;
            let default = variable.default.map(|default| format!("`{default}`"));
            let default = default.as_deref().unwrap_or("(unset)");
            let _ = writeln!(text, "| `{name}` | {default} | {about} |");
        }
    }
    text
}

/// Adds the variables of each command to its help, and to that of the commands below it.
///
/// `reads(command, variable)` says whether a command reads a variable. The program is named by its
/// name, a command by its own, and one below it by both, such as `keys list`.
#[must_use]
pub fn with_variables(
    program: Command,
    variables: &[Variable],
    reads: fn(&str, &str) -> bool,
) -> Command {
    let with = |path: &str, command: Command| {
        let is_read = |name: &str| reads(path, name);
        if variables.iter().any(|variable| is_read(variable.name)) {
            command.after_help(help_text(variables, is_read))
        } else {
            command
        }
    };
    let name = program.get_name().to_owned();
    with(&name, program).mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        with(&name, command).mut_subcommands(|below| {
            let path = format!("{name} {}", below.get_name());
            with(&path, below)
        })
    })
}

/// Describes the variables that `is_shown` for `--help`, by their topics.
fn help_text(variables: &[Variable], is_shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("Environment variables:\n");
    let mut shown = "";
    for variable in variables.iter().filter(|variable| is_shown(variable.name)) {
        let Variable { name, about, .. } = variable;
        if variable.topic != shown {
            shown = variable.topic;
            let _ = writeln!(text, "\n{shown}:");
        }
        let default = variable
            .default
            .map_or(String::new(), |default| format!(" [default: {default}]"));
        let _ = writeln!(text, "  {name}{default}\n      {about}");
    }
    text
}
