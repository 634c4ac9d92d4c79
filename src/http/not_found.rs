//! The reply where there is no route.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use utoipa::openapi::path::PathItem;

use super::{error::HttpError, openapi};
use crate::wire::error::{ApiError, ErrorCode};

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

/// How many letters of so many may differ between a path and a route that is worth naming.
const UNLIKE_MAX: (usize, usize) = (2, 5);

/// Longest path that is compared, in bytes; routes are shorter. The time grows with the square of
/// the length, and strangers may send any path.
const COMPARED_MAX_BYTES: usize = 64;

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
    let distances = candidates(path).filter_map(|candidate| {
        let letters = candidate.letters;
        let distances = candidate
            .constants
            .iter()
            .map(|(given, known)| strsim::damerau_levenshtein(given, known));
        let distance: usize = distances.sum();
        is_near(distance, letters).then_some((distance, letters, candidate.route))
    });
    // The shares of letters that differ, without fractions.
    let nearest =
        distances.min_by(|(one, of, _), (other, of_other, _)| (one * of_other).cmp(&(other * of)));
    nearest.map(|(_, _, route)| route)
}

fn is_near(distance: usize, letters: usize) -> bool {
    let (unlike, of) = UNLIKE_MAX;
    distance * of <= letters * unlike
}

/// A route that a path is compared with, letter by letter.
struct Candidate<'a> {
    route: &'static KnownRoute,
    /// What the path has where the route has constants. A segment that stands for a name is like
    /// every other.
    constants: Vec<(&'a str, &'static str)>,
    /// Letters of the longer one of each two.
    letters: usize,
}

/// The routes with as many segments as the path whose lengths alone don't make them unlike it.
fn candidates(path: &str) -> impl Iterator<Item = Candidate<'_>> {
    let path = path.trim_start_matches('/').trim_end_matches('/');
    let is_short = path.len() <= COMPARED_MAX_BYTES;
    let routes = KNOWN_ROUTES.iter().filter(move |_| is_short);
    routes.filter_map(move |route| {
        let pattern = route.pattern.trim_start_matches('/');
        if path.split('/').count() != pattern.split('/').count() {
            return None;
        }
        let segments = path.split('/').zip(pattern.split('/'));
        let constants: Vec<_> = segments
            .filter(|(_, known)| !known.starts_with('{'))
            .collect();
        let sum = |of: fn(usize, usize) -> usize| -> usize {
            constants
                .iter()
                .map(|(given, known)| of(given.len(), known.len()))
                .sum()
        };
        let letters = sum(usize::max);
        let least = sum(usize::abs_diff);
        is_near(least, letters).then_some(Candidate {
            route,
            constants,
            letters,
        })
    })
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

    /// A client without an API key may send any.
    #[test]
    fn no_path_is_worth_many_comparisons() {
        let mut most = 0;
        for segments in 1..=8 {
            for length in 1..=COMPARED_MAX_BYTES {
                let path = format!("/{}", "x".repeat(length)).repeat(segments);
                let compared = candidates(&path).flat_map(|candidate| candidate.constants);
                let letters = compared.map(|(given, known)| given.len() * known.len());
                most = letters.sum::<usize>().max(most);
            }
        }
        assert!((500..1_500).contains(&most), "{most} pairs of letters");
    }
}
