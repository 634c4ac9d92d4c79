//! The simulated card processor as a process of its own, behind HTTP and with its own database.
//!
//! Promise: an instruction is executed at most once under its key, and every attempt gets the same
//! definite answer for as long as the key is remembered. A fault on request (`faults`) changes
//! when and whether a reply arrives, never the ledger. `docs/processor.md` describes it from
//! outside.

mod faults;
mod in_progress;
mod ledger;
mod listing;
mod pages;

use std::{net::TcpListener, sync::Arc, sync::LazyLock, time::Duration};

use actix_web::{
    App, Error, HttpMessage, HttpRequest, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
    web::{self, Bytes, Data, PayloadConfig},
};
use charge_once_connections::{
    self as connections, ConnectionTimeouts, Files, Hosts, NoReply, connections_per_worker,
};
use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::migrate::Migrator;
use tokio::runtime::Handle;
use tracing::Instrument;
use tracing_actix_web::TracingLogger;
use uuid::Uuid;

use self::{
    faults::{Fault, Faults, Verb},
    in_progress::InProgress,
    ledger::{Ledger, LedgerError, LedgerOutcome},
};
use super::{
    Instruction,
    wire::{Message, NOT_AFTER, Status},
};
use crate::{
    config::Config,
    database::{APPLICATION_MIGRATIONS_TABLE, Database, MigrationSet, Schema},
    domain::{
        money::AMOUNT_MAX,
        test_cards::{self, Decision},
    },
    telemetry::RequestSpan,
};

/// The schema of the processor's own database.
static MIGRATIONS: LazyLock<Migrator> =
    LazyLock::new(|| sqlx::migrate!("src/processor/service/migrations"));

/// The tables of the simulator.
pub const SCHEMA: Schema = &[MigrationSet {
    migrator: &MIGRATIONS,
    table: APPLICATION_MIGRATIONS_TABLE,
}];

/// How long `tok_slow` takes.
const SLOW_CARD_DELAY: Duration = Duration::from_secs(2);

/// An instruction has about two hundred bytes.
const BODY_LIMIT: usize = 16 * 1024;

/// The longest reference, currency or card, in bytes.
const TEXT_MAX: usize = 255;

/// Longer than the idle time of the client's pool; see `processor/http.rs`.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// The service could not be set up, or stopped with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The window can't be used.
    #[error("PROCESSOR_KEY_WINDOW can't be used: {0}")]
    Window(#[source] sqlx::error::BoxDynError),
    /// The listener failed.
    #[error("the server ended: {0}")]
    Io(#[from] std::io::Error),
}

/// What handlers work with. Cheap to clone; one for all worker threads.
#[derive(Clone)]
struct Processor {
    ledger: Ledger,
    in_progress: InProgress,
    faults: Arc<Faults>,
    runtime: Handle,
}

/// The reply that is sent.
enum Outgoing {
    Message(Message),
    /// No reply: the connection ends.
    Drop,
}

/// Serves on `listener` until `stop` resolves and what was in flight has finished.
pub async fn serve(
    listener: TcpListener,
    database: Database,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let window = config.processor_service.key_window;
    let deadline = config.timeouts.database_deadline;
    let processor = Processor {
        ledger: Ledger::new(database, window, deadline).map_err(ServiceError::Window)?,
        in_progress: InProgress::default(),
        faults: Arc::default(),
        runtime: Handle::current(),
    };
    let faults = processor.faults.clone();
    let data = Data::new(processor);
    let hosts = Data::new(Hosts::of(listener.local_addr()?, &config.allowed_hosts));
    let app = move || {
        App::new()
            .app_data(data.clone())
            .app_data(PayloadConfig::new(BODY_LIMIT))
            .wrap(TracingLogger::<RequestSpan>::new())
            .app_data(hosts.clone())
            .wrap(from_fn(guarded))
            .route("/operations/{key}", web::put().to(put))
            .route("/operations/{key}", web::get().to(look_up))
            .route("/ledger", web::get().to(pages::list_ledger))
            .route("/faults", web::get().to(pages::show_faults))
            .route("/faults", web::post().to(pages::set_fault))
            .route("/faults", web::delete().to(pages::reset_faults))
            .route("/readyz", web::get().to(pages::readyz))
    };
    let server = connections::server(listener, app, connection_settings(config))?;
    let handle = server.handle();
    let mut server = tokio::spawn(server);

    tokio::select! {
        ended = &mut server => return Ok(ended.map_err(std::io::Error::other)??),
        () = stop => {}
    }
    // A delay on request must not prolong the shutdown.
    faults.reset();
    handle.stop(true).await;
    Ok(server.await.map_err(std::io::Error::other)??)
}

/// Refuses what a page of another site can make a browser send, because there is no sign-in here. For JSON, and
/// for PUT and DELETE, a browser asks first, and this server does not answer that.
async fn guarded<B: MessageBody + 'static>(
    hosts: Data<Hosts>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let refusal = |status, code: &str, message: &str| {
        HttpResponse::build(status).json(json!({"error": {"code": code, "message": message}}))
    };
    let refused = if !hosts.take(request.head()) {
        let message =
            "The Host header names another host. ALLOWED_HOSTS of this server allows more.";
        refusal(StatusCode::BAD_REQUEST, "host_not_allowed", message)
    } else if request.method() == Method::POST
        && !request
            .content_type()
            .eq_ignore_ascii_case("application/json")
    {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        refusal(status, "unsupported_media_type", "Send application/json.")
    } else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    Ok(request.into_response(refused))
}

fn connection_settings(config: &Config) -> connections::Settings {
    connections::Settings {
        timeouts: ConnectionTimeouts {
            keep_alive: KEEP_ALIVE,
            ..config.connections
        },
        workers: config.workers,
        connections_per_worker: connections_per_worker(&Files {
            workers: config.workers,
            shared: config.pool_connections,
            ..Files::default()
        }),
        drain_timeout: config.drain_timeout,
    }
}

/// `PUT /operations/{key}`: executes an instruction, once.
async fn put(
    processor: Data<Processor>,
    request: HttpRequest,
    key: web::Path<Uuid>,
    body: Bytes,
) -> HttpResponse {
    let key = key.into_inner();
    let (Some(instruction), Some(not_after)) = (decode(&body), not_after(&request)) else {
        return send(Outgoing::Message(Message::new(key, Status::Invalid)));
    };
    let this = processor.get_ref().clone();
    // In a task of its own: a disconnect must not cancel the execution. Networks behave like this,
    // and clients must be tested against it.
    let task = processor
        .runtime
        .spawn(async move { this.operate(key, instruction, not_after).await }.in_current_span());
    let outgoing = task
        .await
        .unwrap_or_else(|_| Outgoing::Message(Message::new(key, Status::Unknown)));
    send(outgoing)
}

/// `GET /operations/{key}`: looks an operation up, and executes nothing.
async fn look_up(processor: Data<Processor>, key: web::Path<Uuid>) -> HttpResponse {
    send(processor.answer_look_up(key.into_inner()).await)
}

impl Processor {
    /// One attempt of one instruction, with its fault.
    async fn operate(
        &self,
        key: Uuid,
        instruction: Instruction,
        not_after: DateTime<Utc>,
    ) -> Outgoing {
        let say = |status| Outgoing::Message(Message::new(key, status));
        let mut ordered = self.faults.take(Verb::of(&instruction));
        self.faults.delay(&mut ordered, Fault::DelayArrival).await;
        match ordered.as_ref().map(|ordered| ordered.fault) {
            Some(Fault::Refuse) => return say(Status::NotExecuted),
            Some(Fault::ErrorBefore) => return say(Status::Unknown),
            Some(Fault::DropBefore) => return Outgoing::Drop,
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
            Some(Fault::DropAfter) => Outgoing::Drop,
            Some(
                Fault::DelayArrival
                | Fault::Refuse
                | Fault::ErrorBefore
                | Fault::DropBefore
                | Fault::DelayBefore
                | Fault::DelayAfter,
            )
            | None => Outgoing::Message(message),
        }
    }

    /// Executes it without a fault. The caller has the key in progress.
    async fn execute(
        &self,
        key: Uuid,
        instruction: Instruction,
        not_after: DateTime<Utc>,
    ) -> Message {
        // It is known already, so the card's delay or outage doesn't apply again.
        match self.ledger.find(key, Some(instruction.clone())).await {
            Ok(Some(booked)) => return message(key, booked),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "not executed");
                return Message::new(key, Status::NotExecuted);
            }
        }
        match card_decision(&instruction) {
            Some(Decision::Outage) => return Message::new(key, Status::NotExecuted),
            Some(Decision::ApproveSlowly) => tokio::time::sleep(SLOW_CARD_DELAY).await,
            Some(Decision::Approve | Decision::Decline(_)) | None => {}
        }
        if Utc::now() > not_after {
            return Message::late(key);
        }
        match self.ledger.execute(key, instruction).await {
            Ok(booked) => message(key, booked),
            Err(LedgerError::NotExecuted(cause)) => {
                tracing::error!(%cause, "not executed");
                Message::new(key, Status::NotExecuted)
            }
            Err(LedgerError::Unknown(cause)) => {
                tracing::error!(%cause, "not known whether it was executed");
                Message::new(key, Status::Unknown)
            }
        }
    }

    async fn answer_look_up(&self, key: Uuid) -> Outgoing {
        let say = |status| Outgoing::Message(Message::new(key, status));
        let mut ordered = self.faults.take(Verb::LookUp);
        let fault = ordered.as_ref().map(|ordered| ordered.fault);
        match fault {
            Some(Fault::Refuse) => return say(Status::NotExecuted),
            Some(Fault::ErrorBefore | Fault::ErrorAfter) => return say(Status::Unknown),
            Some(Fault::DropBefore | Fault::DropAfter) => return Outgoing::Drop,
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
            Ok(Some(booked)) => Outgoing::Message(message(key, booked)),
            Ok(None) => say(Status::NotFound),
            Err(error) => {
                tracing::error!(%error, "a look-up failed");
                say(Status::Unknown)
            }
        }
    }
}

fn message(key: Uuid, booked: LedgerOutcome) -> Message {
    match booked {
        LedgerOutcome::Answered(answer) => Message::answer(key, answer),
        LedgerOutcome::AnotherInstruction => Message::new(key, Status::AnotherInstruction),
        LedgerOutcome::InProgress => Message::new(key, Status::InProgress),
    }
}

/// The card's answer, if the instruction has a card.
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

/// Until when the instruction may be executed; at any time, if the request doesn't say. `None` if what it
/// says is no time.
fn not_after(request: &HttpRequest) -> Option<DateTime<Utc>> {
    let Some(value) = request.headers().get(NOT_AFTER) else {
        return Some(DateTime::<Utc>::MAX_UTC);
    };
    let time = DateTime::parse_from_rfc3339(value.to_str().ok()?).ok()?;
    Some(time.to_utc())
}

fn send(outgoing: Outgoing) -> HttpResponse {
    match outgoing {
        Outgoing::Message(message) => {
            let status = StatusCode::from_u16(message.status.http())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            HttpResponse::build(status).json(message)
        }
        Outgoing::Drop => {
            let mut unsent = HttpResponse::InternalServerError().finish();
            unsent.extensions_mut().insert(NoReply);
            unsent
        }
    }
}
