//! Clocks that are so far apart that lists would miss objects.

use charge_once::database::{self, StartError};

use crate::support::prelude::*;

/// Makes the database's clock go wrong for new sessions, by so many seconds.
async fn shift(database: &TestDatabase, seconds: i32) {
    let shifted = format!(
        "DO $$ BEGIN
             IF to_regproc('pg_catalog.right_clock') IS NULL THEN
                 ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO right_clock;
             END IF;
         END $$;
         CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
             $$ SELECT pg_catalog.right_clock() + {seconds} * interval '1 second' $$"
    );
    database.execute(shifted).await;
}

#[tokio::test]
async fn a_start_with_clocks_that_are_too_far_apart_is_refused() {
    let database = TestDatabase::create().await;
    for (seconds, is_refused) in [(20, false), (45, true), (-45, true)] {
        shift(&database, seconds).await;
        match database::connect(&database.url, &config(&[])).await {
            Ok(_) => assert!(!is_refused, "{seconds}"),
            Err(StartError::ClocksApart { seconds: apart }) => {
                let is_told = is_refused && (44..=45).contains(&apart);
                assert!(is_told, "{seconds}: {apart}");
            }
            Err(other) => panic!("{seconds}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_replica_whose_clock_goes_wrong_is_not_ready() {
    let server = TestServer::start_on(TestDatabase::create_unsharded().await, &[]).await;
    assert_eq!(server.client.get("/readyz").await.status, 200);
    shift(&server.database, 45).await;
    // The sessions of the pool have prepared the statement with the right clock.
    server.database.end_sessions().await;
    eventually("the replica says that it isn't ready", || async {
        let answer = server.client.get("/readyz").await;
        answer.status == 503 && message(&answer).contains("clock")
    })
    .await;
}
