//! `charge-once-conform URL --config api.toml`: tells whether the retries of an API are safe.
//! `charge-once-conform webhooks URL --effect COUNT`: tells whether deliveries of webhooks are.
//!
//! Exits with 0 if nothing unsafe was found, 1 if something was, and 2 if nothing could be checked.

use std::{
    fs::File,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use charge_once_conform::{
    CHECKS, Check, Config, ConfigError, Crash, PRESETS, RECEIVER_CHECKS, Scheme, Service, harmless,
    init, run, target,
};
use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};

/// Tries to make an HTTP API do the same thing twice under one idempotency key.
#[derive(Debug, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Exit codes: 0 nothing unsafe was found, 1 something was, 2 nothing was checked."
)]
struct Arguments {
    #[command(subcommand)]
    receiver: Option<Receiver>,
    /// Where the service listens, such as http://127.0.0.1:8080/v1
    #[arg(required_unless_present_any = ["init", "list"])]
    url: Option<String>,
    /// The file that describes the API
    #[arg(long, required_unless_present_any = ["init", "list"])]
    config: Option<PathBuf>,
    /// Print such a file with comments, with the promises of --preset
    #[arg(long)]
    init: bool,
    /// Whose promises --init writes
    #[arg(
        long,
        default_value = "ietf-draft",
        requires = "init",
        value_parser = PossibleValuesParser::new(PRESETS.map(|(name, _)| name))
    )]
    preset: String,
    /// Print all checks, their rules and their sources
    #[arg(long)]
    list: bool,
    /// The URL of another replica on the same database
    #[arg(long)]
    replica: Vec<String>,
    /// A command that ends the service as a crash does, such as: kill -9 $(cat service.pid)
    #[arg(long, requires = "start")]
    kill: Option<String>,
    /// A command that starts the service again at the same address, and returns
    #[arg(long, requires = "kill")]
    start: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Receiver {
    /// Check what a receiver does with deliveries. WEBHOOK_SECRET is the secret that it knows
    Webhooks {
        /// Where deliveries go
        url: String,
        /// What counts the effects of one event: a URL, or a command that prints the number. It has
        /// {{event}}, the event's id, or {{unique}}, the id of the event's object
        #[arg(long)]
        effect: String,
        /// Whose signatures
        #[arg(long, value_enum, default_value = "stripe")]
        scheme: Scheme,
        /// A file with the JSON of an event without its id. It has {{unique}}, and may have
        /// {{created}}
        #[arg(long)]
        event: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
struct Output {
    /// Run the checks of this file of vectors in the place of all
    #[arg(long, value_name = "FILE")]
    vectors: Option<PathBuf>,
    /// Run these checks only
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
    /// Write a page with the verdict, and with each finding drawn, to this file, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JUnit XML to this file, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Allow a public address: the service is mine, and may be hurt
    #[arg(long)]
    i_own_this: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = conform(Arguments::parse()).await;
    ended.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "charge-once-conform: {error}");
        ExitCode::from(2)
    })
}

async fn conform(arguments: Arguments) -> Result<ExitCode, ConfigError> {
    if arguments.init {
        return print(&init(&arguments.preset)?).map(|()| ExitCode::SUCCESS);
    }
    if arguments.list {
        let lines = |check: &Check| {
            let (name, rule, source) = (&check.name, &check.rule, &check.source);
            let otherwise = format!("{:?}", check.severity).to_lowercase();
            format!("{name:<18} {rule} (otherwise {otherwise}; {source})\n")
        };
        let all = CHECKS.iter().chain(RECEIVER_CHECKS.iter()).map(lines);
        return print(&all.collect::<String>()).map(|()| ExitCode::SUCCESS);
    }
    if let Some(receiver) = arguments.receiver {
        return receive(receiver).await;
    }
    let (Some(url), Some(path)) = (arguments.url, arguments.config) else {
        return Err(ConfigError("a URL and --config are needed".to_owned()));
    };
    let config = Config::from_toml(&read(&path)?)?;
    let is_own = arguments.output.i_own_this;
    let mut replicas = Vec::new();
    for replica in &arguments.replica {
        replicas.push(target(replica, is_own).await?);
    }
    let commands = arguments.kill.zip(arguments.start);
    let service = Service {
        url: target(&url, is_own).await?,
        replicas,
        crash: commands.map(|(kill, start)| Crash { kill, start }),
    };
    check(config, service, arguments.output).await
}

async fn receive(receiver: Receiver) -> Result<ExitCode, ConfigError> {
    let Receiver::Webhooks {
        url,
        effect,
        scheme,
        event,
        output,
    } = receiver;
    let secret = std::env::var("WEBHOOK_SECRET");
    let secret = secret.map_err(|_| ConfigError("WEBHOOK_SECRET is not set".to_owned()))?;
    let event = event.map(|path| read(&path)).transpose()?;
    let mut url = target(&url, output.i_own_this).await?;
    let query = url.query().map(|query| format!("?{query}"));
    let path = format!("{}{}", url.path(), query.unwrap_or_default());
    let config = Config::of_receiver(&path, scheme, &secret, event, &effect)?;
    url.set_path("");
    let service = Service {
        url,
        replicas: Vec::new(),
        crash: None,
    };
    check(config, service, output).await
}

/// Runs the checks, and writes what they found.
async fn check(config: Config, service: Service, output: Output) -> Result<ExitCode, ConfigError> {
    let config = match &output.vectors {
        Some(path) => config.with_vectors(&read(path)?)?,
        None => config,
    };
    // Before the first request. What an earlier run has written is no report on this one.
    let create = |path: Option<PathBuf>| match path {
        Some(path) => match File::create(&path) {
            Ok(file) => Ok(Some((path, file))),
            Err(error) => Err(about(&path, &error)),
        },
        None => Ok(None),
    };
    let (html, junit) = (create(output.html)?, create(output.junit)?);

    let shows_progress = std::io::stderr().is_terminal();
    let progress = |shown: &str| {
        if shows_progress {
            let _ = write!(std::io::stderr(), "\r\x1b[K{shown}");
        }
    };
    let report = run(config, service, &output.only, |number, all, name| {
        progress(&format!("{number}/{all} {name} "));
    });
    let report = report.await?;
    progress("");
    let files = [(html, report.html()), (junit, report.junit())];
    for (file, text) in files {
        if let Some((path, mut file)) = file {
            let written = file.write_all(text.as_bytes());
            written.map_err(|error| about(&path, &error))?;
        }
    }
    if output.json {
        let json = report.json();
        let json = json.map_err(|error| ConfigError(error.to_string()))?;
        print(&format!("{json}\n"))?;
    } else {
        print(&report.table())?;
    }
    Ok(ExitCode::from(u8::from(report.is_unsafe())))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| about(path, &error))
}

fn about(file: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError(format!("{}: {error}", file.display()))
}

fn print(text: &str) -> Result<(), ConfigError> {
    let mut out = std::io::stdout();
    let text = harmless(text);
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| ConfigError(format!("nothing can be printed: {error}")))
}
