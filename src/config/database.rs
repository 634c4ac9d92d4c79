//! Which PostgreSQL, and the key that its account `dev` has.

use std::path::PathBuf;

use charge_once_postgres::database::shards::ShardUrl;
use charge_once_postgres::embedded::{DatabaseLocation, EmbeddedSettings};
use charge_once_service::settings::{Optional, Setting, Source};

use super::variables::{DEV_API_KEY, PG_BIN_DIR, SHARD_URLS};

/// The key that the account of a private PostgreSQL has unless `DEV_API_KEY` sets another.
pub const DEFAULT_DEV_API_KEY: &str = "sk_test_ChargeOnceDevelopmentKey00";

/// The default key of releases up to 0.2. Everyone knows it too.
pub const FORMER_DEV_API_KEY: &str = "sk_test_charge_once_dev";

/// At `url`, or a private one in `data_dir`.
pub(super) fn location(
    source: &Source<'_>,
    url: &Optional<String>,
    data_dir: &Setting<PathBuf>,
    settings: fn(PathBuf, Option<PathBuf>) -> EmbeddedSettings,
) -> DatabaseLocation {
    match source.optional(url) {
        Some(url) => DatabaseLocation::Url(url),
        None => {
            let bin_dir = source.optional(&PG_BIN_DIR);
            let settings = Box::new(settings(source.read(data_dir), bin_dir));
            DatabaseLocation::Embedded(settings)
        }
    }
}

/// The databases beside it.
pub(super) fn shards(source: &Source<'_>, first: &DatabaseLocation) -> Vec<ShardUrl> {
    let shards = source.optional(&SHARD_URLS).unwrap_or_default();
    if let (DatabaseLocation::Embedded(_), [_, ..]) = (first, &*shards) {
        let expected = "unset where DATABASE_URL is: a private PostgreSQL is no shard";
        source.bad(SHARD_URLS.name, expected);
    }
    shards
}

/// The key of the account `dev`, if there is to be one.
pub(super) fn dev_api_key(source: &Source<'_>, database: &DatabaseLocation) -> Option<String> {
    source.optional(&DEV_API_KEY).or_else(|| match database {
        DatabaseLocation::Embedded(_) => Some(DEFAULT_DEV_API_KEY.to_owned()),
        // A known key in a shared database would be an open door.
        DatabaseLocation::Url(_) => None,
    })
}
