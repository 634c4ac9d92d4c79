//! What Stripe has, and charge-once does not: parameters and paths, by name.
//!
//! Promise: a client that was written for Stripe is told so, in place of "unknown" or of a name
//! that is spelled alike. Once something is offered, its line here has no effect, but a test asks
//! for the removal of a parameter's line. `docs/sdk.md` has the table of what is offered.

use charge_once_strict_params::NameLists;

/// Where a client reads what is offered.
const TABLE: &str = "docs/sdk.md";

/// Declares the types of payment methods that Stripe has beside cards, and the parameters that are
/// named like them.
macro_rules! other_methods {
    ($($name:literal),+ $(,)?) => {
        const METHODS: &[&str] = &[$($name),+];
        const METHOD_DATA: &[&str] = &[$(concat!("payment_method_data[", $name, "]")),+];
        const METHOD_OPTIONS: &[&str] = &[$(concat!("payment_method_options[", $name, "]")),+];
    };
}

other_methods![
    "acss_debit",
    "affirm",
    "afterpay_clearpay",
    "alipay",
    "alma",
    "amazon_pay",
    "au_becs_debit",
    "bacs_debit",
    "bancontact",
    "billie",
    "bizum",
    "blik",
    "boleto",
    "cashapp",
    "crypto",
    "customer_balance",
    "eps",
    "fpx",
    "giropay",
    "grabpay",
    "ideal",
    "interac_present",
    "kakao_pay",
    "klarna",
    "konbini",
    "kr_card",
    "link",
    "mb_way",
    "mobilepay",
    "multibanco",
    "naver_pay",
    "nz_bank_account",
    "oxxo",
    "p24",
    "pay_by_bank",
    "payco",
    "paynow",
    "paypal",
    "paypay",
    "payto",
    "pix",
    "promptpay",
    "revolut_pay",
    "samsung_pay",
    "satispay",
    "scalapay",
    "sepa_debit",
    "sequra",
    "sofort",
    "sunbit",
    "swish",
    "twint",
    "upi",
    "us_bank_account",
    "wechat_pay",
    "zip",
];

/// Parameters by resource, which is the first segment of its paths, under any of its verbs.
const PARAMETERS: &[(&str, NameLists)] = &[
    (
        "charges",
        &[&[
            "application_fee",
            "application_fee_amount",
            "destination",
            "fraud_details",
            "on_behalf_of",
            "radar_options",
            "shipping",
            "source[address_city]",
            "source[address_country]",
            "source[address_line1]",
            "source[address_line2]",
            "source[address_state]",
            "source[address_zip]",
            "source[currency]",
            "source[metadata]",
            "source[name]",
            "statement_descriptor_kana",
            "statement_descriptor_kanji",
            "statement_descriptor_suffix",
            "transfer_data",
            "transfer_group",
        ]],
    ),
    (
        "customers",
        &[&[
            "account_balance",
            "balance",
            "business_name",
            "cash_balance",
            "coupon",
            "default_source",
            "individual_name",
            "invoice_prefix",
            "invoice_settings[custom_fields]",
            "invoice_settings[footer]",
            "invoice_settings[rendering_options]",
            "next_invoice_sequence",
            "promotion_code",
            "source",
            "tax",
            "tax_exempt",
            "tax_id_data",
            "tax_info",
            "test_clock",
            "validate",
        ]],
    ),
    ("events", &[&["delivery_success"]]),
    (
        "payment_intents",
        &[
            &[
                "allowed_payment_method_types",
                "amount_details",
                "amount_to_confirm",
                "application_fee_amount",
                "confirmation_token",
                "customer_account",
                "excluded_payment_method_types",
                "hooks",
                "mandate",
                "mandate_data",
                "on_behalf_of",
                "payment_details",
                "payment_method_configuration",
                "payment_method_data[billing_details][tax_id]",
                "payment_method_data[radar_options]",
                "payment_method_options[card][capture_method]",
                "payment_method_options[card][cvc_token]",
                "payment_method_options[card][installments]",
                "payment_method_options[card][mandate_options]",
                "payment_method_options[card][moto]",
                "payment_method_options[card][network]",
                "payment_method_options[card][request_extended_authorization]",
                "payment_method_options[card][request_incremental_authorization]",
                "payment_method_options[card][request_multicapture]",
                "payment_method_options[card][request_overcapture]",
                "payment_method_options[card][require_cvc_recollection]",
                "payment_method_options[card][setup_credential_usage]",
                "payment_method_options[card][setup_future_usage]",
                "payment_method_options[card][statement_descriptor_suffix_kana]",
                "payment_method_options[card][statement_descriptor_suffix_kanji]",
                "payment_method_options[card][stored_credential_usage]",
                "payment_method_options[card][three_d_secure]",
                "payment_method_options[card_present]",
                "radar_options",
                "save_payment_method",
                "shared_payment_token",
                "source",
                "transfer_data",
                "transfer_group",
            ],
            METHOD_DATA,
            METHOD_OPTIONS,
        ],
    ),
    (
        "payment_methods",
        &[
            &[
                "billing_details[tax_id]",
                "card[networks]",
                "custom",
                "customer_account",
                "payment_method",
                "radar_options",
            ],
            METHODS,
        ],
    ),
    (
        "refunds",
        &[&[
            "currency",
            "customer",
            "instructions_email",
            "origin",
            "refund_application_fee",
            "reverse_transfer",
        ]],
    ),
    (
        "setup_intents",
        &[
            &[
                "allowed_payment_method_types",
                "attach_to_self",
                "confirmation_token",
                "customer_account",
                "excluded_payment_method_types",
                "flow_directions",
                "mandate_data",
                "on_behalf_of",
                "payment_method_configuration",
                "payment_method_data[billing_details][tax_id]",
                "payment_method_data[radar_options]",
                "payment_method_options",
                "single_use",
            ],
            METHOD_DATA,
        ],
    ),
    ("webhook_endpoints", &[&["connect"]]),
];

/// Paths. Each stands for the paths that begin like it, and any segment may be in the place of
/// `{id}`.
const PATHS: &[&str] = &[
    "account_links",
    "account_sessions",
    "accounts",
    "apple_pay/domains",
    "application_fees",
    "apps/installs",
    "apps/secrets",
    "balance",
    "balance_settings",
    "balance_transactions",
    "billing/alerts",
    "billing/credit_balance_summary",
    "billing/credit_balance_transactions",
    "billing/credit_grants",
    "billing/feedback_options",
    "billing/meter_event_adjustments",
    "billing/meter_events",
    "billing/meters",
    "billing_portal/configurations",
    "billing_portal/sessions",
    "charges/{id}/dispute",
    "charges/{id}/refunds/{id}",
    "checkout/sessions",
    "climate/orders",
    "climate/products",
    "climate/suppliers",
    "confirmation_tokens",
    "country_specs",
    "coupons",
    "credit_notes",
    "customer_sessions",
    "customers/{id}/balance_transactions",
    "customers/{id}/bank_accounts",
    "customers/{id}/cards",
    "customers/{id}/cash_balance",
    "customers/{id}/cash_balance_transactions",
    "customers/{id}/discount",
    "customers/{id}/funding_instructions",
    "customers/{id}/sources",
    "customers/{id}/subscriptions",
    "customers/{id}/tax_ids",
    "disputes",
    "entitlements/active_entitlements",
    "entitlements/features",
    "ephemeral_keys",
    "exchange_rates",
    "file_links",
    "files",
    "financial_connections/accounts",
    "financial_connections/sessions",
    "financial_connections/transactions",
    "forwarding/requests",
    "identity/verification_reports",
    "identity/verification_sessions",
    "invoice_payments/{id}",
    "invoice_rendering_templates",
    "invoiceitems",
    "invoices",
    "issuing/authorizations",
    "issuing/cardholders",
    "issuing/cards",
    "issuing/disputes",
    "issuing/personalization_designs",
    "issuing/physical_bundles",
    "issuing/tokens",
    "issuing/transactions",
    "mandates",
    "payment_attempt_records",
    "payment_intents/{id}/amount_details_line_items",
    "payment_intents/{id}/apply_customer_balance",
    "payment_intents/{id}/increment_authorization",
    "payment_intents/{id}/verify_microdeposits",
    "payment_links",
    "payment_method_configurations",
    "payment_method_domains",
    "payment_records",
    "payouts",
    "plans",
    "prices",
    "product_catalog",
    "products",
    "promotion_codes",
    "quotes",
    "radar/early_fraud_warnings",
    "radar/payment_evaluations",
    "radar/value_list_items",
    "radar/value_lists",
    "refunds/{id}/cancel",
    "reporting/report_runs",
    "reporting/report_types",
    "reviews",
    "setup_attempts",
    "setup_intents/{id}/verify_microdeposits",
    "shipping_rates",
    "sigma/scheduled_query_runs",
    "sources",
    "subscription_items",
    "subscription_schedules",
    "subscriptions",
    "tax/associations",
    "tax/calculations",
    "tax/locations",
    "tax/registrations",
    "tax/settings",
    "tax/transactions",
    "tax_codes",
    "tax_ids",
    "tax_rates",
    "terminal/configurations",
    "terminal/connection_tokens",
    "terminal/locations",
    "terminal/onboarding_links",
    "terminal/readers",
    "test_helpers",
    "three_d_secure",
    "tokens",
    "topups",
    "transfers",
    "treasury",
    "v2/billing",
    "v2/commerce",
    "v2/core",
    "v2/money_management",
    "v2/test_helpers",
];

/// Resources that Stripe searches at `/search`, which would else be the id of one.
pub const SEARCHED: &[&str] = &[
    "charges",
    "customers",
    "invoices",
    "payment_intents",
    "prices",
    "products",
    "subscriptions",
];

/// Paths on which a client expects a refund, and where it is made.
const REFUNDS: &[&str] = &[
    "charges/{id}/refund",
    "orders/{id}/refund",
    "payment_intents/{id}/refund",
    "payment_intents/{id}/refunds",
];

/// The parameters of Stripe's that `resource` has there and not here.
pub fn parameters(resource: &str) -> NameLists {
    let of_resource = PARAMETERS.iter().find(|(name, _)| *name == resource);
    of_resource.map_or(&[], |(_, names)| *names)
}

/// Every parameter of Stripe's that a resource here lacks, with the resource.
pub fn all_parameters() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARAMETERS.iter().flat_map(|(resource, lists)| {
        let names = lists.iter().copied().flatten();
        names.map(move |name| (*resource, *name))
    })
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
        && SEARCHED.contains(&resource)
        && is_offered(&format!("/{resource}"))
    {
        return Some("Search isn't offered: list with filters.".to_owned());
    }
    if REFUNDS.iter().any(|pattern| begins_like(path, pattern)) {
        let message = "There is nothing at this path. A refund is made by POST /refunds, with the \
                       parameter charge or payment_intent.";
        return Some(message.to_owned());
    }
    let mut known = PATHS.iter().filter(|pattern| begins_like(path, pattern));
    let missing = known.find(|pattern| !is_offered(&format!("/{pattern}")))?;
    let is_no_name = missing.contains('{') || missing.starts_with("v2/");
    let name = match is_no_name {
        true => format!("/{missing}"),
        false => missing.replace(['/', '_'], " "),
    };
    Some(format!("charge-once doesn't offer {name}; see {TABLE}."))
}

/// Whether the first segments of a path are those of a pattern.
fn begins_like(path: &str, pattern: &str) -> bool {
    let mut given = path.split('/');
    pattern.split('/').all(|known| {
        given
            .next()
            .is_some_and(|given| given == known || known == "{id}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
