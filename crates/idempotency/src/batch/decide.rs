//! What an application writes for a batch: how requests are decided, and the rows that they share.
//!
//! Promise: a request is decided from rows that are locked, as the requests before it in the batch
//! have changed them, or in a transaction of its own.

use std::{collections::HashSet, future::Future, hash::Hash};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Command, Rejection, Reply};

/// Rounds of reads: a row, what it refers to, and what that refers to. Each round is a wait with
/// locks held.
pub(super) const READ_ROUNDS_MAX: usize = 3;

/// What the members of one transaction share: the rows that they have read, as the members before
/// them have changed them.
pub trait Rows: Default + Send + Sync + 'static {
    /// Names a row, with its table and its account.
    type Name: Clone + Eq + Hash + Send + Sync + 'static;

    /// What one member writes.
    type Changes: Send + 'static;

    /// The lock that [`Rows::read`] takes for a name, as the name that stands for it: two names of
    /// one row have one lock. `None`: it takes none.
    fn lock(name: &Self::Name) -> Option<Self::Name> {
        Some(name.clone())
    }

    /// Locks rows and reads them, with a statement for each table: `FOR NO KEY UPDATE`, tables in
    /// one fixed order, and ids sorted, so that two transactions never wait for each other in a
    /// circle. A row that is not there is no error. `names` has no duplicates, and nothing that was
    /// read before.
    fn read(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<Self::Name>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Makes changes visible to the members that decide next, and to [`Rows::write`].
    fn apply(&mut self, changes: Self::Changes);

    /// Writes all that was applied, with a statement for each table rather than for each row. It
    /// neither begins nor commits, not even a savepoint by `tx.begin()`: sqlx does not know of this
    /// transaction. It fails if a row is not written.
    fn write(self, tx: &mut PgConnection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A definite outcome, before anything is written.
#[derive(Debug)]
pub struct Decision<C> {
    /// The answer to save.
    pub reply: Reply,
    /// What to write with it; nothing for a refusal.
    pub changes: Option<C>,
}

/// A command that names the rows it needs, and decides from them, its parameters and the time. Such
/// a command is a [`Command`], too: requests that a batch can't serve run in a transaction of their
/// own.
pub trait Decide: Send + Sync + 'static {
    /// What it reads and writes.
    type Rows: Rows;

    /// The rows that the command needs next, given what has been read. The rows of other requests
    /// may be among those. It is asked again after each round, until it names no row that is new.
    /// Three rounds are the most: a command that needs more fails.
    fn reads(&self, rows: &Self::Rows) -> Vec<<Self::Rows as Rows>::Name> {
        let _ = rows;
        Vec::new()
    }

    /// Whether a batch can decide the command at all. If not, it runs alone.
    fn is_shared(&self) -> bool {
        true
    }

    /// Decides, without a side effect: it may be asked again. `now` is the transaction's time,
    /// which `now()` says in it. A failure decides nothing: the request runs alone, and may end
    /// otherwise.
    fn decide(
        &self,
        rows: &Self::Rows,
        now: DateTime<Utc>,
    ) -> Result<Decision<<Self::Rows as Rows>::Changes>, Rejection>;

    /// Runs the command in a transaction of its own, which has claimed the key. Where that is more
    /// than to read, decide and write, a command may wait and run SQL here, as in
    /// [`Command::execute`].
    fn alone(
        &self,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<Reply, Rejection>> + Send {
        in_transaction(self, tx)
    }

    /// How much it asks for, in bytes, to bound what one batch writes.
    fn weight(&self) -> usize;
}

impl<D: Decide> Command for D {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        self.alone(tx).await
    }
}

/// What a batch does for its members, for one command whose key is claimed.
async fn in_transaction<D: Decide + ?Sized>(
    command: &D,
    tx: &mut PgConnection,
) -> Result<Reply, Rejection> {
    let now = transaction_time(tx).await?;
    let mut rows = D::Rows::default();
    read_rounds(|rows| command.reads(rows), &mut rows, tx).await?;
    let Decision { reply, changes } = command.decide(&rows, now)?;
    if let Some(changes) = changes {
        rows.apply(changes);
        rows.write(tx).await?;
    }
    Ok(reply)
}

/// Reads the rows that `reads` names, in rounds, as a batch does for its members. Each round may
/// depend on what the one before has read.
///
/// # Errors
///
/// The database's, and an invalid argument where the command needs more than three rounds.
pub async fn read_rounds<R: Rows>(
    reads: impl Fn(&R) -> Vec<R::Name>,
    rows: &mut R,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let mut read = NamesRead::default();
    for _ in 0..READ_ROUNDS_MAX {
        let names = read.take_new(reads(rows));
        if names.is_empty() {
            return Ok(());
        }
        rows.read(tx, names).await?;
    }
    // Undecided rather than decided wrongly: to the command, a row that was not read is not there.
    match read.has_all(&reads(rows)) {
        true => Ok(()),
        false => Err(sqlx::Error::InvalidArgument(format!(
            "a command needs more than {READ_ROUNDS_MAX} rounds of reads"
        ))),
    }
}

/// The time of the transaction, which another statement began: what `now()` says in it.
///
/// # Errors
///
/// The database's.
pub async fn transaction_time(tx: &mut PgConnection) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar("SELECT now()").fetch_one(tx).await
}

/// The names of the rows that a transaction has read and locked.
pub(super) struct NamesRead<N>(pub(super) HashSet<N>);

impl<N> Default for NamesRead<N> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<N: Clone + Eq + Hash> NamesRead<N> {
    /// Those that are new, each once. They are about to be read.
    pub(super) fn take_new(&mut self, names: Vec<N>) -> Vec<N> {
        let is_new = |name: &N| self.0.insert(name.clone());
        names.into_iter().filter(is_new).collect()
    }

    pub(super) fn has_all(&self, names: &[N]) -> bool {
        names.iter().all(|name| self.0.contains(name))
    }
}
