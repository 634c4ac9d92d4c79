//! `/setup_intents`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::PageQuery;
use charge_once_strict_params::{Expand, Text, parameters};

use super::{
    app::App,
    error::HttpResult,
    error_responses::errors,
    list,
    request::{Caller, query_params},
    verbs::verbs,
};
use crate::{
    commands::{CancelSetupIntent, ConfirmSetupIntent, CreateSetupIntent, UpdateSetupIntent},
    domain::ids::{CustomerId, PaymentMethodId, SetupIntentId},
    store::{self, setup_intents::SetupFilter},
    wire::{
        error::ApiError,
        intent_parameters::wrong_client_secret,
        list::List,
        parameter::{ExpandSetupIntent, ExpandSetupIntents},
        setup_intents::{
            CancelSetupIntentParams, ConfirmSetupIntentParams, CreateSetupIntentParams,
            SetupIntentView, UpdateSetupIntentParams,
        },
    },
};

verbs! { "Setup intents", SetupIntentView;
    /// Create a setup intent
    ///
    /// Makes a card ready for later payments; no money moves. With `confirm` it is tried at once. A
    /// card whose holder must authenticate makes the status `requires_action`: send the holder to
    /// `next_action.redirect_to_url.url`.
    create "createSetupIntent": post "/setup_intents" (CreateSetupIntentParams)
        => 201 "The setup intent.",
        Charging [ParameterMissing, PaymentMethodUnexpectedState, ResourceMissing],
        CreateSetupIntent;

    /// Update a setup intent
    ///
    /// Another payment method or customer voids an authentication that is under way, and the setup
    /// intent is to be confirmed again. Names of metadata that the request doesn't mention stay.
    update "updateSetupIntent": post "/setup_intents/{id}" of id "The setup intent's id: seti_…"
        (UpdateSetupIntentParams) => 200 "The setup intent.",
        Charging [PaymentMethodUnexpectedState, ResourceMissing, SetupIntentUnexpectedState],
        |params| UpdateSetupIntent::of(&id, params);

    /// Confirm a setup intent
    ///
    /// Tries to set the card up. A card that is declined leaves the status
    /// `requires_payment_method`, and the reason in `last_setup_error`; another attempt needs a new
    /// idempotency key.
    confirm "confirmSetupIntent": post "/setup_intents/{id}/confirm"
        of id "The setup intent's id: seti_…" (ConfirmSetupIntentParams) => 200 "The setup intent.",
        Charging [
            ParameterMissing, PaymentMethodUnexpectedState, ResourceMissing,
            SetupIntentUnexpectedState,
        ],
        |params| ConfirmSetupIntent::of(&id, params);

    /// Cancel a setup intent
    ///
    /// Until it has succeeded. The page of a holder who was to authenticate is void.
    cancel "cancelSetupIntent": post "/setup_intents/{id}/cancel"
        of id "The setup intent's id: seti_…" (CancelSetupIntentParams) => 200 "The setup intent.",
        Mutating [ResourceMissing, SetupIntentUnexpectedState],
        |params| CancelSetupIntent::of(&id, params);
}

parameters! {
    /// How a setup intent is shown.
    struct RetrieveSetupIntentQuery {
        /// If it is sent, it must be the setup intent's.
        client_secret: Option<Text<255>>,
        /// `payment_method` shows the whole payment method, and so on.
        expand: Expand<ExpandSetupIntent>,
    }
}

errors! { RetrieveSetupIntentErrors: Reading [ResourceMissing] }

/// Retrieve a setup intent
#[utoipa::path(
    get, path = "/setup_intents/{id}", tag = "Setup intents", operation_id = "retrieveSetupIntent",
    params(
        ("id" = String, Path, description = "The setup intent's id: seti_…"),
        RetrieveSetupIntentQuery,
    ),
    responses(
        (status = 200, description = "The setup intent.", body = SetupIntentView),
        RetrieveSetupIntentErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<RetrieveSetupIntentQuery>(&request)?;
    let missing = || ApiError::missing("intent", SetupIntentId::PREFIX);
    let id = SetupIntentId::parse(request.match_info().query("id")).ok_or_else(missing)?;
    let found = list::shown(&app, caller, query.expand, move |connection| {
        Box::pin(store::setup_intents::find(connection, caller.account, id))
    });
    let setup = found.await?.ok_or_else(missing)?;
    let secret = query.client_secret;
    if secret.is_some_and(|secret| secret != setup.client_secret) {
        return Err(wrong_client_secret().into());
    }
    Ok(HttpResponse::Ok().json(setup))
}

parameters! {
    /// Which setup intents are listed, and how.
    struct ListSetupIntentsQuery {
        /// Only setup intents of this customer: cus_…
        customer: Option<CustomerId>,
        /// Only setup intents of this payment method: pm_…
        payment_method: Option<PaymentMethodId>,
        /// `data.payment_method` shows the whole payment method in each, and so on.
        expand: Expand<ExpandSetupIntents>,
    }
}

errors! { ListSetupIntentsErrors: Reading [] }

/// List setup intents
#[utoipa::path(
    get, path = "/setup_intents", tag = "Setup intents", operation_id = "listSetupIntents",
    params(PageQuery, ListSetupIntentsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<SetupIntentView>),
        ListSetupIntentsErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = list::query::<SetupIntentId, ListSetupIntentsQuery>(&request)?;
    let filter = SetupFilter {
        customer: query.customer,
        payment_method: query.payment_method,
    };
    let account = caller.account;
    let listed = list::shown_page(&app, caller, page, query.expand, move |connection, page| {
        Box::pin(store::setup_intents::list(
            connection, account, page, filter,
        ))
    });
    list::reply(caller.dialect, "/setup_intents", listed.await?)
}
