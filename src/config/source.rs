//! Reads variables and collects what is wrong with them, so that a person can fix all of it at
//! once.
//!
//! Promise: a function that returns `None` has recorded why.

use std::{cell::RefCell, fmt, net::SocketAddr, ops::RangeInclusive, str::FromStr, time::Duration};

use super::variables::VARIABLES;

pub(super) const DURATION_EXPECTED: &str = "a duration such as 90s, 250ms or 24h, longer than zero";

const ADDRESS_EXPECTED: &str =
    "an IP address or localhost, and a port, such as 127.0.0.1:8080 or localhost:8080";

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
pub(super) struct Source<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            errors: RefCell::default(),
        }
    }

    /// Ends the reading: all that was recorded, or else the result.
    pub(super) fn finish<T>(self, result: Option<T>) -> Result<T, ConfigErrors> {
        match (result, self.errors.into_inner()) {
            (Some(result), errors) if errors.is_empty() => Ok(result),
            (_, errors) => Err(ConfigErrors(errors)),
        }
    }

    pub(super) fn record(&self, error: ConfigError) {
        self.errors.borrow_mut().push(error);
    }

    /// Records a bad value. Always `None`, to be returned.
    pub(super) fn bad<T>(&self, variable: &'static str, expected: impl Into<String>) -> Option<T> {
        self.record(ConfigError::Value {
            variable,
            expected: expected.into(),
        });
        None
    }

    /// An empty value counts as unset: that is how Compose passes on what isn't there.
    pub(super) fn optional(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.trim().is_empty())
    }

    pub(super) fn value(&self, name: &'static str) -> String {
        let default = VARIABLES
            .iter()
            .find(|variable| variable.name == name)
            .and_then(|variable| variable.default)
            .unwrap_or_default();
        self.optional(name).unwrap_or_else(|| default.to_owned())
    }

    pub(super) fn parse<T: FromStr>(&self, name: &'static str, expected: &str) -> Option<T> {
        match self.value(name).trim().parse() {
            Ok(value) => Some(value),
            Err(_) => self.bad(name, expected),
        }
    }

    pub(super) fn truth(&self, name: &'static str) -> Option<bool> {
        self.parse(name, "true or false")
    }

    pub(super) fn number<T: FromStr + PartialOrd>(
        &self,
        name: &'static str,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Option<T> {
        let number = self.parse(name, expected)?;
        if range.contains(&number) {
            Some(number)
        } else {
            self.bad(name, expected)
        }
    }

    pub(super) fn duration(&self, name: &'static str) -> Option<Duration> {
        match humantime::parse_duration(self.value(name).trim()) {
            Ok(duration) if !duration.is_zero() => Some(duration),
            Ok(_) | Err(_) => self.bad(name, DURATION_EXPECTED),
        }
    }

    /// `localhost` is 127.0.0.1. No other name is looked up: what it means could change between two
    /// starts.
    pub(super) fn address(&self, name: &'static str) -> Option<SocketAddr> {
        self.address_in(name, &self.value(name))
    }

    /// As [`Source::address`]; `Some(None)` where none is set.
    pub(super) fn optional_address(&self, name: &'static str) -> Option<Option<SocketAddr>> {
        match self.optional(name) {
            None => Some(None),
            Some(value) => self.address_in(name, &value).map(Some),
        }
    }

    fn address_in(&self, name: &'static str, value: &str) -> Option<SocketAddr> {
        let value = value.trim();
        let local = value
            .split_once(':')
            .filter(|(host, _)| host.eq_ignore_ascii_case("localhost"))
            .map(|(_, port)| format!("127.0.0.1:{port}"));
        match local.as_deref().unwrap_or(value).parse() {
            Ok(address) => Some(address),
            Err(_) => self.bad(name, ADDRESS_EXPECTED),
        }
    }
}
