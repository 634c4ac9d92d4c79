//! The playground: real requests to this server, and what each of them got.
//!
//! Promise: it sends with the session's own API key, over loopback, through the whole API. Requests
//! at once and their time are bounded.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use actix_web::{HttpResponse, web};
use charge_once_client::transport::{TlsError, http_client_builder};
use charge_once_idempotency::IdempotencyKey;
use charge_once_strict_params::card_numbers::holds_card_number;
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    Console,
    error::ConsoleError,
    form::Form,
    layout::{self, Section, key_path},
    masked,
    visitor::Visitor,
};

/// Duplicates of a race: more than the pool has connections.
const RACERS: usize = 20;

/// Actions at once, of all sessions. Each sends at most [`RACERS`] requests.
const ACTIONS_MAX: usize = 4;

/// Longest time for one request, longer than the API takes for one.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(20);

/// The fault by which the first reply of a new charge gets lost.
const LOST: &str = "reply_lost";

/// How long a racer waits for the first one's reply instead of getting 409.
const RACER_WAIT: &str = "wait=10";

/// How the playground reaches this server.
#[derive(Debug)]
pub(super) struct Playground {
    http: reqwest::Client,
    host: String,
    charges: String,
    free: Semaphore,
    /// The tokens of all test cards.
    cards: Vec<&'static str>,
}

impl Playground {
    /// For the server that listens on `address` and takes requests to `host`.
    pub(super) fn new(
        address: SocketAddr,
        host: &str,
        cards: Vec<&'static str>,
    ) -> Result<Self, PlaygroundError> {
        // What listens everywhere listens on loopback.
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        let http = http_client_builder()?
            .timeout(EXCHANGE_LIMIT)
            // A kept connection would belong to the thread that opened it.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self {
            http,
            host: host.to_owned(),
            charges: format!("http://{}/charges", SocketAddr::new(ip, address.port())),
            free: Semaphore::new(ACTIONS_MAX),
            cards,
        })
    }
}

/// The playground's client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// The TLS library refuses its default protocol versions: a defect.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP library refuses its settings: a defect.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
}

/// The buttons of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// A new charge, with a fresh key.
    Send,
    /// The same charge again, with its key.
    Retry,
    /// Another amount, with the same key.
    Change,
    /// A new charge, sent many times at once.
    Race,
    /// A new charge whose reply gets lost, and its retry.
    Lose,
}

impl Action {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "send" => Some(Self::Send),
            "retry" => Some(Self::Retry),
            "change" => Some(Self::Change),
            "race" => Some(Self::Race),
            "lose" => Some(Self::Lose),
            _ => None,
        }
    }
}

/// The charge that a form describes. Only `amount`, `currency` and `source` are taken from it.
struct Charge {
    amount: i64,
    currency: String,
    source: &'static str,
}

impl Charge {
    fn of_form(form: &Form, cards: &[&'static str]) -> Result<Self, ConsoleError> {
        let digits = form.field("amount");
        let amount = digits.parse().ok().filter(|_| digits.len() <= 12);
        let amount = amount.ok_or(ConsoleError::Unreadable(
            "The amount must be a whole number of minor units, such as 2000.",
        ))?;
        let currency = form.field("currency").to_ascii_lowercase();
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(ConsoleError::Unreadable(
                "The currency must be three letters, such as usd.",
            ));
        }
        let source = form.field("source");
        let source = cards.iter().copied().find(|known| *known == source);
        Ok(Self {
            amount,
            currency,
            source: source.ok_or(ConsoleError::Unreadable("Choose one of the test cards."))?,
        })
    }

    /// With so many minor units more.
    fn body(&self, more: i64) -> Value {
        let amount = self.amount.saturating_add(more);
        json!({"amount": amount, "currency": self.currency, "source": self.source})
    }
}

impl Default for Charge {
    fn default() -> Self {
        Self {
            amount: 2000,
            currency: "usd".to_owned(),
            source: "tok_visa",
        }
    }
}

/// One request, and what it got.
struct Exchange {
    /// `None`: it got no reply.
    reply: Option<Received>,
    milliseconds: u128,
}

struct Received {
    status: u16,
    is_replay: bool,
    original: String,
    body: Vec<u8>,
}

/// The form.
pub(super) async fn show(console: web::Data<Console>, visitor: Visitor) -> HttpResponse {
    let playground = &console.playground;
    page(playground, &visitor, &Charge::default(), None, &html! {})
}

/// Sends what the form asks for, and shows what came back.
pub(super) async fn act(
    console: web::Data<Console>,
    visitor: Visitor,
    form: Form,
) -> Result<HttpResponse, ConsoleError> {
    let unknown = ConsoleError::Unreadable("The playground knows no such action.");
    let action = Action::parse(form.field("action")).ok_or(unknown)?;
    let playground = &console.playground;
    let charge = Charge::of_form(&form, &playground.cards)?;
    let key = match action {
        Action::Lose if !visitor.may_lose_replies => {
            return Err(ConsoleError::Unreadable(
                "Replies get lost only with FAULTS=true, for test accounts and the account of DEV_API_KEY.",
            ));
        }
        Action::Send | Action::Race | Action::Lose => format!("playground-{}", Uuid::new_v4()),
        Action::Retry | Action::Change => sent_key(&form)?,
    };
    let more = i64::from(action == Action::Change);
    let body = charge.body(more);
    let _place = playground
        .free
        .try_acquire()
        .map_err(|_| ConsoleError::Busy)?;
    let send = |fault| playground.send(&visitor.api_key, &key, &body, fault);
    let exchanges = match action {
        Action::Send | Action::Retry | Action::Change => vec![send(None).await],
        Action::Race => join_all((0..RACERS).map(|_| send(None))).await,
        Action::Lose => vec![send(Some(LOST)).await, send(None).await],
    };
    let shown = results(action, &key, &exchanges);
    Ok(page(playground, &visitor, &charge, Some(&key), &shown))
}

/// The key of the charge that was sent before.
fn sent_key(form: &Form) -> Result<String, ConsoleError> {
    let key = IdempotencyKey::parse(form.field("key").as_bytes()).ok();
    let key = key.filter(|key| !holds_card_number(key.as_str()));
    key.map(|key| key.as_str().to_owned())
        .ok_or(ConsoleError::Unreadable(
            "Send a charge first, and then retry it.",
        ))
}

impl Playground {
    async fn send(
        &self,
        api_key: &str,
        key: &str,
        body: &Value,
        fault: Option<&'static str>,
    ) -> Exchange {
        let began = Instant::now();
        let reply = self.exchange(api_key, key, body, fault).await;
        if let (Err(error), None) = (&reply, fault) {
            tracing::warn!(error = %error.to_string(), "the playground got no reply from this server");
        }
        Exchange {
            reply: reply.ok(),
            milliseconds: began.elapsed().as_millis(),
        }
    }

    async fn exchange(
        &self,
        api_key: &str,
        key: &str,
        body: &Value,
        fault: Option<&'static str>,
    ) -> Result<Received, reqwest::Error> {
        let mut request = self
            .http
            .post(&self.charges)
            .header("host", &self.host)
            .bearer_auth(api_key)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .header("prefer", RACER_WAIT)
            .body(body.to_string());
        if let Some(fault) = fault {
            request = request.header("fault", fault);
        }
        let response = request.send().await?;
        let header = |name: &str| {
            let value = response.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        Ok(Received {
            status: response.status().as_u16(),
            is_replay: header("idempotent-replayed") == "true",
            original: header("original-request").to_owned(),
            body: response.bytes().await?.to_vec(),
        })
    }
}

/// What happened, in one sentence.
fn sentence(action: Action, exchanges: &[Exchange]) -> String {
    let replies: Vec<_> = exchanges
        .iter()
        .filter_map(|one| one.reply.as_ref())
        .collect();
    let Some(first) = replies.first() else {
        return "No reply came. A retry with the same key is safe.".to_owned();
    };
    let made: BTreeSet<_> = replies.iter().filter_map(|one| charge_id(one)).collect();
    let bodies: BTreeSet<_> = replies.iter().map(|one| &one.body).collect();
    let charges = match made.len() {
        1 => "1 charge".to_owned(),
        count => format!("{count} charges"),
    };
    match (action, first.status, first.is_replay) {
        (Action::Race, _, _) => {
            let same = match bodies.len() {
                1 => "all the same bytes".to_owned(),
                count => format!("{count} different bodies"),
            };
            format!("{charges}, {} replies, {same}", replies.len())
        }
        (Action::Lose, _, true) => {
            format!(
                "The first reply was lost. The retry got it, and nothing was executed again: {charges}."
            )
        }
        (_, _, true) => "Nothing was executed again: the stored reply came back.".to_owned(),
        (_, 201, false) => format!("Executed: {charges}."),
        (_, 402, false) => {
            "Executed: the card was declined, and the failed charge is kept.".to_owned()
        }
        (Action::Change, 400..=499, false) => {
            "Refused: the key belongs to another request, and nothing was charged.".to_owned()
        }
        (_, 500.., _) => "Not executed, or not known: retry with the same key.".to_owned(),
        (_, status, _) => format!("Refused with {status}, and nothing was charged."),
    }
}

/// The charge of a reply: the object itself, or the one that a decline names.
fn charge_id(received: &Received) -> Option<String> {
    let body: Value = serde_json::from_slice(&received.body).ok()?;
    let id = body.get("id").or_else(|| body.get("error")?.get("charge"));
    id.and_then(Value::as_str).map(str::to_owned)
}

fn results(action: Action, key: &str, exchanges: &[Exchange]) -> Markup {
    html! {
        h2 #result { "What happened" }
        p .says role="status" { (sentence(action, exchanges)) }
        p { a href=(key_path(key)) { "The story of this key" } }
        ol .exchanges {
            @for exchange in exchanges {
                li { (shown(exchange)) }
            }
        }
    }
}

fn shown(exchange: &Exchange) -> Markup {
    let Some(reply) = &exchange.reply else {
        return html! { "No reply after " (exchange.milliseconds) " ms" };
    };
    html! {
        details {
            summary {
                strong { (reply.status) }
                @if reply.is_replay { ", " code { "Idempotent-Replayed: true" } }
                ", " (exchange.milliseconds) " ms"
            }
            @if !reply.original.is_empty() {
                p { code { "Original-Request: " (reply.original) } }
            }
            @if let Some(body) = masked::pretty(&reply.body) {
                pre role="group" tabindex="0" aria-label="Body of the reply" { (body) }
            }
        }
    }
}

fn page(
    playground: &Playground,
    visitor: &Visitor,
    charge: &Charge,
    key: Option<&str>,
    results: &Markup,
) -> HttpResponse {
    let body = html! {
        h1 { "Playground" }
        p {
            "Each button sends real requests to this server, with your API key and an "
            code { "Idempotency-Key" } ". Charge a card, and try to charge it twice."
        }
        form method="post" action="/console/playground" data-progress="Sending…" {
            div .fields {
                div {
                    label for="amount" { "Amount in minor units" }
                    input #amount name="amount" inputmode="numeric" required value=(charge.amount);
                }
                div {
                    label for="currency" { "Currency" }
                    input #currency name="currency" required maxlength="3" value=(charge.currency);
                }
                div {
                    label for="source" { "Test card" }
                    select #source name="source" {
                        @for source in &playground.cards {
                            option value=(source) selected[*source == charge.source] { (source) }
                        }
                    }
                }
            }
            @if let Some(key) = key {
                input type="hidden" name="key" value=(key);
                p { "Key: " code { (key) } }
            }
            div .actions {
                button type="submit" name="action" value="send" { "Send a charge" }
                @if key.is_some() {
                    button type="submit" name="action" value="retry" .quiet { "Retry it with the same key" }
                    button type="submit" name="action" value="change" .quiet {
                        "Change the amount, same key"
                    }
                }
                button type="submit" name="action" value="race" .quiet {
                    "Race " (RACERS) " duplicates"
                }
                @if visitor.may_lose_replies {
                    button type="submit" name="action" value="lose" .quiet {
                        "Lose the reply, and retry"
                    }
                }
            }
        }
        (results)
    };
    layout::page("Playground", Some(Section::Playground), &body)
}
