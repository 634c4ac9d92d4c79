//! Where a database is, as its URL says.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::StartError;

/// What sqlx understands, besides `options[…]`. It passes over everything else.
const KNOWN: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Reads a URL. `schema` is the schema of the tables, as Prisma has it. Refuses what would have no
/// effect.
pub(super) fn options_of(url: &str) -> Result<PgConnectOptions, StartError> {
    let mut options = PgConnectOptions::from_str(url).map_err(StartError::Url)?;
    // sqlx would look the brackets of an IPv6 address up as a part of a name.
    let host = options.get_host();
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address.map(str::to_owned) {
        options = options.host(&address);
    }
    let parsed = Url::parse(url).map_err(|error| StartError::Url(sqlx::Error::config(error)))?;
    for (name, value) in parsed.query_pairs() {
        if name == "schema" {
            let schema = format!("\"{}\"", value.replace('"', "\"\""));
            options = options.options([("search_path", schema)]);
        } else if !KNOWN.contains(&&*name) && !name.starts_with("options[") {
            return Err(StartError::UnknownParameter(name.into_owned()));
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn every_part_of_a_url_has_its_effect_or_is_refused() {
        for (url, host, asked) in [
            ("postgres://u@[::1]:5433/b", "::1", None),
            ("postgres://u@10.0.0.1/b?sslmode=require", "10.0.0.1", None),
            (
                "postgres://h/b?schema=shop",
                "h",
                Some(r#"-c search_path="shop""#),
            ),
            (
                "postgres://h/b?schema=a%22+b",
                "h",
                Some(r#"-c search_path="a""\ b""#),
            ),
            (
                "postgres://h/b?options[search_path]=shop",
                "h",
                Some("-c search_path=shop"),
            ),
        ] {
            let options = options_of(url).unwrap();
            assert_eq!(options.get_host(), host, "{url}");
            assert_eq!(options.get_options(), asked, "{url}");
        }
        let told = options_of("postgres://h/b?schem=x")
            .unwrap_err()
            .to_string();
        assert!(told.contains("the parameter schem,"), "{told}");
    }
}
