//! `charge-once shards`: what each database keeps and has to do, which accounts make it, and which
//! moves would even it out.
//!
//! Promise: it only looks. What it says of rows is an estimate of PostgreSQL's.

mod plan;

use std::{collections::HashMap, num::NonZeroU8, sync::Arc, time::Duration};

use chrono::Utc;
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use self::plan::{Burden, Proposal, burdens, plan};
use super::{
    BoxError, aside, print, say,
    session::{self, OnlyShard},
};
use crate::{
    database::{
        move_account::KnownMove,
        plain,
        shard_load::{AccountLoad, ShardLoad, Standby},
        shards::Reached,
    },
    domain::ids::AccountId,
};

/// Accounts that are shown of each database, the largest ones.
const SHOWN: usize = 10;

/// How databases are shown.
#[derive(Debug, clap::Args)]
pub struct ShardsArguments {
    /// Prints one JSON document about all of them.
    #[arg(long)]
    json: bool,
    /// Proposes at most this many moves that would even out what databases have to do. It moves
    /// nothing.
    #[arg(long, value_name = "N")]
    plan: Option<NonZeroU8>,
    /// How long the look at a database may take, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = aside::limit)]
    timeout: Duration,
}

/// A database, or why nothing is known of it.
type Looked = (Arc<str>, Result<ShardLoad, BoxError>);

pub(super) fn run(arguments: &ShardsArguments) -> Result<(), BoxError> {
    let config = aside::config()?;
    let is_sharded = !config.shards.is_empty();
    session::once(&config, &OnlyShard::default(), async |reached| {
        let looks = reached.into_iter().map(async |(name, database): Reached| {
            let looking = async {
                aside::look(&database?, arguments.timeout, async |snapshot| {
                    let load = ShardLoad::read(snapshot, is_sharded).await;
                    load.map_err(|error| BoxError::from(plain(&error)))
                })
                .await
            };
            (name, looking.await)
        });
        let looked = join_all(looks).await;
        let report = ShardReport::of(&looked, arguments.plan.filter(|_| is_sharded));
        match arguments.json {
            true => print(&report.as_json().to_string())?,
            false => report.show()?,
        }
        let mut failed = Vec::new();
        for (name, load) in &looked {
            if let Err(error) = load {
                say(&format!("shard {name}: {error}"));
                failed.push(Arc::clone(name));
            }
        }
        session::ensure_none(&failed, looked.len())?;
        match arguments.plan {
            Some(_) if !is_sharded => Err("there is one database: SHARD_URLS names no other one, \
                                           so there is nothing to even out"
                .into()),
            Some(_) | None => Ok(()),
        }
    })
}

/// What there is to tell.
struct ShardReport<'l> {
    looked: &'l [Looked],
    names: HashMap<Uuid, &'l str>,
    /// The moves, and what each shard then has to do. `None`: not asked for, or not known, because
    /// not all databases are.
    plan: Option<(Vec<Proposal>, Vec<Burden>)>,
}

impl<'l> ShardReport<'l> {
    fn of(looked: &'l [Looked], moves: Option<NonZeroU8>) -> Self {
        let known = looked
            .iter()
            .filter_map(|(name, load)| Some((name, load.as_ref().ok()?)));
        let accounts = known.clone().flat_map(|(_, load)| &load.accounts);
        let under_way = known.clone().flat_map(|(_, load)| &load.moves);
        // One that has left, and has not arrived, is no account of either.
        let named = under_way.filter_map(|one| Some((one.account_id, one.name.as_deref()?)));
        let is_whole = known.clone().count() == looked.len();
        let plan = moves.filter(|_| is_whole).map(|moves| {
            let mut burdens = burdens(known);
            let proposals = plan(&mut burdens, moves.get().into());
            (proposals, burdens)
        });
        Self {
            looked,
            names: accounts
                .map(|one| (one.id, &*one.name))
                .chain(named)
                .collect(),
            plan,
        }
    }

    /// An account with its id, as other commands show it.
    fn told(&self, account: Uuid) -> String {
        format!("{} ({})", self.name(account), AccountId(account))
    }

    fn name(&self, account: Uuid) -> &str {
        self.names.get(&account).copied().unwrap_or_default()
    }

    /// The command that moves an account to another shard.
    fn command(&self, proposal: &Proposal) -> String {
        let account = typed(self.name(proposal.account), proposal.account);
        format!("charge-once account move {account} --to {}", proposal.to)
    }

    /// The events of all databases that are known.
    fn all_events(&self) -> i64 {
        let known = self
            .looked
            .iter()
            .filter_map(|(_, load)| load.as_ref().ok());
        known.map(ShardLoad::events).sum()
    }

    fn show(&self) -> Result<(), BoxError> {
        let all = self.all_events();
        for (name, load) in self.looked {
            let Ok(load) = load else { continue };
            let events = load.events();
            print(&format!(
                "{name}: {events} events/h ({} %), accounts: {}, size: {} MB, rows: about {}, keys: about {}",
                percent(events, all),
                load.accounts.len(),
                load.bytes / 1_000_000,
                load.rows,
                load.keys,
            ))?;
            for account in largest(load) {
                let rows = account.rows.map_or("?".to_owned(), |rows| rows.to_string());
                let told = self.told(account.id);
                print(&format!(
                    "{:>12} events/h {rows:>12} rows  {told}",
                    account.events
                ))?;
            }
            for standby in &load.standbys {
                print(&format!("  {}", told_standby(standby)))?;
            }
            for one in &load.moves {
                print(&format!("  {}", self.told_move(one)))?;
            }
        }
        let Some((proposals, burdens)) = &self.plan else {
            return Ok(());
        };
        if proposals.is_empty() {
            return print("No move would even anything out.");
        }
        for proposal in proposals {
            print(&self.command(proposal))?;
        }
        let then = burdens.iter().map(|one| {
            let (shard, events) = (&one.shard, one.events);
            format!("{shard} {events} events/h ({} %)", percent(events, all))
        });
        print(&format!(
            "Afterwards: {}.",
            then.collect::<Vec<_>>().join(", ")
        ))
    }

    fn told_move(&self, one: &KnownMove) -> String {
        let way = match one.state.starts_with("arri") {
            true => "from",
            false => "to",
        };
        let command = match one.is_worked_on {
            true => "a command is at work",
            false => "NO COMMAND IS AT WORK",
        };
        let kept = one.kept_bytes.map_or(String::new(), |bytes| {
            format!(", {} kB of log are kept for it", bytes / 1_000)
        });
        let (account, other, state) = (self.told(one.account_id), &one.other, &one.state);
        let seconds = (Utc::now() - one.since).num_seconds();
        format!("{account} moves {way} {other}: {state} for {seconds} s, {command}{kept}")
    }

    fn as_json(&self) -> Value {
        let shards = self.looked.iter().map(|(name, load)| match load {
            Ok(load) => json!({
                "name": **name,
                "bytes": load.bytes,
                "rows": load.rows,
                "keys": load.keys,
                "accounts": load.accounts.len(),
                "events_per_hour": load.events(),
                "largest": largest(load).map(account_to_json).collect::<Value>(),
                "standbys": load.standbys.iter().map(standby_to_json).collect::<Value>(),
                "moves": load.moves.iter().map(|one| self.move_to_json(one)).collect::<Value>(),
            }),
            Err(error) => json!({"name": **name, "error": error.to_string()}),
        });
        let plan = self.plan.as_ref().map(|(proposals, burdens)| {
            let moves = proposals.iter().map(|one| {
                json!({
                    "account": AccountId(one.account).to_string(),
                    "account_name": self.name(one.account),
                    "from": *one.from,
                    "to": *one.to,
                    "command": self.command(one),
                })
            });
            let then = burdens
                .iter()
                .map(|one| json!({"name": *one.shard, "events_per_hour": one.events}));
            json!({"moves": moves.collect::<Value>(), "then": then.collect::<Value>()})
        });
        json!({"shards": shards.collect::<Value>(), "plan": plan})
    }

    fn move_to_json(&self, one: &KnownMove) -> Value {
        json!({
            "account": AccountId(one.account_id).to_string(),
            "account_name": self.name(one.account_id),
            "state": one.state,
            "other": one.other,
            "since": one.since,
            "kept_bytes": one.kept_bytes,
            "is_worked_on": one.is_worked_on,
        })
    }
}

/// The accounts with the largest share of a database's events, or of its rows.
fn largest(load: &ShardLoad) -> impl Iterator<Item = &AccountLoad> {
    let events = load.events();
    let share = |account: &&AccountLoad| {
        let of_rows = percent(account.rows.unwrap_or_default(), load.rows);
        let share = percent(account.events, events).max(of_rows);
        std::cmp::Reverse((share, account.events, account.rows))
    };
    let mut accounts: Vec<_> = load.accounts.iter().collect();
    accounts.sort_by_key(share);
    accounts.into_iter().take(SHOWN)
}

/// Rounded; 0 if there is nothing at all.
fn percent(part: i64, all: i64) -> i64 {
    (part * 100 + all / 2).checked_div(all).unwrap_or_default()
}

/// An account as a person types it: by its id, where a shell may take its name for something else.
fn typed(name: &str, id: Uuid) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => AccountId(id).to_string(),
    }
}

fn told_standby(standby: &Standby) -> String {
    let (Some(name), Some(state)) = (&standby.name, &standby.state) else {
        return "a standby, of which this role sees nothing: GRANT pg_read_all_stats to it"
            .to_owned();
    };
    let behind = match standby.behind_bytes {
        Some(bytes) => format!("{} kB", bytes / 1_000),
        None => "an unknown amount".to_owned(),
    };
    let late = standby.behind_ms.unwrap_or_default();
    format!("standby {name}: {state}, behind by {behind} and {late} ms")
}

fn standby_to_json(standby: &Standby) -> Value {
    json!({
        "name": standby.name,
        "state": standby.state,
        "behind_bytes": standby.behind_bytes,
        "behind_ms": standby.behind_ms,
    })
}

fn account_to_json(account: &AccountLoad) -> Value {
    json!({
        "account": AccountId(account.id).to_string(),
        "account_name": account.name,
        "is_test": account.is_test,
        "events_per_hour": account.events,
        "rows": account.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_whose_name_a_shell_would_not_leave_alone_is_named_by_its_id() {
        let id = AccountId(Uuid::nil()).to_string();
        for (name, expected) in [
            ("shop_2.eu", "shop_2.eu"),
            ("", &*id),
            ("two words", &*id),
            ("--abort", &*id),
            ("$(reboot)", &*id),
        ] {
            assert_eq!(typed(name, Uuid::nil()), expected);
        }
    }
}
