//! `charge-once audit`: a sandbox for the program that is audited, if it has none.
//!
//! Promise: the sandbox listens on this machine only, and ends with the program. It has a private
//! PostgreSQL, and never the database that `DATABASE_URL` names: in the environment of a shop, that
//! is the shop's.

use std::{
    fs::File,
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use charge_once_developer::{
    audit::{AuditArguments, Audited, audit},
    healthcheck,
    report::ended,
    service::api_key,
    stop_signal,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{BoxError, finding_kinds, help, say};
use crate::config::VARIABLES;

/// How long a new private PostgreSQL may take.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The data of the private PostgreSQL, apart from that of `make run`.
const DATA_DIR: &str = "./.charge-once-audit";

const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// How long the sandbox may take to end, with its PostgreSQL.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn run(arguments: &AuditArguments) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    ended(match runtime {
        Ok(runtime) => runtime.block_on(work(arguments)),
        Err(error) => Err(error.into()),
    })
}

async fn work(arguments: &AuditArguments) -> Result<u8, BoxError> {
    let mut stop = stop_signal()?;
    let kinds = finding_kinds();
    let redirect = Redirect::write()?;
    let variables = [redirect.variable()];
    let with = |url, dev_key| Audited {
        url,
        dev_key,
        kinds: &kinds,
        variables: &variables,
    };
    if let Some(url) = arguments.url() {
        return audit(arguments, with(url, api_key()?), &mut stop).await;
    }
    let mut sandbox = Sandbox::start(arguments.database_url())?;
    let ready = tokio::select! {
        ready = sandbox.ready() => ready,
        () = &mut stop => Err("stopped before it was done".into()),
    };
    let code = match ready {
        Ok(url) => {
            let audited = with(&url, sandbox.dev_key.clone());
            audit(arguments, audited, &mut stop).await
        }
        Err(error) => Err(error),
    };
    sandbox.end().await;
    code
}

/// A temporary file that redirects here what programs for Node send to Stripe. Dropping this
/// removes it.
struct Redirect(PathBuf);

impl Redirect {
    /// Others may write in that folder, so the file has a name that they can't know, and is new.
    fn write() -> Result<Self, BoxError> {
        let random = hex::encode(rand::random::<[u8; 16]>());
        let path = std::env::temp_dir().join(format!("charge-once-redirect-{random}.cjs"));
        let told = |error| format!("{} can't be written: {error}", path.display());
        let created = File::create_new(&path).and_then(|mut file| {
            file.write_all(include_bytes!("../../examples/stripe_redirect.cjs"))
        });
        created.map_err(told)?;
        Ok(Self(path))
    }

    /// The variable that has Node load it, with the options that it has already.
    fn variable(&self) -> (&'static str, String) {
        const NODE_OPTIONS: &str = "NODE_OPTIONS";
        let options = std::env::var(NODE_OPTIONS).unwrap_or_default();
        let options = format!("{options} --require=\"{}\"", self.0.display());
        (NODE_OPTIONS, options)
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        // If it stays, the system clears its folder for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Sandbox {
    process: Child,
    banner: BufReader<ChildStdout>,
    dev_key: String,
}

impl Sandbox {
    fn start(database_url: Option<&str>) -> Result<Self, BoxError> {
        let dev_key = format!("sk_test_{}", hex::encode(rand::random::<[u8; 16]>()));
        let mut command = Command::new(std::env::current_exe()?);
        for variable in VARIABLES {
            if !help::reads("audit", variable.name) {
                command.env_remove(variable.name);
            }
        }
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "error");
        }
        match database_url {
            Some(url) => command.env("DATABASE_URL", url),
            None => command.env("DATA_DIR", DATA_DIR),
        };
        command
            .arg("serve")
            .env("BIND_ADDRESS", "127.0.0.1:0")
            .env("DEV_API_KEY", &dev_key)
            .env("EMPTY_LISTS", "true")
            .env("FAULTS", "true")
            .env("KEYS", "/v1=assign")
            .env("WEBHOOK_ALLOW_PRIVATE", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal is for the program: the report needs the sandbox.
            .process_group(0);
        let mut process = command.spawn()?;
        let banner = process.stdout.take().ok_or("the sandbox has no output")?;
        Ok(Self {
            process,
            banner: BufReader::new(banner),
            dev_key,
        })
    }

    /// Its URL, once it can serve. Its own complaints are on standard error.
    async fn ready(&mut self) -> Result<String, BoxError> {
        let until = Instant::now() + READY_WITHIN;
        let mut line = String::new();
        let read = timeout(READY_WITHIN, self.banner.read_line(&mut line)).await;
        read.map_err(|_| "the sandbox does not start")??;
        // `charge-once … serves http://127.0.0.1:49152`
        let url = line.trim_end().rsplit(' ').next().unwrap_or_default();
        let address = url.strip_prefix("http://");
        let address: Option<SocketAddr> = address.and_then(|address| address.parse().ok());
        let address = address.ok_or("the sandbox ended before it was ready: see above")?;
        loop {
            let ask = move || healthcheck::check(address, &address.to_string());
            match tokio::task::spawn_blocking(ask).await? {
                Ok(()) => return Ok(url.to_owned()),
                Err(error) if Instant::now() > until || self.process.try_wait()?.is_some() => {
                    return Err(format!("the sandbox does not become ready: {error}").into());
                }
                Err(_) => tokio::time::sleep(ASK_INTERVAL).await,
            }
        }
    }

    /// Lets it stop its PostgreSQL.
    async fn end(mut self) {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id {
            // If it is gone, there is nothing to end.
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
        if timeout(ENDS_WITHIN, self.process.wait()).await.is_err() {
            say("the sandbox does not end, and is killed");
            let _ = self.process.kill().await;
        }
    }
}
