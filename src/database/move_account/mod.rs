//! Moves one account from one database to another while it is served, by PostgreSQL's logical
//! replication with row filters.
//!
//! Promise: at each moment at most one of the two lets the account's keys be claimed and saved, and
//! what was committed at the old home is at the new one before that one opens. Where the move
//! stands is in the table `moving` of both, so a move that was interrupted is finished by running
//! it again, or undone, until the new home has opened. Other accounts wait for nothing.
//!
//! 1. The rows are copied, and follow what is written (`replication.rs`).
//! 2. Workers begin nothing new for the account, and servers ask for its home with each request.
//! 3. **Freeze.** The database refuses to claim and to save keys of the account. Transactions that
//!    asked before are waited for, and so is the new home, which then has all their rows.
//! 4. **Switch**, in one transaction at the new home: it takes the account, its API keys, and the
//!    rows by which workers find what to do (`freeze.rs`).
//! 5. The old home compares its rows with those of the new one by their hashes, and forgets them.

mod freeze;
mod known;
mod replication;
mod tables;

use std::time::{Duration, Instant};

use charge_once_postgres::api_keys::REMEMBERED_FOR;
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

pub use self::{
    known::{KnownMove, MOVE_STATES, furthest, known_moves},
    tables::unknown as unknown_tables,
};
use super::{Database, plain};

/// What a move has just done. A move that ends behind one of these goes on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStep {
    /// Both databases can do it.
    Checked,
    /// Both know of it.
    Begun,
    /// The old home has a publication.
    Published,
    /// The old home keeps its log for the new one.
    Kept,
    /// The new home copies.
    Subscribed,
    /// It has copied all, and follows.
    Copied,
    /// Workers begin nothing new.
    Draining,
    /// What they had begun has ended.
    Drained,
    /// The account is closed for writes.
    Frozen,
    /// Nothing is written that asked before.
    Quiet,
    /// The rows by which workers find what to do are taken out.
    Held,
    /// The new home has all rows.
    CaughtUp,
    /// The account is closed for reads, too.
    Leaving,
    /// The new home is open.
    Switched,
    /// The old home keeps no log any more.
    Released,
    /// The rows of both are the same.
    Compared,
    /// The account and its API keys are gone from the old home.
    Forgotten,
    /// So are its other rows.
    Emptied,
}

impl MoveStep {
    /// In their order.
    pub const ALL: [Self; 18] = [
        Self::Checked,
        Self::Begun,
        Self::Published,
        Self::Kept,
        Self::Subscribed,
        Self::Copied,
        Self::Draining,
        Self::Drained,
        Self::Frozen,
        Self::Quiet,
        Self::Held,
        Self::CaughtUp,
        Self::Leaving,
        Self::Switched,
        Self::Released,
        Self::Compared,
        Self::Forgotten,
        Self::Emptied,
    ];
}

/// What a move says while it is under way.
#[derive(Debug)]
pub enum Progress {
    /// It has done this.
    Done(MoveStep),
    /// It waits for this.
    Waits(String),
}

/// Hears of it, and may end the move there.
pub type Tell<'t> = &'t mut (dyn FnMut(Progress) -> Result<(), MoveError> + Send);

/// Why an account was not moved, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// It can't be, or not yet.
    #[error("{0}")]
    Refused(String),
    /// A database refused a statement, or can't be reached.
    #[error("{}. Run the same command again, or with --abort", plain(.0))]
    Database(#[from] sqlx::Error),
    /// It was ended by who hears of it.
    #[error("stopped")]
    Stopped,
}

fn refused<T>(why: impl Into<String>) -> Result<T, MoveError> {
    Err(MoveError::Refused(why.into()))
}

/// What a move was.
#[derive(Debug, Default)]
pub struct Moved {
    /// Rows at the new home, at the switch.
    pub rows: i64,
    /// How long the account was closed for writes. `None`: another run of the command closed it.
    pub frozen: Option<Duration>,
}

/// One of the two databases, for the whole move: its lock lasts as long as this session.
pub struct Home {
    name: String,
    /// It may have a password.
    url: String,
    session: PgConnection,
}

/// How far a move is, by the two databases.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct States {
    source: Option<String>,
    target: Option<String>,
}

impl States {
    fn source_is(&self, states: &[&str]) -> bool {
        self.source
            .as_deref()
            .is_some_and(|is| states.contains(&is))
    }

    fn has_arrived(&self) -> bool {
        self.target.as_deref() == Some("arrived")
    }
}

/// What moves one account at a time out of a database, or into it: "movement" in ASCII.
const LOCK: i64 = i64::from_be_bytes(*b"movement");

/// How long another move, or one that was just killed, is waited for.
const LOCK_LIMIT: &str = "10s";

/// Between two looks at something that is waited for.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// What a move waits for, because servers can't be asked whether they still believe in a home.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// Before the freeze: servers forget the homes that they remember.
    pub homes: Duration,
    /// After the switch: look-ups of API keys end. One that asked the new home before the switch
    /// must still find the old one.
    pub look_ups: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            // With the look-ups that are under way.
            homes: REMEMBERED_FOR + Duration::from_secs(1),
            look_ups: Duration::from_secs(10),
        }
    }
}

/// The move of one account.
pub struct Move {
    /// Shorter ones are for a test whose servers remember no home.
    pub pauses: Pauses,
    account: Uuid,
    source: Home,
    target: Home,
    /// Of the publication, the slot and the subscription.
    name: String,
    frozen_at: Option<Instant>,
}

impl Home {
    /// The database of this name, at this URL.
    pub async fn open(name: &str, url: &str, database: &Database) -> Result<Self, MoveError> {
        let mut session = database.connect_aside().await?;
        // A copy takes longer than a request may.
        for set in [
            "SET statement_timeout = 0",
            "SET idle_in_transaction_session_timeout = 0",
            // Other accounts need the cores.
            "SET max_parallel_workers_per_gather = 0",
            "SET application_name = 'charge-once account move'",
        ] {
            sqlx::raw_sql(set).execute(&mut session).await?;
        }
        let (name, url) = (name.to_owned(), url.to_owned());
        Ok(Self { name, url, session })
    }

    async fn lock(&mut self) -> Result<(), MoveError> {
        self.run(&format!("SET lock_timeout = '{LOCK_LIMIT}'"))
            .await?;
        let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK);
        if lock.execute(&mut self.session).await.is_err() {
            let name = &self.name;
            return refused(format!(
                "another move holds the shard {name}: one at a time"
            ));
        }
        self.run("SET lock_timeout = '2s'").await
    }

    async fn run(&mut self, sql: &str) -> Result<(), MoveError> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        sql.execute(&mut self.session).await?;
        Ok(())
    }

    async fn state(&mut self, account: Uuid) -> Result<Option<String>, MoveError> {
        let state = sqlx::query_scalar("SELECT state FROM moving WHERE account_id = $1");
        Ok(state
            .bind(account)
            .fetch_optional(&mut self.session)
            .await?)
    }

    /// The shard that the account goes to from here, or comes from.
    async fn other(&mut self, account: Uuid) -> Result<Option<String>, MoveError> {
        let other = sqlx::query_scalar("SELECT other FROM moving WHERE account_id = $1");
        let other = other.bind(account).fetch_optional(&mut self.session);
        Ok(other.await?)
    }

    async fn is(&mut self, account: Uuid, state: &str) -> Result<(), MoveError> {
        let set = "UPDATE moving SET state = $2, since = now() WHERE account_id = $1";
        let set = sqlx::query(set).bind(account).bind(state);
        set.execute(&mut self.session).await?;
        Ok(())
    }
}

/// Bytes of a hash that stands for a shard in a name. PostgreSQL's names have at most 63 bytes.
const SHARD_BYTES: usize = 4;

/// The name of the publication, the slot and the subscription of an account's move to a shard. A
/// new home that was lost, and comes back, must not take what the next new home is to have.
pub fn name_of(account: Uuid, target: &str) -> String {
    let mut shard = hex::encode(Sha256::digest(target));
    shard.truncate(2 * SHARD_BYTES);
    format!("charge_once_move_{}_{shard}", account.simple())
}

/// Undoes a move whose new home is out of reach, and may be lost. Refuses if it may be open: two
/// homes would serve the account.
pub async fn abort_without_target(
    account: Uuid,
    mut source: Home,
    target: &str,
) -> Result<(), MoveError> {
    source.lock().await?;
    let moving = "SELECT state IN ('copying', 'draining', 'frozen') FROM moving WHERE account_id = $1 AND other = $2";
    let moving = sqlx::query_scalar(moving).bind(account).bind(target);
    match moving.fetch_optional(&mut source.session).await? {
        Some(true) => {}
        Some(false) => {
            return refused(format!(
                "the shard {target} may have opened the account: it must be in reach to undo the move"
            ));
        }
        None => return refused(format!("the account does not move to the shard {target}")),
    }
    source.thaw(account).await?;
    source.drop_publication(&name_of(account, target)).await?;
    tables::delete_state(&mut source.session, account).await
}

/// The shard that an account comes from, where it is on its way to this database.
pub async fn comes_from(database: &Database, account: Uuid) -> Result<Option<String>, sqlx::Error> {
    let mut session = database.connect_aside().await?;
    let other =
        "SELECT other FROM moving WHERE account_id = $1 AND state IN ('arriving', 'arrived')";
    let other = sqlx::query_scalar(other).bind(account);
    let other = other.fetch_optional(&mut session).await?;
    session.close().await?;
    Ok(other)
}

impl Move {
    /// Of the account between these two. Waits for another move of either to end.
    pub async fn of(account: Uuid, mut source: Home, mut target: Home) -> Result<Self, MoveError> {
        source.lock().await?;
        target.lock().await?;
        Ok(Self {
            pauses: Pauses::default(),
            name: name_of(account, &target.name),
            account,
            source,
            target,
            frozen_at: None,
        })
    }

    async fn states(&mut self) -> Result<States, MoveError> {
        Ok(States {
            source: self.source.state(self.account).await?,
            target: self.target.state(self.account).await?,
        })
    }

    /// The other shard of a move that the account's old home is in, if it is not this one.
    async fn moves_elsewhere(&mut self) -> Result<Option<String>, MoveError> {
        let other = self.source.other(self.account).await?;
        Ok(other.filter(|other| *other != self.target.name))
    }

    async fn is_the_only_one(&mut self) -> Result<(), MoveError> {
        let Some(other) = self.moves_elsewhere().await? else {
            return Ok(());
        };
        let source = &self.source.name;
        refused(format!(
            "the account's move between the shards {source} and {other} is not over: finish or undo it first"
        ))
    }

    /// Checks whether it can be moved, and returns how many rows there are.
    pub async fn plan(&mut self) -> Result<Vec<(String, i64)>, MoveError> {
        self.is_the_only_one().await?;
        self.check().await?;
        tables::counts(&mut self.source.session, self.account).await
    }

    /// Moves it, or goes on with a move that was interrupted.
    pub async fn run(mut self, tell: Tell<'_>) -> Result<Moved, MoveError> {
        // First: nothing here may open or close the account for the other move.
        self.is_the_only_one().await?;
        let mut moved = Moved::default();
        if !self.states().await?.has_arrived() {
            moved = match self.until_open(tell).await {
                Ok(moved) => moved,
                Err(error) => return Err(self.thaw_after(error).await),
            };
        }
        self.forget(tell).await?;
        Ok(moved)
    }

    async fn until_open(&mut self, tell: Tell<'_>) -> Result<Moved, MoveError> {
        self.check().await?;
        tell(Progress::Done(MoveStep::Checked))?;
        self.begin().await?;
        tell(Progress::Done(MoveStep::Begun))?;
        self.subscribe(tell).await?;
        self.copy(tell).await?;
        tell(Progress::Done(MoveStep::Copied))?;
        if !self.states().await?.source_is(&["frozen", "leaving"]) {
            self.drain(tell).await?;
        }
        self.freeze(tell).await?;
        self.catch_up().await?;
        tell(Progress::Done(MoveStep::CaughtUp))?;
        let rows = self.switch(tell).await?;
        let frozen = self.frozen_at.map(|since| since.elapsed());
        tell(Progress::Done(MoveStep::Switched))?;
        Ok(Moved { rows, frozen })
    }

    /// What fails before the new home is open must not leave the account closed.
    async fn thaw_after(&mut self, error: MoveError) -> MoveError {
        if matches!(error, MoveError::Stopped) {
            return error;
        }
        match self.states().await {
            // It may have opened although its answer was lost.
            Ok(states)
                if states.has_arrived()
                    || !states.source_is(&["draining", "frozen", "leaving"]) =>
            {
                error
            }
            Ok(_) => match self.source.thaw(self.account).await {
                Ok(()) => error,
                Err(second) => MoveError::Refused(format!(
                    "{error}. THE ACCOUNT IS STILL CLOSED: {second}. Run the command again, or with --abort"
                )),
            },
            Err(second) => MoveError::Refused(format!(
                "{error}. THE ACCOUNT MAY BE CLOSED: {second}. Run the command again, or with --abort"
            )),
        }
    }

    /// Undoes a move whose new home is not open.
    pub async fn abort(mut self) -> Result<(), MoveError> {
        if self.states().await?.has_arrived() {
            return refused(
                "the new home is open, so the move can only be finished: run it without --abort",
            );
        }
        // A new home that was lost for a while may have rows of a move that was undone without it.
        let is_over = self.moves_elsewhere().await?.is_some();
        if !is_over {
            self.source.thaw(self.account).await?;
        }
        self.drop_subscription().await?;
        tables::delete_all(&mut self.target.session, self.account).await?;
        tables::delete_state(&mut self.target.session, self.account).await?;
        if !is_over {
            self.source.drop_publication(&self.name).await?;
            tables::delete_state(&mut self.source.session, self.account).await?;
        }
        Ok(())
    }

    /// Both know of the move from here on. What an aborted one has left is removed.
    async fn begin(&mut self) -> Result<(), MoveError> {
        let insert = "INSERT INTO moving (account_id, state, other) VALUES ($1, $2, $3)
                          ON CONFLICT (account_id) DO NOTHING";
        for (home, state, other) in [
            (&mut self.target.session, "arriving", &self.source.name),
            (&mut self.source.session, "copying", &self.target.name),
        ] {
            let insert = sqlx::query(insert).bind(self.account).bind(state);
            insert.bind(other).execute(home).await?;
        }
        if self.subscription().await?.is_none() {
            tables::delete_all(&mut self.target.session, self.account).await?;
        }
        Ok(())
    }

    /// Whether both databases are fit for it, and the account, too.
    async fn check(&mut self) -> Result<(), MoveError> {
        self.check_account().await?;
        let [source, target] = [&mut self.source, &mut self.target].map(|home| &mut home.session);
        let tables = tables::columns(source).await?;
        if tables != tables::columns(target).await? {
            return refused(
                "the tables of the two shards differ: run `charge-once migrate` for both",
            );
        }
        let unknown = tables::unknown(source).await?;
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return refused(format!(
                "this release doesn't know how to move the tables {unknown}"
            ));
        }
        self.check_servers().await
    }

    async fn check_account(&mut self) -> Result<(), MoveError> {
        let account =
            "SELECT test_until IS NOT NULL, closed_at IS NOT NULL FROM accounts WHERE id = $1";
        let account = sqlx::query_as(account).bind(self.account);
        match account.fetch_optional(&mut self.source.session).await? {
            None => {
                return refused(format!(
                    "the account does not live in the shard {}",
                    self.source.name
                ));
            }
            Some((true, _)) => {
                return refused("a test account is not moved: it ends by itself within a day");
            }
            Some((_, true)) => return refused("the account is closed"),
            Some((false, false)) => {}
        }
        if self.target.state(self.account).await?.is_none() {
            let left = tables::counts(&mut self.target.session, self.account).await?;
            let left: Vec<_> = left
                .into_iter()
                .filter(|(table, rows)| *rows > 0 && !tables::is_log(table))
                .collect();
            if let Some((table, rows)) = left.first() {
                let name = &self.target.name;
                return refused(format!(
                    "the shard {name} has {rows} rows of the account in {table}, and knows of no move"
                ));
            }
        }
        Ok(())
    }

    async fn check_servers(&mut self) -> Result<(), MoveError> {
        let (level, free, may): (String, i64, bool) = sqlx::query_as(
            "SELECT current_setting('wal_level'),
                    current_setting('max_replication_slots')::bigint - (SELECT count(*) FROM pg_replication_slots),
                    rolsuper OR rolreplication AND pg_has_role('pg_read_all_stats', 'USAGE')
                                AND has_parameter_privilege('session_replication_role', 'SET')
               FROM pg_roles WHERE rolname = current_user",
        )
        .fetch_one(&mut self.source.session)
        .await?;
        let source = self.source.name.clone();
        if level != "logical" {
            return refused(format!(
                "the shard {source} has wal_level = {level}, and a move needs logical: ALTER SYSTEM SET wal_level = \
                 logical, and restart PostgreSQL"
            ));
        }
        if !may {
            return refused(format!(
                "the role at the shard {source} may not give accounts away: deploy/postgres/mover.sql makes one that may"
            ));
        }
        // One for the changes, and one for each of the two tables that are copied at a time.
        if free < 3 && !self.source.keeps(&self.name).await? {
            return refused(format!(
                "the shard {source} has {free} replication slots left, and a move needs 3"
            ));
        }
        self.subscriber().await.map(drop)
    }
}
