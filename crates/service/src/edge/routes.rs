//! The route that a client may have meant.

use strsim::damerau_levenshtein;

/// A path that a service has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRoute {
    /// With its names in braces: `/charges/{id}`.
    pub pattern: String,
    /// Its methods, as a message lists them.
    pub methods: String,
}

/// How many letters of so many may differ between a path and a route that is worth naming.
const UNLIKE_MAX: (usize, usize) = (2, 5);

/// Longest path that is compared, in bytes; routes are shorter. The time grows with the square of
/// the length, and strangers may send any path.
const COMPARED_MAX_BYTES: usize = 64;

/// The paths that a service has.
#[derive(Debug, Clone)]
pub struct KnownRoutes(Vec<KnownRoute>);

impl FromIterator<KnownRoute> for KnownRoutes {
    fn from_iter<I: IntoIterator<Item = KnownRoute>>(routes: I) -> Self {
        Self(routes.into_iter().collect())
    }
}

impl KnownRoutes {
    /// The route with this pattern.
    pub fn get(&self, pattern: &str) -> Option<&KnownRoute> {
        self.0.iter().find(|route| route.pattern == pattern)
    }

    /// The route whose constant segments are most like those of `path`, if it is like one: of five
    /// letters, two may differ. Name it by its pattern: the path may hold anything.
    pub fn nearest(&self, path: &str) -> Option<&KnownRoute> {
        let distances = self.candidates(path).filter_map(|candidate| {
            let letters = candidate.letters;
            let constants = candidate.constants.iter();
            let distances = constants.map(|(given, known)| damerau_levenshtein(given, known));
            let distance: usize = distances.sum();
            is_near(distance, letters).then_some((distance, letters, candidate.route))
        });
        // The shares of letters that differ, without fractions.
        let nearest = distances
            .min_by(|(one, of, _), (other, of_other, _)| (one * of_other).cmp(&(other * of)));
        nearest.map(|(_, _, route)| route)
    }

    /// The routes with as many segments as the path whose lengths alone don't make them unlike it.
    fn candidates<'r, 'p>(&'r self, path: &'p str) -> impl Iterator<Item = Candidate<'r, 'p>> {
        let path = path.trim_start_matches('/').trim_end_matches('/');
        let is_short = path.len() <= COMPARED_MAX_BYTES;
        let routes = self.0.iter().filter(move |_| is_short);
        routes.filter_map(move |route| {
            let pattern = route.pattern.trim_start_matches('/');
            if path.split('/').count() != pattern.split('/').count() {
                return None;
            }
            let segments = path.split('/').zip(pattern.split('/'));
            let constants = segments.filter(|(_, known)| !known.starts_with('{'));
            let constants: Vec<_> = constants.collect();
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
}

fn is_near(distance: usize, letters: usize) -> bool {
    let (unlike, of) = UNLIKE_MAX;
    distance * of <= letters * unlike
}

/// A route that a path is compared with, letter by letter.
struct Candidate<'r, 'p> {
    route: &'r KnownRoute,
    /// What the path has where the route has constants. A segment that stands for a name is like
    /// every other.
    constants: Vec<(&'p str, &'r str)>,
    /// Letters of the longer one of each two.
    letters: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a payments API.
    const PATTERNS: &str = "/charges /charges/{id} /charges/{id}/capture /charges/{id}/refunds \
        /checkouts /checkouts/{id} /events /events/{id} /idempotency-keys /idempotency-keys/{key} \
        /inventory /inventory/{sku} /livez /orders /orders/{id} /orders/{id}/cancel \
        /orders/{id}/pay /readyz /refunds /refunds/{id} /webhook_endpoints \
        /webhook_endpoints/{id} /webhook_endpoints/{id}/deliveries /workflows /workflows/{name}";

    fn routes() -> KnownRoutes {
        let routes = PATTERNS.split_whitespace().map(|pattern| KnownRoute {
            pattern: pattern.to_owned(),
            methods: "GET".to_owned(),
        });
        routes.collect()
    }

    #[test]
    fn the_nearest_route_is_found_by_its_pattern() {
        let routes = routes();
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
            let found = routes.nearest(path).map(|route| route.pattern.as_str());
            assert_eq!(found, pattern, "{path}");
        }
        assert!(routes.get("/charges/{id}").is_some() && routes.get("/charges/ch_1").is_none());
    }

    /// It begins like a route. To compare it would take the test minutes.
    #[test]
    fn a_long_path_is_like_no_route() {
        let path = format!("/charge/{}", "x".repeat(60_000));
        assert!(routes().nearest(&path).is_none());
    }

    /// A client without an API key may send any.
    #[test]
    fn no_path_is_worth_many_comparisons() {
        let routes = routes();
        let mut most = 0;
        for segments in 1..=8 {
            for length in 1..=COMPARED_MAX_BYTES {
                let path = format!("/{}", "x".repeat(length)).repeat(segments);
                let candidates = routes.candidates(&path);
                let compared = candidates.flat_map(|candidate| candidate.constants);
                let letters = compared.map(|(given, known)| given.len() * known.len());
                most = letters.sum::<usize>().max(most);
            }
        }
        assert!((500..1_500).contains(&most), "{most} pairs of letters");
    }
}
