//! `/test/report`: what is wrong with the client that uses a test account.

use actix_web::web;
use charge_once_service::request_log::{
    LoggedRequest,
    report::{Tested, findings},
};
use uuid::Uuid;

use super::{prelude::*, request::Tester};
use crate::{
    idempotency::{Failure, IdempotencyKey, sealed_key},
    store::report::{self, REQUESTS_MAX},
    wire::report::ReportView,
};

parameters! {
    /// Which requests.
    struct ReportQuery {
        /// Those before this one: req_…, as `next` of a report says.
        before: Option<IdOf<RequestId>>,
    }
}

/// Report on a client
///
/// Looks for what charges twice, or would, in the last 20,000 requests of the account: keys that
/// change from attempt to attempt, lost replies that nothing asks for again, webhooks that are
/// acted on twice. Each finding names its requests.
#[utoipa::path(
    get, path = "/test/report", tag = "Test", operation_id = "retrieveReport",
    params(ReportQuery),
    responses((status = 200, description = "The report.", body = ReportView), ReadErrors),
)]
pub async fn retrieve(app: Data<App>, Tester(caller): Tester, request: HttpRequest) -> HttpResult {
    let query: ReportQuery = query_params(&request)?;
    Ok(HttpResponse::Ok().json(read(&app, caller.account, query.before.flatten()).await?))
}

/// The report on the requests of an account before this one, or on its last ones.
async fn read(
    app: &App,
    account: AccountId,
    before: Option<RequestId>,
) -> Result<ReportView, HttpError> {
    // Other replicas may log theirs a moment later.
    if let Some(log) = &app.request_log {
        log.written(app.values.database_deadline).await;
    }
    let below = before.map_or(Uuid::max(), |id| id.0);
    let tested = app.snapshot(account, move |connection| {
        Box::pin(report::read(connection, account, below, sealed_key))
    });
    let tested = tested.await?;
    // It looks at thousands of requests, and waits for nothing.
    let viewed = web::block(move || view(tested)).await;
    viewed.map_err(|error| HttpError::failed_without_key(Failure::internal(error)))
}

fn view(mut tested: Tested) -> ReportView {
    let is_whole = i64::try_from(tested.requests.len()).unwrap_or(i64::MAX) < REQUESTS_MAX;
    let oldest = tested.requests.first().map(|request| RequestId(request.id));
    // What the test itself asked for is not its client's.
    let is_of_client = |request: &LoggedRequest| !request.route.contains("/test/");
    tested.requests.retain(is_of_client);
    let is_assigned =
        |key: &str| IdempotencyKey::parse(key.as_bytes()).is_ok_and(|key| key.is_assigned());
    let findings = findings(&tested, is_assigned);
    ReportView::of(&tested, &findings, oldest.filter(|_| !is_whole))
}
