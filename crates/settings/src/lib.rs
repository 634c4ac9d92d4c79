#![doc = include_str!("../README.md")]

pub mod address;
#[cfg(feature = "clap")]
mod help;
mod names;
mod source;
pub mod values;

use std::fmt::Write;

#[cfg(feature = "clap")]
pub use self::help::with_variables;
pub use self::source::{ConfigError, ConfigErrors, Source};

/// One environment variable, for people.
#[derive(Debug)]
pub struct Variable {
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

/// `NAME: type = "default", function of its value, "what it is";`. One without a default may be
/// unset. Each becomes a constant, a [`Setting`] or an [`Optional`], and all of them are
/// `VARIABLES`.
#[macro_export]
macro_rules! variables {
    ($($name:ident: $type:ty $(= $default:literal)?, $parse:expr, $about:literal;)+) => {
        $($crate::variables! { @const $name: $type, $parse $(, $default)? })+

        /// Every variable that is read.
        pub const VARIABLES: &[$crate::Variable] = &[$(
            $crate::Variable {
                name: stringify!($name),
                default: $crate::variables!(@default $($default)?),
                about: $about,
            },
        )+];
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

/// The table for the documentation, in Markdown.
pub fn markdown_table(variables: &[Variable]) -> String {
    let mut table = String::from("| variable | default | what it is |\n|---|---|---|\n");
    for Variable {
        name,
        default,
        about,
    } in variables
    {
        let default = default.map_or("(unset)".to_owned(), |default| format!("`{default}`"));
        // Writing to a String can't fail.
        let _ = writeln!(table, "| `{name}` | {default} | {about} |");
    }
    table
}

/// Describes the variables that `is_shown` for `--help`.
pub fn help_text(variables: &[Variable], is_shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("Environment variables:\n");
    for Variable {
        name,
        default,
        about,
    } in variables.iter().filter(|variable| is_shown(variable.name))
    {
        let default = default.map_or(String::new(), |default| format!(" [default: {default}]"));
        let _ = writeln!(text, "  {name}{default}\n      {about}");
    }
    text
}
