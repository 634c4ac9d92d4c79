//! Several deliveries of one event, and several events about one charge.

use example_test_support::eventually;
use sqlx::{Connection, PgConnection};

use crate::support::{Receiver, charge, charge_event, charge_succeeded};

/// How many sessions of this database wait for a lock of this kind.
async fn waiting_for(connection: &mut PgConnection, kind: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = $1",
    )
    .bind(kind)
    .fetch_one(connection)
    .await
    .unwrap()
}

/// Waits until one session of the receiver's database waits for a lock of this kind.
async fn until_one_waits_for(receiver: &Receiver, kind: &str) {
    eventually(kind, || async {
        let mut connection = receiver.pool.acquire().await.unwrap();
        waiting_for(&mut connection, kind).await == 1
    })
    .await;
}

/// Two deliveries, stopped where the first is at its effect and the second waits for it.
struct TwoDeliveries {
    /// Keeps every effect waiting until its transaction ends.
    gate: PgConnection,
    statuses: [tokio::task::JoinHandle<u16>; 2],
}

impl TwoDeliveries {
    /// The first event takes money, since the gate is at the revenue.
    async fn of(receiver: &'static Receiver, [first, second]: [String; 2]) -> Self {
        let options = receiver.pool.connect_options();
        let mut gate = PgConnection::connect_with(&options).await.unwrap();
        sqlx::raw_sql("BEGIN; LOCK TABLE revenue")
            .execute(&mut gate)
            .await
            .unwrap();
        let first = tokio::spawn(async move { receiver.deliver(&first).await });
        until_one_waits_for(receiver, "relation").await;
        let second = tokio::spawn(async move { receiver.deliver(&second).await });
        until_one_waits_for(receiver, "transactionid").await;
        Self {
            gate,
            statuses: [first, second],
        }
    }

    /// Lets the effects through; returns both statuses, the lower one first.
    async fn finish(mut self) -> [u16; 2] {
        sqlx::raw_sql("COMMIT")
            .execute(&mut self.gate)
            .await
            .unwrap();
        let [one, other] = self.statuses;
        let mut statuses = [one.await.unwrap(), other.await.unwrap()];
        statuses.sort_unstable();
        statuses
    }
}

async fn lasting_receiver() -> &'static Receiver {
    Box::leak(Box::new(Receiver::start().await))
}

fn twice() -> [String; 2] {
    [charge_succeeded("evt_1"), charge_succeeded("evt_1")]
}

/// Two events about one charge. Both take money.
fn older_and_newer() -> [String; 2] {
    [
        charge_event("evt_1", "charge.succeeded", Some(2), 0),
        charge_event("evt_2", "charge.captured", Some(3), 500),
    ]
}

#[tokio::test]
async fn a_redelivery_has_no_second_effect() {
    let receiver = Receiver::start().await;
    for _ in 0..3 {
        assert_eq!(receiver.deliver(&charge_succeeded("evt_1")).await, 200);
        assert_eq!(receiver.effects().await, (1, 2000));
    }
    assert_eq!(receiver.deliver(&charge_succeeded("evt_2")).await, 200);
    assert_eq!(receiver.effects().await, (2, 4000));
}

#[tokio::test]
async fn fifty_deliveries_of_one_event_at_once_have_one_effect() {
    let receiver = lasting_receiver().await;
    let deliveries: Vec<_> = (0..50)
        .map(|_| tokio::spawn(async { receiver.deliver(&charge_succeeded("evt_1")).await }))
        .collect();
    for delivery in deliveries {
        assert_eq!(delivery.await.unwrap(), 200);
    }
    assert_eq!(receiver.effects().await, (1, 2000));
}

#[tokio::test]
async fn a_delivery_waits_for_the_one_at_its_effect_and_then_does_nothing() {
    let receiver = lasting_receiver().await;
    let deliveries = TwoDeliveries::of(receiver, twice()).await;
    assert_eq!(deliveries.finish().await, [200, 200]);
    assert_eq!(receiver.effects().await, (1, 2000));
}

#[tokio::test]
async fn a_delivery_that_waited_for_one_that_failed_has_the_effect() {
    let receiver = lasting_receiver().await;
    let deliveries = TwoDeliveries::of(receiver, twice()).await;
    receiver
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event = 'relation'",
        )
        .await;
    assert_eq!(deliveries.finish().await, [200, 500]);
    assert_eq!(receiver.effects().await, (1, 2000));
}

#[tokio::test]
async fn after_a_failed_effect_the_event_is_unknown_and_a_redelivery_has_the_effect() {
    let receiver = Receiver::start().await;
    receiver
        .execute("ALTER TABLE revenue ADD CONSTRAINT nothing_is_earned CHECK (amount = 0)")
        .await;
    assert_eq!(receiver.deliver(&charge_succeeded("evt_1")).await, 500);
    assert_eq!(receiver.effects().await, (0, 0));

    receiver
        .execute("ALTER TABLE revenue DROP CONSTRAINT nothing_is_earned")
        .await;
    assert_eq!(receiver.deliver(&charge_succeeded("evt_1")).await, 200);
    assert_eq!(receiver.effects().await, (1, 2000));
}

#[tokio::test]
async fn of_two_events_about_one_charge_the_newer_version_stays_whichever_arrives_first() {
    let [older, newer] = &older_and_newer();
    for events in [[older, newer], [newer, older]] {
        let receiver = Receiver::start().await;
        for event in events {
            assert_eq!(receiver.deliver(event).await, 200);
        }
        assert_eq!(charge(&receiver.pool).await, (2000, 500));
        assert_eq!(receiver.effects().await, (2, 4000));
    }
}

#[tokio::test]
async fn of_two_events_about_one_charge_at_once_the_newer_version_stays_whichever_waits() {
    let [older, newer] = older_and_newer();
    for events in [[older.clone(), newer.clone()], [newer, older]] {
        let receiver = lasting_receiver().await;
        let deliveries = TwoDeliveries::of(receiver, events).await;
        assert_eq!(deliveries.finish().await, [200, 200]);
        assert_eq!(charge(&receiver.pool).await, (2000, 500));
        assert_eq!(receiver.effects().await, (2, 4000));
    }
}

#[tokio::test]
async fn of_fifty_events_about_one_charge_at_once_the_newest_version_stays() {
    let receiver = lasting_receiver().await;
    // The newest first.
    let deliveries: Vec<_> = (1..=50)
        .rev()
        .map(|version| {
            let id = format!("evt_{version}");
            let event = charge_event(&id, "charge.refunded", Some(version), 10 * version);
            tokio::spawn(async move { receiver.deliver(&event).await })
        })
        .collect();
    for delivery in deliveries {
        assert_eq!(delivery.await.unwrap(), 200);
    }
    assert_eq!(charge(&receiver.pool).await, (2000, 500));
    assert_eq!(receiver.effects().await, (50, 0));
}

#[tokio::test]
async fn an_event_without_a_version_is_applied_only_where_nothing_is_known_of_the_charge() {
    let receiver = Receiver::start().await;
    for (id, event_type, version, refunded, known) in [
        ("evt_1", "charge.succeeded", None, 0, 0),
        ("evt_2", "charge.refunded", None, 500, 0),
        ("evt_3", "charge.refunded", Some(1), 700, 700),
        ("evt_4", "charge.refunded", None, 900, 700),
    ] {
        let event = charge_event(id, event_type, version, refunded);
        assert_eq!(receiver.deliver(&event).await, 200);
        assert_eq!(charge(&receiver.pool).await, (2000, known), "{id}");
    }
    assert_eq!(receiver.effects().await, (4, 2000));
}

#[tokio::test]
async fn an_event_of_another_type_is_acknowledged_without_an_effect() {
    let receiver = Receiver::start().await;
    let order = r#"{"id":"evt_1","type":"order.created","data":{"object":{"amount":2000}}}"#;
    assert_eq!(receiver.deliver(order).await, 200);
    assert_eq!(receiver.effects().await, (1, 0));
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_refused_and_leaves_nothing() {
    let receiver = Receiver::start().await;
    for body in [
        "",
        "no JSON",
        r#"{"type":"charge.succeeded","data":{"object":{}}}"#,
        r#"{"id":"evt_1","type":"charge.succeeded","data":{"object":{}}}"#,
    ] {
        assert_eq!(receiver.deliver(body).await, 400, "{body}");
    }
    assert_eq!(receiver.effects().await, (0, 0));
}
