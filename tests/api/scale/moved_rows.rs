//! What an account had made before its move, and what clients and holders had begun: its lists, its
//! log, its keys, its holders' pages and its checkouts.

use charge_once::database::{move_account::MoveStep, shards::FIRST_SHARD};

use super::moves::Movable;
use crate::support::{holder_pages::open, prelude::*};

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
