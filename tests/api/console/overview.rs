//! The overview: figures of known requests, and of the account and the span that are asked for.

use super::*;

/// How many requests ended so, as the picture's legend has it.
fn ended(page: &str, how: &str) -> i64 {
    let link = format!("href=\"/console/requests?outcome={how}\">{how}</a> ");
    let count = page.between(&link, "</li>").rsplit(' ').next();
    count.unwrap().parse().unwrap()
}

/// All that the legend has: executed, replayed, refused, failed.
fn legend(page: &str) -> [i64; 4] {
    ["executed", "replayed", "refused", "failed"].map(|how| ended(page, how))
}

fn figure<'a>(page: &'a str, name: &str) -> &'a str {
    page.between(&format!("<dt>{name}</dt><dd>"), "</dd>")
}

#[tokio::test]
async fn the_first_page_has_how_requests_ended_and_what_retries_did_not_do_again() {
    let (server, visit) = visited().await;
    let none = visit.page("/console").await;
    assert_eq!(legend(&none), [0; 4]);
    assert_eq!(figure(&none, "Duration"), "none yet");
    none.must_have(&["No request came in this time"]);
    none.must_lack(&["Last check", "<rect class=\"executed\" x="]);
    let client = &server.client;
    for _ in 0..3 {
        client.charge("key-1").await;
    }
    client.post("/charges", "key-1", &another_charge()).await;
    let with = |card: &str| json!({"amount": 2000, "currency": "usd", "source": card});
    for _ in 0..2 {
        let declined = with("tok_chargeDeclined");
        client.post("/charges", "key-2", &declined).await;
    }
    client
        .post("/charges", "key-3", &json!({"amount": 0}))
        .await;
    client.post("/charges", "key-4", &with("tok_outage")).await;
    client.get("/charges").await;
    // Another account's requests count there.
    let alice = client_of_account(&server, "alice").await;
    for _ in 0..2 {
        alice.charge("key-1").await;
    }
    log_holds(&server.database, 11).await;
    for path in [
        "/console",
        "/console?span=day",
        "/console/live/overview",
        "/console/live/overview?span=day",
    ] {
        let page = visit.page(path).await;
        assert_eq!(legend(&page), [2, 3, 2, 1], "{path}");
        // The replay of a decline would have moved no money.
        let retries = "2 that would have been second effects";
        assert_eq!(figure(&page, "Retries"), retries);
        assert!(
            figure(&page, "Duration").starts_with("p50 under "),
            "{page}"
        );
        // The picture and the table have the same, in one part or two.
        page.must_have(&["<rect class=\"executed\" x=", "role=\"img\" aria-label="]);
        let table = page.between("aria-label=\"Requests over time\"", "</table>");
        let cells = table.split("<td class=\"number\">").skip(1);
        let cells = cells.map(|cell| cell.split('<').next().unwrap());
        let sum: i64 = cells.map(|cell| cell.parse::<i64>().unwrap()).sum();
        assert_eq!(sum, 8, "{table}");
    }
    assert_eq!(visit.get("/console?span=year").await.status, 400);
}

#[tokio::test]
async fn the_span_is_an_hour_or_a_day_and_durations_are_of_the_span() {
    let (server, visit) = visited().await;
    let sql = "
        INSERT INTO request_counts (account_id, minute, outcomes, durations, second_effects)
        SELECT id, date_trunc('minute', now()) - ago, outcomes, durations, effects
          FROM accounts, (VALUES
               (interval '30 minutes', '{5}'::bigint[], '{0,0,0,50}'::bigint[], 1),
               (interval '3 hours', '{10}', '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1}', 20),
               (interval '25 hours', '{100}', '{1000}', 300))
               AS rows (ago, outcomes, durations, effects)";
    server.database.execute(sql).await;
    for (span, executed, effects, durations) in [
        ("hour", 5, 1, "p50 under 5.0 ms, p99 under 5.0 ms"),
        ("day", 15, 21, "p50 under 5.0 ms, p99 over 50 s"),
    ] {
        let page = visit.page(&format!("/console?span={span}")).await;
        assert_eq!(legend(&page), [executed, 0, 0, 0], "{page}");
        let retries = format!("{effects} that would have been second effects");
        assert_eq!(figure(&page, "Retries"), retries);
        assert_eq!(figure(&page, "Duration"), durations);
        page.must_have(&[
            &format!("data-live=\"/console/live/overview?span={span}\""),
            &format!("<a href=\"/console?span={span}\" aria-current=\"true\">"),
        ]);
    }
}

#[tokio::test]
async fn an_address_of_the_list_when_it_was_the_first_page_leads_to_the_list() {
    let (_server, visit) = visited().await;
    for (old, list) in [
        ("status=402&path=%2Forders", "status=402&path=%2Forders"),
        ("before=req_1&outcome=any", "outcome=any&before=req_1"),
        ("key=a+b&span=day", "key=a+b"),
    ] {
        let answer = visit.get(&format!("/console?{old}")).await;
        assert_eq!(answer.status, 303, "{old}");
        let list = format!("/console/requests?{list}");
        assert_eq!(answer.header("location"), Some(&*list));
    }
}

#[tokio::test]
async fn keys_without_an_outcome_and_the_last_check_are_shown() {
    let server = TestServer::start_with(&[PATIENT, &[CONSOLE]].concat()).await;
    let visit = Visit::begin(&server).await;
    let keys = async || {
        let page = visit.page("/console").await;
        let keys = figure(&page, "Keys without an outcome");
        keys.between("<a href=\"/console/in-flight\">", "</a>")
            .to_owned()
    };
    assert_eq!(keys().await, "0 in flight, 0 in doubt");
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let first = server.client.charging("key-1");
    pause.is_reached().await;
    assert_eq!(keys().await, "1 in flight, 0 in doubt");
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    let sql = "
        INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
               request_id, created_at, expires_at)
        SELECT id, 'doubt-1', 1, sha256('x'), 'POST', '/charges', 'req_1', now(), now() + interval '1 day'
          FROM accounts;
        INSERT INTO idempotency_leases (account_id, key, kind, operation, token, leased_until,
               recover_after, in_doubt)
        SELECT id, 'doubt-1', 'test', gen_random_uuid(), gen_random_uuid(), now(),
               now() + interval '1 hour', true
          FROM accounts;
        INSERT INTO last_check (violations, finished_at) VALUES (3, '2026-01-02 03:04:05Z')";
    server.database.execute(sql).await;
    let in_doubt = "0 in flight, 1 <span class=\"state bad\">in doubt</span>";
    assert_eq!(keys().await, in_doubt);
    let page = visit.page("/console").await;
    let check = figure(&page, "Last check of all accounts");
    check.must_have(&["2026-01-02T03:04:05Z", ">failed</span>, 3 violations"]);
}

#[tokio::test]
async fn an_endpoint_that_fails_is_named_until_it_is_deleted() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let visit = Visit::begin(&server).await;
    let failing = async || {
        let page = visit.page("/console").await;
        figure(&page, "Webhook endpoints that fail").to_owned()
    };
    assert_eq!(failing().await, "none");
    let mut receiver = Receiver::start().await;
    let (endpoint, _) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let link = format!(
        "<a class=\"mono\" href=\"/console/webhook_endpoints/{0}\">{0}</a>",
        endpoint.id
    );
    failing().await.must_have(&[
        &link,
        ">all fail</span>: 1 of 1 attempts of its newest deliveries",
    ]);
    delete(client, &endpoint.id).await;
    assert_eq!(failing().await, "none");
}
