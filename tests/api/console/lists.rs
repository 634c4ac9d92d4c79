//! Lists: what a line says of its object, where it leads, and whose account it is.

use super::{actions::play, *};
use crate::support::intents::paid_with;

/// The lines of the only list on a page.
fn lines(page: &str) -> Vec<&str> {
    let list = page.between("<table class=\"lines\">", "</table>");
    list.split("<tr>").skip(2).collect()
}

#[tokio::test]
async fn a_line_says_who_was_to_pay_what_with_which_card_for_what_and_why_not() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let body = json!({
        "amount": 123_450, "currency": "usd", "source": "tok_chargeDeclined",
        "customer": "Zoë & Co", "description": "Two mugs",
    });
    assert_eq!(client.post("/charges", "key-1", &body).await.status, 402);
    let list = client.get("/charges").await.json();
    let id = list["data"][0]["id"].as_str().unwrap();
    let plain = visit.page("/console/charges").await;
    log_holds(&server.database, 2).await;
    let leads = [
        (
            plain,
            format!("<td><a class=\"mono\" href=\"/console/charges/{id}\">{id}</a></td>"),
        ),
        (
            visit.page("/console/requests").await,
            "<td><a class=\"mono\" href=\"/console/keys/key-1\">key-1</a></td>".to_owned(),
        ),
    ];
    for (page, link) in leads {
        let line = lines(&page)[0];
        // On a phone, the first cell is the one that is seen; the whole line leads where it does.
        assert!(line.starts_with(&link), "{line}");
        line.must_have(&[
            "<td class=\"number\">$1,234.50</td>",
            "visa •••• 0002",
            "Zoë &amp; Co",
            "Two mugs",
            "card_declined",
            " s ago</small>",
        ]);
    }
}

#[tokio::test]
async fn numbers_have_the_separators_of_the_reader_s_language() {
    let (server, visit) = visited().await;
    let charge = json!({"amount": 12_345_678, "currency": "cad", "source": "tok_visa"});
    let id = server.client.post("/charges", "key-1", &charge).await.id();
    stock(&server.client, "mug", 12_345).await;
    log_holds(&server.database, 2).await;
    let english = ("CA$123,456.78", "12,345", r"\.");
    let languages: [(Option<&[u8]>, _); 7] = [
        (None, english),
        (Some(b"en-GB, en;q=0.9"), english),
        (Some(b"de-DE, en;q=0.5"), ("CA$123.456,78", "12.345", ",")),
        (Some(b"fr"), ("CA$123\u{202f}456,78", "12\u{202f}345", ",")),
        (Some(b"de-CH, de;q=0.9"), ("CA$123'456.78", "12'345", r"\.")),
        (Some(b"tlh"), english),
        (Some(b";q=,\xff"), english),
    ];
    for (language, (money, count, decimals)) in languages {
        let page = async |path: &str| {
            let mut request = visit.request(Method::GET, path);
            if let Some(language) = language {
                request = request.header("accept-language", language);
            }
            text(&Answer::of(request).await.body)
        };
        for path in ["/console/charges", &format!("/console/charges/{id}")] {
            page(path).await.must_have(&[money]);
        }
        page("/console/inventory").await.must_have(&[count]);
        let took = format!("<td class=\"number\">[0-9]+{decimals}[0-9]</td>");
        let took = Regex::new(&took).unwrap();
        for path in ["/console/requests", "/console/live", "/console/keys/key-1"] {
            let page = page(path).await;
            assert!(took.is_match(&page), "{language:?} {path}: {page}");
        }
    }
}

#[tokio::test]
async fn each_list_shows_the_card_and_the_customer_wherever_they_are_and_no_empty_column() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let held = json!({"amount": 2000, "currency": "jpy", "source": "tok_amex", "capture": false});
    let held = client.post("/charges", "key-3", &held).await.id();
    let page = visit.page("/console/charges").await;
    lines(&page)[0].must_have(&[&held, "¥2,000", ">authorized<", "amex •••• "]);
    page.must_lack(&[">Customer<", ">Description<", ">Error<"]);
    let ann = json!({"email": "ann@shop.test", "name": "Ann"});
    let ann = client.post("/customers", "key-1", &ann).await.id();
    let declined = json!({"customer": ann, "description": "Two mugs"});
    let declined = paid_with(client, "pm_card_chargeDeclined", declined).await;
    assert_eq!(declined.status, 402, "{declined:?}");
    let setup = json!({
        "customer": ann, "payment_method": "pm_card_mastercard", "payment_method_types": ["card"],
    });
    client.post("/setup_intents", "key-2", &setup).await;
    let mut whole = charge();
    whole["customer"] = "bob".into();
    let whole = client.post("/charges", "key-4", &whole).await;
    let refund = json!({"charge": whole.id(), "amount": 500});
    client.post("/refunds", "key-5", &refund).await;
    stock(client, "mug", 2).await;
    client.post("/checkouts", "key-6", &checkout()).await;
    let ann = format!("href=\"/console/customers/{ann}\"");
    for (list, parts) in [
        ("customers", &["ann@shop.test", ">Ann<"][..]),
        (
            "payment_intents",
            &[&ann, "visa •••• 0002", "card_declined", "Two mugs"],
        ),
        ("setup_intents", &[&ann, "mastercard •••• 4444"]),
        ("charges", &[">partly refunded<", "visa •••• 4242"]),
        ("refunds", &["visa •••• 4242", "bob", "$5.00", &whole.id()]),
        ("checkouts", &["visa •••• 4242", "$24.00"]),
        (
            "events",
            &["checkout.completed", "$24.00", "/console/keys/key-6"],
        ),
        (
            "inventory",
            &[
                "href=\"/console/inventory/mug\"",
                "<td class=\"number\">0</td>",
            ],
        ),
    ] {
        let page = visit.page(&format!("/console/{list}")).await;
        let found = lines(&page);
        let line = found
            .iter()
            .find(|line| parts.iter().all(|part| line.contains(part)));
        assert!(line.is_some(), "{list}: {parts:?} in {found:#?}");
    }
}

#[tokio::test]
async fn every_page_names_its_account_and_says_that_its_data_is_for_tests() {
    let (server, visit) = visited().await;
    let alice = api_key_of(&server.database, "alice <3").await;
    let alice = Visit::begin_with(&server.client, &alice).await;
    server.client.charge("key-1").await;
    for path in [
        "/console/requests",
        "/console/charges",
        "/console/keys/key-1",
        "/console/playground",
    ] {
        let head = visit.page(path).await;
        let head = head.between("<header>", "</header>");
        head.must_have(&["title=\"dev\">dev</span>", "test data"]);
    }
    let head = alice.page("/console/refunds").await;
    let head = head.between("<header>", "</header>");
    head.must_have(&[">alice &lt;3</span>", "test data"]);
    // Before a person has signed in, no account is named.
    let stranger = Visit::signed_out(&server.client);
    let page = stranger.page("/console/sign-in").await;
    page.must_lack(&["test data", ">dev<"]);
}

#[tokio::test]
async fn what_is_copied_is_marked_for_the_script_and_is_there_without_it() {
    let (server, visit) = visited().await;
    let charge = server.client.charge("key-1").await.id();
    let page = visit.object("charges", &charge).await;
    page.must_have(&[&format!("<code data-copy>{charge}</code>")]);
    let page = visit.object("keys", "key-1").await;
    page.must_have(&["<code data-copy>key-1</code>"]);
    let page = play(&visit, "send", "").await;
    page.must_have(&["<pre data-copy role=\"group\""]);
}
