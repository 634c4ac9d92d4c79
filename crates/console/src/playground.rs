//! The playground: real requests to this server, and what each of them got.
//!
//! It pays with a charge, or as shops do, with a payment intent that is confirmed at once.
//!
//! Promise: it sends with the session's own API key, over loopback, through the whole API. Requests
//! at once and their time are bounded.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use actix_web::{HttpResponse, http::StatusCode, web};
use charge_once_idempotency::IdempotencyKey;
use charge_once_service::faults::FaultKind;
use charge_once_service::http_client::{TlsError, http_client_builder};
use charge_once_strict_params::card_numbers::holds_card_number;
use futures_util::future::join_all;
use maud::{Markup, html};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    Console, Page, Refusal,
    error::ConsoleError,
    exchanges::{Exchange, Received, Sent, results},
    form::{Form, Problem, below, described_by, invalid},
    layout::{self, Section, key_path},
    masked::Shown,
    visitor::Visitor,
};

/// Duplicates of a race: more than the pool has connections.
pub(super) const RACERS: usize = 20;

/// Actions at once, of all sessions. Each sends at most [`RACERS`] requests.
const ACTIONS_MAX: usize = 4;

/// Longest time for one request, longer than the API takes for one.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(20);

/// How long a racer waits for the first one's reply instead of getting 409.
pub(super) const RACER_WAIT: &str = "wait=10";

#[derive(Debug)]
pub(super) struct Playground {
    http: reqwest::Client,
    host: String,
    /// Where the API is.
    api: String,
    /// Where a person's own client reaches it.
    public_url: String,
    free: Semaphore,
    cards: Vec<CardGroup>,
}

/// Test cards that do alike.
#[derive(Debug)]
pub struct CardGroup {
    /// What the cards do, as a heading.
    pub name: &'static str,
    /// The cards.
    pub cards: Vec<TestCard>,
}

/// A test card.
#[derive(Debug)]
pub struct TestCard {
    /// The token, such as `tok_visa`.
    pub source: &'static str,
    /// What a payment with the card does.
    pub says: String,
}

impl Playground {
    /// For the server that listens on `address`, takes requests to `host`, and is reached by others
    /// at `public_url`.
    pub(super) fn new(
        address: SocketAddr,
        host: &str,
        public_url: &str,
        cards: Vec<CardGroup>,
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
            api: format!("http://{}", SocketAddr::new(ip, address.port())),
            public_url: public_url.to_owned(),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A new payment, with a fresh key.
    Send,
    /// The same payment again, with its key.
    Retry,
    /// Another amount, with the same key.
    Change,
    /// A new payment, sent many times at once.
    Race,
    /// A new payment on whose first request a fault acts, and its retry.
    Fail(FaultKind),
}

impl Action {
    fn of_form(form: &Form) -> Option<Self> {
        match form.field("action") {
            "send" => Some(Self::Send),
            "retry" => Some(Self::Retry),
            "change" => Some(Self::Change),
            "race" => Some(Self::Race),
            "fail" => {
                let fault = form.field("fault").parse().ok();
                fault.filter(is_played).map(Self::Fail)
            }
            _ => None,
        }
    }
}

/// A retry at once would meet a key that is in use for seconds.
fn is_played(fault: &FaultKind) -> bool {
    *fault != FaultKind::InUse
}

/// The header that asks for a fault.
pub(super) fn asking_for(fault: FaultKind) -> String {
    let lasts = fault == FaultKind::Delay;
    fault.as_str().to_owned() + if lasts { "; seconds=1" } else { "" }
}

/// What a payment is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaidBy {
    Charge,
    Intent,
}

impl PaidBy {
    pub(super) const ALL: [Self; 2] = [Self::Charge, Self::Intent];

    /// Its name in the form.
    fn value(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Intent => "intent",
        }
    }

    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Intent => "payment intent",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Charge => "/charges",
            Self::Intent => "/payment_intents",
        }
    }
}

/// The payment that a form describes. No other field is sent.
struct Payment<'a> {
    kind: PaidBy,
    amount: i64,
    currency: String,
    card: &'a TestCard,
}

impl<'a> Payment<'a> {
    fn of_form(form: &Form, groups: &'a [CardGroup]) -> Result<Self, Problem> {
        const AMOUNT: &str = "The amount must be a whole number of minor units, such as 2000.";
        const CURRENCY: &str = "The currency must be three letters, such as usd.";
        let digits = form.field("amount");
        let amount = digits.parse().ok().filter(|_| digits.len() <= 12);
        let currency = form.field("currency").to_ascii_lowercase();
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(("currency", CURRENCY));
        }
        let source = form.field("source");
        let mut cards = groups.iter().flat_map(|group| &group.cards);
        let card = cards.find(|card| card.source == source);
        let kind = form.field("kind");
        let kind = PaidBy::ALL.into_iter().find(|known| known.value() == kind);
        Ok(Self {
            kind: kind.ok_or(("kind", "Choose a charge or a payment intent."))?,
            amount: amount.ok_or(("amount", AMOUNT))?,
            currency,
            card: card.ok_or(("source", "Choose one of the test cards."))?,
        })
    }

    /// With so many minor units more. A holder who has authenticated is sent to `story`.
    fn body(&self, more: i64, story: &str) -> Value {
        let amount = self.amount.saturating_add(more);
        match self.kind {
            PaidBy::Charge => {
                json!({"amount": amount, "currency": self.currency, "source": self.card.source})
            }
            PaidBy::Intent => json!({
                "amount": amount,
                "currency": self.currency,
                "payment_method_data": {"type": "card", "card": {"token": self.card.source}},
                "confirm": true,
                "return_url": story,
            }),
        }
    }
}

pub(super) async fn show(console: web::Data<Console>, visitor: Visitor) -> HttpResponse {
    let first = [
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_visa"),
    ];
    page(
        &console.playground,
        &visitor,
        &Form::of(&first),
        "",
        Ok(html! {}),
    )
}

pub(super) async fn act(console: web::Data<Console>, visitor: Visitor, form: Form) -> Page {
    let unknown = ConsoleError::Unreadable("The playground knows no such action.");
    let action = Action::of_form(&form).ok_or(unknown)?;
    let playground = &console.playground;
    let payment = match Payment::of_form(&form, &playground.cards) {
        Ok(payment) => payment,
        Err(problem) => {
            let form = form.without_card_numbers();
            let key = form.field("key");
            return Ok(page(playground, &visitor, &form, key, Err(problem)));
        }
    };
    let key = match action {
        Action::Fail(_) if !visitor.may_lose_replies => {
            return Err(ConsoleError::Unreadable(
                "Faults act only with FAULTS=true, for test accounts and the account of DEV_API_KEY.",
            ));
        }
        Action::Send | Action::Race | Action::Fail(_) => format!("playground-{}", Uuid::new_v4()),
        Action::Retry | Action::Change => {
            sent_key(&form, "Send a payment first, and then retry it.")?
        }
    };
    let more = i64::from(action == Action::Change);
    let story = format!("{}{}", playground.public_url, key_path(&key));
    let body = payment.body(more, &story);
    let path = payment.kind.path();
    let place = playground.free.try_acquire();
    let _place = place.map_err(|_| ConsoleError::Busy)?;
    let first = Instant::now();
    let send = |fault| playground.send(&visitor.api_key, (path, &key), &body, fault, first);
    let exchanges = match action {
        Action::Send | Action::Retry | Action::Change => vec![send(None).await],
        Action::Race => join_all((0..RACERS).map(|_| send(None))).await,
        Action::Fail(fault) => vec![send(Some(fault)).await, send(None).await],
    };
    let sent = Sent {
        action,
        kind: payment.kind,
        public_url: &playground.public_url,
        key: &key,
        body: &body,
        locale: visitor.locale,
    };
    let shown = results(&sent, &exchanges);
    let form = form.without_card_numbers();
    Ok(page(playground, &visitor, &form, &key, Ok(shown)))
}

/// The key of a form; `missing` is said where it has none.
pub(super) fn sent_key(form: &Form, missing: &'static str) -> Result<String, ConsoleError> {
    let key = IdempotencyKey::parse(form.field("key").as_bytes()).ok();
    let key = key.filter(|key| !holds_card_number(key.as_str()));
    let key = key.map(|key| key.as_str().to_owned());
    key.ok_or(ConsoleError::Unreadable(missing))
}

impl Playground {
    async fn send(
        &self,
        api_key: &str,
        to: (&str, &str),
        body: &Value,
        fault: Option<FaultKind>,
        first: Instant,
    ) -> Exchange {
        let since = || i64::try_from(first.elapsed().as_micros()).unwrap_or(i64::MAX);
        let began = since();
        let reply = self.exchange(api_key, to, body, fault).await;
        if let (Err(error), None) = (&reply, fault) {
            tracing::warn!(error = %error.to_string(), "the playground got no reply from this server");
        }
        Exchange {
            reply: reply.ok(),
            span: (began, since()),
        }
    }

    async fn exchange(
        &self,
        api_key: &str,
        (path, key): (&str, &str),
        body: &Value,
        fault: Option<FaultKind>,
    ) -> Result<Received, reqwest::Error> {
        let mut request = self
            .to(api_key, Method::POST, path)
            .header("idempotency-key", key)
            .header("prefer", RACER_WAIT)
            .body(body.to_string());
        if let Some(fault) = fault {
            request = request.header("fault", asking_for(fault));
        }
        received(request).await
    }

    /// What the API answers to a request of a page of the console. A body is sent under a key.
    pub(super) async fn ask(
        &self,
        api_key: &str,
        method: Method,
        path: &str,
        body: Option<(String, Value)>,
    ) -> Result<(StatusCode, Shown), ConsoleError> {
        let mut request = self.to(api_key, method, path);
        if let Some((key, body)) = body {
            request = request
                .header("idempotency-key", key)
                .body(body.to_string());
        }
        let reply = received(request).await.map_err(|error| {
            tracing::warn!(error = %error.to_string(), "the console got no reply from this server");
            Refusal(StatusCode::SERVICE_UNAVAILABLE)
        })?;
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let json = Shown::parse(&reply.body).ok_or(Refusal(StatusCode::BAD_GATEWAY))?;
        Ok((status, json))
    }

    /// Where a person's own client reaches a path of the API.
    pub(super) fn public(&self, path: &str) -> String {
        format!("{}{path}", self.public_url)
    }

    fn to(&self, api_key: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.api))
            .header("host", &self.host)
            .bearer_auth(api_key)
            .header("content-type", "application/json")
    }
}

/// A key for a request of a page of the console.
pub(super) fn fresh_key() -> String {
    format!("console-{}", Uuid::new_v4())
}

async fn received(request: reqwest::RequestBuilder) -> Result<Received, reqwest::Error> {
    let response = request.send().await?;
    let header = |name: &str| {
        let value = response.headers().get(name);
        let value = value.and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    Ok(Received {
        status: response.status().as_u16(),
        is_replay: header("idempotent-replayed") == "true",
        original: header("original-request").to_owned(),
        body: response.bytes().await?.to_vec(),
    })
}

/// The form with its key, if it has one; and what was done, or what is wrong with the form.
fn page(
    playground: &Playground,
    visitor: &Visitor,
    form: &Form,
    key: &str,
    done: Result<Markup, Problem>,
) -> HttpResponse {
    let problem = done.as_ref().err().copied();
    let body = html! {
        h1 { "Playground" }
        p {
            "Each button sends real requests to this server, with your API key and an "
            code { "Idempotency-Key" } ". Charge a card, and try to charge it twice. A payment intent is what shops "
            "use: its holder can be asked to authenticate."
        }
        form method="post" action="/console/playground" data-progress="Sending…" {
            (fields(playground, form, problem))
            @if !key.is_empty() {
                input type="hidden" name="key" value=(key);
                p { "Key: " code data-copy { (key) } }
            }
            div .actions {
                button type="submit" name="action" value="send" { "Send a payment" }
                @if !key.is_empty() {
                    button type="submit" name="action" value="retry" .quiet { "Retry it with the same key" }
                    button type="submit" name="action" value="change" .quiet {
                        "Change the amount, same key"
                    }
                }
                button type="submit" name="action" value="race" .quiet {
                    "Race " (RACERS) " duplicates"
                }
            }
            @if visitor.may_lose_replies {
                div .actions {
                    label for="fault" { "Fault" }
                    select #fault name="fault" {
                        @for fault in FaultKind::ALL.iter().filter(|fault| is_played(fault)).map(|fault| fault.as_str()) {
                            option value=(fault) selected[fault == form.field("fault")] { (fault) }
                        }
                    }
                    button type="submit" name="action" value="fail" .quiet { "Fail once, and retry" }
                }
            }
        }
        @if let Ok(results) = done { (results) }
    };
    layout::section_page(visitor, Section::Playground, problem.is_some(), &body)
}

/// The fields; the one at fault says so, and has what it must be below it.
fn fields(playground: &Playground, form: &Form, problem: Option<Problem>) -> Markup {
    html! {
        div .fields {
            div {
                label for="kind" { "Pay with" }
                select #kind name="kind" {
                    @for kind in PaidBy::ALL {
                        option value=(kind.value()) selected[kind.value() == form.field("kind")] { "a " (kind.noun()) }
                    }
                }
                (below(problem, "kind"))
            }
            div {
                label for="amount" { "Amount in minor units" }
                input #amount name="amount" inputmode="numeric" required maxlength="12" value=(form.field("amount"))
                    aria-invalid=[invalid(problem, "amount")]
                    aria-describedby=[described_by(problem, "amount")];
                (below(problem, "amount"))
            }
            div {
                label for="currency" { "Currency" }
                input #currency name="currency" required maxlength="3" value=(form.field("currency"))
                    aria-invalid=[invalid(problem, "currency")]
                    aria-describedby=[described_by(problem, "currency")];
                (below(problem, "currency"))
            }
            div .wide {
                label for="source" { "Test card" }
                select #source name="source" {
                    @for group in &playground.cards {
                        optgroup label=(group.name) {
                            @for card in &group.cards {
                                option value=(card.source) selected[card.source == form.field("source")] {
                                    (card.source) ": " (card.says)
                                }
                            }
                        }
                    }
                }
                (below(problem, "source"))
            }
        }
    }
}
