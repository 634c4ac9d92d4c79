//! What Stripe has, and charge-once does not: parameters and paths, by name.
//!
//! Promise: a client that was written for Stripe is told so, in place of "unknown" or of a name
//! that is spelled alike. Once something is offered, its line here has no effect, but a test asks
//! for the removal of a parameter's line. `docs/sdk.md` has the table of what is offered.

use std::{collections::BTreeMap, sync::LazyLock};

/// Where a client reads what is offered.
const TABLE: &str = "docs/sdk.md";

/// Words under headings, which stand at the beginning of a line.
const TEXT: &str = include_str!("not_offered.txt");

/// The words under each heading.
static LISTS: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut lists = BTreeMap::<&str, Vec<&str>>::new();
    let mut heading = "";
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(words) => {
                let words = words.split_whitespace();
                let words: Vec<_> = words
                    .flat_map(|word| of_each_method(word, &lists))
                    .collect();
                lists.entry(heading).or_default().extend(words);
            }
            None => heading = line,
        }
    }
    lists
});

/// The word, or where it names `{method}`, that of each method.
fn of_each_method<'a>(word: &'a str, lists: &BTreeMap<&str, Vec<&'a str>>) -> Vec<&'a str> {
    match word.contains("{method}") {
        true => lists["methods"]
            .iter()
            .map(|method| &*word.replace("{method}", method).leak())
            .collect(),
        false => vec![word],
    }
}

/// The words under a heading.
fn listed(heading: &str) -> &'static [&'static str] {
    LISTS.get(heading).map_or(&[], Vec::as_slice)
}

/// Types of payment methods of Stripe's, without `card`.
pub fn methods() -> &'static [&'static str] {
    listed("methods")
}

/// The parameters of Stripe's that `resource` has there and not here.
pub fn parameters(resource: &str) -> &'static [&'static str] {
    listed(resource)
}

/// Resources that Stripe searches at `/search`.
pub fn searched() -> &'static [&'static str] {
    listed("/search")
}

/// Every parameter of Stripe's that a resource here lacks, with the resource.
pub fn all_parameters() -> impl Iterator<Item = (&'static str, &'static str)> {
    let resources = LISTS
        .iter()
        .filter(|(name, _)| **name != "methods" && !name.starts_with('/'));
    resources.flat_map(|(resource, names)| names.iter().map(move |name| (*resource, *name)))
}

/// What is told of such a parameter.
pub(super) fn parameter(name: &str) -> String {
    format!("charge-once doesn't offer `{name}`: see {TABLE}.")
}

/// What is told of a path of Stripe's that is not here. `path` has no `/v1`, and `is_offered` tells
/// whether a pattern such as `/refunds/{id}` has a route.
pub fn path(path: &str, is_offered: impl Fn(&str) -> bool) -> Option<String> {
    let path = path.trim_matches('/');
    if let Some(resource) = path.strip_suffix("/search")
        && searched().contains(&resource)
        && is_offered(&format!("/{resource}"))
    {
        return Some("Search isn't offered: list with filters.".to_owned());
    }
    if listed("/refund")
        .iter()
        .any(|pattern| begins_like(path, pattern))
    {
        let message = "There is nothing at this path. A refund is made by POST /refunds, with the \
                       parameter charge or payment_intent.";
        return Some(message.to_owned());
    }
    let is_missing = |pattern: &str| !is_offered(&format!("/{pattern}"));
    let mut known = listed("/").iter();
    let missing = known.find(|pattern| begins_like(path, pattern) && is_missing(pattern))?;
    let is_no_name = missing.contains('{') || missing.starts_with("v2/");
    let name = match is_no_name {
        true => format!("/{missing}"),
        false => missing.replace(['/', '_'], " "),
    };
    Some(format!("charge-once doesn't offer {name}; see {TABLE}."))
}

/// Whether a path without `/v1` is that of a list of Stripe's that is not here.
pub fn is_list(path: &str) -> bool {
    let segments = |text: &str| text.split('/').count();
    let path = path.trim_matches('/');
    let mut lists = listed("/list").iter();
    lists.any(|list| begins_like(path, list) && segments(path) == segments(list))
}

/// Whether the first segments of a path are those of a pattern.
fn begins_like(path: &str, pattern: &str) -> bool {
    let mut given = path.split('/');
    let mut known = pattern.split('/');
    known.all(|known| {
        given
            .next()
            .is_some_and(|given| given == known || known == "{id}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_stripe_s_is_each_parameter_that_is_named_like_it() {
        let intents = parameters("payment_intents");
        assert!(intents.contains(&"payment_method_data[klarna]"));
        assert!(intents.contains(&"payment_method_options[klarna]"));
        assert!(parameters("payment_methods").contains(&"klarna"));
        assert!(!parameters("customers").contains(&"klarna"));
    }

    #[test]
    fn a_list_is_not_offered_and_no_object_of_it_is_one() {
        assert!(listed("/list").iter().all(|list| {
            let mut paths = listed("/").iter();
            paths.any(|path| begins_like(list, path))
        }));
        for (path, expected) in [
            ("/products", true),
            ("/products/", true),
            ("/customers/cus_1/sources", true),
            ("/products/prod_1", false),
            ("/customers", false),
            ("/charges", false),
            ("/", false),
        ] {
            assert_eq!(is_list(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_of_stripe_s_is_named_and_no_other() {
        let offered = ["/charges", "/payment_intents", "/refunds/{id}"];
        let told = |asked: &str| path(asked, |pattern| offered.contains(&pattern));
        let doesnt = |name: &str| {
            Some(format!(
                "charge-once doesn't offer {name}; see docs/sdk.md."
            ))
        };
        let search = Some("Search isn't offered: list with filters.".to_owned());
        for (asked, expected) in [
            ("/subscriptions", doesnt("subscriptions")),
            ("/subscriptions/", doesnt("subscriptions")),
            ("/subscriptions/sub_1/resume", doesnt("subscriptions")),
            ("/subscriptions/search", doesnt("subscriptions")),
            ("/tax_ids", doesnt("tax ids")),
            ("/checkout/sessions/cs_1", doesnt("checkout sessions")),
            ("/v2/core/event_destinations", doesnt("/v2/core")),
            ("/refunds/re_1/cancel", doesnt("/refunds/{id}/cancel")),
            (
                "/payment_intents/pi_1/increment_authorization",
                doesnt("/payment_intents/{id}/increment_authorization"),
            ),
            ("/charges/search", search.clone()),
            ("/payment_intents/search", search),
            ("/payment_intents/pi_1/other", None),
            ("/subscription", None),
            ("/checkout", None),
            ("/", None),
            ("/wp-login.php", None),
        ] {
            assert_eq!(told(asked), expected, "{asked}");
        }
    }
}
