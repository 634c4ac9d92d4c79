//! `/checkouts`

use charge_once_strict_params::ParameterSet;

use super::prelude::*;
use crate::{
    domain::checkout::NewCheckout,
    wire::checkouts::{CheckoutView, CreateCheckoutParams},
    work::CreateCheckout,
};

errors! { CreateCheckoutErrors: Charging [ParameterMissing, AmountTooLarge, OutOfStock] }

/// Create a checkout
///
/// Opens an order, charges the card, and takes the items from the inventory, step by step. A
/// declined card cancels the order; items that are out of stock give the charge back and cancel the
/// order. After a 5xx the same key goes on where the checkout stopped; nothing before it runs
/// twice.
#[utoipa::path(
    post, path = "/checkouts", tag = "Checkouts", operation_id = "createCheckout",
    params(MutatingHeaders),
    request_body = CreateCheckoutParams,
    responses(
        (status = 201, description = "The checkout, completed.", body = CheckoutView),
        CreateCheckoutErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    run(&app, request, |request, origin, params| {
        let new = CreateCheckoutParams::parse(&params).map(NewCheckout::from);
        let new = new.map_err(ApiError::from);
        app.checkouts.run(request, CreateCheckout { origin, new })
    })
    .await
}

/// Retrieve a checkout
///
/// With its steps: which have run, what they made, and the number of attempts of each.
#[utoipa::path(
    get, path = "/checkouts/{id}", tag = "Checkouts", operation_id = "retrieveCheckout",
    params(("id" = String, Path, description = "The checkout's id: co_…")),
    responses((status = 200, description = "The checkout.", body = CheckoutView), ObjectErrors),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let (account, id) = (caller.account, path_id::<CheckoutId>(&request)?);
    let found = app.read(account, move |connection| {
        Box::pin(store::checkouts::find(connection, account, id))
    });
    let found = found.await?;
    let checkout = found.ok_or_else(|| reads::missing_id(caller, id))?;
    Ok(HttpResponse::Ok().json(CheckoutView::from(&checkout)))
}

parameters! {
    /// Which checkouts are listed.
    struct ListCheckoutsQuery {
        /// Only checkouts with this reference.
        customer: Option<Reference>,
    }
}

/// List checkouts
#[utoipa::path(
    get, path = "/checkouts", tag = "Checkouts", operation_id = "listCheckouts",
    params(PageQuery, ListCheckoutsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<CheckoutView>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, ListCheckoutsQuery { customer }) = reads::query::<CheckoutId, _>(&request)?;
    let account = caller.account;
    let listed = app.snapshot(account, move |connection| {
        Box::pin(async move { store::checkouts::list(connection, account, &page, customer).await })
    });
    let views = listed.await?.map(|checkout| CheckoutView::from(&checkout));
    reads::reply(caller.dialect, "/checkouts", views)
}
