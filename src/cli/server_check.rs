//! `charge-once check --server`: whether the PostgreSQL server is one that charge-once can rely on.
//!
//! Promise: it writes nothing. Its exit code tells whether a start would succeed, and its lines
//! tell what else had better be changed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    BoxError, print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    database::{
        WhenRefused,
        checklist::{Finding, Verdict, checklist},
        shards::ShardUrl,
    },
};

/// Pause between two looks at a server that is not ready: short against the time that a migration
/// or a person takes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Prints the list of each server, and returns whether all are fit. `wait` is how long each may
/// take to become so.
pub(super) fn are_fit(
    config: &Config,
    only: &OnlyShard,
    json: bool,
    wait: Option<Duration>,
) -> Result<bool, BoxError> {
    only.prints_one(config, json)?;
    let mut are_fit = true;
    session::at(config, only, async |wanted| {
        for shard in wanted {
            if !config.shards.is_empty() {
                say(&format!("shard {}:", shard.name));
            }
            let findings = look(config, &shard, wait).await?;
            are_fit &= unmet(&findings).is_empty();
            match json {
                true => print(&as_json(&findings).to_string())?,
                false => show(&findings)?,
            }
        }
        Ok(())
    })?;
    Ok(are_fit)
}

/// Looks until all is as it must be, if there is something to wait for.
async fn look(
    config: &Config,
    shard: &ShardUrl,
    wait: Option<Duration>,
) -> Result<Vec<Finding>, BoxError> {
    let settings = config.database_settings(config.schema());
    let until = Instant::now() + wait.unwrap_or_default();
    let mut waited_for = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let when_refused = match wait {
            Some(_) => WhenRefused::WaitFor(left.max(LOOK_INTERVAL)),
            None => WhenRefused::GiveUp,
        };
        let connections = config.connections_per_database();
        let findings = checklist(&shard.url, settings, connections, when_refused).await?;
        let unmet = unmet(&findings);
        if unmet.is_empty() || left <= LOOK_INTERVAL {
            return Ok(findings);
        }
        if unmet != waited_for {
            say(&format!("waiting for what is not ok: {}", unmet.join(", ")));
            waited_for = unmet;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn unmet(findings: &[Finding]) -> Vec<&'static str> {
    let unmet = findings.iter().filter(|one| one.verdict == Verdict::NotOk);
    unmet.map(|one| one.setting).collect()
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::NotOk => "not ok",
        Verdict::Advice => "advice",
        Verdict::Unknown => "unknown",
    }
}

fn show(findings: &[Finding]) -> Result<(), BoxError> {
    for one in findings {
        let verdict = word(one.verdict);
        print(&format!("{verdict:<7}  {}: {}", one.setting, one.found))?;
        if let Some(remedy) = &one.remedy {
            print(&format!("         {remedy}"))?;
        }
    }
    print(&match unmet(findings).len() {
        0 => "The server has all that charge-once must have.".to_owned(),
        unmet => format!("{unmet} of {} must be changed.", findings.len()),
    })
}

fn as_json(findings: &[Finding]) -> Value {
    let settings = findings.iter().map(|one| {
        json!({
            "setting": one.setting,
            "verdict": word(one.verdict),
            "found": one.found,
            "remedy": one.remedy,
        })
    });
    json!({"fit": unmet(findings).is_empty(), "settings": settings.collect::<Value>()})
}
