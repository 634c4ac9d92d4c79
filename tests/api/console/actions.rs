//! What a page does, and not only shows: webhooks that are retried now, and the playground.

use super::visit::{CONSOLE, Visit, text};
use crate::support::{prelude::*, webhooks::delete};

#[tokio::test]
async fn endpoints_are_shown_with_their_state_and_what_is_never_sent_there() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let url = "https://example.com/hook";
    let body = serde_json::json!({"url": url, "enabled_events": ["invoice.paid", "order.paid"]});
    let endpoint = Endpoint::with(&server.client, &body).await;
    endpoint.disable(&server.client, true).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/deliveries").await;
    for part in [
        &*endpoint.id,
        url,
        ">disabled<",
        "invoice.paid, order.paid",
        "Never sent here: invoice.paid",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains(&endpoint.secret) && !page.contains("whsec_"));
}

/// Failed attempts wait for hours, and the worker doesn't look by itself.
const SLOW: &[(&str, &str)] = &[
    CONSOLE,
    ("WEBHOOK_POLL_INTERVAL", "1h"),
    ("WEBHOOK_RETRY_MIN", "1h"),
    ("WEBHOOK_RETRY_MAX", "8h"),
];

fn retry_path(delivery: &serde_json::Value) -> String {
    format!(
        "/console/deliveries/{}/retry",
        delivery["id"].as_str().unwrap()
    )
}

#[tokio::test]
async fn a_delivery_that_waits_for_hours_is_sent_now() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, waits) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/deliveries").await;
    for part in [
        "charge.succeeded",
        ">pending<",
        "500",
        "Retry now",
        &endpoint.id,
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains(&endpoint.secret) && !page.contains("whsec_"));
    let path = retry_path(&waits);
    let retried = visit.post(&path, &[]).await;
    assert_eq!(
        retried.header("location"),
        Some("/console/deliveries?retry=due")
    );
    receiver.next().await.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 2);
    // What was delivered is not sent again.
    let again = visit.post(&path, &[]).await;
    assert_eq!(
        again.header("location"),
        Some("/console/deliveries?retry=not_due")
    );
    assert_eq!(endpoint.newest_succeeds(client).await, delivered);
}

#[tokio::test]
async fn a_failed_delivery_gets_one_more_attempt() {
    let server = TestServer::start_with(&quick_but(&[CONSOLE])).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    for _ in 0..24 {
        receiver.next().await.answer(500).await;
    }
    let failed = |one: &serde_json::Value| one["status"] == "failed";
    let delivery = endpoint.newest_delivery(client, "it fails", failed).await;
    let visit = Visit::begin(&server).await;
    visit.post(&retry_path(&delivery), &[]).await;
    receiver.next().await.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 25);
}

#[tokio::test]
async fn only_its_own_account_s_forms_retry_a_delivery_and_none_a_deleted_endpoint_s() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, delivery) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let path = retry_path(&delivery);
    let database = server.database.connect(&[]).await;
    let key = charge_once::cli::api_key::create_key(&database, "alice").await;
    let alice = Visit::begin_with(client, &key.unwrap()).await;
    assert_eq!(alice.post(&path, &[]).await.status, 404);
    let visit = Visit::begin(&server).await;
    assert_eq!(Answer::of(visit.form(&path, &[])).await.status, 403);
    assert_eq!(
        visit.post("/console/deliveries/x/retry", &[]).await.status,
        404
    );
    assert!(!endpoint.deliveries(client).await.remove(0)["next_attempt"].is_null());
    delete(client, &endpoint.id).await;
    let gone = visit.post(&path, &[]).await;
    assert_eq!(
        gone.header("location"),
        Some("/console/deliveries?retry=not_due")
    );
}

/// What the commands print that a page shows, run as a person runs them.
async fn pasted(page: &str) -> String {
    let shown = page
        .split("aria-label=\"The same with curl\">")
        .nth(1)
        .unwrap();
    let commands = shown.split("</pre>").next().unwrap();
    let commands = commands
        .replace("&quot;", "\"")
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &commands])
        .env("CHARGE_ONCE_API_KEY", API_KEY);
    let run = tokio::task::spawn_blocking(move || shell.output().unwrap());
    let output = run.await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn play(visit: &Visit, action: &str, key: &str, amount: &str) -> String {
    let fields = [
        ("action", action),
        ("amount", amount),
        ("currency", "usd"),
        ("source", "tok_visa"),
        ("key", key),
    ];
    let answer = visit.post("/console/playground", &fields).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    text(&answer)
}

fn key_of(page: &str) -> String {
    let field = page.split("name=\"key\" value=\"").nth(1).unwrap();
    field.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_playground_charges_once_and_shows_what_a_retry_and_a_change_get() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    let sent = play(&visit, "send", "", "2000").await;
    assert!(sent.contains("Executed: 1 charge."), "{sent}");
    let key = key_of(&sent);
    assert!(sent.contains(&format!("href=\"/console/keys/{key}\"")));
    let retried = play(&visit, "retry", &key, "2000").await;
    assert!(retried.contains("the stored reply came back"), "{retried}");
    assert!(retried.contains("Idempotent-Replayed: true"));
    let changed = play(&visit, "change", &key, "2000").await;
    assert!(
        changed.contains("the key belongs to another request"),
        "{changed}"
    );
    assert!(changed.contains("The reply: 422"), "{changed}");
    for page in [&sent, &retried, &changed] {
        assert!(!page.contains(API_KEY) && !page.contains("4242424242424242"));
    }
    for (page, status) in [(&sent, "201"), (&retried, "201"), (&changed, "422")] {
        let printed = pasted(page).await;
        assert!(
            printed.starts_with(&format!("HTTP/1.1 {status} ")),
            "{printed}"
        );
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn twenty_duplicates_at_once_make_one_charge_and_get_the_same_bytes() {
    let server = TestServer::start_with(&[CONSOLE, ("WORKERS", "1")]).await;
    let visit = Visit::begin(&server).await;
    let raced = play(&visit, "race", "", "2000").await;
    assert!(
        raced.contains("1 charge, 20 replies, all the same bytes"),
        "{raced}"
    );
    // Twenty bars on one axis, and one of them won.
    assert_eq!(raced.matches("<svg class=\"bar\"").count(), 20);
    assert_eq!(
        raced
            .matches("won: <span class=\"state good\">executed<")
            .count(),
        1
    );
    assert_eq!(raced.matches(">replayed<").count(), 19);
    assert!(raced.contains("The reply: 201, 20 times"), "{raced}");
    let printed = pasted(&raced).await;
    assert_eq!(
        printed.matches("HTTP/1.1 201 Created").count(),
        20,
        "{printed}"
    );
    assert!(!raced.contains(API_KEY), "{raced}");
    assert_eq!(server.database.charges().await, 1);
    let story = visit
        .page(&format!("/console/keys/{}", key_of(&raced)))
        .await;
    assert!(story.contains("Executed once."), "{story}");
}

#[tokio::test]
async fn the_playground_sends_nothing_that_its_form_does_not_have() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    let right = [
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_visa"),
        ("key", "key-1"),
    ];
    for (name, wrong) in [
        ("action", "steal"),
        ("amount", "4242424242424242"),
        ("amount", "two"),
        ("currency", "<b>"),
        ("source", "4242424242424242"),
        ("key", "4242424242424242"),
        ("key", ""),
    ] {
        let mut fields: Vec<_> = [("action", "retry")].into_iter().chain(right).collect();
        fields.retain(|(field, _)| *field != name);
        fields.push((name, wrong));
        let answer = visit.post("/console/playground", &fields).await;
        assert_eq!(answer.status, 400, "{name}");
        let is_kept = wrong == "two";
        let is_shown = !wrong.is_empty() && text(&answer).contains(wrong);
        assert_eq!(is_shown, is_kept, "{name}");
    }
    let page = visit.page("/console/playground").await;
    assert!(page.contains("tok_outage") && !page.contains("Retry it with the same key"));
    let foreign = Answer::of(visit.form("/console/playground", &right)).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_wrong_field_keeps_the_form_and_is_named() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    for (name, wrong, says) in [
        ("amount", "abc", "The amount must be a whole number"),
        ("currency", "dollars", "The currency must be three letters"),
        ("source", "tok_gold", "Choose one of the test cards."),
    ] {
        let mut fields = vec![
            ("action", "retry"),
            ("amount", "777"),
            ("currency", "eur"),
            ("source", "tok_amex"),
            ("key", "key-1"),
        ];
        fields.retain(|(field, _)| *field != name);
        fields.push((name, wrong));
        let answer = visit.post("/console/playground", &fields).await;
        assert_eq!(answer.status, 400, "{name}");
        let page = text(&answer);
        let problem = format!("<p class=\"problem\" id=\"{name}-problem\" role=\"alert\">{says}");
        assert!(page.contains(&problem), "{page}");
        assert_eq!(key_of(&page), "key-1");
        for (field, value) in [("amount", "777"), ("currency", "eur"), ("amount", "abc")] {
            let value = format!("value=\"{value}\"");
            let is_kept = (field == name) == (field == "amount" && value.contains("abc"));
            assert_eq!(page.contains(&value), is_kept, "{name}, {field}: {page}");
        }
    }
}

#[tokio::test]
async fn a_race_in_which_the_card_is_declined_is_no_success() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    let fields = [
        ("action", "race"),
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_chargeDeclined"),
    ];
    let raced = text(&visit.post("/console/playground", &fields).await);
    let says = "<p class=\"says warn\" role=\"status\">No charge is known: 20 replies with 402, all the \
                same bytes.</p>";
    assert!(raced.contains(says), "{raced}");
    assert_eq!(
        raced
            .matches("<span class=\"state warn\">declined<")
            .count(),
        1
    );
}

#[tokio::test]
async fn the_playground_loses_a_reply_and_its_retry_charges_nothing_again() {
    let server = TestServer::start_with(&[CONSOLE, FAULTS]).await;
    let visit = Visit::begin(&server).await;
    let button = "Lose the reply, and retry";
    assert!(visit.page("/console/playground").await.contains(button));
    let lost = play(&visit, "lose", "", "2000").await;
    let says =
        "The first reply was lost. The retry got it, and nothing was executed again: 1 charge.";
    assert!(lost.contains(says), "{lost}");
    assert!(
        lost.contains(">lost<") && lost.contains("<td>none</td>"),
        "{lost}"
    );
    let printed = pasted(&lost).await;
    assert!(printed.contains("idempotent-replayed: true"), "{printed}");
    let charges = "SELECT count(*) FROM charges";
    assert_eq!(server.database.count(charges).await, 1);
}

#[tokio::test]
async fn without_faults_the_playground_loses_no_reply() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/playground").await;
    assert!(!page.contains("Lose the reply"), "{page}");
    let fields = [
        ("action", "lose"),
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_visa"),
    ];
    let refused = visit.post("/console/playground", &fields).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(
        server.database.count("SELECT count(*) FROM charges").await,
        0
    );
}
