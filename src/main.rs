//! The program: reads the command line and the environment, starts, stops.

use std::{
    error::Error,
    io::{IsTerminal, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use charge_once::{
    accounts,
    config::{self, Config, DatabaseLocation},
    database::{
        Database, SCHEMA,
        embedded::{EmbeddedPostgres, REFUGE},
    },
    http::openapi,
    operations,
    processor::service,
    server, telemetry, workers,
};
use clap::{Parser, Subcommand, ValueEnum};
use futures_util::FutureExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How long `healthcheck` waits for an answer.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// What a command says that was told to stop before it was done.
const STOPPED_EARLY: &str = "stopped before it was done";

/// A command that was brought to the wrong place: a defect.
const NOT_HERE: &str = "this command doesn't run here";

#[cfg(feature = "client")]
mod pay;

type BoxError = Box<dyn Error + Send + Sync>;

/// A payments API in which a retried request never charges twice.
#[derive(Parser)]
#[command(name = "charge-once", version, after_help = config::help_text())]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the API (the default).
    Serve,
    /// Serves the card processor's simulator, with its own database; see docs/processor.md.
    Processor,
    /// Brings the database schema up to date.
    Migrate,
    /// Removes expired idempotency keys once, and prints how many there were.
    Sweep,
    /// Makes, lists and revokes API keys.
    #[command(subcommand)]
    ApiKey(ApiKeyCommand),
    /// Shows and settles what a card processor was asked and has not answered.
    #[command(subcommand)]
    Operations(OperationsCommand),
    /// Prints the OpenAPI document.
    Openapi,
    /// Prints the table of environment variables in Markdown.
    ConfigTable,
    /// Asks the server at BIND_ADDRESS whether it is ready; exit code 0 if it is.
    Healthcheck {
        /// The card processor's simulator instead, at PROCESSOR_BIND_ADDRESS.
        #[arg(long)]
        processor: bool,
    },
    /// Charges a test card through a running service; killed and run again with --store, once.
    #[cfg(feature = "client")]
    Pay(pay::Arguments),
}

#[derive(Subcommand)]
enum OperationsCommand {
    /// Lists the operations that wait for an answer, and refused refunds that checkouts wait for.
    List,
    /// Settles one that is at least an hour old by your word, after you have asked the processor's
    /// operator what became of it. With PROCESSOR_URL the processor is looked up first, and a word
    /// that contradicts it is refused; so is a no while the operation may still be sent again. A refused
    /// refund that a checkout waits for is settled by `done` at any age, once you have given the money
    /// back yourself.
    Settle {
        /// The operation's id, which is the key that the processor got.
        id: uuid::Uuid,
        /// What the processor did.
        word: Word,
        /// Who says so: 1 to 100 characters, kept with the operation.
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Takes the word though the processor that was asked can't be looked up, because it isn't the
        /// one that PROCESSOR_URL names.
        #[arg(long)]
        without_the_processor: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Word {
    /// It was executed.
    Done,
    /// It was refused for good.
    Declined,
    /// It was not executed, by no attempt, and will not be: the key becomes free.
    NotExecuted,
}

#[derive(Subcommand)]
enum ApiKeyCommand {
    /// Makes a key and shows it, once.
    Create {
        /// The account that it speaks for; made if there is none.
        #[arg(long, default_value = accounts::DEV_ACCOUNT)]
        account: String,
    },
    /// Lists all keys, as far as they are known.
    List,
    /// Revokes a key, read from standard input so that it stays out of the shell's history.
    Revoke {
        /// The key, once it is read.
        #[arg(skip)]
        key: String,
    },
}

fn main() -> ExitCode {
    let mut command = CommandLine::parse().command.unwrap_or(Command::Serve);
    match read_input(&mut command).and_then(|()| run(command)) {
        Ok(code) => code,
        Err(error) => {
            // Nothing to do if standard error is gone.
            let _ = writeln!(std::io::stderr(), "charge-once: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks for what a command needs before anything is started, while Ctrl-C still ends the program.
fn read_input(command: &mut Command) -> Result<(), BoxError> {
    if let Command::ApiKey(ApiKeyCommand::Revoke { key }) = command {
        if std::io::stdin().is_terminal() {
            print("Type or paste the key to revoke, then Enter:")?;
        }
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        line.trim().clone_into(key);
    }
    Ok(())
}

fn run(command: Command) -> Result<ExitCode, BoxError> {
    #[cfg(feature = "client")]
    if let Command::Pay(arguments) = &command {
        return pay::run(arguments);
    }
    done(command).map(|()| ExitCode::SUCCESS)
}

/// The commands that either succeed or fail.
fn done(command: Command) -> Result<(), BoxError> {
    match command {
        Command::Openapi => print(&openapi::document().to_pretty_json()?),
        Command::ConfigTable => print(config::markdown_table().trim_end()),
        Command::Healthcheck { processor: false } => healthcheck(Config::from_env()?.bind_address),
        Command::Healthcheck { processor: true } => {
            healthcheck(Config::from_env()?.processor_service.bind_address)
        }
        Command::Serve
        | Command::Processor
        | Command::Migrate
        | Command::Sweep
        | Command::ApiKey(_)
        | Command::Operations(_) => {
            let config = Config::from_env()?;
            telemetry::start()?;
            tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()?
                .block_on(with_database(command, config))
        }
        #[cfg(feature = "client")]
        Command::Pay(_) => Err(NOT_HERE.into()),
    }
}

/// Starts the private PostgreSQL if there is to be one, keeps it running, and stops it whatever
/// happens.
async fn with_database(command: Command, mut config: Config) -> Result<(), BoxError> {
    // Listening for signals begins before anything is started that a signal should stop.
    let stop = stop_signal()?;
    let mut refuge = REFUGE;
    if matches!(command, Command::Processor) {
        refuge = service::REFUGE;
        config.database = config.processor_service.database.clone();
        // Nobody else brings this schema up to date.
        config.migrate_on_start = true;
    }
    let (mut embedded, url) = match config.database.clone() {
        DatabaseLocation::Url(url) => (None, url),
        DatabaseLocation::Embedded { data_dir, bin_dir } => {
            let embedded =
                EmbeddedPostgres::start_or_move(&data_dir, Path::new(refuge), bin_dir.as_deref())
                    .await?;
            let url = embedded.url();
            (Some(embedded), url)
        }
    };
    if matches!(command, Command::Migrate) {
        config.migrate_on_start = true;
    }
    let (ended, has_ended) = oneshot::channel::<()>();
    let work = async {
        let outcome = with_url(command, &config, &url, stop).await;
        drop(ended);
        outcome
    };
    let keep_running = async {
        if let Some(embedded) = &mut embedded {
            embedded.keep_running(has_ended.map(drop)).await;
        }
    };
    let (outcome, ()) = tokio::join!(work, keep_running);
    let stopped = match embedded {
        Some(embedded) => embedded.stop().await.map_err(BoxError::from),
        None => Ok(()),
    };
    // What went wrong first is what the person needs to read.
    outcome.and(stopped)
}

/// Serving ends gracefully; everything else ends at once when it is told to stop.
async fn with_url(
    command: Command,
    config: &Config,
    url: &str,
    stop: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let mut stop = pin!(stop);
    let serves_processor = matches!(command, Command::Processor);
    let serving = serves_processor || matches!(command, Command::Serve);
    let schema = if serves_processor {
        service::SCHEMA
    } else {
        SCHEMA
    };
    let database = tokio::select! {
        connected = Database::connect_with(url, config, schema) => connected?,
        // A server that is told to stop has done what it was told; a command hasn't.
        () = &mut stop => return if serving { Ok(()) } else { Err(STOPPED_EARLY.into()) },
    };
    if serves_processor {
        return serve_processor(config, database, stop).await;
    }
    if serving {
        return serve(config, database, stop).await;
    }
    tokio::select! {
        done = once(command, &database, config) => done,
        () = stop => Err(STOPPED_EARLY.into()),
    }
}

/// The commands that do one thing in the database.
async fn once(command: Command, database: &Database, config: &Config) -> Result<(), BoxError> {
    match command {
        Command::Migrate => print("The schema is current."),
        Command::Sweep => {
            let removed = workers::expiry_sweep::sweep_once(database).await?;
            print(&format!("Removed {removed} expired idempotency keys."))
        }
        Command::ApiKey(command) => api_key(command, database).await,
        Command::Operations(command) => operations(command, database, config).await,
        Command::Serve
        | Command::Processor
        | Command::Openapi
        | Command::ConfigTable
        | Command::Healthcheck { .. } => Err(NOT_HERE.into()),
        #[cfg(feature = "client")]
        Command::Pay(_) => Err(NOT_HERE.into()),
    }
}

async fn serve(
    config: &Config,
    database: Database,
    stop: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    if let Some(key) = &config.dev_api_key {
        accounts::ensure_dev_key(&database, key).await?;
    }
    let listener = TcpListener::bind(config.bind_address).map_err(|error| {
        format!(
            "BIND_ADDRESS must be an address that is free ({}): {error}",
            config.bind_address
        )
    })?;
    banner(listener.local_addr()?, config)?;
    Ok(server::serve(listener, database, config, stop).await?)
}

async fn serve_processor(
    config: &Config,
    database: Database,
    stop: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let address = config.processor_service.bind_address;
    let listener = TcpListener::bind(address).map_err(|error| {
        format!("PROCESSOR_BIND_ADDRESS must be an address that is free ({address}): {error}")
    })?;
    let url = reachable(listener.local_addr()?);
    print(&format!(
        "charge-once {} serves the simulated card processor at {url}\n  \
         Ledger      {url}/ledger\n  Switches    {url}/switches\n\n\
         Start the API with it: PROCESSOR_URL={url} charge-once\n",
        env!("CARGO_PKG_VERSION"),
    ))?;
    Ok(service::serve(listener, database, config, stop).await?)
}

/// What a person needs to make the first charge.
fn banner(address: SocketAddr, config: &Config) -> Result<(), BoxError> {
    let url = reachable(address);
    let mut text = format!(
        "charge-once {} serves {url}\n  Swagger UI  {url}/swagger-ui/\n",
        env!("CARGO_PKG_VERSION"),
    );
    let shared = matches!(config.database, DatabaseLocation::Url(_));
    match &config.dev_api_key {
        // One that somebody chose for a shared database is a secret, and this ends up in logs.
        Some(key) if shared && key != config::DEFAULT_DEV_API_KEY => {
            text.push_str("  API key     the one in DEV_API_KEY\n");
        }
        Some(key) => text.push_str(&format!(
            "  API key     {key}\n\nCharge a test card; run it twice and it still charges once:\n\n\
             curl -i {url}/charges -H 'Authorization: Bearer {key}' -H 'Idempotency-Key: my-first-charge' \
             -H 'Content-Type: application/json' -d '{{\"amount\":2000,\"currency\":\"usd\",\"source\":\"tok_visa\"}}'\n"
        )),
        None => text.push_str("  API key     make one with: charge-once api-key create\n"),
    }
    print(&text)
}

/// An address that a client on this machine can use: a wildcard isn't one.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("http://localhost:{}", address.port())
    } else {
        format!("http://{address}")
    }
}

async fn api_key(command: ApiKeyCommand, database: &Database) -> Result<(), BoxError> {
    match command {
        ApiKeyCommand::Create { account } => {
            if account.is_empty() || account.chars().count() > 100 {
                return Err("--account must have 1 to 100 characters".into());
            }
            let key = accounts::create_key(database, &account).await?;
            print(&format!(
                "{key}\nIt is shown only now: only its hash is stored."
            ))
        }
        ApiKeyCommand::List => {
            for key in accounts::list_keys(database).await? {
                let state = key
                    .revoked_at
                    .map_or("active".to_owned(), |at| format!("revoked {at:.0}"));
                print(&format!(
                    "…{}  {}  made {}  {state}",
                    key.last4, key.account, key.created_at
                ))?;
            }
            Ok(())
        }
        ApiKeyCommand::Revoke { key } => {
            if accounts::revoke_key(database, &key).await? {
                print("Revoked. Servers stop accepting it within 5 seconds.")
            } else {
                Err("there is no such key, or it was revoked before".into())
            }
        }
    }
}

async fn operations(
    command: OperationsCommand,
    database: &Database,
    config: &Config,
) -> Result<(), BoxError> {
    match command {
        OperationsCommand::List => {
            for waiting in operations::list(database).await? {
                let standing = match (waiting.refused_to, waiting.in_doubt) {
                    (Some(checkout), _) => format!("refused, and {checkout} waits for it"),
                    (None, true) => format!("in doubt, taken over {} times", waiting.takeovers),
                    (None, false) => "not yet in doubt".to_owned(),
                };
                print(&format!(
                    "{}  {}  {}  {}  since {:.0}  {standing}",
                    waiting.id, waiting.account, waiting.verb, waiting.charge, waiting.created_at,
                ))?;
            }
            Ok(())
        }
        OperationsCommand::Settle {
            id,
            word,
            by,
            without_the_processor,
        } => {
            if by.trim().is_empty() || by.chars().count() > 100 {
                return Err("--by must have 1 to 100 characters".into());
            }
            let word = match word {
                Word::Done => operations::Word::Done,
                Word::Declined => operations::Word::Declined,
                Word::NotExecuted => operations::Word::NotExecuted,
            };
            let statement = operations::Statement {
                word,
                by,
                without_the_processor,
            };
            if operations::settle(database, config, id, statement).await? {
                print("Settled. A retry with its idempotency key is answered by it.")
            } else {
                Err(
                    "there is no such operation in flight any more, or somebody is at work on it"
                        .into(),
                )
            }
        }
    }
}

/// Asks `/readyz`, so that the container needs no HTTP client. The reply's first line decides.
fn healthcheck(mut address: SocketAddr) -> Result<(), BoxError> {
    use std::io::Read;

    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let mut stream = TcpStream::connect_timeout(&address, HEALTHCHECK_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTHCHECK_TIMEOUT))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    if reply.starts_with(b"HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err("not ready".into())
    }
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()>, BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// To standard output; a reader that has gone is no error.
fn print(text: &str) -> Result<(), BoxError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
