//! `charge-once keys`: what is known of idempotency keys, for a person who was called.
//!
//! Promise: looking changes nothing. Bodies are not shown, because they may hold secrets. What is
//! said describes one moment: that nothing is stored never means that a new key is safe.

use clap::ArgGroup;
use serde_json::{Map, Value, json};

use super::{
    BoxError, aside, print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    database::{Database, PgConnection},
    domain::ids::{AccountId, EventId, RequestId},
    idempotency::{
        Failure, Idempotency, IdempotencyKey, KeyReport, LeasedKey, Settings, WantedKeys,
        list_leased_keys,
    },
    store::key_story::{self, KeyStory},
};

/// Keys that are listed, the oldest ones.
const LISTED_MAX: usize = 1000;

/// Requests with one key that are shown, the last ones.
const REQUESTS_MAX: i64 = 100;

/// What is looked at.
#[derive(Debug, clap::Subcommand)]
pub enum KeysCommand {
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
        #[command(flatten)]
        only: OnlyShard,
    },
}

pub(super) fn run(command: KeysCommand) -> Result<(), BoxError> {
    match command {
        KeysCommand::Show { key, account, json } => {
            // A step of a checkout has a key that no client can send.
            let parsed = match key.strip_prefix(',') {
                Some(step) => IdempotencyKey::reserved(step),
                None => IdempotencyKey::parse(key.as_bytes()),
            };
            let key =
                parsed.map_err(|error| format!("KEY can't be an idempotency key: {error}"))?;
            let config = aside::config()?;
            session::for_account(
                &config,
                &account,
                &OnlyShard::default(),
                async |database, account| {
                    let story = Story::read(database, &config, account, key).await?;
                    if json {
                        print(&story.as_json().to_string())
                    } else {
                        story.show()
                    }
                },
            )
        }
        KeysCommand::List {
            in_flight: _,
            in_doubt,
            account,
            json,
            only,
        } => {
            let config = aside::config()?;
            let wanted = |account_id| WantedKeys {
                account_id,
                key: None,
                in_doubt,
            };
            let Some(account) = account else {
                only.prints_one(&config, json)?;
                return session::each(&config, &only, async |database| {
                    list(database, wanted(None), json).await
                });
            };
            session::for_account(&config, &account, &only, async |database, account| {
                list(database, wanted(Some(account.0)), json).await
            })
        }
    }
}

/// Keys in flight with the names of their accounts.
type Named = Vec<(LeasedKey, String)>;

async fn list(database: &Database, wanted: WantedKeys, json: bool) -> Result<(), BoxError> {
    let one_more = i64::try_from(LISTED_MAX + 1)?;
    let reading = database.snapshot(move |connection| {
        Box::pin(async move { named(connection, &wanted, one_more).await })
    });
    let mut leased = reading.await?;
    let has_more = leased.len() > LISTED_MAX;
    leased.truncate(LISTED_MAX);
    if json {
        let keys = leased.iter().map(|(one, name)| leased_to_json(one, name));
        let keys: Value = keys.collect();
        return print(&json!({"keys": keys, "has_more": has_more}).to_string());
    }
    if leased.is_empty() {
        say("there are no such keys");
    }
    for (one, account_name) in &leased {
        print(&format!(
            "{}  {account_name}  {} {}  since {:.0}  {}",
            one.key,
            one.request.method,
            one.request.path,
            one.request.created_at.unwrap_or_default(),
            one.standing(),
        ))?;
    }
    if has_more {
        say("there are more: only the oldest 1000 are shown");
    }
    Ok(())
}

async fn named(
    connection: &mut PgConnection,
    wanted: &WantedKeys,
    limit: i64,
) -> Result<Named, sqlx::Error> {
    let leased = list_leased_keys(connection, wanted, limit).await?;
    let accounts: Vec<_> = leased.iter().map(|one| one.account_id).collect();
    let names = charge_once_api_keys::names_of_accounts(connection, &accounts).await?;
    let named = leased.into_iter().map(|one| {
        let name = names.get(&one.account_id).cloned();
        (one, name.unwrap_or_default())
    });
    Ok(named.collect())
}

fn leased_to_json(one: &LeasedKey, account_name: &str) -> Map<String, Value> {
    let mut told = one.to_json();
    let account = AccountId(one.account_id).to_string();
    told.insert("account".to_owned(), account.into());
    told.insert("account_name".to_owned(), account_name.into());
    told
}

/// All that is known of one key.
struct Story {
    account: AccountId,
    account_name: String,
    report: KeyReport,
    logged: KeyStory,
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
        let wanted = WantedKeys {
            account_id: Some(account.0),
            key: Some(text.clone()),
            in_doubt: false,
        };
        let (of_key, first) = (text.clone(), found.request());
        let reading = database.snapshot(move |connection| {
            Box::pin(async move {
                let lease = named(connection, &wanted, 1).await?.pop();
                let executed = first.as_ref().map(|first| &*first.request_id);
                let story = key_story::read(connection, account, &of_key, executed, REQUESTS_MAX);
                Ok((lease, story.await?))
            })
        });
        let (lease, logged) = reading.await?;
        let (lease, account_name) = lease.unzip();
        Ok(Self {
            account,
            account_name: account_name.unwrap_or_default(),
            report: KeyReport {
                key: text,
                found,
                lease,
            },
            logged,
        })
    }

    fn show(&self) -> Result<(), BoxError> {
        self.report
            .lines()
            .iter()
            .try_for_each(|line| print(line))?;
        for event in &self.logged.events {
            let object = event.object_id.as_deref().unwrap_or("-");
            print(&format!(
                "event    {:.0}  {}  {}  {object}",
                event.created_at,
                EventId(event.id),
                event.event_type
            ))?;
        }
        for request in &self.logged.requests {
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
        let mut story = self.report.to_json();
        let mut tell = |name: &str, value: Value| story.insert(name.to_owned(), value);
        tell("account", self.account.to_string().into());
        if let Some(lease) = &self.report.lease {
            tell("lease", leased_to_json(lease, &self.account_name).into());
        }
        let events = self.logged.events.iter().map(|event| {
            json!({
                "id": EventId(event.id).to_string(),
                "type": event.event_type,
                "object": event.object_id,
                "created_at": event.created_at,
            })
        });
        tell("events", events.collect());
        let requests = self.logged.requests.iter().map(|request| {
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
