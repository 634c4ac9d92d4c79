//! Authorizations that share a transaction, on a database of each test's own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use charge_once_postgres::embedded::Throwaway;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::OnceCell;

use super::*;
use crate::service::{MIGRATIONS, Processor, Settings};

/// Longer than a busy machine needs.
const AMPLE: Duration = Duration::from_secs(20);

const WHENEVER: DateTime<Utc> = DateTime::<Utc>::MAX_UTC;

/// The tests of this process share it.
static SERVER: OnceCell<Throwaway> = OnceCell::const_new();

async fn database() -> PgPool {
    let start = async || Throwaway::start("simulator").await.unwrap();
    let server = SERVER.get_or_init(start).await;
    let name = Uuid::now_v7().to_string();
    let url = server.create_database(&name, "template0").await.unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    MIGRATIONS.run(&pool).await.unwrap();
    pool
}

fn processor(pool: &PgPool, database_deadline: Duration) -> Processor {
    let settings = Settings {
        key_window: Duration::from_secs(3600),
        database_deadline,
        withhold: |_| (),
    };
    Processor::new(pool.clone().into(), settings).unwrap()
}

fn visa() -> Instruction {
    Instruction::Authorize {
        charge: "ch_1".to_owned(),
        amount: 2000,
        currency: "usd".to_owned(),
        card: "tok_visa".to_owned(),
        capture: true,
    }
}

async fn within_reason<T>(event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(AMPLE, event).await {
        Ok(happened) => happened,
        Err(_) => panic!("it never happened"),
    }
}

/// Lets nothing be executed until it ends. What was executed can be read.
async fn lock(pool: &PgPool) -> Transaction<'static, Postgres> {
    let mut lock = pool.begin().await.unwrap();
    let sql = "LOCK TABLE processor.operations IN EXCLUSIVE MODE";
    sqlx::raw_sql(sql).execute(&mut *lock).await.unwrap();
    lock
}

async fn is_any_waiting(pool: &PgPool) -> bool {
    let waiting = "SELECT EXISTS (
        SELECT FROM pg_locks
         WHERE NOT granted AND relation = 'processor.operations'::regclass
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    sqlx::query_scalar(waiting).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn a_known_key_whose_group_ends_too_late_has_its_answer() {
    let pool = database().await;
    let processor = processor(&pool, AMPLE);
    let key = Uuid::now_v7();
    let first = processor.execute(key, visa(), WHENEVER).await;
    let lock = lock(&pool).await;
    let not_after = Utc::now() + Duration::from_secs(1);
    let again = tokio::spawn(async move { processor.execute(key, visa(), not_after).await });
    within_reason(async {
        // A slow machine comes too late to wait.
        while !again.is_finished() && !is_any_waiting(&pool).await {}
        while Utc::now() <= not_after {
            tokio::task::yield_now().await;
        }
    })
    .await;
    lock.rollback().await.unwrap();
    assert_eq!(again.await.unwrap(), first);
}

#[tokio::test]
async fn a_new_key_that_comes_too_late_executes_nothing() {
    let pool = database().await;
    let ledger = processor(&pool, AMPLE).ledger;
    let (key, past) = (Uuid::now_v7(), Utc::now() - Duration::from_secs(1));
    let late = ledger.execute(key, visa(), past).await;
    assert_eq!(late, LedgerOutcome::Late);
    assert_eq!(ledger.find(key, None).await.unwrap(), None);
}

#[tokio::test]
async fn what_comes_too_late_does_not_wait_for_the_others_of_its_group() {
    let pool = database().await;
    let ledger = processor(&pool, AMPLE).ledger;
    let locked = lock(&pool).await;
    let (told, late) = oneshot::channel();
    let waiting = Waiting {
        key: Uuid::now_v7(),
        instruction: visa(),
        not_after: Utc::now() - Duration::from_secs(1),
        told,
    };
    assert!(ledger.waiting.try_send(waiting).is_ok());
    let in_time = ledger.execute(Uuid::now_v7(), visa(), WHENEVER);
    let late = async {
        let late = within_reason(late).await;
        locked.rollback().await.unwrap();
        late
    };
    let (in_time, late) = tokio::join!(in_time, late);
    assert_eq!(in_time, LedgerOutcome::Answered(Answer::Done));
    assert_eq!(late, Ok(None), "it runs alone");
}

#[tokio::test]
async fn a_group_that_takes_too_long_is_not_executed_and_its_members_wait_no_longer() {
    let pool = database().await;
    let ledger = processor(&pool, Duration::from_millis(200)).ledger;
    let _locked = lock(&pool).await;
    let (key, visa) = (Uuid::now_v7(), visa());
    let authorized = within_reason(ledger.authorize(key, &visa, WHENEVER)).await;
    assert_eq!(authorized, Some(LedgerOutcome::NotExecuted));
}
