//! What a person asks the simulator: its ledger, and its faults.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    web::{Bytes, Data, Query},
};
use serde::Deserialize;
use serde_json::json;

use super::{Processor, faults::FaultRule};

#[derive(Deserialize)]
pub(super) struct LedgerQuery {
    charge: Option<String>,
}

/// `GET /ledger`: the newest entries first, and the totals.
pub(super) async fn list_ledger(
    processor: Data<Processor>,
    query: Query<LedgerQuery>,
) -> HttpResponse {
    match processor.ledger.list(query.into_inner().charge).await {
        Ok(listing) => HttpResponse::Ok().json(listing),
        Err(error) => {
            tracing::error!(%error, "the ledger can't be read");
            HttpResponse::ServiceUnavailable().finish()
        }
    }
}

/// `GET /faults`: the waiting faults, and the number of delayed requests.
pub(super) async fn show_faults(processor: Data<Processor>) -> HttpResponse {
    let (faults, delaying) = processor.faults.show();
    HttpResponse::Ok().json(json!({"faults": faults, "delaying": delaying}))
}

/// `POST /faults`: sets one. For JSON a browser asks first, and this server does not answer that:
/// no page of another site can make it send this.
pub(super) async fn set_fault(
    processor: Data<Processor>,
    request: HttpRequest,
    body: Bytes,
) -> HttpResponse {
    if !request
        .content_type()
        .eq_ignore_ascii_case("application/json")
    {
        let error = json!({"code": "unsupported_media_type", "message": "Send application/json."});
        return HttpResponse::UnsupportedMediaType().json(json!({"error": error}));
    }
    let complaint = match serde_json::from_slice::<FaultRule>(&body) {
        Ok(fault) => match processor.faults.set(fault) {
            Ok(()) => return show_faults(processor).await,
            Err(complaint) => complaint.to_owned(),
        },
        Err(error) => error.to_string(),
    };
    HttpResponse::BadRequest().json(json!({"error": complaint}))
}

/// `DELETE /faults`: removes all, and ends running delays.
pub(super) async fn reset_faults(processor: Data<Processor>) -> HttpResponse {
    processor.faults.reset();
    show_faults(processor).await
}
