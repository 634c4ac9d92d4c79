//! The server: inside the test's process, or as a process of its own.

use std::{io::Seek, net::TcpListener, process::ChildStdout};

use charge_once::{
    database,
    server::{self, Listeners},
};
use tempfile::tempfile;
use tokio::sync::oneshot;

use super::shortcuts;
use crate::support::{pgbouncer, prelude::*, sharding};

pub struct TestServer {
    pub client: Client,
    pub database: TestDatabase,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<()>,
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_on(TestDatabase::create().await, variables).await
    }

    /// A server, and its client.
    pub async fn with_client(variables: &[(&str, &str)]) -> (Self, Client) {
        let server = Self::start_with(variables).await;
        let client = server.client.clone();
        (server, client)
    }

    pub async fn start_on(database: TestDatabase, variables: &[(&str, &str)]) -> Self {
        let url = pgbouncer::url_for(&database.url, variables);
        Self::start_through(database, &url, variables).await
    }

    /// Reaches its database through `url`: a proxy's, say.
    pub async fn start_through(
        database: TestDatabase,
        url: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::start_listening(listener.into(), database, url, variables).await
    }

    /// Serves metrics too, where the second client asks for them.
    pub async fn start_with_metrics(
        database: TestDatabase,
        variables: &[(&str, &str)],
    ) -> (Self, Client) {
        let url = pgbouncer::url_for(&database.url, variables);
        Self::start_with_metrics_through(database, &url, variables).await
    }

    /// Serves metrics, and reaches its database through `url`.
    pub async fn start_with_metrics_through(
        database: TestDatabase,
        url: &str,
        variables: &[(&str, &str)],
    ) -> (Self, Client) {
        let [api, metrics] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let scraper = Client::new(metrics.local_addr().unwrap());
        let listeners = Listeners {
            api,
            metrics: Some(metrics),
        };
        let server = Self::start_listening(listeners, database, url, variables).await;
        (server, scraper)
    }

    async fn start_listening(
        listeners: Listeners,
        database: TestDatabase,
        url: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let (url, config) = match sharding::of_server(&database, url, variables) {
            None => (url.to_owned(), config(variables)),
            Some((first, shards)) => {
                let config = config(&[&[("SHARD_URLS", &*shards)], variables].concat());
                (first, config)
            }
        };
        let connected = database::connect_all(&url, &config).await.unwrap();
        let client = Client::new(listeners.api.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server::serve(listeners, connected, &config, stopped)
                .await
                .unwrap();
        });
        Self {
            client,
            database,
            stop: Some(stop),
            serving,
        }
    }

    /// Asks it to stop, without waiting.
    pub fn begin_stopping(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub async fn stop(mut self) -> TestDatabase {
        self.begin_stopping();
        self.serving.await.unwrap();
        self.database
    }
}

/// The API key and the card numbers that tests send.
const SECRETS: [&str; 5] = [
    API_KEY,
    "4242424242424242",
    "4111111111111111",
    "4000000000000002",
    "5555555555554444",
];

/// The server as a process of its own, for kill -9 and for several replicas.
pub struct ServerProcess {
    pub client: Client,
    pub child: Child,
    /// Its log, where no test reads it.
    log: Option<File>,
}

impl ServerProcess {
    pub fn start(database: &TestDatabase, variables: &[(&str, &str)]) -> Self {
        let log = tempfile().unwrap();
        let mut server = Self::start_logging_to(log.try_clone().unwrap(), database, variables);
        server.log = Some(log);
        server
    }

    /// A process that was started already, and its client.
    pub fn of(client: Client, child: Child) -> Self {
        Self {
            client,
            child,
            log: None,
        }
    }

    /// With its log, which goes to standard error, somewhere.
    pub fn start_logging_to(
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> Self {
        let program = Command::new(env!("CARGO_BIN_EXE_charge-once"));
        Self::start_by(program, log, database, variables)
    }

    /// By another command, which becomes the server.
    pub fn start_by(
        command: Command,
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = spawn(command, log, database, variables);
        let client = Client::new(Banner::of(&mut child).address("charge-once ", ""));
        Self::of(client, child)
    }

    /// By another command, with metrics, for which the second client asks: at any port, or at
    /// `METRICS_ADDRESS`.
    pub fn start_with_metrics_by(
        command: Command,
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> (Self, Client) {
        let variables = [&[("METRICS_ADDRESS", "127.0.0.1:0")], variables].concat();
        let mut child = spawn(command, log, database, &variables);
        let mut banner = Banner::of(&mut child);
        let client = Client::new(banner.address("charge-once ", ""));
        let scraper = Client::new(banner.address("  Metrics ", "/metrics"));
        (Self::of(client, child), scraper)
    }

    pub fn start_with_metrics(
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> (Self, Client) {
        let program = Command::new(env!("CARGO_BIN_EXE_charge-once"));
        Self::start_with_metrics_by(program, log, database, variables)
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.kill_now();
    }

    /// kill -9. Another server can take its place in this value.
    pub fn kill_now(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(log) = self.log.take()
            && !std::thread::panicking()
        {
            assert_tells_no_secret(log);
        }
    }
}

/// Whatever a test sends, no log has an API key or a card number.
fn assert_tells_no_secret(mut log: File) {
    let mut text = Vec::new();
    log.rewind().unwrap();
    log.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is in the log: {text}");
    }
}

fn spawn(
    mut command: Command,
    log: impl Into<Stdio>,
    database: &TestDatabase,
    variables: &[(&str, &str)],
) -> Child {
    let url = pgbouncer::url_for(&database.url, variables);
    match sharding::of_server(database, &url, variables) {
        None => command.env("DATABASE_URL", url),
        Some((first, shards)) => command.env("DATABASE_URL", first).env("SHARD_URLS", shards),
    };
    command
        .env("BIND_ADDRESS", "127.0.0.1:0")
        .env("DEV_API_KEY", API_KEY)
        .envs(shortcuts())
        .env("RUST_LOG", "warn")
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// What a server prints at its start: a line for each of its addresses.
struct Banner<'a>(BufReader<&'a mut ChildStdout>);

impl<'a> Banner<'a> {
    fn of(child: &'a mut Child) -> Self {
        Self(BufReader::new(child.stdout.as_mut().unwrap()))
    }

    /// Of the next line that begins so. Its URL ends with this path.
    fn address(&mut self, beginning: &str, path: &str) -> SocketAddr {
        let lines = (&mut self.0).lines().map_while(Result::ok);
        let line = lines.into_iter().find(|line| line.starts_with(beginning));
        let line = line.unwrap_or_else(|| panic!("the banner has no line {beginning:?}"));
        let url = line.rsplit("http://").next().unwrap();
        // Of a server that listens on every address.
        let url = url.replace("localhost", "127.0.0.1");
        let address = url.trim().strip_suffix(path).map(str::parse);
        address.expect(&line).expect(&line)
    }
}
