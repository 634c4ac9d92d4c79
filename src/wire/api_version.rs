//! Versions of Stripe's API. Objects look the same in each: a version only says to an SDK which it
//! was made for.

use charge_once_strict_params::{
    TextKind,
    schema::{text, with_example},
};
use utoipa::openapi::schema::ObjectBuilder;

/// The version of events whose request named none: that of the SDKs that the tests run.
pub const API_VERSION_DEFAULT: &str = "2026-10-28.endive";

/// The header in which an SDK sends its version.
pub const STRIPE_VERSION: &str = "Stripe-Version";

/// The syntax of a version.
pub const API_VERSION_PATTERN: &str = "[0-9]{4}-[0-9]{2}-[0-9]{2}(\\.[a-z][a-z0-9_]{0,30})?";

/// What a refusal of another text says.
pub const MUST_BE_A_VERSION: &str =
    "Must be a version of Stripe's API, such as 2026-10-28.endive or 2024-04-10.";

/// A date and, since 2024, the name of a series of releases: `2026-10-28.endive`, `2024-04-10`.
pub struct ApiVersion;

impl TextKind for ApiVersion {
    type Value = String;
    const MUST_BE: &'static str = MUST_BE_A_VERSION;

    fn parse(text: &str) -> Option<String> {
        let (date, series) = match text.split_once('.') {
            Some((date, series)) => (date, Some(series)),
            None => (text, None),
        };
        let is_date = date.len() == "2026-10-28".len()
            && date.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        let is_series = |name: &str| {
            name.len() <= 31
                && name.starts_with(|first: char| first.is_ascii_lowercase())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        (is_date && series.is_none_or(is_series)).then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        let version = text().pattern(Some(format!("^{API_VERSION_PATTERN}$")));
        with_example(version, API_VERSION_DEFAULT)
    }
}

/// The version in a header, behind which an SDK may name features that it tries out:
/// `2026-10-28.preview; feature=v1`.
pub fn version_of_header(value: &str) -> Option<String> {
    let version = value.split_once(';').map_or(value, |(version, _)| version);
    ApiVersion::parse(version.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_date_and_perhaps_a_name() {
        for version in [
            API_VERSION_DEFAULT,
            "2024-04-10",
            "2011-01-01",
            "2026-01-28.preview",
        ] {
            assert_eq!(ApiVersion::parse(version).as_deref(), Some(version));
            assert_eq!(version_of_header(version).as_deref(), Some(version));
            let with_feature = format!("{version}; feature=v1; other=v2");
            assert_eq!(version_of_header(&with_feature).as_deref(), Some(version));
        }
        for wrong in [
            "",
            "latest",
            "2026-10-28.",
            "2026-10-28.Endive",
            "2026-10-28.endive.1",
            "2026-1-28",
            "2026-10-28T00",
            "2026-10-28.endive ",
            "２026-10-28",
            "2026-10-28.a234567890123456789012345678901x",
        ] {
            assert_eq!(ApiVersion::parse(wrong), None, "{wrong}");
        }
    }
}
