//! What the values of variables look like that no other program has: each function makes a value
//! of a text, or says what the text must be.

use std::{collections::BTreeMap, num::NonZeroU64, thread::available_parallelism, time::Duration};

use bytesize::ByteSize;
use charge_once_postgres::database::shards::{ShardUrl, parse_shard_urls};
use charge_once_service::settings::values::{Parsed, count, duration, number, one_of};
use reqwest::Url;

use crate::{domain::api_key::API_KEY, idempotency::SealSecrets};

/// PostgreSQL counts in microseconds. Longer is possible but a mistake: tables hold all of the
/// time.
const KEPT_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// Shorter, and a client that lists events would miss some between two looks.
const KEPT_MIN: Duration = Duration::from_secs(3600);

const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(30);

/// More is a slip: a million small replies take less than a gigabyte.
const REPLAY_CACHE_MAX: ByteSize = ByteSize::gib(64);

/// Most worker threads. Actix takes no more.
const WORKERS_MAX: usize = 512;

/// Longest PROCESSOR_NAME; one that is made of a URL is about as long as a host name may be.
const PROCESSOR_NAME_MAX_CHARS: usize = 255;

/// As RFC 3986 has them, in lower case (section 3.1).
pub(super) fn schemes(text: &str) -> Parsed<Vec<String>> {
    let is_of_a_scheme = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')
    };
    let schemes = text.split(',').map(str::trim).map(|scheme| {
        let begins = scheme.starts_with(|letter: char| letter.is_ascii_lowercase());
        (begins && scheme.bytes().all(is_of_a_scheme)).then(|| scheme.to_owned())
    });
    let schemes: Option<_> = schemes.collect();
    schemes
        .ok_or_else(|| "schemes in lower case without a colon, such as myapp,shop-app".to_owned())
}

/// The new one first, in the form that an environment variable can have.
pub(super) fn seal_secrets(text: &str) -> Parsed<SealSecrets> {
    SealSecrets::new(text.split(',').map(str::trim)).map_err(|_| {
        "secrets of 32 characters or more with commas between them; openssl rand -hex 32 makes one"
            .to_owned()
    })
}

/// Which requests may come without an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyModes {
    /// Whether the server assigns keys, by prefix of the path. The empty prefix is every path.
    prefixes: BTreeMap<String, bool>,
}

impl KeyModes {
    /// Whether a request for this path that has no key gets one: the longest prefix decides.
    pub fn assigns(&self, path: &str) -> bool {
        let is_below = |prefix: &str| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // A prefix sorts before what it is a prefix of.
        let mut longest_first = self.prefixes.iter().rev();
        longest_first
            .find(|(prefix, _)| is_below(prefix))
            .is_some_and(|(_, assigns)| *assigns)
    }

    /// Whether the server assigns keys, by prefix, the empty one included.
    pub fn by_prefix(&self) -> impl Iterator<Item = (&str, bool)> {
        let all = (!self.prefixes.contains_key("")).then_some(("", false));
        let listed = self.prefixes.iter();
        all.into_iter()
            .chain(listed.map(|(prefix, assigns)| (prefix.as_str(), *assigns)))
    }
}

/// `required` or `assign`, and other modes for paths below prefixes, in any order.
pub(super) fn key_modes(text: &str) -> Parsed<KeyModes> {
    let expected =
        || "required or assign, or with prefixes of paths: required,/v1=assign".to_owned();
    let mut prefixes = BTreeMap::new();
    for entry in text.split(',').map(str::trim) {
        let (prefix, mode) = match entry.split_once('=') {
            None => ("", entry),
            Some((path, mode)) if path.starts_with('/') && !path.ends_with('/') => (path, mode),
            Some(_) => return Err(expected()),
        };
        let assigns = match mode {
            "required" => false,
            "assign" => true,
            _ => return Err(expected()),
        };
        if prefixes.insert(prefix.to_owned(), assigns).is_some() {
            return Err(expected());
        }
    }
    Ok(KeyModes { prefixes })
}

/// How long keys are kept at routes that differ from the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTimes(BTreeMap<String, Duration>);

impl RouteTimes {
    /// The time of a route, such as `POST` and `/orders/{id}/pay`: its own, or that of the longest
    /// path before `/*` that it is below.
    pub fn of(&self, method: &str, path: &str) -> Option<Duration> {
        let route = format!("{method} {path}");
        let is_below = |named: &str| {
            named
                .strip_suffix('*')
                .is_some_and(|to| route.starts_with(to))
        };
        // A prefix sorts before what it is a prefix of.
        let mut longest_first = self.0.iter().rev();
        let found = self.0.get(&route);
        let found = found.or_else(|| Some(longest_first.find(|(named, _)| is_below(named))?.1));
        found.copied()
    }

    /// The routes, each as it is named, such as `POST /test/*`, with their times.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.0.iter().map(|(route, time)| (route.as_str(), *time))
    }
}

/// Methods, paths and times, in any order. Whether a route exists is asked where they are known.
pub(super) fn route_times(text: &str) -> Parsed<RouteTimes> {
    let read = |entry: &str| {
        let (route, time) = entry.split_once('=')?;
        let (method, path) = route.trim().split_once(' ')?;
        let is_route = path.starts_with('/') && !path.contains(' ');
        let route = is_route.then(|| format!("{method} {path}"))?;
        Some((route, days_400(time).ok()?))
    };
    let entries: Option<Vec<_>> = text.split(',').map(read).collect();
    let count = entries.as_ref().map(Vec::len);
    let times: BTreeMap<_, _> = entries.into_iter().flatten().collect();
    if count == Some(times.len()) {
        return Ok(RouteTimes(times));
    }
    Err(
        "routes with times up to 400d, each once, such as POST /refunds=7d,POST /test/*=1h"
            .to_owned(),
    )
}

pub(super) fn days_400(text: &str) -> Parsed<Duration> {
    let duration = duration(text)?;
    if duration > KEPT_MAX || !duration.subsec_nanos().is_multiple_of(1_000) {
        return Err("at most 400d, in whole microseconds".to_owned());
    }
    Ok(duration)
}

/// `None` keeps it for good.
pub(super) fn retention(text: &str) -> Parsed<Option<Duration>> {
    match humantime::parse_duration(text.trim()) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(kept) if kept >= KEPT_MIN => days_400(text).map(Some),
        Ok(_) | Err(_) => Err("a duration from 1h to 400d, or 0s".to_owned()),
    }
}

pub(super) fn in_flight_wait(text: &str) -> Parsed<Duration> {
    match humantime::parse_duration(text.trim()) {
        Ok(wait) if wait <= IN_FLIGHT_WAIT_MAX => Ok(wait),
        Ok(_) | Err(_) => Err("a duration from 0s to 30s".to_owned()),
    }
}

/// Scheme, host and port, without a slash at the end. Pages name their style by its path, so they
/// are not below one.
pub(super) fn public_url(text: &str) -> Parsed<String> {
    let expected = "an http or https URL without a path, such as https://pay.example.com";
    match Url::parse(text.trim()) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) => {
            let origin = url.origin().ascii_serialization();
            let has_more = url.as_str() != format!("{origin}/");
            (!has_more).then_some(origin).ok_or(expected.to_owned())
        }
        Ok(_) | Err(_) => Err(expected.to_owned()),
    }
}

pub(super) fn shard_urls(text: &str) -> Parsed<Vec<ShardUrl>> {
    parse_shard_urls(text).ok_or_else(|| {
        "at most 31 of name=postgres://user:password@host/database, where each name has 1 to 32 of a-z, 0-9, \
         - and _, and none is main or given twice"
            .to_owned()
    })
}

pub(super) fn api_key(text: &str) -> Parsed<String> {
    if API_KEY.fits(text) {
        return Ok(text.to_owned());
    }
    Err("sk_test_ or rk_test_, and 8 to 200 letters, digits and underscores".to_owned())
}

/// 0 keeps none.
pub(super) fn replay_cache(text: &str) -> Parsed<Option<NonZeroU64>> {
    match text.trim().parse::<ByteSize>() {
        Ok(size) if size <= REPLAY_CACHE_MAX => Ok(NonZeroU64::new(size.as_u64())),
        Ok(_) | Err(_) => Err("a size such as 32MiB, at most 64GiB, or 0".to_owned()),
    }
}

/// 0 is no limit.
pub(super) fn in_progress(text: &str) -> Parsed<usize> {
    let limit = count(text, "requests", 0..=1_000_000)?;
    Ok(if limit == 0 { usize::MAX } else { limit })
}

/// As many worker threads as there are cores, unless the variable says how many.
pub(super) fn workers(text: &str) -> Parsed<usize> {
    let asked = number(text, 0..=WORKERS_MAX)?;
    if asked > 0 {
        return Ok(asked);
    }
    let cores = available_parallelism().map_or(1, usize::from);
    Ok(cores.min(WORKERS_MAX))
}

/// Where the processor is, and the scheme, host and port of that.
pub(super) struct ProcessorUrl {
    pub(super) url: String,
    pub(super) origin: String,
}

pub(super) fn processor_url(text: &str) -> Parsed<ProcessorUrl> {
    match Url::parse(text) {
        Ok(parsed) if ["http", "https"].contains(&parsed.scheme()) => Ok(ProcessorUrl {
            url: text.to_owned(),
            origin: parsed.origin().ascii_serialization(),
        }),
        Ok(_) | Err(_) => Err("a URL such as http://processor:8081".to_owned()),
    }
}

pub(super) fn processor_name(text: &str) -> Parsed<String> {
    if text.chars().count() <= PROCESSOR_NAME_MAX_CHARS {
        return Ok(text.to_owned());
    }
    Err(format!("at most {PROCESSOR_NAME_MAX_CHARS} characters"))
}

pub(super) fn protocol(text: &str) -> Parsed<()> {
    one_of(text, &[("http/protobuf", ())]).map_err(|known| {
        format!("{known}, the one protocol of charge-once: collectors take it at port 4318")
    })
}
