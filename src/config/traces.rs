//! Where traces go, by the standard variables of OpenTelemetry.

use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};

use super::source::{ConfigError, Source};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The standard's variable for traces alone, with a whole URL.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Where traces go, and which.
#[derive(Debug, Clone)]
pub struct Traces {
    /// Where spans are posted: `OTEL_EXPORTER_OTLP_ENDPOINT` and `/v1/traces`.
    pub url: String,
    /// `OTEL_EXPORTER_OTLP_HEADERS`
    pub headers: Vec<(String, String)>,
    /// `OTEL_SERVICE_NAME`
    pub service_name: String,
    /// `OTEL_RESOURCE_ATTRIBUTES`
    pub attributes: Vec<(String, String)>,
    /// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`
    pub sampling: Sampling,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The share of traces, from 0 to 1.
    pub share: f64,
    /// Whether a caller that sent its own decision is followed instead.
    pub follows_caller: bool,
}

impl Traces {
    /// `Some(None)` where none are sent. The other variables then belong to other programs.
    pub(super) fn read(source: &Source<'_>) -> Option<Option<Self>> {
        let Some(endpoint) = source.optional(ENDPOINT) else {
            // Traces are wanted, and none would be sent.
            if source.optional(TRACES_ENDPOINT).is_some() {
                source.record(ConfigError::Name {
                    name: TRACES_ENDPOINT.to_owned(),
                    meant: ENDPOINT,
                });
                return None;
            }
            return Some(None);
        };
        let url = url(source, &endpoint);
        let protocol = match source.value(PROTOCOL).trim() {
            "http/protobuf" => Some(()),
            _ => source.bad(
                PROTOCOL,
                "http/protobuf, the one protocol of charge-once: collectors take it at port 4318",
            ),
        };
        let headers = headers(source);
        let attributes = pairs(source, ATTRIBUTES, "deployment.environment.name=production");
        let sampling = sampling(source);
        protocol?;
        let attributes = attributes?;
        let of_attributes = attributes.iter().find(|(name, _)| name == "service.name");
        let service_name = match (source.optional(SERVICE_NAME), of_attributes) {
            (None, Some((_, name))) => name.clone(),
            (_, _) => source.value(SERVICE_NAME).trim().to_owned(),
        };
        Some(Some(Self {
            url: url?,
            headers: headers?,
            service_name,
            attributes,
            sampling: sampling?,
        }))
    }
}

fn url(source: &Source<'_>, endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint.trim()).ok().filter(|url| {
        let is_http = ["http", "https"].contains(&url.scheme());
        // A password in it would not be sent: OTEL_EXPORTER_OTLP_HEADERS is the way.
        let is_bare = url.username().is_empty() && url.password().is_none();
        is_http && is_bare && url.has_host() && url.query().is_none() && url.fragment().is_none()
    });
    match url {
        Some(url) => Some(format!("{}/v1/traces", url.as_str().trim_end_matches('/'))),
        None => source.bad(
            ENDPOINT,
            "a collector's URL without user, password or /v1/traces, such as http://127.0.0.1:4318",
        ),
    }
}

fn headers(source: &Source<'_>) -> Option<Vec<(String, String)>> {
    let pairs = pairs(source, HEADERS, "api-key=secret")?;
    let are_headers = pairs.iter().all(|(name, value)| {
        name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok()
    });
    if are_headers {
        Some(pairs)
    } else {
        source.bad(
            HEADERS,
            "names of headers with their values, such as api-key=secret",
        )
    }
}

/// `name=value` pairs with commas between them; values are percent-encoded.
fn pairs(
    source: &Source<'_>,
    variable: &'static str,
    example: &str,
) -> Option<Vec<(String, String)>> {
    let value = source.optional(variable).unwrap_or_default();
    let pairs = value.split(',').map(str::trim);
    let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
    });
    match pairs.collect() {
        Some(pairs) => Some(pairs),
        None => source.bad(
            variable,
            format!("pairs such as {example}, with commas between them and % escapes in values"),
        ),
    }
}

fn sampling(source: &Source<'_>) -> Option<Sampling> {
    let sampler = source.value(SAMPLER);
    let sampler = sampler.trim();
    let own = sampler.strip_prefix("parentbased_");
    let follows_caller = own.is_some();
    let share = match own.unwrap_or(sampler) {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => share(source)?,
        _ => {
            return source.bad(
                SAMPLER,
                "always_on, always_off or traceidratio, or one of them with parentbased_ in front",
            );
        }
    };
    Some(Sampling {
        share,
        follows_caller,
    })
}

fn share(source: &Source<'_>) -> Option<f64> {
    source.number(SAMPLER_ARG, 0.0..=1.0, "a number from 0 to 1, such as 0.05")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::{super::source::ConfigErrors, *};

    const COLLECTOR: (&str, &str) = (ENDPOINT, "http://127.0.0.1:4318");

    fn read(variables: &[(&str, &str)]) -> Result<Option<Traces>, ConfigErrors> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let source = Source::new(&lookup);
        let traces = Traces::read(&source);
        source.finish(traces)
    }

    #[test]
    fn without_an_endpoint_the_variables_are_those_of_other_programs() {
        assert!(read(&[]).unwrap().is_none());
        let of_others = [(PROTOCOL, "grpc"), (SAMPLER, "xray"), (ENDPOINT, " ")];
        assert!(read(&of_others).unwrap().is_none());
    }

    #[test]
    fn the_endpoint_for_traces_alone_is_not_passed_over() {
        let traces_only = (TRACES_ENDPOINT, "http://127.0.0.1:4318/v1/traces");
        let errors = read(&[traces_only]).unwrap_err();
        let expected = "unknown variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; did you mean \
                        OTEL_EXPORTER_OTLP_ENDPOINT?";
        assert_eq!(errors.to_string(), expected);
        assert!(read(&[traces_only, COLLECTOR]).unwrap().is_some());
    }

    #[test]
    fn spans_are_posted_below_the_endpoint() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (" http://c:4318/ ", "http://c:4318/v1/traces"),
            ("https://c.example/otlp", "https://c.example/otlp/v1/traces"),
        ] {
            let traces = read(&[(ENDPOINT, endpoint)]).unwrap().unwrap();
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
        let traces = read(&given).unwrap().unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            pair("authorization", "Basic dXNlcg=="),
            pair("tenant", "shop"),
        ];
        assert_eq!(traces.headers, headers);
        assert_eq!(traces.attributes.last(), Some(&pair("region", "eu,west")));
        assert_eq!(traces.service_name, "pay");
        let named = [given.as_slice(), &[(SERVICE_NAME, "shop")]].concat();
        assert_eq!(read(&named).unwrap().unwrap().service_name, "shop");
        let named = read(&[COLLECTOR]).unwrap().unwrap();
        assert_eq!(named.service_name, "charge-once");
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
            assert_eq!(read(&given).unwrap().unwrap().sampling, expected);
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
            let errors = read(&[(variable, value), COLLECTOR, (SAMPLER, sampler)]).unwrap_err();
            let named: Vec<_> = errors.0.iter().map(|error| error.variable()).collect();
            assert_eq!(named, [variable], "{value}");
        }
    }
}
