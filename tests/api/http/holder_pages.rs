//! The page on which a card's holder authenticates: its token opens it, and the first answer
//! decides.

use std::io::{Read, Seek};

use futures_util::future::join_all;
use tempfile::tempfile;

use crate::support::{
    holder_pages::{browse, fifty_answers, open, send},
    prelude::*,
};

/// A setup intent whose holder must authenticate.
async fn waiting(client: &Client, return_url: Option<&str>) -> Answer {
    let mut body = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "payment_method_types": ["card"],
    });
    if let Some(return_url) = return_url {
        body["return_url"] = return_url.into();
    }
    let waiting = client.post_new("/setup_intents", &body).await;
    assert_eq!(waiting.status, 201, "{}", waiting.json());
    waiting
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[tokio::test]
async fn the_page_says_what_is_asked_for_and_runs_nothing() {
    let server = TestServer::start().await;
    let setup = waiting(&server.client, Some("https://shop.example/done")).await;
    let url = page_of(&setup);
    let own = format!("http://{}/authenticate/acct_", server.client.address);
    assert!(url.starts_with(&own), "{url}");
    let page = open(&url).await;
    assert_eq!(page.status, 200);
    let html = text(&page);
    for part in [
        "<h1>Authenticate a card</h1>",
        "<strong>shop.example</strong>",
        "visa ending in 3220",
        "<form method=\"post\">",
        "value=\"complete\"",
        "value=\"fail\"",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let secret = setup.json()["client_secret"].as_str().unwrap().to_owned();
    // The name of the account is its operator's.
    for part in ["<script", "action=", "https://", ">dev<", &secret] {
        assert!(!html.contains(part), "{part}: {html}");
    }
    let policy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                  frame-ancestors 'none'; form-action 'self' https: http:";
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", policy),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let head = Answer::of(browse(Method::HEAD, &url)).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn the_first_answer_decides_and_later_ones_land_at_the_same_place() {
    // One reads what was answered from memory, the other from the database.
    for variables in [&[][..], &[FORGETFUL]] {
        let server = TestServer::start_with(variables).await;
        for (first, status) in [("complete", "succeeded"), ("fail", "failed")] {
            let setup = waiting(&server.client, Some("https://shop.example/done?cart=1#top")).await;
            let (url, id) = (page_of(&setup), setup.id());
            let secret = setup.json()["client_secret"].as_str().unwrap().to_owned();
            let expected = format!(
                "https://shop.example/done?cart=1&setup_intent={id}\
                 &setup_intent_client_secret={secret}&redirect_status={status}#top"
            );
            for outcome in [first, "complete", "fail"] {
                let landed = press(&url, outcome).await;
                assert_eq!(landed.status, 303);
                assert_eq!(landed.header("location"), Some(&*expected));
                assert_eq!(landed.header("cache-control"), Some("no-store"));
            }
            let answered = open(&url).await;
            assert_eq!(answered.status, 410);
            let link = format!("<a href=\"{}\">Back", expected.replace('&', "&amp;"));
            assert!(text(&answered).contains(&link), "{}", text(&answered));
        }
        assert_eq!(server.database.count(DECIDED).await, 2);
    }
}

/// Intents whose holders have answered.
const DECIDED: &str = "SELECT count(*) FROM events
     WHERE type IN ('setup_intent.succeeded', 'setup_intent.setup_failed')";

#[tokio::test]
async fn without_an_address_to_return_to_the_holder_may_close_the_window() {
    let server = TestServer::start_with(&[("RETURN_URL_SCHEMES", "shop-app")]).await;
    let setup = waiting(&server.client, None).await;
    let app = waiting(&server.client, Some("shop-app://done")).await;
    for (intent, targets) in [(&setup, "'self'"), (&app, "'self' shop-app:")] {
        let page = open(&page_of(intent)).await;
        let policy = page.header("content-security-policy").unwrap();
        let expected = format!("; form-action {targets}");
        assert!(policy.ends_with(&expected), "{policy}");
    }
    let landed = press(&page_of(&setup), "complete").await;
    assert_eq!(landed.status, 200);
    assert_eq!(landed.header("location"), None);
    assert!(text(&landed).contains("You may close this window."));
}

#[tokio::test]
async fn without_an_address_to_return_to_the_holder_is_told_how_it_ended() {
    let server = TestServer::start().await;
    let pay = async |source: &str| {
        let body = json!({
            "amount": 2000, "currency": "usd", "payment_method": source, "confirm": true,
            "payment_method_types": ["card"],
        });
        server.client.post_new("/payment_intents", &body).await
    };
    let card = "pm_card_authenticationRequired";
    let declined = "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds";
    let setup = waiting(&server.client, None).await;
    for (asked, outcome, told) in [
        (setup, "fail", "The card was not set up"),
        (pay(card).await, "fail", "The payment was not made"),
        (pay(declined).await, "complete", "The payment was not made"),
        (pay(card).await, "complete", "Thank you"),
    ] {
        let url = page_of(&asked);
        assert!(text(&open(&url).await).contains("<strong>the shop that sent you here</strong>"));
        // The first answer decides, and later ones are told the same.
        for outcome in [outcome, "complete", "fail"] {
            let page = text(&press(&url, outcome).await);
            assert!(page.contains(&format!("<h1>{told}</h1>")), "{page}");
            let goes_back = page.contains("Go back to the shop");
            assert_eq!(goes_back, told != "Thank you", "{page}");
        }
    }
}

#[tokio::test]
async fn fifty_answers_at_once_through_two_replicas_decide_once() {
    let server = TestServer::start().await;
    let replica = ServerProcess::start(&server.database, &[]);
    let setup = waiting(&server.client, Some("https://shop.example/done")).await;
    let url = page_of(&setup);
    let own = server.client.address.to_string();
    let elsewhere = url.replace(&own, &replica.client.address.to_string());
    let answers = fifty_answers([url, elsewhere]).await;
    let places = answers
        .iter()
        .map(|landed| landed.header("location").unwrap());
    let places: BTreeSet<_> = places.collect();
    assert_eq!(places.len(), 1, "{places:?}");
    assert_eq!(server.database.count(DECIDED).await, 1);
}

#[tokio::test]
async fn no_other_token_opens_a_page_and_nothing_is_stored_for_a_guess() {
    let server = TestServer::start().await;
    let url = page_of(&waiting(&server.client, None).await);
    let (page, token) = url.rsplit_once('/').unwrap();
    let other = page_of(&waiting(&server.client, None).await);
    let other = other.rsplit('/').next().unwrap();
    let records = server.database.records().await;
    let others = [
        format!("{page}/{other}"),
        format!("{page}/{}", &token[1..]),
        format!("{page}/{token}x"),
        format!("{page}/%00"),
        page.replace("seti_", "pi_") + "/" + token,
        page.replace("acct_", "acct_x") + "/" + token,
    ];
    for guess in &others {
        for answer in [open(guess).await, press(guess, "complete").await] {
            assert_eq!(answer.status, 410, "{guess}");
            assert!(text(&answer).contains("no longer needed"), "{guess}");
        }
    }
    assert_eq!(server.database.records().await, records);
    assert_eq!(open(&url).await.status, 200);
}

#[tokio::test]
async fn only_a_small_form_with_one_of_two_words_is_an_answer() {
    let server = TestServer::start().await;
    let url = page_of(&waiting(&server.client, None).await);
    let large = format!("outcome={}", "x".repeat(2000));
    for (form, status, code) in [
        ("", 400, "parameter_missing"),
        ("outcome=", 400, "parameter_missing"),
        ("outcome=yes", 400, "parameter_invalid"),
        ("outcome=complete&outcome=fail", 400, "body_invalid"),
        ("outcome=complete&more=1", 400, "parameter_unknown"),
        (&large, 413, "body_too_large"),
    ] {
        let refused = send(&url, form).await;
        assert_eq!(error(&refused), (status, code.into()), "{form}");
    }
    let typed = browse(Method::POST, &url).header("content-type", "text/plain");
    let typed = Answer::of(typed.body("outcome=complete")).await;
    assert_eq!(typed.code(), "unsupported_media_type");
    let other = Answer::of(browse(Method::DELETE, &url)).await;
    assert_eq!(other.code(), "method_not_allowed");
    assert_eq!(other.header("allow"), Some("GET, HEAD, POST"));
    assert_eq!(press(&url, "complete").await.status, 200);
}

#[tokio::test]
async fn a_right_token_opens_its_page_however_much_its_address_guesses() {
    let server = TestServer::start().await;
    let url = page_of(&waiting(&server.client, None).await);
    let guess = format!("{url}x");
    let (page, _) = url.split_once("acct_").unwrap();
    // Nothing has to be looked up for this one.
    let nowhere = format!("{page}nobody/nothing/none");
    eventually("a guess is limited", || async {
        let guesses = (0..30).map(|number| open([&guess, &nowhere][number % 2]));
        let (answers, own) = tokio::join!(join_all(guesses), open(&url));
        assert_eq!(own.status, 200);
        assert_eq!(open(&url).await.status, 200);
        let limited = answers.iter().find(|answer| answer.status == 429);
        limited.is_some_and(|answer| answer.header("retry-after") == Some("1"))
    })
    .await;
    assert_eq!(press(&url, "complete").await.status, 200);
    // What was answered is no guess either.
    assert_eq!(press(&url, "complete").await.status, 200);
}

#[tokio::test]
async fn a_guess_claims_nothing() {
    let server = TestServer::start().await;
    let url = page_of(&waiting(&server.client, None).await);
    // It lets what reads pass, and what claims a key wait.
    let lock = "LOCK TABLE idempotency_keys IN SHARE MODE";
    let lock = server.database.holding(lock).await;
    assert_eq!(press(&format!("{url}x"), "complete").await.status, 410);
    lock.rollback().await.unwrap();
}

/// What the console shows of requests and keys, where it holds a text.
const HELD: &str = "
    SELECT (SELECT count(*) FROM request_log AS row WHERE row::text LIKE '%' || $1 || '%')
         + (SELECT count(*) FROM idempotency_keys
             WHERE concat(key, path, label) LIKE '%' || $1 || '%')";

#[tokio::test]
async fn neither_the_token_nor_the_secret_is_logged_or_in_the_console() {
    let database = TestDatabase::create().await;
    let mut log = tempfile().unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_charge-once"));
    let log_all = [("RUST_LOG", "trace"), ("LOG_FORMAT", "json")];
    let variables = [&log_all[..], &[("CONSOLE", "true")]].concat();
    let file = log.try_clone().unwrap();
    let server = ServerProcess::start_by(program, file, &database, &variables);
    let setup = waiting(&server.client, Some("https://shop.example/done")).await;
    let url = page_of(&setup);
    let token = url.rsplit('/').next().unwrap();
    let secret = setup.json()["client_secret"].as_str().unwrap().to_owned();
    let path = format!("/setup_intents/{}?client_secret={secret}", setup.id());
    assert_eq!(server.client.get(&path).await.status, 200);
    assert_eq!(open(&url).await.status, 200);
    assert_eq!(press(&url, "complete").await.status, 303);
    assert_eq!(press(&url, "complete").await.status, 303);
    let logged = "SELECT count(*) FROM request_log WHERE route = '/setup_intents/{id}'";
    database.comes_to(logged, 1).await;
    for hidden in [token, &secret] {
        let held = sqlx::query_scalar::<_, i64>(HELD).bind(hidden);
        let held = held.fetch_one(&database.pool).await.unwrap();
        assert_eq!(held, 0, "{hidden}");
    }
    drop(server);
    let mut told = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut told).unwrap();
    assert!(told.contains("/authenticate/{account}/{intent}/{token}"));
    for hidden in [token, &secret] {
        assert!(!told.contains(hidden), "{hidden} is in the log");
    }
}
