//! Which trouble the client retries, under which key, for how long, and what it says afterwards.

use charge_once_client::Charge;

use super::*;

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_under_the_same_key_with_the_same_bytes() {
    let acts = [Act::LoseTheAnswer, Act::LoseTheRequest, Act::LoseTheAnswer];
    let (server, proxy) = HttpProxy::with_server(acts).await;
    let clock = TestClock::default();
    let client = builder(proxy.url(), &clock).build().unwrap();
    let payment = payment(&client);
    let key = payment.key().to_owned();
    let charge = payment.send().await.unwrap();
    assert_eq!((charge.amount, charge.status.as_str()), (2000, "succeeded"));
    let seen = proxy.seen();
    assert_all_alike(&seen, 4);
    assert_eq!(seen[0].key(), key);
    assert_eq!(seen[0].body, r#"{"amount":2000,"currency":"usd"}"#);
    one_charge_and_its_record(&server.database).await;

    // The value can be sent again at any time: it is the same operation.
    let again = payment.send_for_reply().await.unwrap();
    assert!(again.replayed && again.stored);
    assert_eq!(again.object::<Charge>().unwrap(), charge);
    assert_all_alike(&proxy.seen(), 5);
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn two_requests_are_two_operations_and_one_named_by_its_caller_is_one_on_two_machines() {
    let server = TestServer::start().await;
    // Under /v1 a duplicate waits for the first one, however fast a test's clock runs.
    let url = format!("http://{}/v1", server.client.address);
    let client = builder(url, &TestClock::default()).build().unwrap();
    assert_ne!(payment(&client).key(), payment(&client).key());
    let named = || payment(&client).with_key("order-2001").unwrap();
    let (first, second) = (named(), named());
    let (first, second) = tokio::join!(first.send(), second.send());
    assert_eq!(first.unwrap(), second.unwrap());
    one_charge_and_its_record(&server.database).await;
    for unusable in ["", "a b", "a,b", "\"a\"", "ä", &"k".repeat(256)] {
        let refused = payment(&client).with_key(unusable);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{unusable}");
    }
}

#[tokio::test]
async fn a_header_of_the_caller_goes_with_every_attempt_and_replaces_none_of_the_client_s() {
    let (_server, proxy) = HttpProxy::with_server([Act::LoseTheAnswer]).await;
    let with =
        |name: &str, value: &str| builder(proxy.url(), &TestClock::default()).header(name, value);
    let client = with("traceparent", "00-1-2-03")
        .header("Authorization", "Bearer sk_test_other")
        .header("Idempotency-Key", "other")
        .build()
        .unwrap();
    let payment = payment(&client);
    payment.send().await.unwrap();
    let seen = proxy.seen();
    assert_all_alike(&seen, 2);
    assert_eq!(seen[0].header("traceparent"), Some("00-1-2-03"));
    assert_eq!(seen[0].key(), payment.key());
    assert!(!seen[0].head.contains("other"), "{}", seen[0].head);
    for (name, value) in [("a b", "1"), ("", "1"), ("fault", "a\nb")] {
        let refused = with(name, value).build().err();
        assert!(matches!(refused, Some(Error::Unusable(_))), "{name}");
    }
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_found_done() {
    let (server, proxy) = HttpProxy::with_server([]).await;
    let client = builder(proxy.url(), &TestClock::default()).build().unwrap();
    let endpoint = client.create_webhook_endpoint(&an_endpoint()).unwrap();
    let endpoint = endpoint.send().await.unwrap();
    let lossy = HttpProxy::in_front_of(server.client.address, [Act::LoseTheAnswer]).await;
    let elsewhere = builder(lossy.url(), &TestClock::default()).build().unwrap();
    let deleted = elsewhere.delete_webhook_endpoint(&endpoint.id).await;
    assert!(!deleted.unwrap(), "an earlier attempt did it");
    assert_eq!(lossy.seen().len(), 2);
    let list = ListQuery::default();
    let left = client.list_webhook_endpoints(&list).await.unwrap();
    assert_eq!(left.data, []);
}

#[tokio::test]
async fn a_duplicate_in_flight_is_asked_again_until_the_first_is_done_without_spending_the_budget()
{
    let server = TestServer::start_with(PATIENT).await;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "order-2001").await;
    let body = json!({"amount": 2000, "currency": "usd"});
    let first = server.client.sending("/charges", "order-2001", body);
    pause.is_reached().await;
    let (told, mut retries) = tokio::sync::mpsc::unbounded_channel();
    let client = builder(
        format!("http://{}", server.client.address),
        &TestClock::default(),
    )
    .retry_policy(RetryPolicy {
        deadline: 3600 * SECOND,
        budget: 0,
        ..RetryPolicy::default()
    })
    .on_retry(move |retry| {
        let _ = told.send(retry.clone());
    })
    .build()
    .unwrap();
    let second = payment(&client).with_key("order-2001").unwrap();
    let second = tokio::spawn(async move { second.send_for_reply().await });
    // The channel ends with the last one who could retry: this test fails, and doesn't hang.
    drop(client);
    for attempts in 1..=3 {
        let retry = retries.recv().await.unwrap();
        assert_eq!(retry.attempts, attempts);
        assert!(retry.pause >= SECOND, "Retry-After says 1: {retry:?}");
        let AttemptFailure::Answered(refusal) = retry.failure else {
            panic!("not an answer: {retry:?}");
        };
        assert_eq!(refusal.code, "idempotency_key_in_use");
    }
    pause.release().await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap().unwrap());
    assert_eq!((second.body, second.replayed), (first.body, true));
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn trouble_is_retried_and_never_before_the_service_wants_it() {
    let acts = [
        Act::Answer("503 Service Unavailable\r\nretry-after: 7", ""),
        Act::Answer(
            "429 Too Many Requests\r\nretry-after: 3\r\nstripe-should-retry: true",
            "{}",
        ),
        Act::Answer("408 Request Timeout", ""),
        Act::Answer(
            "408 Request Timeout\r\nstripe-should-retry: true",
            r#"{"error":{"type":"invalid_request_error","code":"request_timeout","message":"…"}}"#,
        ),
        Act::Answer(
            "409 Conflict\r\nstripe-should-retry: true",
            r#"{"error":{"type":"invalid_request_error","code":"resource_busy","message":"…"}}"#,
        ),
        Act::Answer("502 Bad Gateway", "<html>"),
        Act::Answer("400 Bad Request\r\nstripe-should-retry: true", "{}"),
        // A proxy between client and service may answer so; the service never does.
        Act::Answer("200 OK", "<html>Welcome to our network!</html>"),
    ];
    let (server, proxy) = HttpProxy::with_server(acts).await;
    let clock = TestClock::default();
    let client = builder(proxy.url(), &clock).build().unwrap();
    payment(&client).send().await.unwrap();
    assert_all_alike(&proxy.seen(), 9);
    let jitter_max = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0].map(Duration::from_secs_f64);
    let asked_for = [7, 3, 0, 0, 0, 0, 0, 0].map(Duration::from_secs);
    let pauses = clock.pauses();
    assert_eq!(pauses.len(), 8);
    for ((pause, least), jitter) in pauses.iter().zip(asked_for).zip(jitter_max) {
        assert!(*pause >= least && *pause <= least + jitter, "{pauses:?}");
    }
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn told_not_to_retry_it_doesnt_and_says_that_the_outcome_is_unknown() {
    let (_server, proxy) = HttpProxy::with_server([Act::Answer(NEVER_AGAIN, "{}")]).await;
    let folder = TempDir::new().unwrap();
    let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
    let payment = payment(&client);
    let given_up = gave_up(payment.send().await);
    assert_eq!((given_up.attempts, given_up.reason), (1, Reason::ToldNotTo));
    assert_eq!(given_up.key.as_deref(), Some(payment.key()));
    assert_eq!(files(&folder).len(), 1, "kept, because it isn't known");
}

#[tokio::test]
async fn definite_refusals_are_final_typed_and_forgotten() {
    let (_server, proxy) = HttpProxy::with_server([]).await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = keeping(proxy.url(), &clock, store(&folder));
    let charge = |amount, source: &str| {
        let new = NewCharge {
            source: Some(source.to_owned()),
            ..NewCharge::new(amount, "usd")
        };
        client.create_charge(&new).unwrap()
    };

    let declined = charge(2000, "tok_chargeDeclinedInsufficientFunds");
    for _ in 0..2 {
        let Err(Error::Declined(refusal)) = declined.send().await else {
            panic!("not declined");
        };
        assert_eq!(refusal.code, "card_declined");
        assert_eq!(refusal.decline_code.as_deref(), Some("insufficient_funds"));
        let failed = client.retrieve_charge(&refusal.charge.unwrap()).await;
        let failed = failed.unwrap();
        assert_eq!((failed.status.as_str(), failed.paid), ("failed", false));
    }
    let Err(Error::Invalid(refusal)) = charge(0, "tok_visa").send().await else {
        panic!("not invalid");
    };
    let advice =
        "This answer is kept under the idempotency key: send a corrected request with a new key.";
    assert_eq!(refusal.advice.as_deref(), Some(advice));
    let shown = refusal.to_string();
    assert!(shown.ends_with(&format!(" (amount); {advice}")), "{shown}");
    let refusal = (refusal.status, refusal.param.as_deref());
    assert_eq!(refusal, (400, Some("amount")));
    let reused = charge(3000, "tok_visa").with_key(declined.key()).unwrap();
    assert!(matches!(reused.send().await, Err(Error::KeyReused(_))));
    let stranger = Client::builder(proxy.url(), "sk_test_of_nobody");
    let stranger = stranger.build().unwrap();
    let refused = stranger.list_charges(&ListQuery::default()).await;
    assert!(matches!(refused, Err(Error::Unauthenticated(_))));
    let refused = payment(&stranger).send().await;
    assert!(matches!(refused, Err(Error::Unauthenticated(_))));

    assert!(clock.pauses().is_empty(), "none of them is asked again");
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

/// The first attempt was executed, its answer lost; then the API key is revoked. "Not
/// authenticated" is true of the second attempt and says nothing about the first.
#[tokio::test]
async fn a_refusal_that_is_not_stored_does_not_decide_an_earlier_attempt() {
    let revoked = r#"{"error":{"type":"authentication_error","code":"api_key_invalid"}}"#;
    let refuse = Act::Answer("401 Unauthorized\r\nstripe-should-retry: false", revoked);
    let acts = [Act::LoseTheAnswer, refuse.clone(), refuse];
    let (server, proxy) = HttpProxy::with_server(acts).await;
    let folder = TempDir::new().unwrap();
    let client = || keeping(proxy.url(), &TestClock::default(), store(&folder));
    let payment = payment(&client());
    let given_up = gave_up(payment.send().await);
    let told = (given_up.attempts, given_up.reason);
    assert_eq!(told, (2, Reason::EarlierAttempt));
    let AttemptFailure::Answered(refusal) = given_up.last else {
        panic!("an answer came");
    };
    assert_eq!((refusal.status, &*refusal.code), (401, "api_key_invalid"));

    // Nor after a restart, while the key is still revoked.
    let resumed = client().resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Err(Error::GaveUp(_)),
            ..
        },
    ] = resumed.as_slice()
    else {
        panic!("it should not know: {resumed:?}");
    };
    assert_eq!(files(&folder).len(), 1);

    // With a good key again the charge is found.
    let (operation, reply) = resume_one(&client()).await;
    assert!(reply.replayed);
    assert_eq!(operation.key(), payment.key());
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_used_up_budget_ends_all_calls_of_a_client_at_once_until_answers_fill_it() {
    let outage = Act::Answer("503 Service Unavailable", "{}");
    let (server, proxy) = HttpProxy::with_server(vec![outage; 7]).await;
    let clock = TestClock::default();
    let policy = RetryPolicy {
        budget: 3,
        ..RetryPolicy::default()
    };
    let client = builder(proxy.url(), &clock).retry_policy(policy);
    let client = client.build().unwrap();
    let first = gave_up(payment(&client).send().await);
    assert_eq!((first.attempts, first.reason), (4, Reason::Budget));
    // Clones share it: an outage meets one attempt for each call, and no more.
    for _ in 0..3 {
        let next = gave_up(payment(&client.clone()).send().await);
        assert_eq!((next.attempts, next.reason), (1, Reason::Budget));
    }
    assert_eq!(clock.pauses().len(), 3);
    for _ in 0..10 {
        client.list_charges(&ListQuery::default()).await.unwrap();
    }
    assert_eq!(server.database.charges().await, 0);
    payment(&client).send().await.unwrap();
}

#[tokio::test]
async fn no_pause_begins_that_would_end_after_the_deadline() {
    let slow = "503 Service Unavailable\r\nretry-after: 25";
    let (_server, proxy) = HttpProxy::with_server(vec![Act::Answer(slow, "{}"); 9]).await;
    let clock = TestClock::default();
    let client = builder(proxy.url(), &clock).build().unwrap();
    let given_up = gave_up(payment(&client).send().await);
    // At 0, after 25 and after 50 seconds; 75 would be beyond the 60.
    assert_eq!((given_up.attempts, given_up.reason), (3, Reason::Deadline));
    assert!(clock.monotonic() < 60 * SECOND);
    assert_eq!(clock.pauses().len(), 2);
}

#[tokio::test]
async fn a_pause_that_ends_after_the_deadline_makes_no_doubt_of_what_was_never_sent() {
    let away = RefusedAddress::reserve();
    let clock = TestClock {
        oversleeps: SECOND,
        ..TestClock::default()
    };
    let policy = RetryPolicy {
        // Longer than the first pause by less than the clock oversleeps.
        deadline: SECOND,
        ..RetryPolicy::default()
    };
    let client = builder(away.url(), &clock).retry_policy(policy);
    let client = client.build().unwrap();
    let given_up = gave_up(payment(&client).send().await);
    assert!(!given_up.sent, "{given_up}");
    assert_eq!((given_up.attempts, given_up.reason), (1, Reason::Deadline));
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_received_and_nothing_is_lost() {
    let away = RefusedAddress::reserve();
    let folder = TempDir::new().unwrap();
    let client = keeping(away.url(), &TestClock::default(), store(&folder));
    let given_up = gave_up(payment(&client).send().await);
    let is_refused = matches!(given_up.last, AttemptFailure::NotConnected(_));
    assert!(is_refused, "{given_up}");
    assert!(given_up.attempts > 3, "{given_up}");
    assert_eq!(files(&folder).len(), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_because_the_api_key_would_go_with_it() {
    let elsewhere = Act::Answer("307 Temporary Redirect\r\nlocation: /v1/charges", "");
    let (server, proxy) = HttpProxy::with_server([elsewhere]).await;
    let client = builder(proxy.url(), &TestClock::default()).build().unwrap();
    let refused = payment(&client).send().await;
    assert!(matches!(refused, Err(Error::Invalid(refusal)) if refusal.status == 307));
    assert_eq!(proxy.seen().len(), 1);
    assert_eq!(server.database.charges().await, 0);
}
