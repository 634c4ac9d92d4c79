//! From requests to rows and back. Each test has a database of its own, which `#[sqlx::test]`
//! creates on the server that `DATABASE_URL` names.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use charge_once_service::request_log::{
    LoggedOutcome, PATH_MAX_BYTES, RequestFilter, RequestLog, SEARCHED_MAX, Writing, count_replays,
    delete_requests, list, list_of_key, migrate, old_requests, searched_to, start,
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
