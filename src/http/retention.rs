//! How long a key is kept: by its route, and by what its client would rather have.
//!
//! Promise: a client can't have a key forgotten while it may still retry, or kept for longer than
//! the operator wants. What it gets is in `Idempotency-Expires`, and a replay changes none of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use actix_web::http::header::HeaderMap;
use charge_once_service::edge::{self, KnownRoute, KnownRoutes};

use utoipa::openapi::OpenApi;

use super::keyed_operations::with_keys;
use crate::config::{RouteTimes, TTL_MIN, Values};

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
    /// That of a route, such as `POST` and `/orders/{id}/pay`.
    pub fn of(values: &Values, method: &str, path: &str) -> Self {
        let by_route = values.ttl_by_route.as_ref();
        let own = by_route.and_then(|times| times.of(method, path));
        Self::around(values, own.unwrap_or(values.idempotency_ttl))
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

/// The longest that any route keeps its keys without a preference.
pub fn longest(values: &Values) -> Duration {
    let by_route = values.ttl_by_route.iter().flat_map(RouteTimes::iter);
    let by_route = by_route.map(|(_, time)| time);
    by_route.fold(values.idempotency_ttl, Duration::max)
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
            let usual = KeyTimes::of(&values, method, path).usual;
            assert_eq!(usual, hour * hours, "{method} {path}");
        }
        assert_eq!(longest(&values), hour * 7 * 24);
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
            let KeyTimes { least, most, .. } = KeyTimes::of(&values(variables), "POST", "/orders");
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
