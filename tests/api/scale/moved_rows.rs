//! What an account had made before its move, and what clients and holders had begun: its lists, its
//! log, its keys, its holders' pages and its checkouts.

use charge_once::database::{move_account::MoveStep, shards::FIRST_SHARD};

use super::moves::Movable;
use crate::{
    console::visit::{CONSOLE, Visit},
    support::{holder_pages::open, prelude::*},
};

#[tokio::test]
async fn the_log_of_requests_moves_along_and_is_looked_up_where_the_account_lives() {
    let (movable, server, shop) = Movable::served(&[CONSOLE]).await;
    let two = &movable.two;
    let visit = Visit::begin_with(&server.client, &movable.key).await;
    assert_eq!(shop.charge("key-1").await.status, 201);
    let logged = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key-1'";
    two.other.comes_to(logged, 1).await;
    let list = "/console/requests";
    visit.page(list).await.must_have(&["key-1"]);

    movable.killed_after(FIRST_SHARD, MoveStep::Leaving).await;
    // The server forgets the home that it remembers.
    assert_eq!(shop.charge("key-2").await.status, 503);
    assert_eq!(visit.get(list).await.status, 503);
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    // Both have the account now, and one of them is its home.
    assert_eq!(shop.charge_until_definite("key-2").await.status, 201);
    let made = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key-2' AND status = 201";
    two.first.comes_to(made, 1).await;
    visit.page(list).await.must_have(&["key-1", "key-2"]);
    let shown = two.run("keys show key-1").await.succeeded();
    shown.must_have(&["shop", "POST /charges"]);
    movable.moved(FIRST_SHARD).await;

    visit.page(list).await.must_have(&["key-1", "key-2"]);
    let story = visit.page("/console/keys/key-1").await;
    story.must_have(&["executed", "201"]);
    assert_eq!(two.first.count(logged).await, 1);
    assert_eq!(two.other.count_of("request_log").await, 0);
    assert_eq!(two.other.count_of("request_counts").await, 0);
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_holder_whose_account_is_closed_keeps_the_page_and_is_heard_once_at_the_new_home() {
    let (movable, server, shop) = Movable::served(&[]).await;
    let two = &movable.two;
    let intent = json!({
        "amount": 700, "currency": "usd", "confirm": true,
        "payment_method": "pm_card_threeDSecure2Required", "payment_method_types": ["card"],
    });
    let intent = shop.post_new("/payment_intents", &intent).await;
    let page = page_of(&intent);
    assert_eq!(open(&page).await.status, 200);

    movable.killed_after(FIRST_SHARD, MoveStep::Frozen).await;
    assert_eq!(open(&page).await.status, 200);
    let refused = press(&page, "complete").await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    movable.killed_after(FIRST_SHARD, MoveStep::Leaving).await;
    assert_eq!(open(&page).await.status, 503);
    assert_eq!(press(&page, "complete").await.status, 503);
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    assert_eq!(open(&page).await.status, 200);
    let completed = press(&page, "complete").await;
    assert_eq!(completed.status, 200);
    movable.moved(FIRST_SHARD).await;

    let again = press(&page, "fail").await;
    assert_eq!(
        (again.status, &again.body),
        (completed.status, &completed.body)
    );
    assert_eq!(open(&page).await.status, 410);
    let paid = "SELECT count(*) FROM payment_intents WHERE status = 'succeeded'";
    assert_eq!(two.first.count(paid).await, 1);
    assert_eq!(
        (two.first.charges().await, two.other.charges().await),
        (1, 0)
    );
    server.stop().await;
    movable.ends().await;
}
