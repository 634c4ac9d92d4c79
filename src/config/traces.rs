//! Where traces go, by the standard variables of OpenTelemetry.

use charge_once_traces::{Sampling, Settings};

use super::{
    source::{ConfigError, Source},
    values::Sampler,
    variables::{
        OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_PROTOCOL,
        OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG,
    },
};

/// The standard's variable for traces alone, with a whole URL.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// `None` where none are sent. The other variables then belong to other programs.
pub(super) fn read(source: &Source<'_>) -> Option<Settings> {
    let endpoint = OTEL_EXPORTER_OTLP_ENDPOINT.name;
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
    let url = source.optional(&OTEL_EXPORTER_OTLP_ENDPOINT);
    source.read(&OTEL_EXPORTER_OTLP_PROTOCOL);
    let headers = source.optional(&OTEL_EXPORTER_OTLP_HEADERS);
    let attributes = source
        .optional(&OTEL_RESOURCE_ATTRIBUTES)
        .unwrap_or_default();
    let sampling = sampling(source);
    let of_attributes = attributes.iter().find(|(name, _)| name == "service.name");
    let service_name = match (source.text(OTEL_SERVICE_NAME.name), of_attributes) {
        (None, Some((_, name))) => name.clone(),
        (_, _) => source.read(&OTEL_SERVICE_NAME),
    };
    Some(Settings {
        url: url?,
        headers: headers.unwrap_or_default(),
        service_name,
        attributes,
        sampling,
    })
}

fn sampling(source: &Source<'_>) -> Sampling {
    let Sampler {
        share,
        follows_caller,
    } = source.read(&OTEL_TRACES_SAMPLER);
    Sampling {
        share: share.unwrap_or_else(|| source.read(&OTEL_TRACES_SAMPLER_ARG)),
        follows_caller,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::{super::source::ConfigErrors, *};

    const ENDPOINT: &str = OTEL_EXPORTER_OTLP_ENDPOINT.name;
    const HEADERS: &str = OTEL_EXPORTER_OTLP_HEADERS.name;
    const PROTOCOL: &str = OTEL_EXPORTER_OTLP_PROTOCOL.name;
    const SERVICE_NAME: &str = OTEL_SERVICE_NAME.name;
    const ATTRIBUTES: &str = OTEL_RESOURCE_ATTRIBUTES.name;
    const SAMPLER: &str = OTEL_TRACES_SAMPLER.name;
    const SAMPLER_ARG: &str = OTEL_TRACES_SAMPLER_ARG.name;

    const COLLECTOR: (&str, &str) = (ENDPOINT, "http://127.0.0.1:4318");

    fn traces_of(variables: &[(&str, &str)]) -> Result<Option<Settings>, ConfigErrors> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let source = Source::new(&lookup);
        let traces = read(&source);
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
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            pair("authorization", "Basic dXNlcg=="),
            pair("tenant", "shop"),
        ];
        assert_eq!(traces.headers, headers);
        assert_eq!(traces.attributes.last(), Some(&pair("region", "eu,west")));
        assert_eq!(traces.service_name, "pay");
        let named = [given.as_slice(), &[(SERVICE_NAME, "shop")]].concat();
        assert_eq!(traces_of(&named).unwrap().unwrap().service_name, "shop");
        let named = traces_of(&[COLLECTOR]).unwrap().unwrap();
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
            let errors =
                traces_of(&[(variable, value), COLLECTOR, (SAMPLER, sampler)]).unwrap_err();
            let named: Vec<_> = errors.0.iter().map(|error| error.variable()).collect();
            assert_eq!(named, [variable], "{value}");
        }
    }
}
