//! How the client ends what it doesn't want to wait for any more: with a certain answer.

use super::*;

/// One attempt, and no retry but those that wait for a request in flight.
fn impatience() -> RetryPolicy {
    RetryPolicy {
        budget: 0,
        ..RetryPolicy::default()
    }
}

fn impatient(proxy: &HttpProxy, folder: &TempDir) -> ClientBuilder {
    builder(proxy.url(), &TestClock::default())
        .key_store(store(folder))
        .retry_policy(impatience())
}

fn is_abandoned<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Abandoned))
}

#[tokio::test]
async fn a_key_that_was_given_up_has_no_effect_whenever_its_request_arrives() {
    let acts = [
        Act::LoseTheRequest,
        Act::Answer(NEVER_AGAIN, "{}"),
        Act::LoseTheAnswer,
    ];
    let (server, proxy) = HttpProxy::with_server(acts).await;
    let folder = TempDir::new().unwrap();
    let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
    let payment = payment(&client).with_key("order/1?").unwrap();
    gave_up(payment.send().await);
    assert!(is_abandoned(&payment.give_up().await));
    // The answer was lost, and asked for again under one key.
    let seen = proxy.seen();
    assert_all_alike(&seen[2..], 2);
    let path = "POST /idempotency-keys/order%2F1%3F/abandon HTTP/1.1";
    assert_eq!(seen[2].head.lines().next(), Some(path));
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    // The first attempt arrives now, and so does another one.
    let body = json!({"amount": 2000, "currency": "usd"});
    let late = server.client.post("/charges", "order/1?", &body).await;
    assert_eq!(late.code(), "idempotency_key_abandoned");
    assert!(is_abandoned(&payment.send().await));
    assert!(is_abandoned(&payment.give_up().await));
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn an_attempt_that_the_service_holds_up_ends_as_given_up() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    let url = format!("http://{}", client.address);
    let proxy = HttpProxy::in_front_of(client.address, []).await;
    let slow = builder(proxy.url(), &TestClock::default()).header("Fault", "delay; seconds=3");
    let slow = payment(&slow.build().unwrap()).with_key("order-1").unwrap();
    let slow = tokio::spawn(async move { slow.send().await });
    eventually("it is on its way", async || proxy.seen().len() == 1).await;
    let other = builder(url, &TestClock::default()).build().unwrap();
    let given_up = payment(&other).with_key("order-1").unwrap().give_up().await;
    assert!(is_abandoned(&given_up), "{given_up:?}");
    assert!(is_abandoned(&slow.await.unwrap()));
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_call_that_may_give_its_key_up_ends_with_what_was_executed_or_with_nothing() {
    let folder = TempDir::new().unwrap();
    for (act, is_executed) in [(Act::LoseTheAnswer, true), (Act::LoseTheRequest, false)] {
        let (server, proxy) = HttpProxy::with_server([act]).await;
        let client = impatient(&proxy, &folder).give_up_within(60 * SECOND);
        let payment = payment(&client.build().unwrap());
        let outcome = payment.send().await;
        if is_executed {
            assert_eq!(payment.send().await.unwrap(), outcome.unwrap());
            assert_eq!(server.database.charges().await, 1);
            assert_eq!(proxy.seen().len(), 4);
        } else {
            assert!(is_abandoned(&outcome), "{outcome:?}");
            assert_eq!(server.database.charges().await, 0);
        }
        assert_eq!(files(&folder), [] as [PathBuf; 0]);
    }
}

/// The process ends, as far as the store knows, before it has an answer.
#[tokio::test]
async fn giving_up_goes_on_in_the_next_process_and_executes_nothing() {
    let acts = [Act::LoseTheRequest, Act::Answer(NEVER_AGAIN, "{}")];
    let (server, proxy) = HttpProxy::with_server(acts).await;
    let folder = TempDir::new().unwrap();
    let client = impatient(&proxy, &folder).give_up_within(60 * SECOND);
    let payment = payment(&client.build().unwrap());
    let unknown = gave_up(payment.send().await);
    assert_eq!(unknown.key.as_deref(), Some(payment.key()));
    assert_eq!(unknown.reason, Reason::Budget);
    assert_eq!(files(&folder).len(), 2, "the operation, and what gives up");

    let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
    let resumed = client.resume().await.unwrap();
    let [Resumed::Sent { operation, outcome }] = resumed.as_slice() else {
        panic!("one operation: {resumed:?}");
    };
    assert_eq!(operation, payment.operation());
    assert!(is_abandoned(outcome), "{outcome:?}");
    let seen = proxy.seen();
    assert_all_alike(&seen[1..], 2);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn what_may_have_been_executed_is_waited_for_and_then_told() {
    let world = World::new().await;
    let fault = json!({"fault": "drop_after"});
    world.processor.set_fault(fault).await;
    let proxy = HttpProxy::in_front_of(world.client().address, []).await;
    let folder = TempDir::new().unwrap();
    let payment = payment(&impatient(&proxy, &folder).build().unwrap());
    gave_up(payment.send().await);
    let unknown = gave_up(payment.give_up().await);
    assert_eq!(unknown.reason, Reason::Deadline);
    assert_eq!(unknown.key.as_deref(), Some(payment.key()));
    let AttemptFailure::Answered(refusal) = unknown.last else {
        panic!("an answer came");
    };
    assert_eq!(refusal.code, "idempotency_key_in_use");
    assert!(refusal.message.contains("may have been executed"));
    assert_eq!(files(&folder).len(), 2);

    world.processor.reset_faults().await;
    // A retry asks for it, as the service itself does.
    eventually("it is known", async || payment.send().await.is_ok()).await;
    // What gives up goes with it.
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    let charged = payment.give_up().await.unwrap();
    assert_eq!(payment.send().await.unwrap(), charged);
    assert_eq!(world.database.charges().await, 1);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

/// A service without the verb, an API key that was revoked, or a proxy.
#[tokio::test]
async fn what_does_not_give_the_key_up_decides_nothing() {
    let folder = TempDir::new().unwrap();
    for answer in [
        Act::Answer("404 Not Found", r#"{"error":{"code":"route_not_found"}}"#),
        Act::Answer(
            "401 Unauthorized",
            r#"{"error":{"code":"api_key_invalid"}}"#,
        ),
        Act::Answer(NEVER_AGAIN, "{}"),
        Act::Answer("200 OK", r#"{"object":"page"}"#),
        Act::Answer(
            "200 OK",
            r#"{"object":"key","key":"a","status":"in_doubt"}"#,
        ),
    ] {
        let (server, proxy) = HttpProxy::with_server([Act::LoseTheRequest, answer.clone()]).await;
        let payment = payment(&impatient(&proxy, &folder).build().unwrap());
        gave_up(payment.send().await);
        let unknown = gave_up(payment.give_up().await);
        assert!(unknown.sent, "{answer:?}");
        assert_eq!(unknown.key.as_deref(), Some(payment.key()), "{answer:?}");
        assert_eq!(proxy.seen().len(), 2, "{answer:?}");
        assert_eq!(files(&folder).len(), 2, "{answer:?}");
        assert_eq!(server.database.records().await, 0);
        assert!(is_abandoned(&payment.give_up().await), "{answer:?}");
        assert_eq!(files(&folder), [] as [PathBuf; 0]);
    }
}

/// The service may have forgotten what was executed, and would then say that nothing was.
#[tokio::test]
async fn a_key_that_is_too_old_is_not_given_up() {
    let (_server, proxy) = HttpProxy::with_server([]).await;
    let clock = TestClock::default();
    let folder = TempDir::new().unwrap();
    let client = keeping(proxy.url(), &clock, store(&folder));
    let payment = payment(&client);
    clock.advance(23 * 3600 * SECOND);
    let refused = payment.give_up().await;
    assert!(matches!(refused, Err(Error::Expired(_))), "{refused:?}");
    assert_eq!(proxy.seen(), []);
}

/// The service knows that the key was used, and not what came of it.
#[tokio::test]
async fn a_key_that_is_remembered_as_expired_is_neither_refused_nor_given_up() {
    let (server, client) = TestServer::with_client(&[("KEY_MEMORY", "365d"), FORGETFUL]).await;
    let folder = TempDir::new().unwrap();
    let url = format!("http://{}", client.address);
    let client = keeping(url, &TestClock::default(), store(&folder));
    let payment = payment(&client);
    payment.send().await.unwrap();
    server.database.expire_records().await;
    for told in [payment.give_up().await, payment.send().await] {
        match told {
            Err(Error::Expired(operation)) => assert_eq!(&*operation, payment.operation()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(files(&folder).len(), 2, "both stay open");
    assert_eq!(server.database.charges().await, 1);
}
