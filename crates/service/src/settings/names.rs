//! Misspelled variables.
//!
//! A setting with a misspelled name would be ignored silently, and its default would apply. Only
//! near misses are refused, because an environment has many variables of other programs.

use strsim::osa_distance;

use super::{ConfigError, Source, Variable};

/// Names from this length on may differ by [`ALLOWED_MAX`] letters; shorter ones only by one.
const LONG_NAME: usize = 10;

/// Letters by which a name may differ from the one that was meant.
const ALLOWED_MAX: usize = 2;

impl Source<'_> {
    /// Records every one of `names`, which are set, that is nearly one of the `variables` which is
    /// itself unset. Only near misses are: an environment has many variables of other programs.
    pub fn check_names(&self, variables: &[Variable], names: impl Iterator<Item = String>) {
        let misspelled = names.filter_map(|name| Some((meant_by(self, variables, &name)?, name)));
        let mut misspelled: Vec<_> = misspelled.collect();
        misspelled.sort();
        for (meant, name) in misspelled {
            self.record(ConfigError::Name { name, meant });
        }
    }
}

fn meant_by(source: &Source<'_>, variables: &[Variable], name: &str) -> Option<&'static str> {
    let upper = name.to_uppercase();
    let letters = upper.chars().count();
    let candidates = variables.iter().map(|variable| variable.name);
    // Names whose lengths differ by more can't be near. This spares most comparisons.
    let is_near = |known: &&str| known.len().abs_diff(letters) <= ALLOWED_MAX;
    let (distance, meant) = candidates
        .filter(is_near)
        .map(|known| (osa_distance(&upper, known), known))
        .min()?;
    let allowed = match meant.len() {
        ..LONG_NAME => 1,
        LONG_NAME.. => ALLOWED_MAX,
    };
    // The name itself, and one whose neighbor is set: that neighbor wasn't misspelled.
    let is_other = name == meant || source.text(meant).is_some();
    (distance <= allowed && !is_other).then_some(meant)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    const NAMES: [&str; 8] = [
        "RATE_LIMIT",
        "WORKERS",
        "DATABASE_URL",
        "DATA_DIR",
        "IDEMPOTENCY_TTL",
        "BIND_ADDRESS",
        "PROCESSOR_URL",
        "LOG_FORMAT",
    ];

    fn misspelled(names: &[&str], set: &[&str]) -> Vec<(String, &'static str)> {
        let lookup = |name: &str| set.contains(&name).then(|| "set".to_owned());
        let source = Source::new(&lookup);
        let variables = NAMES.map(|name| Variable {
            topic: "",
            name,
            default: None,
            about: "",
        });
        let names = names.iter().map(|name| (*name).to_owned());
        source.check_names(&variables, names);
        let errors = source
            .finish(())
            .map_or_else(|errors| errors.0, |()| vec![]);
        let named = errors.into_iter().map(|error| match error {
            ConfigError::Name { name, meant } => (name, meant),
            ConfigError::Value { variable, .. } => (String::new(), variable),
        });
        named.collect()
    }

    #[test]
    fn a_near_miss_of_a_variable_that_is_unset_is_named() {
        for (name, meant) in [
            ("RATE_LIMITT", "RATE_LIMIT"),
            ("rate_limit", "RATE_LIMIT"),
            ("WORKER", "WORKERS"),
            ("DATABSE_URL", "DATABASE_URL"),
            ("DATA_BASE_URL", "DATABASE_URL"),
            ("IDEMPOTENCY_TLL", "IDEMPOTENCY_TTL"),
            ("BIND_ADRESS", "BIND_ADDRESS"),
            ("PROCESSOR-URL", "PROCESSOR_URL"),
        ] {
            assert_eq!(misspelled(&[name], &[]), [(name.to_owned(), meant)]);
            assert_eq!(misspelled(&[name], &[meant]), [], "{meant} is set");
        }
    }

    #[test]
    fn a_strange_environment_is_no_concern() {
        let strange = [
            "PATH",
            "HOME",
            "PGDATA",
            "DATABASE",
            "DATA",
            "LOG_LEVEL",
            "LIMIT",
            "API_KEY",
            "",
        ];
        assert_eq!(misspelled(&strange, &[]), []);
        assert_eq!(misspelled(&NAMES, &[]), []);
    }
}
