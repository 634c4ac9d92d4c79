//! `charge-once keys`: what is known of idempotency keys, for a person who was called.
//!
//! Promise: looking changes nothing, and no key is forgotten that is in flight or in doubt. Bodies
//! are not shown, because they may hold secrets. What is said describes one moment: that nothing is
//! stored never means that a new key is safe.

use charge_once_postgres::api_keys::{Stay, find_moving};
use serde_json::{Value, json};
use sqlx::Connection;

use super::{
    BoxError, api_key, aside,
    named::{Names, ensure_person},
    print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    database::{Database, Shard, shards::Reached},
    domain::ids::{AccountId, EventId, RequestId},
    idempotency::{
        Expired, Failure, ForgottenKey, IdempotencyKey, Inspected, KeyReport, LeasedKey,
        WantedKeys, acknowledged, forget_key, list_leased_keys, sealed_key,
    },
    server,
    store::key_story::{self, KeyStory},
    telemetry::requests::short_hash,
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
    ///
    /// The exit code is 0 if something is known of the key, and 1 if nothing is, or if the command
    /// failed.
    Show {
        /// The key, as the client sent it.
        key: String,
        /// The account's name, or its id. Without it, the account is found by the key.
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Makes a key new: removes its outcome, and what is remembered of it. The next request with it
    /// is executed, whatever the first one did.
    ///
    /// Without --yes, it shows what it would remove. A key in flight or in doubt is left alone. A
    /// server that has the reply in memory may still answer with it, until it is restarted.
    Forget {
        /// The key, as the client sent it.
        key: String,
        /// The account's name, or its id. Without it, the account is found by the key.
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Your name: 1 to 100 characters, for the log.
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Removes it.
        #[arg(long)]
        yes: bool,
    },
    /// Lists keys in flight, the oldest first, 1000 at most.
    ///
    /// These are keys of requests that take several transactions: with a card processor across a
    /// network, and checkouts. A key that is used by one transaction can't be seen before its end.
    List {
        /// All that have no outcome yet (the default).
        #[arg(long)]
        in_flight: bool,
        /// Those of which an attempt may have been executed, and its answer is not known.
        #[arg(long, conflicts_with = "in_flight")]
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
            with_owner(&config, account, &key, async |database, account| {
                let story = Story::read(database, &config, account, &key).await?;
                match json {
                    true => print(&story.as_json().to_string())?,
                    false => story.show()?,
                }
                match story.is_of_something() {
                    true => Ok(()),
                    false => Err("nothing is known of this key".into()),
                }
            })
        }
        KeysCommand::Forget {
            key,
            account,
            by,
            yes,
        } => {
            ensure_person(&by)?;
            let key = IdempotencyKey::parse(key.as_bytes())
                .map_err(|error| format!("KEY can't be an idempotency key: {error}"))?;
            let config = aside::config()?;
            with_owner(&config, account, &key, async |database, account| {
                let story = Story::read(database, &config, account, &key).await?;
                story.show()?;
                if matches!(story.report.found, Inspected::InFlight(_)) {
                    return Err("nothing was removed: a request with this key is at work".into());
                }
                if !yes {
                    return Err(
                        "nothing was removed. With --yes, the key is new, and the next request \
                                with it is executed"
                            .into(),
                    );
                }
                forget(database, &story, &key, &by).await?;
                let now = Story::read(database, &config, account, &key).await?;
                match now.report.found {
                    Inspected::Nothing => print(
                        "The key is new: the next request with it is executed. A server that has the \
                         reply in memory may answer with it, until it is restarted.",
                    ),
                    Inspected::Expired(Expired { at: None, .. }) => Err(
                        "nothing is stored of the key any more, and it is still refused: the time in \
                         it is too old, and REFUSE_OLD_KEYS is set"
                            .into(),
                    ),
                    Inspected::Completed(_) | Inspected::InFlight(_) | Inspected::Expired(_) => {
                        Err("a request with this key has come meanwhile".into())
                    }
                }
            })
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

/// Does one thing with a key's account, in its database. Without its name, that is the one account
/// that has used the key.
fn with_owner(
    config: &Config,
    account: Option<String>,
    key: &IdempotencyKey,
    work: impl AsyncFnOnce(&Database, AccountId) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let anywhere = OnlyShard::default();
    match account {
        Some(account) => session::for_account(config, &account, &anywhere, work),
        None => session::once(config, &anywhere, async |reached| {
            let (shard, account) = owner(reached, key).await?;
            work(&shard.database, account).await
        }),
    }
}

/// Removes what the story tells of: not what has come since.
async fn forget(
    database: &Database,
    story: &Story,
    key: &IdempotencyKey,
    by: &str,
) -> Result<(), BoxError> {
    let account = story.account;
    let first = story.report.found.request();
    let first = first.as_ref().map(|first| &*first.request_id);
    let mut connection = database.connect_aside().await?;
    let forgetting = forget_key(&mut connection, account.0, key.as_str(), first);
    let forgotten = acknowledged(forgetting).await?;
    let ForgottenKey {
        request,
        resource_id,
    } = forgotten.ok_or(
        "nothing was removed: nothing is stored of this key, or another request with it has come \
         meanwhile",
    )?;
    connection.close().await?;
    let key = short_hash(account, key);
    tracing::warn!(%account, %key, by, "a person has made a key new");
    let what = match request {
        Some((method, path, status)) => format!("{method} {path}, answered {status}"),
        None => "what was remembered of the key".to_owned(),
    };
    let about = resource_id.map_or_else(String::new, |id| format!(", about {id}"));
    print(&format!("Removed: {what}{about}."))
}

/// The one account that has used a key, and where it lives.
async fn owner(
    reached: Vec<Reached>,
    key: &IdempotencyKey,
) -> Result<(Shard, AccountId), BoxError> {
    let (shards, failed) = api_key::split(reached)?;
    let several = shards.len() > 1;
    let mut found = Vec::new();
    for shard in shards.iter() {
        let key = key.as_str().to_owned();
        let reading = shard.database.snapshot(move |connection| {
            Box::pin(async move {
                let mut accounts = key_story::find_accounts(connection, &key).await?;
                if several {
                    let ids: Vec<_> = accounts.iter().map(|account| account.0).collect();
                    let moving = find_moving(connection, &ids).await?;
                    // Of two homes, the new one is meant.
                    accounts.retain(|account| moving.get(&account.0) != Some(&Stay::Leaving));
                }
                let names = Names::of(connection, accounts.iter().copied()).await?;
                let told = accounts.into_iter().map(|id| (id, names.told(id)));
                Ok(told.collect::<Vec<_>>())
            })
        });
        let accounts = reading.await?.into_iter();
        found.extend(accounts.map(|account| (shard.clone(), account)));
    }
    if !failed.is_empty() {
        let failed = failed.join(", ");
        return Err(format!("{failed} may have the key: say whose it is with --account").into());
    }
    if found.len() > 1 {
        let accounts: Vec<_> = found.into_iter().map(|(_, (_, told))| told).collect();
        let accounts = accounts.join(", ");
        return Err(format!("several accounts have this key: {accounts}. Choose --account").into());
    }
    let (shard, (account, _)) = found.pop().ok_or(
        "no account has a record of this key, or a request with it in its log. One that is at work \
         on it may have committed nothing yet: --account finds it",
    )?;
    Ok((shard, account))
}

async fn list(database: &Database, wanted: WantedKeys, json: bool) -> Result<(), BoxError> {
    let one_more = i64::try_from(LISTED_MAX + 1)?;
    let reading = database.snapshot(move |connection| {
        Box::pin(async move {
            let leased = list_leased_keys(&mut *connection, &wanted, one_more).await?;
            let accounts = leased.iter().map(|one| AccountId(one.account_id));
            let names = Names::of(connection, accounts).await?;
            Ok((leased, names))
        })
    });
    let (mut leased, names) = reading.await?;
    let has_more = leased.len() > LISTED_MAX;
    leased.truncate(LISTED_MAX);
    if json {
        let keys = leased.iter().map(|one| leased_to_json(one, &names));
        let keys: Value = keys.collect();
        return print(&json!({"keys": keys, "has_more": has_more}).to_string());
    }
    if leased.is_empty() {
        say("there are no such keys");
    }
    for one in &leased {
        print(&format!(
            "{}  {}  {} {}  since {:.0}  {}",
            one.key,
            names.told(AccountId(one.account_id)),
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

fn leased_to_json(one: &LeasedKey, names: &Names) -> Value {
    names.tell(AccountId(one.account_id), &one.key, one.to_json().into())
}

struct Story {
    account: AccountId,
    names: Names,
    report: KeyReport,
    logged: KeyStory,
}

impl Story {
    async fn read(
        database: &Database,
        config: &Config,
        account: AccountId,
        key: &IdempotencyKey,
    ) -> Result<Self, BoxError> {
        let text = key.as_str().to_owned();
        let idempotency = server::idempotency(database, config)?;
        let inspected = idempotency.inspect(account.0, key.clone()).await;
        let found = inspected.map_err(|Failure { cause, .. }| cause.to_string())?;
        let wanted = WantedKeys {
            account_id: Some(account.0),
            key: Some(text.clone()),
            in_doubt: false,
        };
        let keys = [text.clone(), sealed_key(account.0, &text)];
        let first = found.request();
        let reading = database.snapshot(move |connection| {
            Box::pin(async move {
                let lease = list_leased_keys(&mut *connection, &wanted, 1).await?.pop();
                let names = Names::of(&mut *connection, [account].into_iter()).await?;
                let executed = first.as_ref().map(|first| &*first.request_id);
                let story = key_story::read(connection, account, &keys, executed, REQUESTS_MAX);
                Ok((lease, names, story.await?))
            })
        });
        let (lease, names, logged) = reading.await?;
        Ok(Self {
            account,
            names,
            report: KeyReport {
                key: text,
                found,
                lease,
            },
            logged,
        })
    }

    fn is_of_something(&self) -> bool {
        !matches!(self.report.found, Inspected::Nothing) || !self.logged.requests.is_empty()
    }

    fn show(&self) -> Result<(), BoxError> {
        print(&format!("account  {}", self.names.told(self.account)))?;
        for line in self.report.lines() {
            print(&line)?;
        }
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
        if let Some(lease) = &self.report.lease {
            tell("lease", leased_to_json(lease, &self.names));
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
        self.names
            .tell(self.account, &self.report.key, Value::Object(story))
    }
}
