//! `/.well-known/idempotency`: what clients may rely on when they retry, for programs.
//!
//! Promise: nothing is written down twice. Each fact is the constant, the table, the setting or the
//! route that the server itself goes by.

use std::collections::BTreeSet;

use charge_once_service::edge::{RETAIN, WAIT};
use serde::Serialize;
use serde_json::json;
use utoipa::{Modify, openapi::OpenApi};

use super::{
    keyed_operations::{needs_key, with_keys},
    middleware::{PREFER_WAIT_MAX, usual_wait},
    parameters::{IDEMPOTENCY_KEY, key_pattern},
    prelude::*,
    reply_headers::{EXPIRES, ORIGINAL_REQUEST, REPLAYED},
    retention::{EXTENSION, KeyRules, KeyTimes},
};
use crate::{
    config::{Config, Values},
    idempotency::{KEY_MAX_BYTES, KEY_MISTAKES},
    wire::dialect::Dialect,
};

/// What the OpenAPI document says about keys.
struct KeyedOperations {
    /// Methods of operations that need one.
    required_by: BTreeSet<&'static str>,
    /// Methods of operations that may have one.
    optional_for: BTreeSet<&'static str>,
    /// Where one is given up.
    abandon: String,
    /// Those whose keys are kept for a time of their own.
    apart: Vec<(String, KeyTimes)>,
}

impl KeyedOperations {
    fn of(values: &Values, document: &mut OpenApi) -> Self {
        let mut found = Self {
            required_by: BTreeSet::new(),
            optional_for: BTreeSet::new(),
            abandon: String::new(),
            apart: Vec::new(),
        };
        for (method, path, operation) in with_keys(document) {
            match needs_key(operation) {
                true => found.required_by.insert(method),
                false => found.optional_for.insert(method),
            };
            if operation.operation_id.as_deref() == Some("abandonIdempotencyKey") {
                path.clone_into(&mut found.abandon);
            }
            let KeyRules { times, .. } = KeyRules::of(values, (method, path), operation);
            if times.usual != values.idempotency_ttl {
                found.apart.push((format!("{method} {path}"), times));
            }
        }
        found
    }
}

views! {
    /// What clients may rely on when they retry, as this server is configured. All times are in
    /// seconds.
    struct PolicyView as IdempotencyPolicy of(values: &Values, operations: &KeyedOperations)
    where {
        let apart = operations.apart.iter();
        let usual = KeyTimes::around(values, values.idempotency_ttl);
        let codes = ErrorCode::ALL.iter().copied();
        let stored = codes.clone().filter(|code| code.is_stored());
        let stored: BTreeSet<_> = stored.map(ErrorCode::status).collect();
    } {
        /// Always `idempotency_policy`.
        always object: &'static str = "idempotency_policy";
        /// Where a key is given up: POST.
        abandon: String = operations.abandon.clone();
        /// Every error, in the order of the table at `/errors`.
        errors: Vec<ErrorPolicyView> = codes.map(ErrorPolicyView::from).collect();
        /// A request whose key has expired.
        expired: ExpiredPolicyView = ExpiredPolicyView::of(values);
        /// A duplicate of a request that has not ended.
        in_flight: InFlightPolicyView = InFlightPolicyView::of();
        /// How a request names its key.
        key: KeyPolicyView = KeyPolicyView::of(values, operations);
        /// What differs between prefixes of paths.
        prefixes: Vec<PrefixPolicyView> = [Dialect::Ietf, Dialect::Stripe]
            .map(|dialect| PrefixPolicyView::of(values, dialect)).into();
        /// The headers of stored outcomes.
        replay: ReplayPolicyView = ReplayPolicyView::of();
        /// How long a key and its outcome are kept, from its first use or its outcome on.
        retention: RetentionView = RetentionView::of(None, usual);
        /// Where that differs.
        retention_by_route: Vec<RetentionView> =
            apart.map(|(route, times)| RetentionView::of(Some(route), *times)).collect();
        /// The preference of the header `Prefer` that asks for more or less time.
        retention_preference: &'static str [example = "retain"] = RETAIN;
        /// Whose a key is. The API keys of an account share its idempotency keys.
        always scope: &'static str = "account";
        /// The statuses of errors that are stored; every 2xx is. Those of `errors` are exact.
        stored_statuses: Vec<u16> = stored.into_iter().collect();
    }

    /// How a request names its key.
    struct KeyPolicyView as IdempotencyKeyPolicy of(values: &Values, operations: &KeyedOperations) {
        /// The header, which is sent once.
        header: &'static str [example = "Idempotency-Key"] = IDEMPOTENCY_KEY;
        /// What the header looks like: with or without quotes.
        pattern: String = key_pattern();
        /// Without quotes.
        min_length: usize = 1;
        /// Without quotes.
        max_length: usize = KEY_MAX_BYTES;
        /// What is no key, because only a mistake in a program sends it.
        mistakes: Vec<&'static str> = KEY_MISTAKES.to_vec();
        /// The methods that may have a key.
        optional_for: Vec<&'static str> = operations.optional_for.iter().copied().collect();
        /// The methods that need a key.
        required_by: Vec<&'static str> = operations.required_by.iter().copied().collect();
        /// What becomes of a request that needs a key and has none.
        without_key: Vec<KeylessPolicyView> =
            values.keys.by_prefix().map(KeylessPolicyView::from).collect();
    }

    /// What holds for paths with a prefix.
    struct PrefixPolicyView as IdempotencyPrefixPolicy of(values: &Values, dialect: Dialect) {
        /// Empty: every other path.
        prefix: &'static str = dialect.prefix();
        /// The status of a key that belongs to another request.
        key_reused_status: u16 = dialect.key_reused_status();
        /// How long a duplicate waits that doesn't say for how long.
        wait: u64 = usual_wait(values, dialect).as_secs();
    }

    /// What becomes of a request that needs a key and has none.
    struct KeylessPolicyView as KeylessPolicy from mode: (&str, bool) where {
        let (prefix, assigns) = mode;
    } {
        /// The prefix of the path: the longest counts.
        prefix: String = prefix.to_owned();
        /// `refused`, or `assigned`: the server makes a key, and a retry does the work again.
        outcome: &'static str [example = "refused"] = match assigns {
            true => "assigned",
            false => "refused",
        };
    }

    /// How long a key is kept.
    struct RetentionView as IdempotencyRetention of(route: Option<&str>, retention: KeyTimes) {
        /// Method and path, below each prefix; null: every route that is not listed.
        maybe route: String [example = "POST /refunds"] = route.map(ToOwned::to_owned);
        /// The least that a client can ask for.
        least: u64 = retention.least.as_secs();
        /// The most.
        most: u64 = retention.most.as_secs();
        /// Without a preference.
        seconds: u64 [example = 86_400] = retention.usual.as_secs();
    }

    /// A request whose key has expired. It is executed like one with a new key, or else gets the
    /// error `idempotency_key_expired`.
    struct ExpiredPolicyView as IdempotencyExpiredPolicy of(values: &Values) {
        /// Whether a key that is a UUID of version 7 has expired by its time, and gets the error.
        by_time_in_key: bool = values.refuse_old_keys;
        /// For how long any other key gets the error; with 0, its request is executed.
        remembered: u64 = values.key_memory.unwrap_or_default().as_secs();
    }

    /// A duplicate of a request that has not ended.
    struct InFlightPolicyView as IdempotencyInFlightPolicy of() where {
        let code = ErrorCode::IdempotencyKeyInUse;
    } {
        /// The code of the error that it gets when its wait is over.
        code: &'static str [example = "idempotency_key_in_use"] = code.as_str();
        /// The status of that.
        status: u16 [example = 409] = code.status();
        /// The preference of the header `Prefer` that says how long it waits.
        preference: &'static str [example = "wait"] = WAIT;
        /// The longest wait.
        wait_max: u64 = PREFER_WAIT_MAX.as_secs();
    }

    /// The headers of stored outcomes.
    struct ReplayPolicyView as IdempotencyReplayPolicy of() {
        /// When the key is forgotten.
        expires: &'static str [example = "Idempotency-Expires"] = EXPIRES;
        /// The request that executed: a reply is stored if it has this header.
        original_request: &'static str [example = "Original-Request"] = ORIGINAL_REQUEST;
        /// On replays only.
        replayed: &'static str [example = "Idempotent-Replayed"] = REPLAYED;
    }

    /// An error, and what a client does after it.
    struct ErrorPolicyView as IdempotencyErrorPolicy from code: ErrorCode {
        /// Its code.
        code: &'static str [example = "card_declined"] = code.as_str();
        /// What it means.
        meaning: &'static str = code.explanation();
        /// `same_key`: send the same request again later. `new_key`: a retry gets the same answer,
        /// so what is wanted now needs a new key. `read_first`: so does this, after you have read
        /// what was made. `corrected`: nothing was stored; correct the request.
        retry: &'static str [example = "new_key"] = code.retry();
        /// Its status.
        status: u16 [example = 402] = code.status();
        /// Whether it is stored where the request itself is refused. A refusal of a header isn't.
        stored: bool = code.is_stored();
    }
}

/// What clients may rely on, with these settings, at the operations of this document.
pub fn policy(values: &Values, document: &mut OpenApi) -> impl Serialize {
    PolicyView::of(values, &KeyedOperations::of(values, document))
}

errors! { PolicyErrors: Open [] }

/// Retrieve the idempotency policy
///
/// What a client may rely on when it retries, for programs. It changes with the server's settings:
/// ask again with `If-None-Match`.
#[utoipa::path(
    get, path = "/.well-known/idempotency", tag = "Idempotency keys",
    operation_id = "retrieveIdempotencyPolicy", security(()), servers((url = "/")),
    responses((status = 200, description = "The policy.", body = PolicyView), PolicyErrors),
)]
pub async fn retrieve(app: Data<App>, request: HttpRequest) -> HttpResponse {
    app.policy.answer(&request)
}

/// Adds the policy of a server to the document.
pub(super) fn add_to(document: &mut OpenApi, values: &Values) {
    let policy = policy(values, document);
    let Ok(policy) = serde_json::to_value(policy) else {
        return;
    };
    let usual = KeyTimes::around(values, values.idempotency_ttl);
    for (method, path, operation) in with_keys(document) {
        let key = if needs_key(operation) {
            "required"
        } else {
            "optional"
        };
        let own = KeyRules::of(values, (method, path), operation).times;
        let extensions = operation.extensions.get_or_insert_default();
        let facts = extensions.entry(EXTENSION.to_owned());
        let Some(facts) = facts.or_insert_with(|| json!({})).as_object_mut() else {
            continue;
        };
        facts.insert("key".to_owned(), key.into());
        // That of other settings.
        facts.remove("retention");
        if own != usual
            && let Ok(own) = serde_json::to_value(RetentionView::of(None, own))
        {
            facts.insert("retention".to_owned(), own);
        }
    }
    let extensions = document.extensions.get_or_insert_default();
    extensions.insert(EXTENSION.to_owned(), policy);
}

/// Adds the policy of a server without settings of its own.
pub(super) struct UsualPolicy;

impl Modify for UsualPolicy {
    fn modify(&self, document: &mut OpenApi) {
        if let Ok(config) = Config::from_lookup(|_| None) {
            add_to(document, &config.values);
        }
    }
}
