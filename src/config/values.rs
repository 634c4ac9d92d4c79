//! What the values of variables look like: each function makes a value of a text, or says what the
//! text must be.

use std::{
    fmt::Display, net::SocketAddr, num::NonZeroU64, ops::RangeInclusive, path::PathBuf,
    str::FromStr, thread::available_parallelism, time::Duration,
};

use bytesize::ByteSize;
use charge_once_connections::{Host, parse_host};
use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use tracing_subscriber::EnvFilter;

use crate::domain::api_key::API_KEY;

type Parsed<T> = Result<T, String>;

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

pub(super) fn truth(text: &str) -> Parsed<bool> {
    one_of(text, &[("true", true), ("false", false)])
}

pub(super) fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> Parsed<T> {
    let found = values.iter().find(|(name, _)| *name == text.trim());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        names.join(" or ")
    })
}

pub(super) fn number<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Parsed<T> {
    let number = text.trim().parse().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

pub(super) fn count<T: FromStr + PartialOrd + Display>(
    text: &str,
    what: &str,
    range: RangeInclusive<T>,
) -> Parsed<T> {
    let (least, most) = (range.start().to_string(), range.end().to_string());
    number(text, range).map_err(|_| format!("a number of {what}, {least} to {most}"))
}

pub(super) fn duration(text: &str) -> Parsed<Duration> {
    humantime::parse_duration(text.trim())
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "a duration such as 90s, 250ms or 24h, longer than zero".to_owned())
}

pub(super) fn at_most(text: &str, most: &str) -> Parsed<Duration> {
    let duration = duration(text)?;
    match humantime::parse_duration(most) {
        Ok(longest) if duration <= longest => Ok(duration),
        Ok(_) | Err(_) => Err(format!("at most {most}")),
    }
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

/// `localhost` is 127.0.0.1. No other name is looked up: what it means could change between two
/// starts.
pub(super) fn address(text: &str) -> Parsed<SocketAddr> {
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

pub(super) fn hosts(text: &str) -> Parsed<Vec<Host>> {
    let names = text.split(',').map(str::trim);
    let hosts = names.map(|name| parse_host(name).filter(|_| !name.contains('*')));
    hosts.collect::<Option<_>>().ok_or_else(|| {
        "host names or IP addresses without ports and wildcards, with commas between them, such as \
         pay.example.com,[2001:db8::1]"
            .to_owned()
    })
}

pub(super) fn path(text: &str) -> Parsed<PathBuf> {
    Ok(text.into())
}

pub(super) fn name(text: &str) -> Parsed<String> {
    Ok(text.trim().to_owned())
}

pub(super) fn postgres_url(text: &str) -> Parsed<String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(text.to_owned());
    }
    Err("a URL such as postgres://user:password@host:5432/database".to_owned())
}

pub(super) fn api_key(text: &str) -> Parsed<String> {
    if API_KEY.fits(text) {
        return Ok(text.to_owned());
    }
    Err("sk_test_ followed by 8 to 200 letters, digits and underscores".to_owned())
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

pub(super) fn log_filter(text: &str) -> Parsed<String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a filter such as info or charge_once=debug".to_owned()),
    }
}

/// Where spans are posted: at `/v1/traces` of a collector.
pub(super) fn collector(text: &str) -> Parsed<String> {
    let url = Url::parse(text.trim()).ok().filter(|url| {
        let is_http = ["http", "https"].contains(&url.scheme());
        // A password in it would not be sent: OTEL_EXPORTER_OTLP_HEADERS is the way.
        let is_bare = url.username().is_empty() && url.password().is_none();
        is_http && is_bare && url.has_host() && url.query().is_none() && url.fragment().is_none()
    });
    match url {
        Some(url) => Ok(format!("{}/v1/traces", url.as_str().trim_end_matches('/'))),
        None => Err(
            "a collector's URL without user, password or /v1/traces, such as http://127.0.0.1:4318"
                .to_owned(),
        ),
    }
}

pub(super) fn protocol(text: &str) -> Parsed<()> {
    one_of(text, &[("http/protobuf", ())]).map_err(|known| {
        format!("{known}, the one protocol of charge-once: collectors take it at port 4318")
    })
}

pub(super) type Pairs = Vec<(String, String)>;

pub(super) fn headers(text: &str) -> Parsed<Pairs> {
    let pairs = pairs(text, "api-key=secret")?;
    let are_headers = pairs.iter().all(|(name, value)| {
        name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok()
    });
    if are_headers {
        return Ok(pairs);
    }
    Err("names of headers with their values, such as api-key=secret".to_owned())
}

pub(super) fn attributes(text: &str) -> Parsed<Pairs> {
    pairs(text, "deployment.environment.name=production")
}

/// `name=value` pairs with commas between them; values are percent-encoded.
fn pairs(text: &str, example: &str) -> Parsed<Pairs> {
    let pairs = text.split(',').map(str::trim);
    let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
    });
    pairs.collect::<Option<_>>().ok_or_else(|| {
        format!("pairs such as {example}, with commas between them and % escapes in values")
    })
}

/// Which traces are recorded.
pub(super) struct Sampler {
    /// `None`: OTEL_TRACES_SAMPLER_ARG says it.
    pub(super) share: Option<f64>,
    pub(super) follows_caller: bool,
}

pub(super) fn sampler(text: &str) -> Parsed<Sampler> {
    let text = text.trim();
    let own = text.strip_prefix("parentbased_");
    let share = match own.unwrap_or(text) {
        "always_on" => Some(1.0),
        "always_off" => Some(0.0),
        "traceidratio" => None,
        _ => {
            let expected =
                "always_on, always_off or traceidratio, or one of them with parentbased_ in front";
            return Err(expected.to_owned());
        }
    };
    Ok(Sampler {
        share,
        follows_caller: own.is_some(),
    })
}

pub(super) fn share(text: &str) -> Parsed<f64> {
    number(text, 0.0..=1.0).map_err(|expected| format!("{expected}, such as 0.05"))
}
