//! `charge-once keys`: what is known of idempotency keys, for a person who was called.
//!
//! Promise: looking changes nothing. Bodies are not shown, because they may hold secrets. What is
//! said describes one moment: that nothing is stored never means that a new key is safe.

use charge_once_request_log::LoggedRequest;
use clap::ArgGroup;
use serde_json::{Value, json};

use super::{BoxError, api_key::account_named, aside, print, say, session};
use crate::{
    config::Config,
    database::Database,
    domain::ids::{AccountId, EventId, RequestId},
    idempotency::{
        Failure, Idempotency, IdempotencyKey, Inspected, KnownRequest, Record, Settings,
    },
    store::{
        self,
        key_story::{self, KeyStory},
        leases::{Lease, Wanted},
    },
    webhooks::events::Happened,
};

/// Keys that are listed, the oldest ones.
const LISTED_MAX: usize = 1000;

/// Requests with one key that are shown, the last ones.
const REQUESTS_MAX: i64 = 100;

/// What is looked at.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Shows what is known of one key: its first request, its outcome, its lease, what it changed,
    /// and the requests with it that the request log has.
    Show {
        /// The key, as the client sent it.
        key: String,
        /// The account's name, or its id.
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Lists keys in flight, the oldest first, 1000 at most.
    ///
    /// These are keys of requests that take several transactions: with a card processor across a
    /// network, and checkouts. A key that is used by one transaction can't be seen before its end.
    #[command(group = ArgGroup::new("which").required(true))]
    List {
        /// All that have no outcome yet.
        #[arg(long, group = "which")]
        in_flight: bool,
        /// Those of which an attempt may have been executed, and its answer is not known.
        #[arg(long, group = "which")]
        in_doubt: bool,
        /// Only those of one account: its name, or its id.
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: Command) -> Result<(), BoxError> {
    match command {
        Command::Show { key, account, json } => {
            // A step of a checkout has a key that no client can send.
            let parsed = match key.strip_prefix(',') {
                Some(step) => IdempotencyKey::reserved(step),
                None => IdempotencyKey::parse(key.as_bytes()),
            };
            let key =
                parsed.map_err(|error| format!("KEY can't be an idempotency key: {error}"))?;
            let config = aside::config()?;
            session::once(&config, async |database| {
                let account = account_named(database, &account).await?;
                let story = Story::read(database, &config, account, key).await?;
                if json {
                    print(&story.as_json().to_string())
                } else {
                    story.show()
                }
            })
        }
        Command::List {
            in_flight: _,
            in_doubt,
            account,
            json,
        } => session::once(&aside::config()?, async |database| {
            let account = match account {
                Some(account) => Some(account_named(database, &account).await?),
                None => None,
            };
            let wanted = Wanted {
                account,
                key: None,
                in_doubt,
            };
            list(database, wanted, json).await
        }),
    }
}

async fn list(database: &Database, wanted: Wanted, json: bool) -> Result<(), BoxError> {
    let one_more = i64::try_from(LISTED_MAX + 1)?;
    let mut leases = database
        .read(move |connection| {
            Box::pin(async move { store::leases::list(connection, &wanted, one_more).await })
        })
        .await?;
    let has_more = leases.len() > LISTED_MAX;
    leases.truncate(LISTED_MAX);
    if json {
        let keys: Value = leases.iter().map(lease_as_json).collect();
        return print(&json!({"keys": keys, "has_more": has_more}).to_string());
    }
    if leases.is_empty() {
        say("there are no such keys");
    }
    for lease in &leases {
        print(&format!(
            "{}  {}  {} {}  since {:.0}  {}",
            lease.key,
            lease.account_name,
            lease.method,
            lease.path,
            lease.created_at,
            standing(lease),
        ))?;
    }
    if has_more {
        say("there are more: only the oldest 1000 are shown");
    }
    Ok(())
}

/// Who works on it, and what is known of its effect.
fn standing(lease: &Lease) -> String {
    let doubt = if lease.in_doubt {
        "in doubt"
    } else {
        "not in doubt"
    };
    let work = if lease.is_held {
        "a process is at work on it".to_owned()
    } else {
        format!(
            "the reconciler continues it after {:.0}",
            lease.recover_after
        )
    };
    format!(
        "{doubt}, taken over {} times, {work}; operation {}",
        lease.takeovers, lease.operation
    )
}

fn lease_as_json(lease: &Lease) -> Value {
    json!({
        "key": lease.key,
        "account": lease.account.to_string(),
        "account_name": lease.account_name,
        "request": lease.request_id,
        "method": lease.method,
        "path": lease.path,
        "created_at": lease.created_at,
        "operation": lease.operation,
        "in_doubt": lease.in_doubt,
        "takeovers": lease.takeovers,
        "is_held": lease.is_held,
        "leased_until": lease.leased_until,
        "recover_after": lease.recover_after,
    })
}

/// All that is known of one key.
struct Story {
    account: AccountId,
    key: String,
    found: Inspected,
    lease: Option<Lease>,
    events: Vec<Happened>,
    requests: Vec<LoggedRequest>,
}

impl Story {
    async fn read(
        database: &Database,
        config: &Config,
        account: AccountId,
        key: IdempotencyKey,
    ) -> Result<Self, BoxError> {
        let settings = Settings {
            retention: config.idempotency_ttl,
            database_deadline: config.timeouts.database_deadline,
        };
        let text = key.as_str().to_owned();
        let idempotency = Idempotency::new(database.connections().clone(), settings)?;
        let inspected = idempotency.inspect(account.0, key).await;
        let found = inspected.map_err(|Failure { cause, .. }| cause.to_string())?;
        let wanted = Wanted {
            account: Some(account),
            key: Some(text.clone()),
            in_doubt: false,
        };
        let (of_key, executed) = (text.clone(), found.request_id().map(str::to_owned));
        let reading = database.snapshot(move |connection| {
            Box::pin(async move {
                let lease = store::leases::list(connection, &wanted, 1).await?.pop();
                let executed = executed.as_deref();
                let story = key_story::read(connection, account, &of_key, executed, REQUESTS_MAX);
                Ok((lease, story.await?))
            })
        });
        let (lease, KeyStory { requests, events }) = reading.await?;
        Ok(Self {
            account,
            key: text,
            found,
            lease,
            events,
            requests,
        })
    }

    fn state(&self) -> &'static str {
        match (&self.found, &self.lease) {
            (Inspected::Completed(_), _) => "completed",
            (Inspected::InFlight(_), Some(lease)) if lease.in_doubt => "in_doubt",
            (Inspected::InFlight(_), _) => "in_flight",
            (Inspected::Nothing, _) => "nothing",
        }
    }

    fn show(&self) -> Result<(), BoxError> {
        let state = match self.state() {
            "in_doubt" => "in flight, and in doubt: an attempt may have been executed",
            "in_flight" => "in flight: a retry with this key is safe",
            "nothing" => {
                "nothing is stored now, and no request is at work. It was never used, it has \
                 expired, or its request failed. Only a retry with the same key is safe"
            }
            completed => completed,
        };
        print(&format!("key      {}\nstate    {state}", self.key))?;
        match &self.found {
            Inspected::Completed(record) => show_record(record)?,
            Inspected::InFlight(Some(request)) => show_request(request)?,
            Inspected::InFlight(None) => {
                print("request  another process is at work on it, and has committed nothing yet")?;
            }
            Inspected::Nothing => {}
        }
        if let Some(lease) = &self.lease {
            print(&format!("lease    {}", standing(lease)))?;
        }
        for event in &self.events {
            let object = event.object_id.as_deref().unwrap_or("-");
            print(&format!(
                "event    {:.0}  {}  {}  {object}",
                event.created_at,
                EventId(event.id),
                event.event_type
            ))?;
        }
        for request in &self.requests {
            let id = RequestId(request.id);
            let status = request.status.map_or("-".to_owned(), |it| it.to_string());
            print(&format!(
                "log      {:.0}  {id}  {status}  {}  {:.1?}",
                id.made_at(),
                request.outcome.as_str(),
                request.duration,
            ))?;
        }
        Ok(())
    }

    fn as_json(&self) -> Value {
        let known = match &self.found {
            Inspected::Completed(record) => record_as_json(record),
            Inspected::InFlight(Some(request)) => request_as_json(request),
            Inspected::InFlight(None) | Inspected::Nothing => json!({}),
        };
        let mut story = known.as_object().cloned().unwrap_or_default();
        let mut tell = |name: &str, value: Value| story.insert(name.to_owned(), value);
        tell("account", self.account.to_string().into());
        tell("key", self.key.clone().into());
        tell("state", self.state().into());
        tell("lease", self.lease.as_ref().map(lease_as_json).into());
        let events = self.events.iter().map(|event| {
            json!({
                "id": EventId(event.id).to_string(),
                "type": event.event_type,
                "object": event.object_id,
                "created_at": event.created_at,
            })
        });
        tell("events", events.collect());
        let requests = self.requests.iter().map(|request| {
            let id = RequestId(request.id);
            json!({
                "id": id.to_string(),
                "came_at": id.made_at(),
                "status": request.status,
                "outcome": request.outcome.as_str(),
                "microseconds": u64::try_from(request.duration.as_micros()).unwrap_or(u64::MAX),
            })
        });
        tell("requests", requests.collect());
        Value::Object(story)
    }
}

fn show_record(record: &Record) -> Result<(), BoxError> {
    print(&format!(
        "request  {} {}  {}\nreply    {}{}\nused     {:.0}, expires {:.0}\nprint    {}{}",
        record.method,
        record.path,
        record.request_id,
        record.reply.status,
        about(record.reply.resource_id.as_deref()),
        record.created_at,
        record.expires_at,
        hex::encode(&record.fingerprint),
        workflow(record.label.as_deref()),
    ))
}

fn show_request(request: &KnownRequest) -> Result<(), BoxError> {
    let used = request
        .created_at
        .map_or(String::new(), |at| format!("\nused     {at:.0}"));
    print(&format!(
        "request  {} {}  {}{}{used}\nprint    {}{}",
        request.method,
        request.path,
        request.request_id,
        about(request.resource_id.as_deref()),
        hex::encode(&request.fingerprint),
        workflow(request.label.as_deref()),
    ))
}

fn about(resource: Option<&str>) -> String {
    resource.map_or(String::new(), |id| format!(", about {id}"))
}

fn workflow(label: Option<&str>) -> String {
    label.map_or(String::new(), |name| format!("\nworkflow {name}"))
}

fn record_as_json(record: &Record) -> Value {
    json!({
        "request": record.request_id,
        "method": record.method,
        "path": record.path,
        "status": record.reply.status,
        "resource": record.reply.resource_id,
        "workflow": record.label,
        "fingerprint": hex::encode(&record.fingerprint),
        "created_at": record.created_at,
        "expires_at": record.expires_at,
    })
}

fn request_as_json(request: &KnownRequest) -> Value {
    json!({
        "request": request.request_id,
        "method": request.method,
        "path": request.path,
        "resource": request.resource_id,
        "workflow": request.label,
        "fingerprint": hex::encode(&request.fingerprint),
        "created_at": request.created_at,
    })
}
