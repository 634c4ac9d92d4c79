//! The limit on how often an account may ask. Each test drives a limit of one request per second
//! until it bites, and no assertion depends on how fast that is.

use charge_once::wire::error::ErrorType;

use crate::support::prelude::*;

/// One request per second, and bursts of one.
const STRICT: &[(&str, &str)] = &[("RATE_LIMIT", "1")];

/// Sends until the limit answers; everything before must be `expected`. How many came before, and
/// the 429.
async fn until_limited(
    expected: u16,
    mut send: impl AsyncFnMut(usize) -> Answer,
) -> (usize, Answer) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    for count in 0.. {
        let answer = send(count).await;
        if answer.status == 429 {
            return (count, answer);
        }
        assert_eq!(answer.status, expected, "{answer:?}");
        assert!(tokio::time::Instant::now() < deadline, "never limited");
    }
    unreachable!()
}

#[tokio::test]
async fn beyond_the_limit_is_429_which_says_when_to_retry_and_the_retry_then_passes() {
    let server = TestServer::start_with(STRICT).await;
    for path in ["/v1/charges", "/idempotency-keys/k"] {
        let expected = if path.contains("keys") { 404 } else { 200 };
        let (_, limited) = until_limited(expected, async |_| server.client.get(path).await).await;
        assert_eq!(limited.code(), "rate_limited", "{path}");
        let kind = ErrorType::RateLimit.as_str();
        assert_eq!(limited.json()["error"]["type"], kind);
        assert_eq!(limited.header("stripe-should-retry"), Some("true"));
        let link = "</errors#rate_limited>; rel=\"describedby\"";
        assert_eq!(limited.header("link"), Some(link));
        let seconds = limited.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds >= 1);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(server.client.get(path).await.status, expected, "{path}");
    }
}

#[tokio::test]
async fn a_limited_request_stores_nothing_and_its_retry_executes_for_the_first_time() {
    let server = TestServer::start_with(STRICT).await;
    let key = |count: usize| format!("key-{count}");
    let (executed, limited) =
        until_limited(201, async |count| server.client.charge(&key(count)).await).await;
    for header in ["original-request", "idempotency-expires"] {
        assert_eq!(limited.header(header), None, "{header}");
    }
    let echoed = limited.header("idempotency-key");
    assert_eq!(echoed, Some(&*key(executed)));
    let stored = executed as i64;
    assert_eq!(server.database.records().await, stored);
    assert_eq!(server.database.charges().await, stored);
    let retried = server.client.charge_until_definite(&key(executed)).await;
    assert_eq!((retried.status.as_u16(), retried.is_replay()), (201, false));
    assert_eq!(server.database.charges().await, stored + 1);
}

#[tokio::test]
async fn replays_count_and_are_limited_too() {
    let server = TestServer::start_with(STRICT).await;
    let first = server.client.charge("key-1").await;
    let (_, limited) = until_limited(201, async |_| server.client.charge("key-1").await).await;
    assert!(!limited.is_replay());
    let replay = server.client.charge_until_definite("key-1").await;
    replay.assert_replays(&first);
}

#[tokio::test]
async fn accounts_share_no_limit_and_the_api_keys_of_one_account_do() {
    let server = TestServer::start_with(STRICT).await;
    let other = client_of_account(&server, "other").await;
    until_limited(200, async |_| server.client.get("/charges").await).await;
    assert_eq!(other.get("/charges").await.status, 200);
    // Each of these keys is new, so only the account can be what is limited.
    until_limited(200, async |_| {
        server.client.get("/charges").await;
        let rotated = client_of_account(&server, "dev").await;
        rotated.get("/charges").await
    })
    .await;
}

#[tokio::test]
async fn the_api_key_is_checked_before_the_rate_and_the_rate_before_the_media_type() {
    let (_server, client) = TestServer::with_client(STRICT).await;
    let post_text = async |client: &Client| {
        client
            .post_raw("/charges", "key-1", "text/plain", b"x")
            .await
    };
    until_limited(415, async |_| post_text(&client).await).await;
    // Requests without a valid key don't count toward an account's limit. They have another one.
    let stranger = client.with_api_key("sk_test_nobody_at_all");
    for _ in 0..5 {
        assert_eq!(post_text(&stranger).await.code(), "api_key_invalid");
        let bare = Answer::of(client.bare(Method::POST, "/charges")).await;
        assert_eq!(bare.code(), "api_key_missing");
        let nowhere = Answer::of(client.request(Method::POST, "/nothing")).await;
        assert_eq!(nowhere.code(), "route_not_found");
    }
}

#[tokio::test]
async fn keys_that_do_not_exist_are_limited_by_the_client_s_address() {
    let server = TestServer::start().await;
    assert_eq!(server.client.get("/charges").await.status, 200);
    let guess = async |count: usize| {
        let stranger = format!("sk_test_stranger_{count}");
        server.client.with_api_key(&stranger).get("/charges").await
    };
    // Many at a time: one after the other may be slower than the limit.
    let (_, limited) = until_limited(401, async |round| {
        let guesses = (0..30).map(|number| guess(30 * round + number));
        let answers = futures_util::future::join_all(guesses).await;
        let limited = answers.iter().position(|answer| answer.status == 429);
        answers.into_iter().nth(limited.unwrap_or(0)).unwrap()
    })
    .await;
    assert_eq!(limited.code(), "rate_limited");
    assert_eq!(limited.header("retry-after"), Some("1"));
    let message = limited.json()["error"]["message"].to_string();
    assert!(message.contains("came from this address"), "{message}");
    // Accounts are served meanwhile, and so is one whose key this process has never seen.
    assert_eq!(server.client.get("/charges").await.status, 200);
    let new = client_of_account(&server, "new").await;
    until_limited(401, async |_| guess(usize::MAX).await).await;
    assert_eq!(new.get("/charges").await.status, 200);
    let is_over = async || guess(usize::MAX).await.status == 401;
    eventually("the limit is over", is_over).await;
}

#[tokio::test]
async fn what_needs_no_api_key_is_never_limited() {
    let server = TestServer::start_with(STRICT).await;
    for _ in 0..5 {
        for path in ["/livez", "/readyz", "/errors", "/openapi.json"] {
            assert_eq!(server.client.get(path).await.status, 200, "{path}");
        }
    }
}
