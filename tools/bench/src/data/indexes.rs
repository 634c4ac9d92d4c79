//! Secondary indexes, dropped for a load and made again.
//!
//! Promise: after [`Dropped::restore`], the tables have exactly the indexes that the migrations
//! made. PostgreSQL's own definitions are kept, and compared at the end.

use std::time::Instant;

use anyhow::ensure;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::postgres::execute;

/// The indexes of these tables, and which of them were dropped.
#[derive(Debug)]
pub(crate) struct Dropped {
    tables: Vec<String>,
    all: Vec<String>,
    dropped: Vec<(String, String)>,
}

impl Dropped {
    /// Drops every index of `tables` that is not the index of a constraint. Those of constraints
    /// are filled row by row, so that the index of keys is as full as random keys leave it.
    pub(crate) async fn from(
        connection: &mut PgConnection,
        tables: &[&str],
    ) -> anyhow::Result<Self> {
        let tables: Vec<String> = tables.iter().map(|table| (*table).to_owned()).collect();
        let all = definitions(connection, &tables).await?;
        let dropped: Vec<(String, String)> = sqlx::query_as(
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid)
               FROM pg_index
              WHERE indrelid = ANY ($1::text[]::regclass[])
                AND NOT EXISTS (SELECT FROM pg_constraint
                                 WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
              ORDER BY 1",
        )
        .bind(&tables)
        .fetch_all(&mut *connection)
        .await?;
        for (name, _) in &dropped {
            let drop = AssertSqlSafe(format!("DROP INDEX {name}"));
            execute(drop, connection).await?;
        }
        Ok(Self {
            tables,
            all,
            dropped,
        })
    }

    pub(crate) async fn restore(self, connection: &mut PgConnection) -> anyhow::Result<()> {
        for (name, definition) in self.dropped {
            let began = Instant::now();
            execute(AssertSqlSafe(definition), connection).await?;
            eprintln!("index {name}: {} s", began.elapsed().as_secs());
        }
        let restored = definitions(connection, &self.tables).await?;
        ensure!(
            restored == self.all,
            "the indexes are not what they were: {restored:#?} instead of {:#?}",
            self.all
        );
        Ok(())
    }
}

async fn definitions(
    connection: &mut PgConnection,
    tables: &[String],
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' INVALID' END
           FROM pg_index
          WHERE indrelid = ANY ($1::text[]::regclass[])
          ORDER BY 1",
    )
    .bind(tables)
    .fetch_all(connection)
    .await
}
