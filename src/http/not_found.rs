//! The reply where there is no route.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use utoipa::openapi::path::PathItem;

use super::{error::HttpError, openapi};
use crate::api::error::{ApiError, ErrorCode};

/// A path of the API and the methods that it has.
struct KnownRoute {
    /// As the document writes it: `/charges/{id}`.
    pattern: String,
    methods: String,
}

static KNOWN_ROUTES: LazyLock<Vec<KnownRoute>> = LazyLock::new(|| {
    let paths = openapi::document().paths.paths;
    // Most servers don't have the routes for tests of retries.
    let paths = paths.into_iter();
    let paths = paths.filter(|(pattern, _)| !pattern.starts_with("/test/"));
    let known = paths.map(|(pattern, item)| KnownRoute {
        pattern,
        methods: methods(&item),
    });
    known.collect()
});

fn methods(item: &PathItem) -> String {
    let methods = [
        ("GET", item.get.is_some()),
        ("POST", item.post.is_some()),
        ("PUT", item.put.is_some()),
        ("DELETE", item.delete.is_some()),
    ];
    let present = methods.into_iter().filter(|(_, is_there)| *is_there);
    let names: Vec<_> = present.map(|(name, _)| name).collect();
    names.join(", ")
}

/// How alike a path must be to a route that is worth naming, from 0 to 1.
const LIKENESS_MIN: f64 = 0.6;

/// Longest path that is compared, in bytes. The time grows with the square of the length: a path of
/// 16 kB takes more than eight seconds, and strangers may send one.
const COMPARED_MAX_BYTES: usize = 200;

/// 404. The message names the nearest route by its pattern: the path may hold anything.
pub(super) async fn route_not_found(request: HttpRequest) -> Result<HttpResponse, HttpError> {
    let path = request.path();
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let message = match nearest(path) {
        None => "There is nothing at this path. GET / lists where to begin.".to_owned(),
        Some(KnownRoute { pattern, methods }) => {
            format!("There is nothing at this path. The nearest route is {methods} {pattern}.")
        }
    };
    Err(ApiError::new(ErrorCode::RouteNotFound, message).into())
}

fn nearest(path: &str) -> Option<&'static KnownRoute> {
    if path.len() > COMPARED_MAX_BYTES {
        return None;
    }
    let scored = KNOWN_ROUTES
        .iter()
        .map(|route| (likeness(path, &route.pattern), route));
    let likely = scored.filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    let best = likely.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map(|(_, route)| route)
}

/// How alike a path is to a route. A segment that stands for a name is like every other.
fn likeness(path: &str, pattern: &str) -> f64 {
    let mut given = path.split('/');
    let filled = pattern.split('/').map(|segment| match given.next() {
        Some(any) if segment.starts_with('{') && !any.is_empty() => any,
        Some(_) | None => segment,
    });
    let filled: Vec<_> = filled.collect();
    strsim::normalized_damerau_levenshtein(path, &filled.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_route_is_found_by_its_pattern() {
        for (path, pattern) in [
            ("/charge", Some("/charges")),
            ("/payments", None),
            ("/charges/ch_1/captures", Some("/charges/{id}/capture")),
            ("/order/or_1/pay", Some("/orders/{id}/pay")),
            ("/webhook-endpoints", Some("/webhook_endpoints")),
            ("/idempotency_keys/key-1", Some("/idempotency-keys/{key}")),
            ("/charges/", Some("/charges")),
            ("/", None),
            ("/a/b/c/d", None),
        ] {
            let found = nearest(path).map(|route| route.pattern.as_str());
            assert_eq!(found, pattern, "{path}");
        }
    }

    /// It begins like a route. To compare it would take the test minutes.
    #[test]
    fn a_long_path_is_like_no_route() {
        let path = format!("/charge/{}", "x".repeat(60_000));
        assert!(nearest(&path).is_none());
    }
}
