//! Requests with different keys that want the same money: the row's lock lets one after the other
//! decide, and the database's own constraints refuse what would get past the lock.

use charge_once::{
    domain::{
        charge::{Authorization, Charge, NewCharge},
        ids::{AccountId, ChargeId, OrderId},
    },
    store,
    wire::charges::CreateChargeParams,
};
use charge_once_strict_params::{Encoding, ParameterSet, Params};
use chrono::Utc;

use crate::support::{
    harness::violated,
    prelude::*,
    racers::{Doing, Step, interleave, until_definite},
    resources::{money, uncaptured},
};

/// Fifty operations at once; how many succeeded, and the codes of those that didn't.
async fn fifty(client: &Client, path: &str, body: &Value) -> (usize, String) {
    let answers = all_at_once(50, |_| {
        let (client, path, body) = (client.clone(), path.to_owned(), body.clone());
        async move { until_definite(&client, &path, &body).await }
    })
    .await;
    let (done, refused): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.status.is_success());
    let mut codes: Vec<_> = refused.iter().map(|answer| answer.code()).collect();
    codes.sort();
    codes.dedup();
    (done.len(), codes.join(", "))
}

#[tokio::test]
async fn fifty_refunds_at_once_give_back_no_more_than_was_captured() {
    let (server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    // Six times 300 fit into 2000, a seventh doesn't.
    let part = json!({"charge": charge, "amount": 300});
    let (refunded, codes) = fifty(&client, "/refunds", &part).await;
    assert_eq!((refunded, &*codes), (6, "refund_amount_too_large"));
    let charge = client.get(&format!("/charges/{charge}")).await.json();
    assert_eq!(money(&charge), json!([true, 2000, 1800, false]));
    let sum = "SELECT sum(amount)::bigint FROM refunds";
    assert_eq!(server.database.count(sum).await, 1800);
}

#[tokio::test]
async fn fifty_payments_at_once_make_one_charge() {
    let server = TestServer::start().await;
    let order = open_order(&server.client).await;
    let path = format!("/orders/{order}/pay");
    let (paid, codes) = fifty(&server.client, &path, &json!({})).await;
    assert_eq!((paid, &*codes), (1, "order_already_paid"));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn fifty_captures_at_once_take_the_money_once() {
    let server = TestServer::start().await;
    let charge = uncaptured(&server.client).await;
    let path = format!("/charges/{charge}/capture");
    let (captured, codes) = fifty(&server.client, &path, &json!({"amount": 500})).await;
    assert_eq!((captured, &*codes), (1, "charge_already_captured"));
    let captured = "SELECT count(*) FROM events WHERE type = 'charge.captured'";
    assert_eq!(server.database.count(captured).await, 1);
}

#[tokio::test]
async fn of_a_capture_and_a_release_at_once_one_happens() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for _ in 0..10 {
        let charge = uncaptured(&client).await;
        let capture = format!("/charges/{charge}/capture");
        // A part, so that a refund of the whole amount fits only before the capture.
        let part = json!({"amount": 500});
        let whole = json!({"charge": charge, "amount": 2000});
        let (captured, released) = tokio::join!(
            until_definite(&client, &capture, &part),
            until_definite(&client, "/refunds", &whole),
        );
        let charge = client.get(&format!("/charges/{charge}")).await.json();
        if captured.status.is_success() {
            assert_eq!(released.code(), "refund_amount_too_large");
            assert_eq!(money(&charge), json!([true, 500, 0, false]));
        } else {
            assert_eq!(captured.code(), "charge_already_refunded");
            assert_eq!(released.status, 201);
            assert_eq!(money(&charge), json!([false, 0, 2000, true]));
        }
    }
}

#[tokio::test]
async fn of_a_payment_and_a_cancellation_at_once_one_happens() {
    let (server, client) = TestServer::with_client(&[]).await;
    for _ in 0..10 {
        let order = open_order(&client).await;
        let (path, nothing) = (format!("/orders/{order}"), json!({}));
        let (pay, cancel) = (format!("{path}/pay"), format!("{path}/cancel"));
        let (paid, canceled) = tokio::join!(
            until_definite(&client, &pay, &nothing),
            until_definite(&client, &cancel, &nothing),
        );
        let order = client.get(&path).await.json();
        if paid.status.is_success() {
            assert_eq!(canceled.code(), "order_already_paid");
            assert_eq!(order["status"], "paid");
        } else {
            assert_eq!(paid.code(), "order_canceled");
            assert_eq!(canceled.status, 200);
            order.assert_shows(json!({"status": "canceled", "charge": null}));
        }
    }
    let kept = "SELECT count(*) FROM charges
                  JOIN orders ON orders.id = charges.order_id AND orders.status <> 'paid'";
    assert_eq!(server.database.count(kept).await, 0);
}

/// What two transactions want to change.
#[derive(Clone, Copy)]
struct Target {
    account: AccountId,
    charge: ChargeId,
    order: OrderId,
}

impl Target {
    /// This charge, and no order.
    async fn of(server: &TestServer, charge: &str) -> Self {
        let account = sqlx::query_scalar("SELECT account_id FROM charges LIMIT 1");
        let account = account.fetch_one(&server.database.pool).await;
        Self {
            account: AccountId(account.unwrap()),
            charge: ChargeId::parse(charge).unwrap(),
            order: OrderId(Uuid::now_v7()),
        }
    }

    /// A statement about a row of the account.
    fn query(self, sql: &'static str, id: Uuid) -> Query {
        sqlx::query(sql).bind(self.account.0).bind(id)
    }
}

type Query = sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn params(value: Value) -> Params {
    Params::new(Encoding::Json, Ok(value.as_object().unwrap().clone()))
}

/// Counts from what the row holds when it is written, not from what was read of it. So do releases
/// that know no versions.
async fn refund(tx: &mut PgConnection, target: Target, amount: i64) -> Result<(), sqlx::Error> {
    let count = "UPDATE charges SET amount_refunded = amount_refunded + $3, released = NOT captured
                  WHERE account_id = $1 AND id = $2";
    written(target.query(count, target.charge.0).bind(amount), tx).await?;
    let insert =
        "INSERT INTO refunds (account_id, id, charge_id, amount, currency, status, metadata)
                  SELECT account_id, $3, id, $4, currency, 'succeeded', '{}'
                    FROM charges WHERE account_id = $1 AND id = $2";
    let insert = target.query(insert, target.charge.0);
    written(insert.bind(Uuid::now_v7()).bind(amount), tx).await
}

async fn written(statement: Query, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    match statement.execute(tx).await?.rows_affected() {
        1 => Ok(()),
        _ => Err(sqlx::Error::RowNotFound),
    }
}

fn refund_three_quarters(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(refund(tx, target, 1500))
}

fn release(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(refund(tx, target, 2000))
}

fn capture_a_quarter(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let capture = "UPDATE charges SET captured = true, amount_captured = 500
                        WHERE account_id = $1 AND id = $2 AND NOT captured";
        written(target.query(capture, target.charge.0), tx).await
    })
}

fn pay(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let body = params(json!({"amount": 2400, "currency": "eur"}));
        let new = NewCharge::from(CreateChargeParams::parse(&body).unwrap());
        let (account, id) = (target.account, ChargeId(Uuid::now_v7()));
        let (order, said) = (Some(target.order), Some(Authorization::Approved));
        let charge = Charge::made(id, &new, order, said, Utc::now());
        store::charges::insert_all(tx, &[(account, &charge)]).await?;
        let pay = "UPDATE orders SET status = 'paid', charge_id = $3
                    WHERE account_id = $1 AND id = $2";
        written(target.query(pay, target.order.0).bind(charge.id.0), tx).await
    })
}

fn cancel(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let cancel = "UPDATE orders SET status = 'canceled', canceled_at = now()
                       WHERE account_id = $1 AND id = $2";
        written(target.query(cancel, target.order.0), tx).await
    })
}

/// Of the five that are there.
fn take_three_mugs(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let take = "UPDATE inventory SET quantity = quantity - 3
                     WHERE account_id = $1 AND sku = 'mug'";
        written(sqlx::query(take).bind(target.account.0), tx).await
    })
}

#[tokio::test]
async fn constraints_alone_refuse_the_second_of_two_that_never_locked() {
    let server = TestServer::start().await;
    server.database.is_left_broken("its steps are no commands");
    let client = &server.client;
    let captured = client.charge("key-1").await.id();
    let five = json!({"quantity": 5});
    let set = client.put("/inventory/mug", "key-2", &five).await;
    assert_eq!(set.status, 200);
    let too_much = "refunds_never_exceed_what_was_captured";
    let released = "a_released_charge_is_never_captured";
    let (three_quarters, quarter): (Step<Target>, Step<Target>) =
        (refund_three_quarters, capture_a_quarter);
    let negative = "inventory_is_never_negative";
    let cases: &[(bool, Step<Target>, Step<Target>, &str)] = &[
        (true, three_quarters, three_quarters, too_much),
        (false, release, quarter, released),
        (false, quarter, release, too_much),
        (false, pay, pay, "an_order_has_one_succeeded_charge"),
        (false, pay, cancel, "only_a_paid_order_has_a_charge"),
        (false, cancel, pay, "a_canceled_order_stays_canceled"),
        (false, take_three_mugs, take_three_mugs, negative),
    ];
    for (use_captured, first, second, constraint) in cases {
        let charge = match use_captured {
            true => captured.clone(),
            false => uncaptured(client).await,
        };
        let mut target = Target::of(&server, &charge).await;
        target.order = OrderId::parse(&open_order(client).await).unwrap();
        let later = interleave(&server.database, target, *first, *second).await;
        let error = later.unwrap_err();
        assert_eq!(violated(&error), Some(*constraint), "{error}");
    }
    // A capture is one conditional update: the second finds nothing to change.
    let target = Target::of(&server, &uncaptured(client).await).await;
    let again = interleave(&server.database, target, quarter, quarter).await;
    assert!(matches!(again, Err(sqlx::Error::RowNotFound)), "{again:?}");
}

/// What a verb writes, of a row that it has read without a lock.
fn describe(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let read = store::charges::find(tx, target.account, target.charge).await?;
        let read = read.ok_or(sqlx::Error::RowNotFound)?;
        let changed = Charge {
            amount_refunded: read.amount_refunded + 1,
            version: read.version + 1,
            ..read.clone()
        };
        store::charges::update_all(tx, &[(target.account, &changed, read.version)]).await
    })
}

#[tokio::test]
async fn the_version_alone_refuses_the_second_of_two_that_never_locked() {
    let server = TestServer::start().await;
    server.database.is_left_broken("its steps are no commands");
    let charge = server.client.charge("key-1").await.id();
    let target = Target::of(&server, &charge).await;
    let later = interleave(&server.database, target, describe, describe).await;
    assert!(matches!(later, Err(sqlx::Error::RowNotFound)), "{later:?}");
    let refunded = "SELECT amount_refunded FROM charges";
    assert_eq!(server.database.count(refunded).await, 1);
}
