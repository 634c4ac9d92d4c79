//! The page with the report on a test account's client, and its planned faults.

use super::*;
use crate::support::accounts::client_of_test_account;

const REPORT: &str = "/console/report";

/// The fields of a plan.
fn plan<'a>(fault: &'a str, target: &'a str, count: &'a str) -> [(&'a str, &'a str); 4] {
    let often = ("often", "first");
    [
        ("fault", fault),
        ("target", target),
        often,
        ("count", count),
    ]
}

/// A visit with the key of a test account, and its client.
pub(super) async fn tester() -> (TestServer, Client, Visit) {
    let server = TestServer::start_with(&[CONSOLE, FAULTS]).await;
    let client = client_of_test_account(&server.client).await;
    let visit = Visit::begin_with(&client, &client.api_key).await;
    (server, client, visit)
}

#[tokio::test]
async fn a_planned_fault_acts_its_finding_is_shown_and_the_plan_can_be_deleted() {
    let (_server, client, visit) = tester().await;
    let empty = visit.page(REPORT).await;
    empty.must_have(&[
        "Nothing found in 0 requests",
        "aria-current=\"page\">Report<",
    ]);
    let filled = format!("{REPORT}?target=*&count=3&fault=webhook_twice");
    visit.page(&filled).await.must_have(&[
        "value=\"*\"",
        "value=\"3\"",
        "value=\"webhook_twice\" selected",
    ]);
    let planned = visit
        .post(REPORT, &plan("reply_lost", "POST /charges", "1"))
        .await;
    assert_eq!(planned.header("location"), Some(REPORT), "{planned:?}");
    let event = visit.post(REPORT, &plan("webhook_twice", "*", "2")).await;
    assert_eq!(event.status, 303);
    for key in ["<b>1", "second"] {
        let request = client.request(Method::POST, "/charges");
        let request = request.header("idempotency-key", key).json(&charge());
        assert_eq!(
            client.reply_or_none(request).await.is_some(),
            key == "second"
        );
    }
    let page = visit.page(REPORT).await;
    page.must_have(&[
        " found in 2 requests, 1 faults.",
        "<span class=\"state bad\">critical</span>",
        "href=\"/console/keys/%3Cb%3E1\">&lt;b&gt;1</a>",
        "<td>reply_lost</td>",
        "<td>POST /charges</td><td>first 1</td><td>1 of 2</td>",
        "<td>event *</td><td>first 2</td>",
        "href=\"/console/charges/ch_",
    ]);
    page.must_lack(&[&client.api_key, "://", " style="]);
    for left in [1, 0] {
        let path = page_path(&visit).await;
        assert_eq!(
            visit.post(&path, &[]).await.header("location"),
            Some(REPORT)
        );
        let plans = client.get("/test/faults").await.json();
        assert_eq!(plans["data"].as_array().unwrap().len(), left);
        assert_eq!(visit.post(&path, &[]).await.status, 404, "it is gone");
    }
}

/// Where the form is sent that deletes the first plan.
async fn page_path(visit: &Visit) -> String {
    let page = visit.page(REPORT).await;
    let id = page.between("/console/report/plans/", "/delete");
    format!("/console/report/plans/{id}/delete")
}

#[tokio::test]
async fn a_plan_that_the_api_refuses_keeps_the_form_and_says_why() {
    let (_server, client, visit) = tester().await;
    for (fields, told) in [
        (plan("503", "/refund", "3"), "The nearest is /refunds"),
        (plan("503", "/<script>", "3"), "must be"),
        (plan("503", "/refunds", "many"), "must"),
        (
            plan("reply_lots", "/refunds", "3"),
            "The nearest is reply_lost",
        ),
    ] {
        let refused = visit.post(REPORT, &fields).await;
        assert_eq!(refused.status, 400, "{fields:?}");
        let page = text(&refused.body);
        let problem = page.between("<p class=\"problem\" role=\"alert\">", "</p>");
        assert_has(&problem.to_lowercase(), &told.to_lowercase());
        page.must_have(&[&format!("value=\"{}\"", fields[3].1)]);
        page.must_lack(&["<script>"]);
    }
    let unknown = [
        ("often", "never"),
        ("fault", "503"),
        ("target", "*"),
        ("count", "1"),
    ];
    assert_eq!(visit.post(REPORT, &unknown).await.status, 400);
    assert_eq!(client.get("/test/faults").await.json()["data"], json!([]));
}

#[tokio::test]
async fn only_accounts_on_which_faults_act_have_the_page_and_other_sites_forms_do_nothing() {
    let (server, client, visit) = tester().await;
    let form = visit.form(REPORT, &plan("503", "*", "1"));
    assert_eq!(Answer::of(form).await.status, 403);
    assert_eq!(client.get("/test/faults").await.json()["data"], json!([]));
    let alice = api_key_of(&server.database, "alice").await;
    let alice = Visit::begin_with(&server.client, &alice).await;
    let (_without, dev) = visited().await;
    for visit in [alice, dev] {
        visit.page("/console").await.must_lack(&[REPORT]);
        assert_eq!(visit.get(REPORT).await.status, 404);
        assert_eq!(visit.post(REPORT, &plan("503", "*", "1")).await.status, 404);
        let plan = "/console/report/plans/flt_1/delete";
        assert_eq!(visit.post(plan, &[]).await.status, 404);
    }
}
