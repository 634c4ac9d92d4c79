//! Payment methods: what is kept of a card, whose it is, and that it is so for good.

use charge_once::domain::test_cards::{Decision, TEST_CARDS};

use crate::support::{
    prelude::*,
    resources::{assert_is_created, attach, attached, customer, detach, happened, method},
};

const UNKNOWN: &str = "pm_00000000000000000000000000";

async fn retrieve(client: &Client, id: &str) -> Value {
    client.get(&format!("/payment_methods/{id}")).await.json()
}

async fn create(client: &Client, card: Value) -> Answer {
    let body = json!({"type": "card", "card": card});
    client.post_new("/payment_methods", &body).await
}

fn wrong_state(answer: &Answer) -> bool {
    answer.refusal() == (400, "payment_method_unexpected_state".to_owned(), None)
}

#[tokio::test]
async fn a_payment_method_has_exactly_the_documented_members() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let address = json!({
        "city": "Bonn", "country": "DE", "line1": "x 1", "line2": null, "postal_code": "53111",
        "state": null,
    });
    let body = json!({
        "type": "card",
        "card": {"number": "5555 5555 5555 4444", "exp_month": 5, "exp_year": 2034, "cvc": "123"},
        "billing_details": {
            "address": address, "email": "a@b.c", "name": "Jenny", "phone": "1",
        },
        "metadata": {"a": "1"}, "allow_redisplay": "limited",
    });
    let created = client.post("/payment_methods", "key-1", &body).await;
    assert_is_created(&client, &created, "/payment_methods", "pm_").await;
    let shown = created.json();
    let expected = json!({
        "id": created.id(), "object": "payment_method", "allow_redisplay": "limited",
        "billing_details": {
            "address": address, "email": "a@b.c", "name": "Jenny", "phone": "1", "tax_id": null,
        },
        "card": {
            "brand": "mastercard",
            "checks": {
                "address_line1_check": null, "address_postal_code_check": null, "cvc_check": "pass",
            },
            "country": "US", "display_brand": "mastercard", "exp_month": 5, "exp_year": 2034,
            "fingerprint": shown["card"]["fingerprint"], "funding": "credit",
            "generated_from": null, "last4": "4444",
            "networks": {"available": ["mastercard"], "preferred": null},
            "regulated_status": "unregulated", "three_d_secure_usage": {"supported": true},
            "wallet": null,
        },
        "created": shown["created"], "customer": null, "customer_account": null,
        "livemode": false, "metadata": {"a": "1"}, "type": "card",
    });
    assert_eq!(shown, expected);
    assert_eq!(shown["card"]["fingerprint"].as_str().unwrap().len(), 16);
    let replayed = client.post("/payment_methods", "key-1", &body).await;
    replayed.assert_replays(&created);
    assert_eq!(happened(&client).await, [], "a new method is no event");
}

#[tokio::test]
async fn a_card_is_given_by_its_number_or_a_token_in_both_encodings() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let long = "type=card&card[number]=4242424242424242&card[exp_month]=12&card[exp_year]=2099\
         &card[cvc]=123&billing_details[name]=&billing_details[address][city]=&metadata[a]=";
    let dashes =
        "type=card&card[number]=4242-4242-4242-4242&card[exp_month]=12&card[exp_year]=2099";
    let number = json!({"number": "4242424242424242", "exp_month": 12, "exp_year": 2099});
    let number = json!({"type": "card", "card": number}).to_string();
    let token = r#"{"type":"card","card":{"token":"tok_visa"},"billing_details":null}"#;
    let cases = [
        (FORM, long, json!("pass")),
        (FORM, dashes, Value::Null),
        (FORM, "type=card&card[token]=tok_visa", Value::Null),
        (JSON, &number, Value::Null),
        (JSON, token, Value::Null),
    ];
    for (number, (media_type, body, checked)) in cases.into_iter().enumerate() {
        let path = ["/payment_methods", "/v1/payment_methods"][number % 2];
        let key = number.to_string();
        let created = client
            .post_raw(path, &key, media_type, body.as_bytes())
            .await;
        assert_eq!(created.status, 201, "{body}: {}", created.json());
        let shown = created.json();
        shown.assert_shows(json!({
            "card/last4": "4242", "card/exp_month": 12, "card/exp_year": 2099,
            "card/checks/cvc_check": checked, "billing_details/name": null,
            "allow_redisplay": "unspecified",
        }));
    }
}

#[tokio::test]
async fn wrong_parameters_are_stored_refusals_that_name_the_field() {
    let server = TestServer::start().await;
    let long_email = format!("{}@b", "a".repeat(511));
    let (missing, invalid, unknown) = (
        "parameter_missing",
        "parameter_invalid",
        "parameter_unknown",
    );
    let number = "4242424242424242";
    let cases = json!([
        [{"type": null}, missing, "type"],
        [{"type": "sepa_debit"}, invalid, "type"],
        [{"card": null}, missing, "card"],
        [{"card": "tok_visa"}, invalid, "card"],
        [{"card": {}}, missing, "card[number]"],
        [{"card": {"token": "tok_nothing"}}, invalid, "card[token]"],
        [{"card": {"token": "pm_card_visa"}}, invalid, "card[token]"],
        [{"card": {"token": "tok_visa", "cvc": "123"}}, unknown, "card[cvc]"],
        [{"card": {"number": "1234", "exp_month": 12, "exp_year": 2034}}, "invalid_number",
         "card[number]"],
        [{"card": {"number": number, "exp_month": null, "exp_year": 2034}}, missing,
         "card[exp_month]"],
        [{"card": {"number": number, "exp_month": 12, "exp_year": null}}, missing,
         "card[exp_year]"],
        [{"card": {"number": number, "exp_month": 12, "exp_year": 2034, "networks": {}}}, unknown,
         "card[networks]"],
        [{"billing_details": "x"}, invalid, "billing_details"],
        [{"billing_details": {"email": "x"}}, invalid, "billing_details[email]"],
        [{"billing_details": {"email": long_email}}, invalid, "billing_details[email]"],
        [{"billing_details": {"name": "n".repeat(257)}}, invalid, "billing_details[name]"],
        [{"billing_details": {"phone": "1".repeat(51)}}, invalid, "billing_details[phone]"],
        [{"billing_details": {"address": {"country": "x"}}}, invalid,
         "billing_details[address][country]"],
        [{"billing_details": {"tax_id": "x"}}, unknown, "billing_details[tax_id]"],
        [{"allow_redisplay": "never"}, invalid, "allow_redisplay"],
        [{"metadata": {"a": 1}}, invalid, "metadata[a]"],
        [{"customer": "cus_1"}, unknown, "customer"],
        [{"expand": ["card"]}, invalid, "expand[0]"],
    ]);
    let right = json!({"type": "card", "card": {"token": "tok_visa"}});
    let cases = differing_from(&right, cases);
    assert_stores_refusals(&server.client, "/payment_methods", cases).await;
    assert_eq!(server.database.count_of("payment_methods").await, 0);
}

#[tokio::test]
async fn a_card_number_is_taken_in_its_field_alone_and_stored_nowhere() {
    let (server, client) = TestServer::with_client(&[]).await;
    let card = |number: &str| json!({"number": number, "exp_month": 12, "exp_year": 2034});
    let created = create(&client, card("5555555555554444")).await;
    assert_eq!(created.status, 201, "{}", created.json());
    let customer = customer(&client).await;
    attached(&client, &created.id(), &customer).await;
    let forbidden = |param: &str| refusal("card_number_forbidden", param);
    // Not a test card.
    let refused = create(&client, card("4111111111111111")).await;
    assert_eq!(refused.refusal(), forbidden("card[number]"));
    // A test card in another place.
    for (body, param) in &rows::<(Value, String)>(json!([
        [{"card": {"token": "5555555555554444"}}, "card[token]"],
        [{"number": "5555555555554444"}, "number"],
        [{"metadata": {"a": "5555555555554444"}}, "metadata[a]"],
        [{"billing_details": {"name": "5555555555554444"}}, "billing_details[name]"],
        [{"payment_method_data": {"number": "5555555555554444"}}, "payment_method_data[number]"],
        [{"payment_method_data": {"card": {"number": "4111111111111111"}}},
         "payment_method_data[card][number]"],
    ])) {
        let refused = client.post_new("/payment_methods", body).await;
        assert_eq!(refused.refusal(), forbidden(param), "{body}");
    }
    // Where a method can be made on the way, its number is in a field for it.
    let body = json!({"payment_method_data": {"card": {"number": "5555555555554444"}}});
    let refused = client.post_new("/payment_methods", &body).await;
    assert_ne!(refused.code(), "card_number_forbidden");
    let tables = "SELECT string_agg(format('SELECT count(*) FROM %I AS row WHERE row::text LIKE ''%%55555555%%''
                                               OR row::text LIKE ''%%41111111%%''', relname), ' UNION ALL ')
                    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'";
    let pool = &server.database.pool;
    let sql: String = sqlx::query_scalar(tables).fetch_one(pool).await.unwrap();
    let counts: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_all(pool)
        .await
        .unwrap();
    assert!(counts.len() > 10, "{counts:?}");
    assert!(counts.iter().all(|count| *count == 0), "{counts:?}");
    // Nor is what a token stands for.
    let stored = "SELECT count(*) FROM payment_methods WHERE card_token = 'tok_mastercard'";
    assert_eq!(server.database.count(stored).await, 1);
}

#[tokio::test]
async fn one_card_has_one_fingerprint_in_one_account() {
    let (server, client) = TestServer::with_client(&[]).await;
    let stranger = client_of_account(&server, "other").await;
    let fingerprint = |answer: Answer| answer.json()["card"]["fingerprint"].clone();
    let visa = json!({"token": "tok_visa"});
    let number = json!({"number": "4242424242424242", "exp_month": 1, "exp_year": 2030});
    let first = fingerprint(create(&client, visa.clone()).await);
    assert_eq!(fingerprint(create(&client, number).await), first);
    assert_eq!(fingerprint(create(&client, visa.clone()).await), first);
    let customer = customer(&client).await;
    let template = attach(&client, "pm_card_visa", &customer).await;
    assert_eq!(fingerprint(template), first);
    for other in ["tok_amex", "tok_slow"] {
        let other = fingerprint(create(&client, json!({"token": other})).await);
        assert_ne!(other, first);
    }
    assert_ne!(fingerprint(create(&stranger, visa).await), first);
}

#[tokio::test]
async fn a_template_makes_a_new_method_each_time_and_is_none_itself() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let path = "/v1/payment_methods/pm_card_visa/attach";
    let body = json!({"customer": customer});
    let first = client.post(path, "key-1", &body).await;
    let second = client.post(path, "key-2", &body).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
    assert_ne!(first.id(), second.id());
    assert!(first.id().starts_with("pm_0"), "{}", first.id());
    let replayed = client.post(path, "key-1", &body).await;
    replayed.assert_replays(&first);
    assert_eq!(server.database.count_of("payment_methods").await, 2);
    for answer in [
        client.get("/payment_methods/pm_card_nothing").await,
        client.get("/payment_methods/tok_visa").await,
        detach(&client, "pm_card_visa").await,
        client
            .post_new("/payment_methods/pm_card_visa", &json!({}))
            .await,
        attach(&client, "pm_card_nothing", &customer).await,
        attach(&client, "tok_visa", &customer).await,
        attach(&client, UNKNOWN, &customer).await,
    ] {
        assert_eq!(answer.refusal(), refusal("resource_missing", "id"));
    }
    assert_eq!(server.database.count_of("payment_methods").await, 2);
}

#[tokio::test]
async fn a_template_is_shown_as_what_a_use_of_it_makes_and_is_stored_nowhere() {
    let (server, client) = TestServer::with_client(&[]).await;
    let tokens = TEST_CARDS.iter().flat_map(|card| card.tokens).copied();
    let mut count = 0;
    for token in tokens.filter(|token| token.starts_with("pm_card_")) {
        let shown = client.get(&format!("/v1/payment_methods/{token}")).await;
        assert_eq!(shown.status, 200, "{token}");
        shown.assert_shows(json!({"id": token, "object": "payment_method", "customer": null}));
        count += 1;
    }
    assert!(count > 15, "{count}");
    assert_eq!(server.database.count_of("payment_methods").await, 0);
    let shown = client
        .get("/payment_methods/pm_card_visa?expand[]=customer")
        .await;
    let mut made = create(&client, json!({"token": "tok_visa"})).await.json();
    made["id"] = json!("pm_card_visa");
    made["created"] = shown.json()["created"].clone();
    assert_eq!(shown.json(), made);
    let refused = client
        .get("/payment_methods/pm_card_visa?expand[]=card")
        .await;
    assert_eq!(refused.refusal(), refusal("parameter_invalid", "expand[0]"));
    let stranger = client.with_api_key("sk_test_of_a_stranger");
    assert_eq!(
        stranger.get("/payment_methods/pm_card_visa").await.status,
        401
    );
}

#[tokio::test]
async fn a_method_is_attached_to_one_customer() {
    let (server, client) = TestServer::with_client(&[]).await;
    let (ann, bob) = (customer(&client).await, customer(&client).await);
    let id = method(&client, "tok_visa").await;
    let path = format!("/payment_methods/{id}/attach");
    let before = happened(&client).await.len();
    let body = json!({"customer": ann, "expand": ["customer"]});
    let first = client.post(&path, "key-1", &body).await;
    assert_eq!(first.status, 200, "{}", first.json());
    assert_eq!(first.json()["customer"]["id"], json!(ann));
    assert_eq!(retrieve(&client, &id).await["customer"], json!(ann));
    // To the same one again: as it is, and nothing happens.
    let again = attach(&client, &id, &ann).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json(), retrieve(&client, &id).await);
    let replayed = client.post(&path, "key-1", &body).await;
    replayed.assert_replays(&first);
    let attached = ("payment_method.attached".to_owned(), id.clone());
    assert_eq!(happened(&client).await[before..], [attached]);
    let other = client.post(&path, "key-2", &json!({"customer": bob})).await;
    assert!(wrong_state(&other), "{}", other.json());
    let replayed = client.post(&path, "key-2", &json!({"customer": bob})).await;
    replayed.assert_replays(&other);
    let cases = json!([
        [{}, "parameter_missing", "customer"],
        [{"customer": ""}, "parameter_missing", "customer"],
        [{"customer": ["a"]}, "parameter_invalid", "customer"],
        [{"customer": "nothing"}, "resource_missing", "customer"],
        [{"customer": "cus_00000000000000000000000000"}, "resource_missing", "customer"],
        [{"customer": bob, "x": 1}, "parameter_unknown", "x"],
    ]);
    assert_refuses(&client, &path, cases).await;
    let stranger = client_of_account(&server, "other").await;
    let theirs = customer(&stranger).await;
    let foreign = attach(&client, "pm_card_visa", &theirs).await;
    assert_eq!(foreign.refusal(), refusal("resource_missing", "customer"));
    let foreign = attach(&stranger, &id, &theirs).await;
    assert_eq!(foreign.refusal(), refusal("resource_missing", "id"));
}

#[tokio::test]
async fn a_card_that_is_known_to_decline_is_not_attached() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let before = happened(&client).await;
    let mut declined = 0;
    for card in TEST_CARDS {
        let is_token = |token: &&&str| token.starts_with("tok_");
        let token = card.tokens.iter().find(is_token).unwrap();
        let method = method(&client, token).await;
        let path = format!("/payment_methods/{method}/attach");
        let body = json!({"customer": customer});
        let answer = client.post(&path, token, &body).await;
        let Decision::Decline(decline) = card.decision else {
            assert_eq!(answer.status, 200, "{token}: {}", answer.json());
            continue;
        };
        if !card.is_checked_early {
            assert_eq!(answer.status, 200, "{token}: {}", answer.json());
            continue;
        }
        declined += 1;
        assert_eq!(answer.status, 402, "{token}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "card_error");
        assert_eq!(error["code"], decline.code.as_str());
        assert_eq!(error["decline_code"].as_str(), decline.decline_code);
        assert_eq!(error["message"], decline.message);
        assert!(error.get("charge").is_none(), "{error}");
        assert_eq!(error["payment_method"], retrieve(&client, &method).await);
        assert_eq!(error["payment_method"]["customer"], Value::Null);
        let replayed = client.post(&path, token, &body).await;
        replayed.assert_replays(&answer);
    }
    assert!(declined >= 8, "{declined}");
    // Of a template, nothing stays.
    let methods = server.database.count_of("payment_methods").await;
    let template = attach(&client, "pm_card_chargeDeclined", &customer).await;
    assert_eq!(error(&template), (402, "card_declined".into()));
    let shown = &template.json()["error"]["payment_method"];
    assert_eq!(shown["card"]["last4"], "0002");
    assert_eq!(server.database.count_of("payment_methods").await, methods);
    let attached = happened(&client).await.len() - before.len();
    assert_eq!(attached, TEST_CARDS.len() - declined);
}

#[tokio::test]
async fn a_detached_method_never_comes_back() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let ann = customer(&client).await;
    let id = attached(&client, "pm_card_visa", &ann).await;
    let path = format!("/payment_methods/{id}/detach");
    let first = client.post_raw(&path, "key-1", FORM, b"").await;
    assert_eq!(first.status, 200, "{}", first.json());
    assert_eq!(first.json()["customer"], Value::Null);
    assert_eq!(retrieve(&client, &id).await, first.json());
    let replayed = client.post_raw(&path, "key-1", FORM, b"").await;
    replayed.assert_replays(&first);
    let last = happened(&client).await.pop().unwrap();
    assert_eq!(last, ("payment_method.detached".to_owned(), id.clone()));
    let told = client.get("/events?limit=1").await.json();
    let changed = &told["data"][0]["data"]["previous_attributes"];
    assert_eq!(*changed, json!({"customer": ann}));
    let events = happened(&client).await;
    let again = detach(&client, &id).await;
    assert!(wrong_state(&again), "{}", again.json());
    let error = &again.json()["error"];
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("The payment method you provided is not attached to a customer"),
        "{message}"
    );
    let path_of_method = format!("/payment_methods/{id}");
    for refused in [
        attach(&client, &id, &ann).await,
        client.post_new(&path_of_method, &json!({})).await,
        detach(&client, &method(&client, "tok_visa").await).await,
    ] {
        assert!(wrong_state(&refused), "{}", refused.json());
    }
    let wrong = client.post_new(&path, &json!({"customer": ann})).await;
    assert_eq!(wrong.refusal(), refusal("parameter_unknown", "customer"));
    let missing = detach(&client, UNKNOWN).await;
    missing.assert_refusal(404, "resource_missing", "id");
    assert_eq!(happened(&client).await, events, "a refusal is no event");
}

#[tokio::test]
async fn an_update_changes_what_it_names_while_the_method_is_attached() {
    let (server, client) = TestServer::with_client(&[]).await;
    let alone = method(&client, "tok_visa").await;
    let url = format!("/payment_methods/{alone}");
    let params = json!({"metadata": {"a": "1"}});
    let refused = client.post_new(&url, &params).await;
    assert!(wrong_state(&refused), "{}", refused.json());
    let customer = customer(&client).await;
    let id = attached(&client, "pm_card_visa", &customer).await;
    let path = format!("/payment_methods/{id}");
    let address = |city: Value, line1: Value| {
        json!({
            "city": city, "country": null, "line1": line1, "line2": null, "postal_code": null,
            "state": null,
        })
    };
    let none = Value::Null;
    let steps = rows::<(String, String, String, Value)>(json!([
        [JSON, r#"{"billing_details":{"name":"J","email":"j@x"}}"#, "/billing_details/name", "J"],
        [FORM, "billing_details[phone]=1", "/billing_details/phone", "1"],
        [JSON, "{}", "/billing_details/name", "J"],
        [FORM, "billing_details[name]=", "/billing_details/name", none.clone()],
        [JSON, "{}", "/billing_details/email", "j@x"],
        [JSON, r#"{"billing_details":{"address":{"city":"Ulm"}}}"#, "/billing_details/address",
         address(json!("Ulm"), none.clone())],
        [FORM, "billing_details[address][line1]=x+1", "/billing_details/address",
         address(none.clone(), json!("x 1"))],
        [FORM, "billing_details[address]=", "/billing_details/address",
         address(none.clone(), none.clone())],
        [JSON, r#"{"card":{"exp_month":11}}"#, "/card/exp_month", 11],
        [FORM, "card[exp_year]=2034", "/card/exp_year", 2034],
        [JSON, r#"{"card":{}}"#, "/card/exp_month", 11],
        [FORM, "allow_redisplay=always", "/allow_redisplay", "always"],
        [JSON, r#"{"metadata":{"a":"1"}}"#, "/metadata", {"a": "1"}],
        [FORM, "metadata=", "/metadata", {}],
    ]));
    for (number, (media_type, body, pointer, expected)) in steps.iter().enumerate() {
        let key = number.to_string();
        let post = || client.post_raw(&path, &key, media_type, body.as_bytes());
        let updated = post().await;
        assert_eq!(updated.status, 200, "{body}: {}", updated.json());
        assert_eq!(updated.json().pointer(pointer), Some(expected), "{body}");
        assert_eq!(retrieve(&client, &id).await, updated.json());
        post().await.assert_replays(&updated);
    }
    let updates = "SELECT count(*) FROM events WHERE type = 'payment_method.updated'";
    // Three change nothing.
    let changes = i64::try_from(steps.len()).unwrap() - 3;
    assert_eq!(server.database.count(updates).await, changes);
    let cases = json!([
        [{"card": {"exp_month": 13}}, "invalid_expiry_month", "card[exp_month]"],
        [{"card": {"exp_month": ""}}, "parameter_invalid", "card[exp_month]"],
        [{"card": {"number": "4242424242424242"}}, "parameter_unknown", "card[number]"],
        [{"card": ""}, "parameter_invalid", "card"],
        [{"billing_details": ""}, "parameter_invalid", "billing_details"],
        [{"allow_redisplay": ""}, "parameter_invalid", "allow_redisplay"],
        [{"customer": customer}, "parameter_unknown", "customer"],
    ]);
    assert_refuses(&client, &path, cases).await;
}

#[tokio::test]
async fn the_methods_of_a_customer_are_listed_in_pages() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let (ann, bob) = (customer(&client).await, customer(&client).await);
    let mut newest_first = Vec::new();
    for _ in 0..5 {
        newest_first.insert(0, attached(&client, "pm_card_visa", &ann).await);
    }
    let of_bob = attached(&client, "pm_card_visa", &bob).await;
    method(&client, "tok_visa").await;
    let of_customer = format!("/v1/customers/{ann}/payment_methods");
    for list in [
        format!("/payment_methods?customer={ann}"),
        format!("{of_customer}?"),
    ] {
        let after = format!("&limit=2&starting_after={}", newest_first[1]);
        let before = format!("&limit=3&ending_before={}", newest_first[4]);
        for (more, expected, has_more) in [
            ("", 0..5, false),
            ("&limit=2", 0..2, true),
            (&after, 2..4, true),
            (&before, 1..4, true),
            ("&created[lt]=1000", 0..0, false),
            ("&limit=1&type=card", 0..1, true),
        ] {
            let found = page(&client, &format!("{list}{more}")).await;
            let expected = (newest_first[expected].to_vec(), has_more);
            assert_eq!(found, expected, "{list}{more}");
        }
        let expanded = format!("{list}&limit=1&expand[]=data.customer");
        let expanded = client.get(&expanded).await.json();
        assert_eq!(expanded["data"][0]["customer"]["object"], "customer");
        let (path, query) = list.split_once('?').unwrap();
        let is_stripe_s = path.starts_with("/v1/");
        let no_id = if is_stripe_s {
            "resource_missing"
        } else {
            "parameter_invalid"
        };
        let wrong = format!(
            "{query}&limit=0               parameter_invalid limit
             {query}&starting_after=pm_1   {no_id}           starting_after
             {query}&expand[]=data.card    parameter_invalid expand[0]
             {query}&email=a@b.c           parameter_unknown email"
        );
        assert_refuses_queries(&client, path, &wrong).await;
    }
    let list = client.get(&of_customer).await.json();
    assert_eq!(list["url"], of_customer);
    let list = format!("/payment_methods?customer={ann}");
    let list = client.get(&list).await.json();
    assert_eq!(list["url"], "/payment_methods");
    let required = client.get("/payment_methods").await;
    required.assert_refusal(400, "parameter_missing", "customer");
    let wrong = format!(
        "customer=nothing                     parameter_invalid customer
         customer={ann}&type=us_bank_account  parameter_invalid type"
    );
    assert_refuses_queries(&client, "/payment_methods", &wrong).await;
    for path in [
        "/customers/nothing/payment_methods",
        &format!("/customers/{ann}/payment_methods/{of_bob}"),
        &format!("/customers/{ann}/payment_methods/nothing"),
    ] {
        let missing = refusal("resource_missing", "id");
        assert_eq!(client.get(path).await.refusal(), missing, "{path}");
    }
    for path in [
        format!("/customers/{bob}/payment_methods/{of_bob}"),
        format!("/v1/customers/{bob}/payment_methods/{of_bob}?expand[]=customer"),
    ] {
        assert_eq!(client.get(&path).await.id(), of_bob);
    }
    let unknown = "/payment_methods?customer=cus_00000000000000000000000000";
    assert_eq!(page(&client, unknown).await, (vec![], false));
    detach(&client, &newest_first[0]).await;
    let left = page(&client, &format!("/payment_methods?customer={ann}")).await;
    assert_eq!(left, (newest_first[1..].to_vec(), false));
}
