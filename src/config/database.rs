//! Which PostgreSQL, and the key that its account `dev` has.

use std::path::PathBuf;

use charge_once_embedded_postgres::Settings;

use super::source::Source;
use crate::{database::embedded, domain::api_key};

/// The key that the account of a private PostgreSQL has unless `DEV_API_KEY` sets another.
pub const DEFAULT_DEV_API_KEY: &str = "sk_test_charge_once_dev";

/// Which PostgreSQL to use.
#[derive(Debug, Clone)]
pub enum DatabaseLocation {
    /// A server that others run.
    Url(String),
    /// A private one, which this process runs.
    Embedded(Box<Settings>),
}

/// The API's: `DATABASE_URL`, or a private one in `DATA_DIR`.
pub(super) fn location(source: &Source<'_>) -> Option<DatabaseLocation> {
    read(source, "DATABASE_URL", "DATA_DIR", embedded::settings)
}

/// The one of `charge-once processor`.
pub(super) fn processor_location(source: &Source<'_>) -> Option<DatabaseLocation> {
    let settings = embedded::processor_settings;
    read(
        source,
        "PROCESSOR_DATABASE_URL",
        "PROCESSOR_DATA_DIR",
        settings,
    )
}

fn read(
    source: &Source<'_>,
    url: &'static str,
    data_dir: &'static str,
    settings: fn(PathBuf, Option<PathBuf>) -> Settings,
) -> Option<DatabaseLocation> {
    match source.optional(url) {
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Some(DatabaseLocation::Url(url))
        }
        Some(_) => source.bad(
            url,
            "a URL such as postgres://user:password@host:5432/database",
        ),
        None => {
            let bin_dir = source.optional("PG_BIN_DIR").map(PathBuf::from);
            let data_dir = PathBuf::from(source.value(data_dir));
            let settings = Box::new(settings(data_dir, bin_dir));
            Some(DatabaseLocation::Embedded(settings))
        }
    }
}

/// The key of the account `dev`; `Some(None)` where there is to be none.
#[allow(clippy::option_option, reason = "the outer one says that it is usable")]
pub(super) fn dev_api_key(
    source: &Source<'_>,
    database: Option<&DatabaseLocation>,
) -> Option<Option<String>> {
    match (source.optional("DEV_API_KEY"), database?) {
        (Some(key), _) if api_key::has_shape(&key) => Some(Some(key)),
        (Some(_), _) => source.bad(
            "DEV_API_KEY",
            "sk_test_ followed by 8 to 200 letters, digits and underscores",
        ),
        (None, DatabaseLocation::Embedded(_)) => Some(Some(DEFAULT_DEV_API_KEY.to_owned())),
        // A known key in a shared database would be an open door.
        (None, DatabaseLocation::Url(_)) => Some(None),
    }
}
