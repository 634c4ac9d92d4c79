//! The clients: many at once, each with one request at a time, which it retries until the answer is
//! definite.
//!
//! Promise: a retry sends the same key and the same bytes. Only a key that clients fight over is
//! ever sent with another request, and on purpose.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use futures_util::future::join_all;
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha12Rng;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    client::{Account, Client},
    history::{Attempt, History, Read, Request, SharedKey, Verdict, lock},
    profile::Profile,
    requests::{Expected, Known, SLOW, VISA, Verb},
};

mod intents;

const CLIENTS: u64 = 16;

/// Recent objects of each kind, which requests are about: few, so that requests meet at them.
const RECENT: usize = 24;

/// Keys with an answer that are asked for again.
const REMEMBERED_KEYS: usize = 5000;

/// Of those, how many may be waited for until they expire, and how many a client asks for together.
const EXPIRING_KEYS: usize = 400;
const LATE_KEYS: usize = 8;

/// How much earlier than its request has ended a key may expire, and how long a client waits for
/// that at most.
const EARLY: Duration = Duration::from_millis(50);
const PATIENCE: TimeDelta = TimeDelta::seconds(1);

/// Keys of each account that clients fight over at a time.
const CONTENDED_KEYS: usize = 3;

/// Requests that fight over one key.
const RIVALS: usize = 3;

/// How many requests are made up to have so many.
const RIVAL_ATTEMPTS: usize = 12;

/// Names of keys that all accounts use at once: enough that some of them meet in a batch.
const SHARED_NAMES: usize = 6;

/// What the names of contended keys begin with.
pub(crate) const CONTENDED: &str = "contended-";

/// After so many attempts at a contended key, clients fight over another one.
const CONTENDED_ATTEMPTS: usize = 40;

/// What all clients share.
pub(crate) struct Load {
    pub(crate) client: Client,
    pub(crate) accounts: Vec<Account>,
    pub(crate) history: History,
    seed: u64,
    numbers: AtomicU64,
    objects: Mutex<Objects>,
    /// Whether some clients never retry, so that a worker must go on for them.
    abandons: bool,
    /// Where expired keys are remembered: how long after its request a key expires, and how long
    /// until it is swept then.
    late: Option<(Duration, Duration)>,
}

#[derive(Default)]
struct Objects {
    captured: VecDeque<Known>,
    authorized: VecDeque<Known>,
    orders: VecDeque<Known>,
    refunds: VecDeque<Known>,
    intents: intents::Intents,
    answered: VecDeque<SharedKey>,
    /// Those of them that expire next, in about this order.
    expiring: VecDeque<SharedKey>,
    /// By account.
    contended: HashMap<usize, Vec<SharedKey>>,
}

impl Load {
    pub(crate) fn new(
        client: Client,
        accounts: Vec<Account>,
        history: History,
        seed: u64,
        profile: &Profile,
    ) -> Self {
        Self {
            client,
            accounts,
            history,
            seed,
            numbers: AtomicU64::new(0),
            objects: Mutex::default(),
            abandons: profile.has_processor,
            late: profile
                .memory
                .map(|_| (profile.retention, profile.sweep_interval())),
        }
    }

    /// Runs all clients until `stop` says so. A request in its retries is left as it is.
    pub(crate) async fn run(self: &Arc<Self>, stop: watch::Receiver<bool>) {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (load, mut stop) = (Arc::clone(self), stop.clone());
            let mut random = ChaCha12Rng::seed_from_u64(self.seed);
            random.set_stream(number + 1);
            clients.spawn(async move {
                let working = load.work(&mut random, stop.clone());
                tokio::select! {
                    () = working => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        }
        clients.join_all().await;
    }

    async fn work(&self, random: &mut ChaCha12Rng, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if self.late.is_some() && random.random_ratio(1, 6) {
                self.ask_late(random).await;
            }
            match random.random_range(0..100) {
                0..10 => self.replay(random).await,
                10..14 => self.look(random).await,
                14..30 => self.contend(random).await,
                30..34 => self.share_names(random).await,
                34..43 => self.meet(random).await,
                43..47 => self.refund_at_once(random).await,
                47..50 => self.take_card_away(random).await,
                50..55 => self.authenticate(random).await,
                55 => self.delete_customer(random).await,
                56..58 => self.refund_beside_a_retry(random).await,
                58..62 => self.give_up(random).await,
                _ => self.begin(random).await,
            }
        }
    }

    /// A key that no client has used, for a request of any verb.
    fn new_key(&self, random: &mut ChaCha12Rng) -> Option<SharedKey> {
        let verb = Verb::any(random);
        let object = self.object_for(verb, None, random);
        let mut account = match &object {
            Some(object) => object.account,
            None => random.random_range(0..self.accounts.len()),
        };
        let number = self.number();
        let tag = format!("{:x}-{number}", self.seed);
        let mut request = verb.request(random, &tag, object.as_ref())?;
        // About what is another account's. A request that is refused anyway shows nothing.
        let is_foreign = object.is_some() && request.expected == Expected::Any;
        if is_foreign && random.random_ratio(1, 15) {
            account = (account + 1) % self.accounts.len();
            request.expected = Expected::Missing;
        }
        let name = format!("key-{tag}");
        Some(self.history.add(account, name, vec![request]))
    }

    async fn begin(&self, random: &mut ChaCha12Rng) {
        let Some(key) = self.new_key(random) else {
            return;
        };
        let abandons = self.abandons && random.random_ratio(1, 40);
        if random.random_ratio(1, 6) {
            // Twice at once, as a proxy that hedges sends it.
            let mut other = ChaCha12Rng::seed_from_u64(random.random());
            tokio::join!(
                self.drive(&key, 0, random, abandons),
                self.drive(&key, 0, &mut other, abandons),
            );
        } else {
            self.drive(&key, 0, random, abandons).await;
        }
        self.remember(vec![key]);
    }

    /// A key that is given up: after an attempt whose answer may be lost or before the first one,
    /// and beside the request or before it.
    async fn give_up(&self, random: &mut ChaCha12Rng) {
        let Some(key) = self.new_key(random) else {
            return;
        };
        if random.random_ratio(1, 2) {
            self.drive(&key, 0, random, true).await;
        }
        if random.random_ratio(2, 3) {
            let mut other = ChaCha12Rng::seed_from_u64(random.random());
            tokio::join!(
                self.drive(&key, 0, random, false),
                self.give_key_up(&key, &mut other),
            );
        } else {
            self.give_key_up(&key, random).await;
            self.drive(&key, 0, random, false).await;
        }
        self.remember(vec![key]);
    }

    /// Gives a key up, with a key of its own.
    async fn give_key_up(&self, key: &SharedKey, random: &mut ChaCha12Rng) {
        let given_up = {
            let history = lock(key);
            Known {
                account: history.account,
                id: history.key.clone(),
                amount: 0,
                customer: None,
            }
        };
        let tag = format!("{:x}-{}", self.seed, self.number());
        let Some(request) = Verb::AbandonKey.request(random, &tag, Some(&given_up)) else {
            return;
        };
        let name = format!("gives-up-{tag}");
        let own = self.history.add(given_up.account, name, vec![request]);
        self.drive(&own, 0, random, false).await;
        self.remember(vec![own]);
    }

    /// Keys whose names every account uses, each with a request of its own, all at once.
    async fn share_names(&self, random: &mut ChaCha12Rng) {
        let mut keys = Vec::new();
        for number in std::iter::repeat_with(|| self.number()).take(SHARED_NAMES) {
            for account in 0..self.accounts.len() {
                let tag = format!("{:x}-{number}-{account}", self.seed);
                let verb = match random.random_ratio(1, 3) {
                    true => Verb::CreateOrder,
                    false => Verb::CreateCharge,
                };
                if let Some(request) = verb.request(random, &tag, None) {
                    let name = format!("shared-{number}");
                    keys.push(self.history.add(account, name, vec![request]));
                }
            }
        }
        let some_are_retries = random.random_ratio(1, 2);
        if some_are_retries {
            // The first account then asks again, while the others ask for the first time.
            let is_of_first = |key: &&SharedKey| lock(key).account == 0;
            let of_first: Vec<_> = keys.iter().filter(is_of_first).cloned().collect();
            self.drive_all(None, &of_first, random).await;
        }
        self.drive_all(None, &keys, random).await;
        self.remember(keys);
    }

    /// Sends the first requests of keys at once, all to `replica` if it is given.
    async fn drive_all(
        &self,
        replica: Option<usize>,
        keys: &[SharedKey],
        random: &mut ChaCha12Rng,
    ) {
        let driving = keys.iter().map(|key| {
            let mut random = ChaCha12Rng::seed_from_u64(random.random());
            async move { self.drive_to(replica, key, 0, &mut random, false).await }
        });
        join_all(driving.collect::<Vec<_>>()).await;
    }

    fn remember(&self, keys: Vec<SharedKey>) {
        let mut objects = lock(&self.objects);
        for key in keys {
            keep(&mut objects.expiring, Arc::clone(&key), EXPIRING_KEYS);
            keep(&mut objects.answered, key, REMEMBERED_KEYS);
        }
    }

    /// Keys that expire now, asked again while they are swept: some twice at once, and some to be
    /// given up.
    async fn ask_late(&self, random: &mut ChaCha12Rng) {
        let Some((retention, swept_in)) = self.late else {
            return;
        };
        let (mut keys, mut asking) = (Vec::new(), Vec::new());
        while keys.len() < LATE_KEYS {
            let Some((key, early)) = self.next_to_expire(retention) else {
                break;
            };
            let mut random = ChaCha12Rng::seed_from_u64(random.random());
            let late = random.random_range(Duration::ZERO..swept_in + 2 * EARLY);
            let pause = (early.to_std().unwrap_or_default() + late).saturating_sub(EARLY);
            keys.push(Arc::clone(&key));
            asking.push(async move {
                tokio::time::sleep(pause).await;
                let variant = random.random_range(0..lock(&key).variants.len());
                let mut other = ChaCha12Rng::seed_from_u64(random.random());
                let again = self.drive(&key, variant, &mut random, false);
                match other.random_range(0..8) {
                    0 => self.give_key_up(&key, &mut other).await,
                    1 => {
                        tokio::join!(again, self.give_key_up(&key, &mut other));
                    }
                    2 | 3 => {
                        tokio::join!(again, self.drive(&key, variant, &mut other, false));
                    }
                    _ => again.await,
                }
            });
        }
        join_all(asking).await;
        self.remember(keys);
    }

    /// The key that expires next, if that is soon, and how soon. `Idempotency-Expires` has whole
    /// seconds, so the end of the request tells better when it is.
    fn next_to_expire(&self, retention: Duration) -> Option<(SharedKey, TimeDelta)> {
        let mut objects = lock(&self.objects);
        while let Some(key) = objects.expiring.pop_front() {
            let ended = lock(&key).last_execution_ended();
            let early = ended.map(|ended| ended + retention - Utc::now());
            match early {
                Some(early) if early > PATIENCE => {
                    objects.expiring.push_front(key);
                    return None;
                }
                Some(early) if early > TimeDelta::zero() => return Some((key, early)),
                // Swept by now, or never answered.
                Some(_) | None => {}
            }
        }
        None
    }

    /// A new charge without `Prefer: wait`, of a card that answers at once.
    pub(crate) fn quick_charge(
        &self,
        account: usize,
        tag: &str,
        random: &mut ChaCha12Rng,
    ) -> Option<SharedKey> {
        let mut request = Verb::CreateCharge.request(random, tag, None)?;
        request.wait = None;
        request.replace_card(SLOW, VISA);
        Some(
            self.history
                .add(account, format!("key-{tag}"), vec![request]),
        )
    }

    /// A charge that is sent once. Returns whether it has an answer.
    pub(crate) async fn abandon(&self, random: &mut ChaCha12Rng) -> Option<bool> {
        let tag = format!("{:x}-abandoned-{}", self.seed, self.number());
        let mut request = Verb::CreateCharge.request(random, &tag, None)?;
        request.wait = None;
        let key = self.history.add(0, format!("key-{tag}"), vec![request]);
        self.drive(&key, 0, random, true).await;
        let is_answered = lock(&key).open_variants().is_empty();
        Some(is_answered)
    }

    /// A key that is sent with one of several requests, by several clients at once.
    async fn contend(&self, random: &mut ChaCha12Rng) {
        let account = random.random_range(0..self.accounts.len());
        if random.random_ratio(1, 2) {
            self.race(account, random).await;
            return;
        }
        let Some(key) = self.contended_key(account, random) else {
            return;
        };
        let variant = random.random_range(0..RIVALS);
        self.drive(&key, variant, random, false).await;
    }

    /// Every rival twice for a key that no client has used, all at once, and perhaps one who gives
    /// the key up.
    async fn race(&self, account: usize, random: &mut ChaCha12Rng) {
        let Some(key) = self.rivals(account, random) else {
            return;
        };
        let racers = (0..2 * RIVALS).map(|racer| {
            let mut random = ChaCha12Rng::seed_from_u64(random.random());
            let key = &key;
            async move { self.drive(key, racer % RIVALS, &mut random, false).await }
        });
        let racers = join_all(racers.collect::<Vec<_>>());
        if random.random_ratio(1, 3) {
            tokio::join!(racers, self.give_key_up(&key, random));
        } else {
            racers.await;
        }
        self.remember(vec![key]);
    }

    /// A new key, and several requests for it. No two of them are the same, which would make one a
    /// retry of the other.
    fn rivals(&self, account: usize, random: &mut ChaCha12Rng) -> Option<SharedKey> {
        let number = self.number();
        let mut rivals: Vec<Request> = Vec::new();
        for attempt in 0..RIVAL_ATTEMPTS {
            if rivals.len() == RIVALS {
                break;
            }
            let verb = Verb::of_rival(random);
            let object = self.object_for(verb, Some(account), random);
            let tag = format!("{:x}-{number}-{attempt}", self.seed);
            let Some(mut rival) = verb.request(random, &tag, object.as_ref()) else {
                continue;
            };
            // Slow ones meet each other, and more of them than are allowed fail.
            if random.random_ratio(1, 10) {
                rival.replace_card(VISA, SLOW);
            }
            if !rivals.iter().any(|other| other.is_same(&rival)) {
                rivals.push(rival);
            }
        }
        let name = format!("{CONTENDED}{number}");
        (rivals.len() == RIVALS).then(|| self.history.add(account, name, rivals))
    }

    fn contended_key(&self, account: usize, random: &mut ChaCha12Rng) -> Option<SharedKey> {
        let missing = {
            let mut objects = lock(&self.objects);
            let keys = objects.contended.entry(account).or_default();
            keys.retain(|key| lock(key).attempts.len() < CONTENDED_ATTEMPTS);
            CONTENDED_KEYS.saturating_sub(keys.len())
        };
        // Requests are made up without the lock, because what they are about is behind it.
        let mut new: Vec<_> = (0..missing)
            .filter_map(|_| self.rivals(account, random))
            .collect();
        let mut objects = lock(&self.objects);
        let keys = objects.contended.entry(account).or_default();
        // Another client may have added some meanwhile.
        new.truncate(CONTENDED_KEYS.saturating_sub(keys.len()));
        keys.extend(new);
        keys.choose(random).cloned()
    }

    /// A key that has an answer, again.
    async fn replay(&self, random: &mut ChaCha12Rng) {
        let key = {
            let objects = lock(&self.objects);
            let answered = &objects.answered;
            match answered.len() {
                0 => return,
                length => answered.get(random.random_range(0..length)).cloned(),
            }
        };
        if let Some(key) = key {
            self.drive(&key, 0, random, false).await;
        }
    }

    /// Reads a charge, an order or an intent: its own account sees it, and the other one doesn't.
    async fn look(&self, random: &mut ChaCha12Rng) {
        let (verb, collection) = match random.random_range(0..3) {
            0 => (Verb::CreateRefund, "charges"),
            1 => (Verb::PayOrder, "orders"),
            _ => (Verb::RefundIntent, "payment_intents"),
        };
        let Some(object) = self.object_for(verb, None, random) else {
            return;
        };
        let reader = random.random_range(0..self.accounts.len());
        let replica = random.random_range(0..self.client.replicas());
        let Some(account) = self.accounts.get(reader) else {
            return;
        };
        let path = format!("/{collection}/{}", object.id);
        let Some(reply) = self.client.get(account, &path, replica).await else {
            return;
        };
        let (id, status) = (&object.id, reply.status);
        self.history.saw(Read {
            reader,
            owner: object.account,
            object: id.clone(),
            status,
            at: Utc::now(),
        });
        match (reader == object.account, status) {
            (true, 200) | (false, 404) => {}
            (true, _) => {
                let what = format!("{id} was acknowledged, and reading it is {status}");
                self.history.violate_about("G2", what, id);
            }
            (false, _) => {
                let what = format!("{id} is read from another account: {status}");
                self.history.violate_about("G6", what, id);
            }
        }
    }

    /// Sends a request until its answer is definite, each time to a replica by chance.
    pub(crate) async fn drive(
        &self,
        key: &SharedKey,
        variant: usize,
        random: &mut ChaCha12Rng,
        abandons: bool,
    ) {
        self.drive_to(None, key, variant, random, abandons).await;
    }

    /// Sends a key's first request to one replica until its answer is definite.
    pub(crate) async fn drive_at(&self, replica: usize, key: &SharedKey, random: &mut ChaCha12Rng) {
        self.drive_to(Some(replica), key, 0, random, false).await;
    }

    /// Sends a key's first request to one replica, once.
    pub(crate) async fn drive_once_at(
        &self,
        replica: usize,
        key: &SharedKey,
        random: &mut ChaCha12Rng,
    ) {
        self.drive_to(Some(replica), key, 0, random, true).await;
    }

    async fn drive_to(
        &self,
        replica: Option<usize>,
        key: &SharedKey,
        variant: usize,
        random: &mut ChaCha12Rng,
        abandons: bool,
    ) {
        let began = Instant::now();
        loop {
            let any = random.random_range(0..self.client.replicas());
            let replica = replica.unwrap_or(any);
            let Some(attempt) = self.attempt(key, variant, replica).await else {
                return;
            };
            let is_definite = !matches!(attempt.verdict, Verdict::Unknown(_));
            self.learn(key, &attempt);
            self.history.record(key, attempt);
            self.history.stalled(began.elapsed());
            if is_definite || abandons {
                return;
            }
            let pause = Duration::from_millis(random.random_range(20..400));
            tokio::time::sleep(pause).await;
        }
    }

    /// One attempt. `None`: the key has no such request.
    async fn attempt(&self, key: &SharedKey, variant: usize, replica: usize) -> Option<Attempt> {
        let (account, name, request) = {
            let history = lock(key);
            let request = history.variants.get(variant)?.clone();
            (history.account, history.key.clone(), request)
        };
        let account = self.accounts.get(account)?;
        let mut left = Left {
            history: &self.history,
            key,
            attempt: Some(Attempt {
                variant,
                replica,
                began: Utc::now(),
                ended: Utc::now(),
                verdict: Verdict::Unknown("the load ended before an answer".to_owned()),
            }),
        };
        let verdict = self.client.attempt(account, &name, &request, replica).await;
        Some(Attempt {
            ended: Utc::now(),
            verdict,
            ..left.attempt.take()?
        })
    }

    /// Remembers what an answer shows, for later requests.
    fn learn(&self, key: &SharedKey, attempt: &Attempt) {
        let Some(stored) = attempt.verdict.stored() else {
            return;
        };
        // A decline shows the intent that is left.
        let left = stored.body.pointer("/error/payment_intent");
        let body = left.unwrap_or(&stored.body);
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let (Some(kind), Some(id)) = (text("object"), text("id")) else {
            return;
        };
        let amount = body.get("amount").and_then(Value::as_i64);
        let known = Known {
            account: lock(key).account,
            id: id.to_owned(),
            amount: amount.unwrap_or(1),
            customer: text("customer").map(str::to_owned),
        };
        let captured = body.get("captured").and_then(Value::as_bool);
        let mut objects = lock(&self.objects);
        match (kind, captured) {
            ("charge", Some(true)) => keep(&mut objects.captured, known, RECENT),
            ("charge", Some(false)) => keep(&mut objects.authorized, known, RECENT),
            ("order", _) => keep(&mut objects.orders, known, RECENT),
            ("refund", _) => keep(&mut objects.refunds, known, RECENT),
            (kind, _) => objects.intents.learn(kind, known, body),
        }
    }

    /// What a request of this verb can be about, of one account if only that will do.
    fn object_for(
        &self,
        verb: Verb,
        account: Option<usize>,
        random: &mut ChaCha12Rng,
    ) -> Option<Known> {
        let objects = lock(&self.objects);
        let kind = match verb {
            Verb::CaptureCharge => &objects.authorized,
            // A refund of what isn't captured yet releases it, or meets a capture.
            Verb::CreateRefund if random.random_ratio(1, 6) => &objects.authorized,
            Verb::UpdateCharge | Verb::CreateRefund => &objects.captured,
            Verb::UpdateRefund => &objects.refunds,
            Verb::UpdateOrder | Verb::PayOrder | Verb::CancelOrder => &objects.orders,
            Verb::CreateCharge
            | Verb::CreateOrder
            | Verb::CreateCheckout
            | Verb::SetInventory
            | Verb::AbandonKey => return None,
            Verb::CreateCustomer
            | Verb::CreateMethod
            | Verb::AttachMethod
            | Verb::DetachMethod
            | Verb::CreateIntent
            | Verb::ConfirmIntent
            | Verb::UpdateIntent
            | Verb::CaptureIntent
            | Verb::CancelIntent
            | Verb::RefundIntent
            | Verb::CreateSetup => return objects.intents.object_for(verb, account, random),
        };
        choose(kind, account, random)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Records an attempt that breaks off with the load: it may be executed all the same.
struct Left<'a> {
    history: &'a History,
    key: &'a SharedKey,
    attempt: Option<Attempt>,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if let Some(mut attempt) = self.attempt.take() {
            attempt.ended = Utc::now();
            self.history.record(self.key, attempt);
        }
    }
}

/// One of the objects, of one account if only that will do.
fn choose(
    from: &VecDeque<Known>,
    account: Option<usize>,
    random: &mut ChaCha12Rng,
) -> Option<Known> {
    let is_of = |known: &&Known| account.is_none_or(|account| known.account == account);
    let known: Vec<&Known> = from.iter().filter(is_of).collect();
    known.choose(random).copied().cloned()
}

/// Adds to the newest, and forgets the oldest beyond `most`.
fn keep<T>(newest: &mut VecDeque<T>, added: T, most: usize) {
    newest.push_back(added);
    if newest.len() > most {
        newest.pop_front();
    }
}
