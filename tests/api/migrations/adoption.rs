//! A database of release 0.2 gets the baseline's rows instead of its tables; any other is left as
//! it is.

use charge_once::database::{MigrationSet, PROCESSOR_SCHEMA, SCHEMA, embedded};

use crate::support::{prelude::*, processor::authorize};

/// What a set of migrations has left in its table, if there is one: versions and checksums, in
/// order.
async fn applied(set: &MigrationSet, database: &TestDatabase) -> Vec<String> {
    let pool = &database.pool;
    let is_there = sqlx::query_scalar::<_, bool>("SELECT to_regclass($1) IS NOT NULL");
    if !is_there.bind(set.table).fetch_one(pool).await.unwrap() {
        return Vec::new();
    }
    let rows = format!(
        "SELECT version || ' ' || encode(checksum, 'hex') FROM {} WHERE success ORDER BY version",
        set.table
    );
    let rows = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(pool);
    rows.await.unwrap()
}

async fn all_applied(database: &TestDatabase) -> Vec<Vec<String>> {
    join_all(SCHEMA.iter().map(|set| applied(set, database))).await
}

/// The migrations that release 0.2 counted in the set's table, a line for each.
fn replaced(set: &MigrationSet) -> impl Iterator<Item = &'static str> + use<> {
    let baseline = set.baseline.as_ref().unwrap();
    let is_there = baseline.table == set.table;
    baseline.replaces.lines().filter(move |_| is_there)
}

/// What a database of release 0.2 has there afterwards: the rows of that release, which finds them
/// after a rollback, and those of a new database.
fn taken_over(set: &MigrationSet) -> Vec<String> {
    let own = set.migrator.iter();
    let own = own.map(|one| format!("{} {}", one.version, hex::encode(&one.checksum)));
    let before = replaced(set).map(str::to_owned);
    before.chain(own).collect()
}

async fn assert_is_taken_over(database: &TestDatabase) {
    for set in SCHEMA {
        let applied = applied(set, database).await;
        assert_eq!(applied, taken_over(set), "{}", set.table);
    }
}

/// Makes a migrated database look as release 0.2 left it: the tables are the same. It had no table
/// to count the migrations of a crate whose tables those of the API made.
async fn make_release_0_2(set: &MigrationSet, database: &TestDatabase) {
    let rows = replaced(set).map(|line| {
        let (version, checksum) = line.split_once(' ').unwrap();
        format!(r"({version}, '', true, '\x{checksum}', 0)")
    });
    let table = set.table;
    let replace = match rows.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => format!("DROP TABLE IF EXISTS {table}"),
        rows => format!(
            "TRUNCATE {table};
             INSERT INTO {table} (version, description, success, checksum, execution_time)
             VALUES {rows}"
        ),
    };
    database.execute(replace).await;
}

/// Takes back what migrations after the baseline have made in a database, but for those of the
/// first `kept` sets, so that what is left is what release 0.2 had, with its rows.
async fn back_to_release_0_2(kept: usize, database: &TestDatabase) {
    let reference = TestDatabase::create_empty().await;
    for (number, set) in SCHEMA.iter().enumerate() {
        let last = set.baseline.as_ref().unwrap().last;
        let of_reference = set.migrator.iter();
        for one in of_reference.filter(|one| number < kept || one.version <= last) {
            reference.execute(one.sql.as_str()).await;
        }
    }
    let left: BTreeSet<_> = drops(&reference).await.into_iter().collect();
    for drop in drops(database).await {
        // Those that count migrations are no table's migration, and triggers of shards need theirs.
        if !left.contains(&drop) && !drop.contains("migrations") && !drop.contains("moving") {
            database.execute(drop).await;
        }
    }
    for set in &SCHEMA[kept..] {
        make_release_0_2(set, database).await;
    }
}

/// A statement for each view, function, table, column, constraint and index that there is, which
/// drops it if it is still there.
async fn drops(database: &TestDatabase) -> Vec<String> {
    let drops = "
         WITH tables AS (
             SELECT oid, oid::regclass AS name FROM pg_class
              WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
         )
         SELECT format('DROP VIEW IF EXISTS %s', oid::regclass) FROM pg_class
          WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace
         UNION ALL
         SELECT format('DROP FUNCTION IF EXISTS %s', oid::regprocedure) FROM pg_proc
          WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'idempotency%'
         UNION ALL
         SELECT format('DROP TABLE IF EXISTS %s CASCADE', name) FROM tables
         UNION ALL
         SELECT format('ALTER TABLE IF EXISTS %s DROP COLUMN IF EXISTS %I CASCADE', name, attname)
           FROM tables JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
         UNION ALL
         SELECT format('ALTER TABLE IF EXISTS %s DROP CONSTRAINT IF EXISTS %I CASCADE', name, conname)
           FROM tables JOIN pg_constraint ON conrelid = tables.oid AND contype <> 'n'
         UNION ALL
         SELECT format('DROP INDEX IF EXISTS %s', indexrelid::regclass)
           FROM tables JOIN pg_index ON indrelid = oid
          WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)";
    database.values(drops).await
}

async fn database_of_release_0_2() -> TestDatabase {
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[]);
    assert_eq!(server.client.charge("key-1").await.status, 201);
    drop(server);
    back_to_release_0_2(0, &database).await;
    database
}

#[tokio::test]
async fn a_database_of_release_0_2_is_taken_over_once_by_replicas_that_start_together() {
    let database = database_of_release_0_2().await;
    let url = [("DATABASE_URL", &*database.url)];

    // What may not migrate says who does.
    let kept = [url[0], ("MIGRATE_ON_START", "false")];
    for command in ["serve", "check"] {
        let output = run(&[command], &[&kept[..], &[ANY_PORT]].concat());
        text(&output.stderr).must_have(&["run `charge-once migrate`"]);
    }
    let mut replicas = [0; 3].map(|_| {
        let mut command = program(&["migrate"], &url);
        command.stdout(Stdio::null()).spawn().unwrap()
    });
    for replica in &mut replicas {
        assert!(replica.wait().unwrap().success());
    }

    assert_is_taken_over(&database).await;
    let server = ServerProcess::start(&database, &kept);
    assert!(server.client.charge("key-1").await.is_replay());
    assert_eq!(server.client.charge("key-2").await.status, 201);
    assert_eq!(database.charges().await, 2);
}

/// Each set is taken over in a transaction of its own.
#[tokio::test]
async fn what_a_crash_left_between_two_sets_is_taken_over_by_the_next_start() {
    let database = TestDatabase::create().await;
    for taken_over_before in 0..SCHEMA.len() {
        back_to_release_0_2(taken_over_before, &database).await;
        database.printed_by("migrate");
        assert_is_taken_over(&database).await;
    }
}

#[tokio::test]
async fn any_other_database_is_left_as_it_is_and_the_start_says_what_to_do() {
    let remedy = "let the last 0.2 migrate it";
    let partial = "migration 2 is partially applied";
    let last = "version = (SELECT max(version) FROM m)";
    let table_of = |set: &MigrationSet| set.baseline.as_ref().unwrap().table;
    for table in BTreeSet::from_iter(SCHEMA.iter().map(table_of)) {
        for (change, told) in [
            (&*format!("DELETE FROM m WHERE {last}"), remedy),
            ("DELETE FROM m WHERE version > 1", remedy),
            ("DELETE FROM m WHERE version = 1", remedy),
            ("UPDATE m SET checksum = 'x' WHERE version = 2", remedy),
            ("INSERT INTO m SELECT 99, '', now(), true, 'x', 0", remedy),
            ("UPDATE m SET success = false WHERE version = 2", partial),
        ] {
            let database = TestDatabase::create().await;
            for set in SCHEMA.iter().filter(|set| table_of(set) == table) {
                make_release_0_2(set, &database).await;
            }
            let mut connection = database.pool.acquire().await.unwrap();
            let view = format!("CREATE TEMPORARY VIEW m AS SELECT * FROM {table}");
            for statement in [&*view, change] {
                let statement = sqlx::raw_sql(AssertSqlSafe(statement));
                statement.execute(&mut *connection).await.unwrap();
            }
            let before = all_applied(&database).await;

            let migrated = database.command("migrate");
            assert_eq!(migrated.code, Some(1), "{change}: {migrated:?}");
            assert!(migrated.stderr.contains(told), "{change}: {migrated:?}");
            assert_eq!(all_applied(&database).await, before, "{change}");
        }
    }
}

#[tokio::test]
async fn the_folder_of_a_private_postgres_is_taken_over() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let (server, _) = start_embedded(&data_dir);
    let first = server.client.charge("key-1").await;
    drop(server);
    let settings = embedded::settings(data_dir.clone().into(), None);
    let postgres = EmbeddedPostgres::start(settings).await.unwrap();
    let database = TestDatabase::in_private(&postgres).await;
    back_to_release_0_2(0, &database).await;
    database.pool.close().await;
    postgres.stop().await.unwrap();

    let (server, _) = start_embedded(&data_dir);
    server.client.charge("key-1").await.assert_replays(&first);
}

#[tokio::test]
async fn the_books_of_the_processor_are_taken_over() {
    let processor = Processor::start().await;
    let instruction = authorize("ch_1", "tok_visa");
    let key = Uuid::now_v7();
    let first = processor.put(key, &instruction).await.unwrap();
    let database = processor.database.clone();
    drop(processor);
    let [set] = PROCESSOR_SCHEMA else {
        panic!("the processor has one set");
    };
    make_release_0_2(set, &database).await;

    let again = Processor::start_on(database.clone(), &[]);
    assert_eq!(again.put(key, &instruction).await.unwrap(), first);
    assert_eq!(again.lines().await, 1);
    assert_eq!(applied(set, &database).await, taken_over(set));
}
