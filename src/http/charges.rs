//! `/charges`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::PageQuery;
use charge_once_strict_params::{Expand, parameters};

use super::{
    app::App,
    error::{HttpError, HttpResult},
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run_verb,
    request::{Caller, MutatingRequest, path_id, query_params},
    verbs::verbs,
};
use crate::{
    commands::{CaptureCharge, CreateCharge, Update},
    domain::{
        charge::Charge,
        ids::{ChargeId, OrderId, PaymentIntentId},
    },
    store::{self, charges::ChargeFilter},
    wire::{
        charges::{CaptureChargeParams, ChargeView, CreateChargeParams, UpdateChargeParams},
        list::List,
        parameter::{ExpandCharge, ExpandCharges, Reference},
    },
};

errors! { CreateChargeErrors: Charging [ParameterMissing, AmountTooLarge] }

/// Charge a card
#[utoipa::path(
    post, path = "/charges", tag = "Charges", operation_id = "createCharge",
    params(MutatingHeaders),
    request_body(
        content = CreateChargeParams,
        description = "Amounts are in minor units: 2000 is 20.00 of a currency with cents.",
    ),
    responses(
        (status = 201, description = "The charge.", body = ChargeView),
        CreateChargeErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    run_verb(&app, request, CreateCharge).await
}

verbs! { "Charges", ChargeView;
    /// Update a charge
    ///
    /// Names of metadata that the request doesn't mention stay; an empty value unsets.
    update "updateCharge": post "/charges/{id}" of id "The charge's id: ch_…" (UpdateChargeParams)
        => 200 "The charge.", Mutating [ResourceMissing],
        |params| Update::<Charge> { id, params };

    /// Capture a charge
    ///
    /// Takes money that was promised with `capture=false`: all of it, or a part; the rest is
    /// released. Once only.
    capture "captureCharge": post "/charges/{id}/capture" of id "The charge's id: ch_…"
        (CaptureChargeParams) => 200 "The charge.",
        Mutating [
            ResourceMissing, AmountTooLarge, ChargeAlreadyCaptured,
            ChargeAlreadyRefunded, CaptureAmountTooLarge,
        ],
        |params| CaptureCharge::of(&id, params);
}

parameters! {
    /// How a charge is shown.
    struct RetrieveChargeQuery {
        /// `refunds` lists its refunds in it.
        expand: Expand<ExpandCharge>,
    }
}

errors! { RetrieveChargeErrors: Reading [ResourceMissing] }

/// Retrieve a charge
#[utoipa::path(
    get, path = "/charges/{id}", tag = "Charges", operation_id = "retrieveCharge",
    params(("id" = String, Path, description = "The charge's id: ch_…"), RetrieveChargeQuery),
    responses(
        (status = 200, description = "The charge.", body = ChargeView),
        RetrieveChargeErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let expand = query_params::<RetrieveChargeQuery>(&request)?.expand;
    let id = path_id::<ChargeId>(&request)?;
    let found = list::shown(&app, caller, expand, move |connection| {
        Box::pin(store::charges::find(connection, caller.account, id))
    });
    let shown = found.await?.ok_or_else(HttpError::missing_id::<ChargeId>)?;
    Ok(HttpResponse::Ok().json(shown))
}

parameters! {
    /// Which charges are listed, and how.
    struct ListChargesQuery {
        /// Only charges with this reference.
        customer: Option<Reference>,
        /// Only charges for this order: or_…
        order: Option<OrderId>,
        /// Only charges of this intent: pi_…
        payment_intent: Option<PaymentIntentId>,
        /// `data.refunds` lists the refunds in each.
        expand: Expand<ExpandCharges>,
    }
}

errors! { ListChargesErrors: Reading [] }

/// List charges
#[utoipa::path(
    get, path = "/charges", tag = "Charges", operation_id = "listCharges",
    params(PageQuery, ListChargesQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<ChargeView>),
        ListChargesErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = list::query::<ChargeId, ListChargesQuery>(&request)?;
    let filter = ChargeFilter {
        customer: query.customer,
        order: query.order,
        intent: query.payment_intent,
    };
    let account = caller.account;
    let listed = list::shown_page(&app, caller, page, query.expand, move |connection, page| {
        Box::pin(store::charges::list(connection, account, page, filter))
    });
    list::reply(caller.dialect, "/charges", listed.await?)
}
