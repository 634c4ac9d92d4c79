//! `/setup_intents`

use super::prelude::*;
use crate::{
    commands::{CancelSetupIntent, ConfirmSetupIntent, CreateSetupIntent, UpdateSetupIntent},
    store::setup_intents::SetupFilter,
    wire::{
        intent_parameters::wrong_client_secret,
        setup_intents::{
            CancelSetupIntentParams, ConfirmSetupIntentParams, CreateSetupIntentParams,
            SetupIntentView, UpdateSetupIntentParams,
        },
    },
};

endpoints! { "Setup intents", SetupIntentView;
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

    /// List setup intents
    page list "listSetupIntents": "/setup_intents" of SetupIntentId (ListSetupIntentsQuery) [],
        query => SetupFilter { customer: query.customer, payment_method: query.payment_method },
        store::setup_intents::list;
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

/// Retrieve a setup intent
#[utoipa::path(
    get, path = "/setup_intents/{id}", tag = "Setup intents", operation_id = "retrieveSetupIntent",
    params(
        ("id" = String, Path, description = "The setup intent's id: seti_…"),
        RetrieveSetupIntentQuery,
    ),
    responses(
        (status = 200, description = "The setup intent.", body = SetupIntentView),
        ObjectErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<RetrieveSetupIntentQuery>(&request)?;
    let text = request.match_info().query("id");
    let missing = || ApiError::missing::<SetupIntentId>(caller.dialect, "intent", text);
    let id = SetupIntentId::parse(text).ok_or_else(missing)?;
    let found = reads::shown(&app, caller, query.expand, move |connection| {
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
