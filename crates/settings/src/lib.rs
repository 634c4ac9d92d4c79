#![doc = include_str!("../README.md")]

pub mod address;
#[cfg(feature = "clap")]
mod help;
mod names;
mod shown;
mod source;
pub mod values;

use std::fmt::Write;

#[cfg(feature = "clap")]
pub use self::help::with_variables;
pub use self::shown::one_line;
pub use self::source::{ConfigError, ConfigErrors, Source};

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
/// unset. Each becomes a constant, a [`Setting`] or an [`Optional`], and all of them are
/// `VARIABLES`.
#[macro_export]
macro_rules! variables {
    ($($topic:literal:
        $($name:ident: $type:ty $(= $default:literal)?, $parse:expr, $about:literal;)+
    )+) => {
        $($($crate::variables! { @const $name: $type, $parse $(, $default)? })+)+

        /// Every variable that is read.
        pub const VARIABLES: &[$crate::Variable] = &[$($(
            $crate::Variable {
                topic: $topic,
                name: stringify!($name),
                default: $crate::variables!(@default $($default)?),
                about: $about,
            },
        )+)+];
    };
    (@const $name:ident: $type:ty, $parse:expr, $default:literal) => {
        pub(crate) const $name: $crate::Setting<$type> = $crate::Setting {
            name: stringify!($name),
            default: $default,
            parse: $parse,
        };
    };
    (@const $name:ident: $type:ty, $parse:expr) => {
        pub(crate) const $name: $crate::Optional<$type> = $crate::Optional {
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
            let default = variable
                .default
                .map_or("(unset)".to_owned(), |default| format!("`{default}`"));
            let _ = writeln!(text, "| `{name}` | {default} | {about} |");
        }
    }
    text
}

/// Describes the variables that `is_shown` for `--help`, by their topics.
pub fn help_text(variables: &[Variable], is_shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("Environment variables:\n");
    let mut shown = "";
    for variable in variables.iter().filter(|variable| is_shown(variable.name)) {
        let Variable {
            topic, name, about, ..
        } = variable;
        if *topic != shown {
            let _ = writeln!(text, "\n{topic}:");
            shown = topic;
        }
        let default = variable
            .default
            .map_or(String::new(), |default| format!(" [default: {default}]"));
        let _ = writeln!(text, "  {name}{default}\n      {about}");
    }
    text
}
