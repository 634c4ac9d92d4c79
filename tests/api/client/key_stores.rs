//! What the client keeps on disk or in a store of its user, and resumes after a crash.

use std::os::unix::fs::PermissionsExt;

use charge_once_client::{Kept, KeyStore, KeyStoreError, KeyedRequest, Request, Saved};

use super::*;

#[tokio::test]
async fn a_workflow_goes_with_every_attempt_and_is_resumed_with_its_operation() {
    let acts = [Act::LoseTheRequest, Act::Answer(NEVER_AGAIN, "{}")];
    let (_server, proxy) = HttpProxy::with_server(acts).await;
    let folder = TempDir::new().unwrap();
    let client = || keeping(proxy.url(), &TestClock::default(), store(&folder));
    let payment = payment(&client()).with_workflow("checkout-1").unwrap();
    assert_eq!(payment.operation().workflow(), Some("checkout-1"));
    gave_up(payment.send().await);
    let (operation, _) = resume_one(&client()).await;
    assert_eq!(&operation, payment.operation());
    let seen = proxy.seen();
    assert_all_alike(&seen, 3);
    assert_eq!(seen[0].header("idempotency-workflow"), Some("checkout-1"));
    let steps = client().workflow("checkout-1").await.unwrap();
    assert_eq!((steps.len(), steps[0].key.as_str()), (1, payment.key()));
    for unusable in ["", "a b", "a,b", "\"a\"", "ä", &"n".repeat(256)] {
        let refused = self::payment(&client()).with_workflow(unusable);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{unusable}");
    }
}

#[tokio::test]
async fn what_a_version_without_workflows_and_methods_has_written_down_is_resumed_as_a_post() {
    let (server, proxy) = HttpProxy::with_server([]).await;
    let folder = TempDir::new().unwrap();
    let line = json!({
        "version": 1, "key": "old-1", "server": proxy.url(), "path": "/charges",
        "body": r#"{"amount":2000,"currency":"usd"}"#, "created_at": START.as_secs(),
    });
    let line = line.to_string();
    let sum = hex::encode(Sha256::digest(&line));
    let name = format!("{}.operation", hex::encode(Sha256::digest("old-1")));
    std::fs::write(folder.path().join(name), format!("{line}\n{sum}\n")).unwrap();
    let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
    let (operation, _) = resume_one(&client).await;
    assert_eq!((operation.key(), operation.workflow()), ("old-1", None));
    assert_eq!(operation.method(), "POST");
    assert!(proxy.seen()[0].head.starts_with("POST /charges "));
    assert_eq!(proxy.seen()[0].header("idempotency-workflow"), None);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    one_charge_and_its_record(&server.database).await;
}

/// The store's own view of what is there when a request arrives.
#[derive(Debug)]
struct FailingStore;

impl KeyStore for FailingStore {
    fn save(&self, _: &KeyedRequest) -> Result<Saved, KeyStoreError> {
        Err(KeyStoreError::Io {
            path: "/full".into(),
            error: std::io::ErrorKind::StorageFull.into(),
        })
    }

    fn remove(&self, _: &str) -> Result<(), KeyStoreError> {
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn what_can_not_be_written_down_is_not_sent() {
    let (_server, proxy) = HttpProxy::with_server([]).await;
    let client = keeping(proxy.url(), &TestClock::default(), FailingStore);
    let refused = payment(&client).send().await;
    assert!(matches!(refused, Err(Error::Store(_))));
    assert_eq!(proxy.seen(), []);
}

/// A store of the client's user: a table, with operations as text.
#[derive(Debug, Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<String, String>>>);

impl KeyStore for Table {
    fn save(&self, operation: &KeyedRequest) -> Result<Saved, KeyStoreError> {
        let mut table = self.0.lock().unwrap();
        if let Some(found) = table.get(operation.key()) {
            let found: KeyedRequest = serde_json::from_str(found).unwrap();
            return match found.asks_the_same_as(operation) {
                true => Ok(Saved::Found(found)),
                false => Err(KeyStoreError::OtherRequest),
            };
        }
        let text = serde_json::to_string(operation).unwrap();
        table.insert(operation.key().to_owned(), text);
        Ok(Saved::New)
    }

    fn remove(&self, key: &str) -> Result<(), KeyStoreError> {
        self.0.lock().unwrap().remove(key);
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError> {
        let table = self.0.lock().unwrap();
        let kept = table.values();
        let kept = kept.map(|text| Kept::Request(serde_json::from_str(text).unwrap()));
        Ok(kept.collect())
    }
}

#[tokio::test]
async fn a_charge_is_resumed_from_a_store_of_one_s_own() {
    let server = TestServer::start().await;
    let table = Table::default();
    let charge = NewCharge::new(2000, "usd");
    is_resumed(&server, table, |client| client.create_charge(&charge)).await;
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_level_is_resumed_as_the_put_that_it_was_from_any_store() {
    let folder = TempDir::new().unwrap();
    let file = store(&folder);
    for own_store in [true, false] {
        let server = TestServer::start().await;
        let url = format!("http://{}", server.client.address);
        let client = builder(url, &TestClock::default()).build().unwrap();
        let set = |client: &Client| client.set_inventory("a mug", 5);
        let seen = match own_store {
            true => is_resumed(&server, Table::default(), set).await,
            false => is_resumed(&server, file.clone(), set).await,
        };
        assert!(seen.head.starts_with("PUT /inventory/a%20mug HTTP/1.1"));
        assert_eq!(seen.body, r#"{"quantity":5}"#);
        let level = client.retrieve_inventory("a mug").await.unwrap();
        assert_eq!((level.quantity, level.sku.as_str()), (5, "a mug"));
        assert_eq!(server.database.records().await, 1);
    }
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

/// Sends what `prepare` makes, which is executed, and gives up; then resumes it from `store`.
async fn is_resumed<T: serde::de::DeserializeOwned + std::fmt::Debug>(
    server: &TestServer,
    store: impl KeyStore + Clone + 'static,
    prepare: impl Fn(&Client) -> Result<Request<T>, Error>,
) -> Seen {
    let acts = [Act::LoseTheAnswer, Act::Answer(NEVER_AGAIN, "{}")];
    let proxy = HttpProxy::in_front_of(server.client.address, acts).await;
    let client = || keeping(proxy.url(), &TestClock::default(), store.clone());
    let request = prepare(&client()).unwrap();
    gave_up(request.send().await);
    let (operation, _) = resume_one(&client()).await;
    assert_eq!(&operation, request.operation());
    let mut seen = proxy.seen();
    assert_all_alike(&seen, 3);
    assert!(client().resume().await.unwrap().is_empty());
    seen.remove(0)
}

/// It would send a POST.
#[tokio::test]
async fn a_client_that_knows_no_method_does_not_read_a_file_with_one() {
    let folder = TempDir::new().unwrap();
    let client = builder("http://127.0.0.1:1".to_owned(), &TestClock::default());
    let client = client.build().unwrap();
    let set = client.set_inventory("mug", 5).unwrap();
    for (operation, version) in [(payment(&client).operation(), 1), (set.operation(), 2)] {
        store(&folder).save(operation).unwrap();
        let file = files(&folder).pop().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!(r#""version":{version},"#)), "{text}");
        assert_eq!(text.contains("method"), version == 2, "{text}");
        std::fs::remove_file(file).unwrap();
    }
    let mut posted = serde_json::to_value(set.operation()).unwrap();
    let method = posted.as_object_mut().unwrap().remove("method");
    assert_eq!(method, Some("PUT".into()));
    let posted: KeyedRequest = serde_json::from_value(posted).unwrap();
    assert_eq!((posted.method(), posted.path()), ("POST", "/inventory/mug"));
    assert!(!set.operation().asks_the_same_as(&posted));
}

#[tokio::test]
async fn an_operation_is_on_disk_with_its_key_for_its_owner_only_and_without_the_api_key() {
    let (_server, proxy) = HttpProxy::with_server([Act::Swallow]).await;
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("payments");
    let open = || FileKeyStore::open(&below).unwrap();
    let client = keeping(proxy.url(), &TestClock::default(), open());
    let payment = payment(&client);
    let operation = payment.operation().clone();
    let sending = tokio::spawn(async move { payment.send().await });
    eventually("it is sent", || async { !proxy.seen().is_empty() }).await;

    assert_eq!(open().unfinished().unwrap(), [Kept::Request(operation)]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&below), 0o700);
    for entry in std::fs::read_dir(&below).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(mode(&file), 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains(API_KEY));
    }
    assert!(!format!("{client:?}").contains(API_KEY));
    sending.abort();
}

#[tokio::test]
async fn an_operation_that_is_too_old_is_reported_and_not_sent_again() {
    let later = Act::Answer("503 Service Unavailable\r\nretry-after: 60", "{}");
    let (_server, proxy) = HttpProxy::with_server(vec![later; 2]).await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = keeping(proxy.url(), &clock, store(&folder));
    let payment = payment(&client);
    gave_up(payment.send().await);
    clock.advance(22 * 3600 * SECOND);
    gave_up(payment.send().await);
    clock.advance(3600 * SECOND);
    assert!(matches!(payment.send().await, Err(Error::Expired(_))));
    let resumed = client.resume().await.unwrap();
    let [Resumed::NotSent { operation, .. }] = resumed.as_slice() else {
        panic!("it was sent: {resumed:?}");
    };
    assert_eq!(operation.key(), payment.key());
    assert_eq!(proxy.seen().len(), 2);

    // A person finds out that nothing happened, and clears it.
    let found = client.look_up_key(operation.key()).await;
    assert!(matches!(found, Err(Error::Invalid(refusal)) if refusal.status == 404));
    client.forget(operation.key()).await.unwrap();
    assert!(client.resume().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_store_can_not_read_is_reported_and_kept() {
    let (_server, proxy) = HttpProxy::with_server([]).await;
    for damage in [
        (|text: String| text.replace("2000", "9000")) as fn(String) -> String,
        |text| text[..text.len() / 2].to_owned(),
        |_| String::new(),
    ] {
        let folder = TempDir::new().unwrap();
        let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
        let payment = payment(&client);
        store(&folder).save(payment.operation()).unwrap();
        let file = files(&folder).pop().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, damage(text)).unwrap();
        let resumed = client.resume().await.unwrap();
        let [Resumed::Corrupt { place, .. }] = resumed.as_slice() else {
            panic!("not reported: {resumed:?}");
        };
        assert_eq!(Path::new(place), file);
        let Err(Error::Store(KeyStoreError::Corrupt { .. })) = payment.send().await else {
            panic!("it was read: {}", file.display());
        };
        assert!(file.exists());
    }
    assert_eq!(proxy.seen(), []);
}

#[tokio::test]
async fn a_store_keeps_the_oldest_of_the_same_request_and_refuses_another_one_under_its_key() {
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = builder("http://127.0.0.1:1".to_owned(), &clock);
    let client = client.build().unwrap();
    let named = |amount| {
        let request = client.create_charge(&NewCharge::new(amount, "usd"));
        // Longer than a file name, and with a slash.
        let key = format!("orders/{}", "7".repeat(248));
        let request = request.unwrap().with_key(key).unwrap();
        request.operation().clone()
    };
    let store = store(&folder);
    // What a crash leaves behind that came before the operation had its name: it was never sent.
    let draft = folder.path().join(".0.draft");
    std::fs::write(&draft, "half an operat").unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
    std::fs::remove_file(&draft).unwrap();
    let oldest = named(2000);
    assert_eq!(store.save(&oldest).unwrap(), Saved::New);
    clock.advance(60 * SECOND);
    let again = store.save(&named(2000)).unwrap();
    assert_eq!(again, Saved::Found(oldest.clone()));
    let other = store.save(&named(2001));
    assert!(matches!(other, Err(KeyStoreError::OtherRequest)));
    let kept = store.unfinished().unwrap();
    assert_eq!(kept, [Kept::Request(oldest.clone())]);
    assert_eq!(files(&folder).len(), 1, "no draft is left");

    let elsewhere = keeping("http://127.0.0.1:2".to_owned(), &clock, store.clone());
    let [Resumed::NotSent { .. }] = elsewhere.resume().await.unwrap()[..] else {
        panic!("it was sent");
    };
    store.remove(oldest.key()).unwrap();
    store.remove(oldest.key()).unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
}
