//! Prometheus with the committed rules, and promtool: both from Debian's package `prometheus`.

use reqwest::Url;

use crate::support::prelude::*;

/// What to do where a program is missing. These tests don't pass without it.
const REMEDY: &str = "run scripts/install-prometheus, or on Debian `apt-get install prometheus`";

/// How often the tests scrape and evaluate. The tests that run beside them keep the machine busy,
/// so a scrape has half a second.
const INTERVAL: &str = "500ms";

/// The files that `deploy/prometheus/prometheus.yml` names.
const RULES: [&str; 2] = ["rules.yml", "alerts.yml"];

pub struct Job {
    pub name: &'static str,
    /// Where they serve `/metrics`.
    pub replicas: Vec<SocketAddr>,
}

/// A running Prometheus. It ends with this value.
pub struct Prometheus {
    child: Child,
    url: Url,
    http: reqwest::Client,
    _folder: TempDir,
}

impl Prometheus {
    /// With the committed rules, passed through `change`.
    pub async fn start(jobs: &[Job], change: impl Fn(&str) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in RULES {
            let rules = change(&read(format!("deploy/prometheus/{name}")));
            fs::write(folder.path().join(name), rules).unwrap();
        }
        let config = folder.path().join("prometheus.yml");
        fs::write(&config, configuration(jobs)).unwrap();
        let log = folder.path().join("log");
        let data = folder.path().join("data");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus can't be run ({error}): {REMEDY}"));
        let mut prometheus = Self {
            child,
            url: "http://127.0.0.1".parse().unwrap(),
            http: http_client_builder().unwrap().build().unwrap(),
            _folder: folder,
        };
        let address = prometheus.address_in(&log).await;
        prometheus.url.set_port(Some(address.port())).unwrap();
        eventually("Prometheus is ready", || async {
            let url = prometheus.url.join("/-/ready").unwrap();
            let asked = prometheus.http.get(url);
            asked.send().await.is_ok_and(|ready| ready.status() == 200)
        })
        .await;
        prometheus
    }

    async fn address_in(&mut self, log: &Path) -> SocketAddr {
        let mut found = None;
        eventually("Prometheus listens", || {
            let told = fs::read_to_string(log).unwrap();
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "Prometheus has ended: {told}");
            found = told.lines().find_map(|line| {
                let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
                address.split(' ').next()?.parse().ok()
            });
            std::future::ready(found.is_some())
        })
        .await;
        found.unwrap()
    }

    pub fn address(&self) -> String {
        self.url.authority().to_owned()
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut url = self.url.join(path).unwrap();
        url.query_pairs_mut().extend_pairs(parameters);
        let answer = self.http.get(url).send().await.unwrap();
        let status = answer.status();
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(status, 200, "{parameters:?}: {answer}");
        answer["data"].clone()
    }

    /// The series of an expression, with their labels in `metric`.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.ask("/api/v1/query", &[("query", expression)]).await;
        assert_eq!(data["resultType"], "vector", "{expression}");
        data["result"].as_array().unwrap().clone()
    }

    /// Whether an expression has a series whose value is a number.
    pub async fn has_data(&self, expression: &str) -> bool {
        let series = self.query(expression).await;
        series.iter().any(|series| series["value"][1] != "NaN")
    }

    pub async fn rules(&self) -> Vec<Value> {
        let data = self.ask("/api/v1/rules", &[]).await;
        let groups = data["groups"].as_array().unwrap();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array());
        rules.flatten().cloned().collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(jobs: &[Job]) -> String {
    let files = RULES.map(|name| format!("  - {name}\n")).concat();
    let mut text = format!(
        "global:\n  scrape_interval: {INTERVAL}\n  scrape_timeout: {INTERVAL}\n  \
         evaluation_interval: {INTERVAL}\nrule_files:\n{files}scrape_configs:\n"
    );
    for Job { name, replicas } in jobs {
        let targets = replicas.iter().map(|address| format!("'{address}'"));
        let targets: Vec<_> = targets.collect();
        text.push_str(&format!(
            "  - job_name: {name}\n    static_configs:\n      - targets: [{}]\n",
            targets.join(", ")
        ));
    }
    text
}

pub fn promtool(arguments: &[&str]) -> Output {
    Command::new("promtool")
        .args(arguments)
        .current_dir(root().join("deploy/prometheus"))
        .output()
        .unwrap_or_else(|error| panic!("promtool can't be run ({error}): {REMEDY}"))
}

pub fn alerts() -> Vec<String> {
    let rules = read("deploy/prometheus/alerts.yml");
    let names = rules.lines();
    let names = names.filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// Waits until nothing is missing, and fails with what is after `limit`. For waits that are longer
/// than [`PATIENCE`](crate::support::harness::PATIENCE).
pub async fn within<F: Future<Output = Option<String>>>(
    limit: Duration,
    mut what_is_missing: impl FnMut() -> F,
) {
    let deadline = tokio::time::Instant::now() + limit;
    while let Some(missing) = what_is_missing().await {
        let now = tokio::time::Instant::now();
        assert!(now < deadline, "after {limit:?}: {missing}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
