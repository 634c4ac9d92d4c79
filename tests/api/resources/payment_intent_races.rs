//! Verbs of one intent that race on two replicas: one happens, the other one sees what became of
//! it. The database's own constraints refuse what would get past the locks.

use charge_once::{
    domain::{
        charge::{Authorization, Card, Charge, IntentCharge},
        ids::{AccountId, ChargeId, PaymentIntentId, PaymentMethodId},
        payment_intent::PaymentIntent,
        payment_method::PaymentMethod,
    },
    store,
};

use crate::support::{
    harness::violated,
    holder_pages::fifty_answers,
    intents::{act, create, paid_with, path, retrieve, standing, terms_with},
    prelude::*,
    racers::{Doing, Step, interleave, until_definite},
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

/// No method is ready for a setup intent that was canceled.
const READY_THOUGH_CANCELED: &str = "SELECT count(*) FROM setup_intents
      JOIN payment_methods ON payment_methods.id = setup_intents.payment_method_id
     WHERE setup_intents.status = 'canceled' AND is_set_up";

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
        for contradictions in [CONTRADICTIONS, READY_THOUGH_CANCELED] {
            assert_eq!(self.database.count(contradictions).await, 0);
        }
    }
}

/// The one of two that succeeded, and the other.
fn winner_first(one: Answer, other: Answer) -> (Answer, Answer) {
    match one.status.is_success() {
        true => (one, other),
        false => (other, one),
    }
}

/// The status of the payment intent or setup intent that a refusal holds.
fn seen(refusal: &Answer) -> Value {
    let code = refusal.code();
    let kind = code.strip_suffix("_unexpected_state").expect(&code);
    refusal.json()["error"][kind]["status"].clone()
}

/// Two equal verbs of an intent in this status race, and one of them takes the money.
async fn one_of_two_happens(status: &str, verb: &str, body: Value) -> Replicas {
    let replicas = Replicas::start().await;
    for _ in 0..RACES {
        let id = standing(replicas.client(), status).await;
        let path = path(&id, verb);
        let (one, other) = replicas.race((&path, &body), (&path, &body)).await;
        let (done, refused) = winner_first(one, other);
        done.assert_shows(json!({"status": "succeeded", "amount_received": 2000}));
        assert_eq!(seen(&refused), "succeeded");
    }
    replicas.no_money_is_lost().await;
    replicas
}

#[tokio::test]
async fn of_two_confirmations_at_once_one_charges() {
    let visa = json!({"payment_method": "pm_card_visa"});
    let replicas = one_of_two_happens("requires_payment_method", "confirm", visa).await;
    assert_eq!(replicas.database.charges().await, RACES as i64);
}

#[tokio::test]
async fn of_two_captures_at_once_one_takes_the_money() {
    let replicas = one_of_two_happens("requires_capture", "capture", json!({})).await;
    let captured = "SELECT count(*) FROM events WHERE type = 'charge.captured'";
    assert_eq!(replicas.database.count(captured).await, RACES as i64);
}

/// A verb and a cancellation of an intent race, and one of them happens.
async fn one_of_a_verb_and_a_cancellation_happens(
    path_of_new: impl AsyncFn(&Client) -> String,
    verb: &str,
    body: Value,
) {
    let replicas = Replicas::start().await;
    let nothing = json!({});
    for _ in 0..RACES {
        let path = path_of_new(replicas.client()).await;
        let (verb, cancel) = (format!("{path}/{verb}"), format!("{path}/cancel"));
        let (done, canceled) = replicas.race((&verb, &body), (&cancel, &nothing)).await;
        let status = match done.status.is_success() {
            true => "succeeded",
            false => "canceled",
        };
        let (winner, refused) = winner_first(done, canceled);
        winner.assert_shows(json!({"status": status}));
        assert_eq!(seen(&refused), status);
        assert_eq!(replicas.client().get(&path).await.json()["status"], status);
    }
    replicas.no_money_is_lost().await;
}

#[tokio::test]
async fn of_a_confirmation_and_a_cancellation_at_once_one_happens() {
    let begun = async |client: &Client| {
        let id = standing(client, "requires_payment_method").await;
        path(&id, "")
    };
    let visa = json!({"payment_method": "pm_card_visa"});
    one_of_a_verb_and_a_cancellation_happens(begun, "confirm", visa).await;
    let begun = async |client: &Client| {
        let body = json!({"payment_method": "pm_card_visa", "payment_method_types": ["card"]});
        let id = client.post_new("/setup_intents", &body).await.id();
        format!("/setup_intents/{id}")
    };
    one_of_a_verb_and_a_cancellation_happens(begun, "confirm", json!({})).await;
}

#[tokio::test]
async fn of_a_capture_and_a_cancellation_at_once_one_happens() {
    let promised = async |client: &Client| {
        let id = standing(client, "requires_capture").await;
        path(&id, "")
    };
    let part = json!({"amount_to_capture": 1500});
    one_of_a_verb_and_a_cancellation_happens(promised, "capture", part).await;
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
    let payment = terms_with(json!({
        "payment_method": "pm_card_authenticationRequired", "confirm": true,
    }));
    let setup = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "return_url": "https://shop.example/return",
    });
    for (collection, body, landed) in [
        ("/payment_intents", payment, 200),
        ("/setup_intents", setup, 303),
    ] {
        for _ in 0..RACES {
            let waiting = client.post_new(collection, &body).await;
            let path = format!("{collection}/{}", waiting.id());
            let (page, cancel) = (page_of(&waiting), format!("{path}/cancel"));
            let (pressed, canceled) = tokio::join!(
                press(&page, "complete"),
                until_definite(&replicas.other.client, &cancel, &nothing),
            );
            let status = client.get(&path).await.json()["status"].take();
            let ended = (pressed.status.as_u16(), status);
            if canceled.status.is_success() {
                assert_eq!(ended, (410, json!("canceled")));
            } else {
                assert_eq!(ended, (landed, json!("succeeded")));
                assert_eq!(seen(&canceled), "succeeded");
            }
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
    let elsewhere = page.replace(&own, &elsewhere);
    let answers = fifty_answers([page, elsewhere]).await;
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

/// What two transactions want to change, as they read it long before.
#[derive(Clone)]
struct Target {
    account: AccountId,
    intent: PaymentIntent,
    method: PaymentMethod,
}

fn charge(tx: &mut PgConnection, target: Target) -> Doing<'_> {
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

fn cancel(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let at = target.intent.created_at;
        let canceled = target.intent.canceled(at);
        write(tx, target.account, &canceled).await
    })
}

fn capture(tx: &mut PgConnection, target: Target) -> Doing<'_> {
    Box::pin(async move {
        let captured = target.intent.captured(1500);
        write(tx, target.account, &captured).await
    })
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
    let cases: &[(&str, Step<Target>, Step<Target>, &str)] = &[
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
        let later = interleave(database, target, *first, *second).await;
        let error = later.unwrap_err();
        assert_eq!(violated(&error), Some(*constraint), "{status}: {error}");
    }
    // Money that was not promised can't be shown either.
    let id = standing(client, "requires_capture").await;
    let wrong =
        "UPDATE payment_intents SET amount_capturable = 1 WHERE status = 'requires_capture'";
    let error = sqlx::raw_sql(wrong).execute(&database.pool).await;
    assert_eq!(violated(&error.unwrap_err()), Some(accounted), "{id}");
    assert_eq!(act(client, &id, "capture", json!({})).await.status, 200);
}
