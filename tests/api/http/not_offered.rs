//! What Stripe has and charge-once does not: each is answered by its name.

use charge_once::wire::not_offered;

use crate::support::{
    openapi::{document, operations, resolve},
    prelude::*,
    shorthand::message,
};

#[tokio::test]
async fn a_parameter_of_stripe_s_is_refused_as_not_offered() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for (path, param) in [
        ("/charges", "transfer_data"),
        ("/v1/charges", "application_fee_amount"),
        ("/v1/charges/ch_1", "transfer_group"),
        // WooCommerce sends it, and leaves it out after exactly this refusal.
        ("/v1/charges", "level3"),
        ("/charges/ch_1/capture", "statement_descriptor_suffix"),
        ("/v1/customers", "business_name"),
        ("/v1/payment_intents/pi_1/confirm", "save_payment_method"),
        ("/refunds", "reverse_transfer"),
    ] {
        let mut body = match path {
            "/charges" | "/v1/charges" => json!({"amount": 1, "currency": "usd"}),
            "/refunds" => json!({"charge": "ch_1"}),
            _ => json!({}),
        };
        body[param] = json!({"destination": "secret-value"});
        let key = Uuid::now_v7().to_string();
        let answer = client.post(path, &key, &body).await;
        let refusal = (400, "parameter_unknown".into(), Some(param.to_owned()));
        assert_eq!(answer.refusal(), refusal, "{path} {param}");
        let told = message(&answer);
        let expected = format!("charge-once doesn't offer `{param}`: see docs/sdk.md.");
        assert!(told.starts_with(&expected), "{told}");
        assert!(!told.contains("secret"), "{told}");
        client.post(path, &key, &body).await.assert_replays(&answer);
    }
    let form = "amount=1&currency=usd&source[number]=4242424242424242&source[exp_month]=05\
                &source[exp_year]=2030&source[name]=Jenny";
    let named = client.post_raw("/v1/charges", "form", FORM, form.as_bytes());
    let told = message(&named.await);
    assert!(
        told.starts_with("charge-once doesn't offer `source[name]`"),
        "{told}"
    );
    for param in [
        "payment_method_options[card][network]",
        "payment_method_options[klarna]",
        "level3",
        "save_payment_method",
    ] {
        let form = format!("amount=1&currency=usd&{param}=x");
        let refused = client.post_raw("/v1/payment_intents", param, FORM, form.as_bytes());
        let told = message(&refused.await);
        let expected = format!("charge-once doesn't offer `{param}`");
        assert!(told.starts_with(&expected), "{told}");
    }
    for value in ["one_off", "recurring"] {
        let form = format!("amount=1&currency=usd&confirm=True&off_session={value}");
        let refused = client.post_raw("/v1/payment_intents", value, FORM, form.as_bytes());
        let told = message(&refused.await);
        assert_has(&told, "one_off and recurring aren't offered");
    }
    let misplaced = "/charges?expand[]=refunds";
    let told = message(&client.post_new(misplaced, &json!({})).await);
    let where_to = "Send expand in the body of this request";
    assert!(told.starts_with(where_to), "{told}");
    let listed = client.get("/charges?transfer_group=a").await;
    let expected = "charge-once doesn't offer `transfer_group`: see docs/sdk.md.";
    assert_eq!(message(&listed), expected);
    // Other resources have no such parameter, at Stripe either.
    let items = json!([{"quantity": 1, "unit_amount": 1}]);
    let order = json!({"currency": "usd", "items": items, "shipping": 1});
    let order = client.post_new("/orders", &order).await;
    assert!(message(&order).starts_with("Unknown parameter: shipping."));
}

/// The names of all parameters of a resource, as forms and queries write them.
fn documented(document: &Value, resource: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (path, _, operation) in operations(document) {
        if path.split('/').nth(1) != Some(resource) {
            continue;
        }
        let parameters = operation["parameters"].as_array();
        for parameter in parameters.into_iter().flatten() {
            names.push(parameter["name"].as_str().unwrap().to_owned());
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let properties = resolve(document, body)["properties"].as_object();
        let properties = properties.into_iter().flat_map(|all| all.keys());
        names.extend(properties.cloned());
    }
    for (schema, parameter) in [
        ("CardOptionsInput", "payment_method_options[card]"),
        ("Card", "source"),
    ] {
        let card = &document["components"]["schemas"][schema]["properties"];
        let card = card.as_object().unwrap().keys();
        names.extend(card.map(|name| format!("{parameter}[{name}]")));
    }
    names
}

#[test]
fn what_is_listed_as_not_offered_is_not_offered() {
    let document = document();
    let mut count = 0;
    for (resource, param) in not_offered::all_parameters() {
        let documented = documented(&document, resource);
        assert!(documented.len() > 2, "{resource}");
        let mut names = documented.iter().map(|name| name.trim_end_matches("[]"));
        let is_offered = names.any(|name| name == param);
        assert!(
            !is_offered,
            "{resource} has {param}: remove it from the list"
        );
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[tokio::test]
async fn a_path_of_stripe_s_is_answered_as_not_offered() {
    let server = TestServer::start().await;
    let refund = "/v1/charges/ch_1/refunds/re_1";
    for (path, name) in [
        ("/v1/subscriptions", "subscriptions"),
        ("/v1/subscriptions/sub_1", "subscriptions"),
        ("/subscriptions", "subscriptions"),
        ("/v1/checkout/sessions", "checkout sessions"),
        ("/v1/invoices/search?query=x", "invoices"),
        ("/v1/refunds/re_1/cancel", "/refunds/{id}/cancel"),
        ("/v1/invoice_payments/inpay_1", "/invoice_payments/{id}"),
        (refund, "/charges/{id}/refunds/{id}"),
        ("/v2/core/events?limit=3", "/v2/core"),
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = Answer::of(server.client.bare(method, path)).await;
            assert_eq!(error(&answer), (404, "route_not_found".into()), "{path}");
            let expected = format!("charge-once doesn't offer {name}; see docs/sdk.md.");
            assert_eq!(message(&answer), expected, "{path}");
        }
    }
    for path in ["/charges/search", "/v1/charges/search?query=amount%3E1"] {
        let answer = Answer::of(server.client.bare(Method::GET, path)).await;
        assert_eq!(answer.code(), "route_not_found");
        assert_eq!(message(&answer), "Search isn't offered: list with filters.");
    }
    for path in ["/v1/charges/ch_1/refund", "/payment_intents/pi_1/refunds"] {
        let answer = server.client.post_new(path, &json!({})).await;
        assert_eq!(answer.code(), "route_not_found");
        assert!(message(&answer).contains("POST /refunds"), "{path}");
    }
    // Only a GET searches.
    let updated = server.client.post_new("/charges/search", &json!({})).await;
    assert_eq!(updated.code(), "resource_missing");
}

#[tokio::test]
async fn a_publishable_key_is_told_from_a_wrong_one() {
    let server = TestServer::start().await;
    let bare = || server.client.bare(Method::GET, "/v1/charges");
    for key in ["pk_test_51Habcdefgh", "pk_live_51Habcdefgh"] {
        for request in [bare().bearer_auth(key), bare().basic_auth(key, Some(""))] {
            let answer = Answer::of(request).await;
            assert_eq!(error(&answer), (401, "api_key_invalid".into()));
            let expected = "Publishable keys aren't offered: confirm from your server.";
            assert_eq!(message(&answer), expected);
        }
    }
    let other = Answer::of(bare().bearer_auth("sk_test_nobody_at_all")).await;
    assert_eq!(other.code(), "api_key_invalid");
    assert!(!message(&other).starts_with("Publishable"));
    assert_eq!(Answer::of(bare().bearer_auth(API_KEY)).await.status, 200);
}

#[tokio::test]
async fn lists_that_are_not_offered_are_empty_where_empty_lists_says_so() {
    let (_server, client) = TestServer::with_client(&[("EMPTY_LISTS", "true")]).await;
    let list = client.get("/v1/products?active=true&limit=100").await;
    let expected = json!({"object": "list", "data": [], "has_more": false, "url": "/v1/products"});
    assert_eq!((list.status.as_u16(), list.json()), (200, expected));
    for path in ["/v1/customers/cus_1/sources", "/v1/accounts"] {
        assert_eq!(client.get(path).await.json()["url"], path);
    }
    let stranger = client.with_api_key("sk_test_of_a_stranger");
    assert_eq!(stranger.get("/v1/products").await.status, 401);
    for path in ["/products", "/v1/products/prod_1", "/v1/product"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    let posted = client
        .post_new("/v1/products", &json!({"name": "mug"}))
        .await;
    assert_eq!(posted.status, 404);
}
