//! Endpoints and deliveries: what the pages tell of attempts, and what their forms change.

use charge_once::workers::expiry_sweep::Sweep;
use tokio::time::Instant;

use super::{
    actions::{key_of, pasted},
    report::tester,
    *,
};
use crate::support::webhooks::{PENDING, add_backlog, endpoint, everything_is_delivered, told};

const ATTEMPTED: &str =
    "SELECT count(*) FROM webhook_deliveries WHERE attempts <> '[]' AND claim IS NULL";

fn page_of(endpoint: &Endpoint) -> String {
    format!("/console/webhook_endpoints/{}", endpoint.id)
}

#[tokio::test]
async fn each_attempt_is_shown_with_its_reply_bounded_harmless_and_without_secrets() {
    let (server, mut receiver, endpoint) = told(&quick_but(SLOW)).await;
    server.client.charge("key-1").await;
    let told = format!(
        "{{\"why\": \"<b>\u{7}\u{202e}no\", \"secret\": \"hidden1\", \"got\": \"{}\", \"text\": \"{}END",
        endpoint.secret,
        "x".repeat(1000),
    );
    receiver.next().await.say(500, "", &told).await;
    server.database.comes_to(ATTEMPTED, 1).await;
    let delivery = endpoint.deliveries(&server.client).await.remove(0);
    let id = delivery["id"].as_str().unwrap();
    let visit = Visit::begin(&server).await;
    let list = visit.page("/console/deliveries").await;
    list.must_have(&[&format!("href=\"/console/deliveries/{id}\"")]);
    // It gets another answer, which has a body without an end.
    let retry = format!("/console/deliveries/{id}/retry");
    visit.post(&retry, &[]).await;
    receiver.next().await.say(200, "", "thanks").await;
    endpoint.newest_succeeds(&server.client).await;
    let page = visit.object("deliveries", id).await;
    page.must_have(&[
        "<span class=\"state bad\">failed</span>",
        "<td class=\"wide\">500</td>",
        "<summary>Reply 1</summary>",
        "&lt;b&gt;\u{fffd}\u{fffd}no",
        "<td class=\"wide\">200</td>",
        "thanks",
    ]);
    page.must_lack(&[&endpoint.secret, "hidden1", "END", "<b>", "Retry now"]);
    let longest = "SELECT max(octet_length(reply))::int8 FROM webhook_replies";
    assert_eq!(server.database.count(longest).await, 1024);
    // The API shows attempts as it did.
    let attempt = &endpoint.deliveries(&server.client).await.remove(0)["attempts"][0];
    assert!(attempt.get("reply").is_none(), "{attempt}");
}

#[tokio::test]
async fn a_body_that_stays_out_changes_nothing_and_without_the_console_none_is_kept() {
    for (variables, kept) in [(quick_but(&[CONSOLE]), 1), (QUICK.to_vec(), 0)] {
        let (server, mut receiver, endpoint) = told(&variables).await;
        server.client.charge("key-1").await;
        let mut received = receiver.next().await;
        // A part of what is announced, and then nothing more.
        received
            .write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            .await;
        let delivered = endpoint.newest_succeeds(&server.client).await;
        assert_eq!(delivered["attempts"][0]["error"], Value::Null);
        let half = "SELECT count(*) FROM webhook_replies WHERE reply = 'half' AND number = 1";
        assert_eq!(server.database.count(half).await, kept);
        drop(received);
    }
}

#[tokio::test]
async fn a_reply_that_may_hold_a_card_number_is_not_stored() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[CONSOLE])).await;
    for (number, (says, stored)) in [("card 4242 4242 4242 4242", 0), ("card 4242", 1)]
        .into_iter()
        .enumerate()
    {
        server.client.charge(&format!("key-{number}")).await;
        receiver.next().await.say(200, "", says).await;
        endpoint.newest_succeeds(&server.client).await;
        assert_eq!(
            server.database.count_of("webhook_replies").await,
            stored,
            "{says}"
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_failed_eight_times_of_eight_is_not_shown_as_well() {
    let (server, mut receiver, endpoint) = told(&quick_but(SLOW)).await;
    let visit = Visit::begin(&server).await;
    let untried = visit.page("/console/deliveries").await;
    untried.must_have(&[">enabled<", "no attempt yet"]);
    for number in 0..8 {
        server.client.charge(&format!("key-{number}")).await;
        receiver.next().await.answer(500).await;
    }
    server.database.comes_to(ATTEMPTED, 8).await;
    for path in ["/console/deliveries", &page_of(&endpoint)] {
        let page = visit.page(path).await;
        page.must_have(&["<span class=\"state bad\">all fail</span>", "0 of 8, 0 %"]);
        page.must_lack(&["state good"]);
    }
    server.client.charge("key-8").await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    let page = visit.page(&page_of(&endpoint)).await;
    page.must_have(&[
        "<span class=\"state warn\">some fail</span>",
        "1 of 9, 11 %",
    ]);
}

#[tokio::test]
async fn deliveries_are_filtered_by_state_and_endpoint_page_by_page() {
    // Nothing is sent.
    let (server, _receiver, to) = told(&quick_but(&[CONSOLE, ("BACKGROUND", "off")])).await;
    server.client.charge("key-1").await;
    let other = Endpoint::at(&server.client, "https://example.com/other").await;
    add_backlog(&server.database, &to, 60).await;
    let ended = "
        UPDATE webhook_deliveries
           SET status = 'succeeded', ready = false, next_attempt_at = NULL, delivered_at = now()
         WHERE id = (SELECT id FROM webhook_deliveries LIMIT 1);
        UPDATE webhook_deliveries SET status = 'failed', ready = false, next_attempt_at = NULL
         WHERE id IN (SELECT id FROM webhook_deliveries WHERE status = 'pending' LIMIT 55)";
    server.database.execute(ended).await;
    let visit = Visit::begin(&server).await;
    let rows = |page: &str| {
        page.matches("<td><a href=\"/console/deliveries/whd_")
            .count()
    };
    for (query, count) in [
        ("status=failed", 50),
        ("status=pending", 5),
        ("status=succeeded", 1),
        (&format!("status=pending&endpoint={}", to.id), 5),
        (&format!("endpoint={}", to.id), 50),
        (&format!("endpoint={}", other.id), 0),
    ] {
        let page = visit.page(&format!("/console/deliveries?{query}")).await;
        assert_eq!(rows(&page), count, "{query}: {page}");
        assert_eq!(page.contains("No delivery fits"), count == 0, "{query}");
        assert_eq!(page.contains("Older deliveries"), count == 50, "{query}");
    }
    let first = visit.page("/console/deliveries?status=failed").await;
    let older = first.between("href=\"/console/deliveries?status=failed&amp;before=", "\"");
    let older = format!("/console/deliveries?status=failed&before={older}");
    let second = visit.page(&older).await;
    assert_eq!(rows(&second), 5, "{second}");
    second.must_lack(&["Older deliveries"]);
    for wrong in ["status=lost", "endpoint=ch_1", "before=x"] {
        let answer = visit.get(&format!("/console/deliveries?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    // All that failed is made due, once.
    let retry = format!("{}/retry", page_of(&to));
    for due in [55, 0] {
        let says = format!("{}?due={due}", page_of(&to));
        assert_eq!(visit.sent_to(&retry, &[]).await, says);
    }
    assert_eq!(server.database.count(PENDING).await, 60);
    let page = visit.page(&format!("{}?due=55", page_of(&to))).await;
    page.must_have(&["55 failed deliveries are due now."]);
    let page = visit.page(&format!("{}?due=0", page_of(&to))).await;
    page.must_have(&["None of them has failed for good"]);
}

#[tokio::test]
async fn what_failed_in_a_range_of_time_is_sent_again() {
    let (server, mut receiver, endpoint) = told(&quick_but(SLOW)).await;
    for number in 0..2 {
        server.client.charge(&format!("key-{number}")).await;
        receiver.next().await.answer(500).await;
    }
    server.database.comes_to(ATTEMPTED, 2).await;
    let failed = "UPDATE webhook_deliveries SET status = 'failed', next_attempt_at = NULL";
    server.database.execute(failed).await;
    let visit = Visit::begin(&server).await;
    let retry = format!("{}/retry", page_of(&endpoint));
    let at = |hours: i64| {
        let at = Utc::now() + chrono::TimeDelta::hours(hours);
        at.format("%Y-%m-%dT%H:%M").to_string()
    };
    let (before, after) = (at(-1), at(1));
    for wrong in ["yesterday", "2026-13-01T00:00", "+262142-12-31T23:59"] {
        let answer = visit.post(&retry, &[("from", wrong)]).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    endpoint.disable(&server.client, true).await;
    let paused = visit.sent_to(&retry, &[]).await;
    assert!(paused.ends_with("?did=nothing"), "{paused}");
    endpoint.disable(&server.client, false).await;
    for (from, to, due) in [("", &*before, 0), (&*after, "", 0), (&*before, &*after, 2)] {
        let says = visit.sent_to(&retry, &[("from", from), ("to", to)]).await;
        assert!(
            says.ends_with(&format!("?due={due}")),
            "{from} {to}: {says}"
        );
    }
    for _ in 0..2 {
        receiver.next().await.answer(200).await;
    }
    everything_is_delivered(&server.database).await;
}

#[tokio::test]
async fn a_form_makes_one_endpoint_and_its_secret_is_in_the_stored_reply_only() {
    let (server, visit) = visited().await;
    let path = "/console/webhook_endpoints/new";
    let form = visit.page(path).await;
    let key = key_of(&form);
    let url = "https://example.com/hook/it's";
    let fields = [
        ("key", key),
        ("url", url),
        ("events", "charge.succeeded, charge.refunded"),
        ("description", "<b>"),
    ];
    assert_eq!(Answer::of(visit.form(path, &fields)).await.status, 403);
    let made = visit.post(path, &fields).await;
    assert_eq!(made.status, 200, "{made:?}");
    let page = text(&made.body);
    page.must_lack(&["whsec_", API_KEY, "<b>"]);
    let id = page
        .between("href=\"/console/webhook_endpoints/we_", "\"")
        .to_owned();
    let again = text(&visit.post(path, &fields).await.body);
    again.must_have(&[&format!("we_{id}\"")]);
    assert_eq!(server.database.count_of("webhook_endpoints").await, 1);
    let printed = pasted(&page).await;
    printed.must_have(&["idempotent-replayed: true", "\"secret\":\"whsec_", &id]);
    let shown = visit.object("webhook_endpoints", &format!("we_{id}")).await;
    shown.must_have(&[
        "https://example.com/hook",
        "charge.succeeded, charge.refunded",
        "&lt;b&gt;",
    ]);
    for (wrong, value, told) in [
        ("url", "http://localhost/", "WEBHOOK_ALLOW_PRIVATE"),
        ("events", "charge.stolen", "type of event"),
    ] {
        let key = format!("key-{wrong}");
        let mut fields = fields.to_vec();
        fields.retain(|(name, _)| *name != wrong && *name != "key");
        fields.extend([(wrong, value), ("key", &*key)]);
        let refused = visit.post(path, &fields).await;
        assert_eq!(refused.status, 400, "{wrong}");
        let page = text(&refused.body);
        page.must_have(&["class=\"problem\"", told, &format!("value=\"{value}\"")]);
    }
    let no_key = visit.post(path, &[("url", url), ("events", "*")]).await;
    assert_eq!(no_key.status, 400);
    assert_eq!(server.database.count_of("webhook_endpoints").await, 1);
}

#[tokio::test]
async fn an_endpoint_is_paused_enabled_and_tested_with_a_real_event() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[CONSOLE])).await;
    let visit = Visit::begin(&server).await;
    let path = page_of(&endpoint);
    let (pause, test) = (format!("{path}/pause"), format!("{path}/test"));
    assert_eq!(visit.sent_to(&pause, &[("disabled", "true")]).await, path);
    let paused = visit.page(&path).await;
    paused.must_have(&[
        ">disabled<",
        "What falls due meanwhile fails for good.",
        "Enable it",
    ]);
    paused.must_lack(&["Send a test event"]);
    assert_eq!(visit.sent_to(&pause, &[("disabled", "false")]).await, path);
    assert_eq!(visit.post(&pause, &[("disabled", "x")]).await.status, 400);
    let page = visit.page(&path).await;
    page.must_have(&["Pause it", "customer.created"]);
    page.must_lack(&[&endpoint.secret, "Plan how"]);
    let key = key_of(&page);
    assert_eq!(visit.post(&test, &[]).await.status, 400);
    // A form that is sent twice makes one event.
    for _ in 0..2 {
        let says = visit.sent_to(&test, &[("key", key)]).await;
        assert_eq!(says, format!("{path}?did=tested"));
    }
    let received = receiver.next().await;
    assert_eq!(received.event()["type"], "customer.created");
    received.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    assert_eq!(server.database.count_of("events").await, 1);
    // The console makes nothing that moves money.
    let body = json!({"url": receiver.url(), "enabled_events": ["charge.succeeded"]});
    let charges = Endpoint::with(&server.client, &body).await;
    visit
        .page(&page_of(&charges))
        .await
        .must_have(&["charge-once trigger"]);
    let test_charges = format!("{}/test", page_of(&charges));
    let refused = visit.post(&test_charges, &[("key", "key-9")]).await;
    assert_eq!(refused.status, 400);
    for event in ["setup_intent.created", "payment_intent.created"] {
        let body = json!({"url": receiver.url(), "enabled_events": [event]});
        let one = Endpoint::with(&server.client, &body).await;
        let test = format!("{}/test", page_of(&one));
        visit.sent_to(&test, &[("key", event)]).await;
        one.newest_delivery(&server.client, event, |one| one["event_type"] == event)
            .await;
    }
}

#[tokio::test]
async fn another_account_s_endpoints_and_deliveries_are_missing() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, delivery) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let key = api_key_of(&server.database, "alice").await;
    let alice = Visit::begin_with(client, &key).await;
    let visit = Visit::begin(&server).await;
    let id = delivery["id"].as_str().unwrap();
    let path = page_of(&endpoint);
    for page in [&path, &format!("/console/deliveries/{id}")] {
        assert_eq!(alice.get(page).await.status, 404, "{page}");
        assert_eq!(visit.get(page).await.status, 200, "{page}");
    }
    let filtered = alice
        .page(&format!("/console/deliveries?endpoint={}", endpoint.id))
        .await;
    filtered.must_have(&["No delivery fits"]);
    for (action, field) in [
        ("pause", ("disabled", "true")),
        ("test", ("key", "key-7")),
        ("retry", ("from", "")),
    ] {
        let action = format!("{path}/{action}");
        assert_eq!(alice.post(&action, &[field]).await.status, 404, "{action}");
        let foreign = Answer::of(visit.form(&action, &[field])).await;
        assert_eq!(foreign.status, 403, "{action}");
    }
    visit.page(&path).await.must_lack(&[">disabled<"]);
    for unknown in ["/console/deliveries/x", "/console/webhook_endpoints/x"] {
        assert_eq!(visit.get(unknown).await.status, 404, "{unknown}");
    }
}

#[tokio::test]
async fn a_test_account_is_led_to_faults_of_deliveries() {
    let (_server, client, visit) = tester().await;
    let made = Endpoint::with(&client, &endpoint("https://example.com/")).await;
    let page = visit.page(&page_of(&made)).await;
    for fault in ["webhook_twice", "webhook_late", "webhook_out_of_order"] {
        page.must_have(&[&format!(
            "/console/report?target=*&amp;count=1&amp;fault={fault}\""
        )]);
    }
}

#[tokio::test]
async fn replies_go_when_the_rows_of_the_request_log_do() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[CONSOLE])).await;
    server.client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    let database = server.stop().await;
    // The last one was an attempt of a moment ago at a delivery of long ago.
    let old = "
        INSERT INTO webhook_replies (account_id, delivery_id, number, reply, created_at)
        SELECT account_id, ('00000000-0000-7000-8000-' || lpad(to_hex(n / 2), 12, '0'))::uuid, n % 2 + 1,
               'ok', CASE WHEN n < 1201 THEN now() - interval '25 hours' ELSE now() END
          FROM (SELECT account_id FROM webhook_replies LIMIT 1) AS account, generate_series(1, 1201) AS n";
    database.execute(old).await;
    let variables = [("REQUEST_LOG_RETENTION", "24h")];
    let connected = database.connect(&variables).await;
    let mut sweep = Sweep::new(connected, &config(&variables), 0);
    let until = Instant::now() + Duration::from_secs(60);
    let removed = sweep.old_rows(until).await.unwrap();
    assert_eq!(removed.requests, 1200);
    assert_eq!(database.count_of("webhook_replies").await, 2);
}
