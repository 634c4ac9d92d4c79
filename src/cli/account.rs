//! `charge-once account`: where an account lives, of several databases.

use std::time::Instant;

use charge_once_postgres::api_keys::{find_account_by_name, names_of_accounts};
use uuid::Uuid;

use super::{
    BoxError, api_key, aside, print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    database::{
        Shard, Shards, WhenRefused,
        move_account::{Home, Move, MoveError, Progress, abort_without_target, comes_from},
        shards::{self, ShardUrl},
    },
    domain::ids::AccountId,
};

/// What is done with accounts.
#[derive(Debug, clap::Subcommand)]
pub enum AccountCommand {
    /// Moves an account to another database while it is served.
    ///
    /// A move that was interrupted is finished by the same command, or undone with --abort. The
    /// roles need more rights than those of a server: docs/scale.md says which.
    Move(MoveArguments),
}

/// Which account, and where to.
#[derive(Debug, clap::Args)]
pub struct MoveArguments {
    /// The account's name, or its id.
    name: String,
    /// The database that it is to live in: its name in SHARD_URLS, or main.
    #[arg(long, value_name = "SHARD")]
    to: String,
    /// Only checks whether it can be moved, and counts its rows.
    #[arg(long, conflicts_with = "abort")]
    dry_run: bool,
    /// Undoes a move that was interrupted before the new home opened.
    #[arg(long)]
    abort: bool,
    /// Undoes it although the new home is out of reach, which keeps what it has of the account.
    #[arg(long, requires = "abort")]
    new_home_lost: bool,
}

pub(super) fn run(AccountCommand::Move(arguments): &AccountCommand) -> Result<(), BoxError> {
    let config = aside::config()?;
    if config.shards.is_empty() {
        return Err("there is one database: SHARD_URLS names no other one".into());
    }
    session::at(&config, &OnlyShard::default(), async |urls| match prepare(
        &config, &urls, arguments,
    )
    .await?
    {
        Prepared::IsThere => print(&format!("The account lives in the shard {}.", arguments.to)),
        Prepared::Undone => print("The move was undone. Its new home was not asked."),
        Prepared::Move(moving) => move_account(moving, arguments).await,
    })
}

async fn move_account(mut moving: Move, arguments: &MoveArguments) -> Result<(), BoxError> {
    if arguments.abort {
        moving.abort().await?;
        return print("The move was undone.");
    }
    if arguments.dry_run {
        let counts = moving.plan().await?;
        for (table, rows) in &counts {
            print(&format!("{rows:>12}  {table}"))?;
        }
        let all: i64 = counts.iter().map(|(_, rows)| rows).sum();
        return print(&format!("{all:>12}  rows, which can be moved."));
    }
    let began = Instant::now();
    let mut tell = |progress| {
        let what = match progress {
            Progress::Done(step) => format!("{step:?}"),
            Progress::Waits(what) => what,
        };
        say(&format!("{:>8.2} s  {what}", began.elapsed().as_secs_f64()));
        Ok::<_, MoveError>(())
    };
    let moved = moving.run(&mut tell).await?;
    if let Some(frozen) = moved.frozen {
        let (rows, seconds) = (moved.rows, frozen.as_secs_f64());
        print(&format!(
            "{rows} rows; closed for writes for {seconds:.2} s."
        ))?;
    }
    print(&format!("The account lives in the shard {}.", arguments.to))
}

enum Prepared {
    /// It lives there, and nothing is left to be done.
    IsThere,
    Undone,
    Move(Move),
}

async fn prepare(
    config: &Config,
    urls: &[ShardUrl],
    arguments: &MoveArguments,
) -> Result<Prepared, BoxError> {
    let settings = config.database_settings(config.schema());
    let reached = shards::reach(urls, settings, WhenRefused::GiveUp).await;
    let (shards, unreached) = api_key::split(reached)?;
    let open = async |shard: &Shard| {
        let url = urls.iter().find(|one| *one.name == *shard.name);
        let url = url.map_or("", |one| &*one.url);
        Home::open(&shard.name, url, &shard.database).await
    };
    if arguments.new_home_lost {
        if !unreached.iter().any(|name| **name == *arguments.to) {
            return Err("--new-home-lost: it is in reach".into());
        }
        let (account, source) = find(&shards, &arguments.name).await?;
        abort_without_target(account, open(source).await?, &arguments.to).await?;
        return Ok(Prepared::Undone);
    }
    if !unreached.is_empty() {
        return Err(format!("all shards must be in reach: {}", unreached.join(", ")).into());
    }
    let target = named(&shards, &arguments.to).ok_or("--to: SHARD_URLS names no such database")?;
    let (account, found) = find(&shards, &arguments.name).await?;
    let source = match comes_from(&target.database, account).await? {
        Some(name) => named(&shards, &name).ok_or("SHARD_URLS lacks the shard it comes from")?,
        None if found.name == target.name => return Ok(Prepared::IsThere),
        None => found,
    };
    let (source, target) = (open(source).await?, open(target).await?);
    Ok(Prepared::Move(Move::of(account, source, target).await?))
}

fn named<'s>(shards: &'s Shards, name: &str) -> Option<&'s Shard> {
    shards.iter().find(|shard| *shard.name == *name)
}

/// The account with this name or id, and a shard that has it: while it moves, either of two.
async fn find<'s>(shards: &'s Shards, name: &str) -> Result<(Uuid, &'s Shard), BoxError> {
    let id = AccountId::parse(name).map(|id| id.0);
    for shard in shards.iter() {
        let wanted = name.to_owned();
        let found = shard.database.read(move |connection| {
            Box::pin(async move {
                let named = find_account_by_name(connection, &wanted).await?;
                let Some(id) = id.filter(|_| named.is_none()) else {
                    return Ok(named);
                };
                let known = names_of_accounts(connection, &[id]).await?;
                Ok(known.into_keys().next())
            })
        });
        if let Some(account) = found.await? {
            return Ok((account, shard));
        }
    }
    Err(format!("there is no account {name:?}; `charge-once api-key list` shows the names").into())
}
