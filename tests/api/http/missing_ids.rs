//! Ids that name nothing: below `/v1` in Stripe's words, by which programs know them.

use crate::support::{prelude::*, resources::customer, shorthand::message};

/// What no object has, behind a prefix: text of the wrong shape, and of the right one.
const NOTHING: [&str; 2] = ["nope", "01kar2w7n9e4xt8f5mq0v3z6yd"];

/// A refusal as Stripe says it.
fn assert_says(answer: &Answer, status: u16, param: &str, said: &str) {
    let refusal = (status, "resource_missing".into(), Some(param.to_owned()));
    assert_eq!(answer.refusal(), refusal, "{said}");
    assert_eq!(message(answer), said);
}

#[tokio::test]
async fn a_parameter_that_names_nothing_is_refused_in_stripe_s_words_and_so_replayed() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let intent = json!({"amount": 2000, "currency": "usd"});
    let begun = client.post_new("/payment_intents", &intent).await.id();
    let setup = client.post_new("/setup_intents", &json!({})).await.id();
    let cases = json!([
        ["/customers", {}, "payment_method", "PaymentMethod", "pm"],
        ["/payment_methods/pm_card_visa/attach", {}, "customer", "customer", "cus"],
        ["/payment_intents", intent, "customer", "customer", "cus"],
        ["/payment_intents", intent, "payment_method", "PaymentMethod", "pm"],
        [format!("/payment_intents/{begun}"), {}, "customer", "customer", "cus"],
        [format!("/payment_intents/{begun}"), {}, "payment_method", "PaymentMethod", "pm"],
        [format!("/payment_intents/{begun}/confirm"), {"return_url": "https://example.com"},
         "payment_method", "PaymentMethod", "pm"],
        ["/setup_intents", {}, "customer", "customer", "cus"],
        ["/setup_intents", {}, "payment_method", "PaymentMethod", "pm"],
        [format!("/setup_intents/{setup}"), {}, "customer", "customer", "cus"],
        ["/refunds", {}, "charge", "charge", "ch"],
        ["/refunds", {}, "payment_intent", "payment_intent", "pi"],
    ]);
    type Row = (String, Value, String, String, String);
    for (path, mut body, param, noun, prefix) in rows::<Row>(cases) {
        for nothing in NOTHING {
            let id = format!("{prefix}_{nothing}");
            body[&param] = id.clone().into();
            let native = client.post_new(&path, &body).await;
            assert_eq!(
                native.refusal(),
                refusal("resource_missing", &param),
                "{path}"
            );
            assert!(!message(&native).contains(&id), "{path}");
            let (path, key) = (format!("/v1{path}"), Uuid::now_v7().to_string());
            let refused = client.post(&path, &key, &body).await;
            assert_says(&refused, 400, &param, &format!("No such {noun}: '{id}'"));
            client
                .post(&path, &key, &body)
                .await
                .assert_replays(&refused);
        }
    }
}

#[tokio::test]
async fn text_that_is_no_id_is_refused_in_stripe_s_words_in_each_query_and_in_brackets() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for (list, param, said) in [
        (
            "/charges",
            "payment_intent",
            "No such payment_intent: 'nope'",
        ),
        ("/charges", "order", "No such order: 'nope'"),
        ("/charges", "starting_after", "No such charge: 'nope'"),
        ("/refunds", "charge", "No such charge: 'nope'"),
        (
            "/refunds",
            "payment_intent",
            "No such payment_intent: 'nope'",
        ),
        ("/customers", "ending_before", "No such customer: 'nope'"),
        ("/payment_intents", "customer", "No such customer: 'nope'"),
        ("/payment_methods", "customer", "No such customer: 'nope'"),
        (
            "/setup_intents",
            "payment_method",
            "No such PaymentMethod: 'nope'",
        ),
        ("/events", "starting_after", "No such event: 'nope'"),
        (
            "/webhook_endpoints",
            "ending_before",
            "No such webhook endpoint: 'nope'",
        ),
    ] {
        let query = format!("{list}?{param}=nope");
        let native = client.get(&query).await;
        assert_eq!(
            native.refusal(),
            refusal("parameter_invalid", param),
            "{query}"
        );
        let refused = client.get(&format!("/v1{query}")).await;
        assert_says(&refused, 400, param, said);
    }
    let param = "invoice_settings[default_payment_method]";
    let form = format!("{param}=pm_nope");
    for (path, key) in [("/v1/customers", "create"), ("/customers", "native")] {
        let refused = client.post_raw(path, key, FORM, form.as_bytes()).await;
        match key {
            "create" => assert_says(&refused, 400, param, "No such PaymentMethod: 'pm_nope'"),
            _ => assert_eq!(refused.refusal(), refusal("parameter_invalid", param)),
        }
    }
}

#[tokio::test]
async fn a_path_that_names_nothing_is_404_in_stripe_s_words() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = json!({});
    for (collection, verbs, param, noun, prefix) in [
        ("charges", &["", "/capture"][..], "id", "charge", "ch"),
        ("customers", &[""], "id", "customer", "cus"),
        ("events", &[], "id", "event", "evt"),
        ("orders", &["", "/pay", "/cancel"], "id", "order", "or"),
        (
            "payment_intents",
            &["", "/capture", "/cancel"],
            "intent",
            "payment_intent",
            "pi",
        ),
        (
            "payment_methods",
            &["", "/detach"],
            "id",
            "PaymentMethod",
            "pm",
        ),
        ("refunds", &[""], "id", "refund", "re"),
        (
            "setup_intents",
            &["", "/confirm", "/cancel"],
            "intent",
            "setupintent",
            "seti",
        ),
        ("webhook_endpoints", &[""], "id", "webhook endpoint", "we"),
    ] {
        for nothing in NOTHING {
            let id = format!("{prefix}_{nothing}");
            let (path, said) = (
                format!("/v1/{collection}/{id}"),
                format!("No such {noun}: '{id}'"),
            );
            assert_says(&client.get(&path).await, 404, param, &said);
            for verb in verbs {
                let refused = client.post_new(&format!("{path}{verb}"), &body).await;
                assert_says(&refused, 404, param, &said);
            }
            let native = client.get(&format!("/{collection}/{id}")).await;
            assert_eq!(native.refusal(), refusal("resource_missing", param));
            assert!(!message(&native).contains(&id), "{}", message(&native));
        }
    }
    for nothing in NOTHING {
        let (id, said) = (
            format!("cus_{nothing}"),
            format!("No such customer: 'cus_{nothing}'"),
        );
        let path = format!("/v1/customers/{id}");
        let deleted = Answer::of(client.request(Method::DELETE, &path)).await;
        assert_says(&deleted, 404, "id", &said);
        assert_says(
            &client.get(&format!("{path}/payment_methods")).await,
            404,
            "id",
            &said,
        );
        let path = format!(
            "/v1/customers/{}/payment_methods/pm_nope",
            customer(&client).await
        );
        assert_says(
            &client.get(&path).await,
            404,
            "id",
            "No such PaymentMethod: 'pm_nope'",
        );
    }
}

#[tokio::test]
async fn what_may_be_a_secret_or_a_card_number_is_not_repeated() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let long = "x".repeat(300);
    for id in ["sk_test_12345678", "4242424242424242", "a%0Ab", &long] {
        let refused = client.get(&format!("/v1/charges/{id}")).await;
        assert_says(&refused, 404, "id", "No such charge");
    }
    for id in ["sk_test_12345678", "pi_1_secret_12345678", "a\nb"] {
        let body = json!({"amount": 1, "currency": "usd", "customer": id});
        let refused = client.post_new("/v1/payment_intents", &body).await;
        assert_says(&refused, 400, "customer", "No such customer");
    }
}
