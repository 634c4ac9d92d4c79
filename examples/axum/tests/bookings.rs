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
    says_close: false,
};

#[tokio::test]
async fn it_does_what_every_endpoint_behind_a_key_does() {
    endpoint::keeps_its_promises(BOOKINGS).await;
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
