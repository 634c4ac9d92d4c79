//! Cards as people type them: what is read, and what is refused before the processor is asked.

use charge_once::domain::test_cards::TEST_CARDS;
use charge_once_strict_params::card_numbers::has_check_digit;
use chrono::{Datelike, Utc};

use crate::support::prelude::*;

const VISA: &str = "4242424242424242";

/// The fields of a card with some of them changed.
fn card(changes: &[(&str, Value)]) -> Value {
    let mut card = json!({"number": VISA, "exp_month": 12, "exp_year": 2099, "cvc": "123"});
    for (name, value) in changes {
        card[*name] = value.clone();
    }
    card
}

/// Charges it in JSON, or in a form, where every value is text.
async fn charge_of(client: &Client, card: &Value, as_form: bool) -> Answer {
    if !as_form {
        let body = json!({"amount": 2000, "currency": "usd", "source": card});
        return client.post_new("/charges", &body).await;
    }
    let mut form = form_urlencoded::Serializer::new("amount=2000&currency=usd".to_owned());
    for (name, value) in card.as_object().unwrap() {
        let text = value.as_str().map_or(value.to_string(), str::to_owned);
        form.append_pair(&format!("source[{name}]"), &text);
    }
    let (key, form) = (Uuid::now_v7().to_string(), form.finish());
    let charge = client.post_raw("/v1/charges", &key, FORM, form.as_bytes());
    charge.await
}

/// The status, the error but for its link, and whether it names a charge.
fn told(answer: &Answer) -> (u16, [String; 4], bool) {
    let error = answer.json()["error"].clone();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let told = ["type", "code", "message", "param"].map(text);
    (answer.status.as_u16(), told, error.get("charge").is_some())
}

/// What is told of a mistake in a field.
fn mistake(code: &str) -> (u16, [String; 4], bool) {
    let (message, field) = match code {
        "incorrect_number" => ("Your card number is incorrect.", "number"),
        "invalid_number" => ("This card number looks invalid.", "number"),
        "invalid_expiry_month" => ("Your card's expiration month is invalid.", "exp_month"),
        "invalid_expiry_year" => ("Your card's expiration year is invalid.", "exp_year"),
        _ => ("Your card's security code is invalid.", "cvc"),
    };
    let told = ["card_error", code, message, &format!("source[{field}]")];
    (402, told.map(str::to_owned), false)
}

#[tokio::test]
async fn what_can_not_be_right_is_a_card_error_of_its_field_and_makes_no_charge() {
    let server = TestServer::start().await;
    let last_year = json!(Utc::now().year() - 1);
    for (name, value, code) in [
        ("number", json!("4242424242424241"), "incorrect_number"),
        ("number", json!("4242 4242 4242 4241"), "incorrect_number"),
        ("number", json!("123456789012"), "incorrect_number"),
        ("number", json!("4242"), "invalid_number"),
        ("number", json!("42424242424242424242"), "invalid_number"),
        ("number", json!("4242 4242 4242 424x"), "invalid_number"),
        ("number", json!("visa"), "invalid_number"),
        ("exp_month", json!(13), "invalid_expiry_month"),
        ("exp_month", json!(0), "invalid_expiry_month"),
        (
            "exp_month",
            json!(9_007_199_254_740_991_i64),
            "invalid_expiry_month",
        ),
        ("exp_year", last_year, "invalid_expiry_year"),
        ("exp_year", json!(95), "invalid_expiry_year"),
        ("exp_year", json!(5), "invalid_expiry_year"),
        ("exp_year", json!(205), "invalid_expiry_year"),
        ("exp_year", json!(2100), "invalid_expiry_year"),
        ("cvc", json!("12"), "invalid_cvc"),
        ("cvc", json!("12345"), "invalid_cvc"),
        ("cvc", json!("12a"), "invalid_cvc"),
    ] {
        for as_form in [false, true] {
            let typed = card(&[(name, value.clone())]);
            let answer = charge_of(&server.client, &typed, as_form).await;
            assert_eq!(told(&answer), mistake(code), "{typed} {as_form}");
            let typed = value.as_str().unwrap_or("no text").as_bytes();
            let is_echoed = answer.body.windows(typed.len()).any(|part| part == typed);
            assert!(!is_echoed, "{answer:?}");
        }
    }
    assert_eq!(server.database.charges().await, 0);
    let events = server.client.get("/events").await.json();
    assert_eq!(events["data"], json!([]));
}

#[tokio::test]
async fn a_card_is_good_through_its_month_and_not_a_month_longer() {
    let server = TestServer::start().await;
    loop {
        let now = Utc::now();
        let (year, month) = (now.year(), now.month());
        let this = card(&[("exp_month", json!(month)), ("exp_year", json!(year))]);
        let charged = charge_of(&server.client, &this, false).await;
        let passed = match month {
            1 => (12, year - 1, "invalid_expiry_year"),
            month => (month - 1, year, "invalid_expiry_month"),
        };
        let (passed_month, passed_year, code) = passed;
        let (month_before, year_of_it) = (json!(passed_month), json!(passed_year));
        let date = [("exp_month", month_before), ("exp_year", year_of_it)];
        let refused = charge_of(&server.client, &card(&date), false).await;
        if Utc::now().month() != month {
            // The month ended meanwhile.
            continue;
        }
        assert_eq!(charged.status, 201, "{charged:?}");
        assert_eq!(told(&refused), mistake(code));
        break;
    }
}

#[tokio::test]
async fn a_form_takes_months_with_a_zero_and_both_takes_years_of_two_digits() {
    let server = TestServer::start().await;
    let two_digits = (Utc::now().year() + 1) % 100;
    for (month, year, as_form, expected) in [
        (json!("05"), json!(two_digits.to_string()), true, 5),
        (json!("5"), json!(two_digits.to_string()), true, 5),
        (json!("12"), json!(two_digits.to_string()), true, 12),
        (json!(5), json!(two_digits), false, 5),
    ] {
        let typed = card(&[("exp_month", month), ("exp_year", year)]);
        let charge = charge_of(&server.client, &typed, as_form).await;
        assert_eq!(charge.status, 201, "{typed}: {charge:?}");
        let year = 2000 + two_digits;
        charge.assert_shows(json!({"source/exp_month": expected, "source/exp_year": year}));
    }
}

/// The form of a field is a matter of the program that sends it, and no customer's mistake.
#[tokio::test]
async fn what_is_no_field_of_a_card_is_an_invalid_request() {
    let server = TestServer::start().await;
    for (name, value, as_form) in [
        ("exp_month", json!("05"), false),
        ("exp_month", json!("May"), true),
        ("exp_month", json!("005"), true),
        ("exp_year", json!("27"), false),
        ("exp_year", json!("two"), true),
        ("number", json!(4_242_424_242_424_242_i64), false),
        ("cvc", json!(123), false),
        // A correct check digit, and no prefix of an issuer's: no real card, and no test card.
        ("number", json!("0000000000000000"), true),
    ] {
        let typed = card(&[(name, value)]);
        let answer = charge_of(&server.client, &typed, as_form).await;
        let expected = refusal("parameter_invalid", &format!("source[{name}]"));
        assert_eq!(answer.refusal(), expected, "{typed}");
    }
    // A card that could be real is refused before anything of the request is kept.
    let real = card(&[("number", json!("4111111111111111"))]);
    let answer = charge_of(&server.client, &real, false).await;
    assert_eq!(answer.code(), "card_number_forbidden");
    assert!(answer.header("idempotency-expires").is_none());
}

#[tokio::test]
async fn the_refusal_of_a_card_is_stored_and_replayed_byte_by_byte() {
    let server = TestServer::start().await;
    for (name, value) in [
        ("number", json!("4242424242424241")),
        ("number", json!("4242")),
        ("exp_month", json!(13)),
        ("exp_year", json!(2020)),
        ("cvc", json!("12")),
    ] {
        let key = uuid::Uuid::now_v7().to_string();
        let body = json!({"amount": 2000, "currency": "usd", "source": card(&[(name, value)])});
        let first = server.client.post("/charges", &key, &body).await;
        assert_eq!(first.status, 402, "{body}");
        assert_eq!(first.header("stripe-should-retry"), Some("false"));
        let again = server.client.post("/charges", &key, &body).await;
        again.assert_replays(&first);
        let inspected = server.client.get(&format!("/idempotency-keys/{key}")).await;
        let inspected = inspected.json();
        inspected.assert_shows(json!({"response_status": 402, "resource": null}));
        // A corrected request needs a new key, as after a decline.
        let corrected = json!({"amount": 2000, "currency": "usd", "source": card(&[])});
        let reused = server.client.post("/charges", &key, &corrected).await;
        assert_eq!(reused.code(), "idempotency_key_reused");
    }
    assert_eq!(server.database.charges().await, 0);
}

/// A payment of an order and a checkout take the same card, and leave nothing behind either.
#[tokio::test]
async fn a_mistyped_card_leaves_the_order_open_and_begins_no_checkout() {
    let server = TestServer::start().await;
    let order = open_order(&server.client).await;
    let source = card(&[("number", json!("4242424242424241"))]);
    let path = format!("/orders/{order}/pay");
    let body = json!({"source": source});
    let paid = server.client.post_new(&path, &body).await;
    let items = json!([{"sku": "mug", "quantity": 1, "unit_amount": 1200}]);
    let checkout = json!({"currency": "eur", "items": items, "source": source});
    let checkout = server.client.post_new("/checkouts", &checkout).await;
    for answer in [paid, checkout] {
        assert_eq!(error(&answer), (402, "incorrect_number".into()));
    }
    let order = server.client.get(&format!("/orders/{order}")).await.json();
    order.assert_shows(json!({"status": "open", "charge": null}));
    let checkouts = server.client.get("/checkouts").await.json();
    assert_eq!(checkouts["data"], json!([]));
    assert_eq!(server.database.charges().await, 0);
}

/// What was mistyped is mostly a real card's number but for one digit.
#[tokio::test]
async fn nothing_that_was_typed_is_stored() {
    let server = TestServer::start().await;
    let typed = "4556737586899851";
    let mistyped = card(&[("number", json!(typed))]);
    let answer = charge_of(&server.client, &mistyped, false).await;
    assert_eq!(answer.code(), "incorrect_number");
    let record = "SELECT t::text FROM idempotency_keys t";
    let row = sqlx::query_scalar(record).fetch_all(&server.database.pool);
    let rows: Vec<String> = row.await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!rows[0].contains(&typed[..8]), "{}", rows[0]);
}

#[tokio::test]
async fn a_statement_descriptor_is_latin_with_a_letter_and_without_what_statements_lack() {
    let server = TestServer::start().await;
    for (text, is_accepted) in [
        ("MUGS", true),
        ("A", true),
        ("MUGS & TEA, NO. 5-7", true),
        ("CAFÉ ÅNGSTRÖM", true),
        ("1234567890123456789AZ?", true),
        ("12345", false),
        ("-- .,", false),
        ("MUGS*TEA", false),
        ("MUGS<TEA", false),
        ("MUGS>TEA", false),
        ("MUGS\\TEA", false),
        ("MUG'S", false),
        ("\"MUGS\"", false),
        ("КРУЖКИ", false),
        ("MUGS ☕", false),
        ("MUGS\nTEA", false),
        ("MUGS AND TEA AND CAKES!", false),
    ] {
        let body = json!({"amount": 1, "currency": "usd", "statement_descriptor": text});
        let answer = server.client.post_new("/charges", &body).await;
        if is_accepted {
            assert_eq!(answer.status, 201, "{text}: {answer:?}");
            assert_eq!(answer.json()["statement_descriptor"], text);
            continue;
        }
        let expected = refusal("parameter_invalid", "statement_descriptor");
        assert_eq!(answer.refusal(), expected, "{text}");
    }
}

/// The rule that a number is looked up behind its check digit would hide a test card without one.
#[test]
fn every_test_card_has_its_check_digit() {
    for number in TEST_CARDS.iter().filter_map(|card| card.number) {
        assert!(has_check_digit(number), "{number}");
    }
}
