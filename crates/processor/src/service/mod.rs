//! The simulated card processor as a process of its own, behind HTTP and with its own database.
//!
//! Promise: an instruction is executed at most once under its key, and every attempt gets the same
//! definite answer for as long as the key is remembered. A fault on request (`faults`) changes when
//! and whether a reply arrives, never the ledger. `docs/processor.md` describes it from outside.

mod faults;
mod in_progress;
mod ledger;
mod listing;
mod pages;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::StatusCode,
    web::{self, Bytes, Data, PayloadConfig, ServiceConfig},
};
use charge_once_idempotency::Connections;
use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use tokio::runtime::Handle;
use tracing::Instrument;
use uuid::Uuid;

use self::{
    faults::{Fault, Faults, Verb},
    in_progress::InProgress,
    ledger::{Ledger, LedgerOutcome},
};
use crate::{
    Instruction,
    test_cards::{self, Decision},
    wire::{Message, NOT_AFTER, Status},
};

/// The schema of the processor's own database. A migration that the database has and this build
/// doesn't is no error: it may be an earlier or a later release's.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!();
    migrations.set_ignore_missing(true);
    migrations
});

/// How long `tok_slow` takes.
const SLOW_CARD_DELAY: Duration = Duration::from_secs(2);

/// An instruction has about two hundred bytes.
const BODY_LIMIT: usize = 16 * 1024;

/// The longest reference, currency or card, in bytes.
const TEXT_MAX: usize = 255;

/// The largest amount of an instruction, in minor units: eight digits, as card networks accept
/// them.
const AMOUNT_MAX: i64 = 99_999_999;

/// How the simulator behaves.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long it remembers a key.
    pub key_window: Duration,
    /// The longest that one transaction, or one read, may take.
    pub database_deadline: Duration,
    /// Marks a reply that is not sent: its connection ends instead. Only the server can do that.
    pub withhold: fn(&mut HttpResponse),
}

/// The simulator. Cheap to clone; all clones, in all worker threads, are one.
#[derive(Debug, Clone)]
pub struct Processor {
    ledger: Ledger,
    in_progress: InProgress,
    faults: Arc<Faults>,
    withhold: fn(&mut HttpResponse),
    runtime: Handle,
}

/// The reply that is sent. `None`: the connection ends without one.
type Outgoing = Option<Message>;

/// `PUT /operations/{key}`: executes an instruction, once.
async fn put(
    processor: Data<Processor>,
    request: HttpRequest,
    key: web::Path<Uuid>,
    body: Bytes,
) -> HttpResponse {
    let key = key.into_inner();
    let (Some(instruction), Some(not_after)) = (decode(&body), not_after(&request)) else {
        return processor.send(Some(Message::new(key, Status::Invalid)));
    };
    let this = processor.get_ref().clone();
    // In a task of its own: a disconnect must not cancel the execution. Networks behave like this,
    // and clients must be tested against it.
    let task = processor
        .runtime
        .spawn(async move { this.operate(key, instruction, not_after).await }.in_current_span());
    let outgoing = task
        .await
        .unwrap_or_else(|_| Some(Message::new(key, Status::Unknown)));
    processor.send(outgoing)
}

/// `GET /operations/{key}`: looks an operation up, and executes nothing.
async fn look_up(processor: Data<Processor>, key: web::Path<Uuid>) -> HttpResponse {
    processor.send(processor.answer_look_up(key.into_inner()).await)
}

impl Processor {
    /// Keeps its ledger in the database of `pool`, which has the schema. Make it on the runtime of
    /// the pool, which outlives the worker threads. Fails if PostgreSQL has no such interval as the
    /// window.
    pub fn new(pool: Connections, settings: Settings) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self {
            ledger: Ledger::new(pool, settings.key_window, settings.database_deadline)?,
            in_progress: InProgress::default(),
            faults: Arc::default(),
            withhold: settings.withhold,
            runtime: Handle::current(),
        })
    }

    /// Its routes. There is no sign-in: the server must keep out pages of other sites that come in
    /// by a name of their own for this machine.
    pub fn routes(&self, config: &mut ServiceConfig) {
        config
            .app_data(Data::new(self.clone()))
            .app_data(PayloadConfig::new(BODY_LIMIT))
            .route("/operations/{key}", web::put().to(put))
            .route("/operations/{key}", web::get().to(look_up))
            .route("/ledger", web::get().to(pages::list_ledger))
            .route("/faults", web::get().to(pages::show_faults))
            .route("/faults", web::post().to(pages::set_fault))
            .route("/faults", web::delete().to(pages::reset_faults));
    }

    /// Ends what faults delay: a delay on request must not prolong a shutdown.
    pub fn end_delays(&self) {
        self.faults.reset();
    }

    /// One attempt of one instruction, with its fault.
    async fn operate(
        &self,
        key: Uuid,
        instruction: Instruction,
        not_after: DateTime<Utc>,
    ) -> Outgoing {
        let say = |status| Some(Message::new(key, status));
        let mut ordered = self.faults.take(Verb::of(&instruction));
        self.faults.delay(&mut ordered, Fault::DelayArrival).await;
        match ordered.as_ref().map(|ordered| ordered.fault) {
            Some(Fault::Refuse) => return say(Status::NotExecuted),
            Some(Fault::ErrorBefore) => return say(Status::Unknown),
            Some(Fault::DropBefore) => return None,
            Some(
                Fault::DelayArrival
                | Fault::DelayBefore
                | Fault::DelayAfter
                | Fault::ErrorAfter
                | Fault::DropAfter,
            )
            | None => {}
        }
        let message = {
            let Some(_working) = self.in_progress.begin(key) else {
                return say(Status::InProgress);
            };
            self.faults.delay(&mut ordered, Fault::DelayBefore).await;
            self.execute(key, instruction, not_after).await
            // From here on the key isn't in progress: its entry in the ledger answers.
        };
        self.faults.delay(&mut ordered, Fault::DelayAfter).await;
        match ordered.map(|ordered| ordered.fault) {
            Some(Fault::ErrorAfter) => say(Status::Unknown),
            Some(Fault::DropAfter) => None,
            Some(
                Fault::DelayArrival
                | Fault::Refuse
                | Fault::ErrorBefore
                | Fault::DropBefore
                | Fault::DelayBefore
                | Fault::DelayAfter,
            )
            | None => Some(message),
        }
    }

    /// Executes it without a fault. The caller has the key in progress.
    async fn execute(
        &self,
        key: Uuid,
        instruction: Instruction,
        not_after: DateTime<Utc>,
    ) -> Message {
        let card = card_decision(&instruction);
        let is_held_up = matches!(card, Some(Decision::ApproveSlowly | Decision::Outage));
        // What is known already is not held up again.
        if is_held_up {
            match self.ledger.find(key, Some(instruction.clone())).await {
                Ok(Some(booked)) => return message(key, booked),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "not executed");
                    return Message::new(key, Status::NotExecuted);
                }
            }
        }
        match card {
            Some(Decision::Outage) => return Message::new(key, Status::NotExecuted),
            Some(Decision::ApproveSlowly) => tokio::time::sleep(SLOW_CARD_DELAY).await,
            Some(Decision::Approve | Decision::Decline(_)) | None => {}
        }
        message(key, self.ledger.execute(key, instruction, not_after).await)
    }

    async fn answer_look_up(&self, key: Uuid) -> Outgoing {
        let say = |status| Some(Message::new(key, status));
        let mut ordered = self.faults.take(Verb::LookUp);
        let fault = ordered.as_ref().map(|ordered| ordered.fault);
        match fault {
            Some(Fault::Refuse) => return say(Status::NotExecuted),
            Some(Fault::ErrorBefore | Fault::ErrorAfter) => return say(Status::Unknown),
            Some(Fault::DropBefore | Fault::DropAfter) => return None,
            Some(delay @ (Fault::DelayArrival | Fault::DelayBefore | Fault::DelayAfter)) => {
                self.faults.delay(&mut ordered, delay).await;
            }
            None => {}
        }
        // In this order. In the reverse order, an operation that ends between the two look-ups
        // would be "not found" although it was executed.
        if self.in_progress.holds(key) {
            return say(Status::InProgress);
        }
        match self.ledger.find(key, None).await {
            Ok(Some(booked)) => Some(message(key, booked)),
            Ok(None) => say(Status::NotFound),
            Err(error) => {
                tracing::error!(%error, "a look-up failed");
                say(Status::Unknown)
            }
        }
    }

    fn send(&self, outgoing: Outgoing) -> HttpResponse {
        let Some(message) = outgoing else {
            let mut unsent = HttpResponse::InternalServerError().finish();
            (self.withhold)(&mut unsent);
            return unsent;
        };
        let status = StatusCode::from_u16(message.status.http());
        HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)).json(message)
    }
}

fn message(key: Uuid, booked: LedgerOutcome) -> Message {
    match booked {
        LedgerOutcome::Answered(answer) => Message::answer(key, answer),
        LedgerOutcome::AnotherInstruction => Message::new(key, Status::AnotherInstruction),
        LedgerOutcome::InProgress => Message::new(key, Status::InProgress),
        LedgerOutcome::Late => Message::late(key),
        LedgerOutcome::NotExecuted => Message::new(key, Status::NotExecuted),
        LedgerOutcome::Unknown => Message::new(key, Status::Unknown),
    }
}

fn card_decision(instruction: &Instruction) -> Option<Decision> {
    match instruction {
        Instruction::Authorize { card, .. } => test_cards::by_token(card).map(|card| card.decision),
        Instruction::Capture { .. } | Instruction::Refund { .. } => None,
    }
}

/// An instruction that the ledger can hold.
fn decode(body: &[u8]) -> Option<Instruction> {
    let instruction: Instruction = serde_json::from_slice(body).ok()?;
    let (amount, texts) = match &instruction {
        Instruction::Authorize {
            charge,
            amount,
            currency,
            card,
            capture: _,
        } => (amount, vec![charge, currency, card]),
        Instruction::Capture { charge, amount } => (amount, vec![charge]),
        Instruction::Refund {
            charge,
            refund,
            amount,
        } => (amount, vec![charge, refund]),
    };
    let is_text = |text: &&String| {
        (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let is_valid = (1..=AMOUNT_MAX).contains(amount) && texts.iter().all(is_text);
    is_valid.then_some(instruction)
}

/// Until when the instruction may be executed; at any time, if the request doesn't say. `None` if
/// what it says is no time.
fn not_after(request: &HttpRequest) -> Option<DateTime<Utc>> {
    let Some(value) = request.headers().get(NOT_AFTER) else {
        return Some(DateTime::<Utc>::MAX_UTC);
    };
    let time = DateTime::parse_from_rfc3339(value.to_str().ok()?).ok()?;
    Some(time.to_utc())
}
