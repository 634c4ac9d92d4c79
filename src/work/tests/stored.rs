//! The same sequences on PostgreSQL: each verb reads there what the ledger in memory holds, and
//! writes there what it holds next.

use charge_once_postgres::database::migrations;
use charge_once_postgres::embedded::Throwaway;
use sqlx::{Connection, PgConnection};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::{
    super::{Changes, Rows, RunVerb, read_rounds, transaction_time},
    AccountId, RowId,
};
use crate::{
    commands::Rules,
    database::SCHEMA,
    idempotency::{Decide, Decision, Rejection, Rows as _},
};

/// An event: its id, its type, its object, and that one's version.
type Told = (Uuid, String, String, Option<i64>);

/// Rows in a database.
pub(super) struct StoredLedger {
    runtime: Runtime,
    connection: PgConnection,
    /// Its server ends with it.
    _server: Throwaway,
    account: AccountId,
    told: Vec<Told>,
}

impl StoredLedger {
    /// Starts a server with the API's tables.
    pub(super) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (server, connection) = runtime.block_on(async {
            let server = Throwaway::start("ledger").await.unwrap();
            let url = server.create_database("sequences", "template0").await;
            let url = url.unwrap();
            for set in SCHEMA {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                migrations::apply(set.migrator, &mut connection)
                    .await
                    .unwrap();
                connection.close().await.unwrap();
            }
            (server, PgConnection::connect(&url).await.unwrap())
        });
        Self {
            runtime,
            connection,
            _server: server,
            account: AccountId(Uuid::nil()),
            told: Vec::new(),
        }
    }

    /// Begins with an account that has nothing.
    pub(super) fn begin(&mut self) -> AccountId {
        self.account = AccountId(Uuid::now_v7());
        self.told.clear();
        let account = "INSERT INTO accounts (id, name) VALUES ($1, $1::text)";
        let account = sqlx::query(account).bind(self.account.0);
        let inserting = account.execute(&mut self.connection);
        self.runtime.block_on(inserting).unwrap();
        self.account
    }

    /// The columns of a table, with their types.
    pub(super) fn columns(&mut self, table: &str) -> Vec<(String, String)> {
        let columns = "SELECT column_name::text, udt_name::text FROM information_schema.columns
                        WHERE table_schema = 'public' AND table_name = $1";
        let reading = sqlx::query_as(columns).bind(table);
        let reading = reading.fetch_all(&mut self.connection);
        let columns = self.runtime.block_on(reading).unwrap();
        assert!(!columns.is_empty(), "{table}");
        columns
    }

    /// Runs a verb, which must read what is `known`.
    pub(super) fn run<V: Rules>(
        &mut self,
        command: &RunVerb<V>,
        known: &Rows,
    ) -> Result<Decision<Changes>, Rejection> {
        let running = async {
            let mut tx = self.connection.begin().await.unwrap();
            let now = transaction_time(&mut tx).await.unwrap();
            let mut rows = Rows::default();
            read_rounds(|rows| command.reads(rows), &mut rows, &mut tx)
                .await
                .unwrap();
            assert_eq!(shown(&rows), shown(known));
            let mut decision = command.decide(&rows, now)?;
            if let Some(changes) = decision.changes.take() {
                let tables = changes.tables.clone();
                self.told.extend(changes.events.iter().map(|event| {
                    let (of, object) = (event.event_type.to_owned(), event.object.clone());
                    (event.id, of, object, event.object_version)
                }));
                rows.write_with(&mut tx, changes).await.unwrap();
                tx.commit().await.unwrap();
                decision.changes = Some(Changes {
                    tables,
                    ..Changes::default()
                });
            }
            Ok(decision)
        };
        self.runtime.block_on(running)
    }

    /// The account's rows are those that are `known`, and its events those that its verbs have
    /// told, each once.
    pub(super) fn holds(&mut self, known: &Rows) {
        let (account, tables) = (self.account, &known.tables);
        let intents = tables.intents.of(account).map(|one| RowId::Intent(one.id));
        let mut names: Vec<_> = intents.collect();
        names.extend(tables.setups.of(account).map(|one| RowId::Setup(one.id)));
        names.extend(tables.charges.of(account).map(|one| RowId::Charge(one.id)));
        names.extend(tables.orders.of(account).map(|one| RowId::Order(one.id)));
        names.extend(tables.refunds.of(account).map(|one| RowId::Refund(one.id)));
        names.extend(tables.methods.of(account).map(|one| RowId::Method(one.id)));
        names.extend(
            tables
                .customers
                .of(account)
                .map(|one| RowId::Customer(one.id)),
        );
        names.extend(
            tables
                .checkouts
                .of(account)
                .map(|one| RowId::Checkout(one.id)),
        );
        names.extend(
            tables
                .levels
                .of(account)
                .map(|one| RowId::Level(one.sku.clone())),
        );
        let names = names.into_iter().map(|id| (account, id));
        let mut rows = Rows::default();
        let reading = rows.read(&mut self.connection, names.collect());
        self.runtime.block_on(reading).unwrap();
        assert_eq!(shown(&rows), shown(known));
        let events = "SELECT id, type, object::text, object_version FROM events
                       WHERE account_id = $1 ORDER BY id";
        let reading = sqlx::query_as::<_, Told>(events).bind(self.account.0);
        let reading = reading.fetch_all(&mut self.connection);
        let events = self.runtime.block_on(reading).unwrap();
        self.told.sort();
        assert_eq!(events, self.told);
    }
}

/// Rows that were read, with what was looked at.
fn shown(rows: &Rows) -> String {
    let mut customers: Vec<_> = rows.customers_seen.iter().collect();
    customers.sort_by_key(|(name, _)| **name);
    let mut counted: Vec<_> = rows.methods_of.iter().collect();
    counted.sort();
    format!("{:#?} {customers:#?} {counted:?}", rows.tables)
}
