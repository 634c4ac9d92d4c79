//! What a page does, and not only shows: webhooks that are retried now, and the playground.

use charge_once_service::faults::FaultKind;

use super::*;
use crate::support::{holder_pages::press, webhooks::told};

#[tokio::test]
async fn endpoints_are_shown_with_their_state_and_what_is_never_sent_there() {
    let (server, visit) = visited().await;
    let url = "https://example.com/hook";
    let body = json!({"url": url, "enabled_events": ["invoice.paid", "order.paid"]});
    let endpoint = Endpoint::with(&server.client, &body).await;
    endpoint.disable(&server.client, true).await;
    let page = visit.page("/console/deliveries").await;
    page.must_have(&[
        &*endpoint.id,
        url,
        ">disabled<",
        "invoice.paid, order.paid",
        "Never sent here: invoice.paid",
    ]);
    page.must_lack(&[&endpoint.secret, "whsec_"]);
}

fn retry_path(delivery: &Value) -> String {
    let id = delivery["id"].as_str().unwrap();
    format!("/console/deliveries/{id}/retry")
}

const NOT_DUE: &str = "/console/deliveries?retry=not_due";

#[tokio::test]
async fn a_delivery_that_waits_for_hours_is_sent_now() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, waits) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/deliveries").await;
    page.must_have(&[
        "charge.succeeded",
        ">pending<",
        "500",
        "Retry now",
        &endpoint.id,
    ]);
    page.must_lack(&[&endpoint.secret, "whsec_"]);
    let path = retry_path(&waits);
    assert_eq!(
        visit.sent_to(&path, &[]).await,
        "/console/deliveries?retry=due"
    );
    receiver.next().await.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 2);
    // What was delivered is not sent again.
    assert_eq!(visit.sent_to(&path, &[]).await, NOT_DUE);
    assert_eq!(endpoint.newest_succeeds(client).await, delivered);
}

#[tokio::test]
async fn a_failed_delivery_gets_one_more_attempt() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[CONSOLE])).await;
    let client = &server.client;
    client.charge("key-1").await;
    let delivery = endpoint.gives_up(client, &mut receiver).await;
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
    let key = api_key_of(&server.database, "alice").await;
    let alice = Visit::begin_with(client, &key).await;
    assert_eq!(alice.post(&path, &[]).await.status, 404);
    let visit = Visit::begin(&server).await;
    assert_eq!(Answer::of(visit.form(&path, &[])).await.status, 403);
    let unknown = visit.post("/console/deliveries/x/retry", &[]).await;
    assert_eq!(unknown.status, 404);
    assert!(!endpoint.deliveries(client).await.remove(0)["next_attempt"].is_null());
    delete(client, &endpoint.id).await;
    assert_eq!(visit.sent_to(&path, &[]).await, NOT_DUE);
}

/// What the commands print that a page shows, run as a person runs them.
pub(super) async fn pasted(page: &str) -> String {
    let commands = page
        .between("aria-label=\"The same with curl\">", "</pre>")
        .replace("&quot;", "\"")
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&");
    let mut shell = Command::new("sh");
    shell.args(["-c", &commands]);
    shell.env("CHARGE_ONCE_API_KEY", API_KEY);
    run_to_end(shell).await.stdout
}

/// The fields of a form that charges 20.00, with some of them set otherwise.
fn fields<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        ("action", "retry"),
        ("kind", "charge"),
        ("fault", "reply_lost"),
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_visa"),
        ("key", "key-1"),
    ];
    fields.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    fields.extend(changes);
    fields
}

pub(super) async fn play(visit: &Visit, action: &str, key: &str) -> String {
    let fields = fields(&[("action", action), ("key", key)]);
    let answer = visit.post("/console/playground", &fields).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    text(&answer.body)
}

pub(super) fn key_of(page: &str) -> &str {
    page.between("name=\"key\" value=\"", "\"")
}

#[tokio::test]
async fn the_playground_charges_once_and_shows_what_a_retry_and_a_change_get() {
    let (server, visit) = visited().await;
    let sent = play(&visit, "send", "").await;
    let key = key_of(&sent);
    sent.must_have(&[
        "Executed: 1 charge.",
        &format!("href=\"/console/keys/{key}\""),
    ]);
    let retried = play(&visit, "retry", key).await;
    retried.must_have(&["the stored reply came back", "Idempotent-Replayed: true"]);
    let changed = play(&visit, "change", key).await;
    changed.must_have(&["the key belongs to another request", "The reply: 422"]);
    for (page, status) in [(&sent, "201"), (&retried, "201"), (&changed, "422")] {
        page.must_lack(&[API_KEY, "4242424242424242"]);
        let printed = pasted(page).await;
        let is_told = printed.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_told, "{printed}");
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn twenty_duplicates_at_once_make_one_charge_and_get_the_same_bytes() {
    let server = TestServer::start_with(&[CONSOLE, ("WORKERS", "1")]).await;
    let visit = Visit::begin(&server).await;
    let raced = play(&visit, "race", "").await;
    raced.must_have(&[
        "1 charge, 20 replies, all the same bytes",
        "The reply: 201, 20 times",
    ]);
    raced.must_lack(&[API_KEY]);
    // Twenty bars on one axis, and one of them won.
    for (part, times) in [
        ("<svg class=\"bar\"", 20),
        ("won: <span class=\"state good\">executed<", 1),
        (">replayed<", 19),
    ] {
        assert_eq!(raced.matches(part).count(), times, "{part}: {raced}");
    }
    let printed = pasted(&raced).await;
    let created = printed.matches("HTTP/1.1 201 Created").count();
    assert_eq!(created, 20, "{printed}");
    assert_eq!(server.database.charges().await, 1);
    let story = visit.object("keys", key_of(&raced)).await;
    story.must_have(&["Executed once."]);
}

#[tokio::test]
async fn the_playground_sends_nothing_that_its_form_does_not_have() {
    let (server, visit) = visited().await;
    for (name, wrong) in [
        ("action", "steal"),
        ("kind", "gift"),
        ("amount", "4242424242424242"),
        ("amount", "two"),
        ("currency", "<b>"),
        ("source", "4242424242424242"),
        ("key", "4242424242424242"),
        ("key", ""),
    ] {
        let fields = fields(&[(name, wrong)]);
        let answer = visit.post("/console/playground", &fields).await;
        assert_eq!(answer.status, 400, "{name}");
        let is_kept = wrong == "two";
        let is_shown = !wrong.is_empty() && text(&answer.body).contains(wrong);
        assert_eq!(is_shown, is_kept, "{name}");
    }
    let page = visit.page("/console/playground").await;
    page.must_have(&["tok_outage"]);
    page.must_lack(&["Retry it with the same key"]);
    let foreign = Answer::of(visit.form("/console/playground", &fields(&[]))).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_wrong_field_keeps_the_form_and_is_named() {
    let (_server, visit) = visited().await;
    for (name, wrong, says) in [
        ("amount", "abc", "The amount must be a whole number"),
        ("currency", "dollars", "The currency must be three letters"),
        ("source", "tok_gold", "Choose one of the test cards."),
        ("kind", "gift", "Choose a charge or a payment intent."),
    ] {
        let right = [
            ("amount", "777"),
            ("currency", "eur"),
            ("source", "tok_amex"),
        ];
        let mut fields = fields(&right);
        fields.retain(|(field, _)| *field != name);
        fields.push((name, wrong));
        let answer = visit.post("/console/playground", &fields).await;
        assert_eq!(answer.status, 400, "{name}");
        let page = text(&answer.body);
        let problem = format!("<p class=\"problem\" id=\"{name}-problem\" role=\"alert\">{says}");
        page.must_have(&[&problem]);
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
    let (_server, visit) = visited().await;
    // A form without a key.
    let fields = [
        ("action", "race"),
        ("kind", "charge"),
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_chargeDeclined"),
    ];
    let raced = text(&visit.post("/console/playground", &fields).await.body);
    let says = "<p class=\"says warn\" role=\"status\">No charge is known: 20 replies with 402, all the \
                same bytes.</p>";
    raced.must_have(&[says]);
    let declined = "<span class=\"state warn\">declined<";
    assert_eq!(raced.matches(declined).count(), 1);
}

#[tokio::test]
async fn the_playground_loses_a_reply_and_its_retry_charges_nothing_again() {
    let server = TestServer::start_with(&[CONSOLE, FAULTS]).await;
    let visit = Visit::begin(&server).await;
    let button = "Fail once, and retry";
    visit.page("/console/playground").await.must_have(&[button]);
    let lost = play(&visit, "fail", "").await;
    let says =
        "The first reply was lost. The retry got it, and nothing was executed again: 1 charge.";
    lost.must_have(&[says, ">lost<", "<td>none</td>"]);
    let printed = pasted(&lost).await;
    printed.must_have(&["idempotent-replayed: true"]);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn every_fault_is_followed_by_a_retry_that_pays_once() {
    let server = TestServer::start_with(&[CONSOLE, FAULTS]).await;
    let visit = Visit::begin(&server).await;
    // Its retry would have to wait for seconds.
    let played = FaultKind::ALL
        .iter()
        .filter(|fault| **fault != FaultKind::InUse);
    for fault in played.map(|fault| fault.as_str()) {
        let fields = fields(&[("action", "fail"), ("kind", "intent"), ("fault", fault)]);
        let answer = visit.post("/console/playground", &fields).await;
        let page = text(&answer.body);
        page.must_have(&[": 1 payment intent.", &format!("Fault: {fault}")]);
        page.must_lack(&["<td>400</td>"]);
    }
    assert_eq!(server.database.charges().await, 6);
    for wrong in ["flood", "in_use"] {
        let wrong = fields(&[("action", "fail"), ("fault", wrong)]);
        let refused = visit.post("/console/playground", &wrong).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
}

#[tokio::test]
async fn an_intent_leads_to_its_holder_s_page_and_back_to_the_story_of_its_key() {
    let (server, visit) = visited().await;
    let card = ("source", "tok_threeDSecure2Required");
    let first = visit.page("/console/playground").await;
    first.must_have(&["tok_threeDSecure2Required: an intent asks its holder, a charge gets 402"]);
    let fields = fields(&[("action", "send"), ("kind", "intent"), card]);
    let sent = visit.post("/console/playground", &fields).await;
    let sent = text(&sent.body);
    sent.must_have(&["Executed: 1 payment intent.", "requires_action"]);
    let page = sent.between("authenticate: <a href=\"", "\"");
    let back = press(page, "complete").await;
    let address = server.client.address;
    let story = format!("http://{address}/console/keys/{}?", key_of(&sent));
    assert!(
        back.header("location").unwrap().starts_with(&story),
        "{back:?}"
    );
    assert_eq!(server.database.charges().await, 1);
    // The commands are of the same payment, so they get its stored reply.
    pasted(&sent)
        .await
        .must_have(&["HTTP/1.1 201", "requires_action"]);
}

#[tokio::test]
async fn without_faults_the_playground_loses_no_reply() {
    let (server, visit) = visited().await;
    let page = visit.page("/console/playground").await;
    page.must_lack(&["Fail once"]);
    let fields = fields(&[("action", "fail"), ("key", "")]);
    let refused = visit.post("/console/playground", &fields).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(server.database.charges().await, 0);
}
