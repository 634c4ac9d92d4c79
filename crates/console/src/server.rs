//! What the console asks of the server whose pages it shows.

use std::{collections::HashMap, net::IpAddr, ops::Range, time::Duration};

use actix_web::{
    http::{StatusCode, header::HeaderMap},
    web::{Bytes, Payload},
};
use charge_once_idempotency::{
    IdempotencyKey, Inspected, KnownRequest, LeasedKey, Steps, WorkflowName,
};
use chrono::{DateTime, Utc};
use futures_util::future::LocalBoxFuture;
use uuid::Uuid;

/// What was asked for, or what its client is told instead.
pub type Answer<'a, T> = LocalBoxFuture<'a, Result<T, Refusal>>;

/// The server. Every question is about one account, and its answer shows nothing of another.
pub trait Server: Send + Sync {
    /// The account that an API key speaks for, if it may ask now.
    fn account_of<'a>(&'a self, api_key: &'a str, client: Option<IpAddr>) -> Answer<'a, Account>;

    /// What people call an account.
    fn name_of(&self, account: Uuid) -> Answer<'_, String>;

    /// Reads a body of at most `limit` bytes, for as long as a request may take to bring it.
    fn read_body<'a>(
        &'a self,
        headers: &'a HeaderMap,
        payload: Payload,
        limit: usize,
    ) -> Answer<'a, Bytes>;

    /// Requests before the one with this id that are wanted, the newest first. `None`: no request
    /// has such an id.
    fn requests<'a>(
        &'a self,
        account: Uuid,
        wanted: &'a WantedRequests,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<FoundRequests>>;

    /// The minutes in which requests came, from the one of this moment on.
    fn minutes(&self, account: Uuid, since: DateTime<Utc>) -> Answer<'_, Vec<Minute>>;

    /// The last check of the database that has the account, with those of others.
    fn last_check(&self, account: Uuid) -> Answer<'_, Option<LastCheck>>;

    /// What has this name: a key, an id, or what the account itself calls something.
    fn look_up<'a>(&'a self, account: Uuid, name: &'a str) -> Answer<'a, Vec<Found>>;

    /// All that is known of a key, with its last requests.
    fn story(&self, account: Uuid, key: IdempotencyKey, requests_max: usize) -> Answer<'_, Story>;

    /// Requests of a workflow after the one with this key, in the order of their first use. `None`:
    /// the workflow has no such key.
    fn workflow<'a>(
        &'a self,
        account: Uuid,
        name: WorkflowName,
        after: Option<IdempotencyKey>,
        limit: usize,
    ) -> Answer<'a, Option<Steps>>;

    /// A number as people read it in English, by the name of its member: of an amount, money.
    /// `currency` is the one of the object that has it. `None`: it is read as it is.
    fn number(&self, member: &str, value: i64, currency: Option<&str>) -> Option<String>;

    /// Keys that this process works on, and keys with leases.
    fn in_flight(&self, account: Uuid, keys_max: usize) -> Answer<'_, InFlight>;

    /// Objects after the one with this id or name, in the order of their list: the newest first, or
    /// by name. `None`: the list has no such object.
    fn objects<'a>(
        &'a self,
        account: Uuid,
        kind: Kind,
        after: Option<&'a str>,
        limit: i64,
    ) -> Answer<'a, Option<Listed>>;

    /// One object, if the account has it.
    fn object<'a>(&'a self, account: Uuid, kind: Kind, id: &'a str) -> Answer<'a, Option<Object>>;

    /// Deliveries before the one with this id that are wanted, the newest first. `None`: no
    /// delivery, or no endpoint, has such an id.
    fn deliveries<'a>(
        &'a self,
        account: Uuid,
        wanted: &'a WantedDeliveries,
        before: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Option<FoundDeliveries>>;

    /// One delivery with its attempts, the oldest first, if the account has it.
    fn delivery<'a>(
        &'a self,
        account: Uuid,
        id: &'a str,
    ) -> Answer<'a, Option<(Delivery, Vec<Attempted>)>>;

    /// Webhook endpoints of the account, the newest first.
    fn webhook_endpoints(&self, account: Uuid) -> Answer<'_, Vec<WebhookEndpoint>>;

    /// Makes a delivery due. `None`: the account has no such delivery. `false`: it is left as it
    /// was.
    fn retry_delivery<'a>(&'a self, account: Uuid, id: &'a str) -> Answer<'a, Option<bool>>;

    /// Makes deliveries to an endpoint due that failed, of those that were made in this time the
    /// newest, at most `limit`, and says how many. `None`: the account has no such endpoint.
    fn retry_failed<'a>(
        &'a self,
        account: Uuid,
        endpoint: &'a str,
        made: Range<Option<DateTime<Utc>>>,
        limit: usize,
    ) -> Answer<'a, Option<u64>>;
}

/// Keys that this process works on, and keys with leases.
pub type InFlight = (Vec<(String, KnownRequest)>, Vec<LeasedKey>);

/// Why there is no answer: the status that the API would answer with. Its message speaks of headers
/// and keys, to clients, so a page has words of its own.
#[derive(Debug, Clone, Copy)]
pub struct Refusal(pub StatusCode);

/// An account whose pages are shown.
#[derive(Debug, Clone)]
pub struct Account {
    /// The account's id.
    pub id: Uuid,
    /// Whether its API key moves no real money.
    pub is_test: bool,
    /// Whether faults act on it, so that a reply can be lost.
    pub may_lose_replies: bool,
}

/// Which requests are looked for. What is `None` excludes none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedRequests {
    /// How they ended; `None`: all that are no reads.
    pub outcome: Option<WantedOutcome>,
    /// The status of the reply lies between these two.
    pub status: Option<(u16, u16)>,
    /// A part of the path.
    pub path: Option<String>,
    /// A part of the key.
    pub key: Option<String>,
    /// The id of what the reply is about.
    pub object: Option<String>,
}

/// Requests that ended so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedOutcome {
    /// Reads too.
    Any,
    /// This one, one of [`OUTCOMES`].
    One(&'static str),
}

/// How a request may have ended.
pub const OUTCOMES: [&str; 8] = [
    "executed",
    "replayed",
    "refused",
    "reused",
    "in_use",
    "failed",
    "unanswered",
    "read",
];

/// What a search of the log found.
#[derive(Debug)]
pub struct FoundRequests {
    /// The newest first.
    pub requests: Vec<Logged>,
    /// Where the search ended before it had found as many as were asked for, if older requests are
    /// left.
    pub ended_at: Option<String>,
    /// Payments that they are about, as the API shows them, by their ids.
    pub payments: HashMap<String, Vec<u8>>,
}

/// A request of the log.
#[derive(Debug)]
pub struct Logged {
    /// `req_…`
    pub id: String,
    /// When it came.
    pub came_at: DateTime<Utc>,
    /// Its method.
    pub method: String,
    /// Its path, or the pattern of its route.
    pub path: String,
    /// Its key, if it had one.
    pub idempotency_key: Option<String>,
    /// The status of the reply, if there was one.
    pub status: Option<u16>,
    /// `executed`, `replayed`, `reused` …
    pub outcome: &'static str,
    /// The time until the reply.
    pub duration: Duration,
    /// The id of what the reply is about.
    pub resource_id: Option<String>,
    /// Whether its key was given up. What is stored says so, as long as it is kept.
    pub is_given_up: bool,
    /// How many requests with its key were replays, as a page shows it.
    pub replays: String,
}

/// An account's requests that came in one minute.
#[derive(Debug)]
pub struct Minute {
    /// When it began.
    pub at: DateTime<Utc>,
    /// How many ended with each of [`OUTCOMES`].
    pub ended: Vec<(&'static str, i64)>,
    /// A histogram of durations: upper bounds, and how many requests each has. `None`: no bound.
    /// Reads are left out.
    pub took: Vec<(Option<Duration>, i64)>,
    /// Replays of 2xx replies: each retry would have been a second effect.
    pub second_effects: i64,
}

/// The last check that the tables agree with each other.
#[derive(Debug, Clone, Copy)]
pub struct LastCheck {
    /// Violations that the check found.
    pub violations: i32,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// A thing that a search found by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A key.
    Key(String),
    /// An object, by its id.
    Object(Kind, String),
    /// A delivery, by its id.
    Delivery(String),
    /// A request without a key, in the list of those before this id.
    Request {
        /// The id after the request's own.
        before: String,
    },
}

/// All that is known of a key.
#[derive(Debug)]
pub struct Story {
    /// The stored outcome, or the request at work.
    pub found: Inspected,
    /// The lease of a request that takes several transactions.
    pub leased: Option<LeasedKey>,
    /// Requests with it, the oldest first.
    pub requests: Vec<Logged>,
    /// Events of requests with the key.
    pub events: Vec<Happened>,
    /// Deliveries of these events.
    pub deliveries: Vec<Delivery>,
}

/// An event.
#[derive(Debug)]
pub struct Happened {
    /// `evt_…`
    pub id: String,
    /// `charge.succeeded` …
    pub event_type: String,
    /// The id of the object that changed.
    pub object_id: Option<String>,
    /// The key of the request that made it happen, unless that was a DELETE without one.
    pub idempotency_key: Option<String>,
    /// When the event happened.
    pub created_at: DateTime<Utc>,
}

/// The lists of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Money that was taken, promised or declined.
    Charges,
    /// Payments, from the wish to the money.
    PaymentIntents,
    /// Who pays.
    Customers,
    /// Cards that are kept. They are found through their customers, and have no list.
    PaymentMethods,
    /// Cards that are made ready.
    SetupIntents,
    /// What is sold.
    Orders,
    /// Money given back.
    Refunds,
    /// An order and its payment at once.
    Checkouts,
    /// What there is to sell, by its stock-keeping unit.
    Inventory,
    /// What happened.
    Events,
    /// Where events are sent. They are listed with their deliveries.
    WebhookEndpoints,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Charges,
        Self::PaymentIntents,
        Self::Customers,
        Self::PaymentMethods,
        Self::SetupIntents,
        Self::Orders,
        Self::Refunds,
        Self::Checkouts,
        Self::Inventory,
        Self::Events,
        Self::WebhookEndpoints,
    ];
}

/// A part of a list.
#[derive(Debug)]
pub struct Listed {
    /// The objects, as the API shows them, with their cards.
    pub objects: Vec<Vec<u8>>,
    /// Whether there are older ones.
    pub has_more: bool,
}

/// An object by itself.
#[derive(Debug)]
pub struct Object {
    /// The object as the API shows it.
    pub json: Vec<u8>,
    /// Events of the object.
    pub events: Vec<Happened>,
    /// Deliveries of an event, or to an endpoint.
    pub deliveries: Vec<Delivery>,
}

/// A webhook endpoint, with how its newest attempts ended.
#[derive(Debug)]
pub struct WebhookEndpoint {
    /// `we_…`
    pub id: String,
    /// The address that events are sent to.
    pub url: String,
    /// Types of events that are sent, or `*` for all.
    pub enabled_events: Vec<String>,
    /// Types among these that this service never sends.
    pub never_sent: Vec<String>,
    /// `enabled` or `disabled`.
    pub status: &'static str,
    /// Attempts of the newest deliveries.
    pub attempts: i64,
    /// Attempts among these that were acknowledged.
    pub succeeded: i64,
}

/// Which deliveries are looked for. What is `None` excludes none.
#[derive(Debug, Clone, Default)]
pub struct WantedDeliveries {
    /// `pending`, `succeeded` or `failed`.
    pub status: Option<String>,
    /// `we_…`
    pub endpoint: Option<String>,
}

/// What a search of the deliveries found.
#[derive(Debug)]
pub struct FoundDeliveries {
    /// The newest first.
    pub deliveries: Vec<Delivery>,
    /// Where the search ended before it had found as many as were asked for, if older deliveries
    /// are left.
    pub ended_at: Option<String>,
}

/// An attempt to deliver an event that has ended.
#[derive(Debug)]
pub struct Attempted {
    /// When it began.
    pub at: DateTime<Utc>,
    /// Whether the receiver acknowledged the event.
    pub succeeded: bool,
    /// The status, or what happened in place of one.
    pub answer: String,
    /// The time until the answer.
    pub milliseconds: i64,
    /// The first KiB of the receiver's reply, while it is kept.
    pub reply: Option<String>,
}

/// The delivery of an event to a webhook endpoint.
#[derive(Debug)]
pub struct Delivery {
    /// `whd_…`
    pub id: String,
    /// When its event happened.
    pub created_at: DateTime<Utc>,
    /// The type of the event: `charge.succeeded` …
    pub event_type: String,
    /// `evt_…`
    pub event: String,
    /// `we_…`
    pub endpoint: String,
    /// `pending`, `succeeded` or `failed`.
    pub status: &'static str,
    /// Attempts that have ended.
    pub attempts: usize,
    /// The answer to the last attempt.
    pub last_answer: Option<String>,
    /// When the next attempt is due.
    pub next_attempt_at: Option<DateTime<Utc>>,
}
