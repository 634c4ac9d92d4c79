//! `charge-once trigger`: an event of each type, and what it needs.

use charge_once::domain::event::EventType;

use super::*;

#[tokio::test]
async fn every_type_of_event_can_be_made_to_happen() {
    let server = TestServer::start().await;
    for event_type in EventType::ALL.iter().map(|known| known.as_str()) {
        if event_type == EventType::RefundFailed.as_str() {
            continue;
        }
        let ended = run(&url_of(&server), &["trigger", event_type]).await;
        let printed = ended.succeeded();
        let parts: Vec<_> = printed.trim_end().split("  ").collect();
        assert_eq!((parts.len(), parts[0]), (3, event_type), "{printed}");
        let path = format!("/events/{}", parts[1]);
        let event = server.client.get(&path).await.json();
        assert_eq!(event["type"], event_type);
        // About what was made just now, and no older object.
        let object = &event["data"]["object"];
        let is_new = object["id"] == parts[2] || object["charge"] == parts[2];
        assert!(is_new, "{printed}");
    }
}

#[tokio::test]
async fn a_second_run_makes_an_event_of_its_own() {
    let server = TestServer::start().await;
    let mut printed = Vec::new();
    for _ in 0..2 {
        let ended = run(&url_of(&server), &["trigger", "checkout.completed"]).await;
        printed.push(ended.succeeded());
    }
    assert_ne!(printed[0], printed[1]);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn without_an_event_all_types_are_listed_though_there_is_neither_a_service_nor_a_key() {
    let away = RefusedAddress::reserve();
    let mut listing = command(&away.url(), &["trigger"]);
    listing.env_remove("CHARGE_ONCE_API_KEY");
    let printed = run_to_end(listing).await.succeeded();
    let all: Vec<_> = EventType::ALL.iter().map(|known| known.as_str()).collect();
    let mut listed: Vec<_> = printed.lines().collect();
    assert_eq!(listed.len(), all.len(), "{printed}");
    listed.retain(|name| !all.contains(name));
    assert!(listed.is_empty(), "{listed:?}");
}

#[tokio::test]
async fn an_unknown_type_is_answered_with_all_types_and_nothing_is_made() {
    let server = TestServer::start().await;
    let told = run(&url_of(&server), &["trigger", "charge.stolen"]).await;
    let told = told.failed(2);
    for known in EventType::ALL {
        told.must_have(&[known.as_str()]);
    }
    let unused = "trigger charge.failed --processor-url http://127.0.0.1:9";
    let unused: Vec<_> = unused.split(' ').collect();
    let told = run(&url_of(&server), &unused).await.failed(1);
    told.must_have(&["--processor-url is for refund.failed only"]);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_refund_fails_where_a_processor_refuses_it_and_else_the_command_says_what_is_needed() {
    let world = World::new().await;
    let url = format!("http://{}", world.client().address);
    let failing = ["trigger", "refund.failed"];
    let told = run(&url, &failing).await.failed(1);
    told.must_have(&["set --processor-url to the simulator"]);
    assert_eq!(world.database.charges().await, 0, "nothing was made");
    let bad = [&failing[..], &["--processor-url", "ftp://x"]].concat();
    let told = run(&url, &bad).await.failed(1);
    told.must_have(&["--processor-url can't be used"]);

    let processor = world.processor.url();
    let whole = [&failing[..], &["--processor-url", &processor]].concat();
    let printed = run(&url, &whole).await.succeeded();
    assert!(printed.starts_with("refund.failed  evt_"), "{printed}");

    // A processor that doesn't know the charge.
    let server = TestServer::start().await;
    let told = run(&url_of(&server), &whole).await.failed(1);
    told.must_have(&["it doesn't know the charge"]);
}
