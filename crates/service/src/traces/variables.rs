//! The settings from environment variables: for traces, the standard ones of OpenTelemetry.
//!
//! The application declares the variables, with its own texts and defaults, and the functions of
//! this module as what reads their values.

use std::io::IsTerminal;

use crate::settings::{
    ConfigError, Optional, Setting, Source,
    values::{Parsed, number},
};
use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use tracing_subscriber::EnvFilter;

use super::{Log, Sampling, TraceSettings};

/// The standard's variable for traces alone, with a whole URL.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The variables of OpenTelemetry, as the application declares them.
#[derive(Debug)]
pub struct Variables {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: [`collector`]
    pub endpoint: Optional<String>,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`, which can be `http/protobuf` alone.
    pub protocol: Setting<()>,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: [`headers`]
    pub headers: Optional<Pairs>,
    /// `OTEL_RESOURCE_ATTRIBUTES`: [`attributes`]
    pub attributes: Optional<Pairs>,
    /// `OTEL_SERVICE_NAME`
    pub service_name: Setting<String>,
    /// `OTEL_TRACES_SAMPLER`: [`sampler`]
    pub sampler: Setting<NamedSampler>,
    /// `OTEL_TRACES_SAMPLER_ARG`: [`share`]
    pub sampler_arg: Setting<f64>,
}

impl TraceSettings {
    /// `None` where none are sent. The other variables then belong to other programs.
    pub fn read(source: &Source<'_>, variables: &Variables) -> Option<Self> {
        let endpoint = variables.endpoint.name;
        if source.text(endpoint).is_none() {
            // Traces are wanted, and none would be sent.
            if source.text(TRACES_ENDPOINT).is_some() {
                source.record(ConfigError::Name {
                    name: TRACES_ENDPOINT.to_owned(),
                    meant: endpoint,
                });
            }
            return None;
        }
        let url = source.optional(&variables.endpoint);
        source.read(&variables.protocol);
        let headers = source.optional(&variables.headers);
        let attributes = source.optional(&variables.attributes).unwrap_or_default();
        let sampler = source.read(&variables.sampler);
        let share = sampler.share;
        let sampling = Sampling {
            share: share.unwrap_or_else(|| source.read(&variables.sampler_arg)),
            follows_caller: sampler.follows_caller,
        };
        let of_attributes = attributes.iter().find(|(name, _)| name == "service.name");
        let service_name = match (source.text(variables.service_name.name), of_attributes) {
            (None, Some((_, name))) => name.clone(),
            (_, _) => source.read(&variables.service_name),
        };
        Some(Self {
            url: url?,
            headers: headers.unwrap_or_default(),
            service_name,
            attributes,
            sampling,
        })
    }
}

impl Log {
    /// `filter` is read by [`log_filter`]. Where `format` is unset, lines are JSON unless standard
    /// error is a terminal.
    pub fn read(source: &Source<'_>, filter: &Setting<String>, format: &Optional<bool>) -> Self {
        let filter = source.read(filter);
        let json = source.optional(format);
        Self {
            filter,
            json: json.unwrap_or_else(|| !std::io::stderr().is_terminal()),
        }
    }
}

/// Where spans are posted: at `/v1/traces` of a collector.
pub fn collector(text: &str) -> Parsed<String> {
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

/// Names with their values.
pub type Pairs = Vec<(String, String)>;

/// Headers for the collector.
pub fn headers(text: &str) -> Parsed<Pairs> {
    let pairs = pairs(text, "api-key=secret")?;
    let is_header = |(name, value): &(String, String)| {
        name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok()
    };
    match pairs.iter().all(is_header) {
        true => Ok(pairs),
        false => Err("names of headers with their values, such as api-key=secret".to_owned()),
    }
}

/// What else is said of the process.
pub fn attributes(text: &str) -> Parsed<Pairs> {
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

/// A sampler by its standard name.
#[derive(Debug)]
pub struct NamedSampler {
    /// `None`: OTEL_TRACES_SAMPLER_ARG says it.
    share: Option<f64>,
    follows_caller: bool,
}

/// Which traces are recorded: the standard names.
pub fn sampler(text: &str) -> Parsed<NamedSampler> {
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
    Ok(NamedSampler {
        share,
        follows_caller: own.is_some(),
    })
}

/// The share of traces that are recorded.
pub fn share(text: &str) -> Parsed<f64> {
    number(text, 0.0..=1.0).map_err(|expected| format!("{expected}, such as 0.05"))
}

/// Which log lines are written, in the syntax of [`EnvFilter`]. `target` is an example.
pub fn log_filter(text: &str, target: &str) -> Parsed<String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("a filter such as info or {target}=debug")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use crate::settings::{
        ConfigErrors,
        values::{name, one_of},
    };

    use super::*;

    const fn optional<T>(name: &'static str, parse: fn(&str) -> Parsed<T>) -> Optional<T> {
        Optional { name, parse }
    }

    const fn setting<T>(
        name: &'static str,
        default: &'static str,
        parse: fn(&str) -> Parsed<T>,
    ) -> Setting<T> {
        Setting {
            name,
            default,
            parse,
        }
    }

    fn protocol(text: &str) -> Parsed<()> {
        one_of(text, &[("http/protobuf", ())])
    }

    const VARIABLES: Variables = Variables {
        endpoint: optional(ENDPOINT, collector),
        protocol: setting(PROTOCOL, "http/protobuf", protocol),
        headers: optional(HEADERS, headers),
        attributes: optional(ATTRIBUTES, attributes),
        service_name: setting(SERVICE_NAME, "shop", name),
        sampler: setting(SAMPLER, "parentbased_always_on", sampler),
        sampler_arg: setting(SAMPLER_ARG, "1.0", share),
    };

    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
    const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
    const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
    const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
    const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

    const COLLECTOR: (&str, &str) = (ENDPOINT, "http://127.0.0.1:4318");

    fn traces_of(variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, ConfigErrors> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let source = Source::new(&lookup);
        let traces = TraceSettings::read(&source, &VARIABLES);
        source.finish(traces)
    }

    #[test]
    fn without_an_endpoint_the_variables_are_those_of_other_programs() {
        assert!(traces_of(&[]).unwrap().is_none());
        let of_others = [(PROTOCOL, "grpc"), (SAMPLER, "xray"), (ENDPOINT, " ")];
        assert!(traces_of(&of_others).unwrap().is_none());
    }

    #[test]
    fn the_endpoint_for_traces_alone_is_not_passed_over() {
        let traces_only = (TRACES_ENDPOINT, "http://127.0.0.1:4318/v1/traces");
        let errors = traces_of(&[traces_only]).unwrap_err();
        let expected = "unknown variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; did you mean \
                        OTEL_EXPORTER_OTLP_ENDPOINT?";
        assert_eq!(errors.to_string(), expected);
        assert!(traces_of(&[traces_only, COLLECTOR]).unwrap().is_some());
    }

    #[test]
    fn spans_are_posted_below_the_endpoint() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (" http://c:4318/ ", "http://c:4318/v1/traces"),
            ("https://c.example/otlp", "https://c.example/otlp/v1/traces"),
        ] {
            let traces = traces_of(&[(ENDPOINT, endpoint)]).unwrap().unwrap();
            assert_eq!(traces.url, url);
        }
    }

    #[test]
    fn headers_and_attributes_are_pairs() {
        let given = [
            COLLECTOR,
            (HEADERS, "authorization=Basic%20dXNlcg==, tenant=shop"),
            (ATTRIBUTES, "service.name=pay,region=eu%2Cwest"),
        ];
        let traces = traces_of(&given).unwrap().unwrap();
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let headers = [("authorization", "Basic dXNlcg=="), ("tenant", "shop")];
        assert_eq!(traces.headers, headers.map(pair));
        let attributes = [("service.name", "pay"), ("region", "eu,west")];
        assert_eq!(traces.attributes, attributes.map(pair));
        assert_eq!(traces.service_name, "pay");
        let named = [given.as_slice(), &[(SERVICE_NAME, "cart")]].concat();
        assert_eq!(traces_of(&named).unwrap().unwrap().service_name, "cart");
        let named = traces_of(&[COLLECTOR]).unwrap().unwrap();
        assert_eq!(named.service_name, "shop");
    }

    #[test]
    fn the_samplers_have_their_standard_names() {
        for (sampler, share, follows_caller) in [
            ("", 1.0, true),
            ("always_on", 1.0, false),
            ("always_off", 0.0, false),
            ("traceidratio", 0.25, false),
            ("parentbased_always_on", 1.0, true),
            ("parentbased_always_off", 0.0, true),
            ("parentbased_traceidratio", 0.25, true),
        ] {
            let given = [COLLECTOR, (SAMPLER, sampler), (SAMPLER_ARG, "0.25")];
            let expected = Sampling {
                share,
                follows_caller,
            };
            assert_eq!(traces_of(&given).unwrap().unwrap().sampling, expected);
        }
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        for (variable, value) in [
            (ENDPOINT, "127.0.0.1:4318"),
            (ENDPOINT, "grpc://127.0.0.1:4317"),
            (ENDPOINT, "http://127.0.0.1:4318?tenant=1"),
            (ENDPOINT, "http://user:secret@127.0.0.1:4318"),
            (PROTOCOL, "grpc"),
            (PROTOCOL, "http/json"),
            (HEADERS, "authorization"),
            (HEADERS, "two words=1"),
            (HEADERS, "name=line%0Abreak"),
            (ATTRIBUTES, "=production"),
            (ATTRIBUTES, "name=%FF"),
            (SAMPLER, "jaeger_remote"),
            (SAMPLER_ARG, "1.5"),
            (SAMPLER_ARG, "NaN"),
            (SAMPLER_ARG, "5%"),
        ] {
            let sampler = match variable {
                SAMPLER => value,
                _ => "traceidratio",
            };
            let given = [(variable, value), COLLECTOR, (SAMPLER, sampler)];
            let errors = traces_of(&given).unwrap_err();
            let named: Vec<_> = errors.0.iter().map(|error| error.variable()).collect();
            assert_eq!(named, [variable], "{value}");
        }
    }
}
