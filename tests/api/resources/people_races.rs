//! Customers and payment methods that several requests want at once, on two replicas.

use charge_once::{
    domain::{
        ids::{AccountId, CustomerId, PaymentMethodId},
        payment_method::{Attachment, PaymentMethod},
    },
    store,
};
use futures_util::future::{join, join_all};

use crate::support::{
    intents::{paid_with, terms_with},
    prelude::*,
    racers::{definite, until_definite},
    resources::{attached, customer, detach, method},
};

/// Two servers on one database.
struct Replicas {
    server: TestServer,
    other: ServerProcess,
}

impl Replicas {
    async fn start() -> Self {
        let database = TestDatabase::create().await;
        Self {
            other: ServerProcess::start(&database, PATIENT),
            server: TestServer::start_on(database, PATIENT).await,
        }
    }

    fn client(&self, racer: usize) -> Client {
        match racer % 2 {
            0 => self.server.client.clone(),
            _ => self.other.client.clone(),
        }
    }

    async fn count(&self, sql: &'static str) -> i64 {
        self.server.database.count(sql).await
    }
}

/// A deletion, repeated until its answer is a definite one.
async fn deleted(client: &Client, customer: &str) -> Answer {
    let path = format!("/customers/{customer}");
    definite(|| Answer::of(client.request(Method::DELETE, &path))).await
}

#[tokio::test]
async fn of_fifty_attachments_to_two_customers_those_to_one_succeed() {
    let replicas = Replicas::start().await;
    let client = &replicas.server.client;
    let customers = [customer(client).await, customer(client).await];
    let method = method(client, "tok_visa").await;
    let answers = all_at_once(50, |racer| {
        let client = replicas.client(racer);
        let path = format!("/payment_methods/{method}/attach");
        let body = json!({"customer": customers[racer / 2 % 2]});
        async move { until_definite(&client, &path, &body).await }
    })
    .await;
    let shown = client.get(&format!("/payment_methods/{method}")).await;
    let owner = shown.text_of("customer");
    assert!(customers.contains(&owner), "{owner}");
    for answer in &answers {
        match answer.status.as_u16() {
            200 => assert_eq!(answer.json()["customer"], *owner),
            _ => assert_eq!(answer.code(), "payment_method_unexpected_state"),
        }
    }
    let succeeded = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((24..=26).contains(&succeeded), "{succeeded}");
    let attached = "SELECT count(*) FROM events WHERE type = 'payment_method.attached'";
    assert_eq!(replicas.count(attached).await, 1);
}

#[tokio::test]
async fn a_customer_who_is_deleted_meanwhile_keeps_no_method() {
    let replicas = Replicas::start().await;
    let client = &replicas.server.client;
    for _ in 0..10 {
        let customer = customer(client).await;
        attached(client, "pm_card_visa", &customer).await;
        let methods = join_all((0..5).map(|_| method(client, "tok_visa"))).await;
        let attach = all_at_once(methods.len(), |racer| {
            let client = replicas.client(racer);
            let path = format!("/payment_methods/{}/attach", methods[racer]);
            let body = json!({"customer": customer});
            async move { until_definite(&client, &path, &body).await }
        });
        let other = replicas.client(1);
        let (attached, gone) = join(attach, deleted(&other, &customer)).await;
        assert_eq!(gone.status, 200, "{}", gone.json());
        for answer in attached {
            if answer.status != 200 {
                assert_eq!(answer.code(), "resource_missing");
            }
        }
    }
    let kept = "SELECT count(*) FROM payment_methods WHERE customer_id IS NOT NULL";
    assert_eq!(replicas.count(kept).await, 0);
    // Each attachment ended.
    let ended = "SELECT count(*) FILTER (WHERE type = 'payment_method.attached')
                        - count(*) FILTER (WHERE type = 'payment_method.detached') FROM events";
    assert_eq!(replicas.count(ended).await, 0);
    let gone = "SELECT count(*) FROM events WHERE type = 'customer.deleted'";
    assert_eq!(replicas.count(gone).await, 10);
}

#[tokio::test]
async fn of_twenty_deletions_at_once_one_happens() {
    let replicas = Replicas::start().await;
    let client = &replicas.server.client;
    let customer = customer(client).await;
    for _ in 0..3 {
        attached(client, "pm_card_visa", &customer).await;
    }
    let answers = all_at_once(20, |racer| {
        let (client, customer) = (replicas.client(racer), customer.clone());
        async move { deleted(&client, &customer).await }
    })
    .await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(done.len(), 1);
    for answer in refused {
        assert_eq!(answer.code(), "resource_missing");
    }
    let events =
        "SELECT count(*) FROM events WHERE type IN ('customer.deleted', 'payment_method.detached')";
    assert_eq!(replicas.count(events).await, 4);
}

#[tokio::test]
async fn a_default_is_never_a_method_that_is_detached_meanwhile() {
    let replicas = Replicas::start().await;
    let client = &replicas.server.client;
    for _ in 0..10 {
        let customer = customer(client).await;
        let method = attached(client, "pm_card_visa", &customer).await;
        let answers = all_at_once(10, |racer| {
            let client = replicas.client(racer);
            let settings = json!({"invoice_settings": {"default_payment_method": method}});
            let (path, body) = match racer {
                5 => (format!("/payment_methods/{method}/detach"), json!({})),
                _ => (format!("/customers/{customer}"), settings),
            };
            async move { until_definite(&client, &path, &body).await }
        })
        .await;
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(refused.code(), "parameter_invalid");
        }
        let shown = client.get(&format!("/payment_methods/{method}")).await;
        assert_eq!(shown.json()["customer"], Value::Null);
        let shown = client.get(&format!("/customers/{customer}")).await.json();
        shown.assert_shows(json!({"invoice_settings/default_payment_method": null}));
    }
}

#[tokio::test]
async fn a_customer_has_five_hundred_methods_at_most_however_many_race() {
    let replicas = Replicas::start().await;
    let client = &replicas.server.client;
    let customer = customer(client).await;
    attached(client, "pm_card_visa", &customer).await;
    let copies = "INSERT INTO payment_methods
            (account_id, id, customer_id, card_token, card_brand, card_last4, card_exp_month,
             card_exp_year, card_fingerprint, card_has_cvc, allow_redisplay, billing_details, metadata)
     SELECT account_id, gen_random_uuid(), customer_id, card_token, card_brand, card_last4, card_exp_month,
            card_exp_year, card_fingerprint, card_has_cvc, allow_redisplay, billing_details, metadata
       FROM payment_methods, generate_series(1, 494)";
    let pool = &replicas.server.database.pool;
    let copied = sqlx::query(copies).execute(pool).await;
    assert_eq!(copied.unwrap().rows_affected(), 494);
    let answers = all_at_once(20, |racer| {
        let client = replicas.client(racer);
        let body = json!({"customer": customer});
        async move { until_definite(&client, "/payment_methods/pm_card_visa/attach", &body).await }
    })
    .await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(done.len(), 5);
    for answer in refused {
        answer.assert_refusal(400, "parameter_invalid", "customer");
    }
    let gone = deleted(client, &customer).await;
    assert_eq!(gone.status, 200, "{}", gone.json());
    let detached = "SELECT count(*) FROM events WHERE type = 'payment_method.detached'";
    assert_eq!(replicas.count(detached).await, 500);
}

#[tokio::test]
async fn payments_of_a_customer_s_method_share_it_and_its_detachment_waits_for_them() {
    let (server, client) = TestServer::with_client(&[]).await;
    let owner = customer(&client).await;
    let method = attached(&client, "pm_card_visa", &owner).await;
    // As a payment does that has not ended.
    let sql = "SELECT id FROM payment_methods FOR SHARE";
    let payment = server.database.holding(sql).await;
    let paid = paid_with(&client, &method, json!({"customer": owner})).await;
    assert_eq!(paid.json()["status"], "succeeded", "{}", paid.json());
    let busy = detach(&client, &method).await;
    assert_eq!(busy.code(), "resource_busy");
    payment.rollback().await.unwrap();
    assert_eq!(detach(&client, &method).await.status, 200);
}

/// A row that no longer fits when its lock is had stays locked, so payments that waited for the
/// detachment share it, and must not ask for more.
#[tokio::test]
async fn a_payment_that_waited_for_a_detachment_waits_for_no_other_that_did() {
    let server = TestServer::start().await;
    let (client, pool) = (server.client.clone(), server.database.pool.clone());
    let owner = customer(&client).await;
    let method = attached(&client, "pm_card_visa", &owner).await;
    let mut detachment = pool.begin().await.unwrap();
    sqlx::query("UPDATE payment_methods SET customer_id = NULL, detached_at = now()")
        .execute(&mut *detachment)
        .await
        .unwrap();
    let mut other = pool.begin().await.unwrap();
    let sharing = tokio::spawn(async move {
        let share = "SELECT id FROM payment_methods WHERE customer_id IS NOT NULL FOR SHARE";
        let rows = sqlx::query(share).fetch_all(&mut *other).await.unwrap();
        assert!(rows.is_empty());
        other
    });
    let paying =
        tokio::spawn(async move { paid_with(&client, &method, json!({"customer": owner})).await });
    let waits = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE '%FROM payment_methods%FOR SHARE%'";
    // Both wait for the detachment.
    server.database.comes_to(waits, 2).await;
    detachment.commit().await.unwrap();
    let other = sharing.await.unwrap();
    let refused = paying.await.unwrap();
    assert_eq!(refused.code(), "payment_method_unexpected_state");
    other.rollback().await.unwrap();
}

/// Of two that shared its lock and then changed it, each would wait for the other one.
#[tokio::test]
async fn a_payment_that_changes_a_customer_s_method_waits_before_it_reads_it() {
    let server = TestServer::start().await;
    let client = server.client.clone();
    let owner = customer(&client).await;
    let method = attached(&client, "pm_card_visa", &owner).await;
    let sql = "SELECT id FROM payment_methods FOR SHARE";
    let payment = server.database.holding(sql).await;
    let body = terms_with(json!({
        "customer": owner, "payment_method": method, "confirm": true,
        "setup_future_usage": "off_session",
    }));
    let paying =
        tokio::spawn(async move { until_definite(&client, "/payment_intents", &body).await });
    let waits = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE '%FROM payment_methods%FOR NO KEY UPDATE%'";
    // It waits for the other payment.
    server.database.comes_to(waits, 1).await;
    payment.rollback().await.unwrap();
    let paid = paying.await.unwrap();
    assert_eq!(paid.status, 201, "{}", paid.json());
}

/// By what each read before the other one, the method would have one end.
#[tokio::test]
async fn an_end_of_a_method_stays_when_another_one_comes_that_never_locked_it() {
    let (server, client) = TestServer::with_client(&[]).await;
    let owner = CustomerId::parse(&customer(&client).await).unwrap();
    let pool = &server.database.pool;
    let account = sqlx::query_scalar("SELECT id FROM accounts LIMIT 1");
    let account = AccountId(account.fetch_one(pool).await.unwrap());
    let mut connection = pool.acquire().await.unwrap();
    let (used_up, to_owner) = (Attachment::UsedUp, Attachment::To(owner));
    for (first, second) in [(used_up, to_owner), (to_owner, used_up)] {
        let id = PaymentMethodId::parse(&method(&client, "tok_visa").await).unwrap();
        let read = store::payment_methods::find(&mut connection, account, id).await;
        let read = read.unwrap().unwrap();
        let end = |attachment| PaymentMethod {
            attachment,
            ..read.clone()
        };
        // The version stays, as by the release before, or it would refuse the second one first.
        let first = [(account, &end(first), read.version)];
        let written = store::payment_methods::update_all(&mut connection, &first).await;
        written.unwrap();
        let second = [(account, &end(second), read.version)];
        let refused = store::payment_methods::update_all(&mut connection, &second).await;
        let refused = refused.unwrap_err().into_database_error().unwrap();
        assert_eq!(refused.constraint(), Some("a_payment_method_has_one_fate"));
    }
}

#[tokio::test]
async fn a_method_has_one_fate_even_without_a_lock() {
    let (server, client) = TestServer::with_client(&[]).await;
    let owner = customer(&client).await;
    attached(&client, "pm_card_visa", &owner).await;
    for fate in ["used_up_at = now()", "detached_at = now()"] {
        let change = format!("UPDATE payment_methods SET {fate}");
        let refused = sqlx::query(sqlx::AssertSqlSafe(change))
            .execute(&server.database.pool)
            .await
            .unwrap_err();
        let refused = refused.into_database_error().unwrap();
        assert_eq!(refused.constraint(), Some("a_payment_method_has_one_fate"));
    }
}
