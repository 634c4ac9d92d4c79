//! Two replicas under load, scraped by Prometheus: every rule evaluates, and every panel shows
//! something.

use crate::support::prelude::*;

const JOB: &str = "charge-once";

/// How long the load may last until everything has data: three times what it takes on two busy
/// cores.
const LIMIT: Duration = Duration::from_secs(60);

/// Two replicas and a card processor, and clients that do everything that there is to do.
struct Shop {
    database: TestDatabase,
    processor: Processor,
    replicas: [ServerProcess; 2],
    scrapers: [Client; 2],
}

impl Shop {
    async fn open() -> Self {
        let processor = Processor::start().await;
        let url = processor.url();
        let variables = quick_but(&[
            ("PROCESSOR_URL", &url),
            ("PROCESSOR_TIMEOUT", "3s"),
            // PostgreSQL has all tests' connections.
            ("POOL_CONNECTIONS", "5"),
            ("EXPIRY_SWEEP_INTERVAL", "200ms"),
            // Whatever the other tests run with.
            ("BATCH", "on"),
            ("REPLAY_CACHE", "32MiB"),
        ]);
        let database = TestDatabase::create_unsharded().await;
        let start = || ServerProcess::start_with_metrics(Stdio::null(), &database, &variables);
        let [(first, of_first), (second, of_second)] = [start(), start()];
        let receiver = Receiver::start().await;
        Endpoint::at(&first.client, &receiver.url()).await;
        acknowledge_all(receiver);
        stock(&first.client, "mug", 1000).await;
        database.printed_by("check");
        Self {
            database,
            processor,
            replicas: [first, second],
            scrapers: [of_first, of_second],
        }
    }

    /// One request of each kind: charged, replayed by either replica, refused, reused, ordered
    /// together, checked out, declined, not executed, of unknown outcome, and taken over.
    async fn serve(&self, round: usize) {
        let at = |number: usize| &self.replicas[number % 2].client;
        let (client, other) = (at(round), at(round + 1));
        let key = |what: &str| format!("{what}-{round}");
        let expect = |answer: Answer, status: u16| assert_eq!(answer.status, status, "{answer:?}");

        let charged = key("charge");
        for replica in [client, other, client] {
            expect(replica.charge(&charged).await, 201);
        }
        let reused = client.post("/charges", &charged, &another_charge()).await;
        expect(reused, 422);
        let wrong = json!({"amount": 0, "currency": "usd"});
        expect(client.post("/charges", &key("wrong"), &wrong).await, 400);

        let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 5}]});
        let orders = [(); 4].map(|()| client.post_new("/orders", &order));
        for order in futures_util::future::join_all(orders).await {
            expect(order, 201);
        }
        let bought = client.post("/checkouts", &key("bought"), &checkout()).await;
        expect(bought, 201);
        let declined = checkout_with("tok_chargeDeclined");
        let declined = client.post("/checkouts", &key("declined"), &declined).await;
        expect(declined, 402);

        let refuse = json!({"fault": "refuse", "count": 3});
        self.processor.set_fault(refuse).await;
        expect(client.charge(&key("refused")).await, 503);
        self.processor.reset_faults().await;
        let lose = json!({"fault": "drop_after"});
        self.processor.set_fault(lose).await;
        expect(client.charge(&key("lost")).await, 503);
        self.processor.reset_faults().await;
        expect(client.charge(&key("lost")).await, 201);

        expect(client.get("/charges").await, 200);
        let probe = client.bare(reqwest::Method::GET, "/readyz");
        expect(Answer::of(probe).await, 200);
        self.database.expire_records().await;
    }
}

struct Query {
    /// The title of its panel.
    title: String,
    /// As Grafana would send it.
    expression: String,
    /// What Grafana writes beside each series.
    legend: String,
}

impl Query {
    /// What is shown where there is nothing would hide that a name is wrong. No alert has to fire.
    fn without_fallback(&self) -> &str {
        match self.expression.strip_suffix(" or vector(0)") {
            Some(data) if !data.contains("ALERTS") => data,
            _ => &self.expression,
        }
    }

    /// Whether the legend tells each series from the others, and names what the series has.
    fn tells_apart(&self, series: &[Value]) -> bool {
        let label = Regex::new(r"\{\{(\w+)\}\}").unwrap();
        let legends = series.iter().map(|one| {
            let value =
                |name: &regex::Captures| one["metric"][&name[1]].as_str().map(str::to_owned);
            let values = label.captures_iter(&self.legend).map(|name| value(&name));
            let values: Vec<_> = values.collect();
            (!values.contains(&None)).then_some(values)
        });
        let legends: Option<BTreeSet<_>> = legends.collect();
        legends.is_some_and(|told| told.len() == series.len())
    }
}

fn queries() -> Vec<Query> {
    let dashboard = read("deploy/grafana/dashboards/charge-once.json");
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = text(&panel["title"]);
        if panel["type"] == "row" {
            continue;
        }
        let description = text(&panel["description"]);
        assert!(description.ends_with('.'), "{title}: {description}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = text(&target["expr"])
                .replace("$__rate_interval", "10s")
                .replace("$job", JOB)
                .replace("$instance", ".*");
            // A group of a regular expression, and no variable.
            let rest = expression.replace("${1}", "");
            assert!(!rest.contains('$'), "{title}: {expression}");
            queries.push(Query {
                title: title.clone(),
                expression,
                legend: text(&target["legendFormat"]),
            });
        }
    }
    assert!(queries.len() >= 40, "{}", queries.len());
    queries
}

#[tokio::test]
async fn every_rule_evaluates_and_every_panel_has_data_of_two_replicas_under_load() {
    let shop = Shop::open().await;
    let replicas = shop.scrapers.iter().map(|scraper| scraper.address);
    let replicas = replicas.collect();
    let job = Job {
        name: JOB,
        replicas,
    };
    let prometheus = Prometheus::start(&[job], str::to_owned).await;
    let queries = queries();
    let wanted = |query: &Query| (query.title.clone(), query.without_fallback().to_owned());
    let mut wanted: Vec<_> = queries.iter().map(wanted).collect();
    let rules = prometheus.rules().await;
    for rule in rules.iter().filter(|rule| rule["type"] == "recording") {
        let name = rule["name"].as_str().unwrap();
        wanted.push((name.to_owned(), name.to_owned()));
    }

    let load = async {
        for round in 0.. {
            shop.serve(round).await;
        }
    };
    let everything_has_data = within(LIMIT, || async {
        for (title, expression) in &wanted {
            if !prometheus.has_data(expression).await {
                return Some(format!("{title}: no data for {expression}"));
            }
        }
        None
    });
    tokio::select! {
        () = load => {}
        () = everything_has_data => {}
    }

    for query in &queries {
        let series = prometheus.query(&query.expression).await;
        let (title, expression) = (&query.title, &query.expression);
        let is_clear = query.tells_apart(&series);
        assert!(is_clear, "{title}: {expression}: {series:?}");
    }
    // Each of the two is told apart.
    let were_scraped = async || prometheus.query("charge_once_info").await.len() == 2;
    eventually("both replicas were scraped", were_scraped).await;
    let rules = prometheus.rules().await;
    assert!(rules.len() >= 35, "{}", rules.len());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["lastError"], Value::Null, "{rule}");
    }
}
