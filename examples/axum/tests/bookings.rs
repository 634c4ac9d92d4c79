//! The example, run as a program of its own on a real PostgreSQL.

use std::sync::Arc;

use example_test_support::endpoint::{self, Endpoint};
use tokio::task::JoinSet;

const BOOKINGS: Endpoint = Endpoint {
    program: env!("CARGO_BIN_EXE_example-axum"),
    path: "/bookings",
    body: r#"{"seat":12}"#,
    other_body: r#"{"seat":13}"#,
    effects: "SELECT count(*) FROM bookings",
    forbid: "INSERT INTO bookings (seat) VALUES (12)",
    reset: "DELETE FROM bookings",
};

#[tokio::test]
async fn a_retry_is_answered_with_what_is_stored() {
    endpoint::replays(BOOKINGS).await;
}

#[tokio::test]
async fn a_key_is_refused_for_another_request() {
    endpoint::refuses_reuse(BOOKINGS).await;
}

#[tokio::test]
async fn a_refusal_is_stored_and_replayed() {
    endpoint::replays_refusals(BOOKINGS).await;
}

#[tokio::test]
async fn a_request_without_a_key_has_no_effect() {
    endpoint::needs_a_key(BOOKINGS).await;
}

#[tokio::test]
async fn fifty_racers_have_one_effect() {
    endpoint::has_one_effect_for_fifty_racers(BOOKINGS).await;
}

#[tokio::test]
async fn a_request_for_another_protocol_is_answered() {
    endpoint::answers_upgrades(BOOKINGS, false).await;
}

#[tokio::test]
async fn expired_keys_are_swept() {
    endpoint::sweeps_expired_keys(BOOKINGS).await;
}

#[tokio::test]
async fn sigterm_ends_the_program_in_good_order() {
    endpoint::ends_in_good_order(BOOKINGS).await;
}

#[tokio::test]
async fn a_seat_is_booked_once_however_many_want_it() {
    let service = Arc::new(BOOKINGS.start().await);
    let mut clients = JoinSet::new();
    for client in 0..20 {
        let service = Arc::clone(&service);
        clients.spawn(async move {
            let key = format!("key-{client}");
            service
                .post_until_definite(&key, BOOKINGS.body)
                .await
                .status
        });
    }
    let mut statuses = clients.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [[201].as_slice(), &[400; 19]].concat());
    assert_eq!(service.effects().await, 1);
}
