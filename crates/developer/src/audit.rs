//! `charge-once audit`: finds the double charge in a program that can't be changed.
//!
//! Promise: the program has a test account of its own, and its replies are lost by plan: the same
//! ones in each run that sends the same requests. The program's output and exit code are no
//! finding. If none of its requests arrived, nothing is known.

use std::{ffi::OsString, time::Duration};

use charge_once_client::NewFaultPlan;
use tokio::{process::Command, time::timeout};

use super::{
    BoxError,
    faults::{PlanArguments, show},
    print,
    report::Output,
    say,
    service::{Service, Stop},
};

const DEADLINE: Duration = Duration::from_secs(30);

/// How long the program may take to end once the audit is told to stop.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What is run, and against what.
#[derive(Debug, clap::Args)]
pub struct AuditArguments {
    /// A service that runs with FAULTS; CHARGE_ONCE_API_KEY must be its DEV_API_KEY. Default: a
    /// sandbox is started, which ends with the program.
    #[arg(long, env = "CHARGE_ONCE_URL")]
    url: Option<String>,
    /// The database of the sandbox: one for tests, whose DEV_API_KEY is replaced. Without it, the
    /// sandbox has a private PostgreSQL in ./.charge-once-audit.
    #[arg(long, conflicts_with = "url")]
    database_url: Option<String>,
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    output: Output,
    /// The program, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl AuditArguments {
    /// The service that runs, if one was named.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The database of the sandbox, if one was named.
    pub fn database_url(&self) -> Option<&str> {
        self.database_url.as_deref()
    }

    /// What was asked for. By default, most operations of a program that does one after the other
    /// meet a fault, and one that tries three times gets through.
    fn plans(&self) -> Vec<NewFaultPlan> {
        let asked = self.plan.plan();
        if asked.fault.is_some() {
            return vec![asked];
        }
        let of_all = |fault: &str, first, every| NewFaultPlan {
            route: Some("*".to_owned()),
            fault: Some(fault.to_owned()),
            first,
            every,
            ..NewFaultPlan::default()
        };
        vec![
            of_all("reply_lost", Some(1), None),
            of_all("reply_lost", None, Some(3)),
            of_all("503", None, Some(5)),
        ]
    }
}

/// What the caller of an audit knows.
#[derive(Debug)]
pub struct Audited<'a> {
    /// Where the service is.
    pub url: &'a str,
    /// Its `DEV_API_KEY`.
    pub dev_key: String,
    /// The types of findings.
    pub kinds: &'a [&'a str],
    /// Variables that the program gets besides.
    pub variables: &'a [(&'a str, String)],
}

/// Runs the program until its end or `stop`, prints what is wrong with it, and returns the exit
/// code.
pub async fn audit(
    arguments: &AuditArguments,
    audited: Audited<'_>,
    stop: &mut Stop,
) -> Result<u8, BoxError> {
    let url = audited.url;
    let service = Service::at(url.to_owned());
    let explain = |error| service.explain(error);
    let maker = service.client_with(audited.dev_key, DEADLINE)?;
    let account = maker.create_test_account()?.send().await;
    let account = account.map_err(explain)?;
    let client = service.client_with(account.api_key.clone(), DEADLINE)?;
    for plan in arguments.plans() {
        client
            .create_fault_plan(&plan)?
            .send()
            .await
            .map_err(explain)?;
    }
    let [program, rest @ ..] = &*arguments.command else {
        return Err("COMMAND is missing".into());
    };
    let name = program.display();
    let mut command = Command::new(program);
    command.args(rest).envs(variables(url, &account.api_key)?);
    command.envs(audited.variables.iter().cloned());
    let started = command.kill_on_drop(true).spawn();
    let mut process = started.map_err(|error| format!("{name} can't be started: {error}"))?;
    let ended = tokio::select! {
        ended = process.wait() => ended?,
        // A terminal has told the program, too.
        () = stop => match timeout(ENDS_WITHIN, process.wait()).await {
            Ok(ended) => ended?,
            Err(_) => {
                process.kill().await?;
                process.wait().await?
            }
        },
    };
    if !ended.success() {
        say(&format!("{name} ended with {ended}"));
    }
    let plans = client.list_fault_plans().await.map_err(explain)?.data;
    let report = client.retrieve_report(None).await.map_err(explain)?;
    if report.requests == 0 {
        return Err(format!(
            "{name} sent nothing to {url}: see docs/audit.md for ways to point a program here"
        )
        .into());
    }
    show(&plans)?;
    if report.faults == 0 {
        say("no fault acted: run more of the program, or plan others");
    }
    print("")?;
    arguments.output.tell(&report, audited.kinds)
}

/// What the program finds the service by: the names that charge-once and programs for Stripe read.
fn variables(url: &str, api_key: &str) -> Result<[(&'static str, String); 9], BoxError> {
    let base = url.trim_end_matches('/').trim_end_matches("/v1");
    let (scheme, rest) = base.split_once("://").ok_or("--url must be a whole URL")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let default_port = if scheme == "https" { "443" } else { "80" };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let parts = authority.rsplit_once(':').filter(|(_, port)| is_port(port));
    let (host, port) = parts.unwrap_or((authority, default_port));
    Ok([
        ("CHARGE_ONCE_URL", url.to_owned()),
        ("CHARGE_ONCE_API_KEY", api_key.to_owned()),
        ("STRIPE_API_KEY", api_key.to_owned()),
        ("STRIPE_SECRET_KEY", api_key.to_owned()),
        ("STRIPE_API_BASE", base.to_owned()),
        ("STRIPE_API_HOST", host.to_owned()),
        ("STRIPE_API_PORT", port.to_owned()),
        ("STRIPE_API_PROTOCOL", scheme.to_owned()),
        ("STRIPE_BASE", base.to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_host_port_and_scheme_of_any_url() {
        for (url, base, host, port) in [
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080",
                "127.0.0.1",
                "8080",
            ),
            (
                "https://pay.example/v1/",
                "https://pay.example",
                "pay.example",
                "443",
            ),
            ("http://[::1]", "http://[::1]", "[::1]", "80"),
        ] {
            let told = variables(url, "sk_test_1").unwrap();
            let value = |name| {
                told.iter()
                    .find(|(known, _)| *known == name)
                    .unwrap()
                    .1
                    .clone()
            };
            assert_eq!(value("STRIPE_API_BASE"), base);
            assert_eq!(value("STRIPE_API_HOST"), host);
            assert_eq!(value("STRIPE_API_PORT"), port);
            assert_eq!(value("CHARGE_ONCE_URL"), url);
        }
    }
}
