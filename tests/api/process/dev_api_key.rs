//! The key of `DEV_API_KEY`: one is valid at a time, and the public one stays on this machine.

use charge_once::{
    cli::api_key::{AccountsError, revoke_key},
    config::{DEFAULT_DEV_API_KEY, FORMER_DEV_API_KEY},
};

use crate::support::prelude::*;

#[tokio::test]
async fn another_dev_api_key_revokes_the_one_before_and_the_public_one_but_no_other() {
    let database = TestDatabase::create().await;
    let connected = database.connect(&[]).await;
    let made = database.printed_by("api-key create --account dev");
    let public = ensure_dev_key(&connected, FORMER_DEV_API_KEY).await;
    public.unwrap();
    // As an earlier release left it.
    let forget = "UPDATE api_keys SET from_dev_api_key = false WHERE revoked_at IS NULL";
    database.execute(forget).await;
    let later = ensure_dev_key(&connected, "sk_test_of_last_week").await;
    later.unwrap();
    // The harness's key, which was revoked in between, comes back with its variable.
    let server = ServerProcess::start(&database, &[("DEV_API_KEY", API_KEY)]);
    for (key, status) in [
        (API_KEY, 200),
        (made.lines().next().unwrap(), 200),
        (FORMER_DEV_API_KEY, 401),
        ("sk_test_of_last_week", 401),
    ] {
        let client = server.client.with_api_key(key);
        assert_eq!(client.get("/charges").await.status, status, "{key}");
    }

    // What a person revokes stays revoked, also where another value had revoked it before.
    for key in [API_KEY, "sk_test_of_last_week"] {
        assert!(revoke_key(&connected, key).await.unwrap());
        assert!(!revoke_key(&connected, key).await.unwrap());
        let refused = ensure_dev_key(&connected, key).await;
        let is_taken = matches!(refused, Err(AccountsError::KeyTaken));
        assert!(is_taken, "{key}: {refused:?}");
    }

    let restricted = "rk_test_of_this_week";
    ensure_dev_key(&connected, restricted).await.unwrap();
    let client = server.client.with_api_key(restricted);
    assert_eq!(client.get("/charges").await.status, 200);
}

/// The first line that a server prints, if it starts, and what it says if it doesn't.
fn start_and_end(variables: &[(&str, &str)]) -> (String, String) {
    let mut child = program(&["serve"], variables)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut banner = String::new();
    let mut printed = BufReader::new(child.stdout.as_mut().unwrap());
    printed.read_line(&mut banner).unwrap();
    child.kill().unwrap();
    let said = child.wait_with_output().unwrap().stderr;
    (banner, text(&said))
}

#[tokio::test]
async fn beyond_this_machine_the_public_key_has_to_be_allowed() {
    let database = TestDatabase::create_unsharded().await;
    let everywhere = ("BIND_ADDRESS", "0.0.0.0:0");
    let public = ("DEV_API_KEY", DEFAULT_DEV_API_KEY);
    let former = ("DEV_API_KEY", FORMER_DEV_API_KEY);
    let url = ("DATABASE_URL", database.url.as_str());
    for public in [public, former] {
        let (banner, complaint) = start_and_end(&[everywhere, public, url]);
        assert_eq!(banner, "");
        let remedy = "ALLOW_PUBLIC_DEV_KEY must be true where BIND_ADDRESS";
        assert_has(&complaint, remedy);
    }

    let allowed = ("ALLOW_PUBLIC_DEV_KEY", "true");
    for variables in [
        &[everywhere, public, allowed][..],
        // A key of one's own needs no permission, and neither does this machine.
        &[everywhere, ("DEV_API_KEY", API_KEY)],
        &[ANY_PORT, public],
    ] {
        let (banner, complaint) = start_and_end(&[variables, &[url]].concat());
        let is_started = banner.starts_with("charge-once ");
        assert!(is_started, "{variables:?}: {complaint}");
    }
    // What an earlier start has left in the database.
    for (_, public) in [public, former] {
        start_and_end(&[ANY_PORT, ("DEV_API_KEY", public), url]);
        let (banner, complaint) = start_and_end(&[everywhere, url]);
        assert_eq!(banner, "");
        assert_has(
            &complaint,
            &format!("echo {public} | charge-once api-key revoke"),
        );
    }
}

#[tokio::test]
async fn any_test_key_opens_the_dev_account_where_that_is_switched_on_and_no_other() {
    let database = TestDatabase::create_unsharded().await;
    let own = ("DEV_API_KEY", API_KEY);
    let server = ServerProcess::start(&database, &[own, ("ANY_TEST_KEY", "true")]);
    let client = &server.client;
    let charge = client.charge("key-1").await.id();
    let made = database.printed_by("api-key create --account other");
    let other = client.with_api_key(made.lines().next().unwrap());
    let path = format!("/v1/charges/{charge}");
    // More often than an address may send keys that are no account's.
    for _ in 0..10 {
        for key in [
            "sk_test_123",
            "sk_test_",
            "rk_test_of_a_suite",
            "sk_test_ChargeOnceSuite00",
        ] {
            assert_eq!(
                client.with_api_key(key).get(&path).await.status,
                200,
                "{key}"
            );
        }
    }
    for key in ["pk_test_123", "sk_live_12345678", "nonsense", ""] {
        let refused = client.with_api_key(key).get(&path).await;
        assert_eq!(refused.status, 401, "{key}");
    }
    // The key of another account opens that one alone.
    let theirs = other.get("/v1/charges").await.json();
    assert_eq!(theirs["data"], json!([]));
    let suite = client.with_api_key("sk_test_123");
    assert_eq!(
        suite.charge("key-1").await.id(),
        charge,
        "the keys are of one account"
    );
    let bare = client.request(Method::GET, "/v1/charges");
    let two = bare.header("authorization", "Bearer sk_test_123");
    assert_eq!(Answer::of(two).await.status, 401);
    for method in [Method::GET, Method::HEAD] {
        let root = Answer::of(client.bare(method, "/")).await;
        assert_eq!(
            (root.status.as_u16(), root.header("stripe-mock-version")),
            (200, Some("master"))
        );
    }
    let head = b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let root = send_raw(client, head).await;
    assert_has(&root, "\r\nStripe-Mock-Version: master\r\n");

    let server = ServerProcess::start(&database, &[own]);
    let stranger = server.client.with_api_key("sk_test_123");
    assert_eq!(stranger.get("/v1/charges").await.status, 401);
    let root = Answer::of(server.client.bare(Method::GET, "/")).await;
    assert_eq!(root.header("stripe-mock-version"), None);
}

#[tokio::test]
async fn any_test_key_needs_the_dev_key_and_beyond_this_machine_a_permission() {
    let database = TestDatabase::create_unsharded().await;
    let url = ("DATABASE_URL", database.url.as_str());
    let (any, own) = (("ANY_TEST_KEY", "true"), ("DEV_API_KEY", API_KEY));
    let everywhere = ("BIND_ADDRESS", "0.0.0.0:0");
    for (variables, named) in [
        (
            &[any, ANY_PORT][..],
            "ANY_TEST_KEY must be false where DEV_API_KEY is unset",
        ),
        (&[any, own, everywhere], "ALLOW_PUBLIC_DEV_KEY"),
    ] {
        let (banner, complaint) = start_and_end(&[variables, &[url]].concat());
        assert_eq!(banner, "");
        assert_has(&complaint, named);
    }
    let allowed = ("ALLOW_PUBLIC_DEV_KEY", "true");
    let (banner, complaint) = start_and_end(&[any, own, everywhere, allowed, url]);
    assert!(banner.starts_with("charge-once "), "{complaint}");
}
