//! Clients of customers, payment methods and intents: verbs that meet at one intent, holders of
//! cards who authenticate on a page, and customers that are deleted. Refunds meet at one charge.

use std::collections::VecDeque;

use chrono::Utc;
use futures_util::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use reqwest::Method;
use serde_json::Value;

use super::{Load, RECENT, choose, keep};
use crate::{
    client::Account,
    history::{Reply, SharedKey, Told, lock},
    intents::{OF_A_CARD, OF_A_PROMISE, OF_A_WISH, suits},
    requests::{Known, Verb},
    world::{BATCHING, PUBLIC_URL, UNBATCHED},
};

/// How many intents are made up to have one that verbs can meet at: one in six suits.
const BEGIN_ATTEMPTS: usize = 40;

/// How often a request without a key is sent before its client gives up. Each attempt waits for
/// seconds where the service doesn't answer.
const ATTEMPTS_WITHOUT_KEY: usize = 5;

/// Recent objects, as the answers showed them.
#[derive(Default)]
pub(super) struct Intents {
    customers: VecDeque<Known>,
    /// Methods without a customer that were not used.
    loose: VecDeque<Known>,
    /// Methods of a customer.
    kept: VecDeque<Known>,
    /// Methods that a customer had.
    detached: VecDeque<Known>,
    /// Intents that nothing was paid for.
    wished: VecDeque<Known>,
    /// Intents whose money is promised.
    promised: VecDeque<Known>,
    /// Intents whose money was taken.
    paid: VecDeque<Known>,
    /// Intents and setup intents whose card's holder is to authenticate, with the path of the page.
    challenged: VecDeque<(Known, String)>,
}

impl Intents {
    pub(super) fn learn(&mut self, kind: &str, known: Known, body: &Value) {
        let status = body.get("status").and_then(Value::as_str);
        let page = body.pointer("/next_action/redirect_to_url/url");
        let path = page.and_then(|url| url.as_str()?.strip_prefix(PUBLIC_URL));
        if let Some(path) = path {
            let challenged = (known.clone(), path.to_owned());
            keep(&mut self.challenged, challenged, RECENT);
        }
        match (kind, status) {
            ("customer", _) => keep(&mut self.customers, known, RECENT),
            ("payment_method", _) if known.customer.is_some() => {
                keep(&mut self.kept, known, RECENT);
            }
            ("payment_method", _) => {
                // Its reply shows no customer any more.
                let before = self.kept.iter().find(|kept| kept.id == known.id).cloned();
                match before {
                    Some(before) => keep(&mut self.detached, before, RECENT),
                    None => keep(&mut self.loose, known, RECENT),
                }
            }
            ("payment_intent", Some("requires_capture")) => keep(&mut self.promised, known, RECENT),
            ("payment_intent", Some("succeeded")) => keep(&mut self.paid, known, RECENT),
            ("payment_intent", Some("canceled")) => {}
            ("payment_intent", _) => keep(&mut self.wished, known, RECENT),
            (_, _) => {}
        }
    }

    /// What a request of this verb can be about, of one account if only that will do.
    pub(super) fn object_for(
        &self,
        verb: Verb,
        account: Option<usize>,
        random: &mut ChaCha12Rng,
    ) -> Option<Known> {
        let kind = match (verb, random.random_range(0..6)) {
            (Verb::AttachMethod, _) => {
                let method = choose(&self.loose, account, random)?;
                let customer = choose(&self.customers, Some(method.account), random)?;
                return Some(Known {
                    customer: Some(customer.id),
                    ..method
                });
            }
            (Verb::CreateIntent, 0) => &self.detached,
            (Verb::CreateIntent, 1) => &self.loose,
            (Verb::CreateIntent, 2) | (Verb::DetachMethod, _) => &self.kept,
            (Verb::CreateSetup, _) => &self.customers,
            (Verb::ConfirmIntent | Verb::UpdateIntent, _) | (Verb::CancelIntent, 0..3) => {
                &self.wished
            }
            (Verb::CaptureIntent | Verb::CancelIntent, _) => &self.promised,
            (Verb::RefundIntent, _) => &self.paid,
            (_, _) => return None,
        };
        choose(kind, account, random)
    }
}

impl Load {
    /// Several verbs at one intent, each under a key of its own, and the holder of its card on the
    /// page, all at once.
    pub(super) async fn meet(&self, random: &mut ChaCha12Rng) {
        let is_promise = random.random_ratio(1, 2);
        if random.random_ratio(3, 4) {
            self.begin_for_meeting(is_promise, random).await;
        }
        let (verbs, intent): (&[Verb], _) = {
            let intents = &mut lock(&self.objects).intents;
            // The newest one, on which most of them can still do what they ask for.
            match is_promise {
                true => (&OF_A_PROMISE, intents.promised.pop_back()),
                false => (&OF_A_WISH, intents.wished.pop_back()),
            }
        };
        let Some(intent) = intent else { return };
        let page = {
            let objects = lock(&self.objects);
            let mut pages = objects.intents.challenged.iter();
            pages.find(|(known, _)| known.id == intent.id).cloned()
        };
        let mut other = ChaCha12Rng::seed_from_u64(random.random());
        let answering = async {
            if let Some((intent, path)) = page {
                self.answer_page(intent, &path, &mut other).await;
            }
        };
        tokio::join!(self.all_at_once(verbs, &intent, random), answering);
    }

    /// Refunds of two charges. Those of one have to know its sum, and a transaction may write both.
    pub(super) async fn refund_at_once(&self, random: &mut ChaCha12Rng) {
        let newest: Vec<Known> = {
            let objects = lock(&self.objects);
            objects.captured.iter().rev().take(2).cloned().collect()
        };
        let refunding = newest.iter().map(|charge| {
            let mut random = ChaCha12Rng::seed_from_u64(random.random());
            async move {
                let refunds = [Verb::CreateRefund; 4];
                self.all_at_once(&refunds, charge, &mut random).await;
            }
        });
        join_all(refunding.collect::<Vec<_>>()).await;
    }

    /// A card is taken from its customer while it pays, and is to pay once more afterwards.
    pub(super) async fn take_card_away(&self, random: &mut ChaCha12Rng) {
        let kept = choose(&lock(&self.objects).intents.kept, None, random);
        let Some(method) = kept else { return };
        self.all_at_once(&OF_A_CARD, &method, random).await;
        self.all_at_once(&[Verb::CreateIntent], &method, random)
            .await;
    }

    /// Small refunds of one charge, of which another replica has answered the first one. It is
    /// asked for once more in a batch with the others: nothing tells it there before its claim, and
    /// the others were decided by then.
    pub(super) async fn refund_beside_a_retry(&self, random: &mut ChaCha12Rng) {
        let newest = lock(&self.objects).captured.back().cloned();
        let Some(mut charge) = newest else { return };
        charge.amount = (charge.amount / 100).max(1);
        let keys = self.keys(&[Verb::CreateRefund; 6], &charge, random);
        if let Some(retried) = keys.first() {
            self.drive_at(UNBATCHED, retried, random).await;
        }
        self.drive_all(Some(BATCHING), &keys, random).await;
        self.remember(keys);
    }

    /// Requests about one object, each under a key of its own, and each sent twice: what a replica
    /// has decided for one may be lost to another replica that has the same one.
    async fn all_at_once(&self, verbs: &[Verb], object: &Known, random: &mut ChaCha12Rng) {
        let keys = self.keys(verbs, object, random);
        let twice = [&*keys, &*keys].concat();
        self.drive_all(None, &twice, random).await;
        self.remember(keys);
    }

    /// New requests about one object, each under a key of its own. The keys are in the order in
    /// which a batch decides.
    fn keys(&self, verbs: &[Verb], object: &Known, random: &mut ChaCha12Rng) -> Vec<SharedKey> {
        let mut keys = Vec::new();
        for verb in verbs {
            let tag = format!("{:x}-{:08}", self.seed, self.number());
            if let Some(mut request) = verb.request(random, &tag, Some(object)) {
                request.wait = None;
                let name = format!("key-{tag}");
                keys.push(self.history.add(object.account, name, vec![request]));
            }
        }
        keys
    }

    /// A new intent that verbs are to meet at.
    async fn begin_for_meeting(&self, is_promise: bool, random: &mut ChaCha12Rng) {
        let account = random.random_range(0..self.accounts.len());
        for _ in 0..BEGIN_ATTEMPTS {
            let tag = format!("{:x}-{}", self.seed, self.number());
            let request = Verb::CreateIntent.request(random, &tag, None);
            let Some(request) = request.filter(|request| suits(request, is_promise)) else {
                continue;
            };
            let name = format!("key-{tag}");
            let key = self.history.add(account, name, vec![request]);
            self.drive(&key, 0, random, false).await;
            break;
        }
    }

    /// The holder of a card presses a button on the newest page, or once more on an earlier one.
    pub(super) async fn authenticate(&self, random: &mut ChaCha12Rng) {
        let challenged = {
            let objects = lock(&self.objects);
            let pages = &objects.intents.challenged;
            let newest = pages.len().saturating_sub(1);
            let at = match random.random_ratio(2, 3) {
                true => newest,
                false => random.random_range(0..=newest),
            };
            pages.get(at).cloned()
        };
        if let Some((intent, path)) = challenged {
            self.answer_page(intent, &path, random).await;
        }
    }

    /// A button of a page. The first one decides.
    async fn answer_page(&self, intent: Known, path: &str, random: &mut ChaCha12Rng) {
        let form = match random.random_ratio(3, 4) {
            true => "outcome=complete",
            false => "outcome=fail",
        };
        let sent = self.settle_without_key(Method::POST, None, path, form, random);
        let Some(reply) = sent.await else { return };
        let back = reply.header("location").unwrap_or_default();
        let is_paid = back.contains("redirect_status=succeeded");
        let told = is_paid.then(|| told_now(intent, "authenticated"));
        let outcome = format!("{}, of the page of an authentication", reply.status);
        self.history.tell(outcome, told);
    }

    /// Deletes a customer, and with it all of its methods.
    pub(super) async fn delete_customer(&self, random: &mut ChaCha12Rng) {
        let customer = choose(&lock(&self.objects).intents.customers, None, random);
        let Some(customer) = customer else { return };
        let Some(account) = self.accounts.get(customer.account) else {
            return;
        };
        let path = format!("/customers/{}", customer.id);
        let sent = self.settle_without_key(Method::DELETE, Some(account), &path, "", random);
        let Some(reply) = sent.await else { return };
        let told = (reply.status == 200).then(|| told_now(customer, "deleted"));
        let outcome = format!("{}, of the deletion of a customer", reply.status);
        self.history.tell(outcome, told);
    }

    /// Sends a request without a key until its answer is definite, or for a while.
    async fn settle_without_key(
        &self,
        method: Method,
        account: Option<&Account>,
        path: &str,
        form: &'static str,
        random: &mut ChaCha12Rng,
    ) -> Option<Reply> {
        let client = &self.client;
        for _ in 0..ATTEMPTS_WITHOUT_KEY {
            let replica = random.random_range(0..client.replicas());
            let sending = client.send_without_key(method.clone(), account, path, form, replica);
            if let Some(reply) = sending.await {
                return Some(reply);
            }
        }
        None
    }
}

fn told_now(object: Known, state: &str) -> Told {
    Told {
        account: object.account,
        id: object.id,
        state: state.to_owned(),
        at: Utc::now(),
    }
}
