//! Verbs of one intent that race on two replicas: one happens, the other one sees what became of
//! it. The database's own constraints refuse what would get past the locks.

use std::pin::Pin;

use charge_once::{
    database::PgConnection,
    domain::{
        charge::{Authorization, Card, Charge, IntentCharge},
        ids::{AccountId, ChargeId, PaymentIntentId, PaymentMethodId},
        payment_intent::PaymentIntent,
        payment_method::PaymentMethod,
    },
    store,
};

use crate::support::{
    harness::{LOCK_WAITS, violated},
    intents::{act, create, paid_with, path, retrieve, standing},
    prelude::*,
    racers::until_definite,
    resources::{attached, customer},
};

/// How often each pair races.
const RACES: usize = 50;

/// Intents whose rows contradict each other, or the money of their charges.
const CONTRADICTIONS: &str = "
    SELECT count(*)
      FROM payment_intents AS intent
      LEFT JOIN LATERAL (
           SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
                  coalesce(sum(amount_captured), 0) AS captured,
                  coalesce(sum(amount) FILTER (WHERE released), 0) AS released,
                  coalesce(sum(amount) FILTER (WHERE status = 'succeeded'), 0) AS authorized
             FROM charges
            WHERE charges.account_id = intent.account_id AND payment_intent_id = intent.id) AS money
        ON true
     WHERE money.succeeded > 1
        OR money.captured <> intent.amount_received
        OR (intent.status = 'canceled' AND money.authorized <> money.released)
        OR (intent.status = 'succeeded' AND money.captured = 0)
        OR money.captured + money.released > intent.amount";

/// Two servers of one database.
struct Replicas {
    database: TestDatabase,
    one: TestServer,
    other: TestServer,
}

impl Replicas {
    async fn start() -> Self {
        let database = TestDatabase::create().await;
        Self {
            one: TestServer::start_on(database.clone(), &[]).await,
            other: TestServer::start_on(database.clone(), &[]).await,
            database,
        }
    }

    fn client(&self) -> &Client {
        &self.one.client
    }

    /// Two requests at once, each through a replica of its own.
    async fn race(&self, first: (&str, &Value), second: (&str, &Value)) -> (Answer, Answer) {
        tokio::join!(
            until_definite(&self.one.client, first.0, first.1),
            until_definite(&self.other.client, second.0, second.1),
        )
    }

    async fn no_money_is_lost(&self) {
        assert_eq!(self.database.count(CONTRADICTIONS).await, 0);
    }
}

/// The one of two that succeeded, and the other.
fn winner_first(one: Answer, other: Answer) -> (Answer, Answer) {
    match one.status.is_success() {
        true => (one, other),
        false => (other, one),
    }
}

/// The status of the intent that a refusal holds.
fn seen(refusal: &Answer) -> Value {
    assert_eq!(refusal.code(), "payment_intent_unexpected_state");
    refusal.json()["error"]["payment_intent"]["status"].clone()
}

#[tokio::test]
async fn of_two_confirmations_at_once_one_charges() {
    let replicas = Replicas::start().await;
    let visa = json!({"payment_method": "pm_card_visa"});
    for _ in 0..RACES {
        let id = create(replicas.client(), json!({})).await.id();
        let confirm = path(&id, "confirm");
        let (one, other) = replicas.race((&confirm, &visa), (&confirm, &visa)).await;
        let (paid, refused) = winner_first(one, other);
        assert_eq!(paid.json()["status"], "succeeded");
        assert_eq!(seen(&refused), "succeeded");
    }
    replicas.no_money_is_lost().await;
    assert_eq!(replicas.database.charges().await, RACES as i64);
}

/// A verb and a cancellation of an intent in this status race, and one of them happens.
async fn one_of_a_verb_and_a_cancellation_happens(status: &str, verb: &str, body: Value) {
    let replicas = Replicas::start().await;
    let nothing = json!({});
    for _ in 0..RACES {
        let id = standing(replicas.client(), status).await;
        let (paying, cancel) = (path(&id, verb), path(&id, "cancel"));
        let (paid, canceled) = replicas.race((&paying, &body), (&cancel, &nothing)).await;
        match paid.status.is_success() {
            true => assert_eq!(seen(&canceled), "succeeded"),
            false => {
                assert_eq!(canceled.json()["status"], "canceled");
                assert_eq!(seen(&paid), "canceled");
            }
        }
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn of_a_confirmation_and_a_cancellation_at_once_one_happens() {
    let visa = json!({"payment_method": "pm_card_visa"});
    one_of_a_verb_and_a_cancellation_happens("requires_payment_method", "confirm", visa).await;
}

#[tokio::test]
async fn of_a_capture_and_a_cancellation_at_once_one_happens() {
    let part = json!({"amount_to_capture": 1500});
    one_of_a_verb_and_a_cancellation_happens("requires_capture", "capture", part).await;
}

#[tokio::test]
async fn of_two_captures_at_once_one_takes_the_money() {
    let replicas = Replicas::start().await;
    let nothing = json!({});
    for _ in 0..RACES {
        let id = standing(replicas.client(), "requires_capture").await;
        let capture = path(&id, "capture");
        let (one, other) = replicas
            .race((&capture, &nothing), (&capture, &nothing))
            .await;
        let (captured, refused) = winner_first(one, other);
        assert_eq!(captured.json()["amount_received"], 2000);
        assert_eq!(seen(&refused), "succeeded");
    }
    replicas.no_money_is_lost().await;
    let captured = "SELECT count(*) FROM events WHERE type = 'charge.captured'";
    assert_eq!(replicas.database.count(captured).await, RACES as i64);
}

#[tokio::test]
async fn a_method_that_is_detached_at_once_pays_before_or_not_at_all() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let nothing = json!({});
    let mut paid_first = 0;
    for _ in 0..RACES {
        let customer = customer(client).await;
        let method = attached(client, "pm_card_visa", &customer).await;
        let id = create(client, json!({"customer": customer})).await.id();
        let confirm = path(&id, "confirm");
        let detach = format!("/payment_methods/{method}/detach");
        let body = json!({"payment_method": method});
        let (paid, detached) = replicas.race((&confirm, &body), (&detach, &nothing)).await;
        assert_eq!(detached.status, 200, "{}", detached.json());
        match paid.status.is_success() {
            true => paid_first += 1,
            false => assert_eq!(paid.code(), "payment_method_unexpected_state"),
        }
    }
    replicas.no_money_is_lost().await;
    assert_eq!(replicas.database.charges().await, paid_first);
}

#[tokio::test]
async fn of_an_authentication_and_a_cancellation_at_once_one_happens() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let nothing = json!({});
    for _ in 0..RACES {
        let card = "pm_card_authenticationRequired";
        let waiting = paid_with(client, card, json!({})).await;
        let (id, page) = (waiting.id(), page_of(&waiting));
        let cancel = path(&id, "cancel");
        let (pressed, canceled) = tokio::join!(
            press(&page, "complete"),
            until_definite(&replicas.other.client, &cancel, &nothing),
        );
        let status = retrieve(client, &id).await["status"].clone();
        if canceled.status.is_success() {
            assert_eq!((pressed.status.as_u16(), status), (410, json!("canceled")));
        } else {
            assert_eq!((pressed.status.as_u16(), status), (200, json!("succeeded")));
            assert_eq!(seen(&canceled), "succeeded");
        }
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn a_method_that_two_intents_use_at_once_pays_for_one() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let card = json!({"type": "card", "card": {"token": "tok_visa"}});
    for _ in 0..RACES {
        let method = client.post_new("/payment_methods", &card).await.id();
        let body = json!({"payment_method": method});
        let one = path(&create(client, json!({})).await.id(), "confirm");
        let other = path(&create(client, json!({})).await.id(), "confirm");
        let (one, other) = replicas.race((&one, &body), (&other, &body)).await;
        let (_, refused) = winner_first(one, other);
        assert_eq!(refused.code(), "payment_method_unexpected_state");
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn what_is_charged_is_what_an_intent_says_however_an_update_races() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let nothing = json!({});
    let more = json!({"amount": 3000, "metadata": {"seen": "yes"}});
    for _ in 0..RACES {
        let id = standing(client, "requires_confirmation").await;
        let (confirm, update) = (path(&id, "confirm"), path(&id, ""));
        let (paid, updated) = replicas.race((&confirm, &nothing), (&update, &more)).await;
        assert_eq!(paid.json()["status"], "succeeded", "{}", paid.json());
        let amount = match updated.status.is_success() {
            true => 3000,
            false => {
                assert_eq!(seen(&updated), "succeeded");
                2000
            }
        };
        let intent = retrieve(client, &id).await;
        intent.assert_shows(json!({"amount": amount, "amount_received": amount}));
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn a_capture_and_an_update_of_words_at_once_both_happen() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let part = json!({"amount_to_capture": 1500});
    let words = json!({"metadata": {"seen": "yes"}});
    for _ in 0..RACES {
        let id = standing(client, "requires_capture").await;
        let (capture, update) = (path(&id, "capture"), path(&id, ""));
        let (captured, updated) = replicas.race((&capture, &part), (&update, &words)).await;
        assert_eq!(captured.status, 200, "{}", captured.json());
        assert_eq!(updated.status, 200, "{}", updated.json());
        let intent = retrieve(client, &id).await;
        intent.assert_shows(json!({
            "status": "succeeded", "amount_received": 1500, "metadata/seen": "yes",
        }));
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn of_fifty_answers_of_a_holder_at_once_the_first_decides() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let addresses = [client, &replicas.other.client].map(|client| client.address.to_string());
    let [own, elsewhere] = addresses;
    let card = "pm_card_authenticationRequired";
    let back = json!({"return_url": "https://shop.example/done"});
    let waiting = paid_with(client, card, back).await;
    let page = page_of(&waiting);
    let answers = all_at_once(50, |number| {
        let page = match number % 2 {
            0 => page.clone(),
            _ => page.replace(&own, &elsewhere),
        };
        let outcome = if number % 4 < 2 { "complete" } else { "fail" };
        async move {
            loop {
                let landed = press(&page, outcome).await;
                if ![409, 503].contains(&landed.status.as_u16()) {
                    return landed;
                }
            }
        }
    })
    .await;
    let intent = retrieve(client, &waiting.id()).await;
    let (told, charges) = match intent["status"].as_str().unwrap() {
        "succeeded" => ("redirect_status=succeeded", 1),
        _ => ("redirect_status=failed", 0),
    };
    for landed in &answers {
        let place = landed.header("location").unwrap();
        assert!(place.ends_with(told), "{place}");
    }
    assert_eq!(replicas.database.charges().await, charges);
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn of_an_authentication_and_a_confirmation_at_once_one_charges() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let visa = json!({"payment_method": "pm_card_visa"});
    for _ in 0..RACES {
        let card = "pm_card_authenticationRequired";
        let waiting = paid_with(client, card, json!({})).await;
        let (confirm, page) = (path(&waiting.id(), "confirm"), page_of(&waiting));
        let (pressed, confirmed) = tokio::join!(
            press(&page, "complete"),
            until_definite(&replicas.other.client, &confirm, &visa),
        );
        match confirmed.status.is_success() {
            true => assert_eq!(pressed.status, 410),
            false => {
                assert_eq!(pressed.status, 200);
                assert_eq!(seen(&confirmed), "succeeded");
            }
        }
        assert_eq!(retrieve(client, &waiting.id()).await["status"], "succeeded");
    }
    replicas.no_money_is_lost().await;
    assert_eq!(replicas.database.charges().await, RACES as i64);
}

#[tokio::test]
async fn fifty_refunds_by_intent_and_by_charge_give_back_no_more_than_was_captured() {
    let replicas = Replicas::start().await;
    let client = replicas.client();
    let paid = paid_with(client, "pm_card_visa", json!({})).await;
    let charge = paid.json()["latest_charge"].clone();
    let bodies = [
        json!({"payment_intent": paid.id(), "amount": 300}),
        json!({"charge": charge, "amount": 300}),
    ];
    let answers = all_at_once(50, |number| {
        let replica = [&replicas.one, &replicas.other][number / 2 % 2];
        let (client, body) = (replica.client.clone(), bodies[number % 2].clone());
        async move { until_definite(&client, "/refunds", &body).await }
    })
    .await;
    let (given, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(given.len(), 6);
    for answer in refused {
        assert_eq!(answer.code(), "refund_amount_too_large");
    }
    let sums = "SELECT sum(amount)::bigint FROM refunds";
    assert_eq!(replicas.database.count(sums).await, 1800);
    replicas.no_money_is_lost().await;
}

/// What one of two transactions does to an intent, as it read it long before: without a lock.
type Step = for<'c> fn(&'c mut PgConnection, &'c Target) -> Doing<'c>;
type Doing<'c> = Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send + 'c>>;

/// What both want to change.
#[derive(Clone)]
struct Target {
    account: AccountId,
    intent: PaymentIntent,
    method: PaymentMethod,
}

fn charge<'a>(tx: &'a mut PgConnection, target: &'a Target) -> Doing<'a> {
    let target = target.clone();
    Box::pin(async move {
        let (intent, method) = (target.intent, target.method);
        let new = intent.charge_with(Card {
            test_card: method.test_card,
            exp_month: 12,
            exp_year: 2099,
        });
        let of = IntentCharge {
            intent: intent.id,
            method: method.id,
            billing: method.billing,
            fingerprint: method.fingerprint,
            has_cvc: method.has_cvc,
            is_authenticated: false,
            statement_descriptor_suffix: None,
        };
        let (id, said) = (ChargeId(Uuid::now_v7()), Authorization::Approved);
        let account = target.account;
        let charge = Charge {
            by_intent: Some(of),
            ..Charge::made(id, &new, None, Some(said), intent.created_at)
        };
        store::charges::insert_all(tx, &[(account, &charge)]).await?;
        let intent = intent.answered(method.id, id, said, None);
        write(tx, account, &intent).await
    })
}

/// Leaves the version as it is, as the release before does, or it would refuse the second one
/// first.
async fn write(
    tx: &mut PgConnection,
    account: AccountId,
    intent: &PaymentIntent,
) -> Result<(), sqlx::Error> {
    store::payment_intents::update_all(tx, &[(account, intent, intent.version)]).await
}

fn cancel<'a>(tx: &'a mut PgConnection, target: &'a Target) -> Doing<'a> {
    Box::pin(async move {
        let at = target.intent.created_at;
        let canceled = target.intent.clone().canceled(at);
        write(tx, target.account, &canceled).await
    })
}

fn capture<'a>(tx: &'a mut PgConnection, target: &'a Target) -> Doing<'a> {
    Box::pin(async move {
        let captured = target.intent.clone().captured(1500);
        write(tx, target.account, &captured).await
    })
}

async fn refused(
    database: &TestDatabase,
    target: &Target,
    first: Step,
    second: Step,
) -> Option<String> {
    let mut one = database.pool.begin().await.unwrap();
    let mut two = database.pool.begin().await.unwrap();
    first(&mut one, target).await.unwrap();
    let later = {
        let target = target.clone();
        tokio::spawn(async move {
            second(&mut two, &target).await?;
            two.commit().await
        })
    };
    // The second waits for the first.
    database.comes_to(LOCK_WAITS, 1).await;
    one.commit().await.unwrap();
    let error = later.await.unwrap().unwrap_err();
    violated(&error).map(str::to_owned)
}

#[tokio::test]
async fn constraints_alone_refuse_the_second_of_two_that_never_locked_an_intent() {
    let server = TestServer::start().await;
    let database = &server.database;
    database.is_left_broken("its steps are no commands");
    let client = &server.client;
    let account = sqlx::query_scalar("SELECT id FROM accounts LIMIT 1");
    let account = AccountId(account.fetch_one(&database.pool).await.unwrap());
    let (confirmable, capturable) = ("requires_confirmation", "requires_capture");
    let kept = "a_canceled_intent_has_no_succeeded_charge";
    let accounted = "captured_and_released_money_is_what_was_authorized";
    let stays = "a_canceled_intent_stays_canceled";
    let twice = "an_intent_has_one_succeeded_charge";
    let cases: &[(&str, Step, Step, &str)] = &[
        (confirmable, charge, charge, twice),
        (confirmable, charge, cancel, kept),
        (confirmable, cancel, charge, kept),
        (capturable, cancel, capture, stays),
        (capturable, capture, cancel, accounted),
    ];
    for (status, first, second, constraint) in cases {
        let id = PaymentIntentId::parse(&standing(client, status).await).unwrap();
        let mut connection = database.pool.acquire().await.unwrap();
        let intent = store::payment_intents::find(&mut connection, account, id).await;
        let intent = intent.unwrap().unwrap();
        let method: PaymentMethodId = intent.terms.payment_method.unwrap();
        let method = store::payment_methods::find(&mut connection, account, method).await;
        let target = Target {
            account,
            intent,
            method: method.unwrap().unwrap(),
        };
        drop(connection);
        let rule = refused(database, &target, *first, *second).await;
        assert_eq!(rule.as_deref(), Some(*constraint), "{status}");
    }
    // Money that was not promised can't be shown either.
    let id = standing(client, "requires_capture").await;
    let wrong =
        "UPDATE payment_intents SET amount_capturable = 1 WHERE status = 'requires_capture'";
    let error = sqlx::raw_sql(wrong).execute(&database.pool).await;
    assert_eq!(violated(&error.unwrap_err()), Some(accounted), "{id}");
    assert_eq!(act(client, &id, "capture", json!({})).await.status, 200);
}
