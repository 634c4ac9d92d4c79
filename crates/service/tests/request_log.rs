//! From requests to rows and back. Each test has a database of its own, which `#[sqlx::test]`
//! creates on the server that `DATABASE_URL` names.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use charge_once_service::request_log::{
    DURATION_BOUNDS, LoggedOutcome, MINUTES_MAX, Minute, PATH_MAX_BYTES, RequestFilter, RequestLog,
    SEARCHED_MAX, Writing, count_replays, delete_minutes, delete_requests, list, list_of_key,
    migrate, minutes_since, old_requests, searched_to, start,
};
use sqlx::{PgPool, postgres::types::PgInterval};
use tokio::time::Instant;
use uuid::Uuid;

const ACCOUNT: Uuid = Uuid::from_u128(7);

const ALL: RequestFilter = RequestFilter {
    outcomes: None,
    status: None,
    path: None,
    idempotency_key: None,
    resource_id: None,
};

const PATIENCE: Duration = Duration::from_secs(20);

async fn begin(pool: &PgPool) -> (RequestLog, Writing) {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    start(pool.clone(), PATIENCE, |worker| tokio::spawn(worker.run()))
}

#[sqlx::test(migrations = false)]
async fn what_ended_is_read_by_time_and_by_key(pool: PgPool) {
    let (log, writing) = begin(&pool).await;
    let replayed = Some(LoggedOutcome::Replayed);
    let ends = [
        Some(LoggedOutcome::of("PUT", 200)),
        replayed,
        None,
        replayed,
    ];
    let ids = ends.map(|_| Uuid::now_v7());
    for (id, end) in ids.into_iter().zip(ends) {
        let entry = log.begin(id);
        let path = "/é".repeat(PATH_MAX_BYTES);
        entry.authenticated(ACCOUNT, "PUT", "/seats/{id}".to_owned(), Some(&path));
        entry.has_key("key-1");
        if let Some(outcome) = end {
            entry.end(200, outcome, Some("12A".to_owned()));
        }
        // Neither the end of a clone nor another reply is another request.
        entry.clone().end(500, LoggedOutcome::Failed, None);
    }
    let stranger = log.begin(Uuid::now_v7());
    stranger.has_key("key-1");
    stranger.end(401, LoggedOutcome::of("PUT", 401), None);
    writing.end(Instant::now() + PATIENCE).await;

    let mut connection = pool.acquire().await.unwrap();
    let all = list(&mut connection, ACCOUNT, &ALL, Uuid::max(), 10).await;
    let all = all.unwrap();
    let told = all.iter().map(|one| (one.id, one.status, one.outcome));
    let [first, second, third, fourth] = ids;
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (fourth, Some(200), LoggedOutcome::Replayed),
            (third, Some(500), LoggedOutcome::Failed),
            (second, Some(200), LoggedOutcome::Replayed),
            (first, Some(200), LoggedOutcome::Executed),
        ]
    );
    for one in &all {
        assert_eq!((&*one.method, &*one.route), ("PUT", "/seats/{id}"));
        // The character behind these bytes would have been cut.
        assert_eq!(one.path.as_deref().unwrap().len(), PATH_MAX_BYTES - 1);
    }
    let before = list(&mut connection, ACCOUNT, &ALL, second, 10)
        .await
        .unwrap();
    assert_eq!(Some(&*before), all.get(3..));
    let of_key = list_of_key(&mut connection, ACCOUNT, "key-1", 3).await;
    assert_eq!(Some(&*of_key.unwrap()), all.get(..3));
    let keys = ["key-1".to_owned(), "key-2".to_owned()];
    let counted = count_replays(&mut connection, ACCOUNT, &keys).await;
    let counted = counted.unwrap();
    assert_eq!(
        keys.map(|key| counted.get(&key).copied()),
        [Some(2), Some(0)]
    );
    let another = list(&mut connection, Uuid::nil(), &ALL, Uuid::max(), 10).await;
    assert_eq!(another.unwrap(), []);
}

#[sqlx::test(migrations = false)]
async fn a_filter_finds_what_has_all_that_it_names(pool: PgPool) {
    let (log, writing) = begin(&pool).await;
    let (executed, replayed) = (LoggedOutcome::Executed, LoggedOutcome::Replayed);
    for (path, key, end) in [
        ("/seats/12A", "order-7", Some((201, executed, "12A"))),
        ("/seats/12A", "order-7", Some((201, replayed, "12A"))),
        (
            "/seats/12B",
            "order-8",
            Some((422, LoggedOutcome::Refused, "12B")),
        ),
        ("/seats", "", Some((200, LoggedOutcome::Read, ""))),
        ("/seats/12C", "order-9", None),
    ] {
        let entry = log.begin(Uuid::now_v7());
        entry.authenticated(ACCOUNT, "PUT", "/seats/{id}".to_owned(), Some(path));
        if !key.is_empty() {
            entry.has_key(key);
        }
        if let Some((status, outcome, about)) = end {
            entry.end(status, outcome, Some(about.to_owned()));
        }
    }
    writing.end(Instant::now() + PATIENCE).await;
    let mut connection = pool.acquire().await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let only = |narrow: &dyn Fn(&mut RequestFilter)| {
        let mut filter = ALL;
        narrow(&mut filter);
        filter
    };
    for (filter, expected) in [
        (ALL, &["order-9", "-", "order-8", "order-7", "order-7"][..]),
        (
            only(&|all| all.outcomes = Some(vec![replayed])),
            &["order-7"],
        ),
        (only(&|all| all.outcomes = Some(vec![])), &[]),
        (only(&|all| all.status = Some((400, 499))), &["order-8"]),
        (
            only(&|all| all.path = text("/12")),
            &["order-9", "order-8", "order-7", "order-7"],
        ),
        (only(&|all| all.idempotency_key = text("r-9")), &["order-9"]),
        (
            only(&|all| all.resource_id = text("12A")),
            &["order-7", "order-7"],
        ),
        (
            RequestFilter {
                status: Some((400, 499)),
                ..only(&|all| all.resource_id = text("12A"))
            },
            &[],
        ),
        // What looks like a pattern of SQL is text.
        (only(&|all| all.path = text("%")), &[]),
    ] {
        let found = list(&mut connection, ACCOUNT, &filter, Uuid::max(), 10).await;
        let found = found.unwrap();
        let keys = found
            .iter()
            .map(|one| one.idempotency_key.as_deref().unwrap_or("-"));
        assert_eq!(keys.collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

#[sqlx::test(migrations = false)]
async fn a_search_ends_and_says_where_the_next_one_begins(pool: PgPool) {
    let mut connection = pool.acquire().await.unwrap();
    migrate(&mut connection).await.unwrap();
    sqlx::query(
        "INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us)
         SELECT $1, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'GET', '/seats',
                200, CASE WHEN n = 2 THEN 'executed' ELSE 'read' END, 1
           FROM generate_series(1, $2) AS n",
    )
    .bind(ACCOUNT)
    .bind(SEARCHED_MAX + 2)
    .execute(&mut *connection)
    .await
    .unwrap();
    let filter = RequestFilter {
        outcomes: Some(vec![LoggedOutcome::Executed]),
        ..ALL
    };
    let found = list(&mut connection, ACCOUNT, &filter, Uuid::max(), 10).await;
    assert_eq!(found.unwrap(), []);
    let end = searched_to(&mut connection, ACCOUNT, Uuid::max()).await;
    let end = end.unwrap().unwrap();
    let found = list(&mut connection, ACCOUNT, &filter, end, 10).await;
    assert_eq!(found.unwrap().len(), 1);
    assert_eq!(
        searched_to(&mut connection, ACCOUNT, end).await.unwrap(),
        None
    );
}

#[sqlx::test(migrations = false)]
async fn a_request_that_is_dropped_is_unanswered(pool: PgPool) {
    let (log, writing) = begin(&pool).await;
    let entry = log.begin(Uuid::now_v7());
    entry.authenticated(ACCOUNT, "GET", "/seats".to_owned(), None);
    drop(entry);
    writing.end(Instant::now() + PATIENCE).await;
    let mut connection = pool.acquire().await.unwrap();
    let all = list(&mut connection, ACCOUNT, &ALL, Uuid::max(), 10).await;
    let all = all.unwrap();
    let told = all.iter().map(|one| (one.status, one.outcome.as_str()));
    assert_eq!(told.collect::<Vec<_>>(), [(None, "unanswered")]);
}

#[sqlx::test(migrations = false)]
async fn rows_go_by_age_and_500_at_a_time(pool: PgPool) {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us, created_at)
         SELECT '00000000-0000-0000-0000-000000000007', lpad(to_hex(n), 32, '0')::uuid, 'GET', '/seats', 200,
                'read', 1, now() - CASE WHEN n <= 600 THEN interval '25 hours' ELSE interval '1 hour' END
           FROM generate_series(1, 700) AS n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let day = PgInterval::try_from(Duration::from_secs(24 * 3600)).unwrap();
    let mut after = Uuid::nil();
    for expected in [500, 100, 0] {
        let mut tx = pool.begin().await.unwrap();
        let old = old_requests(&mut tx, ACCOUNT, after, Uuid::max(), &day).await;
        let old = old.unwrap();
        assert_eq!(old.len(), expected);
        after = old.last().copied().unwrap_or(after);
        let gone = delete_requests(&mut tx, ACCOUNT, &old).await.unwrap();
        assert_eq!(usize::try_from(gone).unwrap(), expected);
        tx.commit().await.unwrap();
    }
    let mut connection = pool.acquire().await.unwrap();
    let left = list(&mut connection, ACCOUNT, &ALL, Uuid::max(), 1000).await;
    assert_eq!(left.unwrap().len(), 100);
}

/// The id of a request that came in this minute.
fn id_in(minute: u128, number: u128) -> Uuid {
    Uuid::from_u128((minute * 60_000) << 80 | number)
}

async fn minutes(pool: &PgPool, account: Uuid, from: i64) -> Vec<Minute> {
    let mut connection = pool.acquire().await.unwrap();
    let found = minutes_since(&mut connection, account, from).await;
    found.unwrap()
}

#[sqlx::test(migrations = false)]
async fn each_request_is_counted_in_its_minute_by_two_replicas_at_once(pool: PgPool) {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    let (executed, replayed) = (LoggedOutcome::Executed, LoggedOutcome::Replayed);
    let ends = [
        Some((201, executed)),
        Some((201, replayed)),
        Some((402, replayed)),
        Some((200, LoggedOutcome::Read)),
        None,
    ];
    let another = Uuid::from_u128(8);
    let replicas = [0, 1000].map(|first| {
        let pool = pool.clone();
        async move {
            let (log, writing) = start(pool, PATIENCE, |worker| tokio::spawn(worker.run()));
            // The greater account first, and more than one batch.
            for number in first..first + 600 {
                for account in [another, ACCOUNT] {
                    let entry = log.begin(id_in(7 + number % 2, number));
                    entry.authenticated(account, "PUT", "/seats".to_owned(), None);
                    let end = ends.get(usize::try_from(number % 5).unwrap()).unwrap();
                    if let Some((status, outcome)) = *end {
                        entry.end(status, outcome, None);
                    }
                }
            }
            writing.end(Instant::now() + PATIENCE).await;
        }
    });
    let [one, other] = replicas.map(tokio::spawn);
    one.await.unwrap();
    other.await.unwrap();
    for account in [ACCOUNT, another] {
        let found = minutes(&pool, account, 7).await;
        assert_eq!(
            found.iter().map(|one| one.minute).collect::<Vec<_>>(),
            [8, 7]
        );
        for minute in &found {
            let unanswered = minute.ended(LoggedOutcome::Unanswered);
            let counts = [executed, replayed, LoggedOutcome::Read].map(|it| minute.ended(it));
            assert_eq!((counts, unanswered), ([120, 240, 120], 120));
            assert_eq!(minute.ended(LoggedOutcome::Failed), 0);
            assert_eq!(minute.second_effects, 120);
            assert_eq!(minute.durations.len(), DURATION_BOUNDS.len() + 1);
            assert_eq!(minute.durations.iter().sum::<i64>(), 360);
        }
        assert_eq!(minutes(&pool, account, 8).await, found.get(..1).unwrap());
    }
    assert_eq!(minutes(&pool, Uuid::nil(), 0).await, []);
}

#[sqlx::test(migrations = false)]
async fn a_batch_that_is_not_written_is_not_counted(pool: PgPool) {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    let alter = async |table: &str, change: &str| {
        let alter = sqlx::AssertSqlSafe(format!("ALTER TABLE {table} {change}"));
        sqlx::raw_sql(alter).execute(&pool).await.unwrap();
    };
    for table in ["request_counts", "request_log"] {
        alter(table, "ADD CONSTRAINT nothing CHECK (false)").await;
        let (log, writing) = start(pool.clone(), PATIENCE, |worker| tokio::spawn(worker.run()));
        let entry = log.begin(Uuid::now_v7());
        entry.authenticated(ACCOUNT, "PUT", "/seats".to_owned(), None);
        entry.end(200, LoggedOutcome::Executed, None);
        writing.end(Instant::now() + PATIENCE).await;
        assert_eq!(minutes(&pool, ACCOUNT, 0).await, []);
        let mut connection = pool.acquire().await.unwrap();
        let all = list(&mut connection, ACCOUNT, &ALL, Uuid::max(), 1).await;
        assert_eq!(all.unwrap(), []);
        alter(table, "DROP CONSTRAINT nothing").await;
    }
}

#[sqlx::test(migrations = false)]
async fn minutes_of_a_day_are_read_and_go_by_age_and_500_at_a_time(pool: PgPool) {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    // Of a release with other outcomes, fewer and more.
    sqlx::raw_sql(
        "INSERT INTO request_counts (account_id, minute, outcomes, durations, second_effects)
         SELECT '00000000-0000-0000-0000-000000000007', date_trunc('minute', now()) - n * interval '1 minute',
                CASE WHEN n % 2 = 0 THEN '{1}' ELSE '{1,0,0,0,0,0,0,0,5}' END::bigint[], '{}', 0
           FROM generate_series(0, 2099) AS n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let found = minutes(&pool, ACCOUNT, 0).await;
    assert_eq!(i64::try_from(found.len()).unwrap(), MINUTES_MAX);
    assert!(
        found
            .iter()
            .all(|one| one.ended(LoggedOutcome::Executed) == 1)
    );
    let hour = PgInterval::try_from(Duration::from_secs(3600)).unwrap();
    for left in [1441, 1100, 600, 100, 60] {
        let mut tx = pool.begin().await.unwrap();
        delete_minutes(&mut tx, ACCOUNT, &hour).await.unwrap();
        delete_minutes(&mut tx, Uuid::nil(), &hour).await.unwrap();
        tx.commit().await.unwrap();
        let found = minutes(&pool, ACCOUNT, 0).await;
        // The minute an hour ago has ended, or ends meanwhile.
        assert!(found.len().abs_diff(left) <= 1, "{} {left}", found.len());
    }
}
