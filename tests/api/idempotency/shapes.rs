//! A new charge or order is decided once. It is written in a batch, by itself, or in a transaction
//! that reads first.

use regex::Regex;

use crate::support::{pause_point::CLAIM_WITHOUT_OUTCOME, prelude::*};

/// What is asked for: path, key and parameters. A key that comes again is a retry, or a reuse.
fn requests() -> Vec<(&'static str, &'static str, Value)> {
    let order = json!({
        "currency": "usd", "customer": "c-1", "metadata": {"b": "1", "a": "2"},
        "items": [{"quantity": 2, "unit_amount": 5, "description": "mug"}], "expand": ["charge"],
    });
    let mut named = order.clone();
    named["client_order_id"] = "order-1".into();
    let mut other_content = named.clone();
    other_content["customer"] = "c-2".into();
    let no_funds = "tok_chargeDeclinedInsufficientFunds";
    let mut promised = charge();
    promised["capture"] = false.into();
    promised["expand"] = json!(["refunds"]);
    promised["metadata"] = json!({"b": "1", "a": "\u{e9}"});
    vec![
        ("/charges", "made", charge()),
        ("/charges", "made", charge()),
        ("/charges", "made", charge_by("tok_amex")),
        ("/v1/charges", "promised", promised),
        ("/charges", "declined", charge_by(no_funds)),
        (
            "/v1/charges",
            "declined-v1",
            charge_by("tok_chargeDeclined"),
        ),
        ("/charges", "slow", charge_by("tok_slow")),
        ("/charges", "down", charge_by("tok_outage")),
        ("/charges", "unknown", charge_by("tok_none")),
        ("/charges", "no-amount", json!({"currency": "usd"})),
        ("/v1/charges", "no-object", json!([])),
        ("/orders", "opened", order.clone()),
        ("/v1/orders", "opened-v1", order),
        ("/orders", "named", named.clone()),
        ("/v1/orders", "named-again", named.clone()),
        ("/orders", "named-again", named),
        ("/orders", "other-content", other_content),
        ("/orders", "no-items", json!({"currency": "usd"})),
    ]
}

/// Ids and times differ from run to run.
fn masked(text: &str) -> String {
    let id = Regex::new("(card|ch|or|evt|req)_[0-9a-hjkmnp-tv-z]{26}").unwrap();
    let time = Regex::new(r#""created":\d+"#).unwrap();
    let text = id.replace_all(text, "${1}_");
    time.replace_all(&text, r#""created":0"#).into_owned()
}

/// Status, headers and body, to the byte.
fn seen(answer: &Answer) -> String {
    let varies = "date idempotency-expires request-id original-request";
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| varies.split(' ').all(|varies| varies != name.as_str()))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    // Actix gives them no order.
    headers.sort();
    let body = String::from_utf8(answer.body.clone()).unwrap();
    masked(&format!("{} {headers:?} {body}", answer.status))
}

/// All that was written.
async fn written(server: &TestServer) -> Vec<String> {
    let rows = "
        SELECT concat_ws(' ', 'key', key, method, path, status, headers, convert_from(body, 'UTF8'),
                         resource_id, label)
          FROM idempotency_keys
         UNION ALL
        SELECT concat_ws(' ', 'charge', status, amount, amount_captured, currency, captured,
                         card_brand, card_last4, metadata, failure_code, decline_code,
                         failure_message, order_id, processor)
          FROM charges
         UNION ALL
        SELECT concat_ws(' ', 'order', status, amount, currency, customer, client_order_id,
                         encode(content_hash, 'hex'), items, metadata)
          FROM orders
         UNION ALL
        SELECT concat_ws(' ', 'event', type, object, idempotency_key) FROM events";
    let rows: Vec<String> = server.database.values(rows).await;
    let mut rows: Vec<_> = rows.iter().map(|row| masked(row)).collect();
    rows.sort();
    rows
}

#[tokio::test]
async fn a_decision_is_answered_and_written_alike_in_a_batch_by_itself_and_after_reading() {
    let mut ways = Vec::new();
    for (batch, forced) in [(("BATCH", "on"), false), (ALONE, false), (ALONE, true)] {
        let server = TestServer::start_with(&[batch, FORGETFUL]).await;
        if forced {
            server.database.execute(CLAIM_WITHOUT_OUTCOME).await;
        }
        let mut answers = Vec::new();
        for (path, key, body) in requests() {
            let answer = server.client.post(path, key, &body).await;
            answers.push(format!("{path} {key}: {}", seen(&answer)));
        }
        ways.push((answers, written(&server).await));
    }
    let [in_a_batch, by_itself, after_reading] = ways.try_into().unwrap();
    assert_eq!(in_a_batch.0.len(), requests().len());
    assert!(in_a_batch.1.len() > 25, "{in_a_batch:?}");
    assert_eq!(in_a_batch, by_itself);
    assert_eq!(in_a_batch, after_reading);
}
