//! Reads variables and collects what is wrong with them, so that a person can fix all of it at
//! once.
//!
//! Promise: what has no value that can be used is recorded, and nothing is used then.

use std::{cell::RefCell, fmt, time::Duration};

use super::{Optional, Setting};

/// Something is wrong with one variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Its value can't be used. The value itself isn't repeated: it may be a secret.
    #[error("{variable} must be {expected}")]
    Value {
        /// Its name.
        variable: &'static str,
        /// What it should be.
        expected: String,
    },
    /// Its name is nearly one of ours, so the intended setting would be ignored.
    #[error("unknown variable {name}; did you mean {meant}?")]
    Name {
        /// The name that is set.
        name: String,
        /// The variable that was probably meant.
        meant: &'static str,
    },
}

impl ConfigError {
    /// The variable that it is about.
    pub fn variable(&self) -> &'static str {
        match self {
            Self::Value { variable, .. }
            | Self::Name {
                meant: variable, ..
            } => variable,
        }
    }
}

/// Everything that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return only.fmt(f);
        }
        write!(f, "{} settings can't be used:", self.0.len())?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Where variables are read from; a function, so that tests need no global state.
pub struct Source<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'a> Source<'a> {
    /// None of it has been read yet.
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            errors: RefCell::default(),
        }
    }

    /// Ends the reading: all that was recorded, or else the result.
    pub fn finish<T>(self, result: T) -> Result<T, ConfigErrors> {
        match self.errors.into_inner() {
            errors if errors.is_empty() => Ok(result),
            errors => Err(ConfigErrors(errors)),
        }
    }

    /// Records an error.
    pub fn record(&self, error: ConfigError) {
        self.errors.borrow_mut().push(error);
    }

    /// Records a bad value.
    pub fn bad(&self, variable: &'static str, expected: impl Into<String>) {
        self.record(ConfigError::Value {
            variable,
            expected: expected.into(),
        });
    }

    /// Whether each of these is longer than the one before it, so that the innermost limit fires
    /// first. Records each one that isn't, unless one of them is bad already.
    pub fn ascends(&self, ladder: &[(&'static str, Duration)]) -> bool {
        let are_good = || ladder.iter().all(|(name, _)| self.are_good(&[name]));
        if !are_good() {
            return false;
        }
        for pair in ladder.windows(2) {
            if let [(below, lower), (variable, higher)] = pair
                && higher <= lower
            {
                let lower = humantime::format_duration(*lower);
                self.bad(variable, format!("longer than {below}, which is {lower}"));
            }
        }
        are_good()
    }

    /// Whether nothing is wrong with these: otherwise their values may be stand-ins, and comparing
    /// them would tell of errors that aren't there.
    pub fn are_good(&self, variables: &[&str]) -> bool {
        let errors = self.errors.borrow();
        let mut bad = errors.iter().map(ConfigError::variable);
        !bad.any(|variable| variables.contains(&variable))
    }

    /// What a variable is set to. An empty value counts as unset: that is how Compose passes on
    /// what isn't there.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.trim().is_empty())
    }

    /// A variable's value, or its default. After a bad value, that is only a stand-in.
    pub fn read<T>(&self, setting: &Setting<T>) -> T {
        let value = self.parsed(setting.name, setting.parse);
        value.unwrap_or_else(|| match (setting.parse)(setting.default) {
            Ok(value) => value,
            Err(expected) => unreachable!("the default of {} must be {expected}", setting.name),
        })
    }

    /// A variable's value, if it is set.
    pub fn optional<T>(&self, Optional { name, parse }: &Optional<T>) -> Option<T> {
        self.parsed(name, *parse)
    }

    fn parsed<T>(&self, name: &'static str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        let parsed = parse(&self.text(name)?);
        parsed.map_err(|expected| self.bad(name, expected)).ok()
    }
}
