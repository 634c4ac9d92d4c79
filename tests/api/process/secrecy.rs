//! Nothing that a client sends is in a log line, a metric or a span, with everything on and at its
//! most talkative.

use super::traces::assert_documented;
use crate::support::{collector::Collector, prelude::*};

/// What everything that the test sends holds, wherever there can be text. It is nowhere in the
/// program.
const CANARY: &str = "canary";

/// A test card, and a card that is refused.
const CARDS: [&str; 2] = ["5555555555554444", "4111111111111111"];

const KEY: &str = "canary-idempotency-key";

/// Where something is written for people and machines that no client is.
struct Surfaces(BTreeMap<&'static str, Vec<u8>>);

impl Surfaces {
    /// Whatever an observer could read of `secret`.
    fn hold(&self, secret: &str) -> Vec<&'static str> {
        let secret = secret.to_ascii_lowercase();
        let is_in = |bytes: &[u8]| {
            let bytes = bytes.to_ascii_lowercase();
            bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        };
        let holding = self.0.iter().filter(|(_, bytes)| is_in(bytes));
        holding.map(|(surface, _)| *surface).collect()
    }

    fn assert_have_no(&self, secret: &str) {
        let surfaces = self.hold(secret);
        for surface in &surfaces {
            let text = String::from_utf8_lossy(&self.0[surface]).to_lowercase();
            let at = text.find(&secret.to_lowercase()).unwrap_or_default();
            let around = text.chars().skip(at.saturating_sub(300)).take(600);
            let around: String = around.collect();
            eprintln!("{secret} is in {surface}: …{around}…");
        }
        assert!(surfaces.is_empty(), "{secret} is in {surfaces:?}");
    }
}

struct Watched {
    collector: Collector,
    database: TestDatabase,
    log: tempfile::NamedTempFile,
    server: ServerProcess,
    scraper: Client,
}

impl Watched {
    async fn start(more: &[(&str, &str)]) -> Self {
        let collector = Collector::start().await;
        let database = TestDatabase::create().await;
        let log = tempfile::NamedTempFile::new().unwrap();
        let credentials = "api-key=canary-of-the-collector";
        let everything = [
            collector.variable(),
            ("RUST_LOG", "trace"),
            ("LOG_FORMAT", "json"),
            ("CONSOLE", "true"),
            ("OTEL_EXPORTER_OTLP_HEADERS", credentials),
        ];
        let variables = quick_but(&[more, &everything].concat());
        let file = log.reopen().unwrap();
        let (server, scraper) = ServerProcess::start_with_metrics(file, &database, &variables);
        Self {
            server,
            collector,
            database,
            log,
            scraper,
        }
    }

    async fn told(mut self) -> Surfaces {
        let metrics = Scrape::of(&self.scraper).await.text;
        stops(&mut self.server.child, Signal::SIGTERM).await;
        let log = std::fs::read(self.log.path()).unwrap();
        // It did tell.
        let lines = String::from_utf8_lossy(&log);
        let answered = lines.lines().filter(|line| line.contains("answered"));
        let answered = answered.count();
        assert!(answered > 30, "{answered} lines");
        assert!(lines.contains("sqlx"), "statements are logged too");
        assert!(metrics.contains("charge_once_http_requests_total"));
        let spans = self.collector.spans();
        assert!(spans.len() > answered, "{} spans", spans.len());
        assert_documented(&spans);
        Surfaces(BTreeMap::from([
            ("the log", log),
            ("the metrics", metrics.into_bytes()),
            ("the spans", self.collector.everything()),
        ]))
    }
}

fn decorated(client: &Client, method: Method, path: &str) -> RequestBuilder {
    let request = client.request(method, path);
    request
        .header("user-agent", "canary-agent")
        .header("referer", "https://canary.example/canary")
        .header("cookie", "canary=canary")
        .header("x-canary", "canary")
        .header("forwarded", "for=canary")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("tracestate", "vendor=canary")
        .header("baggage", "user=canary")
}

async fn post(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    let request = decorated(client, Method::POST, path)
        .header("idempotency-key", key)
        .header("idempotency-workflow", "canary-workflow");
    Answer::of(request.json(body)).await
}

async fn posted(client: &Client, path: &str, key: &str, body: &Value, status: u16) -> Answer {
    let answer = post(client, path, key, body).await;
    assert_eq!(answer.status, status, "{path}: {answer:?}");
    answer
}

/// A charge with text wherever there can be some.
fn telling_charge() -> Value {
    let mut body = charge();
    body["description"] = "canary description".into();
    body["customer"] = "canary-customer".into();
    body["statement_descriptor"] = "CANARY SHOP".into();
    body["receipt_email"] = "canary@canary.example".into();
    body["metadata"] = json!({"canary-name": "canary value"});
    body["source"] = json!({
        "object": "card", "number": CARDS[0], "exp_month": 12, "exp_year": 2034, "cvc": "123",
    });
    body
}

async fn send_everything(watched: &Watched) {
    let client = &watched.server.client;
    let body = telling_charge();
    let id = posted(client, "/charges", KEY, &body, 201).await.id();
    assert!(post(client, "/charges", KEY, &body).await.is_replay());
    posted(client, "/charges", KEY, &charge(), 422).await;
    let sources = ["tok_canary", "tok_chargeDeclined", CARDS[1]];
    for (number, source) in sources.into_iter().enumerate() {
        let mut body = telling_charge();
        body["source"] = source.into();
        let key = format!("canary-source-{number}");
        let refused = post(client, "/charges", &key, &body).await;
        assert!(refused.status.is_client_error());
    }
    let mut with_card = telling_charge();
    with_card["description"] = format!("canary {}", CARDS[1]).into();
    let forbidden = post(client, "/charges", "canary-card", &with_card).await;
    assert_eq!(forbidden.code(), "card_number_forbidden");
    let unknown = json!({"amount": 1, "currency": "canary", "canary_parameter": "canary"});
    post(client, "/charges", "canary-unknown", &unknown).await;
    let malformed = "{\"description\": \"canary\", \"amount\": ";
    for (key, media_type, body) in [
        ("canary-malformed", JSON, malformed),
        ("canary-duplicate", JSON, "{\"canary\": 1, \"canary\": 2}"),
        ("canary-type", "text/canary", "canary"),
        ("canary,bad", JSON, "{}"),
        (CARDS[1], JSON, "{}"),
        ("canary-form", FORM, "metadata[canary=canary&%ff=canary"),
    ] {
        let answer = client.post_raw("/charges", key, media_type, body.as_bytes());
        assert!(answer.await.status.is_client_error(), "{key}");
    }
    send_a_customer(client).await;
    let refund = json!({"charge": id, "amount": 100, "metadata": {"canary": "canary"}});
    posted(client, "/refunds", "canary-refund", &refund, 201).await;
    let order = json!({
        "currency": "usd", "customer": "canary", "client_order_id": "canary-order",
        "items": [{"sku": "canary", "description": "canary", "quantity": 1, "unit_amount": 500}],
    });
    posted(client, "/orders", "canary-order", &order, 201).await;
    stock(client, "canary-mug", 5).await;
    let mut bought = checkout();
    bought["items"][0]["sku"] = "canary-mug".into();
    bought["metadata"] = json!({"canary": "canary"});
    posted(client, "/checkouts", "canary-checkout", &bought, 201).await;
    let update = json!({"description": "canary"});
    let path = format!("/v1/charges/{id}");
    posted(client, &path, "canary-update", &update, 200).await;
    for path in [
        "/charges?customer=canary&limit=3",
        "/charges?canary=canary",
        "/charges/ch_canary",
        "/canary/canary?canary",
        &format!("/idempotency-keys/{KEY}"),
        &format!("/idempotency-keys?key={KEY}"),
        &format!("/charges/{id}"),
        "/console/canary?canary",
    ] {
        Answer::of(decorated(client, Method::GET, path)).await;
    }
    let stranger = client.with_api_key("sk_test_canary_of_a_stranger");
    posted(&stranger, "/charges", KEY, &body, 401).await;
    let head =
        "CANARY /canary?canary HTTP/1.1\r\nHost: canary.localhost\r\nConnection: close\r\n\r\n";
    send_raw(client, head.as_bytes()).await;
    send_raw(client, b"GET /canary canary\r\ncanary\r\n\r\n").await;
}

/// A customer with text wherever there can be some, and a card that is theirs.
async fn send_a_customer(client: &Client) {
    let address = json!({
        "city": "canary", "country": "CA", "line1": "canary", "line2": "canary",
        "postal_code": "canary", "state": "canary",
    });
    let body = json!({
        "address": address, "description": "canary", "email": "canary@canary.example",
        "metadata": {"canary": "canary"}, "name": "canary", "phone": "canary",
        "preferred_locales": ["canary"],
        "shipping": {"address": address, "name": "canary", "phone": "canary"},
    });
    let customer = posted(client, "/customers", "canary-customer", &body, 201).await;
    let card = json!({"number": CARDS[0], "exp_month": 12, "exp_year": 2034, "cvc": "123"});
    let billing = json!({
        "address": address, "email": "canary@canary.example", "name": "canary", "phone": "canary",
    });
    let body = json!({"type": "card", "card": card, "billing_details": billing});
    let method = posted(client, "/payment_methods", "canary-method", &body, 201).await;
    let attach = format!("/payment_methods/{}/attach", method.id());
    let attached = json!({"customer": customer.id()});
    posted(client, &attach, "canary-attach", &attached, 200).await;
    let of_customer = format!("/customers/{}", customer.id());
    for (method, path) in [
        (Method::GET, "/customers?email=canary@canary.example"),
        (Method::DELETE, &of_customer),
    ] {
        let answer = Answer::of(decorated(client, method, path)).await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

/// Requests whose rows the database refuses, naming them in its errors.
async fn fail_in_the_database(watched: &Watched) {
    let refuse = "ALTER TABLE charges ADD CONSTRAINT refuses_some CHECK (amount <> 4321) NOT VALID";
    watched.database.execute(refuse).await;
    let mut body = telling_charge();
    body["amount"] = 4321.into();
    let client = &watched.server.client;
    posted(client, "/charges", "canary-failed", &body, 500).await;
}

/// An endpoint that doesn't take what it is sent, and one that no name server knows.
async fn fail_to_deliver(watched: &Watched) -> String {
    let client = &watched.server.client;
    let mut receiver = Receiver::start().await;
    let url = format!("http://{}/canary?canary=canary", receiver.address);
    let endpoint = Endpoint::at(client, &url).await;
    Endpoint::at(client, "http://canary.invalid/canary").await;
    post(client, "/charges", "canary-event", &telling_charge()).await;
    for status in [500, 302, 200] {
        let elsewhere = "Location: http://canary/\r\n";
        receiver.next().await.answer_with(status, elsewhere).await;
    }
    endpoint.secret
}

/// Fails in all other ways, stops, and has told nothing of what was sent.
async fn tells_nothing(watched: Watched) {
    fail_in_the_database(&watched).await;
    let secret = fail_to_deliver(&watched).await;
    let told = watched.told().await;
    for secret in [CANARY, CARDS[0], CARDS[1], API_KEY, &secret] {
        told.assert_have_no(secret);
    }
}

#[tokio::test]
async fn nothing_that_a_client_sends_is_told_to_anyone_else() {
    let watched = Watched::start(&[("FAULTS", "true")]).await;
    send_everything(&watched).await;
    let client = &watched.server.client;
    for fault in ["canary", "500", "503", "request_lost", "reply_lost"] {
        let key = format!("canary-fault-{fault}");
        let body = telling_charge();
        client.post_with_fault(fault, "/charges", &key, &body).await;
    }
    tells_nothing(watched).await;
}

#[tokio::test]
async fn nothing_that_a_client_sends_is_told_to_anyone_else_while_a_processor_is_asked() {
    let processor = Processor::start().await;
    let url = format!("http://canary:canary@{}", processor.address);
    let watched = Watched::start(&[("PROCESSOR_URL", &url), ("PROCESSOR_TIMEOUT", "3s")]).await;
    send_everything(&watched).await;
    let client = &watched.server.client;
    for fault in ["drop_before", "drop_after", "error_after", "refuse"] {
        processor.set_fault(json!({"fault": fault})).await;
        let key = format!("canary-processor-{fault}");
        post(client, "/charges", &key, &telling_charge()).await;
    }
    processor.reset_faults().await;
    tells_nothing(watched).await;
}
