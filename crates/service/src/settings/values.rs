//! What the values of variables look like: each function makes a value of a text, or says what the
//! text must be. The sentence follows "NAME must be".

use std::{
    fmt::Display, net::SocketAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration,
};

/// A value, or what the text must be.
pub type Parsed<T> = Result<T, String>;

/// `true` or `false`.
pub fn truth(text: &str) -> Parsed<bool> {
    one_of(text, &[("true", true), ("false", false)])
}

/// One of a few words.
pub fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> Parsed<T> {
    let found = values.iter().find(|(name, _)| *name == text.trim());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        names.join(" or ")
    })
}

/// A number in a range.
pub fn number<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Parsed<T> {
    let number = text.trim().parse().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

/// A number of something in a range.
pub fn count<T: FromStr + PartialOrd + Display>(
    text: &str,
    what: &str,
    range: RangeInclusive<T>,
) -> Parsed<T> {
    let (least, most) = (range.start().to_string(), range.end().to_string());
    number(text, range).map_err(|_| format!("a number of {what}, {least} to {most}"))
}

/// A duration with its unit, longer than zero.
pub fn duration(text: &str) -> Parsed<Duration> {
    humantime::parse_duration(text.trim())
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "a duration such as 90s, 250ms or 24h, longer than zero".to_owned())
}

/// A duration up to `most`, which is written as the variable's value would be.
pub fn at_most(text: &str, most: &str) -> Parsed<Duration> {
    let duration = duration(text)?;
    match humantime::parse_duration(most) {
        Ok(longest) if duration <= longest => Ok(duration),
        Ok(_) | Err(_) => Err(format!("at most {most}")),
    }
}

/// An IP address and a port. `localhost` is 127.0.0.1. No other name is looked up: what it means
/// could change between two starts.
pub fn address(text: &str) -> Parsed<SocketAddr> {
    let text = text.trim();
    let local = text
        .split_once(':')
        .filter(|(host, _)| host.eq_ignore_ascii_case("localhost"))
        .map(|(_, port)| format!("127.0.0.1:{port}"));
    local.as_deref().unwrap_or(text).parse().map_err(|_| {
        "an IP address or localhost, and a port, such as 127.0.0.1:8080 or localhost:8080"
            .to_owned()
    })
}

/// Any path, as it is.
pub fn path(text: &str) -> Parsed<PathBuf> {
    Ok(text.into())
}

/// Any text, without the space around it.
pub fn name(text: &str) -> Parsed<String> {
    Ok(text.trim().to_owned())
}

/// The URL of a PostgreSQL.
pub fn postgres_url(text: &str) -> Parsed<String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(text.to_owned());
    }
    Err("a URL such as postgres://user:password@host:5432/database".to_owned())
}
