//! What runs beside requests goes on after a panic.

use charge_once::telemetry::metrics::WORKERS;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use crate::{docs::layers::rust_files, support::prelude::*};

/// Makes each worker panic once, where it is: in its span, the first time that it is entered.
/// Counts how often it is entered after that. It acts on the servers of one test, which run on the
/// test's thread.
#[derive(Clone, Default)]
struct Saboteur {
    entered: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// The worker of a span.
#[derive(Clone)]
struct Worker(String);

impl Visit for Worker {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "worker" {
            value.clone_into(&mut self.0);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Saboteur {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() == "worker" {
            let mut worker = Worker(String::new());
            attributes.record(&mut worker);
            let span = context.span(id).unwrap();
            span.extensions_mut().insert(worker);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let Some(Worker(name)) = span.extensions().get::<Worker>().cloned() else {
            return;
        };
        drop(span);
        let thread = std::thread::current();
        if name == "webhooks" && thread.name() != Some("webhooks") {
            // Not yet on its own thread.
            return;
        }
        let times = {
            let mut entered = self.entered.lock().unwrap();
            let times = entered.entry(name).or_default();
            *times += 1;
            *times
        };
        assert!(times > 1, "a defect, on purpose");
    }
}

#[tokio::test]
async fn every_worker_that_panics_is_named_and_works_again() {
    let database = TestDatabase::create_unsharded().await;
    let before = TestServer::start_on(database, &[]).await;
    open_order(&before.client).await;
    let database = before.stop().await;
    database.expire_records().await;

    // As long as a process has one subscriber, a kind of span that another test's thread makes
    // first is judged there, where no subscriber is, and stays off on all threads. With two of
    // them, both are asked.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let saboteur = Saboteur::default();
    let sabotage = tracing_subscriber::registry().with(saboteur.clone());
    let _sabotage = tracing::subscriber::set_default(sabotage);
    let variables = quick_but(&[
        ("CONSOLE", "true"),
        ("EXPIRY_SWEEP_INTERVAL", "100ms"),
        // Nothing is asked of it.
        ("PROCESSOR_URL", "http://127.0.0.1:9"),
    ]);
    let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
    let (client, database) = (&server.client, &server.database);
    eventually("readiness names every worker", || async {
        let ready = client.get("/readyz").await;
        assert_eq!(ready.status, 200);
        ready.json()["failing_workers"] == json!(WORKERS)
    })
    .await;

    let mut receiver = Receiver::start().await;
    Endpoint::at(client, &receiver.url()).await;
    open_order(client).await;
    receiver.next().await.answer(200).await;
    let expired = "SELECT count(*) FROM idempotency_keys WHERE expires_at <= now()";
    database.comes_to(expired, 0).await;
    eventually("requests are logged", || async {
        client.get("/orders").await;
        database.count("SELECT count(*) FROM request_log").await > 0
    })
    .await;
    eventually("every worker works again", || async {
        let entered = saboteur.entered.lock().unwrap();
        // The second time, it is dropped.
        let works = |worker: &&str| entered.get(*worker).is_some_and(|times| *times > 3);
        WORKERS.iter().all(works)
    })
    .await;
    let scrape = Scrape::of(&scraper).await;
    for worker in WORKERS {
        let failures = format!(r#"charge_once_worker_failures_total{{worker="{worker}"}}"#);
        let failed = scrape.value(&failures);
        assert!(failed == 1.0, "{failures}: {}", scrape.text);
    }
    // It has begun again three times, which doesn't say that it has come to an end.
    let read = "charge_once_database_metrics_last_success_timestamp_seconds";
    exceeds(&scraper, read, 0.0).await;
    server.stop().await;
}

#[test]
fn every_worker_is_started_by_the_supervisor() {
    let mut files = rust_files(&root().join("src/workers"));
    files.push(root().join("src/server.rs"));
    // What a worker itself runs side by side, the two HTTP servers, which watch over their threads,
    // and what ends once the databases are served that were down at the start.
    let others = [
        "recovering.spawn(recover(",
        "tokio::spawn(server)",
        "tokio::spawn(opening)",
    ];
    let mut supervised = BTreeSet::new();
    for file in files {
        let text = read(&file);
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().filter(|line| line.contains("spawn(")) {
            let is_other = others.iter().any(|other| line.contains(other));
            match line.split_once("upervisor.spawn(\"") {
                Some((_, rest)) => supervised.extend(rest.split('"').next().map(str::to_owned)),
                None => assert!(is_other, "{file:?}: the supervisor doesn't know {line}"),
            }
        }
    }
    assert_eq!(supervised, WORKERS.map(str::to_owned).into());
}
