//! Each wrong server is found by the check that is meant for it, and a right one by none.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use std::{
    io::{BufRead, BufReader, ErrorKind},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use charge_once_conform::{Config, Crash, Grade, PRESETS, Report, Service, Url, run};
use futures_util::future::join_all;

/// The example beside this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    folder.join("examples").join("wrong")
}

/// A server with a mistake; killed when dropped.
struct Wrong {
    url: String,
    process: Child,
}

impl Wrong {
    fn start(mistake: &str, address: &str) -> Self {
        Self::start_as(mistake, address, "own")
    }

    fn start_as(mistake: &str, address: &str, profile: &str) -> Self {
        let mut starting = Command::new(program());
        let arguments = [mistake, address, profile];
        starting.args(arguments).stdout(Stdio::piped());
        let mut process = starting.spawn().expect("`cargo test` builds examples");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self { url, process }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CONFIG: &str = include_str!("../wrong/api.toml");

fn config() -> Config {
    Config::from_toml(CONFIG).unwrap()
}

/// Runs all checks, with a second address of the same server as its replica.
async fn report_on(mistake: &str) -> Report {
    report_with(config(), mistake).await
}

async fn report_with(config: Config, mistake: &str) -> Report {
    report_of(config, mistake, "own", &[]).await
}

async fn report_of(config: Config, mistake: &str, profile: &str, only: &[String]) -> Report {
    let server = Wrong::start_as(mistake, "127.0.0.1:0", profile);
    let replica = server.url.replace("127.0.0.1", "localhost");
    let service = Service {
        url: Url::parse(&server.url).unwrap(),
        replicas: vec![Url::parse(&replica).unwrap()],
        crash: None,
    };
    run(config, service, only, |_, _, _| {}).await.unwrap()
}

/// The requests of the example with a preset's promises.
fn preset(name: &str) -> Config {
    let (requests, _) = CONFIG.split_once("[promises]").unwrap();
    let promises = PRESETS
        .iter()
        .find(|(preset, _)| *preset == name)
        .unwrap()
        .1;
    let promises = promises
        .replace("lease_seconds = \"open\"", "lease_seconds = 1")
        .replace("replay_id = \"/name\"", "replay_id = \"/id\"");
    let says = CONFIG.lines().filter(|line| line.contains("_says = "));
    let says = says.collect::<Vec<_>>().join("\n");
    Config::from_toml(&format!("{requests}{promises}{says}")).unwrap()
}

/// Expects no violation, and says what is not known.
async fn is_right(config: Config, kind: &str, not_known: &[&str]) {
    let report = report_with(config, kind).await;
    let (violated, table) = (report.names(Grade::is_violation), report.table());
    assert!(violated.is_empty(), "{violated:?}: {table}");
    let unknown = report.names(|grade| grade == Grade::NotKnown);
    assert_eq!(unknown, not_known, "{table}");
}

#[tokio::test]
async fn no_check_fires_on_a_right_server() {
    is_right(config(), "none", &["sealed", "crash"]).await;
}

#[tokio::test]
async fn a_key_may_be_optional_unless_it_is_promised_to_be_required() {
    let unsaid = CONFIG.replace("key_required = true\n", "");
    let unsaid = Config::from_toml(&unsaid).unwrap();
    is_right(unsaid, "key-optional", &["key_required", "sealed", "crash"]).await;
    is_found("key-optional", "key_required", &[]).await;
}

#[tokio::test]
async fn a_replay_may_be_marked_by_a_header_of_any_name() {
    let promised = "replay_header = \"Idempotent-Replayed\"\n";
    assert!(CONFIG.contains(promised));
    for other in ["", "replay_header = \"Key-Status: Replayed\"\n"] {
        let config = Config::from_toml(&CONFIG.replace(promised, other)).unwrap();
        is_right(config, "marked-otherwise", &["sealed", "crash"]).await;
    }
    let both = ["replay_headers", "refusal_stored"];
    let report = report_on("marked-otherwise").await;
    let violated = report.names(Grade::is_violation);
    assert!(violated.contains(&"replay_marked"), "{violated:?}");
    assert!(!report.is_unsafe(), "{}", report.table());
    assert!(
        violated
            .iter()
            .all(|name| *name == "replay_marked" || both.contains(name))
    );
}

#[tokio::test]
async fn a_key_in_progress_may_be_told_with_423() {
    is_right(config(), "locked", &["sealed", "crash"]).await;
}

/// Expects the check that is meant for the mistake, and no others than those in which it shows too.
async fn is_found(mistake: &str, meant: &str, others: &[&str]) -> Report {
    let report = report_on(mistake).await;
    let (violated, table) = (report.names(Grade::is_violation), report.table());
    let is_detail = mistake == "no-retry-after";
    assert_eq!(report.is_unsafe(), !is_detail, "{table}");
    assert!(violated.contains(&meant), "{table}");
    let is_strange = |name: &&&str| **name != meant && !others.contains(name);
    let strange: Vec<_> = violated.iter().filter(is_strange).collect();
    assert!(strange.is_empty(), "{strange:?}: {table}");
    report
}

/// Expects what a finding costs and how it is mended, by how they begin.
fn says(report: &Report, check: &str, cost: &str, mend: &str) {
    let found = report.findings.iter().find(|one| one.check.name == check);
    let found = found.unwrap();
    let [told_cost, told_mend] = [found.cost.unwrap(), found.mend.unwrap().words.as_str()];
    assert!(told_cost.starts_with(cost), "{found:?}");
    assert!(told_mend.starts_with(mend), "{found:?}");
}

#[tokio::test]
async fn keys_of_all_accounts_in_one_set_cost_a_strangers_reply_and_no_lost_effect() {
    // No reply is marked, so that only effects tell it.
    let unmarked = CONFIG.replace("replay_header = \"Idempotent-Replayed\"\n", "");
    let config = Config::from_toml(&unmarked).unwrap();
    let report = report_with(config, "shared-by-accounts").await;
    let (violated, table) = (report.names(Grade::is_violation), report.table());
    assert_eq!(violated, ["two_accounts"], "{table}");
    says(
        &report,
        "two_accounts",
        "a stranger's reply",
        "make the account",
    );
}

#[tokio::test]
async fn work_that_is_repeated_is_mended_by_a_claim_and_not_by_a_stored_reply() {
    let report = report_on("keys-ignored").await;
    assert!(report.is_unsafe());
    says(
        &report,
        "replay_equal",
        "what a client asked for once",
        "claim the key",
    );
}

#[tokio::test]
async fn check_then_act_is_found_by_racers() {
    let report = is_found("check-then-act", "racers", &["giving_up"]).await;
    // What does everything at once sees it, too. It is one fault. Two requests alone may be too
    // slow for it on a busy machine.
    is_echo(&report, "racers", "storm");
}

fn is_echo(report: &Report, of: &str, names: &str) {
    let echo = format!("that can be an echo of {of}");
    for name in names.split(' ') {
        let found = report.findings.iter().find(|one| one.check.name == name);
        let found = found.unwrap();
        let is_one = found.outcome == Grade::NotKnown && found.seen.contains(&echo);
        assert!(is_one, "{found:?}");
    }
}

/// Each check that retries sees it.
#[tokio::test]
async fn a_retry_that_is_always_refused_is_one_fault() {
    let report = is_found("replay-refused", "replay_equal", &[]).await;
    let echoes = "reuse_body refusal_stored racers in_flight lost_reply disconnect respelled storm";
    is_echo(&report, "replay_equal", echoes);
    says(
        &report,
        "replay_equal",
        "the client is told that its request failed",
        "store",
    );
}

#[tokio::test]
async fn a_key_that_was_given_up_and_executes_is_found() {
    is_found("given-up-is-free", "given_up", &[]).await;
}

#[tokio::test]
async fn a_key_that_is_given_up_while_its_request_works_is_found_by_both_at_once() {
    let report = is_found("given-up-at-work", "giving_up", &[]).await;
    says(
        &report,
        "giving_up",
        "a client that was told \"never\"",
        "give a key up by a record",
    );
}

#[tokio::test]
async fn a_secret_that_is_stored_as_it_is_is_found() {
    let only = ["sealed".to_owned()];
    for (mistake, grade, seen) in [
        ("none", Grade::Holds, "neither the key nor the secret"),
        ("secrets-stored", Grade::Unclear, "the reply's secret is"),
    ] {
        let server = Wrong::start(mistake, "127.0.0.1:0");
        let stored = format!("curl --fail --silent {}/stored", server.url);
        let stored = format!("[stored]\ncommand = '{stored}'\nsecret = '/secret'\n");
        let config = Config::from_toml(&format!("{CONFIG}{stored}")).unwrap();
        let service = Service {
            url: Url::parse(&server.url).unwrap(),
            replicas: Vec::new(),
            crash: None,
        };
        let report = run(config, service, &only, |_, _, _| {}).await.unwrap();
        let found = report.findings.first().unwrap();
        assert_eq!(found.outcome, grade, "{mistake}: {found:?}");
        assert!(found.seen.contains(seen), "{mistake}: {found:?}");
    }
}

/// Without a promise, it is a fact what an expired key is.
#[tokio::test]
async fn an_expired_key_is_what_is_promised() {
    let (right, forgets) = ("keys-remembered", "forgets-what-it-made");
    for (promised, kind, grade, seen) in [
        ("", "none", Grade::Holds, "the key is new"),
        ("", right, Grade::Holds, "the key is remembered: 409"),
        ("", forgets, Grade::Holds, "the key is remembered: 409"),
        ("refused", right, Grade::Holds, "the key is remembered: 409"),
        (
            "refused",
            forgets,
            Grade::Unclear,
            "refused, without the id",
        ),
        (
            "refused",
            "none",
            Grade::Unsafe,
            "2 effects, and 1 is right",
        ),
        ("new", "none", Grade::Holds, "one effect before, one after"),
        ("new", right, Grade::Unsafe, "has expired got 409"),
    ] {
        let promise = format!("expired = \"{promised}\"\n");
        let promise = if promised.is_empty() { "" } else { &promise };
        let config = Config::from_toml(&format!("{CONFIG}{promise}")).unwrap();
        let report = report_of(config, kind, "own", &["expiry".to_owned()]).await;
        let found = &report.findings[0];
        assert_eq!(found.outcome, grade, "{promised} {kind}: {found:?}");
        assert!(found.seen.contains(seen), "{promised} {kind}: {found:?}");
    }
}

/// A refusal with the status of a key in use can't be told from it, and is no fault.
#[tokio::test]
async fn without_what_a_refusal_says_an_expired_key_and_a_given_up_one_are_not_known() {
    let unsaid = CONFIG.lines().filter(|line| !line.contains("_says = "));
    let unsaid = unsaid.collect::<Vec<_>>().join("\n");
    let config = Config::from_toml(&unsaid).unwrap();
    let only = ["expiry", "giving_up"].map(str::to_owned);
    let report = report_of(config, "keys-remembered", "own", &only).await;
    for (found, promise) in report
        .findings
        .iter()
        .zip(["refusal_says", "given_up_says"])
    {
        assert_eq!(found.outcome, Grade::NotKnown, "{found:?}");
        assert!(found.seen.contains(promise), "{found:?}");
    }
}

/// Where no lease is promised, clients wait as long as is usual, and don't know what happened then.
#[tokio::test]
async fn a_key_that_stays_in_progress_is_unclear_where_no_lease_is_promised() {
    let unsaid = CONFIG.replace("lease_seconds = 1\n", "");
    let config = Config::from_toml(&unsaid).unwrap();
    let only = ["server_error".to_owned()];
    let report = report_of(config, "lease-as-long-as-retention", "own", &only).await;
    let found = &report.findings[0];
    assert_eq!(found.outcome, Grade::Unclear, "{found:?}");
    assert!(found.seen.contains("got no answer that stays"), "{found:?}");
}

#[tokio::test]
async fn a_second_transaction_is_found_by_lost_replies() {
    is_found("second-transaction", "lost_reply", &[]).await;
}

#[tokio::test]
async fn a_lease_as_long_as_the_retention_is_found_by_lost_replies() {
    let report = is_found(
        "lease-as-long-as-retention",
        "lost_reply",
        &["server_error"],
    )
    .await;
    says(
        &report,
        "lost_reply",
        "the client never learns",
        "free the key",
    );
}

#[tokio::test]
async fn a_lease_that_is_shorter_than_the_work_is_found_in_flight_and_the_report_shows_how() {
    let report = is_found("lease-shorter-than-work", "in_flight", &[]).await;
    let findings = &report.findings;
    let found = findings.iter().find(|one| one.check.name == "in_flight");
    let found = found.unwrap();
    assert!(found.seen.ends_with("effects, and 1 is right"), "{found:?}");
    let cost =
        "what a client asked for once is done again: two payments, two orders or two messages";
    assert_eq!(found.cost, Some(cost));
    let mend = found.mend.unwrap();
    assert!(mend.words.starts_with("hold the claim"), "{found:?}");
    // No file of this repository: the API may be of any language.
    assert!(
        mend.code.contains("UPDATE keys SET held_until"),
        "{found:?}"
    );
    // The interleaving: a duplicate was let in while the first request was at work.
    let interleaving = "the request of 0 ms was at work until";
    assert!(found.why[0].starts_with(interleaving), "{found:?}");
    let mut why = found.why.iter();
    assert!(why.any(|line| line.contains(": 409 ")), "{found:?}");
    // The verdict is the first line, and the worst finding the first below it.
    let table = report.table();
    let begins: Vec<_> = table.lines().step_by(2).take(2).collect();
    let verdict = "NOT SAFE TO RETRY: unsafe in 1";
    assert!(begins[0].starts_with(verdict), "{table}");
    assert!(begins[0].ends_with("checks: in_flight"), "{table}");
    let worst = "in_flight          UNSAFE     ";
    assert!(begins[1].starts_with(worst), "{table}");
    // The page draws the first request as long as it took, and each duplicate.
    let page = report.html();
    let drawn = page.split_once("<section class=\"unsafe\">").unwrap().1;
    let drawn = drawn.split_once("</section>").unwrap().0;
    assert!(drawn.contains("<code>POST /effects</code>"), "{page}");
    assert!(drawn.contains(interleaving), "{page}");
    assert!(drawn.contains(r#"<rect class="made" x="0" "#), "{page}");
    assert!(drawn.contains(r#"<rect class="refused" "#), "{page}");
}

/// While the duplicates of `in_flight` come, it looks right.
#[tokio::test]
async fn a_lease_that_only_duplicates_renew_is_found_by_one_late_retry() {
    let report = is_found("lease-renewed-by-duplicates", "lease", &[]).await;
    let found = report.findings.iter().find(|one| one.check.name == "lease");
    let found = found.unwrap();
    assert_eq!(found.seen, "2 effects, and 1 is right", "{found:?}");
}

/// 1500 ms are too short to say anything about a lease of two seconds.
#[tokio::test]
async fn slow_work_that_is_shorter_than_the_lease_says_nothing_about_it() {
    let config = CONFIG.replace("lease_seconds = 1\n", "lease_seconds = 2\n");
    let config = Config::from_toml(&config).unwrap();
    is_right(config, "none", &["lease", "sealed", "crash"]).await;
}

#[tokio::test]
async fn a_409_without_retry_after_is_unclear_and_costs_no_second_effect() {
    let report = is_found("no-retry-after", "in_flight", &[]).await;
    let table = report.table();
    assert!(table.starts_with("Nothing unsafe was found"), "{table}");
    assert!(table.contains("\nin_flight unclear"), "{table}");
    assert!(
        table.contains("  cost    a client has to guess when"),
        "{table}"
    );
    assert!(!table.contains("is done again"), "{table}");
}

#[tokio::test]
async fn frozen_statuses_are_found_by_a_server_error() {
    is_found("every-status-frozen", "server_error", &[]).await;
}

#[tokio::test]
async fn a_missing_fingerprint_is_found_by_reuse() {
    let report = is_found("no-fingerprint", "reuse_body", &[]).await;
    is_echo(&report, "reuse_body", "reuse_query");
    // Its keys have one request each then.
    let holds = report.names(|grade| grade == Grade::Holds);
    assert!(holds.contains(&"storm"), "{}", report.table());
}

#[tokio::test]
async fn a_reply_that_is_rendered_afresh_is_found_by_the_replay() {
    is_found("rendered-afresh", "replay_equal", &[]).await;
}

#[tokio::test]
async fn a_scope_of_api_keys_is_found_by_a_rotated_credential() {
    is_found("scope-by-api-key", "rotated_credential", &[]).await;
}

#[tokio::test]
async fn a_server_that_keeps_the_promises_of_a_preset_holds_them() {
    let reports = PRESETS.map(async |(name, _)| {
        let report = report_of(preset(name), "none", name, &[]).await;
        let (violated, table) = (report.names(Grade::is_violation), report.table());
        assert!(violated.is_empty(), "{name}: {violated:?}: {table}");
        let unknown = report.names(|grade| grade == Grade::NotKnown);
        if name == "stripe-v1" {
            // Two headers are one text that stays the same.
            assert!(unknown.contains(&"key_twice"), "{table}");
        }
        // Every preset promises at least these.
        for known in "replay_equal racers in_flight lost_reply storm two_accounts".split(' ') {
            assert!(!unknown.contains(&known), "{name}: {table}");
        }
    });
    join_all(reports).await;
}

#[tokio::test]
async fn a_server_without_keys_is_found_by_every_preset() {
    let only = ["replay_equal".to_owned(), "lost_reply".to_owned()];
    let reports = PRESETS.map(async |(name, _)| {
        let report = report_of(preset(name), "keys-ignored", name, &only).await;
        let found = report.names(|grade| grade == Grade::Unsafe);
        assert_eq!(found, ["replay_equal"], "{}", report.table());
        is_echo(&report, "replay_equal", "lost_reply");
    });
    join_all(reports).await;
}

/// What one API promises is a mistake in another one.
#[tokio::test]
async fn another_promise_than_that_of_the_server_is_found() {
    let pairs = [
        ("acp", "stripe-v1", "server_error"),
        ("stripe-v1", "acp", "server_error"),
        ("stripe-v1", "stripe-v2", "refusal_stored"),
        ("stripe-v2", "stripe-v1", "refusal_stored"),
        ("stripe-v1", "own", "invalid_stored"),
        ("stripe-v1", "own", "delete_key"),
        ("stripe-v2", "stripe-v1", "delete_key"),
        ("stripe-v1", "stripe-v2", "replay_equal"),
        ("ucp", "acp", "respelled"),
        ("acp", "ucp", "reuse_body"),
    ];
    let reports = pairs.map(async |(promised, served, check)| {
        let report = report_of(preset(promised), "none", served, &[check.to_owned()]).await;
        let found = report.names(Grade::is_violation);
        assert_eq!(found, [check], "{promised}, {served}: {}", report.table());
    });
    join_all(reports).await;
    let only = ["key_problem".to_owned()];
    let report = report_of(config(), "none", "acp", &only).await;
    assert_eq!(
        report.names(Grade::is_violation),
        only,
        "{}",
        report.table()
    );
}

#[tokio::test]
async fn a_key_in_a_form_is_a_key() {
    let form = CONFIG
        .replace(
            "json = '{\"number\": {{number}}",
            "form = 'number={{number}}",
        )
        .replace(", \"other\": {\"b\": 1, \"a\": 2}}'", "&other=1'")
        .replace(", \"declined\": true}'", "&declined=1'")
        .replace(", \"declines_once\": true}'", "&declines_once=1'")
        .replace(
            "json = '{\"numeral\": {{number}}}'",
            "form = 'numeral={{number}}'",
        )
        .replace(", \"slow\": true}'", "&slow=1'")
        .replace(", \"fails_once\": true}'", "&fails_once=1'")
        .replace("{{number}}}'", "{{number}}'")
        + "key_in = \"form\"\nkey_name = \"token\"\n";
    let only = "replay_equal reuse_body key_required key_twice racers lost_reply cut_request";
    let only: Vec<String> = only.split(' ').map(str::to_owned).collect();
    let report = report_of(Config::from_toml(&form).unwrap(), "none", "form", &only).await;
    let holds = report.names(|grade| grade == Grade::Holds);
    assert_eq!(holds.len(), only.len(), "{}", report.table());
}

#[tokio::test]
async fn a_document_that_says_another_lifetime_is_found() {
    let config = CONFIG.replace("\" = 86400", "\" = 3600");
    let config = Config::from_toml(&config).unwrap();
    let report = report_of(config, "none", "own", &["policy".to_owned()]).await;
    let seen = &report.findings[0].seen;
    assert!(
        seen.contains("it says 86400, and 3600 is promised"),
        "{seen}"
    );
}

#[tokio::test]
async fn a_claim_that_is_taken_for_an_outcome_is_found_where_the_work_failed() {
    let report = report_on("claimed-is-done").await;
    let found = report
        .findings
        .iter()
        .find(|one| one.check.name == "server_error");
    let found = found.unwrap();
    assert_eq!(found.outcome, Grade::Unsafe, "{}", report.table());
    assert_eq!(found.seen, "0 effects, and 1 is right", "{found:?}");
}

#[tokio::test]
async fn a_reply_that_is_stored_before_the_effect_is_found_by_lost_replies() {
    let report = report_on("replay-before-commit").await;
    let found = report
        .findings
        .iter()
        .find(|one| one.check.name == "lost_reply");
    let found = found.unwrap();
    assert_eq!(found.outcome, Grade::Unsafe, "{}", report.table());
    assert_eq!(found.seen, "0 effects, and 1 is right", "{found:?}");
}

#[tokio::test]
async fn a_lease_that_ends_just_before_its_work_is_found() {
    let report = report_on("lease-as-long-as-work").await;
    let found = report.names(Grade::is_violation);
    let is_found = found == ["lease"] || found == ["in_flight"];
    assert!(is_found, "{}", report.table());
}

#[test]
fn the_program_says_in_its_exit_code_what_it_found() {
    let server = Wrong::start("no-fingerprint", "127.0.0.1:0");
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/wrong/api.toml");
    let file = format!("conform-{}", server.process.id());
    let junit = std::env::temp_dir().join(&file).with_extension("xml");
    let html = junit.with_extension("html");
    let conform = |url: &str, arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_charge-once-conform"));
        program.args([url, "--config", config]).args(arguments);
        let output = program.output().unwrap();
        let [printed, error] =
            [output.stdout, output.stderr].map(|one| String::from_utf8(one).unwrap());
        (output.status.code(), printed, error)
    };
    let (code, table, _) = conform(&server.url, &["--only", "key_required"]);
    assert_eq!(code, Some(0), "{table}");

    let [junit_path, html_path] = [&junit, &html].map(|path| path.to_str().unwrap());
    let options = [
        "--only",
        "reuse_body",
        "--json",
        "--junit",
        junit_path,
        "--html",
        html_path,
    ];
    let (code, json, _) = conform(&server.url, &options);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(1), "{json}");
    assert_eq!(report["findings"][0]["outcome"], "unsafe", "{json}");
    let xml = std::fs::read_to_string(&junit).unwrap();
    assert!(xml.contains(r#"failures="1""#), "{xml}");
    let page = std::fs::read_to_string(&html).unwrap();
    let found = "<section class=\"unsafe\">\n<h2><code>reuse_body</code> UNSAFE</h2>";
    assert!(page.contains(found), "{page}");
    for path in [junit, html] {
        std::fs::remove_file(path).unwrap();
    }

    // Before the first request: a service that is never asked sees no connection.
    let unasked = TcpListener::bind("127.0.0.1:0").unwrap();
    unasked.set_nonblocking(true).unwrap();
    let url = format!("http://{}", unasked.local_addr().unwrap());
    for option in ["--html", "--junit"] {
        let (code, _, error) = conform(&url, &[option, "/no/such/folder/report"]);
        assert_eq!(code, Some(2), "{error}");
        assert!(
            error.contains("/no/such/folder/report: No such file"),
            "{error}"
        );
        let asked = unasked.accept().map_err(|error| error.kind());
        assert_eq!(asked.unwrap_err(), ErrorKind::WouldBlock);
    }

    let elsewhere = format!("{}/elsewhere", server.url);
    for (url, arguments, complaint) in [
        ("http://192.0.2.1", &[][..], "--i-own-this"),
        (&server.url, &["--only", "races"], "there is no check races"),
        (&elsewhere, &[], "[effect] does not work"),
    ] {
        let (code, _, error) = conform(url, arguments);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(complaint), "{error}");
    }
}

/// Under load at random moments, nothing is to be seen: only a crash right after an effect shows
/// it, and only a retry after the lease of the dead process.
#[tokio::test]
async fn work_that_is_repeated_after_a_crash_is_found_by_a_crash_right_after_the_effect() {
    let asked = async |kind: &str| {
        let server = Wrong::start(kind, "127.0.0.1:0");
        let kill = format!("curl --fail --silent --request POST {}/crash", server.url);
        let service = Service {
            url: Url::parse(&server.url).unwrap(),
            replicas: Vec::new(),
            crash: Some(Crash {
                kill,
                start: "true".to_owned(),
            }),
        };
        let only = ["crash".to_owned()];
        let report = run(config(), service, &only, |_, _, _| {}).await.unwrap();
        report.findings.into_iter().next().unwrap()
    };
    let right = asked("none").await;
    assert_eq!(right.outcome, Grade::Holds, "{right:?}");
    let wrong = asked("freed-after-crash").await;
    assert_eq!(wrong.outcome, Grade::Unsafe, "{wrong:?}");
    assert_eq!(wrong.seen, "2 effects, and 1 is right", "{wrong:?}");
}

/// It is right in all else, and keeps its keys in memory.
#[tokio::test]
async fn a_memory_that_a_crash_empties_is_found() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let pid = std::env::temp_dir().join(format!("conform-wrong-{}.pid", address.replace(':', "-")));
    let (program, pid_file) = (program(), pid.display());
    // The shell goes on when the server listens.
    let start = format!(
        "{{ {} none {address} & echo $! >{pid_file}; }} | head -n 1",
        program.display()
    );
    let kill = format!("kill -9 $(cat {pid_file})");
    let shell = |command: &str| Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(shell(&start).success());
    let service = Service {
        url: Url::parse(&format!("http://{address}")).unwrap(),
        replicas: Vec::new(),
        crash: Some(Crash {
            kill: kill.clone(),
            start,
        }),
    };
    let only = ["crash".to_owned()];
    let report = run(config(), service, &only, |_, _, _| {}).await;
    shell(&kill);
    let _ = std::fs::remove_file(pid);
    let report = report.unwrap();
    let violated = report.names(Grade::is_violation);
    assert_eq!(violated, ["crash"], "{}", report.table());
    let mend = report.findings.first().and_then(|crash| crash.mend);
    let mend = mend.map(|mend| mend.words.as_str()).unwrap_or_default();
    assert!(
        mend.contains("in the database of the effects"),
        "{}",
        report.table()
    );
}
