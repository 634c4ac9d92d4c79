//! Customers: what is kept of them, what is unset, and what is left of those who were deleted.

use crate::support::{
    prelude::*,
    resources::{assert_is_created, attach, attached, customer, detach, happened, method},
    shorthand::message,
};

const DEFAULT: &str = "invoice_settings[default_payment_method]";

/// A payment method that never was.
const UNKNOWN: &str = "pm_00000000000000000000000000";

/// A customer with every parameter.
fn jenny() -> Value {
    let address = json!({
        "city": "Bonn", "country": "De", "line1": "Am Hof 1", "line2": "3rd floor",
        "postal_code": "53111", "state": "NRW",
    });
    json!({
        "address": address, "description": "Likes mugs", "email": "Jenny@Example.com",
        "metadata": {"user": "7"}, "name": "Jenny Rosen", "phone": "+49 228 1",
        "preferred_locales": ["de-DE", "en"],
        "shipping": {"address": {"city": "Köln"}, "name": "Jenny", "phone": "0228"},
    })
}

fn with_default(method: &str) -> Value {
    json!({"invoice_settings": {"default_payment_method": method}})
}

async fn delete(client: &Client, id: &str) -> Answer {
    Answer::of(client.request(Method::DELETE, &format!("/v1/customers/{id}"))).await
}

async fn retrieve(client: &Client, id: &str) -> Value {
    client.get(&format!("/customers/{id}")).await.json()
}

async fn update(client: &Client, id: &str, body: Value) -> Answer {
    client.post_new(&format!("/customers/{id}"), &body).await
}

#[tokio::test]
async fn a_customer_has_exactly_the_documented_members() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let created = client.post("/v1/customers", "key-1", &jenny()).await;
    assert_is_created(&client, &created, "/v1/customers", "cus_").await;
    let (id, shown) = (created.id(), created.json());
    let expected = json!({
        "id": id, "object": "customer", "address": jenny()["address"], "balance": 0,
        "created": shown["created"], "currency": null, "default_source": null, "delinquent": false,
        "description": "Likes mugs", "discount": null, "email": "Jenny@Example.com",
        "invoice_prefix": null,
        "invoice_settings": {
            "custom_fields": null, "default_payment_method": null, "footer": null,
            "rendering_options": null,
        },
        "livemode": false, "metadata": {"user": "7"}, "name": "Jenny Rosen", "phone": "+49 228 1",
        "preferred_locales": ["de-DE", "en"],
        "shipping": {
            "address": {
                "city": "Köln", "country": null, "line1": null, "line2": null, "postal_code": null,
                "state": null,
            },
            "carrier": null, "name": "Jenny", "phone": "0228", "tracking_number": null,
        },
        "tax_exempt": "none", "test_clock": null,
    });
    assert_eq!(shown, expected);
    assert!(shown["created"].is_i64());
    for prefix in ["", "/v1"] {
        let list = client.get(&format!("{prefix}/customers")).await.json();
        let whole = json!({
            "object": "list", "data": [shown], "has_more": false, "url": format!("{prefix}/customers"),
        });
        assert_eq!(list, whole);
    }
    let replayed = client.post("/v1/customers", "key-1", &jenny()).await;
    replayed.assert_replays(&created);
    assert_eq!(happened(&client).await, [("customer.created".into(), id)]);
}

#[tokio::test]
async fn empty_parameters_of_a_create_are_absent_in_both_encodings() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let form = "email=a%40b.c&name=Ann+Bo&phone=&address[city]=Bonn&address[country]=de\
                &address[line1]=x+1&address[line2]=&address[postal_code]=53111&address[state]=\
                &shipping=&metadata[a]=&preferred_locales=&description=&invoice_settings=\
                &payment_method=";
    let json = json!({
        "email": "a@b.c", "name": "Ann Bo", "phone": null,
        "address": {"city": "Bonn", "country": "de", "line1": "x 1", "postal_code": "53111"},
        "shipping": null, "metadata": {"a": ""}, "preferred_locales": [], "description": "",
        "invoice_settings": {"default_payment_method": ""}, "payment_method": null,
    });
    for (key, media_type, body) in [
        ("form", FORM, form.to_owned()),
        ("json", JSON, json.to_string()),
    ] {
        let answer = client.post_raw("/customers", key, media_type, body.as_bytes());
        let answer = answer.await;
        assert_eq!(answer.status, 201, "{}", answer.json());
        let shown = answer.json();
        let address = json!({
            "city": "Bonn", "country": "de", "line1": "x 1", "line2": null, "postal_code": "53111",
            "state": null,
        });
        shown.assert_shows(json!({
            "address": address, "email": "a@b.c", "name": "Ann Bo", "phone": null,
            "shipping": null, "description": null, "preferred_locales": [], "metadata": {},
        }));
    }
}

#[tokio::test]
async fn wrong_parameters_are_stored_refusals_that_name_the_field() {
    let (server, client) = TestServer::with_client(&[]).await;
    let id = customer(&client).await;
    let path = format!("/customers/{id}");
    let cases = json!([
        [{"email": "nobody"}, "parameter_invalid", "email"],
        [{"email": 7}, "parameter_invalid", "email"],
        [{"name": ["a"]}, "parameter_invalid", "name"],
        [{"address": "Bonn"}, "parameter_invalid", "address"],
        [{"address": ["Bonn"]}, "parameter_invalid", "address"],
        [{"address": {"country": "DEU"}}, "parameter_invalid", "address[country]"],
        [{"address": {"country": "Ü1"}}, "parameter_invalid", "address[country]"],
        [{"address": {"street": "x"}}, "parameter_unknown", "address[street]"],
        [{"shipping": {"name": "x"}}, "parameter_missing", "shipping[address]"],
        [{"shipping": {"address": {"city": "x"}}}, "parameter_missing", "shipping[name]"],
        [{"shipping": {"address": {"country": "1"}, "name": "x"}}, "parameter_invalid",
         "shipping[address][country]"],
        [{"shipping": {"address": {}, "name": "x", "carrier": "x"}}, "parameter_unknown",
         "shipping[carrier]"],
        [{"preferred_locales": "de"}, "parameter_invalid", "preferred_locales"],
        [{"preferred_locales": ["de", "e n"]}, "parameter_invalid", "preferred_locales[1]"],
        [{"preferred_locales": [""]}, "parameter_invalid", "preferred_locales[0]"],
        [{"invoice_settings": {"footer": "x"}}, "parameter_unknown", "invoice_settings[footer]"],
        [with_default("pm_card_visa"), "parameter_invalid", DEFAULT],
        [{"metadata": "x"}, "parameter_invalid", "metadata"],
        [{"source": "tok_visa"}, "parameter_unknown", "source"],
        [{"tax": {}}, "parameter_unknown", "tax"],
        [{"expand": ["name"]}, "parameter_invalid", "expand[0]"],
    ]);
    let events = happened(&client).await;
    for path in ["/customers", &path] {
        assert_stores_refusals(&client, path, cases.clone()).await;
    }
    let update =
        json!([[{"payment_method": "pm_card_visa"}, "parameter_unknown", "payment_method"]]);
    assert_refuses(&client, &path, update).await;
    let create = json!([
        [{"payment_method": "pm_card_nothing"}, "resource_missing", "payment_method"],
        [{"payment_method": "nothing"}, "resource_missing", "payment_method"],
        [{"payment_method": UNKNOWN}, "resource_missing", "payment_method"],
    ]);
    assert_refuses(&client, "/customers", create).await;
    assert_eq!(happened(&client).await, events, "a refusal is no event");
    assert_eq!(server.database.count_of("customers").await, 1);
}

#[tokio::test]
async fn each_text_has_its_limit() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let email = |length: usize| format!("{}@b.c", "a".repeat(length - "@b.c".len()));
    let text = |length: usize| "ü".repeat(length);
    let of = |pointer: &str, value: Value| match pointer.split_once('/') {
        Some((object, member)) => json!({object: {member: value}}),
        None => json!({pointer: value}),
    };
    for (pointer, most) in [
        ("name", 256),
        ("phone", 50),
        ("description", 1000),
        ("address/city", 500),
        ("address/line1", 500),
        ("address/line2", 500),
        ("address/postal_code", 500),
        ("address/state", 500),
    ] {
        let fits = client
            .post_new("/customers", &of(pointer, text(most).into()))
            .await;
        assert_eq!(fits.status, 201, "{pointer}: {}", fits.json());
        let too_long = of(pointer, text(most + 1).into());
        let too_long = client.post_new("/customers", &too_long).await;
        assert_eq!(too_long.code(), "parameter_invalid", "{pointer}");
    }
    let tags = |count: usize, length: usize| vec!["d".repeat(length); count];
    for (body, status) in [
        (json!({"email": email(512)}), 201),
        (json!({"email": email(513)}), 400),
        (json!({"preferred_locales": tags(20, 35)}), 201),
        (json!({"preferred_locales": tags(21, 35)}), 400),
        (json!({"preferred_locales": tags(1, 36)}), 400),
    ] {
        assert_eq!(client.post_new("/customers", &body).await.status, status);
    }
}

#[tokio::test]
async fn an_update_sets_keeps_and_unsets_each_parameter() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = client.post_new("/customers", &jenny()).await.id();
    let path = format!("/customers/{id}");
    let whole = |city: &str| {
        json!({
            "city": city, "country": null, "line1": null, "line2": null, "postal_code": null,
            "state": null,
        })
    };
    let shipping = json!({
        "address": whole("Ulm"), "carrier": null, "name": "J", "phone": null,
        "tracking_number": null,
    });
    let steps = rows::<(String, String, Value)>(json!([
        [r#"{"name":"Jen"}"#, "name", "Jen"],
        ["name=", "name", null],
        [r#"{"email":"jen@example.com"}"#, "email", "jen@example.com"],
        [r#"{"email":null}"#, "email", null],
        ["phone=1", "phone", "1"],
        ["phone=", "phone", null],
        [r#"{"description":"d"}"#, "description", "d"],
        [r#"{"description":""}"#, "description", null],
        // An address that is given replaces the whole one.
        ["address[city]=Ulm&address[line2]=", "address", whole("Ulm")],
        [r#"{"address":{"city":"Hof"}}"#, "address", whole("Hof")],
        ["address=", "address", null],
        [
            "shipping[address][city]=Ulm&shipping[name]=J",
            "shipping",
            shipping
        ],
        [r#"{"shipping":""}"#, "shipping", null],
        [
            "preferred_locales[]=fr&preferred_locales[]=it",
            "preferred_locales",
            ["fr", "it"]
        ],
        [r#"{"preferred_locales":[]}"#, "preferred_locales", []],
        ["preferred_locales[0]=nl", "preferred_locales", ["nl"]],
        ["preferred_locales=", "preferred_locales", []],
    ]));
    let mut expected = retrieve(&client, &id).await;
    for (number, (body, name, value)) in steps.iter().enumerate() {
        let media_type = if body.starts_with('{') { JSON } else { FORM };
        let key = number.to_string();
        let post = || client.post_raw(&path, &key, media_type, body.as_bytes());
        let updated = post().await;
        assert_eq!(updated.status, 200, "{body}: {}", updated.json());
        expected[name] = value.clone();
        assert_eq!(updated.json(), expected, "{body}");
        assert_eq!(retrieve(&client, &id).await, expected, "{body}");
        post().await.assert_replays(&updated);
    }
    let types: Vec<_> = happened(&client)
        .await
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert_eq!(types[0], "customer.created");
    assert_eq!(types[1..], vec!["customer.updated"; steps.len()]);
}

#[tokio::test]
async fn several_customers_have_one_address_and_are_found_by_exactly_that() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let mut newest_first = Vec::new();
    for _ in 0..3 {
        let body = json!({"email": "ann@example.com"});
        newest_first.insert(0, client.post_new("/customers", &body).await.id());
    }
    let body = json!({"email": "bob@example.com"});
    client.post_new("/customers", &body).await;
    customer(&client).await;
    let ids = async |query: &str| page(&client, &format!("/customers?{query}")).await;
    let by_email = async |more: &str| ids(&format!("email=ann%40example.com{more}")).await;
    assert_eq!(by_email("").await, (newest_first.clone(), false));
    let newest = (newest_first[..2].to_vec(), true);
    assert_eq!(by_email("&limit=2").await, newest);
    let after = format!("&limit=2&starting_after={}", newest_first[1]);
    assert_eq!(by_email(&after).await, (newest_first[2..].to_vec(), false));
    let before = format!("&ending_before={}", newest_first[2]);
    assert_eq!(by_email(&before).await, (newest_first[..2].to_vec(), false));
    assert_eq!(by_email("&created[lt]=1000").await, (vec![], false));
    for other in ["Ann%40example.com", "ann%40example.co", "%25"] {
        let none = ids(&format!("email={other}")).await;
        assert_eq!(none, (vec![], false), "{other}");
    }
    // A deleted customer is in no list, and is still a cursor.
    assert_eq!(delete(&client, &newest_first[1]).await.status, 200);
    let left = vec![newest_first[0].clone(), newest_first[2].clone()];
    assert_eq!(by_email("").await, (left, false));
    assert_eq!(by_email(&after).await, (newest_first[2..].to_vec(), false));
    assert_eq!(ids("limit=100").await.0.len(), 4);
    let long = "a".repeat(513);
    let wrong = format!(
        "email={long}           parameter_invalid email
         starting_after=cus_1   parameter_invalid starting_after
         limit=101              parameter_invalid limit
         expand[]=sources       parameter_invalid expand[0]
         name=Ann               parameter_unknown name"
    );
    assert_refuses_queries(&client, "/customers", &wrong).await;
}

#[tokio::test]
async fn the_default_payment_method_is_one_of_the_customers() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let (ann, bob) = (customer(&client).await, customer(&client).await);
    let of_ann = attached(&client, "pm_card_visa", &ann).await;
    let of_bob = attached(&client, "pm_card_visa", &bob).await;
    let gone = attached(&client, "pm_card_visa", &ann).await;
    detach(&client, &gone).await;
    for wrong in [
        &of_bob,
        &gone,
        &method(&client, "tok_visa").await,
        UNKNOWN,
        "nothing",
    ] {
        let refused = update(&client, &ann, with_default(wrong)).await;
        let expected = refusal("parameter_invalid", DEFAULT);
        assert_eq!(refused.refusal(), expected, "{wrong}");
    }
    let default = |customer: Value| customer["invoice_settings"]["default_payment_method"].clone();
    let set = update(&client, &ann, with_default(&of_ann)).await;
    assert_eq!(default(set.json()), json!(of_ann));
    let kept = update(
        &client,
        &ann,
        json!({"name": "Ann", "invoice_settings": {}}),
    )
    .await;
    assert_eq!(default(kept.json()), json!(of_ann));
    let unset = update(&client, &ann, with_default("")).await;
    assert_eq!(default(unset.json()), Value::Null);
    // A default that is detached is none, which is told.
    update(&client, &ann, with_default(&of_ann)).await;
    detach(&client, &of_ann).await;
    let left = retrieve(&client, &ann).await;
    let told = client.get("/events?limit=2").await.json();
    assert_eq!(told["data"][1]["type"], "payment_method.detached");
    told["data"][0].assert_shows(json!({
        "type": "customer.updated", "data/object": left,
        "data/previous_attributes": with_default(&of_ann),
    }));
    assert_eq!(default(left), Value::Null);
    let unknown = "cus_00000000000000000000000000";
    let refused = update(&client, unknown, with_default(&of_bob)).await;
    assert_eq!(refused.refusal(), refusal("resource_missing", "id"));
}

#[tokio::test]
async fn a_create_attaches_the_method_that_it_names_and_makes_it_the_default_if_it_says_so() {
    let (server, client) = TestServer::with_client(&[]).await;
    let of_template = json!({"payment_method": "pm_card_mastercard"});
    let created = client.post("/customers", "key-1", &of_template).await;
    assert_eq!(created.status, 201, "{}", created.json());
    let id = created.id();
    let default = &created.json()["invoice_settings"]["default_payment_method"];
    assert_eq!(*default, Value::Null);
    let replayed = client.post("/customers", "key-1", &of_template).await;
    replayed.assert_replays(&created);
    let path = format!("/customers/{id}/payment_methods");
    let methods = client.get(&path).await.json();
    let [of_template] = &methods["data"].as_array().unwrap()[..] else {
        panic!("one method was attached: {methods}");
    };
    assert_eq!(of_template["card"]["brand"], "mastercard");
    let of_template = of_template["id"].as_str().unwrap().to_owned();
    let first = [
        ("customer.created", id),
        ("payment_method.attached", of_template),
    ];
    let first = first.map(|(name, id)| (name.to_owned(), id));
    assert_eq!(happened(&client).await, first);

    let method = method(&client, "tok_visa").await;
    let mut body = with_default(&method);
    let refused = client.post_new("/customers", &body).await;
    assert_eq!(refused.refusal(), refusal("parameter_invalid", DEFAULT));
    body["payment_method"] = json!(method);
    let created = client.post_new("/customers", &body).await;
    assert_eq!(created.status, 201, "{}", created.json());
    let default = &created.json()["invoice_settings"]["default_payment_method"];
    assert_eq!(*default, json!(method));
    let then = [
        ("customer.created", created.id()),
        ("payment_method.attached", method.clone()),
        ("customer.updated", created.id()),
    ];
    let then = then.map(|(name, id)| (name.to_owned(), id));
    assert_eq!(happened(&client).await, [&first[..], &then].concat());
    // It is theirs now, and no other customer's.
    let theirs = json!({"payment_method": method});
    let other = client.post_new("/customers", &theirs).await;
    assert_eq!(other.code(), "payment_method_unexpected_state");
    let declined = json!({"payment_method": "pm_card_chargeDeclined"});
    let declined = client.post_new("/customers", &declined).await;
    assert_eq!(error(&declined), (402, "card_declined".into()));
    let rows = "SELECT (SELECT count(*) FROM customers) + (SELECT count(*) FROM payment_methods)";
    let rows = server.database.count(rows).await;
    assert_eq!(rows, 4, "nothing of a refusal stays");
}

#[tokio::test]
async fn of_a_deleted_customer_the_id_is_left() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = client.post_new("/customers", &jenny()).await.id();
    let [first, second] = [
        attached(&client, "pm_card_visa", &id).await,
        attached(&client, "pm_card_amex", &id).await,
    ];
    update(&client, &id, with_default(&first)).await;
    let before = happened(&client).await.len();
    let mut charge = charge();
    charge["customer"] = json!(id);
    let deleted = delete(&client, &id).await;
    assert_eq!(deleted.status, 200);
    let left = json!({"id": id, "object": "customer", "deleted": true});
    assert_eq!(deleted.json(), left);
    let path = format!("/customers/{id}");
    for path in [&path, &format!("/v1{path}")] {
        assert_eq!(client.get(path).await.json(), left);
    }
    let again = delete(&client, &id).await;
    assert_eq!(again.refusal(), refusal("resource_missing", "id"));
    let refused = update(&client, &id, json!({"name": "x"})).await;
    assert_eq!(refused.refusal(), refusal("resource_missing", "id"));
    let refused = attach(&client, "pm_card_visa", &id).await;
    assert_eq!(refused.refusal(), refusal("resource_missing", "customer"));
    let methods = client.get(&format!("{path}/payment_methods")).await;
    assert_eq!(methods.refusal(), refusal("resource_missing", "id"));
    for method in [&first, &second] {
        let path = format!("/payment_methods/{method}");
        assert_eq!(client.get(&path).await.json()["customer"], Value::Null);
        let of_customer = client.get(&format!("/customers/{id}{path}")).await;
        assert_eq!(of_customer.refusal(), refusal("resource_missing", "id"));
        let new = customer(&client).await;
        let refused = attach(&client, method, &new).await;
        assert_eq!(refused.code(), "payment_method_unexpected_state");
    }
    // A charge names a customer by a reference of the client's own.
    assert_eq!(client.post_new("/charges", &charge).await.status, 201);
    let then: Vec<_> = happened(&client).await.split_off(before);
    let expected = [
        ("payment_method.detached", first),
        ("payment_method.detached", second),
        ("customer.deleted", id.clone()),
    ];
    assert_eq!(then[..3], expected.map(|(name, id)| (name.to_owned(), id)));
    let events = client.get("/events?type=payment_method.detached").await;
    for event in events.json()["data"].as_array().unwrap() {
        event.assert_shows(json!({"data/previous_attributes": {"customer": id}}));
    }
    let events = client.get("/events?type=customer.deleted").await.json();
    events["data"][0].assert_shows(json!({
        "request": {"id": deleted.header("request-id"), "idempotency_key": null},
        "data/object/id": id, "data/object/name": "Jenny Rosen",
        "data/object/invoice_settings/default_payment_method": null,
    }));
}

#[tokio::test]
async fn a_deletion_takes_no_parameters() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = customer(&client).await;
    let path = format!("/customers/{id}");
    let with_query = client.request(Method::DELETE, &format!("{path}?force=true"));
    let refused = Answer::of(with_query).await;
    assert_eq!(refused.refusal(), refusal("parameter_unknown", "force"));
    assert_eq!(delete(&client, &id).await.status, 200);
    for path in [
        "/customers/nothing",
        "/customers/cus_00000000000000000000000000",
    ] {
        let missing = Answer::of(client.request(Method::DELETE, path)).await;
        assert_eq!(missing.refusal(), refusal("resource_missing", "id"));
    }
}

#[tokio::test]
async fn another_accounts_customer_is_missing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let stranger = client_of_account(&server, "other").await;
    let id = client.post_new("/customers", &jenny()).await.id();
    let path = format!("/customers/{id}");
    let missing = refusal("resource_missing", "id");
    for answer in [
        stranger.get(&path).await,
        stranger.get(&format!("{path}/payment_methods")).await,
        update(&stranger, &id, json!({"name": "x"})).await,
        delete(&stranger, &id).await,
    ] {
        assert_eq!(answer.refusal(), missing);
    }
    let refused = attach(&stranger, "pm_card_visa", &id).await;
    assert_eq!(refused.refusal(), refusal("resource_missing", "customer"));
    let list = stranger.get("/customers?email=Jenny@Example.com").await;
    assert_eq!(list.json()["data"], json!([]));
    assert_eq!(retrieve(&client, &id).await["name"], "Jenny Rosen");
}

#[tokio::test]
async fn customers_are_searched_by_their_address_page_by_page() {
    let (server, client) = TestServer::with_client(&[]).await;
    let mut newest_first = Vec::new();
    for email in ["a@b.c", "a@b.c", "o'b@b.c", "a@b.c"] {
        let body = json!({"email": email});
        newest_first.insert(0, client.post_new("/customers", &body).await.json());
    }
    let other = newest_first.remove(1);
    let search = async |query: &str| {
        let found = client
            .get(&format!("/v1/customers/search?query={query}"))
            .await;
        assert_eq!(found.status, 200, "{query}: {}", found.json());
        found.json()
    };
    let result = |data: &[Value], next_page: Value| {
        json!({
            "object": "search_result", "data": data, "has_more": next_page.is_string(),
            "next_page": next_page, "url": "/v1/customers/search",
        })
    };
    for query in [
        "email:'a@b.c'",
        "email:%22a@b.c%22",
        "%20email%20:%20%27a%40b.c%27%20",
    ] {
        assert_eq!(
            search(query).await,
            result(&newest_first, Value::Null),
            "{query}"
        );
    }
    assert_eq!(
        search("email:%22o'b@b.c%22").await,
        result(&[other], Value::Null)
    );
    assert_eq!(search("email:'A@b.c'").await, result(&[], Value::Null));
    let next = newest_first[1]["id"].clone();
    let first = search("email:'a@b.c'&limit=2").await;
    assert_eq!(first, result(&newest_first[..2], next.clone()));
    let next = format!("email:'a@b.c'&limit=2&page={}", next.as_str().unwrap());
    assert_eq!(search(&next).await, result(&newest_first[2..], Value::Null));
    let member = "expand[]=data.invoice_settings.default_payment_method";
    let shown = search(&format!("email:'a@b.c'&{member}")).await;
    assert_eq!(shown["data"], json!(newest_first));
    let at_root = client
        .get("/customers/search?query=email:'a@b.c'")
        .await
        .json();
    assert_eq!(at_root["url"], "/customers/search");
    let stranger = client_of_account(&server, "other").await;
    let none = stranger
        .get("/v1/customers/search?query=email:'a@b.c'")
        .await;
    assert_eq!(none.json()["data"], json!([]));
}

#[tokio::test]
async fn customers_are_searched_by_their_address_and_name() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let mut made = Vec::new();
    for (email, name) in [("a@b.c", "Al O'B"), ("a@b.c", "Al"), ("b@b.c", "Al O'B")] {
        let body = json!({"email": email, "name": name});
        made.push(client.post_new("/customers", &body).await.json());
    }
    for (query, found) in [
        ("name:%22Al%20O'B%22%20AND%20email:'a@b.c'", Some(&made[0])),
        (
            "email:'a@b.c'%20AND%20%20name%20:%20'Al'%20",
            Some(&made[1]),
        ),
        ("name:'al'%20AND%20email:'a@b.c'", None),
        ("name:'Al'%20AND%20email:'b@b.c'", None),
    ] {
        let path = format!("/v1/customers/search?query={query}");
        let data = client.get(&path).await.json()["data"].take();
        assert_eq!(data, json!(Vec::from_iter(found)), "{query}");
    }
}

#[tokio::test]
async fn a_search_for_anything_but_an_address_is_refused_and_told_what_is_offered() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let wrong = "
        limit=1                             parameter_missing query
        query=                              parameter_missing query
        query=a@b.c                         parameter_invalid query
        query=email:a@b.c                   parameter_invalid query
        query=email:''                      parameter_invalid query
        query=email:'                       parameter_invalid query
        query=email:'a@b.c%22               parameter_invalid query
        query=email~'a@b.c'                 parameter_invalid query
        query=-email:'a@b.c'                parameter_invalid query
        query=name:'Jenny'                  parameter_invalid query
        query=email:'a'%20OR%20email:'b'    parameter_invalid query
        query=email:'a'%20AND%20email:'b'   parameter_invalid query
        query=email:'a'%20name:'b'          parameter_invalid query
        query=email:'a'%20ANDname:'b'       parameter_invalid query
        query=email:'a'%20AND%20            parameter_invalid query
        query=email:'a'%20AND%20name:''     parameter_invalid query
        query=email:'a'%20AND%20phone:'1'   parameter_invalid query
        query=email:'a@b.c'&page=2          resource_missing  page
        query=email:'a@b.c'&page=           parameter_invalid page
        query=email:'a@b.c'&limit=101       parameter_invalid limit
        query=email:'a@b.c'&expand[]=name   parameter_invalid expand[0]
        query=email:'a@b.c'&created=1       parameter_unknown created";
    assert_refuses_queries(&client, "/v1/customers/search", wrong).await;
    let refused = client.get("/customers/search?query=name:'secret'").await;
    let told = message(&refused);
    assert!(
        told.contains("email:'jenny@example.com'") && !told.contains("secret"),
        "{told}"
    );
}

#[tokio::test]
async fn a_customer_shows_the_whole_default_payment_method_where_it_is_asked_to() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let method = method(&client, "tok_visa").await;
    let member = "invoice_settings.default_payment_method";
    let mut body = with_default(&method);
    body["payment_method"] = json!(method);
    body["expand"] = json!([member, "tax", "invoice_credit_balance"]);
    let created = client.post("/customers", "key-1", &body).await;
    let id = created.id();
    let of_method = format!("/payment_methods/{method}");
    let whole = client.get(&of_method).await.json();
    assert_eq!(whole["customer"], json!(id));
    let path = format!("/customers/{id}");
    let expand = json!({"expand": [member]});
    let one = format!("{path}?expand[]={member}");
    let list = format!("/v1/customers?expand[]=data.{member}");
    for shown in [
        created.json(),
        client.post_new(&path, &expand).await.json(),
        client.get(&one).await.json(),
        client.get(&list).await.json()["data"][0].take(),
    ] {
        assert_eq!(shown["invoice_settings"]["default_payment_method"], whole);
    }
    assert!(created.json().get("tax").is_none());
    // A replay shows what was.
    let words = json!({"metadata": {"a": "1"}});
    client.post_new(&of_method, &words).await;
    let replayed = client.post("/customers", "key-1", &body).await;
    replayed.assert_replays(&created);
    // The other way: a payment method shows its customer.
    let shown = client.get(&format!("{of_method}?expand[]=customer")).await;
    assert_eq!(shown.json()["customer"], retrieve(&client, &id).await);
    let refused = client.get("/customers?expand[]=data.discounts").await;
    assert_eq!(refused.refusal(), refusal("parameter_invalid", "expand[0]"));
}
