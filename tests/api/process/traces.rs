//! Traces: what a collector of OpenTelemetry is sent, and what happens without one.

use std::net::TcpListener;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::support::{
    collector::{Collector, Exported},
    prelude::*,
};

/// What a caller says of its trace, and its parts.
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// New charges and orders share transactions, whatever the other tests run with.
const BATCHED: (&str, &str) = ("BATCH", "on");

async fn charge_traced(client: &Client, key: &str, traceparent: &str) -> Answer {
    let request = client.request(Method::POST, "/charges");
    let request = request.header("traceparent", traceparent);
    Answer::of(request.header("idempotency-key", key).json(&charge())).await
}

async fn span_of(collector: &Collector, answer: &Answer) -> Exported {
    let id = answer.header("request-id").unwrap();
    collector.request(id).await
}

async fn exporting(variables: &[(&str, &str)]) -> (Collector, TestDatabase, ServerProcess) {
    let collector = Collector::start().await;
    let database = TestDatabase::create().await;
    let variables = [variables, &[collector.variable()]].concat();
    let server = ServerProcess::start(&database, &variables);
    (collector, database, server)
}

/// The trace of the next request that a receiver or a processor is sent, and that request.
async fn next_traced(receiver: &mut Receiver) -> (String, Received) {
    let received = receiver.next().await;
    (received.headers["traceparent"].clone(), received)
}

#[tokio::test]
async fn a_request_continues_its_caller_s_trace_with_claim_work_and_commit() {
    let attributes = "deployment.environment.name=test";
    let (collector, _database, server) = exporting(&[
        ALONE,
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=of%20the%20collector"),
        ("OTEL_RESOURCE_ATTRIBUTES", attributes),
    ])
    .await;
    let client = &server.client;
    let executed = charge_traced(client, "key-1", CALLER).await;
    let replayed = charge_traced(client, "key-1", "not a traceparent").await;
    let outage = json!({"amount": 2000, "currency": "usd", "source": "tok_outage"});
    let failed = client.post("/charges", "key-2", &outage).await;
    assert_eq!(failed.status, 503);
    client.get("/livez").await;

    let request = span_of(&collector, &executed).await;
    assert_eq!(request.name, "POST /charges");
    assert_eq!([&*request.trace, &request.parent], [TRACE, SPAN]);
    assert!(!request.failed);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/charges"),
        ("http.response.status_code", "201"),
        ("charge_once.outcome", "executed"),
    ] {
        assert_eq!(request.attribute(name), value, "{request:?}");
    }
    assert_eq!(request.attribute("charge_once.key_hash").len(), 8);
    let mut last = request.began;
    let steps = [
        ("claim", "mine"),
        ("work", "replied"),
        ("commit", "committed"),
    ];
    for (name, ended) in steps {
        let step = collector.child(&request, name).await;
        assert_eq!(step.attribute("idempotency.ended"), ended);
        assert_eq!(step.kind, SpanKind::Internal);
        assert!(last <= step.began && step.ended <= request.ended, "{name}");
        last = step.ended;
    }

    let replay = span_of(&collector, &replayed).await;
    // A malformed traceparent begins a new trace.
    assert_eq!(replay.parent, "");
    assert_ne!(replay.trace, TRACE);
    assert_eq!(replay.attribute("charge_once.outcome"), "replayed");
    let hash = "charge_once.key_hash";
    assert_eq!(replay.attribute(hash), request.attribute(hash));

    let failure = span_of(&collector, &failed).await;
    assert!(failure.failed && collector.child(&failure, "work").await.failed);
    assert_eq!(failure.attribute("error.type"), "503");
    assert_eq!(failure.attribute("charge_once.outcome"), "failed");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.events == 0), "{spans:?}");
    assert!(!spans.iter().any(|span| span.name.contains("livez")));
    assert_eq!(collector.headers()["api-key"], "of the collector");
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "charge-once");
    assert_eq!(resource["service.version"], charge_once::VERSION);
    assert_eq!(resource["deployment.environment.name"], "test");
}

#[tokio::test]
async fn a_batch_has_a_trace_of_its_own_that_links_to_its_requests_and_they_to_it() {
    let (collector, _database, server) = exporting(&[BATCHED]).await;
    let charged = charge_traced(&server.client, "key-1", CALLER).await;
    let request = span_of(&collector, &charged).await;
    let wait = collector.child(&request, "wait for batch").await;
    assert_eq!(wait.attribute("idempotency.requests"), "1");
    assert_eq!(wait.attribute("idempotency.ended"), "concluded");
    let is_batch = |span: &Exported| span.name == "batch";
    let batch = collector.has("the batch", is_batch).await;
    assert_eq!(batch.attribute("idempotency.requests"), "1");
    assert_ne!(batch.trace, request.trace);
    assert_eq!(batch.parent, "");
    assert_eq!(batch.links, [(wait.trace.clone(), wait.id.clone())]);
    assert_eq!(wait.links, [(batch.trace.clone(), batch.id.clone())]);
    for name in ["begin", "claim", "work", "commit"] {
        collector.child(&batch, name).await;
    }
}

#[tokio::test]
async fn a_duplicate_shows_how_long_it_waited_for_the_first_request() {
    // The slow card takes two seconds, and the usual limit of a statement is three.
    let (collector, _database, server) = exporting(PATIENT).await;
    let slow = json!({"amount": 2000, "currency": "usd", "source": "tok_slow"});
    let both = tokio::join!(
        server.client.post_waiting(10, "/charges", "key-1", &slow),
        server.client.post_waiting(10, "/charges", "key-1", &slow),
    );
    let duplicate = if both.0.is_replay() { both.0 } else { both.1 };
    assert!(duplicate.is_replay());
    let request = span_of(&collector, &duplicate).await;
    collector.child(&request, "wait for first request").await;
}

#[tokio::test]
async fn a_processor_s_call_is_a_span_and_the_processor_is_told_its_trace() {
    let processor = Processor::start().await;
    let url = processor.url();
    let (collector, database, server) = exporting(&[("PROCESSOR_URL", &url)]).await;
    let charged = charge_traced(&server.client, "key-1", CALLER).await;
    assert_eq!(charged.status, 201);
    let request = span_of(&collector, &charged).await;
    let begun = collector.child(&request, "wait for batch").await;
    assert_eq!(begun.attribute("idempotency.ended"), "begun");
    let call = collector.child(&request, "call").await;
    assert_eq!(call.attribute("idempotency.kind"), "processor");
    assert_eq!(call.attribute("idempotency.ended"), "answered");
    let sent = collector.child(&call, "call processor").await;
    assert_eq!(sent.kind, SpanKind::Client);
    assert_eq!(sent.attribute("http.request.method"), "PUT");
    assert_eq!(sent.attribute("http.response.status_code"), "200");
    let complete = collector.child(&request, "complete").await;
    assert_eq!(complete.attribute("idempotency.ended"), "completed");
    let completed = collector.child(&complete, "wait for batch").await;
    assert_eq!(completed.attribute("idempotency.ended"), "concluded");

    // Another one, which shows what it is sent, and answers nonsense.
    let mut shown = Receiver::start().await;
    let url = format!("http://{}", shown.address);
    let variables = [collector.variable(), ("PROCESSOR_URL", &url)];
    let server = ServerProcess::start(&database, &variables);
    let client = server.client.clone();
    let charging = tokio::spawn(async move { charge_traced(&client, "key-2", CALLER).await });
    let (traceparent, instruction) = next_traced(&mut shown).await;
    instruction.answer_with(500, "Connection: close\r\n").await;
    let failed = charging.await.unwrap();
    assert_eq!(failed.status, 503);
    let request = span_of(&collector, &failed).await;
    let call = collector.child(&request, "call").await;
    let sent = collector.child(&call, "call processor").await;
    assert_eq!(traceparent, sent.traceparent());
    assert_eq!(sent.trace, TRACE);
    assert!(request.failed && call.failed && sent.failed);
}

#[tokio::test]
async fn a_checkout_s_steps_are_in_its_trace_and_its_lines_name_it() {
    let collector = Collector::start().await;
    let database = TestDatabase::create().await;
    let talkative = [
        collector.variable(),
        ("RUST_LOG", "sqlx=debug,charge_once_idempotency=debug,info"),
        ("LOG_FORMAT", "json"),
    ];
    let (server, log) = start_with_log(&database, &talkative);
    let client = &server.client;
    stock(client, "mug", 5).await;
    let bought = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(bought.status, 201);
    let request = span_of(&collector, &bought).await;
    let call = collector.child(&request, "call").await;
    assert_eq!(call.attribute("idempotency.kind"), "checkout");
    for name in ["claim", "work", "commit"] {
        collector.child(&call, name).await;
    }
    drop(server);
    // The statements of its steps, which run in tasks of their own.
    let text = text_of(&log);
    let id = bought.header("request-id").unwrap();
    let is_insert = |line: &&str| line.contains("INSERT INTO orders");
    let insert: Vec<_> = text.lines().filter(is_insert).collect();
    assert!(!insert.is_empty());
    assert!(insert.iter().all(|line| line.contains(id)), "{insert:?}");
    // Lines show no other span that is made for traces.
    for name in ["claim", "work", "commit", "complete"] {
        assert!(!text.contains(&format!(r#""name":"{name}""#)), "{name}");
    }
}

#[tokio::test]
async fn each_attempt_to_deliver_a_webhook_is_in_the_trace_of_its_request() {
    let in_a_batch_and_alone = [BATCHED, ALONE].map(|batch| async move {
        let mut receiver = Receiver::start().await;
        let (collector, _database, server) = exporting(&quick_but(&[batch])).await;
        let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
        let charged = charge_traced(&server.client, "key-1", CALLER).await;
        let request = span_of(&collector, &charged).await;
        assert_eq!(request.trace, TRACE);
        let mut ids = BTreeSet::new();
        for (attempt, status) in [("0", 500), ("1", 200)] {
            let (traceparent, received) = next_traced(&mut receiver).await;
            received.answer(status).await;
            let is_it = |span: &Exported| {
                let number = span.attribute("http.request.resend_count");
                span.name == "send webhook" && number == attempt
            };
            let span = collector.has("the span of the attempt", is_it).await;
            assert_eq!(traceparent, span.traceparent());
            let told = span.attribute("http.response.status_code");
            assert_eq!(told, status.to_string());
            assert_eq!(span.failed, status == 500);
            assert_eq!(span.kind, SpanKind::Client);
            assert_eq!((&span.trace, &span.parent), (&request.trace, &request.id));
            let id = span.attribute("charge_once.request_id");
            assert_eq!(Some(id), charged.header("request-id"));
            assert_eq!(span.attribute("charge_once.endpoint"), endpoint.id);
            ids.insert(span.id);
        }
        assert_eq!(ids.len(), 2);
    });
    let [in_a_batch, alone] = in_a_batch_and_alone;
    tokio::join!(in_a_batch, alone);
}

#[tokio::test]
async fn a_webhook_is_not_recorded_where_its_request_was_not() {
    let mut receiver = Receiver::start().await;
    let (collector, _database, server) = exporting(QUICK).await;
    Endpoint::at(&server.client, &receiver.url()).await;
    let not_wanted = CALLER.replace("-01", "-00");
    charge_traced(&server.client, "key-1", &not_wanted).await;
    let (traceparent, received) = next_traced(&mut receiver).await;
    received.answer(200).await;
    assert_has(&traceparent, TRACE);
    assert!(traceparent.ends_with("-00"), "{traceparent}");
    // Its attempt ends after the one before, whose span would be here.
    charge_traced(&server.client, "key-2", "not a traceparent").await;
    receiver.next().await.answer(200).await;
    let is_sent = |span: &Exported| span.name == "send webhook";
    let span = collector.has("the span of the attempt", is_sent).await;
    assert_ne!(span.trace, TRACE);
    assert_eq!(collector.named("send webhook").len(), 1);
}

#[tokio::test]
async fn a_webhook_of_an_event_without_a_trace_begins_one() {
    let database = TestDatabase::create().await;
    let mut receiver = Receiver::start().await;
    // Another replica takes over after three times as long.
    let brief = ("WEBHOOK_TIMEOUT", "500ms");
    let server = ServerProcess::start(&database, &quick_but(&[brief]));
    Endpoint::at(&server.client, &receiver.url()).await;
    server.client.charge("key-1").await;
    let untraced = receiver.next().await;
    drop(server);
    assert!(!untraced.headers.contains_key("traceparent"));

    let collector = Collector::start().await;
    let variables = quick_but(&[collector.variable(), brief]);
    let _server = ServerProcess::start(&database, &variables);
    // On a slow machine, the first one has sent it more than once.
    let received = loop {
        let received = receiver.next().await;
        if received.headers.contains_key("traceparent") {
            break received;
        }
    };
    let traceparent = received.headers["traceparent"].clone();
    received.answer(200).await;
    let sent_by = |span: &Exported| span.traceparent() == traceparent;
    let span = collector.has("the span of the attempt", sent_by).await;
    assert_eq!([&*span.name, &span.parent], ["send webhook", ""]);
}

#[tokio::test]
async fn a_webhook_is_in_the_trace_of_a_request_in_phases_too() {
    let processor = Processor::start().await;
    let mut receiver = Receiver::start().await;
    let url = processor.url();
    let variables = quick_but(&[("PROCESSOR_URL", &url)]);
    let (collector, _database, server) = exporting(&variables).await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    Endpoint::at(client, &receiver.url()).await;
    // Its event is written after the processor's answer.
    let charged = charge_traced(client, "key-1", CALLER).await;
    // The events of its steps are written by tasks of their own.
    let bought = client.post("/checkouts", "key-2", &checkout()).await;
    let mut requests = Vec::new();
    for answer in [&charged, &bought] {
        assert_eq!(answer.status, 201);
        requests.push(span_of(&collector, answer).await);
    }
    // They are sent several at a time, so they arrive in any order.
    let mut missing = BTreeSet::from([
        (0, "charge.succeeded"),
        (1, "order.created"),
        (1, "charge.succeeded"),
        (1, "checkout.completed"),
    ]);
    while !missing.is_empty() {
        let (traceparent, received) = next_traced(&mut receiver).await;
        let event = received.event();
        received.answer(200).await;
        let sent_by = |span: &Exported| span.traceparent() == traceparent;
        let span = collector.has("the span of the attempt", sent_by).await;
        let id = span.attribute("charge_once.request_id");
        let is_of = |request: &Exported| request.attribute("charge_once.request_id") == id;
        let of = requests.iter().position(is_of).unwrap();
        assert_eq!(span.trace, requests[of].trace, "{event}");
        missing.retain(|(number, name)| *number != of || event["type"] != *name);
    }
}

#[tokio::test]
async fn a_caller_decides_about_its_trace_unless_the_sampler_says_otherwise() {
    let by_caller = ("OTEL_TRACES_SAMPLER", "parentbased_always_off");
    let (collector, database, server) = exporting(&[by_caller]).await;
    let client = &server.client;
    client.charge("key-1").await;
    let not_wanted = CALLER.replace("-01", "-00");
    charge_traced(client, "key-2", &not_wanted).await;
    let wanted = charge_traced(client, "key-3", CALLER).await;
    span_of(&collector, &wanted).await;
    let spans = collector.named("POST /charges").into_iter();
    assert_eq!(spans.map(|span| span.trace).collect::<Vec<_>>(), [TRACE]);
    drop(server);

    let own = ("OTEL_TRACES_SAMPLER", "always_on");
    let server = ServerProcess::start(&database, &[collector.variable(), own]);
    let recorded = charge_traced(&server.client, "key-4", &not_wanted).await;
    span_of(&collector, &recorded).await;
}

#[tokio::test]
async fn two_traceparents_are_none() {
    let (collector, _database, server) = exporting(&[]).await;
    let request = server.client.request(Method::GET, "/charges");
    let request = request.header("traceparent", CALLER);
    let listed = Answer::of(request.header("traceparent", CALLER)).await;
    assert_eq!(listed.status, 200);
    assert_eq!(span_of(&collector, &listed).await.parent, "");
}

#[tokio::test]
async fn without_a_collector_no_header_of_a_trace_is_taken_in_or_sent() {
    let database = TestDatabase::create().await;
    let mut receiver = Receiver::start().await;
    let mut processor = Receiver::start().await;
    let url = format!("http://{}", processor.address);
    let variables = quick_but(&[("PROCESSOR_URL", &url)]);
    let server = ServerProcess::start(&database, &variables);
    let client = server.client.clone();
    Endpoint::at(&client, &receiver.url()).await;
    let charging = tokio::spawn(async move { charge_traced(&client, "key-1", CALLER).await });
    let instruction = processor.next().await;
    assert!(!instruction.headers.contains_key("traceparent"));
    instruction.answer_with(500, "Connection: close\r\n").await;
    assert_eq!(charging.await.unwrap().status, 503);
    open_order(&server.client).await;
    let received = receiver.next().await;
    assert!(!received.headers.contains_key("traceparent"));
    received.answer(200).await;
}

#[tokio::test]
async fn a_collector_that_is_down_or_silent_costs_a_log_line_and_nothing_else() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = RefusedAddress::reserve();
    let addresses = [silent.local_addr().unwrap(), down.address()];
    let both = addresses.map(|address| async move {
        let database = TestDatabase::create().await;
        let url = format!("http://{address}");
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())];
        let (mut server, log) = start_with_log(&database, &variables);
        let mut charges = 0;
        let began = Instant::now();
        while !text_of(&log).contains("traces can't be sent") {
            assert!(began.elapsed() < PATIENCE, "never told: {}", text_of(&log));
            charges += 1;
            let charged = server.client.charge(&format!("key-{charges}")).await;
            assert_eq!(charged.status, 201);
        }
        for more in 0..20 {
            server.client.charge(&format!("key-more-{more}")).await;
        }
        stops(&mut server.child, Signal::SIGTERM).await;
        let text = text_of(&log);
        let lines = text.lines().filter(|line| line.contains("can't be sent"));
        assert_eq!(lines.count(), 1, "{text}");
        assert_eq!(database.charges().await, charges + 20);
    });
    let [silent_one, closed_one] = both;
    tokio::join!(silent_one, closed_one);
    drop(silent);
}

#[tokio::test]
async fn the_last_spans_are_sent_before_the_process_ends() {
    let (collector, _database, mut server) = exporting(&[]).await;
    let charged = server.client.charge("key-1").await;
    stops(&mut server.child, Signal::SIGTERM).await;
    let id = charged.header("request-id").unwrap();
    let has_id = |span: &Exported| span.attribute("charge_once.request_id") == id;
    assert!(collector.named("POST /charges").iter().any(has_id));
}

#[tokio::test]
async fn a_collector_that_is_named_wrongly_stops_the_start() {
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ] {
        let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let variables = [collector, ANY_PORT, (variable, value)];
        let said = complaint_of(&["serve"], &variables, 1);
        assert_has(&said, &format!("{variable} must be"));
    }
}

/// What is in backquotes in the first two columns of a table, by rows.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let document = read("docs/operations.md");
    let table = document.between("<!-- spans:begin -->\n", "<!-- spans:end -->");
    let quoted = |cell: &str| -> BTreeSet<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let (mut names, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().skip(2) {
        let cells: Vec<_> = row.split('|').collect();
        names.extend(quoted(cells[1]));
        attributes.extend(quoted(cells[3]));
    }
    (names, attributes)
}

pub fn assert_documented(spans: &[Exported]) {
    let (names, attributes) = documented();
    for span in spans {
        let is_request = span.kind == SpanKind::Server;
        assert!(is_request || names.contains(&span.name), "{}", span.name);
        for name in span.attributes.keys() {
            assert!(attributes.contains(name), "{name} of {}", span.name);
        }
    }
}

#[tokio::test]
async fn every_span_is_documented_and_every_documented_one_is_made() {
    let processor = Processor::start().await;
    let mut receiver = Receiver::start().await;
    let url = processor.url();
    let asking = [("PROCESSOR_URL", &*url), ("PROCESSOR_TIMEOUT", "3s")];
    let variables = [&asking[..], &[BATCHED], QUICK].concat();
    let (collector, database, server) = exporting(&variables).await;
    let client = &server.client;
    Endpoint::at(client, &receiver.url()).await;
    open_order(client).await;
    receiver.next().await.answer(200).await;
    // Left in doubt, and completed by the reconciler.
    let fault = json!({"fault": "delay_after", "milliseconds": 60_000});
    processor.set_fault(fault).await;
    let send = || client.sending_and_waiting(30, "/charges", "key-2", charge());
    let first = send();
    processor.delays(1).await;
    // It waits for the first one, and shares its failure.
    let second = send();
    assert_eq!(first.await.unwrap().status, 503);
    processor.reset_faults().await;
    assert_eq!(second.await.unwrap().status, 503);
    // By the reconciler.
    let completed = "SELECT count(*) FROM charges WHERE status = 'succeeded'";
    database.comes_to(completed, 1).await;
    let (names, _) = documented();
    for name in &names {
        collector.has(name, |span| span.name == *name).await;
    }
    assert_documented(&collector.spans());
}
