//! `charge-once check`: whether everything that must always hold does, in the rows of all accounts.
//! With `--server`, what is looked at is the PostgreSQL server instead (`server_check.rs`).
//!
//! Promise: it reads in one snapshot, beside a running server and its requests. "It holds" is said
//! of all invariants or of none: where one could not be checked, that is an error. Afterwards it
//! writes down how many violations there were, for the servers' metrics, if the role may, and
//! nothing else.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sqlx::Connection;

use super::{
    BoxError, aside, print, say, server_check,
    session::{self, OnlyShard},
};
use crate::{
    database::{Database, plain},
    store::{
        invariants::{FOUND_MAX, INVARIANTS, Invariant, Violations},
        last_check,
    },
};

/// The exit code if something doesn't hold, or if a server must be changed.
const VIOLATED: u8 = 1;

/// The exit code if something could not be checked.
const NOT_KNOWN: u8 = 2;

/// How it is checked and shown.
#[derive(Debug, clap::Args)]
pub struct CheckArguments {
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// How long all of it may take, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = aside::limit)]
    timeout: Duration,
    /// Looks at the settings of the PostgreSQL server instead, as the role that serves, and says
    /// what to change.
    #[arg(long, conflicts_with = "timeout")]
    server: bool,
    /// With --server: how long to wait until all is as it must be, from 1s to 24h.
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = aside::limit)]
    wait: Option<Duration>,
    #[command(flatten)]
    only: OnlyShard,
}

struct Checked {
    invariant: &'static Invariant,
    violations: Violations,
    took: Duration,
}

pub(super) fn run(arguments: &CheckArguments) -> ExitCode {
    let code = check(arguments).unwrap_or_else(|error| {
        say(&format!("nothing is known: {error}"));
        NOT_KNOWN
    });
    ExitCode::from(code)
}

fn check(arguments: &CheckArguments) -> Result<u8, BoxError> {
    let config = aside::config()?;
    if arguments.server {
        let are_fit =
            server_check::are_fit(&config, &arguments.only, arguments.json, arguments.wait)?;
        return Ok(if are_fit { 0 } else { VIOLATED });
    }
    let kept = config.retention.events;
    arguments.only.prints_one(&config, arguments.json)?;
    let mut code = 0;
    let all = session::each(&config, &arguments.only, async |database| {
        let checked = check_all(database, arguments.timeout, kept).await?;
        record(database, &checked, config.values.database_deadline).await;
        if tell(&checked, arguments.json)? > 0 {
            code = VIOLATED;
        }
        Ok(())
    });
    match all {
        // What was found counts more than what could not be looked at.
        Err(error) if code == VIOLATED => say(&error.to_string()),
        all => all?,
    }
    Ok(code)
}

/// Prints what was found, and returns how many invariants do not hold.
fn tell(checked: &[Checked], json: bool) -> Result<usize, BoxError> {
    let violated = checked.iter().filter(|one| !one.holds()).count();
    if json {
        print(&as_json(checked).to_string())?;
        return Ok(violated);
    }
    for one in checked {
        show(one)?;
    }
    print(&match violated {
        0 => format!("All {} invariants hold.", checked.len()),
        _ => format!("{violated} of {} invariants do not hold.", checked.len()),
    })?;
    Ok(violated)
}

async fn check_all(
    database: &Database,
    limit: Duration,
    kept: Option<Duration>,
) -> Result<Vec<Checked>, BoxError> {
    aside::look(database, limit, async |snapshot| {
        let mut checked = Vec::new();
        for (number, invariant) in (1..).zip(INVARIANTS) {
            let (name, all) = (invariant.name, INVARIANTS.len());
            say(&format!("checking {name}, {number} of {all}"));
            let began = Instant::now();
            let violations = invariant.violations(snapshot, kept).await;
            checked.push(Checked {
                invariant,
                violations: violations.map_err(|error| format!("{name}: {}", plain(&error)))?,
                took: began.elapsed(),
            });
        }
        Ok(checked)
    })
    .await
}

/// Writes down what was found. A role that may only read is no reason to keep the result to itself.
async fn record(database: &Database, checked: &[Checked], limit: Duration) {
    let violations: usize = checked.iter().map(|one| one.violations.found.len()).sum();
    let recording = async {
        let mut connection = database.connect_aside().await?;
        let violations = i32::try_from(violations).unwrap_or(i32::MAX);
        last_check::save(&mut connection, violations).await?;
        connection.close().await
    };
    let complaint = match tokio::time::timeout(limit, recording).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => {
            let error = plain(&error);
            format!("{error}. The role needs INSERT and UPDATE on last_check")
        }
        Err(_) => "the database did not answer in time".to_owned(),
    };
    say(&format!(
        "the metrics of the servers won't show this check: {complaint}"
    ));
}

impl Checked {
    fn holds(&self) -> bool {
        self.violations.found.is_empty()
    }
}

fn show(checked: &Checked) -> Result<(), BoxError> {
    let Checked {
        invariant,
        violations,
        took,
    } = checked;
    let holds = if checked.holds() { "ok   " } else { "WRONG" };
    print(&format!(
        "{holds}  {}: {}  ({took:.1?})",
        invariant.name, invariant.promise
    ))?;
    for violation in &violations.found {
        print(&format!(
            "       {}  {}: {}",
            violation.account, violation.object, violation.found
        ))?;
    }
    if violations.has_more {
        print(&format!("       and more than these {FOUND_MAX}"))?;
    }
    Ok(())
}

fn as_json(checked: &[Checked]) -> Value {
    let invariants = checked.iter().map(|one| {
        let violations = one.violations.found.iter().map(|violation| {
            json!({
                "account": violation.account.to_string(),
                "object": violation.object,
                "found": violation.found,
            })
        });
        json!({
            "name": one.invariant.name,
            "promise": one.invariant.promise,
            "holds": one.holds(),
            "violations": violations.collect::<Value>(),
            "has_more": one.violations.has_more,
            "milliseconds": u64::try_from(one.took.as_millis()).unwrap_or(u64::MAX),
        })
    });
    json!({
        "holds": checked.iter().all(Checked::holds),
        "invariants": invariants.collect::<Value>(),
    })
}
