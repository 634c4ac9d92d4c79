//! `/setup_intents`

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, PageQuery};
use charge_once_strict_params::{Expand, Text, parameters};
use uuid::Uuid;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run,
    request::{Caller, MutatingRequest, query_params},
};
use crate::{
    commands::{
        CancelSetupIntent, ConfirmSetupIntent, CreateSetupIntent, UpdateSetupIntent,
        expansions::{Shown, view},
    },
    domain::{
        ids::{CustomerId, PaymentMethodId, SetupIntentId},
        setup_intent::SetupIntent,
    },
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

errors! {
    CreateSetupIntentErrors: Charging [
        ParameterMissing, PaymentMethodUnexpectedState, ResourceMissing
    ]
}

/// Create a setup intent
///
/// Makes a card ready for later payments; no money moves. With `confirm` it is tried at once. A card
/// whose holder must authenticate makes the status `requires_action`: send the holder to
/// `next_action.redirect_to_url.url`.
#[utoipa::path(
    post, path = "/setup_intents", tag = "Setup intents", operation_id = "createSetupIntent",
    params(MutatingHeaders),
    request_body = CreateSetupIntentParams,
    responses(
        (status = 201, description = "The setup intent.", body = SetupIntentView),
        CreateSetupIntentErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        let public_url = Arc::clone(&app.public_url);
        let command = CreateSetupIntent {
            origin,
            params,
            public_url,
        };
        app.idempotency.run(request, command)
    })
    .await
}

errors! {
    UpdateSetupIntentErrors: Charging [
        PaymentMethodUnexpectedState, ResourceMissing, SetupIntentUnexpectedState
    ]
}

/// Update a setup intent
///
/// Another payment method or customer voids an authentication that is under way, and the setup intent
/// is to be confirmed again. Names of metadata that the request doesn't mention stay.
#[utoipa::path(
    post, path = "/setup_intents/{id}", tag = "Setup intents", operation_id = "updateSetupIntent",
    params(
        ("id" = String, Path, description = "The setup intent's id: seti_…"),
        MutatingHeaders,
    ),
    request_body = UpdateSetupIntentParams,
    responses(
        (status = 200, description = "The setup intent.", body = SetupIntentView),
        UpdateSetupIntentErrors,
    ),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, UpdateSetupIntent { origin, id, params })
    })
    .await
}

errors! {
    ConfirmSetupIntentErrors: Charging [
        ParameterMissing, PaymentMethodUnexpectedState, ResourceMissing, SetupIntentUnexpectedState
    ]
}

/// Confirm a setup intent
///
/// Tries to set the card up. A card that is declined leaves the status `requires_payment_method`, and
/// the reason in `last_setup_error`; another attempt needs a new idempotency key.
#[utoipa::path(
    post, path = "/setup_intents/{id}/confirm", tag = "Setup intents",
    operation_id = "confirmSetupIntent",
    params(
        ("id" = String, Path, description = "The setup intent's id: seti_…"),
        MutatingHeaders,
    ),
    request_body = ConfirmSetupIntentParams,
    responses(
        (status = 200, description = "The setup intent.", body = SetupIntentView),
        ConfirmSetupIntentErrors,
    ),
)]
pub async fn confirm(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        let public_url = Arc::clone(&app.public_url);
        let command = ConfirmSetupIntent {
            origin,
            id,
            params,
            public_url,
        };
        app.idempotency.run(request, command)
    })
    .await
}

errors! {
    CancelSetupIntentErrors: Mutating [ResourceMissing, SetupIntentUnexpectedState]
}

/// Cancel a setup intent
///
/// Until it has succeeded. The page of a holder who was to authenticate is void.
#[utoipa::path(
    post, path = "/setup_intents/{id}/cancel", tag = "Setup intents",
    operation_id = "cancelSetupIntent",
    params(
        ("id" = String, Path, description = "The setup intent's id: seti_…"),
        MutatingHeaders,
    ),
    request_body = CancelSetupIntentParams,
    responses(
        (status = 200, description = "The setup intent.", body = SetupIntentView),
        CancelSetupIntentErrors,
    ),
)]
pub async fn cancel(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, CancelSetupIntent { origin, id, params })
    })
    .await
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

errors! {
    RetrieveSetupIntentErrors: Reading [ResourceMissing]
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
        RetrieveSetupIntentErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let query = query_params::<RetrieveSetupIntentQuery>(&request)?;
    let missing = || ApiError::missing("intent", SetupIntentId::PREFIX);
    let id = SetupIntentId::parse(request.match_info().query("id")).ok_or_else(missing)?;
    let (account, audience) = (caller.account, caller.audience());
    let setup = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::setup_intents::find(&mut *connection, account, id).await?;
                let Some(setup) = found else { return Ok(None) };
                view(connection, audience, &setup, &query.expand)
                    .await
                    .map(Some)
            })
        })
        .await?
        .ok_or_else(missing)?;
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

errors! {
    ListSetupIntentsErrors: Reading []
}

/// List setup intents
#[utoipa::path(
    get, path = "/setup_intents", tag = "Setup intents", operation_id = "listSetupIntents",
    params(PageQuery, ListSetupIntentsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<SetupIntentView>),
        ListSetupIntentsErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (page, query) = list::query::<ListSetupIntentsQuery>(&request, setup_intent_id)?;
    let filter = SetupFilter {
        customer: query.customer,
        payment_method: query.payment_method,
    };
    let (account, audience) = (caller.account, caller.audience());
    let cursor = page.cursor;
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found =
                    store::setup_intents::list(&mut *connection, account, &page, filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = SetupIntent::views(connection, audience, &data, &query.expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, "/setup_intents", &cursor, AN_OBJECT, listed)
}

fn setup_intent_id(text: &str) -> Option<Uuid> {
    SetupIntentId::parse(text).map(|id| id.0)
}
