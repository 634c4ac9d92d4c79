//! The server: inside the test's process, or as a process of its own.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use charge_once::{
    database::Database,
    server::{self, Listeners},
};
use tokio::sync::oneshot;

use super::{API_KEY, Client, TestDatabase, config, shortcuts};

/// The server inside the test's process.
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

    /// With some variables set.
    pub async fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_on(TestDatabase::create().await, variables).await
    }

    pub async fn start_on(database: TestDatabase, variables: &[(&str, &str)]) -> Self {
        let url = database.url.clone();
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
        let [api, metrics] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let scraper = Client::new(metrics.local_addr().unwrap());
        let listeners = Listeners {
            api,
            metrics: Some(metrics),
        };
        let url = database.url.clone();
        let server = Self::start_listening(listeners, database, &url, variables).await;
        (server, scraper)
    }

    async fn start_listening(
        listeners: Listeners,
        database: TestDatabase,
        url: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let config = config(variables);
        let connected = Database::connect(url, &config).await.unwrap();
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

    /// Stops it gracefully.
    pub async fn stop(mut self) -> TestDatabase {
        self.begin_stopping();
        self.serving.await.unwrap();
        self.database
    }
}

/// The server as a process of its own, for kill -9 and for several replicas.
pub struct ServerProcess {
    pub client: Client,
    pub child: Child,
}

impl ServerProcess {
    pub fn start(database: &TestDatabase, variables: &[(&str, &str)]) -> Self {
        Self::start_logging_to(Stdio::null(), database, variables)
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
        mut command: Command,
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = command
            .env("BIND_ADDRESS", "127.0.0.1:0")
            .env("DATABASE_URL", &database.url)
            .env("DEV_API_KEY", API_KEY)
            .envs(shortcuts())
            .env("RUST_LOG", "warn")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        // The banner's first line ends with the URL.
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .rsplit("http://")
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| {
                panic!("no address in the banner: {line:?}");
            });
        Self {
            client: Client::new(address),
            child,
        }
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
