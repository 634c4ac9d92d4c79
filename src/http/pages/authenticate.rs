//! `/authenticate/{account}/{intent}/{token}`: where a card's holder authenticates, or fails to,
//! for a payment or for the setup of a card. It stands in for the page of the card's issuer.
//!
//! Promise: the token in the path is the secret, and nothing else opens the page: no API key, no
//! cookie. So a form of another site can't answer for the holder. The first answer decides, and
//! every later one leads to the same place. Neither the token nor an intent's secret is logged: a
//! log line names the route by its pattern, and a request without an API key is in no request log.

use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{HeaderValue, LOCATION, REFRESH, RETRY_AFTER},
    },
    web,
};
use charge_once_service::edge::read_body;
use charge_once_strict_params::{
    Expansion, ParameterSet, Params, TextKind, parameters, schema::text,
};
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use url::Url;
use utoipa::openapi::ObjectBuilder;

use super::layout::LAYOUT;
use crate::{
    commands::{AuthenticateIntent, AuthenticateSetup, FAILED, NO_PROCESSOR, Origin},
    database::{PgConnection, Reading},
    domain::{
        charge::KeptCard,
        ids::{AccountId, PaymentIntentId, SetupIntentId},
        money::Money,
        operation::AskedBy,
        payment_intent::HolderPage,
    },
    http::{
        app::App,
        body::{decode, encoding, forbidden},
        error::HttpError,
        request::{client_of, request_id, work_begins},
        shards::app_of,
    },
    idempotency::{Failure, FailureKind, Inspected, Outcome, Record, Request},
    store::{self, holder_pages::AskedPage},
    telemetry::traces,
    wire::dialect::Dialect,
};

/// Longest form, in bytes: one field with one word.
const FORM_MAX_BYTES: usize = 1024;
/// Of the hash that stands for a token in keys: as long as no other token has it.
const HASH_CHARS: usize = 32;
/// Seconds until a browser loads a page again that only waits.
const RELOADS_AFTER: u64 = 3;

/// What the holder authenticates for.
#[derive(Clone, Copy)]
enum HolderIntent {
    Payment(PaymentIntentId),
    Setup(SetupIntentId),
}

impl HolderIntent {
    fn parse(text: &str) -> Option<Self> {
        let payment = PaymentIntentId::parse(text).map(Self::Payment);
        payment.or_else(|| SetupIntentId::parse(text).map(Self::Setup))
    }
}

/// The page that a path names.
struct PageAddress {
    account: AccountId,
    intent: HolderIntent,
    token: String,
}

impl PageAddress {
    fn of(request: &HttpRequest) -> Option<Self> {
        let path = request.match_info();
        Some(Self {
            account: AccountId::parse(path.query("account"))?,
            intent: HolderIntent::parse(path.query("intent"))?,
            token: path.query("token").to_owned(),
        })
    }

    /// The page, whose form is the request `work`.
    fn asked(&self, work: &Request) -> AskedPage {
        AskedPage {
            account: self.account,
            intent: match self.intent {
                HolderIntent::Payment(id) => id.0,
                HolderIntent::Setup(id) => id.0,
            },
            token: self.token.clone(),
            key: work.key.as_str().to_owned(),
        }
    }

    /// The request of the page's form: always the same one, under a key that no client can send.
    /// The key is stored and shown, so a hash stands for the token.
    fn request(&self, request_id: String, app: &App) -> Result<Request, HttpError> {
        let mut hash = hex::encode(Sha256::digest(&self.token));
        hash.truncate(HASH_CHARS);
        let id = match self.intent {
            HolderIntent::Payment(id) => id.to_string(),
            HolderIntent::Setup(id) => id.to_string(),
        };
        let path = format!("/authenticate/{id}/{hash}");
        let wait = app.values.in_flight_wait_v1;
        let request = Request::reserved(self.account.0, path, request_id, wait)
            .map_err(|error| HttpError::failed_without_key(Failure::internal(error)))?;
        Ok(Request {
            // No request of the account has begun that it would be a step of.
            is_step: false,
            ..request
        })
    }
}

/// What a path names.
enum FoundPage {
    /// A page that is waited for. Without an amount, the card is set up.
    Open {
        amount: Option<Money>,
        card: KeptCard,
        page: HolderPage,
    },
    /// A page whose intent's money the processor is asked for. It may be waited for again.
    Waiting,
    /// A page that was answered.
    Answered,
}

/// Finds the page, if its intent waits for it, or may again. Takes no lock.
fn find<'c>(
    connection: &'c mut PgConnection,
    account: AccountId,
    intent: HolderIntent,
    token: String,
) -> Reading<'c, Option<FoundPage>> {
    Box::pin(async move {
        let found = match intent {
            HolderIntent::Payment(id) => {
                let found = store::payment_intents::find(&mut *connection, account, id).await?;
                if let Some(intent) = &found
                    && let Some(page) = &intent.holder_page
                    && !intent.may_authenticate()
                {
                    return Ok(page.opens_with(&token).then_some(FoundPage::Waiting));
                }
                found.map(|intent| {
                    let terms = intent.terms;
                    (intent.holder_page, terms.payment_method, Some(terms.amount))
                })
            }
            HolderIntent::Setup(id) => store::setup_intents::find(&mut *connection, account, id)
                .await?
                .map(|setup| (setup.holder_page, setup.terms.payment_method, None)),
        };
        let Some((Some(page), Some(method), amount)) = found else {
            return Ok(None);
        };
        if !page.opens_with(&token) {
            return Ok(None);
        }
        let found = store::payment_methods::find(connection, account, method).await?;
        let card = found.map(|method| method.card);
        Ok(card.map(|card| FoundPage::Open { amount, card, page }))
    })
}

/// What a request asks for.
struct PageRequest {
    address: PageAddress,
    /// The request of the page's form.
    work: Request,
    /// That of the database that has the page.
    app: web::Data<App>,
    found: FoundPage,
}

/// What a request asks for; `None` is no page, or one that is not needed any more. Strangers ask,
/// and many share a look-up. Only who knows the token gets beyond it, however many others guess
/// from the same address.
async fn look_up(app: &App, request: &HttpRequest) -> Result<Option<PageRequest>, HttpError> {
    let Some(asked) = PageAddress::of(request) else {
        return Ok(None);
    };
    let work = asked.request(request_id(request), app)?;
    let (client, until) = (client_of(request), work_begins(app, request));
    let finding = app.api_keys.home_of_page(asked.asked(&work), client, until);
    let Some(app) = finding.await?.and_then(|home| app_of(request, home)) else {
        return Ok(None);
    };
    let (account, intent, token) = (asked.account, asked.intent, asked.token.clone());
    let key = work.key.as_str().to_owned();
    // It is no account's share of the connections that is used. One snapshot: a page stops being
    // open in the transaction that stores its answer.
    let finding = app.database.snapshot(move |connection| {
        Box::pin(async move {
            let page = find(&mut *connection, account, intent, token).await?;
            if page.is_some() {
                return Ok(page);
            }
            let is_answered = store::key_story::has_begun(connection, account, &key).await?;
            Ok(is_answered.then_some(FoundPage::Answered))
        })
    });
    let found = finding.await.map_err(HttpError::failed_without_key)?;
    Ok(found.map(|found| PageRequest {
        address: asked,
        work,
        app,
        found,
    }))
}

pub(in crate::http) async fn show(
    app: web::Data<App>,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    shown(app, request).await.or_else(try_again)
}

async fn shown(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, HttpError> {
    let Some(asked) = look_up(&app, &request).await? else {
        return gone(&app, &request);
    };
    let (amount, card, page) = match asked.found {
        FoundPage::Open { amount, card, page } => (amount, card, page),
        FoundPage::Waiting => return Ok(wait(StatusCode::OK)),
        FoundPage::Answered => return answered_page(&asked.app, asked.work).await,
    };
    let shop = shop(page.return_url.as_deref());
    let title = match amount {
        Some(_) => "Authenticate a payment",
        None => "Authenticate a card",
    };
    let body = html! {
        p {
            @match amount {
                Some(amount) => { strong { (amount) } " to " strong { (shop) } }
                None => { "For later payments to " strong { (shop) } }
            }
        }
        p { "Card: " (card.brand) " ending in " (card.last4) }
        form method="post" {
            button name="outcome" value="complete" { "Complete authentication" }
            button .quiet name="outcome" value="fail" { "Fail authentication" }
        }
        p {
            small .quiet { "This page stands in for that of a bank. The card is a test card: no real money moves." }
        }
    };
    let targets = targets(page.return_url.as_deref());
    Ok(LAYOUT.page_with_forms(title, &of(title, &body), &targets))
}

parameters! {
    /// What a button sends.
    struct AnswerParams {
        outcome: HolderOutcome,
    }
}

/// `complete` or `fail`.
struct HolderOutcome;

impl TextKind for HolderOutcome {
    type Value = bool;
    const MUST_BE: &'static str = "Must be complete or fail.";

    fn parse(text: &str) -> Option<bool> {
        match text {
            "complete" => Some(true),
            "fail" => Some(false),
            _ => None,
        }
    }

    fn schema() -> ObjectBuilder {
        text()
    }
}

/// The holder's answer.
pub(in crate::http) async fn end(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, HttpError> {
    ended(app, request, payload).await.or_else(try_again)
}

async fn ended(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, HttpError> {
    let headers = request.headers();
    let until = work_begins(&app, &request);
    let bytes = read_body(headers, payload, FORM_MAX_BYTES, until).await?;
    let encoding = encoding(headers)?;
    let tree = decode(encoding, &bytes);
    if let Some(forbidden) = forbidden(&tree, &bytes) {
        return Err(forbidden.into());
    }
    let params = Params::new(encoding, tree);
    let AnswerParams { outcome } = AnswerParams::parse(&params)?;
    let Some(asked) = look_up(&app, &request).await? else {
        return gone(&app, &request);
    };
    let (app, intent) = (asked.app, asked.address.intent);
    app.refuse_new_work_when_stopping()?;
    let ended = run(&app, asked.address, asked.work, outcome).await;
    app.wake_webhooks.notify_one();
    answered(intent, ended)
}

/// Ends the wait at most once. The intent's state is the guard, so an answer that comes when the
/// key's record has expired changes nothing either.
async fn run(app: &App, asked: PageAddress, work: Request, is_complete: bool) -> Outcome {
    let origin = Origin {
        account: asked.account,
        asked_by: AskedBy {
            dialect: Dialect::Ietf,
            api_version: None,
            request_id: work.request_id.clone(),
            idempotency_key: work.key.as_str().to_owned(),
        },
        traceparent: traces::traceparent(),
        path_id: String::new(),
    };
    let (token, cost) = (asked.token, (0, Expansion::default()));
    match asked.intent {
        HolderIntent::Setup(id) => {
            let verb = AuthenticateSetup {
                id,
                token,
                is_complete,
            };
            app.run_rules((work, origin), Ok(verb), cost).await
        }
        HolderIntent::Payment(id) => {
            let verb = AuthenticateIntent {
                id,
                token,
                is_complete,
            };
            app.run_rules((work, origin), Ok(verb), cost).await
        }
    }
}

fn answered(intent: HolderIntent, outcome: Outcome) -> Result<HttpResponse, HttpError> {
    match outcome {
        Outcome::Stored { record, .. } => Ok(land(intent, &record)),
        Outcome::InUse { .. } => Ok(wait(StatusCode::CONFLICT)),
        Outcome::Failed(failure) if failure.kind == FailureKind::Busy => {
            Ok(wait(StatusCode::CONFLICT))
        }
        Outcome::Failed(failure) => Err(HttpError::failed(failure.kind)),
        Outcome::Unfinished => Err(HttpError::failed_without_key(Failure::unsupported(
            format!("a holder's answer waits for a processor across a network, and {NO_PROCESSOR}"),
        ))),
        Outcome::Reused => Err(HttpError::failed_without_key(Failure::internal(
            "the key of a holder's page is another request's",
        ))),
    }
}

/// Back to the shop, or to a page that says how it ended.
fn land(intent: HolderIntent, record: &Record) -> HttpResponse {
    let has_failed = record.reply.body == FAILED.as_bytes();
    match (record.reply.status, way_back(record), intent) {
        (303, Some(location), _) => HttpResponse::SeeOther()
            .insert_header((LOCATION, location))
            .finish(),
        (200, _, HolderIntent::Payment(_)) if has_failed => failed("The payment was not made"),
        (200, _, HolderIntent::Setup(_)) if has_failed => failed("The card was not set up"),
        (200, ..) => closing(StatusCode::OK, "Thank you", None),
        _ => not_needed(None),
    }
}

/// Where the answer that was stored leads.
fn way_back(record: &Record) -> Option<&str> {
    let mut headers = record.reply.headers.iter();
    let (_, location) = headers.find(|(name, _)| name == LOCATION.as_str())?;
    Some(location)
}

/// A page that was answered leads a holder who opens it again where the answer led.
async fn answered_page(app: &App, work: Request) -> Result<HttpResponse, HttpError> {
    let found = app.idempotency.inspect(work.account_id, work.key).await;
    Ok(match found.map_err(HttpError::failed_without_key)? {
        Inspected::Completed(record) => not_needed(way_back(&record)),
        Inspected::InFlight(_) | Inspected::Expired(_) | Inspected::Nothing => not_needed(None),
    })
}

/// An address that leads to no page, or to one that isn't waited for. A client that asks for many
/// of them is told to wait.
fn gone(app: &App, request: &HttpRequest) -> Result<HttpResponse, HttpError> {
    app.api_keys.check_stranger(client_of(request))?;
    Ok(not_needed(None))
}

fn not_needed(way_back: Option<&str>) -> HttpResponse {
    closing(StatusCode::GONE, "This page is no longer needed", way_back)
}

/// A page that can't be answered at the moment. Browsers load the address again by themselves, and
/// then show the form or what has become of it.
fn wait(status: StatusCode) -> HttpResponse {
    reloading(status, "The payment is being processed.", RELOADS_AFTER)
}

/// What a holder sees while the database is out of reach, the account moves, or too many ask: a
/// page that loads again when a retry makes sense.
fn try_again(error: HttpError) -> Result<HttpResponse, HttpError> {
    let answer = error.error_response();
    match answer.headers().get(RETRY_AFTER) {
        Some(after) if error.is_worth_a_retry() => {
            let seconds = after.to_str().ok().and_then(|text| text.parse().ok());
            let seconds = RELOADS_AFTER.max(seconds.unwrap_or_default());
            let why = "We can't answer at the moment.";
            let mut page = reloading(answer.status(), why, seconds);
            page.headers_mut().insert(RETRY_AFTER, after.clone());
            Ok(page)
        }
        Some(_) | None => Err(error),
    }
}

fn reloading(status: StatusCode, why: &str, seconds: u64) -> HttpResponse {
    let body = html! { p { (why) " This page loads again by itself." } };
    let mut response = page(status, "Please wait", &body);
    let headers = response.headers_mut();
    headers.insert(REFRESH, HeaderValue::from(seconds));
    response
}

fn failed(title: &str) -> HttpResponse {
    let body = html! {
        p { "Go back to the shop to try again, or to use another card. You may close this window." }
    };
    page(StatusCode::OK, title, &body)
}

fn closing(status: StatusCode, title: &str, way_back: Option<&str>) -> HttpResponse {
    let body = html! {
        @match way_back {
            Some(location) => { p { a href=(location) { "Back to the shop" } } }
            None => { p { "You may close this window." } }
        }
    };
    page(status, title, &body)
}

fn page(status: StatusCode, title: &str, body: &Markup) -> HttpResponse {
    let mut response = LAYOUT.page(title, &of(title, body));
    *response.status_mut() = status;
    response
}

fn of(title: &str, body: &Markup) -> Markup {
    html! {
        main .holder {
            h1 { (title) }
            (body)
        }
    }
}

/// Who is paid, as the holder knows them: the site that they came from. An account's name is its
/// operator's business.
fn shop(return_url: Option<&str>) -> String {
    let url = return_url.and_then(|url| Url::parse(url).ok());
    let site = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let host = site.and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "the shop that sent you here".to_owned())
}

/// Where the form may be sent, and where the shop may send the holder from there: Chromium stops a
/// form whose reply leads elsewhere, over any number of redirects.
fn targets(return_url: Option<&str>) -> String {
    let scheme = return_url.and_then(|url| Some(Url::parse(url).ok()?.scheme().to_owned()));
    match scheme.as_deref() {
        None => "'self'".to_owned(),
        Some("http" | "https") => "'self' https: http:".to_owned(),
        Some(app) => format!("'self' {app}:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_of_the_site_that_they_came_from() {
        for (return_url, told) in [
            (Some("https://shop.example/done?cart=1"), "shop.example"),
            (Some("shop-app://done"), "the shop that sent you here"),
            (None, "the shop that sent you here"),
        ] {
            assert_eq!(shop(return_url), told);
        }
    }

    #[test]
    fn a_form_may_lead_back_to_the_shop_and_to_no_other_app() {
        assert_eq!(targets(None), "'self'");
        assert_eq!(
            targets(Some("http://localhost:3000/return")),
            "'self' https: http:"
        );
        assert_eq!(targets(Some("shop-app://return")), "'self' shop-app:");
    }
}
