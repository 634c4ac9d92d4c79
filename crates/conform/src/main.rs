//! `charge-once-conform URL --config api.toml`: tells whether the retries of an API are safe.
//!
//! Exits with 0 if nothing unsafe was found, 1 if something was, and 2 if nothing could be checked.

use std::{
    fs::File,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use charge_once_conform::{
    CHECKS, Config, ConfigError, Crash, PRESETS, Service, harmless, init, run, target,
};
use clap::{Parser, builder::PossibleValuesParser};

/// Tries to make an HTTP API do the same thing twice under one idempotency key.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 nothing unsafe was found, 1 something was, 2 nothing was checked."
)]
struct Arguments {
    /// Where the service listens, such as http://127.0.0.1:8080/v1. Plain HTTP lets all checks run
    #[arg(required_unless_present_any = ["init", "list"])]
    url: Option<String>,
    /// The file that describes the API
    #[arg(long, required_unless_present_any = ["init", "list"])]
    config: Option<PathBuf>,
    /// Print such a file with comments, with the promises of --preset
    #[arg(long)]
    init: bool,
    /// Whose promises --init writes
    #[arg(long, default_value = "ietf-draft", requires = "init",
        value_parser = PossibleValuesParser::new(PRESETS.map(|(name, _)| name)))]
    preset: String,
    /// Print all checks, their rules and their sources
    #[arg(long)]
    list: bool,
    /// Run these checks only
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The URL of another replica on the same database
    #[arg(long)]
    replica: Vec<String>,
    /// A command that ends the service as a crash does, such as: kill -9 $(cat service.pid)
    #[arg(long, requires = "start")]
    kill: Option<String>,
    /// A command that starts the service again at the same address, and returns
    #[arg(long, requires = "kill")]
    start: Option<String>,
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
        let lines = CHECKS.iter().map(|check| {
            let (name, rule, source) = (check.name, check.rule, check.source);
            let otherwise = format!("{:?}", check.severity).to_lowercase();
            format!("{name:<18} {rule} (otherwise {otherwise}; {source})\n")
        });
        return print(&lines.collect::<String>()).map(|()| ExitCode::SUCCESS);
    }
    let (Some(url), Some(path)) = (arguments.url, arguments.config) else {
        return Err(ConfigError("a URL and --config are needed".to_owned()));
    };
    let text = std::fs::read_to_string(&path).map_err(|error| about(&path, &error))?;
    let config = Config::from_toml(&text)?;
    let mut replicas = Vec::new();
    for replica in &arguments.replica {
        replicas.push(target(replica, arguments.i_own_this).await?);
    }
    let commands = arguments.kill.zip(arguments.start);
    let service = Service {
        url: target(&url, arguments.i_own_this).await?,
        replicas,
        crash: commands.map(|(kill, start)| Crash { kill, start }),
    };

    // Before the first request. What an earlier run has written is no report on this one.
    let create = |path: Option<PathBuf>| match path {
        Some(path) => match File::create(&path) {
            Ok(file) => Ok(Some((path, file))),
            Err(error) => Err(about(&path, &error)),
        },
        None => Ok(None),
    };
    let (html, junit) = (create(arguments.html)?, create(arguments.junit)?);

    let shows_progress = std::io::stderr().is_terminal();
    let progress = |shown: &str| {
        if shows_progress {
            let _ = write!(std::io::stderr(), "\r\x1b[K{shown}");
        }
    };
    let report = run(config, service, &arguments.only, |number, all, name| {
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
    if arguments.json {
        let json = report.json();
        let json = json.map_err(|error| ConfigError(error.to_string()))?;
        print(&format!("{json}\n"))?;
    } else {
        print(&report.table())?;
    }
    Ok(ExitCode::from(u8::from(report.is_unsafe())))
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
