//! What holds for the keys of each route: how long they are kept, and whether replies show secrets.
//!
//! Promise: what differs from other routes is declared once, beside the handler, in its
//! `x-idempotency`: `keys_for`, how many seconds its keys are kept, and `secret`, whether its reply
//! shows what the client can't read again. The operator's times come first. A client can't have a
//! key forgotten while it may still retry, or kept for longer than the operator wants. What it gets
//! is in `Idempotency-Expires`, and a replay changes none of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use actix_web::http::header::HeaderMap;
use charge_once_service::edge::{self, KnownRoute, KnownRoutes};

use utoipa::openapi::{OpenApi, path::Operation};

use super::keyed_operations::with_keys;
use crate::config::{RouteTimes, TTL_MIN, Values};

/// The extension of an operation, and of the document.
pub(super) const EXTENSION: &str = "x-idempotency";

/// The times of keys at one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTimes {
    /// Without a preference.
    pub usual: Duration,
    /// The least that a client can ask for: a minute, in which it may retry, unless all keys of the
    /// route are kept for less.
    pub least: Duration,
    /// The most: `IDEMPOTENCY_TTL_MAX`, unless all keys of the route are kept for longer.
    pub most: Duration,
}

impl KeyTimes {
    /// That of a route, such as `POST` and `/orders/{id}/pay`, whose handler declares `keys_for`:
    /// the operator's word comes first, and so do the operator's bounds.
    pub fn of(values: &Values, (method, path): (&str, &str), keys_for: Option<Duration>) -> Self {
        let by_route = values.ttl_by_route.as_ref();
        let own = by_route.and_then(|times| times.of(method, path));
        let most = values.idempotency_ttl_max.max(values.idempotency_ttl);
        let declared = keys_for.map(|time| time.min(most));
        Self::around(values, own.or(declared).unwrap_or(values.idempotency_ttl))
    }

    /// That of routes whose keys are kept for `usual`.
    pub fn around(values: &Values, usual: Duration) -> Self {
        Self {
            usual,
            least: TTL_MIN.min(usual),
            most: values.idempotency_ttl_max.max(usual),
        }
    }

    /// What a client asks for by `Prefer: retain=N`, within the bounds.
    pub fn preferred(self, headers: &HeaderMap) -> Option<Duration> {
        let asked = edge::preferred_retention(headers)?;
        Some(asked.clamp(self.least, self.most))
    }
}

/// What holds for the keys of an operation.
#[derive(Debug, Clone, Copy)]
pub struct KeyRules {
    /// How long they are kept.
    pub times: KeyTimes,
    /// Whether the reply shows a secret, so that the record is sealed where any is. Only what is
    /// one transaction may say so: another process can't complete what is sealed.
    pub shows_secret: bool,
}

impl KeyRules {
    pub(super) fn of(values: &Values, (method, path): (&str, &str), operation: &Operation) -> Self {
        let declared = operation.extensions.as_ref();
        let declared = declared.and_then(|extensions| extensions.get(EXTENSION));
        let declared = |name: &str| declared.and_then(|declared| declared.get(name));
        let keys_for = declared("keys_for").and_then(serde_json::Value::as_u64);
        let keys_for = keys_for.map(Duration::from_secs);
        Self {
            times: KeyTimes::of(values, (method, path), keys_for),
            shows_secret: declared("secret").is_some_and(|is| is == true),
        }
    }
}

/// The rules of each operation that takes a key.
#[derive(Debug)]
pub struct KeyedRoutes {
    by_path: HashMap<String, HashMap<&'static str, KeyRules>>,
    others: KeyRules,
}

impl KeyedRoutes {
    /// Those of this document, on a server with these settings.
    pub fn of(values: &Values, document: &mut OpenApi) -> Self {
        let mut by_path = HashMap::<_, HashMap<_, _>>::new();
        for (method, path, operation) in with_keys(document) {
            let rules = KeyRules::of(values, (method, path), operation);
            let of_path = by_path.entry(path.to_owned()).or_default();
            of_path.insert(method, rules);
        }
        let others = KeyRules {
            times: KeyTimes::around(values, values.idempotency_ttl),
            // Nothing has said that it doesn't.
            shows_secret: true,
        };
        Self { by_path, others }
    }

    /// Those of a route, such as `POST` and `/orders/{id}/pay`.
    pub fn rules(&self, method: &str, path: &str) -> KeyRules {
        let of_path = self.by_path.get(path);
        let rules = of_path.and_then(|of_path| of_path.get(method));
        *rules.unwrap_or(&self.others)
    }

    /// The longest that any route keeps its keys without a preference.
    pub fn longest(&self) -> Duration {
        let rules = self.by_path.values().flat_map(HashMap::values);
        let usual = rules.map(|rules| rules.times.usual);
        usual.fold(self.others.times.usual, Duration::max)
    }
}

/// What `IDEMPOTENCY_TTL_BY_ROUTE` must be, where it names a route that takes no key in this
/// document.
pub fn unknown_route(times: &RouteTimes, document: &mut OpenApi) -> Option<String> {
    let routes = routes_with_keys(document);
    let is_known = |(method, path): (&str, &str)| {
        let known = routes.get(path);
        known.is_some_and(|known| known.methods.split(", ").any(|known| known == method))
    };
    let named = times.iter().filter_map(|(route, _)| route.split_once(' '));
    let unknown = named
        .filter(|route| !is_known(*route))
        .map(|(_, path)| path);
    let nearest = unknown.map(|path| routes.nearest(path)).next()?;
    let meant = nearest.map(|KnownRoute { pattern, methods }| {
        let method = methods.split(", ").next().unwrap_or_default();
        format!("; did you mean {method} {pattern}?")
    });
    Some(format!(
        "routes that take an idempotency key{}",
        meant
            .as_deref()
            .unwrap_or(", such as POST /refunds and POST /test/*")
    ))
}

/// The paths that take a key, and what is below each path, with their methods.
fn routes_with_keys(document: &mut OpenApi) -> KnownRoutes {
    let mut routes = BTreeMap::<String, BTreeSet<&str>>::new();
    for (method, path, _) in with_keys(document) {
        let slashes = path.match_indices('/').filter(|(at, _)| *at > 0);
        let above = slashes.filter_map(|(at, _)| path.get(..=at));
        let above: Vec<_> = above.map(|above| format!("{above}*")).collect();
        for pattern in above.into_iter().chain([path.to_owned(), "/*".to_owned()]) {
            routes.entry(pattern).or_default().insert(method);
        }
    }
    let known = routes.into_iter().map(|(pattern, methods)| KnownRoute {
        pattern,
        // In reverse: POST comes first.
        methods: methods.into_iter().rev().collect::<Vec<_>>().join(", "),
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use crate::config::Config;

    fn values(variables: &[(&str, &str)]) -> Values {
        let config = Config::from_lookup(|name| {
            let mut set = variables.iter();
            let found = set.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        config.unwrap().values
    }

    fn unknown(values: &Values) -> Option<String> {
        let document = &mut crate::http::openapi::usual();
        unknown_route(values.ttl_by_route.as_ref().unwrap(), document)
    }

    #[test]
    fn a_route_is_kept_by_its_own_time_or_by_that_of_the_longest_path_above_it() {
        let hour = Duration::from_secs(3600);
        let named = "POST /refunds=7d, POST /*=3h, POST /test/*=1h,POST /orders/*=2h, \
                     POST /orders/{id}/pay=4h";
        let values = values(&[("IDEMPOTENCY_TTL_BY_ROUTE", named)]);
        assert_eq!(unknown(&values), None);
        for (method, path, hours) in [
            ("POST", "/refunds", 7 * 24),
            ("POST", "/refunds/{id}", 3),
            ("POST", "/test/accounts", 1),
            ("POST", "/orders", 3),
            ("POST", "/orders/{id}", 2),
            ("POST", "/orders/{id}/pay", 4),
            ("PUT", "/inventory/{sku}", 24),
            ("DELETE", "/customers/{id}", 24),
        ] {
            let usual = KeyTimes::of(&values, (method, path), None).usual;
            assert_eq!(usual, hour * hours, "{method} {path}");
        }
        let routes = KeyedRoutes::of(&values, &mut crate::http::openapi::usual());
        assert_eq!(routes.longest(), hour * 7 * 24);
    }

    #[test]
    fn a_time_that_a_handler_declares_is_the_usual_one_but_for_the_operator_s() {
        let hour = Duration::from_secs(3600);
        let of = |values: &Values| {
            let routes = KeyedRoutes::of(values, &mut crate::http::openapi::usual());
            let rules = routes.rules("POST", "/test/accounts");
            assert!(rules.shows_secret);
            rules.times.usual
        };
        assert_eq!(of(&values(&[])), hour);
        assert_eq!(of(&values(&[("IDEMPOTENCY_TTL", "7d")])), hour);
        let named = [("IDEMPOTENCY_TTL_BY_ROUTE", "POST /test/*=2h")];
        assert_eq!(of(&values(&named)), hour * 2);
        let short = [("IDEMPOTENCY_TTL", "5m"), ("IDEMPOTENCY_TTL_MAX", "10m")];
        assert_eq!(of(&values(&short)), hour / 6);
    }

    /// A misspelled declaration would leave a secret open.
    #[test]
    fn handlers_declare_nothing_that_is_not_known() {
        let document = &mut crate::http::openapi::usual();
        let mut secrets = Vec::new();
        for (method, path, operation) in with_keys(document) {
            let extensions = operation.extensions.as_ref().unwrap();
            let declared = extensions["x-idempotency"].as_object().unwrap();
            for (name, value) in declared {
                let is_known = match &**name {
                    "key" => value == "required" || value == "optional",
                    "keys_for" => value.is_u64(),
                    "retention" => value.is_object(),
                    "secret" => value.is_boolean(),
                    _ => false,
                };
                assert!(is_known, "{method} {path}: {name} = {value}");
            }
            if declared.contains_key("secret") {
                secrets.push(path.to_owned());
            }
        }
        secrets.sort();
        let expected = [
            "/idempotency-keys/{key}/abandon",
            "/test/accounts",
            "/webhook_endpoints",
        ];
        assert_eq!(secrets, expected);
    }

    #[test]
    fn a_misspelled_route_is_told_with_the_nearest() {
        let such = ", such as POST /refunds and POST /test/*";
        for (named, meant) in [
            ("POST /refund=7d", "; did you mean POST /refunds?"),
            ("post /refunds=7d", "; did you mean POST /refunds?"),
            ("POST /tests/*=7d", "; did you mean POST /test/*?"),
            (
                "POST /inventory/{sku}=7d",
                "; did you mean PUT /inventory/{sku}?",
            ),
            (
                "POST /charges=1d,POST /order/{id}/pay=7d",
                "; did you mean POST /orders/{id}/pay?",
            ),
            ("GET /readyz=7d", such),
            ("POST /v1/refunds=7d", such),
        ] {
            let values = values(&[("IDEMPOTENCY_TTL_BY_ROUTE", named)]);
            let told = unknown(&values);
            let expected = format!("routes that take an idempotency key{meant}");
            assert_eq!(told, Some(expected), "{named}");
        }
    }

    #[test]
    fn the_bounds_never_shorten_what_is_configured() {
        let day = Duration::from_secs(86_400);
        let bounds = |variables: &[(&str, &str)]| {
            let values = values(variables);
            let KeyTimes { least, most, .. } = KeyTimes::of(&values, ("POST", "/orders"), None);
            (least, most)
        };
        assert_eq!(bounds(&[]), (TTL_MIN, 30 * day));
        let long = [("IDEMPOTENCY_TTL", "90d")];
        assert_eq!(bounds(&long), (TTL_MIN, 90 * day));
        let short = [("IDEMPOTENCY_TTL", "2s"), ("ALLOW_SHORT_TTL", "true")];
        assert_eq!(bounds(&short), (Duration::from_secs(2), 30 * day));
        assert_eq!(bounds(&[("IDEMPOTENCY_TTL_MAX", "1s")]), (TTL_MIN, day));
    }
}
