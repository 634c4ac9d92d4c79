//! `charge-once faults` and `charge-once report`, with the key of a test account.

use charge_once_service::request_log::report::FindingKind;

use super::*;

/// A server with `FAULTS`, and the API key of a test account.
async fn with_tester() -> (TestServer, String) {
    let server = TestServer::start_with(&[FAULTS]).await;
    let made = server.client.post_new("/test/accounts", &json!({})).await;
    let key = made.json()["api_key"].as_str().unwrap().to_owned();
    (server, key)
}

async fn run_as(server: &TestServer, key: &str, arguments: &[&str]) -> Run {
    let mut command = command(&url_of(server), arguments);
    command.env("CHARGE_ONCE_API_KEY", key);
    run_to_end(command).await
}

#[tokio::test]
async fn a_plan_is_added_listed_with_what_it_did_and_deleted() {
    let (server, key) = with_tester().await;
    let add = "faults add --fault 503 --first 3 --route";
    let add: Vec<_> = add.split(' ').chain(["POST /v1/charges"]).collect();
    let printed = run_as(&server, &key, &add).await.succeeded();
    printed.must_have(&["flt_", "  POST /charges  503  first 3  acted on 0 of 0"]);
    let tester = server.client.with_api_key(&key);
    let refused = tester.post("/charges", "key-1", &charge()).await;
    assert_eq!(refused.status, 503);
    let by_chance = "faults add --fault webhook_twice --percent 5 --seed 7 --event *";
    let by_chance: Vec<_> = by_chance.split(' ').collect();
    run_as(&server, &key, &by_chance).await.succeeded();

    let listed = run_as(&server, &key, &["faults", "list"]).await.succeeded();
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    lines[0].must_have(&["first 3", "acted on 1 of 1"]);
    lines[1].must_have(&["event *", "webhook_twice", "5 percent, seed 7"]);
    // Cells stand one below the other.
    assert_eq!(lines[0].find("acted"), lines[1].find("acted"));

    let id = lines[0].split(' ').next().unwrap();
    let one = ["faults", "clear", id];
    let deleted = run_as(&server, &key, &one).await.succeeded();
    assert_eq!(deleted, format!("deleted {id}\n"));
    let told = run_as(&server, &key, &one).await.failed(1);
    told.must_have(&["there is no plan", id]);
    let all = run_as(&server, &key, &["faults", "clear"]).await;
    assert_eq!(all.succeeded().lines().count(), 1);
    let listed = run_as(&server, &key, &["faults", "list"]).await.succeeded();
    assert_eq!(listed, "");
}

#[tokio::test]
async fn a_plan_that_can_t_be_is_refused_with_what_is_wrong() {
    let (server, key) = with_tester().await;
    for (arguments, code, told) in [
        (
            "--route * --fault reply_lots",
            1,
            "The nearest is reply_lost",
        ),
        ("--route /refund --fault 503", 1, "The nearest is /refunds"),
        ("--fault 503", 1, "needs route"),
        ("--first 3", 2, "--fault"),
    ] {
        let arguments: Vec<_> = ["faults", "add"]
            .into_iter()
            .chain(arguments.split(' '))
            .collect();
        let said = run_as(&server, &key, &arguments).await.failed(code);
        said.must_have(&[told]);
    }
}

/// The names of the test cases, and of those that failed. Fails if it is not well-formed.
pub(super) fn cases(xml: &str) -> (Vec<String>, Vec<String>) {
    let tag = r#"<(/?)(\??[a-z-]+)((?: [a-z]+="[^"<>]*")*)\??>"#;
    let (mut open, mut all, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let tag = Regex::new(tag).unwrap();
    for found in tag.captures_iter(xml).skip(1) {
        match &found[1] {
            "/" => assert_eq!(open.pop(), Some(found[2].to_owned()), "{xml}"),
            _ => open.push(found[2].to_owned()),
        }
        match (&found[1], &found[2]) {
            ("", "testcase") => all.push(found[3].between(" name=\"", "\"").to_owned()),
            ("", "failure") => failed.extend(all.last().cloned()),
            _ => {}
        }
    }
    assert!(
        open.is_empty() && !tag.replace_all(xml, "").contains('<'),
        "{xml}"
    );
    (all, failed)
}

#[tokio::test]
async fn a_report_names_the_requests_that_charge_twice_and_fails_their_test_case() {
    let (server, key) = with_tester().await;
    let folder = TempDir::new().unwrap();
    let junit = folder.path().join("report.xml");
    let report = ["report", "--junit", junit.to_str().unwrap()];
    let nothing = run_as(&server, &key, &report).await.succeeded();
    nothing.must_have(&["Nothing found in 0 requests"]);
    let kinds: Vec<_> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let (all, failed) = cases(&fs::read_to_string(&junit).unwrap());
    assert_eq!(
        (all, failed.len()),
        (kinds.iter().map(|kind| kind.to_string()).collect(), 0)
    );

    let tester = server.client.with_api_key(&key);
    let lost = json!({"route": "/charges", "fault": "reply_lost"});
    tester.post_new("/test/faults", &lost).await;
    for key in ["<first>&'1'", "second"] {
        let request = tester.request(Method::POST, "/charges");
        let request = request.header("idempotency-key", key).json(&charge());
        let reply = tester.reply_or_none(request).await;
        assert_eq!(reply.is_some(), key == "second");
    }
    let told = run_as(&server, &key, &report).await;
    assert_eq!(told.code, Some(1), "{told:?}");
    told.stdout.must_have(&[
        " found in 2 requests, 1 faults.\n",
        "critical: ",
        "  POST  /charges  <first>&'1'  no reply  unanswered  reply_lost\n",
        "  POST  /charges  second       201       executed\n",
        "  Made: ch_",
        "  Why: ",
        "  Change: ",
    ]);
    let xml = fs::read_to_string(&junit).unwrap();
    let (all, failed) = cases(&xml);
    assert_eq!(
        (all.len(), failed),
        (kinds.len(), vec!["double_effect".to_owned()])
    );
    xml.must_have(&["&lt;first&gt;&amp;&apos;1&apos;  no reply"]);
}

#[tokio::test]
async fn without_a_report_the_code_is_2_and_the_reason_is_said() {
    let (with, without) = (
        TestServer::start_with(&[FAULTS]).await,
        TestServer::start().await,
    );
    let other = api_key_of(&with.database, "shop").await;
    let told = run_as(&with, &other, &["report"]).await.failed(2);
    told.must_have(&["refused: HTTP 400"]);
    let told = run_as(&without, API_KEY, &["report"]).await.failed(2);
    told.must_have(&["reports need FAULTS=true"]);
    let away = RefusedAddress::reserve();
    let told = run(&away.url(), &["report"]).await.failed(2);
    told.must_have(&["can't be reached"]);
    let nowhere = ["report", "--junit", "/nowhere/report.xml"];
    let told = run_as(&with, API_KEY, &nowhere).await.failed(2);
    told.must_have(&["--junit: /nowhere/report.xml can't be written"]);
}
