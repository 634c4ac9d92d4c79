//! Tries to make any HTTP API do the same thing twice under one idempotency key, and any receiver
//! of webhooks under one event.
//!
//! ```text
//! config.rs   what the API is: requests, how effects are counted, what it promises
//! api.rs      sends requests, retries them, counts effects
//! signature.rs  how deliveries of webhooks are signed
//! history.rs  what was sent under which key, and what came back
//! proxy.rs    loses replies
//! checks/     the checks: they follow the steps that `vectors/` has, or a procedure of theirs
//! storm.rs    many clients at once, and what must hold of all that they were told
//! report.rs   a table for people, JSON, JUnit XML
//! page.rs     a page, with what was sent and told drawn on an axis of time
//! ```
//!
//! A check says *holds*, *violated*, or *not known* if the config doesn't have what it needs.

mod api;
mod checks;
mod config;
mod history;
mod page;
mod proxy;
mod report;
mod signature;
mod storm;

use std::time::{Duration, Instant};

pub use api::{Crash, Service};
pub use checks::{CHECKS, Check, Mend, RECEIVER_CHECKS, Severity};
pub use config::{Config, ConfigError, PRESETS, init, target};
pub use report::{Finding, Grade, Report, harmless};
pub use reqwest::Url;
pub use signature::Scheme;

use api::Api;
use checks::{Flaw, unknown};
use config::Replay;

/// No check takes longer. With the bounds of the load it ends long before.
const CHECK_LIMIT: Duration = Duration::from_secs(900);

/// Runs the checks, one after the other. `only`: those of these names, or all if it is empty.
/// `progress` is told what begins: its number, how many there are, its name. Fails if the request
/// that makes an effect doesn't, or its effect isn't counted: nothing could be checked.
pub async fn run(
    config: Config,
    service: Service,
    only: &[String],
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<Report, ConfigError> {
    let checks = config.all_checks();
    let is_known = |name: &String| checks.iter().any(|check| check.name == *name);
    if let Some(unknown) = only.iter().find(|name| !is_known(name)) {
        return Err(ConfigError(format!("there is no check {unknown}")));
    }
    let is_wanted = |check: &&Check| only.is_empty() || only.contains(&check.name);
    let wanted: Vec<&'static Check> = checks.iter().filter(is_wanted).collect();
    let api = Api::new(config, service)?;
    probe(&api).await?;
    let mut findings = Vec::new();
    for (number, check) in wanted.iter().enumerate() {
        progress(number + 1, wanted.len(), &check.name);
        let began = Instant::now();
        let seen = tokio::time::timeout(CHECK_LIMIT, Box::pin(check.run(&api))).await;
        let seen = seen.unwrap_or_else(|_| unknown("the check did not end in time"));
        let last = || api.history.of_last_key();
        let finding = Finding::new(check, seen, began.elapsed(), last);
        api.keep(&finding);
        findings.push(finding);
    }
    let mut service = api.url().clone();
    // A URL of HTTP can be without them.
    let _ = (service.set_username(""), service.set_password(None));
    service.set_query(None);
    let service = service.to_string();
    Ok(Report { service, findings })
}

/// Whether the config describes an API that works at all.
async fn probe(api: &Api) -> Result<(), ConfigError> {
    let ask = api.effect();
    let seen = async {
        let tally = api.tally(&[&ask]).await?;
        let made = api.executed(&ask).await?;
        let promises = &api.config.promises;
        if promises.replay != Replay::Bytes && promises.id(&made.body).is_none() {
            let pointer = &promises.replay_id;
            return unknown(format!(
                "promises.replay_id: nothing is at {pointer} of {made}"
            ));
        }
        match tally.made_by_first(1).await? {
            None | Some(1) => Ok(()),
            Some(made) => unknown(format!(
                "one request was sent, and [count] counted {made} effects"
            )),
        }
    };
    seen.await.map_err(|flaw: Flaw| {
        let what = match flaw {
            Flaw::Unknown(what) => what,
            Flaw::Wrong(fault) => fault.seen,
        };
        ConfigError(format!("the request of [effect] does not work: {what}"))
    })
}
